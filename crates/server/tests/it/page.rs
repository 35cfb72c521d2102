use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use server::{AnswerSource, KernelHalf, Published, Snapshot, Status, page};

use crate::browser::{Document, document, figure};
use crate::client::Server;
use crate::sample;

fn assert_shows(page: &Document, answer: &Value) {
    for phase in answer["phases"].as_array().expect("phases") {
        let name = phase["name"].as_str().expect("a name");
        for (key, expected) in [
            ("spans", &phase["spans"]),
            ("wall_ns", &phase["wall_ns"]),
            ("running_ns", &phase["running_ns"]),
            ("waiting_ns", &phase["waiting_ns"]),
            ("blocked_disk_ns", &phase["blocked_ns"]["disk"]),
            ("blocked_network_ns", &phase["blocked_ns"]["network"]),
            ("blocked_lock_ns", &phase["blocked_ns"]["lock"]),
            ("blocked_timer_ns", &phase["blocked_ns"]["timer"]),
            ("blocked_pipe_ns", &phase["blocked_ns"]["pipe"]),
            ("blocked_child_ns", &phase["blocked_ns"]["child"]),
            ("blocked_other_ns", &phase["blocked_ns"]["other"]),
            ("unknown_ns", &phase["unknown_ns"]),
        ] {
            assert_eq!(page.phase_figure(name, key), expected.to_string(), "{key} of {name}");
        }
    }
    let tiles = page.element("<dl id=\"tiles\"", "</dl>");
    assert_eq!(figure(tiles, "requests"), answer["requests"]["complete"].to_string());
    assert_eq!(figure(tiles, "wall_ns"), answer["requests"]["wall_ns"].to_string());
}

/// A standalone page as a file, opened with this fragment.
fn open_standalone(answer: &Value, fragment: &str) -> Option<Document> {
    open_file(&page::standalone(&answer.to_string()), fragment)
}

fn open_file(page: &str, fragment: &str) -> Option<Document> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("phases.html");
    fs::write(&file, page).expect("written");
    document(&format!("file://{}#{fragment}", file.display()))
}

/// A standalone page after this script has acted as its reader. The page's own policy would not run it, so it is lifted.
fn open_and_act(answer: &Value, script: &str) -> Option<Document> {
    let page = page::standalone(&answer.to_string());
    let lifted = page.replacen(page::content_security_policy(), "", 1);
    assert_ne!(page, lifted);
    open_file(
        &lifted.replacen(
            "</body>",
            &format!("<script type=\"module\">{script}</script></body>"),
            1,
        ),
        "",
    )
}

#[test]
fn a_served_page_shows_the_figures_of_the_answer() {
    let answer = sample::answer(250);
    let answers = Published::new();
    answers.set_phases(answer.to_string());
    answers.set_status(&Status { recording: true, windows_mapped: 7, ..Status::default() });
    let server = Server::start(Arc::new(answers));
    let Some(page) = document(&server.url()) else { return };
    assert_shows(&page, &answer);
    assert_eq!(page.dom.matches("<tr data-request=").count(), 200);
    assert!(page.element("id=\"more-requests\"", "</button>").contains("show 50 more of 50"));
    assert!(
        page.element("id=\"live\"", "</p>")
            .contains("recording: 0 chunks sealed, 7 windows mapped")
    );
    assert!(page.dom.contains("<div id=\"notices\"></div>"), "a notice without a reason");
}

#[test]
fn a_standalone_page_shows_the_same_and_opens_what_its_address_names() {
    let answer = sample::answer(30);
    let Some(page) = open_standalone(&answer, "phase=decode&unit=mean") else { return };
    assert_shows(&page, &answer);
    let decode =
        answer["phases"].as_array().expect("phases").iter().find(|phase| phase["name"] == "decode");
    let decode = decode.expect("the phase");
    let detail = page.element("data-detail=\"decode\"", "id=\"phase-table\"");
    for call in decode["syscalls"].as_array().expect("calls") {
        let name = call["name"].as_str().expect("a name");
        let row = detail.split_once(&format!("<tr data-call=\"{name}\">")).expect("a row").1;
        for key in ["ns", "calls", "bytes", "errors"] {
            assert_eq!(figure(row, key), call[key].to_string(), "{key} of {name}");
        }
        assert!(row.contains(&format!(
            "data-file=\"{}\"",
            call["files"][0]["name"].as_str().expect("a file")
        )));
    }
    for holder in decode["waited_for"].as_array().expect("holders") {
        let row =
            detail.split_once(&format!("<tr data-tid=\"{}\">", holder["tid"])).expect("a row").1;
        assert_eq!(figure(row, "ns"), holder["ns"].to_string());
    }
}

