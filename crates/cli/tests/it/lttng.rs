//! `throughline read` beside real LTTng tools: sessions that grow, rotate and are snapshot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::lttng::SessionDaemon;

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{read, stderr, stdout};

/// How many events the traced program emits, and how long it waits before each.
const EVENTS: u64 = 6_000;
const PAUSE_US: u64 = 300;

/// A session daemon, a program to be traced, and a folder; `None` when the tools are not installed.
fn setup() -> Option<(SessionDaemon, PathBuf, tempfile::TempDir)> {
    for tool in ["lttng-sessiond", "cc"] {
        if !testkit::is_installed(tool) {
            testkit::skip(&format!("{tool} is not installed"));
            return None;
        }
    }
    let daemon = SessionDaemon::start().unwrap();
    let program = daemon.compile_ticks().unwrap();
    Some((daemon, program, tempfile::tempdir().unwrap()))
}

fn lttng(daemon: &SessionDaemon, command: &str) {
    daemon.lttng(command.split_whitespace()).unwrap();
}

fn emit(daemon: &SessionDaemon, program: &Path, count: u64, pause_us: u64) -> Child {
    let mut command = daemon.command(program);
    command.args([count.to_string(), pause_us.to_string()]);
    command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1").stdin(Stdio::null());
    command.spawn().unwrap()
}

/// The numbers of the event records in lines of JSON; a line that is not whole is not there yet.
fn numbers(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let number = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["payload"]["seq"].as_u64().expect("a number")
    };
    whole.lines().map(number).collect()
}

#[test]
fn following_a_session_that_rotates_gives_every_event_record_once() {
    let Some((daemon, program, folder)) = setup() else { return };
    for buffers in ["--buffers-uid", "--buffers-pid"] {
        let session = folder.path().join(buffers);
        lttng(&daemon, &format!("create growing --output={}", session.display()));
        lttng(&daemon, &format!("enable-channel -u {buffers} --switch-timer=100000 metadata"));
        // Buffers for all of it: on a busy machine the tracer would discard what does not fit.
        lttng(
            &daemon,
            &format!("enable-channel -u {buffers} --switch-timer=100000 --num-subbuf=64 ch"),
        );
        lttng(&daemon, "enable-event -u -c ch testkit:tick");
        lttng(&daemon, "start");
        let printed = folder.path().join(format!("printed{buffers}"));
        let mut command = Command::new(THROUGHLINE);
        command.args(["read", "--follow", "--format=json"]).arg(&session);
        command.stdout(fs::File::create(&printed).unwrap());
        let log = folder.path().join(format!("log{buffers}"));
        let mut following = Running::start(&mut command, "read --follow", &log);

        let mut traced = emit(&daemon, &program, EVENTS, PAUSE_US);
        for rotation in 1..4 {
            wait_for("event records of a session that is being recorded", || {
                (numbers(&printed).len() as u64 >= rotation * EVENTS / 5).then_some(())
            });
            lttng(&daemon, "rotate growing");
        }
        assert!(traced.wait().unwrap().success());
        lttng(&daemon, "destroy growing");
        wait_for("all event records", || (numbers(&printed).len() as u64 >= EVENTS).then_some(()));
        let status = following.end("INT");

        let mut found = numbers(&printed);
        found.sort_unstable();
        assert_eq!(found, (0..EVENTS).collect::<Vec<u64>>(), "{buffers}");
        assert!(status.success(), "{buffers} {status}: {}", following.said());
        let whole = read(&["--count"], &[&session]);
        assert_eq!((stdout(&whole), stderr(&whole)), (format!("{EVENTS}\n").as_str(), ""));
        let archives = fs::read_dir(session.join("archives")).unwrap().count();
        assert!(archives >= 3, "{archives} rotations");
    }
}

#[test]
fn event_records_that_several_snapshots_hold_are_read_once() {
    let Some((daemon, program, folder)) = setup() else { return };
    lttng(&daemon, &format!("create pictures --snapshot --output={}", folder.path().display()));
    lttng(&daemon, "enable-event -u testkit:tick");
    lttng(&daemon, "start");
    for count in [100, 20, 3] {
        assert!(emit(&daemon, &program, count, 0).wait().unwrap().success());
        lttng(&daemon, "snapshot record");
    }
    lttng(&daemon, "destroy pictures");
    let snapshots: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let counts = snapshots.iter().map(|path| stdout(&read(&["--count"], &[path])).to_owned());
    let mut counts: Vec<String> = counts.collect();
    counts.sort_unstable();
    assert_eq!(counts, ["100\n", "120\n", "123\n"]);
    let whole = read(&["--count"], &[folder.path()]);
    assert_eq!((stdout(&whole), stderr(&whole)), ("123\n", ""));
}
