//! Real lttng-sessiond and lttng-consumerd stream to the relay; babeltrace2 reads what it wrote.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use relay::{Config, Event, Relay, Sealed};
use testkit::lttng::SessionDaemon;
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use tracedir::manifest::SealedBy;

use crate::disk::manifests;

/// How long a chunk may take from the command to the disk.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) relay: Relay,
    events: broadcast::Receiver<Event>,
    pub(crate) daemon: SessionDaemon,
    program: PathBuf,
    pub(crate) root: tempfile::TempDir,
}

impl Setup {
    /// `None` when the tools are not installed.
    pub(crate) fn new() -> Option<Self> {
        for tool in ["lttng-sessiond", "babeltrace2", "cc"] {
            if !testkit::is_installed(tool) {
                testkit::skip(&format!("{tool} is not installed"));
                return None;
            }
        }
        let daemon = SessionDaemon::start().unwrap();
        let program = daemon.compile_ticks().unwrap();
        let root = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let relay = runtime.block_on(async {
            let mut config = Config::new(root.path());
            config.control.set_port(0);
            config.data.set_port(0);
            config.viewers.set_port(0);
            Relay::start(config).unwrap()
        });
        let events = relay.subscribe();
        Some(Self { runtime, relay, events, daemon, program, root })
    }

    pub(crate) fn lttng(&self, command: &str) {
        self.daemon.lttng(command.split_whitespace()).unwrap();
    }

    pub(crate) fn create(&self, name: &str, options: &str) {
        let (control, data) = (self.relay.control_addr().port(), self.relay.data_addr().port());
        self.lttng(&format!("create {name} --set-url=net://127.0.0.1:{control}:{data} {options}"));
    }

    /// Runs the traced program.
    pub(crate) fn emit(&self, count: u64) {
        self.emit_slowly(count, 0);
    }

    /// Runs the traced program with a pause before each event, in microseconds.
    pub(crate) fn emit_slowly(&self, count: u64, pause_us: u64) {
        let status = self
            .daemon
            .command(&self.program)
            .arg(count.to_string())
            .arg(pause_us.to_string())
            .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// The next event the condition picks.
    pub(crate) fn next<T>(&mut self, pick: impl Fn(Event) -> Option<T>) -> T {
        let events = &mut self.events;
        let wait = async {
            loop {
                if let Some(found) = pick(events.recv().await.unwrap()) {
                    return found;
                }
            }
        };
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, wait).await })
            .expect("the event comes")
    }

    pub(crate) fn next_sealed(&mut self) -> Sealed {
        self.next(|event| match event {
            Event::Sealed(sealed) => Some(sealed),
            _ => None,
        })
    }

    pub(crate) fn end(self) -> tempfile::TempDir {
        assert_eq!(self.relay.totals().requests_refused, 0);
        self.runtime.block_on(self.relay.shutdown());
        for (folder, manifest) in manifests(self.root.path()) {
            let mut remarks = Vec::new();
            let checked = tracedir::check(&[&folder], &mut |remark| remarks.push(remark));
            assert!(remarks.is_empty(), "{remarks:?}");
            assert_eq!(checked.unwrap().packets, manifest.contents.totals.packets);
            assert_eq!(manifest.losses, []);
            assert_eq!(manifest.origin.sealed_by, SealedBy::Closed);
        }
        self.root
    }
}

/// Events babeltrace2 reads below a folder.
fn count(folder: &Path) -> u64 {
    let output = Command::new("babeltrace2").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64
}

