//! Who is told of sealed chunks: at least once, whatever the peer does, and only of what is whole.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::{Config, Relay, Target};
use tempfile::TempDir;
use testkit::pki::{Authority, Issued};
use tokio::runtime::Runtime;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use tracedir::manifest::Manifest;
use wire::live::CloseAction;

use crate::disk::{manifests, wait_until};
use crate::producer::{Producer, session, start_with};

/// What a peer does with one request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Status(u16),
    /// To a place that nobody may ask.
    Redirect(SocketAddr),
    /// Takes the request and says nothing.
    Hang,
    /// Ends the connection when the request has come.
    Close,
    /// Ends the connection at once.
    CloseAtOnce,
    /// Says something that is not HTTP.
    Noise,
}

/// A peer that manifests are posted to. It plays its script and then answers 204.
pub(crate) struct Peer {
    address: SocketAddr,
    scheme: &'static str,
    requests: Arc<Mutex<Vec<Posted>>>,
}

/// A request.
#[derive(Debug, Clone)]
struct Posted {
    head: Vec<String>,
    body: Vec<u8>,
    was_accepted: bool,
}

impl Posted {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Peer {
    pub(crate) fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script)
    }

    pub(crate) fn at(address: SocketAddr, script: impl IntoIterator<Item = Answer>) -> Self {
        Self::serve(address, script, None)
    }

    /// One that speaks TLS, with this certificate.
    fn https(issued: &Issued, script: impl IntoIterator<Item = Answer>) -> Self {
        let config = door::server_config(&issued.certificate, &issued.key, None).unwrap();
        Self::serve("127.0.0.1:0".parse().unwrap(), script, Some(config))
    }

    fn serve(
        address: SocketAddr,
        script: impl IntoIterator<Item = Answer>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut script) =
            (Arc::clone(&requests), script.into_iter().collect::<Vec<_>>().into_iter());
        // Ends with the process.
        std::thread::spawn(move || {
            let mut hanging = Vec::new();
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                let answer = script.next().unwrap_or(Answer::Status(204));
                if matches!(answer, Answer::CloseAtOnce) {
                    continue;
                }
                let mut socket: Box<dyn Socket> = match &tls {
                    Some(tls) => {
                        let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                        Box::new(StreamOwned::new(connection, socket))
                    }
                    None => Box::new(socket),
                };
                let Some((head, body)) = read(&mut socket) else { continue };
                let was_accepted = matches!(answer, Answer::Status(200..=299));
                kept.lock().unwrap().push(Posted { head, body, was_accepted });
                reply(&mut socket, answer);
                if matches!(answer, Answer::Hang) {
                    hanging.push(socket);
                }
            }
        });
        Self { address, scheme, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/chunks?from=relay", self.scheme, self.address)
    }

    fn requests(&self) -> Vec<Posted> {
        self.requests.lock().unwrap().clone()
    }

    /// The manifests that were accepted.
    pub(crate) fn told(&self) -> Vec<Manifest> {
        let accepted = self.requests().into_iter().filter(|request| request.was_accepted);
        accepted.map(|request| Manifest::parse(&request.body).unwrap().unwrap()).collect()
    }

    fn told_chunks(&self) -> Vec<u64> {
        self.told().iter().map(|manifest| manifest.origin.chunk).collect()
    }
}

trait Socket: Read + Write {}

impl<S: Read + Write> Socket for S {}

