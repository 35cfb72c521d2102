//! `throughline ctf check`: what is wrong is found, at its place, and nothing else is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::THROUGHLINE;
use crate::read::{stderr, stdout, trace};

fn check(options: &[&str], path: &Path) -> Output {
    Command::new(THROUGHLINE).args(["ctf", "check"]).args(options).arg(path).output().unwrap()
}

/// All findings as JSON, but for the texts and their values; the exit code must fit.
fn findings(path: &Path) -> Vec<Value> {
    let output = check(&["--format", "json"], path);
    let parse = |line: &str| {
        let mut finding: Value = serde_json::from_str(line).expect("a JSON line");
        let text = finding.as_object_mut().and_then(|finding| finding.remove("problem"));
        assert!(text.is_some_and(|text| text.is_string()), "{line}");
        let values = finding.as_object_mut().and_then(|finding| finding.remove("values"));
        assert!(values.is_some_and(|values| values.is_object()), "{line}");
        finding
    };
    let findings: Vec<Value> = stdout(&output).lines().map(parse).collect();
    assert_eq!(output.status.code(), Some(i32::from(!findings.is_empty())), "{}", stderr(&output));
    findings
}

fn at(path: &Path, code: &str, packet: impl Into<Value>, place: [Value; 3]) -> Value {
    let [offset_bits, event_index, field] = place;
    json!({
        "path": path.display().to_string(), "code": code, "packet_offset_bytes": packet.into(),
        "offset_bits": offset_bits, "event_index": event_index, "field": field,
    })
}

const NOWHERE: [Value; 3] = [Value::Null, Value::Null, Value::Null];

#[test]
fn a_recorded_trace_without_faults_is_clean() {
    let Some(trace) = testkit::unpacked_trace("kernel-uneven-1cpu") else {
        testkit::skip("no shared trace kernel-uneven-1cpu");
        return;
    };
    let output = check(&[], &trace);
    assert_eq!(stdout(&output), "");
    assert_eq!(
        stderr(&output),
        "checked: 1 traces, 1 files, 2 packets, 50618 event records; 0 findings\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_a_tracer_discarded_is_found() {
    let folder = trace();
    let stream = folder.path().join("stream");
    assert_eq!(
        findings(folder.path()),
        [at(&stream, "discarded-event-records", packet_len(&stream), NOWHERE)]
    );
    let text = format!(
        "{}: packet at byte {}: 2 event records were discarded in the time up to this packet's end\n",
        stream.display(),
        packet_len(&stream)
    );
    assert_eq!(stdout(&check(&[], folder.path())), text);
}

#[test]
fn the_numbers_of_a_finding_stand_by_themselves_for_programs() {
    let values = |path: &Path| {
        let output = check(&["--format", "json"], path);
        let line = stdout(&output).lines().next().expect("a finding");
        let mut finding: Value = serde_json::from_str(line).expect("a JSON line");
        finding["values"].take()
    };
    assert_eq!(values(trace().path()), json!({ "count": 2 }));

    let folder = trace();
    let stream = folder.path().join("stream");
    replace(&stream, &2_500_000_000_u64.to_le_bytes(), &2_400_000_000_u64.to_le_bytes());
    assert_eq!(
        values(folder.path()),
        json!({ "count": 1, "at_ns": 2_500_000_000_u64, "side": "after", "bound_ns": 2_400_000_000_u64 })
    );

    let folder = trace();
    let stream = folder.path().join("stream");
    let mut bytes = fs::read(&stream).unwrap();
    bytes[..4].copy_from_slice(&7_u32.to_le_bytes());
    let lost = bytes.len();
    fs::write(&stream, bytes).unwrap();
    assert_eq!(values(folder.path()), json!({ "found": 7, "lost_bytes": lost }));

    let folder = trace();
    fs::write(folder.path().join("metadata"), "/* CTF 1.8 */\ntrace {").unwrap();
    assert_eq!(values(folder.path()), json!({ "offset_bytes": 21, "line": 2 }));
    let output = check(&[], folder.path());
    assert_eq!(stdout(&output).matches("/metadata").count(), 1, "{}", stdout(&output));
}

/// Length of the first packet: what is before the second magic number.
fn packet_len(stream: &Path) -> u64 {
    let bytes = fs::read(stream).unwrap();
    let magic = &bytes[..4];
    let second = bytes.windows(4).skip(1).position(|window| window == magic).expect("two packets");
    u64::try_from(second + 1).unwrap()
}

/// Replaces the first place of `from` in a file by `to`.
fn replace(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let found = bytes.windows(from.len()).position(|window| window == from).expect("it is there");
    bytes[found..found + to.len()].copy_from_slice(to);
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_end_that_is_too_early_is_found_with_the_event_record_behind_it() {
    let folder = trace();
    let stream = folder.path().join("stream");
    replace(&stream, &2_500_000_000_u64.to_le_bytes(), &2_400_000_000_u64.to_le_bytes());
    let found = findings(folder.path());
    let codes: Vec<&Value> = found.iter().map(|finding| &finding["code"]).collect();
    assert_eq!(codes, ["outside-bounds", "discarded-event-records"]);
    assert_eq!(found[0]["packet_offset_bytes"], 0);
    assert_eq!(found[0]["event_index"], 1);
    assert!(stdout(&check(&[], folder.path())).contains(
        "event record 1: 1 event records lie outside of the packet's bounds, the first at 2500000000 ns after \
         2400000000 ns"
    ));
}

#[test]
fn a_packet_that_was_not_closed_and_one_that_ends_before_it_begins_are_found() {
    for (end, code) in [(0_u64, "unclosed"), (1, "bounds")] {
        let folder = trace();
        let stream = folder.path().join("stream");
        replace(&stream, &2_500_000_000_u64.to_le_bytes(), &end.to_le_bytes());
        assert_eq!(findings(folder.path())[0], at(&stream, code, 0, NOWHERE));
    }
}

#[test]
fn metadata_of_no_use_cost_their_folder_only() {
    let both = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::rename(trace().keep(), both.path().join(name)).unwrap();
    }
    let metadata = both.path().join("a/metadata");
    fs::write(&metadata, "nonsense").unwrap();
    let found = findings(both.path());
    assert_eq!(found[0], at(&metadata, "metadata", Value::Null, NOWHERE));
    assert_eq!(found.len(), 2, "and what b's tracer discarded");
    let alone = findings(&both.path().join("a"));
    assert_eq!(alone, [at(&metadata, "metadata", Value::Null, NOWHERE)]);
}

#[test]
fn attributes_without_a_meaning_are_warned_of() {
    let folder = trace();
    let metadata = folder.path().join("metadata");
    let text = fs::read_to_string(&metadata).unwrap();
    fs::write(&metadata, text.replacen("clock {", "clock {\n colour = blue;\n", 1)).unwrap();
    assert_eq!(findings(folder.path())[0], at(&metadata, "metadata-warning", Value::Null, NOWHERE));
}

/// A copy of a recorded trace of 91 packets with their index, 22 of which tell of discarded event records.
struct Recorded {
    folder: TempDir,
    stream: PathBuf,
    index: PathBuf,
}

const PACKET: usize = 16 << 10;

fn recorded() -> Option<Recorded> {
    let source = testkit::unpacked_trace("ust-lost-events")?.join("trace/ust/uid/54321/64-bit");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("index")).unwrap();
    for file in ["metadata", "ch_0", "ch_1", "index/ch_0.idx", "index/ch_1.idx"] {
        fs::write(folder.path().join(file), fs::read(source.join(file)).unwrap()).unwrap();
    }
    let (stream, index) = (folder.path().join("ch_1"), folder.path().join("index/ch_1.idx"));
    Some(Recorded { folder, stream, index })
}

