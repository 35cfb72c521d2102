//! The page of a store of profiles, in a real browser.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use testkit::browser::{Browser, Page};
use testkit::prometheus::Prometheus;
use testkit::wait_for;

use crate::store::{Store, now_ms};

const HOSTILE: &str = "<script>document.title='owned'</script>";
const MINUTE_MS: u128 = 60_000;
/// A sample of 100 Hz.
const SAMPLE_NS: u64 = 10_000_000;

/// Two services, one of which does something else since half an hour.
fn filled(folder: &std::path::Path) -> Store {
    let store = Store::start(&folder.join("profiles"), &[]);
    let push = |service: &str, minutes: u128, stacks: &str| {
        let at = now_ms() - minutes * MINUTE_MS;
        let name = format!("{service}.cpu%7Bpod%3Da%7D");
        let path = format!("/ingest?name={name}&from={at}&until={}", at + 10_000);
        assert_eq!(store.post(&path, &[], stacks.as_bytes()).0, 200);
    };
    let hostile = format!("main;{HOSTILE};fib;fib 9\n");
    push("shop", 50, "main;serve;decode 30\nmain;serve 10\nmain;clean 20\n");
    push("shop", 10, &format!("main;serve;decode 90\nmain;serve 11\n{hostile}"));
    push("other", 10, "start;idle 1\n");
    store
}

struct Reader {
    browser: Browser,
    page: Page,
}

impl Reader {
    fn open(url: &str) -> Option<Self> {
        let mut browser = Browser::start(1300, 900)?;
        let page = browser.open(url);
        Some(Self { browser, page })
    }

    fn eval(&mut self, script: &str) -> Value {
        self.browser.eval(&self.page, script)
    }

    fn wait(&mut self, script: &str) -> Value {
        self.browser.wait(&self.page, script)
    }

    /// Waits until so many flame graphs are there and the table with this function.
    fn wait_for(&mut self, graphs: usize, function: &str) {
        self.wait(&format!(
            "document.getElementById('live').dataset.state === 'ended' && graphs.length === {graphs} \
             && document.querySelector('[data-function=\"{function}\"]') !== null"
        ));
    }

    /// Gives a control a value, as a reader would.
    fn choose(&mut self, id: &str, value: &str, event: &str) {
        let value = json!(value);
        self.eval(&format!(
            "{{ const it = document.getElementById('{id}'); it.value = {value}; it.dispatchEvent(new Event('{event}', {{ bubbles: true }})); }}"
        ));
    }

    /// The exact values of a row of the table, by column.
    fn table(&mut self) -> BTreeMap<String, BTreeMap<String, String>> {
        let script = "Object.fromEntries([...document.querySelectorAll('#functions tbody tr')].map((row) => [row.dataset.function,
            Object.fromEntries([...row.querySelectorAll('[data-value]')].map((cell) => [cell.dataset.key, cell.dataset.value]))]))";
        serde_json::from_value(self.eval(script)).unwrap()
    }

    /// Names of the frames of the first flame graph that are shown.
    fn frames(&mut self) -> Vec<String> {
        let script = "graphs[0].boxes.filter(({ group }) => !group.classList.contains('hide')).map(({ name }) => name)";
        serde_json::from_value(self.eval(script)).unwrap()
    }
}

/// What the querier says of functions, computed from the levels of its flame graph: self and total of each, of `sides` sides.
fn of_levels(graph: &Value, sides: usize) -> BTreeMap<String, Vec<[u64; 2]>> {
    let width = 3 * sides + 1;
    let mut functions: BTreeMap<String, Vec<[u64; 2]>> = BTreeMap::new();
    for level in graph["levels"].as_array().unwrap().iter().skip(1) {
        let values = level["values"].as_array().unwrap();
        let values: Vec<u64> =
            values.iter().map(|it| it.as_str().unwrap().parse().unwrap()).collect();
        for node in values.chunks(width) {
            let name = graph["names"][usize::try_from(node[width - 1]).unwrap()].as_str().unwrap();
            let known = functions.entry(name.to_owned()).or_insert_with(|| vec![[0, 0]; sides]);
            for (side, sums) in known.iter_mut().enumerate() {
                *sums = [sums[0] + node[3 * side + 2], sums[1] + node[3 * side + 1]];
            }
        }
    }
    functions
}

