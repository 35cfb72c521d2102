//! `throughline live` of real sessions at a real lttng-relayd and at our relay.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::lttng::{RelayDaemon, SessionDaemon};

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{read, stderr, stdout};

/// Whose relay.
enum Peer {
    Lttng(RelayDaemon),
    Ours(Running),
}

pub(crate) struct Setup {
    peer: Peer,
    control: SocketAddr,
    data: SocketAddr,
    /// Where viewers find it, as an address of `throughline live`.
    pub(crate) live: String,
    /// What each viewer shows.
    shown: Vec<String>,
    /// What the relay writes below.
    root: PathBuf,
    daemon: SessionDaemon,
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Setup {
    /// With lttng-relayd; `None` when the tools are not installed.
    fn with_lttng() -> Option<Self> {
        let folder = tools(&["lttng-sessiond", "lttng-relayd", "cc"])?;
        let relay = RelayDaemon::start().unwrap();
        let root = relay.folder().to_owned();
        let ports = [relay.control(), relay.data(), relay.live()];
        Some(Self::new(Peer::Lttng(relay), ports, root, folder))
    }

    /// With our relay.
    fn with_ours() -> Option<Self> {
        Self::with_ours_and(|_, _| Vec::new())
    }

    /// With our relay over TLS, as far as viewers are concerned: `keys` adds what the relay needs for that, and gives what
    /// viewers show.
    pub(crate) fn with_tls(keys: impl FnOnce(&Path, &mut Command) -> Vec<String>) -> Option<Self> {
        let mut setup = Self::with_ours_and(keys)?;
        let Peer::Ours(relay) = &setup.peer else { return None };
        setup.live = format!("tls://{}", address_of(relay, "tls "));
        Some(setup)
    }

    fn with_ours_and(keys: impl FnOnce(&Path, &mut Command) -> Vec<String>) -> Option<Self> {
        let folder = tools(&["lttng-sessiond", "cc"])?;
        let root = folder.path().join("traces");
        let mut command = Command::new(THROUGHLINE);
        command.arg("relay").arg("--output").arg(&root);
        for port in ["--control", "--data", "--live"] {
            command.args([port, "127.0.0.1:0"]);
        }
        let shown = keys(folder.path(), &mut command);
        command.stdout(Stdio::null());
        let mut relay = Running::start(&mut command, "relay", &folder.path().join("relay.log"));
        relay.wait_until_said("writing below");
        let ports = ["control ", "data ", "viewers "].map(|port| address_of(&relay, port));
        Some(Self { shown, ..Self::new(Peer::Ours(relay), ports, root, folder) })
    }

    fn new(peer: Peer, ports: [SocketAddr; 3], root: PathBuf, folder: tempfile::TempDir) -> Self {
        let daemon = SessionDaemon::start().unwrap();
        let program = daemon.compile_ticks().unwrap();
        let [control, data, live] = ports;
        let (live, shown) = (live.to_string(), Vec::new());
        Self { peer, control, data, live, shown, root, daemon, program, folder }
    }

    /// What our relay has said.
    pub(crate) fn said(&self) -> String {
        match &self.peer {
            Peer::Ours(relay) => relay.said(),
            Peer::Lttng(_) => String::new(),
        }
    }

    fn kill_relay(&mut self) {
        match &mut self.peer {
            Peer::Lttng(relay) => relay.kill(),
            Peer::Ours(relay) => drop(relay.end("KILL")),
        }
    }

    fn lttng(&self, command: &str) {
        self.daemon.lttng(command.split_whitespace()).unwrap();
    }

    /// A live session with a channel whose buffers are `buffers`.
    fn create(&self, name: &str, buffers: &str) {
        let (control, data) = (self.control.port(), self.data.port());
        self.lttng(&format!(
            "create {name} --live=100000 --set-url=net://127.0.0.1:{control}:{data}"
        ));
        self.lttng(&format!("enable-channel -u {buffers} ch"));
        self.lttng("enable-event -u -c ch testkit:tick");
        self.lttng("start");
    }

    fn emit(&self, count: u64, pause_us: u64) -> Child {
        let mut command = self.daemon.command(&self.program);
        command.args([count.to_string(), pause_us.to_string()]);
        command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1").stdin(Stdio::null());
        command.spawn().unwrap()
    }

    /// `throughline live` of a path at the relay.
    pub(crate) fn live(&self, path: &str, options: &[&str]) -> Command {
        let mut command = Command::new(THROUGHLINE);
        command.arg("live").arg(format!("{}{path}", self.live)).args(&self.shown).args(options);
        command.env("TZ", "UTC");
        command
    }

    /// HOSTNAME/NAME of a session, once the relay has it.
    fn listed(&self, name: &str) -> String {
        wait_for("a session in the list", || {
            let output = self.live("", &["--json"]).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            stdout(&output).lines().find_map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(line["live_timer_us"], 100_000);
                let is_it = line["name"] == name;
                is_it.then(|| format!("/{}/{name}", line["hostname"].as_str().unwrap()))
            })
        })
    }

    /// The folder that the relay wrote of a session.
    fn recorded(&self, name: &str) -> PathBuf {
        let hosts = fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().path());
        let mut sessions = hosts.filter(|path| path.is_dir()).flat_map(|host| {
            fs::read_dir(host).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        });
        let is_it = |path: &PathBuf| {
            path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"))
        };
        sessions.find(is_it).expect("a folder of the session")
    }

    /// Starts following into a file.
    fn follow(&self, path: &str, options: &[&str], to: &str) -> (Running, PathBuf) {
        let printed = self.folder.path().join(to);
        let mut command = self.live(path, options);
        command.stdout(fs::File::create(&printed).unwrap());
        let log = self.folder.path().join(format!("{to}.log"));
        (Running::start(&mut command, "live", &log), printed)
    }
}