fn read(socket: &mut dyn Socket) -> Option<(Vec<String>, Vec<u8>)> {
    let mut reader = BufReader::new(socket);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let len = head.iter().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; len.parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn reply(socket: &mut dyn Socket, answer: Answer) {
    let text = match answer {
        Answer::Status(status) => format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n"),
        Answer::Redirect(to) => {
            format!("HTTP/1.1 302 x\r\nlocation: http://{to}/\r\ncontent-length: 0\r\n\r\n")
        }
        Answer::Noise => "SSH-2.0-none\r\n".to_owned(),
        Answer::Hang | Answer::Close | Answer::CloseAtOnce => String::new(),
    };
    // The relay may have given up.
    drop(socket.write_all(text.as_bytes()).and_then(|()| socket.flush()));
}

/// Has a relay tell the peer, impatiently.
pub(crate) fn tell(config: &mut Config, peer: &Peer) {
    config.announce.targets.push(Target::Webhook(peer.url().parse().unwrap()));
    hurry(config);
}

pub(crate) fn hurry(config: &mut Config) {
    config.announce.first_pause = Duration::from_millis(1);
    config.announce.longest_pause = Duration::from_millis(20);
    config.announce.timeout = Duration::from_millis(300);
}

pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) root: TempDir,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { runtime: Runtime::new().unwrap(), root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn start(&self, set_up: impl FnOnce(&mut Config)) -> Relay {
        start_with(&self.runtime, self.root.path(), set_up)
    }

    /// Every sealed chunk's manifest, by chunk.
    pub(crate) fn manifests(&self) -> Vec<(PathBuf, Manifest)> {
        let mut all: Vec<_> =
            manifests(&self.root.path().canonicalize().unwrap()).into_iter().collect();
        all.sort_by_key(|(_, manifest)| manifest.origin.chunk);
        all
    }

    pub(crate) fn outbox_len(&self) -> usize {
        fs::read_dir(self.root.path().join(".relay/outbox")).map_or(0, Iterator::count)
    }

    /// Writes a program beside the root.
    fn program(&self, folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("told it");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// Records `count` chunks with one packet each, and goes.
pub(crate) fn record(relay: &Relay, name: &str, count: u64) {
    let before = relay.totals().chunks_sealed;
    let mut producer = Producer::new(relay, session(name));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    for chunk in 0..count {
        producer.packet(stream, chunk);
        producer.index(stream, chunk);
        let next = (chunk + 1 < count).then_some(chunk + 1);
        if let Some(next) = next {
            producer.chunk(next);
        }
        producer.rotate(next, &[(stream, chunk + 1)]);
        producer.close_chunk(chunk, Some(CloseAction::MoveToArchives));
        wait_until("the seal", || relay.totals().chunks_sealed == before + chunk + 1);
    }
}

#[test]
fn a_webhook_is_told_of_each_chunk_with_its_manifest() {
    let setup = Setup::new();
    let peer = Peer::new([]);
    let relay = setup.start(|config| tell(config, &peer));
    record(&relay, "s", 3);
    wait_until("three announcements", || relay.totals().announcements == 3);
    setup.runtime.block_on(relay.shutdown());
    let (requests, manifests) = (peer.requests(), setup.manifests());
    assert_eq!((requests.len(), manifests.len(), setup.outbox_len()), (3, 3, 0));
    for (request, (folder, _)) in requests.iter().zip(&manifests) {
        assert_eq!(request.head.first().unwrap(), "POST /chunks?from=relay HTTP/1.1");
        assert_eq!(request.header("host"), Some(peer.address.to_string().as_str()));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.body, fs::read(folder.join("manifest.json")).unwrap());
    }
}

#[test]
fn a_peer_that_fails_in_every_way_is_asked_again_until_it_has_been_told() {
    let setup = Setup::new();
    let elsewhere = Peer::new([]);
    let peer = Peer::new([
        Answer::Status(500),
        Answer::Hang,
        Answer::Redirect(elsewhere.address),
        Answer::Close,
        Answer::CloseAtOnce,
        Answer::Noise,
        Answer::Status(404),
    ]);
    let relay = setup.start(|config| tell(config, &peer));
    record(&relay, "s", 1);
    wait_until("the announcement", || relay.totals().announcements == 1);
    assert_eq!(relay.totals().announcements_failed, 7);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(peer.told_chunks(), [0]);
    assert!(elsewhere.requests().is_empty(), "redirections are not followed");
    let requests = peer.requests();
    let keys: Vec<_> = requests.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys.len(), 7, "all but the connection that was closed at once");
    assert!(keys.iter().all(|key| key.is_some() && *key == keys[0]), "{keys:?}");
}

#[test]
fn a_webhook_over_tls_is_asked_again_like_any_other() {
    let (setup, keys) = (Setup::new(), tempfile::tempdir().unwrap());
    let ca = Authority::new(keys.path(), "ca").unwrap();
    let issued = ca.issue("peer", &["127.0.0.1"]).unwrap();
    let script = [
        Answer::CloseAtOnce,
        Answer::Status(503),
        Answer::Hang,
        Answer::Noise,
        Answer::Close,
        Answer::Redirect("127.0.0.1:1".parse().unwrap()),
    ];
    let peer = Peer::https(&issued, script);
    let relay = setup.start(|config| {
        tell(config, &peer);
        config.announce.ca = Some(ca.pem().to_owned());
        // A handshake takes its time on a busy machine.
        config.announce.timeout = Duration::from_secs(3);
    });
    record(&relay, "s", 2);
    wait_until("both", || relay.totals().announcements == 2);
    assert_eq!(relay.totals().announcements_failed, 6);
    setup.runtime.block_on(relay.shutdown());
    let mut told = peer.told_chunks();
    told.sort_unstable();
    assert_eq!(told, [0, 1]);
}

