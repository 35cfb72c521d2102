//! What the events say: names of files and sockets, who woke whom, the state dump.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process;
use std::time::Duration;

use capture::kernel::{Config, Group, Output, Processes};
use model::Pid;

use crate::support::{AMPLE, Capture, Waiting, can_trace, number, process, read, text, wait_for};

#[test]
fn files_and_sockets_have_their_names_and_the_dump_knows_what_was_open_before() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::write(root.join("picture"), "12345").unwrap();
    File::create(root.join("held")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let child = Waiting::start(
        &root,
        "exec 7< held",
        &format!(
            "exec bash -c 'exec 9<>/dev/tcp/127.0.0.1/{port}; read line < picture; exec sleep 0.05'"
        ),
    );
    let pid = i64::from(child.pid());
    let trace = root.join("trace");
    let capture = Capture::start(Config {
        processes: Processes::Only(vec![Pid::new(child.pid())]),
        ring_bytes: AMPLE,
        ..Config::new(Output::Folder(trace.clone()))
    });
    assert!(child.go().success());
    let report = capture.finish().unwrap();

    let (mut opened, mut resolved, mut connected, mut exec) = (vec![], vec![], vec![], vec![]);
    let (mut dumped, mut woken_by_write, mut woken_by_timer, mut foreign) = (vec![], 0, 0, 0);
    let found = read(&trace, |event| match event.name() {
        "lttng_statedump_file_descriptor" if number(event, "pid") == pid => {
            dumped.push((number(event, "fd"), text(event, "filename")));
        }
        "sched_waking" if number(event, "tid") == pid => {
            match (process(event) == i64::from(process::id()), number(event, "in_interrupt")) {
                (true, 0) => woken_by_write += 1,
                (_, 1) => woken_by_timer += 1,
                _ => {}
            }
        }
        "sched_process_exec" if process(event) == pid => exec.push(text(event, "filename")),
        name if name.starts_with("syscall_") && process(event) != pid => foreign += 1,
        "syscall_entry_openat" => opened.push(text(event, "filename")),
        "syscall_exit_openat" if number(event, "ret") >= 0 => {
            resolved.push(text(event, "resolved"));
        }
        "syscall_entry_connect" => connected.push((
            number(event, "family"),
            number(event, "dport"),
            text(event, "address"),
        )),
        _ => {}
    });
    assert_eq!(found.events, report.events);
    assert_eq!(foreign, 0, "only the calls of the one process");
    assert!(opened.contains(&"picture".to_owned()), "{opened:?}");
    let picture = root.join("picture").to_str().unwrap().to_owned();
    assert!(resolved.contains(&picture), "{resolved:?}");
    let address = (2, i64::from(port), format!("127.0.0.1:{port}"));
    assert!(connected.contains(&address), "{connected:?}");
    let held = (7, root.join("held").to_str().unwrap().to_owned());
    assert!(dumped.contains(&held), "{dumped:?}");
    assert!(exec.last().is_some_and(|program| program.ends_with("/sleep")), "{exec:?}");
    assert!(woken_by_write > 0, "this process woke the child by writing to its pipe");
    assert!(woken_by_timer > 0, "the timer of `sleep` fires in an interrupt");
}

#[test]
fn every_chunk_has_its_whole_state_dump_however_short_chunks_are_to_be() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = Capture::start(Config {
        rotate: Some(Duration::from_millis(1)),
        ring_bytes: AMPLE,
        ..Config::new(Output::Folder(folder.path().to_owned()))
    });
    let archives = || fs::read_dir(folder.path().join("archives")).into_iter().flatten().flatten();
    wait_for("chunks", || archives().count() >= 20);
    let report = capture.finish().unwrap();
    assert_eq!((archives().count() as u64, report.discarded_total()), (report.chunks, 0));
    for chunk in archives() {
        let by_name = read(&chunk.path(), |_| {}).by_name;
        assert_eq!(by_name.get("lttng_statedump_end"), Some(&1), "{chunk:?} {by_name:?}");
    }
}

#[test]
fn descriptors_of_a_pipe_and_names_of_accepted_peers_are_told_at_the_exit() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "exec bash -c 'echo hello | cat > copy'";
    let child = Waiting::start(folder.path(), "", script);
    let trace = folder.path().join("trace");
    let capture = Capture::start(Config {
        groups: [Group::Calls].into(),
        processes: Processes::Only(vec![Pid::new(child.pid())]),
        ring_bytes: AMPLE,
        ..Config::new(Output::Folder(trace.clone()))
    });
    assert!(child.go().success());
    capture.finish().unwrap();
    let mut pipes = 0;
    read(&trace, |event| {
        if matches!(event.name(), "syscall_exit_pipe" | "syscall_exit_pipe2") {
            let mut ends = Ends::default();
            event.visit(ctf::Scope::Payload, &mut ends);
            assert_eq!(ends.0.first(), Some(&0), "the call succeeded");
            assert!(matches!(ends.0.as_slice(), [_, from, to] if *from > 2 && *to > *from));
            pipes += 1;
        }
    });
    assert_eq!(pipes, 1);
}

/// All numbers of a payload in order.
#[derive(Default)]
struct Ends(Vec<i64>);

impl<'a> ctf::Visitor<'a> for Ends {
    fn scalar(&mut self, _: ctf::Field<'a>, value: ctf::Value<'a>) {
        self.0.extend(value.as_i64());
    }
    fn enter(&mut self, _: ctf::Field<'a>, _: ctf::Shape) {}
    fn leave(&mut self, _: ctf::Field<'a>, _: ctf::Shape) {}
}
