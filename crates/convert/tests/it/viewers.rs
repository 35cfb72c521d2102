//! Perfetto's and the Firefox Profiler's formats: decoded again by other means than the writer's.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use convert::ViewerOptions;
use model::TimeRange;
use serde_json::Value;

use crate::support::recorded;

const ALL: ViewerOptions = ViewerOptions { range: TimeRange::ALL };

/// The fields of a protobuf message: number, and a number or bytes.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn decode(mut bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)),
            1 => {
                let (raw, rest) = bytes.split_first_chunk().expect("8 bytes");
                bytes = rest;
                Wire::Number(u64::from_le_bytes(*raw))
            }
            2 => {
                let len = usize::try_from(varint(&mut bytes)).expect("a length");
                let (inner, rest) = bytes.split_at(len);
                bytes = rest;
                Wire::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, wire));
    }
    fields
}

fn message<'a>(fields: &[(u64, Wire<'a>)], number: u64) -> Option<Vec<(u64, Wire<'a>)>> {
    fields.iter().find_map(|(field, wire)| match wire {
        Wire::Bytes(bytes) if *field == number => Some(decode(bytes)),
        _ => None,
    })
}

fn number(fields: &[(u64, Wire<'_>)], field: u64) -> Option<u64> {
    fields.iter().find_map(|(known, wire)| match wire {
        Wire::Number(value) if *known == field => Some(*value),
        _ => None,
    })
}

fn text(fields: &[(u64, Wire<'_>)], field: u64) -> Option<String> {
    fields.iter().find_map(|(known, wire)| match wire {
        Wire::Bytes(bytes) if *known == field => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    })
}

#[test]
fn a_perfetto_trace_has_a_track_for_each_thread_and_spans_that_nest() {
    let Some(path) = recorded("kernel-uneven-1cpu") else { return };
    let mut bytes = Vec::new();
    let summary =
        convert::perfetto::write(&[path], &ALL, &mut bytes, &mut |_| ControlFlow::Continue(()))
            .expect("written");
    let (mut threads, mut depths) = (HashMap::new(), HashMap::<u64, i64>::new());
    let (mut kinds, mut switches) = (BTreeMap::<u64, u64>::new(), 0_u64);
    let mut read_calls = 0;
    for (field, wire) in decode(&bytes) {
        let (1, Wire::Bytes(packet)) = (field, wire) else { panic!("a packet") };
        let packet = decode(packet);
        assert_eq!(number(&packet, 10), Some(1), "of one sequence");
        if let Some(track) = message(&packet, 60) {
            let thread = message(&track, 4);
            let tid = thread.as_ref().and_then(|thread| number(thread, 2));
            threads.insert(number(&track, 1).expect("a uuid"), tid);
        } else if let Some(event) = message(&packet, 11) {
            assert!(number(&packet, 8).is_some_and(|at| at > 1_400_000_000_000_000_000));
            let track = number(&event, 11).expect("a track");
            assert!(threads.contains_key(&track), "a track is described before it is used");
            let kind = number(&event, 9).expect("a kind");
            *kinds.entry(kind).or_default() += 1;
            let depth = depths.entry(track).or_default();
            *depth += match kind {
                1 => 1,
                2 => -1,
                _ => 0,
            };
            assert!(*depth >= 0, "no end without a begin");
            read_calls += u64::from(kind == 1 && text(&event, 23).as_deref() == Some("read"));
        } else {
            let bundle = message(&packet, 1).expect("a switch");
            let switch = message(&message(&bundle, 2).expect("an event"), 4).expect("its fields");
            assert!(text(&switch, 5).is_some() && number(&switch, 6).is_some());
            switches += 1;
        }
    }
    assert_eq!(kinds[&1], kinds[&2], "every span ends");
    assert!(depths.values().all(|depth| *depth == 0));
    assert!(threads.values().flatten().count() > 10 && switches > 100 && read_calls > 10);
    assert_eq!(summary.left_out, 0);
}

#[test]
fn a_firefox_profile_has_columns_of_one_length_and_texts_that_exist() {
    let Some(path) = recorded("ust-cyg-profile") else { return };
    let mut bytes = Vec::new();
    let summary =
        convert::firefox::write(&[path], &ALL, &mut bytes, &mut |_| ControlFlow::Continue(()))
            .expect("written");
    let profile: Value = serde_json::from_slice(&bytes).expect("JSON");
    let categories = profile["meta"]["categories"].as_array().expect("categories").len();
    let schemas = profile["meta"]["markerSchema"].as_array().expect("schemas");
    assert!(profile["meta"]["startTime"].as_f64().is_some_and(|start| start > 1.3e12));
    let (mut markers, mut spans) = (0, 0);
    for thread in profile["threads"].as_array().expect("threads") {
        let texts = thread["stringArray"].as_array().expect("texts").len();
        let table = &thread["markers"];
        let length = usize::try_from(table["length"].as_u64().expect("a length")).expect("small");
        let column = |name: &str| {
            let column = table[name].as_array().expect("a column");
            assert_eq!(column.len(), length, "{name}");
            column
        };
        for name in column("name") {
            assert!(name.as_u64().is_some_and(|name| name < texts as u64));
        }
        for category in column("category") {
            assert!(category.as_u64().is_some_and(|category| category < categories as u64));
        }
        for data in column("data") {
            assert!(schemas.iter().any(|schema| schema["name"] == data["type"]));
        }
        let times = column("startTime").iter().zip(column("endTime")).zip(column("phase"));
        for ((begin, end), phase) in times {
            let begin = begin.as_f64().expect("a time");
            match phase.as_u64() {
                Some(0) => assert!(end.is_null()),
                Some(1) => assert!(end.as_f64().is_some_and(|end| end >= begin)),
                other => panic!("phase {other:?}"),
            }
            spans += usize::from(phase.as_u64() == Some(1));
        }
        markers += length;
    }
    // Each function is a span of two event records; what is left are instants.
    assert!(spans > 100);
    let events = usize::try_from(summary.events).expect("a count");
    assert!(markers <= events && markers + 2 * spans >= events, "{markers} {spans} {events}");
}
