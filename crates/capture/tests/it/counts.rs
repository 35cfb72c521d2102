//! Nothing is lost silently: counts against independent observers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use capture::kernel::{Config, Group, Output, Processes};
use model::Pid;

use crate::support::{AMPLE, Capture, Waiting, are_installed, can_trace, process, read};

/// Calls of one process by number, as bpftrace counts them on the same tracepoints.
struct Witness {
    bpftrace: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Witness {
    /// Starts counting the calls of `pid`, and waits until it does.
    fn start(pid: i32) -> Self {
        let program = format!(
            "tracepoint:raw_syscalls:sys_enter /pid == {pid}/ {{ @entries[args->id] = count(); }}
             tracepoint:raw_syscalls:sys_exit /pid == {pid}/ {{ @exits[args->id] = count(); }}
             interval:ms:50 {{ printf(\"counting\\n\"); }}"
        );
        let mut bpftrace = testkit::bpftrace()
            .args(["-B", "line", "-e", &program])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(bpftrace.stdout.take().unwrap());
        let mut line = String::new();
        while line != "counting\n" {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "bpftrace ended early");
        }
        Self { bpftrace, output }
    }

    /// Entries and exits by call number.
    fn finish(mut self) -> (BTreeMap<i64, u64>, BTreeMap<i64, u64>) {
        let pid = self.bpftrace.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.bpftrace.wait().unwrap();
        let counts = |map: &str| {
            text.lines()
                .filter_map(|line| line.strip_prefix(map)?.split_once("]: "))
                .map(|(number, count)| (number.parse().unwrap(), count.trim().parse().unwrap()))
                .collect()
        };
        (counts("@entries["), counts("@exits["))
    }
}

/// The name the trace gives to a call's number.
fn name_of(number: i64) -> String {
    let name = u64::try_from(number).ok().and_then(model::syscall_name);
    name.unwrap_or_else(|| panic!("no call has the number {number}")).to_owned()
}

#[test]
fn calls_by_name_are_those_that_bpftrace_counts() {
    if !can_trace() || !are_installed(&["bpftrace", "dd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "ls -la /usr/lib > listing; dd if=/dev/zero of=copy bs=1 count=20000 2>/dev/null; \
                  exec sort listing -o sorted";
    let child = Waiting::start(folder.path(), "", script);
    let pid = child.pid();
    let witness = Witness::start(pid);
    let trace = folder.path().join("trace");
    let capture = Capture::start(Config {
        processes: Processes::Only(vec![Pid::new(pid)]),
        ring_bytes: AMPLE,
        ..Config::new(Output::Folder(trace.clone()))
    });
    assert!(child.go().success());
    let report = capture.finish().unwrap();
    let (entries, _) = witness.finish();

    let mut counted = BTreeMap::new();
    let found = read(&trace, |event| {
        if let Some(name) = event.name().strip_prefix("syscall_entry_")
            && process(event) == i64::from(pid)
        {
            *counted.entry(name.to_owned()).or_insert(0) += 1;
        }
    });
    assert_eq!((found.events, report.discarded_total()), (report.events, 0));
    let expected: BTreeMap<String, u64> =
        entries.iter().map(|(number, count)| (name_of(*number), *count)).collect();
    assert_eq!(counted, expected);
    assert!(expected["openat"] > 3, "{expected:?}");
}

#[test]
fn what_a_tiny_ring_cannot_take_is_counted_to_the_last_record() {
    if !can_trace() || !are_installed(&["bpftrace", "dd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "exec dd if=/dev/zero of=/dev/null bs=1 count=300000 2>/dev/null";
    let child = Waiting::start(folder.path(), "", script);
    let pid = child.pid();
    let witness = Witness::start(pid);
    let trace = folder.path().join("trace");
    let capture = Capture::start(Config {
        groups: [Group::Calls].into(),
        processes: Processes::Only(vec![Pid::new(pid)]),
        ring_bytes: 4096,
        ..Config::new(Output::Folder(trace.clone()))
    });
    assert!(child.go().success());
    let report = capture.finish().unwrap();
    let (entries, exits) = witness.finish();

    let produced: u64 = entries.values().chain(exits.values()).sum();
    assert!(produced > 1_200_000, "{produced}");
    assert!(report.discarded_total() > 0, "a page cannot hold a burst");
    assert_eq!(report.events + report.discarded_total(), produced);
    let found = read(&trace, |_| {});
    assert_eq!((found.events, found.lost_packets), (report.events, 0));
    assert!(found.discarded > 0 && found.discarded <= report.discarded_total());
}
