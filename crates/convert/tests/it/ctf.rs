//! CTF 1.8 and CTF 2 into each other.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use convert::{Error, Options, Report, convert_ctf};
use ctf::CtfVersion;
use model::{TimeRange, Timestamp};

use crate::support::{modern, read, read_what_can_be, recorded};

fn convert(from: &Path, to: &Path, version: CtfVersion, range: TimeRange) -> Report {
    let options = Options { version, range };
    convert_ctf(&[from], to, &options, &mut |_, _| ControlFlow::Continue(())).expect("it converts")
}

#[test]
fn recorded_traces_read_the_same_in_ctf_2_and_in_ctf_1_8_again() {
    let small = [
        "kernel-big-endian",
        "kernel-perf-ctf-old",
        "kernel-picotrace",
        "ust-ctf2",
        "ust-cyg-profile",
        "ust-lost-events",
        "ust-statedump",
    ];
    for name in small {
        let Some(path) = recorded(name) else { return };
        let out = tempfile::tempdir().expect("a folder");
        let (new, old) = (out.path().join("2"), out.path().join("1"));
        let expected = read(&path, TimeRange::ALL);
        assert!(!expected.0.is_empty(), "{name}");
        let report = convert(&path, &new, CtfVersion::V2, TimeRange::ALL);
        assert_eq!(report.events, u64::try_from(expected.0.lines().count()).expect("a count"));
        assert!(read(&new, TimeRange::ALL) == expected, "{name} in CTF 2");
        convert(&new, &old, CtfVersion::V1_8, TimeRange::ALL);
        assert!(read(&old, TimeRange::ALL) == expected, "{name} in CTF 1.8 again");
    }
}

#[test]
fn a_cut_holds_what_a_range_of_the_whole_does() {
    let Some(path) = recorded("ust-lost-events") else { return };
    let whole = read(&path, TimeRange::ALL).0;
    let recording = tracedir::Recording::open(&[&path]).expect("a trace");
    let begin = recording.covers().iter().filter_map(|cover| cover.begin).min().expect("a clock");
    let end = recording.covers().iter().filter_map(|cover| cover.end).max().expect("a clock");
    let third = (end.nanos() - begin.nanos()) / 3;
    let at = |thirds| Timestamp::from_nanos(begin.nanos() + third * thirds);
    let range = TimeRange { begin: at(1), end: at(2) };
    let expected = read(&path, range);
    assert!(!expected.0.is_empty() && expected.0.len() < whole.len());
    let out = tempfile::tempdir().expect("a folder");
    let cut = out.path().join("cut");
    convert(&path, &cut, CtfVersion::V1_8, range);
    assert!(read(&cut, TimeRange::ALL) == expected);
    for cover in tracedir::Recording::open(&[&cut]).expect("a trace").covers() {
        assert!(cover.begin >= Some(range.begin) && cover.end < Some(range.end));
    }
}

#[test]
fn what_ctf_1_8_has_no_form_for_becomes_something_near_and_is_said() {
    let trace = modern();
    let out = tempfile::tempdir().expect("a folder");
    let old = out.path().join("old");
    let report = convert(trace.path(), &old, CtfVersion::V1_8, TimeRange::ALL);
    let expected = concat!(
        r#"[00:00:01.000000000] (+?.?????????) e: { there = ( "false" : container = 0 ), _maybe_length = 0, maybe = [ ], n = 0, raw = [ ], wide_text = "é", flags = 0x8001, which = 0, _one_option = ( "_int" : container = 0 ), one = { 1 } }"#,
        "\n",
        r#"[00:00:02.000000000] (+1.000000000) e: { there = ( "true" : container = 1 ), _maybe_length = 1, maybe = [ [0] = -7 ], n = 1, raw = [ [0] = 0xAB ], wide_text = "é", flags = 0x8001, which = 9, _one_option = ( "_int" : container = 0 ), one = { 1 } }"#,
        "\n",
        r#"[00:00:03.000000000] (+1.000000000) e: { there = ( "false" : container = 0 ), _maybe_length = 0, maybe = [ ], n = 2, raw = [ [0] = 0xAB, [1] = 0xCD ], wide_text = "é", flags = 0x8001, which = 18, _one_option = ( "text" : container = 1 ), one = { "so" } }"#,
        "\n",
    );
    assert_eq!(read(&old, TimeRange::ALL).0, expected);
    let notes: Vec<(&str, u64)> = report.notes.iter().map(|note| (note.what, note.count)).collect();
    assert_eq!(
        notes,
        [
            ("a BLOB becomes an array of bytes", 1),
            ("a bit array or bit map becomes an integer", 1),
            ("a name that cannot be kept is spelled in another way", 2),
            ("a text in UTF-16 or UTF-32 becomes one in UTF-8", 1),
            ("a truth value becomes an enumeration of `false` and `true`", 1),
            ("a variant's choice is said again before it", 1),
            ("an optional field becomes an array of no or one element", 1),
        ]
    );
    let again = out.path().join("again");
    let report = convert(trace.path(), &again, CtfVersion::V2, TimeRange::ALL);
    assert!(report.notes.is_empty());
    assert_eq!(read(&again, TimeRange::ALL), read(trace.path(), TimeRange::ALL));
}

