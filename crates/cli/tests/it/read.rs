//! `throughline read`: what it prints, and how it ends on bad input.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ctf::writer::{Appended, EventClass, Field, FieldClass, IntClass, Schema, TraceClass};
use ctf::{ClockClass, ClockOrigin, EnvValue, Uuid};
use tempfile::TempDir;

use crate::process::THROUGHLINE;

pub(crate) fn read(args: &[&str], paths: &[&Path]) -> Output {
    let output =
        Command::new(THROUGHLINE).arg("read").args(args).args(paths).env("TZ", "UTC").output();
    output.expect("the command starts")
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

pub(crate) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

/// A trace of one stream: a packet with event records at 1.5 s and 2.5 s, another with one at 3.5 s after 2 were lost.
pub(crate) fn trace() -> TempDir {
    let fields = vec![
        Field::new("value", FieldClass::Int(IntClass::U64)),
        Field::new("text", FieldClass::STRING),
    ];
    let events = vec![EventClass::new(0, "tick", fields)];
    let clock = ClockClass {
        uuid: Some(Uuid([8; 16])),
        description: Some("made".to_owned()),
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    };
    let env = vec![("hostname".to_owned(), EnvValue::Text("vm".to_owned()))];
    let folder = tempfile::tempdir().unwrap();
    let class = TraceClass::per_cpu(Uuid([7; 16]), clock, env, vec![], events);
    let schema = Schema::new(class).unwrap();
    fs::write(folder.path().join("metadata"), schema.metadata()).unwrap();

    let mut packet = schema.open_cpu(3, 1_500_000_000, 4096).unwrap();
    let mut bytes = Vec::new();
    for (times, discarded) in
        [([1_500_000_000, 2_500_000_000].as_slice(), 0), (&[3_500_000_000], 2)]
    {
        for time in times {
            let appended = packet.append(0, *time, |record| {
                record.unsigned(u64::MAX)?;
                record.string(b"a \"b\"")
            });
            assert_eq!(appended, Ok(Appended::Yes));
        }
        bytes.extend(packet.roll(*times.last().unwrap(), discarded).bytes);
    }
    fs::write(folder.path().join("stream"), bytes).unwrap();
    folder
}

#[test]
fn text_is_the_default_and_losses_go_to_standard_error() {
    let trace = trace();
    let output = read(&[], &[trace.path()]);
    let fields = r#"vm tick: { cpu_id = 3 }, { value = 18446744073709551615, text = "a \"b\"" }"#;
    let expected = format!(
        "[00:00:01.500000000] (+?.?????????) {fields}\n\
         [00:00:02.500000000] (+1.000000000) {fields}\n\
         [00:00:03.500000000] (+1.000000000) {fields}\n"
    );
    assert_eq!(stdout(&output), expected);
    assert_eq!(
        stderr(&output),
        "lost: 2 event records between 1970-01-01T00:00:02.500000000Z and 1970-01-01T00:00:03.500000000Z, \
         stream class 0, stream 3\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_lines_keep_64_bits() {
    let trace = trace();
    let output =
        read(&["--format", "json", "--begin", "2", "--end", "3499999999ns"], &[trace.path()]);
    let line: serde_json::Value = serde_json::from_str(stdout(&output)).expect("one JSON line");
    let expected = serde_json::json!({
        "timestamp_ns": 2_500_000_000_i64,
        "host": "vm",
        "name": "tick",
        "packet": { "cpu_id": 3 },
        "payload": { "value": u64::MAX, "text": "a \"b\"" },
    });
    assert_eq!(line, expected);
}

#[test]
fn counting_and_checking_print_no_event_records() {
    let trace = trace();
    assert_eq!(stdout(&read(&["--count"], &[trace.path()])), "3\n");
    assert_eq!(stdout(&read(&["--count", "--name", "t*k"], &[trace.path()])), "3\n");
    assert_eq!(stdout(&read(&["--count", "--name", "tack"], &[trace.path()])), "0\n");
    assert_eq!(stdout(&read(&["--format", "none"], &[trace.path()])), "");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    for (path, _) in real("kernel-many-threads") {
        let mut child = Command::new(THROUGHLINE)
            .arg("read")
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    }
}

#[test]
fn what_cannot_be_written_is_one_line_whatever_is_asked_for() {
    let trace = trace();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["read"][..],
        &["read", "--count"],
        &["read", "--count=by-name"],
        &["read", "--format=json"],
    ] {
        let mut command = Command::new(THROUGHLINE);
        let output = command.args(arguments).arg(trace.path()).stdout(full()).output().unwrap();
        let said = stderr(&output).lines().last().expect("a line");
        let expected =
            "throughline: cannot write to standard output: No space left on device (os error 28)";
        assert_eq!((said, output.status.code()), (expected, Some(2)), "{arguments:?}");
    }
    let output = read(&["-w", "/dev/full"], &[trace.path()]);
    let said = stderr(&output).lines().last().expect("a line");
    assert!(said.starts_with("throughline: cannot write /dev/full: No space"), "{said}");
    for shell in ["bash", "zsh", "fish"] {
        let mut command = Command::new(THROUGHLINE);
        let output = command.args(["completions", shell]).stdout(full()).output().unwrap();
        one_line(&output, 2, &["throughline: cannot write the script: No space"]);
    }
}

/// One line on standard error that holds all of `parts`.
fn one_line(output: &Output, code: i32, parts: &[&str]) {
    let line = stderr(output);
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in parts {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(output.status.code(), Some(code), "{line}");
}

#[test]
fn what_is_not_there_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    one_line(&read(&[], &[&missing]), 2, &["missing", "No such file"]);
    one_line(&read(&[], &[folder.path()]), 2, &["no trace below", "metadata"]);
}

#[test]
fn half_of_the_metadata_cannot_be_read() {
    let trace = trace();
    let path = trace.path().join("metadata");
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    one_line(&read(&["--count"], &[trace.path()]), 2, &["metadata", "line ", "byte "]);
}

#[test]
fn a_wrong_magic_and_a_cut_packet_cost_what_they_hit() {
    let damaged = trace();
    let path = damaged.path().join("stream");
    let good = fs::read(&path).unwrap();

    fs::write(&path, &good[..good.len() - 1]).unwrap();
    let output = read(&["--count"], &[damaged.path()]);
    assert_eq!(stdout(&output), "2\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("unreadable: ") && stderr(&output).contains("packet at byte ")
    );

    let mut bytes = good.clone();
    bytes[0] ^= 1;
    fs::write(&path, bytes).unwrap();
    let output = read(&["--count"], &[damaged.path()]);
    assert_eq!(stdout(&output), "0\n");
    one_line(&output, 1, &["packet at byte 0", "magic"]);
}

#[test]
fn ten_gigabytes_announced_take_no_memory() {
    let trace = trace();
    let path = trace.path().join("stream");
    let mut bytes = fs::read(&path).unwrap();
    for length in [48..56, 56..64] {
        bytes[length].copy_from_slice(&(10_u64 << 33).to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    // 1 GiB of address space: taking 10 would fail.
    let limited =
        format!("ulimit -v 1048576; exec {THROUGHLINE} read --count {}", trace.path().display());
    let output = Command::new("sh").arg("-c").arg(limited).output().unwrap();
    one_line(&output, 1, &["packet at byte 0"]);
}

/// The parts of a shared trace and how many event records the reference counts in them.
fn real(name: &str) -> Vec<(std::path::PathBuf, u64)> {
    let Some(folder) = testkit::unpacked_trace(name) else {
        testkit::skip(&format!("no shared trace {name}"));
        return Vec::new();
    };
    let text = fs::read(folder.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let parts = expected["parts"].as_object().expect("parts");
    parts
        .iter()
        .map(|(part, p)| (folder.join(part), p["events"].as_u64().expect("a count")))
        .collect()
}

#[test]
fn counts_are_those_of_babeltrace2_run_beside_it() {
    if !testkit::is_installed("babeltrace2") {
        testkit::skip("babeltrace2 is not installed");
        return;
    }
    for name in ["kernel-many-threads", "ust-ros2"] {
        for (path, events) in real(name) {
            let reference = Command::new("babeltrace2").arg(&path).output().unwrap();
            let lines = reference.stdout.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines as u64, events, "{}", path.display());
            assert_eq!(stdout(&read(&["--count"], &[&path])), format!("{lines}\n"));
        }
    }
}