#[test]
fn a_session_with_rotations_is_recorded_whole() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("turning", "");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    setup.emit(1000);
    setup.lttng("rotate");
    let first = setup.next_sealed();
    assert!(first.folder.parent().unwrap().ends_with("archives"));
    assert_eq!(count(&first.folder), 1000);

    setup.emit(500);
    setup.lttng("enable-rotation --timer=300000");
    for _ in 0..3 {
        setup.next_sealed();
    }
    setup.emit(250);
    setup.lttng("stop");
    setup.lttng("destroy --all");
    let closed = setup.next(|event| match event {
        Event::SessionClosed(name) => Some(name),
        _ => None,
    });
    assert_eq!(closed, first.recording);
    assert_eq!(count(setup.root.path()), 1750);

    let totals = setup.relay.totals();
    assert_eq!(totals.packets, totals.index_entries);
    let root = setup.end();
    let inside: Vec<_> = std::fs::read_dir(closed.folder).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(inside.len(), 1, "only archives: {inside:?}");
    assert!(relay_starts_clean(root.path()));
}

#[test]
fn a_session_without_programs_rotates_and_ends() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("empty", "");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    setup.lttng("rotate");
    setup.lttng("rotate");
    setup.lttng("stop");
    setup.lttng("destroy empty");
    for _ in 0..3 {
        assert!(setup.next_sealed().streams.is_empty());
    }
    setup.end();
}

#[test]
fn a_session_of_buffers_per_process_rotates_between_its_programs() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("processes", "");
    setup.lttng("enable-channel -u ch --buffers-pid --tracefile-size=8192 --tracefile-count=4 --subbuf-size=4096 --num-subbuf=64");
    setup.lttng("enable-event -u testkit:tick -c ch");
    setup.lttng("start");
    setup.emit(50);
    setup.emit(50);
    setup.lttng("rotate");
    assert_eq!(count(&setup.next_sealed().folder), 100);
    setup.emit(30);
    setup.lttng("destroy processes");
    assert_eq!(count(&setup.next_sealed().folder), 30);
    setup.end();
}

#[test]
fn a_session_that_never_rotates_stays_in_its_folder() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("plain", "");
    setup.lttng("enable-channel -u ch --subbuf-size=4096 --num-subbuf=64");
    setup.lttng("enable-event -u testkit:tick -c ch");
    setup.lttng("start");
    setup.emit(2000);
    setup.lttng("stop");
    setup.lttng("destroy plain");
    let sealed = setup.next_sealed();
    assert_eq!(sealed.folder, sealed.recording.folder);
    assert!(sealed.end.is_some());
    assert_eq!(count(&sealed.folder), 2000);
    setup.end();
}

#[test]
fn a_live_session_is_cleared_and_goes_on() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("alive", "--live=200000");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    setup.emit(300);
    setup.lttng("clear");
    setup.next(|event| matches!(event, Event::Cleared { .. }).then_some(()));
    setup.emit(40);
    setup.lttng("stop");
    setup.lttng("destroy alive");
    let sealed = setup.next_sealed();
    assert_eq!(sealed.folder, sealed.recording.folder);
    assert_eq!(count(&sealed.folder), 40);
    setup.end();
}

#[test]
fn snapshots_are_chunks_of_their_own() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("pictures", "--snapshot");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    setup.emit(100);
    setup.lttng("snapshot record");
    let first = setup.next_sealed();
    assert_eq!(count(&first.folder), 100);
    setup.emit(20);
    setup.lttng("snapshot record");
    let second = setup.next_sealed();
    assert_eq!(count(&second.folder), 120);
    assert_ne!(first.folder, second.folder);
    assert_eq!(first.recording.folder, second.recording.folder);
    setup.lttng("destroy pictures");
    setup.end();
}

/// Whether nothing in the folder is named as interrupted.
fn relay_starts_clean(root: &Path) -> bool {
    Runtime::new().unwrap().block_on(async {
        let mut config = Config::new(root);
        config.control.set_port(0);
        config.data.set_port(0);
        config.viewers.set_port(0);
        let relay = Relay::start(config).unwrap();
        let is_clean =
            relay.recovered().interrupted.is_empty() && relay.recovered().unreadable.is_empty();
        relay.shutdown().await;
        is_clean
    })
}
