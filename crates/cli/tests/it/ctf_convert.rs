//! `throughline ctf convert`: what comes out is read again, by others where they can.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{read, stderr, stdout, trace};

fn convert(from: &Path, to: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(THROUGHLINE);
    command.args(["ctf", "convert"]).arg(from).arg("-o").arg(to).args(options);
    command.env("TZ", "UTC").output().expect("the command starts")
}

/// Converts without a word and with success.
fn converted(from: &Path, to: &Path, options: &[&str]) {
    let output = convert(from, to, options);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

fn recorded(name: &str) -> Option<PathBuf> {
    let path = testkit::unpacked_trace(name);
    if path.is_none() {
        testkit::skip(&format!("no shared trace {name}"));
    }
    path
}

/// What Babeltrace 2 prints of a trace; `None` where it is not installed.
fn babeltrace2(path: &Path) -> Option<String> {
    if !testkit::is_installed("babeltrace2") {
        testkit::skip("babeltrace2 is not installed");
        return None;
    }
    let output = Command::new("babeltrace2").arg(path).env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    Some(stdout(&output).to_owned())
}

fn own_text(path: &Path, options: &[&str]) -> String {
    let output = read(options, &[path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).to_owned()
}

#[test]
fn babeltrace2_reads_the_same_event_records_from_what_was_made_ctf_1_8() {
    for name in ["ust-statedump", "ust-lost-events", "kernel-picotrace"] {
        let Some(path) = recorded(name) else { return };
        let out = tempfile::tempdir().unwrap();
        let (new, old) = (out.path().join("2"), out.path().join("1.8"));
        converted(&path, &new, &["--to", "2"]);
        converted(&new, &old, &["--to", "1.8"]);
        let Some(text) = babeltrace2(&old) else { return };
        assert!(!text.is_empty());
        assert!(text == babeltrace2(&path).expect("it is installed"), "{name}");
    }
}

#[test]
fn a_part_of_a_ctf_2_trace_is_read_by_babeltrace2_as_ctf_1_8() {
    let Some(path) = recorded("ust-ctf2") else { return };
    let first = own_text(&path, &["--format", "json", "--limit", "1"]);
    let first: Value = serde_json::from_str(&first).expect("a JSON line");
    let begin = first["timestamp_ns"].as_i64().expect("a time") + 2_000_000;
    let at = |nanos: i64| format!("{}ns", begin + nanos);
    let out = tempfile::tempdir().unwrap();
    let part = out.path().join("part");
    converted(&path, &part, &["--to", "1.8", "--begin", &at(0), "--end", &at(5_000_000)]);
    // The end of a conversion is left out, the end of a reading is not.
    let expected = own_text(&path, &["--begin", &at(0), "--end", &at(4_999_999)]);
    assert!(expected.lines().count() > 1000, "{}", expected.lines().count());
    assert!(own_text(&part, &[]) == expected);
    if let Some(text) = babeltrace2(&part) {
        assert_eq!(text.lines().count(), expected.lines().count());
        // Version 2.0.4 shows the text before where one is empty; only these event records have empty ones.
        let certain = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.contains(" load:note: ")).map(str::to_owned).collect()
        };
        assert!(certain(&text) == certain(&expected) && !certain(&text).is_empty());
    }
}

#[test]
fn ctf_2_reads_as_what_it_was_made_of_with_its_losses() {
    let trace = trace();
    let out = tempfile::tempdir().unwrap();
    let new = out.path().join("new");
    converted(trace.path(), &new, &["--to", "2"]);
    assert_eq!(fs::read(new.join("metadata")).unwrap().first(), Some(&0x1E));
    let (before, after) = (read(&[], &[trace.path()]), read(&[], &[&new]));
    assert_eq!(stdout(&before), stdout(&after));
    assert_eq!(stderr(&before), stderr(&after));
    assert_eq!(stdout(&after).lines().count(), 3);
}

/// Number and content of each field of a protobuf message; numbers have no content.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let varint = |bytes: &mut &[u8]| {
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
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let len = match tag & 7 {
            0 => {
                found.push((tag >> 3, varint(&mut bytes), &[] as &[u8]));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).expect("a length"),
            other => panic!("wire type {other}"),
        };
        let (inner, rest) = bytes.split_at(len);
        found.push((tag >> 3, 0, inner));
        bytes = rest;
    }
    found
}