#[test]
fn integers_beyond_floating_point_are_shown_exactly() {
    let mut answer = sample::answer(1);
    let exact = 9_007_199_254_740_993_u64;
    answer["phases"][0]["running_ns"] = exact.into();
    answer["request_list"][0]["id"] = u64::MAX.into();
    let name = answer["phases"][0]["name"].as_str().expect("a name").to_owned();
    let Some(page) = open_standalone(&answer, "") else { return };
    assert_eq!(page.phase_figure(&name, "running_ns"), exact.to_string());
    assert!(page.dom.contains(&format!("GET /thumbnail {}", u64::MAX)));
    let begin = answer["begin_ns"].to_string();
    assert!(page.element("id=\"cover\"", "</p>").contains(&format!("data-ns=\"{begin}\"")));
}

#[test]
fn a_hostile_name_stays_text() {
    let hostile = "<img src=x onerror=document.title='owned'></script>\u{202e}";
    let mut answer = sample::answer(3);
    answer["host"] = hostile.into();
    answer["files"][0]["name"] = hostile.into();
    answer["phases"][0]["name"] = hostile.into();
    answer["phases"][0]["syscalls"][0]["name"] = hostile.into();
    answer["phases"][0]["syscalls"][0]["files"][0]["name"] = hostile.into();
    answer["phases"][0]["waited_for"][0]["comm"] = hostile.into();
    answer["request_list"][0]["name"] = hostile.into();
    answer["request_list"][0]["process"] = hostile.into();
    let open =
        "phase=%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D'owned'%3E%3C%2Fscript%3E%E2%80%AE";
    let Some(page) = open_standalone(&answer, open) else { return };
    assert!(page.dom.contains("data-detail="), "the phase is open");
    assert!(!page.dom.contains("<img"));
    assert!(page.element("<title>", "</title>").contains("&lt;img"));
    let written = "&lt;img src=x onerror=document.title='owned'&gt;&lt;/script&gt;\\u{202e}";
    assert!(page.dom.matches(&format!("<bdi>{written}</bdi>")).count() >= 5, "{}", page.dom);
}

#[test]
fn loss_is_told_and_only_loss() {
    let mut answer = sample::answer(3);
    answer["loss"]["events_discarded"] = 1234.into();
    answer["loss"]["calls_without_begin"] = 5.into();
    let Some(page) = open_standalone(&answer, "") else { return };
    let warning = page.element("id=\"loss\"", "</p>");
    assert!(warning.contains("discarded by the tracer: 1\u{202f}234"), "{warning}");
    assert!(!warning.contains("missing"), "{warning}");
    assert!(
        page.element("id=\"loose-ends\"", "</p>").contains("calls begun before the recording: 5")
    );
}

#[test]
fn an_empty_recording_says_what_is_missing_and_what_to_run() {
    let answers = Published::new();
    answers.set_status(&Status {
        recording: true,
        relay_url: Some("net://127.0.0.1:5342:5343".to_owned()),
        kernel: KernelHalf::Missing { reason: "needs root".to_owned() },
        ..Status::default()
    });
    let server = Server::start(Arc::new(answers));
    let Some(page) = document(&server.url()) else { return };
    assert!(
        page.element("id=\"empty\"", "</section>")
            .contains("lttng create app --set-url=net://127.0.0.1:5342:5343")
    );
    assert!(page.element("id=\"kernel-missing\"", "</p>").contains("needs root"));
    assert!(page.dom.contains("<main id=\"answer-view\" hidden=\"\""));
}

#[test]
fn no_kind_of_loss_is_kept_from_the_reader() {
    let mut answer = sample::answer(2);
    let loss = answer["loss"].as_object_mut().expect("kinds of loss");
    for (count, (_, value)) in (7001..).zip(loss.iter_mut()) {
        *value = count.into();
    }
    let kinds = loss.len();
    let Some(page) = open_standalone(&answer, "") else { return };
    let notices = page.element("id=\"notices\"", "<main");
    for count in 1..=kinds {
        assert!(
            notices.contains(&format!(": 7\u{202f}{count:03}")),
            "{count} of {kinds} in {notices}"
        );
    }
}

