//! A stripped program is sampled on one machine, and its functions are named where its debug information is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::prometheus::Prometheus;
use testkit::wait_for;

use crate::compact::Shop;
use crate::process::{Running, THROUGHLINE};
use crate::profile::can_sample;
use crate::read::stderr;
use crate::store::{Door, Store, asked, now_ms};
use crate::up::Up;

const SOURCE: &str = "\
static volatile unsigned sink;
static inline __attribute__((always_inline)) void shrink(unsigned n) { sink += n * 3; sink ^= n; }
__attribute__((noinline)) void decode_thumbnail(unsigned n) { for (unsigned i = 0; i < n; i++) shrink(i); }
int main(void) { for (int i = 0; i < 300; i++) decode_thumbnail(1000000); return 0; }
";

/// Samples of a program without symbols, and the folder with its debug information.
struct Sampled {
    packet: PathBuf,
    symbols: PathBuf,
}

impl Sampled {
    fn new(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        fs::write(path("thumbs.c"), SOURCE).unwrap();
        let (all, stripped) = (path("all"), path("thumbs"));
        run("cc", &["-g", "-O1", "-Wl,--build-id=sha1", "-o", &all, &path("thumbs.c")]);
        run("objcopy", &["--strip-all", &all, &stripped]);
        let notes = run("readelf", &["-n", &all]);
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
        let symbols = folder.join("symbols");
        let place = symbols.join(".build-id").join(&id[..2]);
        fs::create_dir_all(&place).unwrap();
        let debug = place.join(format!("{}.debug", &id[2..]));
        run("objcopy", &["--only-keep-debug", &all, debug.to_str().unwrap()]);
        let packet = path("thumbs.otlp.gz");
        run(THROUGHLINE, &["profile", "--output", &packet, "--", &stripped]);
        Self { packet: packet.into(), symbols }
    }

