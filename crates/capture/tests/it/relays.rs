//! Streaming: to a real lttng-relayd, to our relay, and to one that dies.

use std::path::Path;
use std::time::Duration;

use capture::Error;
use capture::kernel::{Config, Output, RelayAddress};
use testkit::lttng::RelayDaemon;
use tokio::runtime::Runtime;

use crate::support::{
    Capture, Waiting, are_installed, babeltrace_count, can_trace, read, wait_for,
};

const ROTATE: Duration = Duration::from_millis(400);

/// Where a capture finds the daemon.
fn address_of(relayd: &RelayDaemon) -> RelayAddress {
    RelayAddress {
        host: "127.0.0.1".to_owned(),
        control_port: relayd.control().port(),
        data_port: relayd.data().port(),
    }
}

fn config(address: &RelayAddress) -> Config {
    Config { rotate: Some(ROTATE), ..Config::new(Output::Relay(address.clone())) }
}

/// Some work for the kernel, and time enough for several chunks.
fn work(folder: &Path) {
    let script = "for i in 1 2 3 4; do dd if=/dev/zero of=file bs=100 count=5000 2>/dev/null; sleep 0.4; done";
    assert!(Waiting::start(folder, "", script).go().success());
}

#[test]
fn a_real_relay_takes_every_chunk_and_babeltrace_reads_every_event() {
    if !can_trace() || !are_installed(&["lttng-relayd", "babeltrace2"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let relayd = RelayDaemon::start().unwrap();
    let capture = Capture::start(config(&address_of(&relayd)));
    work(folder.path());
    let report = capture.finish().unwrap();
    assert!(report.chunks >= 3, "{report:?}");
    assert_eq!(babeltrace_count(relayd.folder()), report.events);
    let found = read(relayd.folder(), |_| {});
    assert_eq!((found.events, found.lost_packets), (report.events, 0));
    assert_eq!(found.by_name["lttng_statedump_end"], report.chunks, "one dump for each chunk");
}

#[test]
fn our_relay_takes_every_chunk_and_event() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let relay = runtime.block_on(async {
        let mut config = relay::Config::new(root.path());
        config.control.set_port(0);
        config.data.set_port(0);
        config.viewers.set_port(0);
        relay::Relay::start(config).unwrap()
    });
    let address = RelayAddress {
        host: "127.0.0.1".to_owned(),
        control_port: relay.control_addr().port(),
        data_port: relay.data_addr().port(),
    };
    let mut events = relay.subscribe();
    let capture = Capture::start(config(&address));
    work(folder.path());
    let report = capture.finish().unwrap();
    let mut sealed = 0;
    runtime.block_on(async {
        loop {
            match events.recv().await.unwrap() {
                relay::Event::Sealed(_) => sealed += 1,
                relay::Event::SessionClosed(_) => break,
                _ => {}
            }
        }
        relay.shutdown().await;
    });
    assert_eq!(sealed, report.chunks);
    let found = read(root.path(), |_| {});
    assert_eq!((found.events, found.lost_packets), (report.events, 0));
}

#[test]
fn a_relay_that_dies_ends_the_capture_with_the_number_of_lost_events() {
    if !can_trace() || !are_installed(&["lttng-relayd"]) {
        return;
    }
    let mut relayd = RelayDaemon::start().unwrap();
    let capture = Capture::start(config(&address_of(&relayd)));
    let root = relayd.folder().to_owned();
    wait_for("the first packet", || !tracedir::discover(&[&root]).unwrap_or_default().is_empty());
    relayd.kill();
    let error = capture.wait().unwrap_err();
    let Error::Undelivered { undelivered, source } = error else { panic!("{error:?}") };
    assert!(undelivered > 0);
    assert!(matches!(*source, Error::Relay { .. }), "{source:?}");
}