#[test]
fn a_webhook_of_another_name_or_ca_is_told_nothing() {
    let keys = tempfile::tempdir().unwrap();
    let ca = Authority::new(keys.path(), "ca").unwrap();
    let strangers = Authority::new(keys.path(), "strangers").unwrap();
    let named = ca.issue("named", &["another.example"]).unwrap();
    let late = ca.issue_expired("late", &["127.0.0.1"]).unwrap();
    let strange = strangers.issue("strange", &["127.0.0.1"]).unwrap();
    for issued in [named, late, strange] {
        let setup = Setup::new();
        let peer = Peer::https(&issued, []);
        let relay = setup.start(|config| {
            tell(config, &peer);
            config.announce.ca = Some(ca.pem().to_owned());
        });
        record(&relay, "s", 1);
        wait_until("failures", || relay.totals().announcements_failed > 2);
        assert_eq!(relay.totals().announcements, 0);
        setup.runtime.block_on(relay.shutdown());
        assert_eq!((peer.requests().len(), setup.outbox_len()), (0, 1), "{issued:?}");
    }
}

#[test]
fn a_relay_does_not_start_with_a_ca_that_it_cannot_read() {
    let setup = Setup::new();
    let missing = setup.root.path().join("missing.pem");
    let _runtime = setup.runtime.enter();
    let mut config = Config::new(setup.root.path());
    for port in [&mut config.control, &mut config.data, &mut config.viewers] {
        port.set_port(0);
    }
    config.announce.targets.push(Target::Webhook("https://127.0.0.1/".parse().unwrap()));
    config.announce.ca = Some(missing);
    let refused = Relay::start(config);
    assert!(matches!(refused, Err(relay::Error::Tls(door::Error::File { .. }))), "{refused:?}");
}

#[test]
fn what_could_not_be_told_is_told_after_the_next_start() {
    let setup = Setup::new();
    // A port that nobody listens on.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = |config: &mut Config| {
        let url = format!("http://{address}/chunks?from=relay");
        config.announce.targets.push(Target::Webhook(url.parse().unwrap()));
        hurry(config);
    };
    let relay = setup.start(target);
    record(&relay, "s", 2);
    wait_until("a failure", || relay.totals().announcements_failed > 2);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(setup.outbox_len(), 2);

    let peer = Peer::at(address, []);
    let relay = setup.start(target);
    wait_until("both", || relay.totals().announcements == 2);
    setup.runtime.block_on(relay.shutdown());
    let mut told = peer.told_chunks();
    told.sort_unstable();
    assert_eq!((told, setup.outbox_len()), (vec![0, 1], 0));
}

#[test]
fn when_too_many_chunks_wait_the_oldest_are_dropped_and_counted() {
    let setup = Setup::new();
    let peer = Peer::new(std::iter::repeat_n(Answer::Hang, 1));
    let relay = setup.start(|config| {
        tell(config, &peer);
        config.announce.waiting = 2;
        config.announce.timeout = Duration::from_secs(2);
    });
    record(&relay, "s", 5);
    // Two, and the one that it is being told of.
    wait_until("what is left", || relay.totals().announcements == 3);
    assert_eq!(relay.totals().announcements_dropped_full, 2);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!((peer.told_chunks(), setup.outbox_len()), (vec![3, 4, 0], 0));
}

#[test]
fn a_chunk_that_somebody_deleted_is_not_announced() {
    let setup = Setup::new();
    let peer = Peer::new([Answer::Hang]);
    let relay = setup.start(|config| {
        tell(config, &peer);
        config.announce.timeout = Duration::from_secs(2);
    });
    record(&relay, "s", 2);
    let first = setup.manifests().remove(0).0;
    fs::remove_dir_all(first).unwrap();
    wait_until("both to be settled", || {
        let totals = relay.totals();
        (totals.announcements, totals.announcements_dropped_gone) == (1, 1)
    });
    setup.runtime.block_on(relay.shutdown());
    assert_eq!((peer.told_chunks(), setup.outbox_len()), (vec![1], 0));
}