#[test]
fn clicks_open_and_close_and_change_the_unit() {
    let answer = sample::answer(5);
    let script = r#"
        const click = (selector) => document.querySelector(selector).click();
        click('#phase-bars [data-phase="decode"] button');
        click('#phase-bars [data-phase="send"] button');
        click('#phase-bars [data-phase="send"] button');
        click('#request-table [data-id="3"] button');
        click('#unit input[value="share"]');
        click('#request-direction');
    "#;
    let Some(page) = open_and_act(&answer, script) else { return };
    assert!(page.dom.contains("data-detail=\"decode\""));
    assert!(!page.dom.contains("data-detail=\"send\""));
    let request = answer["request_list"]
        .as_array()
        .expect("requests")
        .iter()
        .find(|request| request["id"] == 3);
    let request = request.expect("the request");
    let detail = page.element("class=\"detail-row\"", "System calls");
    for phase in request["phases"].as_array().expect("phases") {
        assert!(
            detail.contains(&format!("data-ns=\"{}\"", phase["wall_ns"])),
            "{} of {detail}",
            phase["name"]
        );
    }
    assert!(page.element("<tr class=\"whole\"", "</tr>").contains(">100.0 %<"));
    assert_shows(&page, &answer);
    let walls = page
        .element("id=\"request-table\"", "id=\"more-requests\"")
        .split("<tr data-request=")
        .skip(1);
    let walls: Vec<u64> =
        walls.map(|row| figure(row, "wall_ns").parse().expect("a number")).collect();
    assert!(walls.len() == 5 && walls.is_sorted(), "{walls:?}");
}

#[test]
fn the_critical_path_of_a_slow_request_is_drawn_in_lanes() {
    let answer = sample::answer(20);
    let request = &answer["request_list"][0];
    let script = format!(
        "document.querySelector('#request-table [data-id=\"{}\"] button').click();",
        request["id"]
    );
    let Some(page) = open_and_act(&answer, &script) else { return };
    let lanes = page.element("class=\"path-lanes\"", "</ul>");
    let path = &request["critical_path"];
    for hop in path["hops"].as_array().expect("hops") {
        let lane = lanes.split_once(&format!("data-tid=\"{}\"", hop["tid"])).expect("a lane").1;
        let lane = lane.split("class=\"lane\"").next().expect("its own part");
        assert!(lane.contains(&format!("data-ns=\"{}\"", hop["ns"])), "{hop} in {lane}");
    }
    assert_eq!(lanes.matches("class=\"hop\"").count(), 6);
    assert_eq!(lanes.matches("class=\"wake\"").count(), 1);
    assert!(lanes.contains("ended by interrupt 11 nvme0q1"), "{lanes}");
    let disk =
        path["totals"].as_array().expect("totals").iter().find(|total| total["state"] == "disk");
    let disk = format!("data-path-state=\"disk\" data-ns=\"{}\"", disk.expect("disk")["ns"]);
    assert!(lanes.contains(&disk), "{disk} in {lanes}");
    assert!(page.dom.matches("class=\"path-lanes\"").count() == 1);
}

#[test]
fn a_filter_keeps_the_requests_that_match_all_its_words() {
    let answer = sample::answer(60);
    let script = r#"
        const filter = document.getElementById("request-filter");
        filter.value = "THUMB 4202";
        filter.dispatchEvent(new Event("input"));
    "#;
    let Some(page) = open_and_act(&answer, script) else { return };
    let matching = answer["request_list"]
        .as_array()
        .expect("requests")
        .iter()
        .filter(|request| request["tid"] == 4202);
    let matching = matching.count();
    assert!(matching > 0);
    assert_eq!(page.dom.matches("<tr data-request=\"4202-").count(), matching);
    assert_eq!(page.dom.matches("<tr data-request=").count(), matching);
    assert!(page.element("id=\"request-count\"", "</p>").contains(&format!("{matching} of 60")));
}

/// The columns of a chart: how many requests each has.
fn columns(page: &Document, chart: &str) -> Vec<u64> {
    let chart = page.element(&format!("id=\"{chart}-chart\""), "class=\"ticks\"");
    let columns = chart.split("class=\"column\"").skip(1);
    columns.map(|column| attribute(column, "data-count").parse().expect("a number")).collect()
}

fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    let value = element.split_once(&format!("{name}=\"")).expect("the attribute").1;
    value.split('"').next().expect("its end")
}

#[test]
fn charts_hold_every_request_and_a_chosen_column_shows_its_own() {
    let answer = sample::answer(250);
    let script = r#"
        const columns = [...document.querySelectorAll('#durations-chart .column:enabled')];
        columns.at(-1).click();
    "#;
    let Some(page) = open_and_act(&answer, script) else { return };
    let (timeline, durations) = (columns(&page, "timeline"), columns(&page, "durations"));
    assert_eq!(timeline.iter().sum::<u64>(), 250, "{timeline:?}");
    assert_eq!(durations.iter().sum::<u64>(), 250, "{durations:?}");
    assert_ne!((timeline[0], timeline[timeline.len() - 1]), (0, 0));
    let slowest = *durations.last().expect("a column");
    let rows = page.element("id=\"request-table\"", "id=\"more-requests\"");
    let shown = rows.split("<tr data-request=").skip(1).map(|row| figure(row, "wall_ns"));
    let shown: Vec<u64> = shown.map(|wall| wall.parse().expect("a number")).collect();
    let all: Vec<u64> = answer["request_list"]
        .as_array()
        .expect("requests")
        .iter()
        .map(|request| request["wall_ns"].as_u64().expect("a number"))
        .collect();
    assert_eq!(shown, all[..usize::try_from(slowest).expect("few")], "the slowest of all");
    let chart = page.element("id=\"durations-chart\"", "class=\"ticks\"");
    assert_eq!(chart.matches("aria-pressed=\"true\"").count(), 1);
    for percentile in answer["durations"]["percentiles"].as_array().expect("percentiles") {
        let (percent, high) = (&percentile["percent"], &percentile["high_ns"]);
        let mark = format!("data-percent=\"{percent}\" data-ns=\"{high}\"");
        assert!(chart.contains(&mark), "{mark} in {chart}");
    }
}

#[test]
fn an_answer_of_an_earlier_version_has_no_charts() {
    let mut answer = sample::answer(3);
    for key in ["durations", "timeline"] {
        answer.as_object_mut().expect("an object").remove(key);
    }
    let Some(page) = open_standalone(&answer, "") else { return };
    assert_shows(&page, &answer);
    assert!(page.dom.contains("id=\"charts\" hidden"));
}

#[test]
fn requests_seen_only_in_part_are_told_apart_from_none() {
    let mut answer = sample::answer(0);
    let Some(page) = open_standalone(&answer, "") else { return };
    assert!(page.element("id=\"empty\"", "</section>").contains("No request in this trace"));
    answer["requests"]["partial"] = 2.into();
    let page = open_standalone(&answer, "").expect("the browser is there");
    assert!(page.element("id=\"empty\"", "</section>").contains("2 requests, none seen whole"));
}

#[test]
fn text_that_is_no_answer_is_named_as_such() {
    let Some(page) = open_standalone(&Value::String("no answer".to_owned()), "") else { return };
    assert!(page.element("id=\"unreadable\"", "</p>").contains("cannot be read"));
}

/// Gives one answer to the first question and another to all later ones.
struct Growing {
    first: Snapshot,
    later: Snapshot,
    asked: AtomicBool,
}

impl AnswerSource for Growing {
    fn phases_json(&self) -> Snapshot {
        let asked = self.asked.swap(true, Ordering::Relaxed);
        if asked { self.later.clone() } else { self.first.clone() }
    }

    fn syscalls_json(&self) -> Snapshot {
        Published::new().syscalls_json()
    }

    fn status_json(&self) -> Snapshot {
        let status = Status { recording: true, ..Status::default() };
        Snapshot { bytes: status.to_json().into(), version: 0 }
    }
}

#[test]
fn a_served_page_follows_the_recording_and_keeps_what_is_open() {
    let later = sample::answer(40);
    let snapshot = |answer: &Value, version| Snapshot { bytes: answer.to_string().into(), version };
    let growing = Growing {
        first: snapshot(&sample::answer(10), 1),
        later: snapshot(&later, 2),
        asked: AtomicBool::new(false),
    };
    let server = Server::start(Arc::new(growing));
    let Some(page) = document(&format!("{}#phase=seek", server.url())) else { return };
    assert_shows(&page, &later);
    assert!(page.dom.contains("data-detail=\"seek\""));
}