#[test]
fn a_reader_picks_zooms_searches_and_compares() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path());
    let Some(mut reader) = Reader::open(&format!("{}/", store.url)) else { return };
    reader.wait_for(1, "idle");
    assert_eq!(reader.eval("document.getElementById('now-service').value"), "other");
    reader.choose("now-service", "shop", "change");
    reader.wait_for(1, "decode");

    // The figures are the querier's, to the nanosecond.
    let question = |from: &str, until: &str, reader: &mut Reader| {
        let range =
            reader.eval(&format!("rangeOf({{ from: {from}, until: {until} }}, Date.now())"));
        json!({
            "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
            "labelSelector": "{service_name=\"shop\"}", "start": range["start"], "end": range["end"],
        })
    };
    let asked = question("asked.now.from", "asked.now.until", &mut reader);
    let answer = store.ask("SelectMergeStacktraces", &asked);
    let expected = of_levels(&answer["flamegraph"], 1);
    let table = reader.table();
    assert_eq!(table.len(), expected.len());
    for (name, sides) in expected.iter().filter(|(name, _)| *name != "fib") {
        let [own, total] = sides[0];
        assert_eq!(table[name]["self"], own.to_string(), "{name}");
        assert_eq!(table[name]["total"], total.to_string(), "{name}");
    }
    // Recursion counts once.
    assert_eq!(table["fib"]["total"], (9 * SAMPLE_NS).to_string());
    assert_eq!(table["main"]["total"], (170 * SAMPLE_NS).to_string());
    let total = reader.eval("document.querySelector('#now-note [data-total]').dataset.total");
    assert_eq!(total, (170 * SAMPLE_NS).to_string());

    // A frame that is clicked fills the graph, and stands in the address.
    assert!(reader.frames().contains(&"clean".to_owned()));
    reader.eval("graphs[0].boxes.find(({ name }) => name === 'serve').group.querySelector('rect').dispatchEvent(new graphs[0].window.MouseEvent('click', { bubbles: true }))");
    reader.wait("location.search.endsWith('&frame=main&frame=serve')");
    assert_eq!(reader.frames(), ["all", "main", "serve", "decode"]);
    reader.eval("graphs[0].page.dispatchEvent(new graphs[0].window.KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true }))");
    assert_eq!(
        reader.eval("graphs[0].page.activeElement.getAttribute('aria-label').split(' ')[0]"),
        "decode"
    );
    reader.eval("document.getElementById('unzoom').click()");
    assert_eq!(reader.frames().len(), 8);

    // What is searched is lit, with its share, and alone in the table.
    reader.choose("search", "DECODE", "input");
    assert_eq!(reader.eval("document.getElementById('found').textContent"), "70.6 %");
    assert_eq!(
        reader.eval(
            "graphs[0].page.querySelectorAll('#frames rect[fill=\"rgb(230,0,230)\"]').length"
        ),
        1
    );
    assert_eq!(reader.table().into_keys().collect::<Vec<_>>(), ["decode"]);
    reader.choose("search", "no such function", "input");
    assert_eq!(reader.eval("document.getElementById('found').textContent"), "not found");
    reader.choose("search", "", "input");

    // Compared with the time before.
    reader.choose("now-from", "now-30m", "change");
    reader.wait("!document.querySelector('[data-function=\"clean\"]') && document.getElementById('live').dataset.state === 'ended'");
    reader.choose("compare", "before", "change");
    reader.wait_for(1, "clean");
    let left = question("asked.base.from", "asked.base.until", &mut reader);
    let right = question("asked.now.from", "asked.now.until", &mut reader);
    let answer = store.ask("Diff", &json!({ "left": left, "right": right }));
    let expected = of_levels(&answer["flamegraph"], 2);
    let table = reader.table();
    for (name, sides) in expected.iter().filter(|(name, _)| *name != "fib") {
        let [[base_own, base_total], [own, total]] = [sides[0], sides[1]];
        let figures =
            [("base_self", base_own), ("base_total", base_total), ("self", own), ("total", total)];
        for (key, figure) in figures {
            assert_eq!(table[name][key], figure.to_string(), "{key} of {name}");
        }
    }
    assert_eq!(table["clean"]["base_self"], (20 * SAMPLE_NS).to_string());
    assert_eq!(table["clean"]["self"], "0");
    // 30 of 60 before, 90 of 110 after.
    let change = "document.querySelector('[data-function=\"decode\"] [data-key=\"self_change\"]').textContent";
    assert_eq!(reader.eval(change), "+31.82 %");
    let fill = "graphs[0].boxes.find(({ name }) => name === 'decode').group.querySelector('rect').getAttribute('fill')";
    let fill = reader.eval(fill).as_str().unwrap().to_owned();
    assert!(fill.starts_with("rgb(255,") && fill != "rgb(255,255,255)", "{fill} is no red");
    reader.eval("document.querySelector('#view input[value=\"sides\"]').click()");
    reader.wait_for(2, "clean");

    // By label, one of whose values is chosen then.
    reader.choose("now-by", "pod", "change");
    reader.wait("document.querySelector('[data-side=now] .sums button')?.textContent === 'a' && document.getElementById('live').dataset.state === 'ended'");
    let all = "document.querySelector('[data-side=now] .sums li').dataset.value";
    assert_eq!(reader.eval(all), (110 * SAMPLE_NS).to_string());
    reader.eval("document.querySelector('[data-side=now] .sums button').click()");
    reader.wait("location.search.includes('labels=pod%3D%22a%22')");
    reader.wait_for(2, "clean");

    // The address is all that somebody else needs.
    let address = reader.eval("location.href").as_str().unwrap().to_owned();
    let table = reader.table();
    let page = reader.browser.open(&address);
    reader.page = page;
    reader.wait_for(2, "clean");
    assert_eq!(reader.table(), table);
    let foreign = "performance.getEntriesByType('resource').filter(({ name }) => !name.startsWith(location.origin)).length";
    assert_eq!(reader.eval(foreign), 0);
}

