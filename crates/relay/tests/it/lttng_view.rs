//! `lttng view` looks for a relay at port 5344 of its own machine and nowhere else. So that any relay of a test may be that one, it runs
//! in a network of its own, whose port 5344 leads to the relay.

use std::io::{BufRead, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use crate::disk::wait_until;
use crate::real::Setup;

const PORT: u16 = 5344;
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a program in a network in which [`PORT`] of this machine leads to `relay`; `None` when that is not permitted.
fn beside(relay: SocketAddr, mut command: Command) -> Option<Child> {
    let started = thread::spawn(move || {
        // Of this thread alone, and of what it starts.
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        Some((listener, command.spawn().unwrap()))
    });
    let (listener, child) = started.join().unwrap()?;
    thread::spawn(move || {
        for viewer in listener.incoming().map_while(Result::ok) {
            lead(viewer, TcpStream::connect(relay).unwrap());
        }
    });
    Some(child)
}

/// What one says is said to the other, both ways.
fn lead(one: TcpStream, other: TcpStream) {
    let ways = [(one.try_clone(), other.try_clone()), (Ok(other), Ok(one))];
    for (from, to) in ways {
        let (mut from, mut to) = (from.unwrap(), to.unwrap());
        thread::spawn(move || {
            // However it ends, it has ended.
            drop(std::io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
}

#[test]
fn lttng_lists_and_views_a_session_at_the_relay() {
    if !testkit::is_installed("ip") {
        return testkit::skip("ip is not installed");
    }
    let Some(mut setup) = Setup::new() else { return };
    setup.create("viewed", "--live=100000");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    let listed = setup.daemon.command("lttng").args(["list", "viewed"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let output = format!("Trace output: tcp4://{}", setup.relay.control_addr());
    assert!(listed.status.success() && text.contains(&output), "{text}");
    setup.emit(20);

    let mut view = setup.daemon.command("lttng");
    view.args(["view", "viewed"]).stdin(Stdio::null());
    view.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Some(mut view) = beside(setup.relay.viewers_addr(), view) else {
        setup.lttng("destroy viewed");
        return testkit::skip("a network of its own is not permitted");
    };
    let (sender, printed) = channel();
    let output = BufReader::new(view.stdout.take().unwrap());
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok).filter(|line| line.contains("tick")) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    // It begins at the end.
    let mut seen = Vec::new();
    wait_until("a viewer that prints", || {
        setup.emit(1);
        seen.extend(printed.try_iter());
        !seen.is_empty()
    });
    setup.emit(100);
    let deadline = Instant::now() + PATIENCE;
    while seen.len() < 100 {
        seen.extend(printed.recv_timeout(deadline.saturating_duration_since(Instant::now())));
    }
    setup.lttng("destroy viewed");
    setup.next_sealed();
    let status = view.wait().unwrap();
    assert!(status.success(), "{status}");
    setup.end();
}
