//! Streaming: to a real lttng-relayd, to our relay, and to one that dies.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use capture::Error;
use capture::kernel::{Config, Output, RelayAddress};
use door::{Settings, TokenSource};
use testkit::TestProcess;
use testkit::lttng::RelayDaemon;
use testkit::pki::{Authority, write_private};
use tokio::runtime::Runtime;

use crate::support::{
    AMPLE, Capture, Waiting, are_installed, babeltrace_count, can_trace, read, wait_for,
};

const ROTATE: Duration = Duration::from_millis(400);

/// Where a capture finds the daemon.
fn address_of(relayd: &RelayDaemon) -> RelayAddress {
    RelayAddress {
        host: "127.0.0.1".to_owned(),
        control_port: relayd.control().port(),
        data_port: relayd.data().port(),
        tls: None,
    }
}

fn config(address: &RelayAddress) -> Config {
    Config { rotate: Some(ROTATE), ..Config::new(Output::Relay(address.clone())) }
}

/// Some work for the kernel, and time enough for several chunks, if the machine has any to spare.
fn work(folder: &Path) {
    let script = "for i in 1 2 3 4; do dd if=/dev/zero of=file bs=100 count=5000 2>/dev/null; sleep 0.4; done";
    assert!(Waiting::start(folder, "", script).go().success());
}

/// How many chunks there are at `HOST/SESSION/archives` below the folder of a relay.
fn archived(root: &Path) -> usize {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    };
    let sessions = entries(root).flat_map(|host| entries(&host).collect::<Vec<_>>());
    sessions.map(|session| entries(&session.join("archives")).count()).sum()
}

#[test]
fn a_real_relay_takes_every_chunk_and_babeltrace_reads_every_event() {
    if !can_trace() || !are_installed(&["lttng-relayd", "babeltrace2"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let relayd = RelayDaemon::start().unwrap();
    // A dump for which there is no room is not whole.
    let capture = Capture::start(Config { ring_bytes: AMPLE, ..config(&address_of(&relayd)) });
    wait_for("two archived chunks", || {
        work(folder.path());
        archived(relayd.folder()) >= 2
    });
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
        tls: None,
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

/// With a value, [`relay_of_a_child_process`] is a relay: folder, control and data address, one a line; with a fourth, the
/// folder of its keys, it is reached over TLS only, and the control address is that.
const CHILD: &str = "CAPTURE_TEST_CHILD_RELAY";

/// Not a test: the relay that another test kills.
#[test]
fn relay_of_a_child_process() {
    let Ok(settings) = std::env::var(CHILD) else { return };
    let mut lines = settings.lines();
    let runtime = Runtime::new().unwrap();
    let relay = runtime.block_on(async {
        let mut config = relay::Config::new(lines.next().unwrap());
        config.control = lines.next().unwrap().parse().unwrap();
        config.data = lines.next().unwrap().parse().unwrap();
        config.viewers.set_port(0);
        if let Some(keys) = lines.next() {
            config.tls = Some(port(Path::new(keys), config.control));
            config.control.set_port(0);
            config.data.set_port(0);
        }
        relay::Relay::start(config).unwrap()
    });
    let (control, data) = (relay.control_addr(), relay.data_addr());
    let (control, data) = relay.tls_addr().map_or((control, data), |tls| (tls, tls));
    println!("\nlistens {control} {data}");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    runtime.block_on(relay.shutdown());
}

fn port(keys: &Path, address: SocketAddr) -> relay::Tls {
    relay::Tls {
        address,
        certificate: keys.join("relay.pem"),
        key: keys.join("relay.key"),
        client_ca: Some(keys.join("ca.pem")),
        tokens: Some(keys.join("tokens")),
    }
}

/// A relay of ours in a process of its own.
struct OwnProcess {
    process: TestProcess,
    control: SocketAddr,
    data: SocketAddr,
}

impl OwnProcess {
    fn start(root: &Path, control: SocketAddr, data: SocketAddr, keys: Option<&Path>) -> Self {
        let keys = keys.map(|keys| format!("\n{}", keys.display())).unwrap_or_default();
        let settings = format!("{}\n{control}\n{data}{keys}", root.display());
        let process =
            TestProcess::start("relays::relay_of_a_child_process", CHILD, settings).unwrap();
        let &[control, data] = process.addresses() else { panic!("two addresses") };
        Self { process, control, data }
    }
}

#[test]
fn a_relay_that_was_killed_and_comes_back_gets_everything_once() {
    check_comes_back(None);
}

#[test]
fn so_does_one_that_is_reached_over_tls() {
    let keys = tempfile::tempdir().unwrap();
    let ca = Authority::new(keys.path(), "ca").unwrap();
    ca.issue("relay", &["127.0.0.1"]).unwrap();
    let client = ca.issue("client", &[]).unwrap();
    let (token, tokens) = (keys.path().join("token"), keys.path().join("tokens"));
    let secret = "the-token-of-this-host";
    write_private(&token, &format!("{secret}\n")).unwrap();
    write_private(&tokens, &format!("here producer {secret} {}\n", host())).unwrap();
    check_comes_back(Some(Settings {
        ca: Some(ca.pem().to_owned()),
        certificate: Some((client.certificate, client.key)),
        token: Some(TokenSource::File(token)),
    }));
}

fn check_comes_back(tls: Option<Settings>) {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    let keys = tls.as_ref().and_then(|tls| tls.ca.as_ref()?.parent());
    let any = "127.0.0.1:0".parse().unwrap();
    let mut relay = OwnProcess::start(root.path(), any, any, keys);
    let address = RelayAddress {
        host: "127.0.0.1".to_owned(),
        control_port: relay.control.port(),
        data_port: relay.data.port(),
        tls: tls.clone(),
    };
    let capture = Capture::start(config(&address));
    for _ in 0..3 {
        work(folder.path());
        relay.process.kill();
        work(folder.path());
        relay = OwnProcess::start(root.path(), relay.control, relay.data, keys);
    }
    // The relay was lost three times: each time a chunk began, which the next one with a state dump followed.
    wait_for("six sealed chunks", || {
        work(folder.path());
        archived(root.path()) >= 6
    });
    let report = capture.finish().unwrap();
    assert_eq!(report.reconnections, 3);
    let found = read(root.path(), |_| {});
    // A packet that was lost or is there twice would show in the numbers of packets too.
    assert_eq!((found.events, found.lost_packets), (report.events, 0));
    assert!(report.chunks >= 7, "{report:?}");
    let session = std::fs::read_dir(root.path().join(host())).unwrap();
    assert_eq!(session.count(), 1, "one session, one folder");
}

#[test]
fn a_relay_that_stays_away_ends_the_capture() {
    if !can_trace() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let mut relay = OwnProcess::start(root.path(), any, any, None);
    let address = RelayAddress {
        host: "127.0.0.1".to_owned(),
        control_port: relay.control.port(),
        data_port: relay.data.port(),
        tls: None,
    };
    let reconnect = Duration::from_millis(300);
    let capture = Capture::start(Config { reconnect, ..config(&address) });
    wait_for("the first packet", || {
        !tracedir::discover(&[root.path()]).unwrap_or_default().is_empty()
    });
    relay.process.kill();
    let error = capture.wait().unwrap_err();
    assert!(matches!(error, Error::Undelivered { .. }), "{error:?}");
}

/// This machine's name, as captures say it.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