#[test]
fn a_time_is_dragged_and_names_of_functions_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path());
    let url = format!("{}/?service=shop&from=now-1h&search=script", store.url);
    let Some(mut reader) = Reader::open(&url) else { return };
    let name = "document.querySelector('#functions .function')?.textContent ?? null";
    assert_eq!(reader.wait(name), HOSTILE);
    reader.wait("graphs.length === 1");
    assert_eq!(reader.eval("document.getElementById('found').textContent"), "5.3 %");
    assert_ne!(reader.eval("document.title"), "owned");
    assert_eq!(reader.eval("document.scripts.length"), 1);
    assert_eq!(reader.eval("graphs[0].page.querySelectorAll('script').length"), 1);
    assert_eq!(
        reader.eval(&format!("graphs[0].boxes.some(({{ name }}) => name === {})", json!(HOSTILE))),
        true
    );

    // From the middle of the columns to the last: only what was pushed ten minutes ago.
    let drag = "{ const plot = document.querySelector('[data-side=now] .plot');
        plot.setPointerCapture = () => {};
        const { left, width, top } = plot.getBoundingClientRect();
        const at = (type, x) => plot.dispatchEvent(new PointerEvent(type, { clientX: left + x * width, clientY: top + 20, button: 0, buttons: 1, bubbles: true }));
        at('pointerdown', .5); at('pointermove', .8); at('pointerup', .999); }";
    reader.choose("search", "", "input");
    reader.eval(drag);
    reader.wait("/from=\\d+/.test(location.search) && document.getElementById('live').dataset.state === 'ended'");
    let table = reader.table();
    assert!(!table.contains_key("clean"), "{table:?}");
    assert_eq!(table["main"]["total"], (110 * SAMPLE_NS).to_string());
}

