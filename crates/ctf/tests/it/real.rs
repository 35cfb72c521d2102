//! Every event record and field of real traces, counted against what the reference reader printed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::support::{Tally, read_stream, read_trace, stream_files, trace_folders};

/// What one part of a trace holds.
#[derive(Debug, Default)]
struct Part {
    tally: Tally,
    by_name: BTreeMap<String, u64>,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
}

fn read_part(root: &Path) -> Part {
    let mut part = Part::default();
    let Part { tally, by_name, first_ns, last_ns } = &mut part;
    for folder in trace_folders(root) {
        let trace =
            read_trace(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut by_class = vec![0_u64; trace.event_record_classes().len()];
        for file in stream_files(&folder) {
            let bytes = fs::read(&file).expect("stream");
            let read = read_stream(&trace, &bytes, tally, |event| {
                by_class[usize::try_from(event.class().index()).expect("index")] += 1;
                if let Some(ns) = event.timestamp_ns() {
                    *first_ns = Some(first_ns.map_or(ns, |first| first.min(ns)));
                    *last_ns = Some(last_ns.map_or(ns, |last| last.max(ns)));
                }
            });
            read.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        for (class, count) in trace.event_record_classes().iter().zip(by_class) {
            *by_name.entry(class.name().to_owned()).or_default() += count;
        }
    }
    part
}

/// `1457113582.794565804` in nanoseconds.
fn nanos(seconds: &Json) -> Option<i64> {
    let (whole, fraction) = seconds.as_str()?.split_once('.')?;
    Some(whole.parse::<i64>().ok()? * 1_000_000_000 + fraction.parse::<i64>().ok()?)
}

fn check(name: &str) {
    let Some(root) = testkit::unpacked_trace(name) else {
        return testkit::skip("no recorded traces");
    };
    let expected: Json =
        serde_json::from_slice(&fs::read(root.join("expected.json")).expect("expected"))
            .expect("JSON");
    for (part, expected) in expected["parts"].as_object().expect("parts") {
        let found = read_part(&root.join(part));
        assert_eq!(
            Some(found.tally.events),
            expected["events"].as_u64(),
            "events of {name}/{part}"
        );
        assert!(found.tally.fields > found.tally.events, "fields of {name}/{part}");
        for (event, count) in expected["event_counts_top"].as_object().into_iter().flatten() {
            assert_eq!(
                found.by_name.get(event).copied(),
                count.as_u64(),
                "{event} of {name}/{part}"
            );
        }
        if let Some(first) = nanos(&expected["first_timestamp_s"]) {
            assert_eq!(
                (found.first_ns, found.last_ns),
                (Some(first), nanos(&expected["last_timestamp_s"])),
                "times of {name}/{part}"
            );
        }
    }
}

#[test]
fn every_event_record_and_field_of_real_traces_is_decoded() {
    for name in testkit::CTF_1_8_TRACES {
        check(name);
    }
}

#[test]
fn every_event_record_and_field_of_a_real_trace_of_ctf_2_is_decoded() {
    check("ust-ctf2");
}