    fn send(&self, store: &Door) {
        run(THROUGHLINE, &["profile", "send", self.packet.to_str().unwrap(), "--to", &store.url]);
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Nanoseconds below a function, and whether there is a frame without a name of the program itself.
fn time_of(store: &Door, function: &str) -> (i64, bool) {
    let graph =
        store.ask("SelectMergeStacktraces", &asked("unknown_service:thumbs"))["flamegraph"].clone();
    let none = Vec::new();
    let names = graph["names"].as_array().unwrap_or(&none);
    let nameless = names.iter().any(|name| name.as_str().unwrap().starts_with("thumbs+0x"));
    let Some(wanted) = names.iter().position(|name| name == function) else { return (0, nameless) };
    let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
    let mut total = 0;
    for level in graph["levels"].as_array().unwrap() {
        // Offset, total, self and name of each bar.
        for bar in level["values"].as_array().unwrap().chunks(4) {
            if number(&bar[3]) == i64::try_from(wanted).unwrap() {
                total += number(&bar[1]);
            }
        }
    }
    (total, nameless)
}

#[test]
fn native_functions_are_named_before_metrics_are_made_of_them() {
    let Some(prometheus) = Prometheus::start() else { return };
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sampled = Sampled::new(folder.path());
    let rules = folder.path().join("rules.toml");
    let rule = "[[rule]]\nprofile_type = \"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"\n\
                metric = \"profiles_recorded_thumbs\"\ngroup_by = []\n\
                functions = { regex = \"decode_thumbnail|shrink|begun\" }\n";
    fs::write(&rules, rule).unwrap();
    let (symbols, rules) = (sampled.symbols.to_str().unwrap(), rules.to_str().unwrap());
    let url = prometheus.write_url();
    let arguments =
        ["--cell", "1s", "--symbols", symbols, "--rules", rules, "--remote-write", &url];
    let store = Store::start(&folder.path().join("profiles"), &arguments);
    let metric = |function: &str| {
        let query =
            format!("sum_over_time(profiles_recorded_thumbs{{function=\"{function}\"}}[1h])");
        let at_s = i64::try_from(now_ms() / 1_000).unwrap() + 60;
        let series = prometheus.query(&query, at_s);
        series.first()?["value"][1].as_str()?.parse::<i64>().ok()
    };
    // The rule holds from a cell on; then comes what counts.
    wait_for("the rule to hold", || {
        assert_eq!(store.push("shop", &[], "main;begun 1\n").0, 200);
        metric("begun")
    });
    sampled.send(&store);
    let exported = wait_for("the metric", || metric("decode_thumbnail"));
    let (total, has_nameless) = time_of(&store, "decode_thumbnail");
    assert!(total > 50_000_000 && !has_nameless, "{total}");
    assert_eq!(exported, total);
    // What is inlined into it is a function too.
    let inlined = time_of(&store, "shrink").0;
    assert!(inlined > 0 && inlined <= total, "{inlined} of {total}");
    assert_eq!(metric("shrink"), Some(inlined));
    let told = store.get("/metrics");
    let line = "throughline_symbols_frames_total{outcome=\"named\"} ";
    let named = told.lines().find_map(|told| told.strip_prefix(line)).unwrap();
    assert!(named.parse::<u64>().unwrap() > 2, "{told}");
}

#[test]
fn a_worker_names_functions_by_what_it_has() {
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sampled = Sampled::new(folder.path());
    let data = folder.path().join("profiles");
    let shop = Shop::start(&data);
    let mut command = Command::new(THROUGHLINE);
    command.args(["compact", "--store", &format!("http://127.0.0.1:{}", shop.port)]);
    command.arg("--symbols").arg(&sampled.symbols).arg("--data").arg(&data);
    let log = folder.path().join("worker.log");
    let _worker = Running::start(command.stdout(Stdio::null()), "worker", &log);
    // It is asked for work before there is some that counts.
    shop.push(1);
    shop.wait_for_merges_by("worker", 1);
    sampled.send(&shop.store);
    let time = wait_for("names", || {
        let (time, has_nameless) = time_of(&shop.store, "decode_thumbnail");
        (time > 0 && !has_nameless).then_some(time)
    });
    assert_eq!(time_of(&shop.store, "main").0, time);
}

#[test]
fn up_names_functions_too() {
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sampled = Sampled::new(folder.path());
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    // Nobody is at the server.
    let folder = sampled.symbols.to_str().unwrap();
    let symbols = ["--symbols", folder, "--symbols", "http://127.0.0.1:1"];
    let mut up = Up::start_with(&data, &log, &symbols);
    let store = up.profiles.as_ref().unwrap();
    sampled.send(store);
    let time = wait_for("names", || {
        let (time, has_nameless) = time_of(store, "decode_thumbnail");
        (time > 0 && !has_nameless).then_some(time)
    });
    assert_eq!(time_of(store, "main").0, time);
    assert!(data.join("symbols").is_dir(), "where files of servers would be kept");
    assert!(up.process.end("TERM").success(), "{}", up.process.said());
}

#[test]
fn places_of_symbols_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let data = folder.path().join("profiles");
    let cases = [
        (vec!["--symbols", "/nowhere"], "--symbols /nowhere: "),
        (vec!["--symbols", file], "not a folder"),
        (vec!["--symbols", "ftp://127.0.0.1"], "not as http://HOST:PORT: ftp://127.0.0.1"),
        (vec!["--symbols", "http://127.0.0.1:1", "--symbols-cache", file], "cannot keep debug"),
    ];
    for (arguments, said) in cases {
        let mut command = Command::new(THROUGHLINE);
        command.args(["store", "--listen", "127.0.0.1:0", "--data"]).arg(&data).args(&arguments);
        let refused = command.output().unwrap();
        let words = stderr(&refused);
        assert_eq!((refused.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(words.contains(said), "{words}");
    }
    assert!(!data.exists(), "nothing is made before");
}