#[test]
fn a_perfetto_trace_holds_a_mark_for_each_event_record() {
    let Some(path) = recorded("ust-statedump") else { return };
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("trace.pftrace");
    converted(&path, &file, &["--to", "perfetto"]);
    let bytes = fs::read(&file).unwrap();
    let mut marks = BTreeMap::<u64, usize>::new();
    for (number, _, packet) in fields(&bytes) {
        assert_eq!(number, 1, "a TracePacket");
        let event = fields(packet).into_iter().find(|(number, ..)| *number == 11);
        let kind = event.and_then(|(_, _, event)| {
            fields(event).into_iter().find_map(|(number, kind, _)| (number == 9).then_some(kind))
        });
        kind.into_iter().for_each(|kind| *marks.entry(kind).or_default() += 1);
    }
    let events = own_text(&path, &[]).lines().count();
    assert_eq!(marks[&1], marks[&2], "begins and ends");
    assert_eq!(marks.values().sum::<usize>(), events);

    let output = Command::new(THROUGHLINE)
        .args(["ctf", "convert", "--to", "perfetto", "-o", "-"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout == bytes, "{}", stderr(&output));
}

#[test]
fn a_firefox_profile_holds_a_marker_for_each_instant_and_each_span() {
    let Some(path) = recorded("ust-statedump") else { return };
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("trace.json");
    converted(&path, &file, &["--to", "firefox"]);
    let profile: Value = serde_json::from_slice(&fs::read(&file).unwrap()).expect("JSON");
    let threads = profile["threads"].as_array().expect("threads");
    let markers = || {
        threads.iter().flat_map(|thread| {
            let table = &thread["markers"];
            let texts = &thread["stringArray"];
            let names = table["name"].as_array().expect("names").iter();
            let phases = table["phase"].as_array().expect("phases").iter();
            names.zip(phases).map(|(name, phase)| {
                let name = usize::try_from(name.as_u64().expect("a position")).unwrap();
                (texts[name].as_str().expect("a text"), phase.as_u64())
            })
        })
    };
    let spans = markers().filter(|(_, phase)| *phase == Some(1)).count();
    let events = own_text(&path, &[]).lines().count();
    assert_eq!(markers().count() + spans, events, "a span is of two event records");
    let shown = markers().filter(|(name, _)| *name == "lttng_ust_statedump:bin_info").count();
    let infos = own_text(&path, &["--name", "lttng_ust_statedump:bin_info"]).lines().count();
    assert!(shown == infos && infos > 0, "{shown} {infos}");
}

/// One line on standard error that holds `part`, and nothing left in the folder but what was there.
fn refused(output: &Output, part: &str, out: &TempDir, left: &[&str]) {
    assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
    assert_eq!(stderr(output).lines().count(), 1, "{}", stderr(output));
    assert!(stderr(output).contains(part), "{part} in {}", stderr(output));
    let mut found: Vec<_> = fs::read_dir(out.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, left);
}

#[test]
fn nothing_is_written_where_something_is_or_of_what_is_no_trace() {
    let trace = trace();
    let out = tempfile::tempdir().unwrap();
    fs::create_dir(out.path().join("full")).unwrap();
    fs::write(out.path().join("full/file"), "kept").unwrap();
    let left = ["full"];
    for form in ["1.8", "2", "perfetto", "firefox"] {
        let output = convert(trace.path(), &out.path().join("full"), &["--to", form]);
        refused(&output, "is there already", &out, &left);
        let output = convert(&out.path().join("full"), &out.path().join("new"), &["--to", form]);
        refused(&output, "no trace below", &out, &left);
        let range = ["--begin", "2", "--end", "1", "--to", form];
        let output = convert(trace.path(), &out.path().join("new"), &range);
        refused(&output, "after its end", &out, &left);
    }
    assert_eq!(fs::read_to_string(out.path().join("full/file")).unwrap(), "kept");
    refused(&convert(trace.path(), Path::new("-"), &["--to", "2"]), "standard output", &out, &left);
}

#[test]
fn damage_is_said_and_costs_its_packet_only() {
    let damaged = trace();
    let stream = damaged.path().join("stream");
    let bytes = fs::read(&stream).unwrap();
    fs::write(&stream, &bytes[..bytes.len() - 1]).unwrap();
    let out = tempfile::tempdir().unwrap();
    for form in ["1.8", "2", "perfetto", "firefox"] {
        let output = convert(damaged.path(), &out.path().join(form), &["--to", form]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let line = stderr(&output);
        assert!(line.contains("unreadable: ") && line.contains("packet at byte "), "{line}");
    }
    for form in ["1.8", "2"] {
        assert_eq!(own_text(&out.path().join(form), &[]).lines().count(), 2);
    }
}

#[test]
fn metadata_of_no_use_cost_their_folder_only() {
    let both = tempfile::tempdir().unwrap();
    for name in ["good", "no\nuse"] {
        fs::rename(trace().keep(), both.path().join(name)).unwrap();
    }
    for metadata in ["", "nonsense"] {
        fs::write(both.path().join("no\nuse/metadata"), metadata).unwrap();
        for form in ["1.8", "2", "perfetto", "firefox"] {
            let out = tempfile::tempdir().unwrap();
            let output = convert(both.path(), &out.path().join("out"), &["--to", form]);
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            let said: Vec<&str> =
                stderr(&output).lines().filter(|line| line.starts_with("unreadable: ")).collect();
            assert_eq!(said.len(), 1, "{}", stderr(&output));
            assert!(said[0].contains("no\\nuse/metadata"), "{}", said[0]);
            if form == "2" {
                assert_eq!(own_text(&out.path().join("out"), &[]).lines().count(), 3);
            }
            let alone =
                convert(&both.path().join("no\nuse"), &out.path().join("new"), &["--to", form]);
            assert_eq!(alone.status.code(), Some(2), "{}", stderr(&alone));
        }
    }
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let Some(path) = recorded("kernel-perf") else { return };
    for form in ["2", "firefox"] {
        let out = tempfile::tempdir().unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(THROUGHLINE);
        command.args(["ctf", "convert", "--to", form]).arg(&path);
        command.arg("-o").arg(out.path().join("out")).stdout(Stdio::null());
        let mut running = Running::start(&mut command, "the conversion", log.path());
        let entries = || fs::read_dir(out.path()).unwrap().count();
        wait_for("something half done", || (entries() > 0).then_some(()));
        let status = running.end("INT");
        assert_eq!((status.code(), entries()), (Some(2), 0), "{}", running.said());
        assert!(running.said().contains("stopped"), "{}", running.said());
    }
}