impl Recorded {
    /// What is found after a change of the stream file and of its index, but for what the tracer discarded.
    fn found(&self, change: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>)) -> Vec<Value> {
        let (mut stream, mut index) =
            (fs::read(&self.stream).unwrap(), fs::read(&self.index).unwrap());
        change(&mut stream, &mut index);
        fs::write(&self.stream, stream).unwrap();
        fs::write(&self.index, index).unwrap();
        let mut found = findings(self.folder.path());
        found.retain(|finding| finding["code"] != "discarded-event-records");
        found
    }
}

/// Runs a case on a fresh copy.
fn damaged(
    change: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
    expected: impl FnOnce(&Recorded) -> Vec<Value>,
) {
    let Some(recorded) = recorded() else {
        testkit::skip("no shared trace ust-lost-events");
        return;
    };
    assert_eq!(recorded.found(change), expected(&recorded));
}

#[test]
fn a_recorded_trace_tells_only_what_was_discarded() {
    damaged(|_, _| {}, |_| vec![]);
}

#[test]
fn a_packet_that_was_cut_out_is_found_by_the_index_and_by_the_sequence_numbers() {
    damaged(
        |stream, _| drop(stream.drain(5 * PACKET..6 * PACKET)),
        |recorded| {
            vec![
                at(&recorded.index, "index", Value::Null, NOWHERE),
                at(&recorded.stream, "lost-packets", 5 * PACKET, NOWHERE),
            ]
        },
    );
}

#[test]
fn a_damaged_magic_costs_one_packet_when_there_is_an_index() {
    damaged(
        |stream, _| stream[3 * PACKET] ^= 1,
        |recorded| {
            let place = [json!(0), Value::Null, json!("packet header")];
            vec![
                at(&recorded.stream, "unreadable", 3 * PACKET, place),
                // To the packets around it, it is not there.
                at(&recorded.stream, "lost-packets", 4 * PACKET, NOWHERE),
            ]
        },
    );
}

#[test]
fn an_index_entry_that_says_something_else_is_found() {
    // The low byte of the content length of the third entry.
    damaged(
        |_, index| index[16 + 2 * 72 + 16 + 7] ^= 8,
        |recorded| vec![at(&recorded.index, "index-disagrees", 2 * PACKET, NOWHERE)],
    );
}

#[test]
fn a_truncated_stream_file_is_found_with_the_event_record_that_is_cut() {
    let Some(recorded) = recorded() else {
        testkit::skip("no shared trace ust-lost-events");
        return;
    };
    let found = recorded.found(|stream, _| stream.truncate(7 * PACKET + 1_000));
    let codes: Vec<&Value> = found.iter().map(|finding| &finding["code"]).collect();
    assert_eq!(codes, ["index", "unreadable"]);
    assert_eq!(found[1]["path"], recorded.stream.display().to_string());
    assert_eq!(found[1]["packet_offset_bytes"], 7 * PACKET);
    let (bits, event) = (found[1]["offset_bits"].as_u64(), found[1]["event_index"].as_u64());
    assert!(bits.is_some_and(|bits| bits <= 8_000) && event.is_some_and(|event| event > 0));
}

#[test]
fn output_that_cannot_be_written_is_one_line_that_says_so() {
    let trace = trace();
    for verb in [&["check"][..], &["info"], &["convert", "--to", "perfetto", "-o", "-"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(THROUGHLINE);
        command.arg("ctf").args(verb).arg(trace.path()).stdout(full);
        let output = command.output().unwrap();
        let begin = "throughline: cannot write to standard output: ";
        assert_eq!(output.status.code(), Some(2), "{verb:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{verb:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with(begin), "{verb:?}: {}", stderr(&output));
    }
}