#[test]
fn nothing_is_overwritten_and_a_failure_leaves_nothing_behind() {
    let trace = modern();
    let out = tempfile::tempdir().expect("a folder");
    let options = Options { version: CtfVersion::V2, range: TimeRange::ALL };
    fs::write(out.path().join("kept"), b"kept").expect("written");
    let there =
        convert_ctf(&[trace.path()], out.path(), &options, &mut |_, _| ControlFlow::Continue(()));
    assert!(matches!(there, Err(Error::Exists { .. })), "{there:?}");

    fs::write(trace.path().join("metadata"), b"no metadata").expect("written");
    let target = out.path().join("new");
    let failed =
        convert_ctf(&[trace.path()], &target, &options, &mut |_, _| ControlFlow::Continue(()));
    assert!(matches!(failed, Err(Error::Metadata { .. })), "{failed:?}");
    let left: Vec<_> = fs::read_dir(out.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn damage_costs_its_packet_and_is_told() {
    let trace = modern();
    let stream = trace.path().join("stream");
    let mut bytes = fs::read(&stream).expect("read");
    let cut = bytes.len() - 1;
    bytes.truncate(cut);
    fs::write(&stream, bytes).expect("written");
    let out = tempfile::tempdir().expect("a folder");
    let target = out.path().join("new");
    let report = convert(trace.path(), &target, CtfVersion::V2, TimeRange::ALL);
    assert_eq!((report.events, report.damage.len()), (2, 1));
    assert_eq!(read(&target, TimeRange::ALL).0.lines().count(), 2);
}

#[test]
fn a_packet_header_of_no_use_costs_its_packet_where_the_next_one_can_be_found() {
    let Some(path) = recorded("ust-lost-events") else { return };
    let source = path.join("trace/ust/uid/54321/64-bit");
    let packet: usize = 16 << 10;
    // The content's length, which contradicts the packet's; and the magic number, behind which only an index helps.
    for (packet, at, is_indexed, is_found) in [
        (packet, 48, false, true),
        (0, 48, false, true),
        (packet, 0, true, true),
        (0, 0, true, true),
        (packet, 0, false, false),
    ] {
        let copy = tempfile::tempdir().expect("a folder");
        fs::create_dir(copy.path().join("index")).expect("made");
        for file in ["metadata", "ch_1", "index/ch_1.idx"] {
            if is_indexed || !file.ends_with(".idx") {
                fs::copy(source.join(file), copy.path().join(file)).expect("copied");
            }
        }
        let stream = copy.path().join("ch_1");
        let mut bytes = fs::read(&stream).expect("read");
        bytes[packet + at..][..4].copy_from_slice(&[0xFF; 4]);
        fs::write(&stream, bytes).expect("written");
        let (before, _, findings) = read_what_can_be(copy.path(), TimeRange::ALL).expect("read");
        let out = copy.path().join(".out");
        let report = convert(copy.path(), &out, CtfVersion::V2, TimeRange::ALL);
        assert_eq!((report.damage.len(), findings), (1, 1), "{at}");
        let after = read(&out, TimeRange::ALL).0;
        assert!(after == before, "{at}");
        assert_eq!(after.lines().count() > 5000, is_found, "{at}: {}", after.lines().count());
    }
}