#[test]
fn an_empty_store_says_how_to_push_and_errors_say_what() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(&folder.path().join("profiles"), &[]);
    let Some(mut reader) = Reader::open(&format!("{}/", store.url)) else { return };
    let text = "document.getElementById('empty').innerText || null";
    let text = reader.wait(text).as_str().unwrap().to_owned();
    let command = format!("throughline agent --send {}", store.url);
    assert!(text.contains(&command), "{text}");
    assert_eq!(store.push("shop", &[], "main;serve 5\n").0, 200);
    let page = reader.browser.open(&format!("{}/?service=shop&labels=pod%3D", store.url));
    reader.page = page;
    let told = reader.wait("document.getElementById('error')?.textContent ?? null");
    let told = told.as_str().unwrap();
    assert!(told.contains("invalid_argument"), "{told}");
    reader.choose("now-labels", "pod=\"b\"", "change");
    let nothing = reader.wait("document.querySelector('.nothing')?.textContent ?? null");
    assert!(nothing.as_str().unwrap().contains("No samples in this time"), "{nothing}");
}

#[test]
fn it_says_how_far_behind_the_receivers_of_metrics_are() {
    let Some(prometheus) = Prometheus::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    let rule = "[[rule]]\nprofile_type = \"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"\n";
    fs::write(&rules, rule).unwrap();
    // The discard service's port, at which nobody is.
    let (taken, away) = (prometheus.write_url(), "http://127.0.0.1:9/write");
    let arguments = ["--cell", "1s", "--rules", rules.to_str().unwrap()];
    let receivers = ["--remote-write", taken.as_str(), "--remote-write", away];
    let store = Store::start(&folder.path().join("profiles"), &[arguments, receivers].concat());
    assert_eq!(store.push("shop", &[], "main;serve 5\n").0, 200);
    wait_for("both receivers' lag", || {
        let told = store.get("/metrics");
        let has_sent = told.contains("throughline_export_sent_samples_total{tenant=\"anonymous\",receiver=\"http://127.0.0.1:9/write\"} 0");
        (has_sent && told.contains("throughline_export_failing{tenant=\"anonymous\",receiver=\"http://127.0.0.1:9/write\"} 1")).then_some(())
    });
    let Some(mut reader) = Reader::open(&format!("{}/", store.url)) else { return };
    reader.wait_for(1, "serve");
    let lines = "[...document.querySelectorAll('#receivers li')].map((it) => it.innerText).join('\\n') || null";
    let lines = reader.wait(lines).as_str().unwrap().to_owned();
    let of = |url: &str| lines.lines().find(|line| line.starts_with(url)).unwrap().to_owned();
    assert!(of(&taken).contains(" s behind"), "{lines}");
    assert!(!of(&taken).contains("takes nothing"), "{lines}");
    assert!(of(away).contains(" samples wait; it takes nothing now"), "{lines}");
}

#[test]
fn tenants_are_told_apart_in_the_page_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(&folder.path().join("profiles"), &["--tenants"]);
    assert_eq!(store.push("shop", &["X-Scope-OrgID: one"], "main;serve 5\n").0, 200);
    let Some(mut reader) = Reader::open(&format!("{}/", store.url)) else { return };
    reader.wait("document.getElementById('error')?.textContent.includes('unauthenticated')");
    reader.choose("tenant", "one", "change");
    reader.wait_for(1, "serve");
    assert!(reader.eval("location.search").as_str().unwrap().starts_with("?tenant=one&"));
}
