//! Lines of JSON.

use std::time::Duration;

use recorder::Ledger;

use crate::process::{Process, TICKS, WRITERS};
use crate::{lines, start, ticks};

#[test]
fn records_of_an_application_are_lines_and_the_ledger_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = start(folder.path());
    let app = Process::start("ticks", folder.path());
    app.ends();
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    let ticks = ticks(&lines(folder.path()));
    assert_eq!(ticks.len() as u64, WRITERS);
    for numbers in ticks.values() {
        assert_eq!(*numbers, (0..TICKS).collect::<Vec<_>>());
    }
    assert!(ledger.adds_up(), "{ledger:?}");
    assert_eq!(ledger, Ledger::read(&folder.path().join("journal")).unwrap());
    let [service] = ledger.services.values().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!((service.stored, service.emitted()), (WRITERS * TICKS, WRITERS * TICKS));
    assert_eq!((service.processes, service.ended), (1, 1));
    let [driver] = ledger.drivers.values().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!((driver.delivered, driver.waiting), (WRITERS * TICKS, 0));
}

#[test]
fn who_comes_before_there_is_a_recorder_is_read_when_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let app = Process::start("ticks", folder.path());
    let recorder = start(folder.path());
    while recorder.ledger().stored < WRITERS * TICKS {
        std::thread::yield_now();
    }
    app.ends();
    recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ticks(&lines(folder.path())).values().all(|it| it.len() as u64 == TICKS));
}

#[test]
fn a_line_says_what_a_record_is() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = start(folder.path());
    Process::start("spans", folder.path()).ends();
    recorder.stop(Duration::from_secs(30)).unwrap();
    let lines = lines(folder.path());
    let of = |name: &str, kind: &str| {
        lines.iter().find(|line| line["name"] == name && line["kind"] == kind).unwrap()
    };
    let request = of("request", "span_begin");
    assert_eq!(request["fields"], serde_json::json!({"path": "/a", "bytes": u64::MAX}));
    assert_eq!(request["target"], "it::process");
    let decode = of("decode", "span_begin");
    assert_eq!(decode["parent_span_id"], request["span_id"]);
    assert_eq!(decode["trace_id"], request["trace_id"]);
    assert_eq!(of("decode", "span_end")["status"], "error");
    let inside = of("inside", "span_event");
    assert_eq!(inside["span_id"], decode["span_id"]);
    assert_eq!(inside["fields"], serde_json::json!({"ratio": 0.5, "ok": true}));
    assert_eq!(of("alone", "event")["fields"]["note"], "in no span");
    let send = of("send", "span_end");
    assert_ne!(send["tid"], request["tid"]);
    // Of this minute, and in order.
    let times: Vec<&str> =
        ["request", "decode"].map(|it| of(it, "span_begin")["time"].as_str().unwrap()).into();
    assert!(times[0] < times[1] && times[0].ends_with('Z'), "{times:?}");
    let written = jiff_seconds(times[0]);
    let now = std::fs::metadata(folder.path().join("journal/ledger.json")).unwrap().modified();
    let now = now.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - written).abs() < 60.0, "{written} {now}");
}

fn jiff_seconds(text: &str) -> f64 {
    text.parse::<jiff::Timestamp>().unwrap().as_duration().as_secs_f64()
}

#[test]
fn a_flight_recorder_is_read_when_it_is_asked_for_and_when_its_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = start(folder.path());
    let mut app = Process::start("flight", folder.path());
    assert_eq!(recorder.ledger().stored, 0);
    while recorder.ledger().stored == 0 {
        recorder.flight_recorders().ask();
        std::thread::yield_now();
    }
    app.go_on();
    app.hears();
    app.ends();
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    let ticks = &ticks(&lines(folder.path()))[&0];
    // The end of both stretches, each without gaps.
    assert_eq!(ticks.last(), Some(&(TICKS + 9)));
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ticks:?}");
    let [service] = ledger.services.values().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(service.dropped["overwritten"] + service.stored, TICKS + 10);
    assert!(ledger.adds_up());
}