/// Where our relay said that it has a port.
fn address_of(relay: &Running, port: &str) -> SocketAddr {
    let said = relay.said();
    let (_, rest) = said.split_once(port).expect("a port");
    rest.split_once(',').expect("an address").0.parse().expect("an address")
}

/// A folder for a test that needs these tools; `None` when one is not installed.
fn tools(needed: &[&str]) -> Option<tempfile::TempDir> {
    if let Some(tool) = needed.iter().find(|tool| !testkit::is_installed(tool)) {
        testkit::skip(&format!("{tool} is not installed"));
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().lines().count()
}

pub(crate) fn check_told_as_recorded(setup: &Setup, buffers: &str) {
    let name = format!("told{buffers}");
    setup.create(&name, buffers);
    let path = setup.listed(&name);
    let (mut live, printed) = setup.follow(&path, &["--fields=all"], &name);
    let mut programs = [setup.emit(400, 500), setup.emit(300, 700)];
    wait_for("event records while the session goes on", || (lines(&printed) > 50).then_some(()));
    // Another process appears when the viewer is attached already.
    let mut later = setup.emit(50, 0);
    for program in programs.iter_mut().chain([&mut later]) {
        assert!(program.wait().unwrap().success());
    }
    setup.lttng(&format!("destroy {name}"));
    let status = wait_for("the end of the session", || live.child.try_wait().unwrap());
    assert!(status.success(), "{buffers}: {}", live.said());
    assert_eq!(live.said(), "", "{buffers}");

    let whole = read(&["--fields=all"], &[&setup.recorded(&name)]);
    assert_eq!(stderr(&whole), "");
    let (told, whole) = (fs::read_to_string(&printed).unwrap(), stdout(&whole));
    assert_eq!(whole.lines().count(), 750, "{buffers}");
    assert!(told == whole, "{buffers}: {}", first_difference(&told, whole));
}

#[test]
fn a_session_at_lttng_relayd_is_told_as_it_is_recorded() {
    // Not with buffers per process: that relay forgets streams that end before a viewer has read them.
    let Some(setup) = Setup::with_lttng() else { return };
    check_told_as_recorded(&setup, "--buffers-uid");
}

#[test]
fn a_session_at_our_relay_is_told_as_it_is_recorded() {
    let Some(setup) = Setup::with_ours() else { return };
    check_told_as_recorded(&setup, "--buffers-uid");
    check_told_as_recorded(&setup, "--buffers-pid");
}

fn first_difference(told: &str, whole: &str) -> String {
    let differs = told.lines().zip(whole.lines()).find(|(a, b)| a != b);
    let (told, whole) = (told.lines().count(), whole.lines().count());
    format!("{told} and {whole} lines, first difference {differs:?}")
}

#[test]
fn a_session_without_live_timer_is_told_across_its_rotations() {
    let Some(setup) = Setup::with_ours() else { return };
    let (control, data) = (setup.control.port(), setup.data.port());
    setup.lttng(&format!("create plain --set-url=net://127.0.0.1:{control}:{data}"));
    for channel in ["metadata", "ch"] {
        setup.lttng(&format!("enable-channel -u --switch-timer=200000 {channel}"));
    }
    setup.lttng("enable-event -u -c ch testkit:tick");
    setup.lttng("start");
    let path = wait_for("a session in the list", || {
        let output = setup.live("", &[]).output().unwrap();
        let mut words = stdout(&output).split_whitespace();
        words.find(|word| word.ends_with("/plain")).map(|path| format!("/{path}"))
    });
    let (mut live, printed) = setup.follow(&path, &["--since=beginning"], "plain");
    let mut program = setup.emit(3_000, 1_000);
    for rotation in 1..4 {
        wait_for("event records of each chunk", || {
            (lines(&printed) >= rotation * 300).then_some(())
        });
        setup.lttng("rotate plain");
    }
    assert!(program.wait().unwrap().success());
    setup.lttng("destroy plain");
    let status = wait_for("the end of the session", || live.child.try_wait().unwrap());
    assert!(status.success(), "{}", live.said());
    assert_eq!(live.said(), "");
    let whole = read(&[], &[&setup.recorded("plain")]);
    let (told, whole) = (fs::read_to_string(&printed).unwrap(), stdout(&whole));
    assert_eq!(whole.lines().count(), 3_000);
    assert!(told == whole, "{}", first_difference(&told, whole));
}

/// Packets of a stream that our relay keeps in memory.
const IN_MEMORY: u64 = 256;

/// The most packets of a stream of a session, in all its chunks, as their manifests say.
fn most_packets(session: &Path) -> u64 {
    let mut packets = std::collections::BTreeMap::<String, u64>::new();
    for chunk in fs::read_dir(session.join("archives")).unwrap() {
        let manifest = fs::read(chunk.unwrap().path().join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        for stream in manifest["streams"].as_array().unwrap() {
            let file = stream["files"][0].as_str().unwrap().to_owned();
            *packets.entry(file).or_default() += stream["packets"].as_u64().unwrap();
        }
    }
    packets.into_values().max().unwrap()
}

#[test]
fn who_comes_after_three_rotations_is_told_all_that_was_recorded() {
    let Some(setup) = Setup::with_ours() else { return };
    let (control, data) = (setup.control.port(), setup.data.port());
    setup.lttng(&format!("create long --set-url=net://127.0.0.1:{control}:{data}"));
    setup.lttng("enable-channel -u --switch-timer=200000 metadata");
    setup.lttng("enable-channel -u --switch-timer=200000 --subbuf-size=4096 --num-subbuf=256 ch");
    setup.lttng("enable-event -u -c ch testkit:tick");
    setup.lttng("start");
    for _ in 0..3 {
        assert!(setup.emit(40_000, 5).wait().unwrap().success());
        setup.lttng("rotate long");
    }
    let path = wait_for("a session in the list", || {
        let output = setup.live("", &[]).output().unwrap();
        let mut words = stdout(&output).split_whitespace();
        words.find(|word| word.ends_with("/long")).map(|path| format!("/{path}"))
    });
    let mut viewers =
        ["one", "other"].map(|name| setup.follow(&path, &["--since=beginning"], name));
    for (_, printed) in &viewers {
        wait_for("what is on the disk", || (lines(printed) > 100_000).then_some(()));
    }
    assert!(setup.emit(40_000, 5).wait().unwrap().success());
    setup.lttng("destroy long");
    let statuses = viewers
        .each_mut()
        .map(|(live, _)| wait_for("the end of the session", || live.child.try_wait().unwrap()));
    let session = setup.recorded("long");
    let most = wait_for("the last manifest", || {
        let is_whole = fs::read_dir(session.join("archives")).unwrap().count() == 4;
        is_whole.then(|| most_packets(&session))
    });
    assert!(most > IN_MEMORY, "{most} packets are all in memory");
    let whole = read(&[], &[&session]);
    let whole = stdout(&whole);
    for ((live, printed), status) in viewers.iter().zip(statuses) {
        assert!(status.success(), "{}", live.said());
        let told = fs::read_to_string(printed).unwrap();
        assert!(told == whole, "{}, {}", first_difference(&told, whole), live.said());
    }
    assert!(whole.lines().count() > 150_000, "{}", whole.lines().count());
}

#[test]
fn what_was_told_before_is_there_for_who_asks_and_filters_hold() {
    for setup in [Setup::with_lttng(), Setup::with_ours()].into_iter().flatten() {
        check_past(&setup);
    }
}

fn check_past(setup: &Setup) {
    setup.create("past", "--buffers-uid");
    let path = setup.listed("past");
    assert!(setup.emit(100, 0).wait().unwrap().success());
    let options = ["--since=-5m", "--json", "--grep=seq >= 90", "--limit=10"];
    let (mut live, printed) = setup.follow(&path, &options, "past");
    let status = wait_for("ten event records", || live.child.try_wait().unwrap());
    assert!(status.success(), "{}", live.said());
    let numbers: Vec<u64> = fs::read_to_string(&printed)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["payload"]["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (90..100).collect::<Vec<u64>>());

    let viewers = |count: u32| {
        wait_for("so many viewers", || {
            let output = setup.live("", &["--json"]).output().unwrap();
            stdout(&output).contains(&format!("\"viewers\":{count}")).then_some(())
        });
    };
    // From now on there is nothing; Ctrl-C ends it quietly, with an answer for who looked for something.
    for (options, code) in [(["--limit=1", "--no-delta"], 0), (["--name=none", "--no-delta"], 1)] {
        viewers(0);
        let (mut live, printed) = setup.follow(&path, &options, "now");
        viewers(1);
        let status = live.end("INT");
        let about = (&options, setup.root.display(), live.said());
        assert_eq!(status.code(), Some(code), "{about:?}");
        assert_eq!((lines(&printed), live.said().as_str()), (0, ""));
    }
    setup.lttng("destroy past");
}

#[test]
fn sessions_are_listed_and_one_that_is_not_there_is_named() {
    for setup in [Setup::with_lttng(), Setup::with_ours()].into_iter().flatten() {
        check_list(setup);
    }
}

fn check_list(setup: Setup) {
    let output = setup.live("", &[]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
    assert!(stderr(&output).contains("has no sessions to show"), "{}", stderr(&output));

    setup.create("listed", "--buffers-uid");
    let path = setup.listed("listed");
    let output = setup.live("", &[]).output().unwrap();
    let table: Vec<Vec<&str>> =
        stdout(&output).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(table[0], ["session", "streams", "viewers", "live", "timer", "format"]);
    assert_eq!(table[1][0], path.trim_start_matches('/'));
    assert_eq!(table[1][2..], ["0", "100ms", "CTF", "1.8"]);

    let output = setup.live("/nobody/nothing", &[]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let expected = format!("there is no such session; there are {}", path.trim_start_matches('/'));
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    setup.lttng("destroy listed");

    // A relay that is not there, and one that dies.
    let mut setup = setup;
    setup.create("cut", "--buffers-uid");
    let path = setup.listed("cut");
    let (mut live, _) = setup.follow(&path, &["--since=beginning"], "cut");
    assert!(setup.emit(10, 0).wait().unwrap().success());
    setup.kill_relay();
    let status = wait_for("the end of the viewer", || live.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(2), "{}", live.said());
    let output = setup.live("", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot connect to 127.0.0.1:"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn a_relay_that_others_reach_is_told_who_may_connect_or_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    for (command, port) in
        [("relay", "--control"), ("up", "--control"), ("up", "--live"), ("up", "--http")]
    {
        let output = Command::new(THROUGHLINE)
            .current_dir(folder.path())
            .args([command, &format!("{port}=0.0.0.0:0")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}: {}", stderr(&output));
        assert!(stderr(&output).contains("--allow NETWORK"), "{command}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{command}: {}", stderr(&output));
    }
}
