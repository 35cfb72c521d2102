//! Options of `throughline read`: those of babeltrace2 give its bytes, the others what they say.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{read, stderr, stdout, trace};

/// Traces that babeltrace2 2.0.4 reads without any of its faults.
const TRACES: [&str; 6] = [
    "ust-statedump",
    "ust-cyg-profile",
    "kernel-perf-ctf-old",
    "pair-ust-chunks-and-kernel",
    "otf2-mpi",
    "ust-ros2",
];

/// All options that both commands have, a line for each run.
const OPTIONS: [&str; 27] = [
    "--no-delta",
    "--clock-cycles",
    "--clock-cycles --clock-seconds",
    "--clock-date",
    "--clock-date --clock-seconds",
    "--clock-gmt",
    "--clock-seconds",
    "--clock-offset=5",
    "--clock-offset=-5 --clock-offset-ns=-123456789",
    "--names=none",
    "--names=arg",
    "--names=payload,ctx",
    "--names=context",
    "--names=header",
    "--names=scope",
    "--names=scope,header",
    "--names=all",
    "--fields=all",
    "--fields=trace",
    "--fields=trace:domain,loglevel",
    "--fields=trace:procname,trace:vpid",
    "--fields=emf,callsite",
    "--clock-cycles --names=all --fields=all",
    "--color=always",
    "--color=always --names=all --fields=all",
    "--color=always --names=none --fields=loglevel --no-delta",
    "--color=never",
];