#[test]
fn a_program_gets_the_folder_and_the_manifest_and_no_shell_is_involved() {
    let setup = Setup::new();
    let beside = tempfile::tempdir().unwrap();
    let script = r#"here=$(dirname "$0"); printf '%s|%s' "$#" "$1" > "$here/argument"; cat > "$here/manifest"; ls -l /proc/$$/fd > "$here/fds""#;
    let program = setup.program(beside.path(), script);
    let relay = setup.start(|config| config.announce.targets.push(Target::Program(program)));
    record(&relay, "s;touch $HOME `x` 'y", 1);
    wait_until("the announcement", || relay.totals().announcements == 1);
    setup.runtime.block_on(relay.shutdown());
    let (folder, _) = setup.manifests().remove(0);
    assert!(folder.to_str().unwrap().contains("s;touch $HOME `x` 'y"));
    let read = |name: &str| fs::read_to_string(beside.path().join(name)).unwrap();
    assert_eq!(read("argument"), format!("1|{}", folder.display()));
    assert_eq!(read("manifest"), fs::read_to_string(folder.join("manifest.json")).unwrap());
    // None of the relay's sockets, event loops and files.
    let root = setup.root.path().canonicalize().unwrap();
    for fd in read("fds").lines().filter(|fd| !fd.contains(" 0 -> ") && !fd.contains(" 2 -> ")) {
        let is_ours = ["socket:", "anon_inode:", root.to_str().unwrap()];
        assert!(!is_ours.iter().any(|ours| fd.contains(ours)), "{fd}");
    }
}

#[test]
fn a_chunk_that_a_program_refuses_does_not_hold_the_others() {
    let setup = Setup::new();
    let beside = tempfile::tempdir().unwrap();
    let script = r#"here=$(dirname "$0"); case "$1" in *-0) [ -e "$here/now" ];; esac"#;
    let program = setup.program(beside.path(), script);
    let relay = setup.start(|config| {
        config.announce.targets.push(Target::Program(program));
        hurry(config);
        config.announce.timeout = Duration::from_secs(20);
    });
    record(&relay, "s", 3);
    wait_until("the others", || relay.totals().announcements == 2);
    wait_until("a failure", || relay.totals().announcements_failed > 0);
    fs::write(beside.path().join("now"), "").unwrap();
    wait_until("the first", || relay.totals().announcements == 3);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(setup.outbox_len(), 0);
}