fn reference(options: &str, path: &Path) -> Vec<u8> {
    let output = Command::new("babeltrace2")
        .args(options.split(' '))
        .arg(path)
        .env("TZ", "America/New_York")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color")
        .env("BABELTRACE_TERM_COLOR", if options.contains("always") { "ALWAYS" } else { "NEVER" })
        .output()
        .unwrap();
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn ours(options: &str, path: &Path) -> Output {
    Command::new(THROUGHLINE)
        .arg("read")
        .args(options.split(' '))
        .arg(path)
        .env("TZ", "America/New_York")
        .output()
        .unwrap()
}

fn compare(options: &str, path: &Path) {
    let (expected, found) = (reference(options, path), ours(options, path));
    let same = expected == found.stdout;
    let mut lines = expected.split(|b| *b == b'\n').zip(found.stdout.split(|b| *b == b'\n'));
    let differs = lines.find(|(a, b)| a != b);
    assert!(
        same,
        "{} {options}: {:?}",
        path.display(),
        differs.map(|(a, b)| [a, b].map(|line| String::from_utf8_lossy(line).into_owned()))
    );
}

#[test]
fn each_option_of_babeltrace2_gives_its_bytes() {
    if !testkit::is_installed("babeltrace2") {
        testkit::skip("babeltrace2 is not installed");
        return;
    }
    for name in TRACES {
        let Some(path) = testkit::unpacked_trace(name) else {
            testkit::skip(&format!("no shared trace {name}"));
            continue;
        };
        // Their parts have clocks that are not comparable unless that is asked for.
        let path = match name {
            "pair-ust-chunks-and-kernel" => path.join("ust"),
            "otf2-mpi" => {
                compare("--clock-force-correlate", &path);
                path.join("pthread")
            }
            _ => path,
        };
        // The large ones take their time: each of these shows what the others cannot.
        let few = ["--clock-date", "--names=all", "--color=always", "--fields=all"];
        let large = matches!(name, "pair-ust-chunks-and-kernel" | "ust-ros2");
        for options in OPTIONS.iter().filter(|options| !large || few.contains(options)) {
            compare(options, &path);
        }
    }
}

#[test]
fn ranges_of_time_are_those_of_babeltrace2() {
    let Some(path) = testkit::unpacked_trace("ust-statedump") else {
        testkit::skip("no shared trace ust-statedump");
        return;
    };
    if !testkit::is_installed("babeltrace2") {
        testkit::skip("babeltrace2 is not installed");
        return;
    }
    let all = String::from_utf8(reference("--clock-seconds --no-delta", &path)).unwrap();
    let seconds: Vec<&str> = all.lines().filter_map(|line| line.get(1..21)).collect();
    let days = String::from_utf8(reference("--clock-date --no-delta", &path)).unwrap();
    let days: Vec<&str> = days.lines().filter_map(|line| line.get(1..30)).collect();
    let (a, b) = (seconds.len() / 3, seconds.len() / 2);
    for options in [
        format!("--begin={}", seconds[a]),
        format!("--end={}", seconds[b]),
        format!("--begin={} --end={}", seconds[a], seconds[b]),
        format!("--begin={} --end={}", &days[a][11..], &days[b][11..]),
        format!("--timerange={},{}", &days[a][11..], &days[b][11..]),
        format!("--timerange=[{},{}]", seconds[a], &days[b][11..]),
        format!("--begin={} --clock-gmt", seconds[b]),
    ] {
        compare(&options, &path);
        assert!(ours(&options, &path).stdout.len() > 1_000, "{options}: something is left");
    }
    let spaced = Command::new(THROUGHLINE)
        .args(["read", "--count", "--begin", days[a], "--end", days[b]])
        .arg(&path)
        .env("TZ", "America/New_York")
        .output();
    let within = (b - a + 1).to_string();
    assert_eq!(stdout(&spaced.unwrap()).trim_end(), within, "no times are equal there");
}

#[test]
fn a_filter_chooses_and_finding_nothing_is_an_answer() {
    let trace = trace();
    let count = |filter: &str| {
        let output = read(&["--count", "--grep", filter], &[trace.path()]);
        (stdout(&output).trim_end().to_owned(), output.status.code())
    };
    assert_eq!(count("t*k && packet.cpu_id == 3"), ("3".to_owned(), Some(0)));
    assert_eq!(count(r#"text == "a \"b\"" && value > 1"#), ("3".to_owned(), Some(0)));
    assert_eq!(count("packet.seq_num == 1"), ("1".to_owned(), Some(0)));
    assert_eq!(count("value < 0"), ("0".to_owned(), Some(1)));
    let named = read(&["--name", "tack"], &[trace.path()]);
    assert_eq!((stdout(&named), named.status.code()), ("", Some(1)));
}

#[test]
fn a_filter_that_cannot_be_used_is_refused() {
    let trace = trace();
    let output = read(&["--grep", "valeu == 3"], &[trace.path()]);
    assert_eq!(
        stderr(&output),
        "throughline: --grep: column 1: no event record class has a field `valeu`; did you mean `value`?\n"
    );
    assert_eq!(output.status.code(), Some(2));
    let output = read(&["--grep", "value = 3"], &[trace.path()]);
    assert!(stderr(&output).contains("column 7: `=` is no operator; `==` compares"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn counts_by_name_are_a_table_or_json_lines() {
    let trace = trace();
    let output = read(&["--count=by-name"], &[trace.path()]);
    assert_eq!(stdout(&output), "events  name\n     3  tick\n");
    let output = read(&["--count=by-name", "--format", "json"], &[trace.path()]);
    assert_eq!(stdout(&output), "{\"events\":3,\"name\":\"tick\"}\n");
}

#[test]
fn a_limit_ends_the_reading_and_a_file_takes_the_output() {
    let trace = trace();
    let file = trace.path().join(".out");
    let path = file.display().to_string();
    let output = read(&["--limit", "2", "--clock-seconds", "-w", &path], &[trace.path()]);
    assert_eq!((stdout(&output), output.status.code()), ("", Some(0)));
    let text = fs::read_to_string(&file).unwrap();
    let times: Vec<&str> = text.lines().filter_map(|line| line.get(..13)).collect();
    assert_eq!(times, ["[1.500000000]", "[2.500000000]"]);
    let missing = trace.path().join("missing/out").display().to_string();
    let output = read(&["-w", &missing], &[trace.path()]);
    assert!(stderr(&output).starts_with(&format!("throughline: cannot write {missing}")));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_growing_folder_is_followed_until_it_is_interrupted() {
    let source = trace();
    let growing = tempfile::tempdir().unwrap();
    fs::copy(source.path().join("metadata"), growing.path().join("metadata")).unwrap();
    let bytes = fs::read(source.path().join("stream")).unwrap();
    let magic = &bytes[..4];
    let second = bytes.windows(4).skip(1).position(|four| four == magic).expect("two packets") + 1;
    let mut stream = File::create(growing.path().join("stream")).unwrap();
    let printed = tempfile::NamedTempFile::new().unwrap();

    let mut command = Command::new(THROUGHLINE);
    command
        .args(["read", "--follow", "--clock-seconds", "--grep", "value > 0"])
        .arg(growing.path());
    command.stdout(printed.reopen().unwrap());
    let log = source.path().join(".log");
    let mut following = Running::start(&mut command, "read --follow", &log);
    let lines = || fs::read_to_string(printed.path()).unwrap().lines().count();
    for (piece, expected) in [(&bytes[..second], 2), (&bytes[second..], 3)] {
        let (half, rest) = piece.split_at(piece.len() / 2);
        stream.write_all(half).unwrap();
        stream.flush().unwrap();
        stream.write_all(rest).unwrap();
        wait_for("what was written", || (lines() == expected).then_some(()));
    }
    let status = following.end("INT");
    assert!(status.success(), "{status}: {}", following.said());
    assert!(following.said().starts_with("lost: 2 event records"), "{}", following.said());
}

#[test]
fn a_field_that_nobody_has_so_far_is_doubted_aloud_while_following() {
    let source = trace();
    let mut command = Command::new(THROUGHLINE);
    command.args(["read", "--follow", "--grep", "valeu > 0"]).arg(source.path());
    let log = source.path().join(".log");
    let mut following = Running::start(&mut command, "read --follow", &log);
    following.wait_until_said("no event record class has a field `valeu`; did you mean `value`?");
    assert_eq!(following.end("INT").code(), Some(1));
    assert_eq!(following.said().matches("note: ").count(), 1, "{}", following.said());
}