#[test]
fn a_program_that_hangs_is_ended_with_all_that_it_started() {
    let setup = Setup::new();
    let beside = tempfile::tempdir().unwrap();
    let script = r#"here=$(dirname "$0"); [ -e "$here/child" ] && exit 0; sleep 1000 & echo $! > "$here/child"; wait"#;
    let program = setup.program(beside.path(), script);
    let relay = setup.start(|config| {
        config.announce.targets.push(Target::Program(program));
        hurry(config);
    });
    record(&relay, "s", 1);
    wait_until("the announcement", || relay.totals().announcements == 1);
    assert!(relay.totals().announcements_failed > 0);
    let child = fs::read_to_string(beside.path().join("child")).unwrap();
    let status = PathBuf::from(format!("/proc/{}/status", child.trim()));
    wait_until("the end of the child", || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
    setup.runtime.block_on(relay.shutdown());
}

#[test]
fn a_program_that_hangs_does_not_hold_the_end_of_the_relay() {
    let setup = Setup::new();
    let beside = tempfile::tempdir().unwrap();
    let script = r#"here=$(dirname "$0"); echo $$ > "$here/program"; exec sleep 1000"#;
    let program = setup.program(beside.path(), script);
    let relay = setup.start(|config| {
        config.announce.targets.push(Target::Program(program));
        config.announce.at_end = Duration::from_millis(50);
    });
    record(&relay, "s", 1);
    let pid = beside.path().join("program");
    wait_until("the program", || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    setup.runtime.block_on(relay.shutdown());
    let status = format!("/proc/{}/status", fs::read_to_string(&pid).unwrap().trim());
    wait_until("the end of the program", || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
    assert_eq!(setup.outbox_len(), 1, "told after the next start");
}

#[test]
fn an_outbox_that_cannot_be_written_for_a_while_holds_up_and_repeats_nothing() {
    let setup = Setup::new();
    let peer = Peer::new([Answer::Hang]);
    let relay = setup.start(|config| {
        tell(config, &peer);
        config.keep = relay::Keep { bytes: None, age: Some(Duration::from_millis(20)) };
    });
    record(&relay, "s", 1);
    wait_until("the first attempt", || !peer.requests().is_empty());
    let (outbox, aside) =
        (setup.root.path().join(".relay/outbox"), setup.root.path().join("aside"));
    fs::rename(&outbox, &aside).unwrap();
    fs::write(&outbox, "").unwrap();
    wait_until("that it is told", || !peer.told().is_empty());
    wait_until("failures", || relay.totals().outbox_failures >= 3);
    fs::remove_file(&outbox).unwrap();
    fs::rename(&aside, &outbox).unwrap();
    wait_until("its deletion", || relay.totals().chunks_expired == 1);
    record(&relay, "t", 2);
    wait_until("the deletion of the others", || relay.totals().chunks_expired == 3);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!((peer.told_chunks(), setup.outbox_len()), (vec![0, 0, 1], 0));
}

#[test]
fn the_end_of_the_relay_is_not_held_up_by_how_many_wait() {
    let setup = Setup::new();
    let scripts = tempfile::tempdir().unwrap();
    let told = scripts.path().join("told");
    let program = setup.program(scripts.path(), &format!("sleep 0.6; echo >> {}", told.display()));
    let start = |at_end| {
        setup.start(|config| {
            config.announce.targets.push(Target::Program(program.clone()));
            config.announce.at_end = at_end;
        })
    };
    let relay = start(Duration::from_secs(1));
    record(&relay, "s", 6);
    let begin = std::time::Instant::now();
    setup.runtime.block_on(relay.shutdown());
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(2500), "{took:?}");
    let relay = start(Duration::from_secs(20));
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(setup.outbox_len(), 0);
    // The one that was cut off at the end may have been told twice.
    let count = fs::read_to_string(&told).unwrap().lines().count();
    assert!((6..=7).contains(&count), "{count}");
}

#[test]
fn a_chunk_that_cannot_be_sealed_for_a_while_is_sealed_and_told_once() {
    let setup = Setup::new();
    let peers = [Peer::new([]), Peer::new([])];
    let relay = setup.start(|config| {
        peers.iter().for_each(|peer| tell(config, peer));
        config.limits.seal_attempts = u32::MAX;
    });
    let mut events = relay.subscribe();
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    let outbox = setup.root.path().join(".relay/outbox");
    fs::write(&outbox, "").unwrap();
    producer.chunk(1);
    producer.rotate(Some(1), &[(stream, 1)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("three attempts", || relay.totals().seals_failed >= 3);
    assert!(producer.exists(0), "it is not archived");
    fs::remove_file(&outbox).unwrap();
    wait_until("the seal", || !producer.exists(0));
    wait_until("both targets", || relay.totals().announcements == 2);
    assert_eq!(relay.totals().chunks_sealed, 1);
    producer.packet(stream, 1);
    producer.index(stream, 1);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(peers.map(|peer| peer.told_chunks()), [[0, 1], [0, 1]]);
    let own = fs::read_dir(setup.root.path().join(".relay")).unwrap();
    let journals = own.map(|entry| entry.unwrap().path());
    assert_eq!(journals.filter(|path| path.extension().is_some_and(|it| it == "chunk")).count(), 0);
    let mut failed = 0;
    while let Ok(event) = events.try_recv() {
        failed += u32::from(matches!(event, relay::Event::SealFailed { .. }));
    }
    assert_eq!(failed, 0);
}

#[test]
fn what_still_cannot_be_sealed_at_the_end_is_left_to_the_next_start() {
    let setup = Setup::new();
    let peer = Peer::new([]);
    let relay = setup.start(|config| tell(config, &peer));
    let mut producer = Producer::new(&relay, session("t"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    let outbox = setup.root.path().join(".relay/outbox");
    drop(fs::remove_dir_all(&outbox));
    fs::write(&outbox, "").unwrap();
    producer.rotate(None, &[(stream, 1)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("an attempt", || relay.totals().seals_failed >= 1);
    setup.runtime.block_on(relay.shutdown());
    fs::remove_file(&outbox).unwrap();
    let relay = setup.start(|config| tell(config, &peer));
    assert_eq!(relay.recovered().finished.len(), 1);
    wait_until("that it is told", || relay.totals().announcements == 1);
    setup.runtime.block_on(relay.shutdown());
}
