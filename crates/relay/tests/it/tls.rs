//! The encrypted port: who is let in, who is not, and that neither makes a difference to the others.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use door::{Client, Error as DoorError, Preamble, Refusal, Role, Settings, Stream, Token};
use door::{TokenSource, Tokens};
use relay::{Config, Error, Limits, Relay, Tls};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use testkit::pki::{Authority, Issued, write_private};
use tokio::runtime::Runtime;
use wire::live::viewer::{Connect, Request as ViewerRequest, SessionEntry, SessionListHead};
use wire::live::{
    CreateSession, Decoded, Name, NetSeqNum, ProtocolMinor, Request, ReturnCode, Version,
    ViewerSessionId,
};

use crate::client::{Control, Reply, is_closed};
use crate::disk::{files, wait_until};
use crate::producer::{Producer, index, session, start_with};

const PRODUCER: &str = "token-of-a-producer";
const OTHER: &str = "token-of-another-producer";
const VIEWER: &str = "token-of-a-viewer";

/// Certificates and tokens.
struct Keys {
    folder: TempDir,
    ca: Authority,
    server: Issued,
    client: Issued,
}

impl Keys {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::new(folder.path(), "ca").unwrap();
        let server = ca.issue("relay", &["localhost", "127.0.0.1"]).unwrap();
        let client = ca.issue("client", &[]).unwrap();
        let keys = Self { folder, ca, server, client };
        keys.write_tokens(&format!(
            "one producer {PRODUCER}\ntwo producer {OTHER}\ndesk viewer {VIEWER}\n"
        ));
        keys
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn write_tokens(&self, text: &str) {
        write_private(&self.tokens(), text).unwrap();
    }

    /// A port that asks for a certificate and a token.
    fn port(&self) -> Tls {
        Tls {
            address: "127.0.0.1:0".parse().unwrap(),
            certificate: self.server.certificate.clone(),
            key: self.server.key.clone(),
            client_ca: Some(self.ca.pem().to_owned()),
            tokens: Some(self.tokens()),
        }
    }

    /// What a client has that lacks nothing.
    fn settings(&self, token: &str) -> Settings {
        Settings {
            ca: Some(self.ca.pem().to_owned()),
            certificate: Some((self.client.certificate.clone(), self.client.key.clone())),
            token: Some(TokenSource::Given(Token::new(token).unwrap())),
        }
    }
}

struct Setup {
    runtime: Runtime,
    relay: Relay,
    root: TempDir,
    keys: Keys,
}

impl Setup {
    fn new() -> Self {
        Self::with(Limits::default(), |_| {})
    }

    fn with(limits: Limits, change: impl FnOnce(&mut Tls)) -> Self {
        let (runtime, root, keys) =
            (Runtime::new().unwrap(), tempfile::tempdir().unwrap(), Keys::new());
        let mut port = keys.port();
        change(&mut port);
        let relay = start_with(&runtime, root.path(), |config| {
            config.tls = Some(port);
            config.limits = limits;
        });
        Self { runtime, relay, root, keys }
    }

    fn address(&self) -> SocketAddr {
        self.relay.tls_addr().unwrap()
    }

    fn enter(&self, settings: &Settings, role: Role) -> Result<Stream, DoorError> {
        let socket = TcpStream::connect(self.address()).unwrap();
        socket.set_nodelay(true).unwrap();
        let stream = Client::new(settings).unwrap().enter(socket, "localhost", role)?;
        stream.socket().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Ok(stream)
    }

    fn control(&self, token: &str) -> Control<Stream> {
        let socket = self.enter(&self.keys.settings(token), Role::Control).unwrap();
        Control { socket, minor: ProtocolMinor::OURS }
    }

    fn producer(&self, token: &str, create: CreateSession) -> Producer<Stream> {
        let data = || self.enter(&self.keys.settings(token), Role::Data).unwrap();
        Producer::over(self.control(token), data, create)
    }

    /// Records a packet over TLS, as the last thing: whatever came before did no harm.
    fn end(self) {
        let mut producer = self.producer(PRODUCER, session("last"));
        record(&mut producer, &self.relay, 1);
        drop(producer);
        self.runtime.block_on(self.relay.shutdown());
    }
}

/// Records packets of one stream.
fn record<S: Read + Write>(producer: &mut Producer<S>, relay: &Relay, packets: u64) {
    let before = relay.totals().packets;
    producer.chunk(0);
    let metadata = producer.stream("metadata", 0);
    let stream = producer.stream("ch_0", 0);
    producer.ok(&Request::StreamsSent);
    producer.metadata(metadata, b"/* CTF 1.8 */\n");
    for number in 0..packets {
        producer.packet(stream, number);
        producer.index(stream, number);
    }
    wait_until("the packets", || relay.totals().packets == before + packets);
}

/// The relay's word on a viewer's first request.
fn greet(mut viewer: impl Read + Write) {
    viewer.write_all(&first_words()).unwrap();
    viewer.flush().unwrap();
    viewer.read_exact(&mut [0; Connect::LEN]).unwrap();
}

fn first_words() -> Vec<u8> {
    let (viewer_session, version) = (ViewerSessionId::NONE, Version::OURS);
    let connect = Connect { viewer_session, version, kind: Connect::COMMAND };
    let mut bytes = Vec::new();
    ViewerRequest::Connect(connect).encode(&mut bytes);
    bytes
}

#[test]
fn who_shows_a_certificate_and_a_token_records_and_watches() {
    let setup = Setup::new();
    let mut producer = setup.producer(PRODUCER, session("s"));
    record(&mut producer, &setup.relay, 3);
    greet(setup.enter(&setup.keys.settings(VIEWER), Role::Viewer).unwrap());
    assert_eq!(setup.relay.totals().identities_refused, 0);
    setup.end();
}

#[test]
fn who_shows_something_wrong_or_nothing_is_refused_and_counted() {
    let setup = Setup::new();
    let mut honest = setup.producer(OTHER, session("honest"));
    let keys = &setup.keys;
    let strangers = Authority::new(keys.folder.path(), "strangers").unwrap();
    let stranger = strangers.issue("stranger", &[]).unwrap();
    let late = keys.ca.issue_expired("late", &[]).unwrap();
    let good = keys.settings(PRODUCER);
    let with = |issued: Option<Issued>| Settings {
        certificate: issued.map(|Issued { certificate, key }| (certificate, key)),
        ..good.clone()
    };
    let mut refused = 0;
    for (settings, why) in
        [(with(None), "required"), (with(Some(stranger)), "unknown"), (with(Some(late)), "expired")]
    {
        for role in Role::ALL {
            let error = setup.enter(&settings, role).unwrap_err();
            assert!(matches!(error, DoorError::Handshake(_)), "{why}: {error:?}");
            let text = format!("{error:?}").to_lowercase();
            assert!(text.contains(why), "{text}");
            refused += 1;
        }
    }
    let token = |token: Option<&str>| Settings {
        token: token.map(|token| TokenSource::Given(Token::new(token).unwrap())),
        ..good.clone()
    };
    let viewer = || token(Some(VIEWER));
    for (settings, role, refusal) in [
        (token(None), Role::Control, Refusal::Token),
        (token(Some("token-of-nobody-at-all")), Role::Control, Refusal::Token),
        (token(Some(&PRODUCER[1..])), Role::Control, Refusal::Token),
        (viewer(), Role::Control, Refusal::Role),
        (viewer(), Role::Data, Refusal::Role),
        (good.clone(), Role::Viewer, Refusal::Role),
    ] {
        let error = setup.enter(&settings, role).unwrap_err();
        assert!(matches!(error, DoorError::Refused(why) if why == refusal), "{error:?}");
        refused += 1;
    }
    wait_until("the refusals", || setup.relay.totals().identities_refused == refused);
    record(&mut honest, &setup.relay, 2);
    setup.end();
}

#[test]
fn a_client_does_not_talk_to_a_relay_of_another_name_or_ca() {
    let setup = Setup::new();
    let good = setup.keys.settings(PRODUCER);
    let other = Authority::new(setup.keys.folder.path(), "other").unwrap();
    let settings = Settings { ca: Some(other.pem().to_owned()), ..good.clone() };
    let error = setup.enter(&settings, Role::Control).unwrap_err();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    let socket = TcpStream::connect(setup.address()).unwrap();
    let error = Client::new(&good).unwrap().enter(socket, "relay-1", Role::Control).unwrap_err();
    assert!(format!("{error:?}").contains("NotValidForName"), "{error:?}");
    let socket = TcpStream::connect(setup.address()).unwrap();
    let error = Client::new(&good).unwrap().enter(socket, "no name", Role::Control).unwrap_err();
    assert!(matches!(error, DoorError::Host { .. }), "{error:?}");
    setup.end();
}

#[test]
fn a_certificate_alone_or_a_token_alone_is_enough_when_no_more_is_asked_for() {
    let setup = Setup::with(Limits::default(), |port| port.tokens = None);
    let settings = Settings { token: None, ..setup.keys.settings(VIEWER) };
    greet(setup.enter(&settings, Role::Viewer).unwrap());
    // A token that nobody asked for does no harm.
    setup.end();

    let setup = Setup::with(Limits::default(), |port| port.client_ca = None);
    let settings = Settings { certificate: None, ..setup.keys.settings(VIEWER) };
    greet(setup.enter(&settings, Role::Viewer).unwrap());
    setup.end();
}

#[test]
fn packets_for_a_session_of_another_identity_are_refused() {
    let setup = Setup::new();
    let mut owner = setup.producer(PRODUCER, session("mine"));
    owner.chunk(0);
    let stream = owner.stream("ch_0", 0);
    let packet = Producer::packet_bytes(stream, 0);
    // Another token, and none: the handle of a stream is a small number that anybody can guess.
    let mut thief = setup.enter(&setup.keys.settings(OTHER), Role::Data).unwrap();
    thief.write_all(&packet).unwrap();
    assert_eq!(thief.read(&mut [0]).unwrap(), 0);
    let mut thief = TcpStream::connect(setup.relay.data_addr()).unwrap();
    thief.write_all(&packet).unwrap();
    assert!(is_closed(&mut thief));
    // Nor does anybody join the session, whose names are no secret.
    let other = setup.producer(OTHER, session("mine"));
    assert_ne!(other.folder, owner.folder);
    let plain = Producer::new(&setup.relay, session("mine"));
    assert!(plain.folder != owner.folder && plain.folder != other.folder);

    assert_eq!(setup.relay.totals().packets, 0);
    owner.packet(stream, 0);
    owner.index(stream, 0);
    assert_eq!(setup.relay.totals().packets, 1);
    // A session of the plain ports is not for those with a token either.
    let mut plain = plain;
    plain.chunk(0);
    let stream = plain.stream("ch_0", 0);
    let mut thief = setup.enter(&setup.keys.settings(OTHER), Role::Data).unwrap();
    thief.write_all(&Producer::packet_bytes(stream, 0)).unwrap();
    assert_eq!(thief.read(&mut [0]).unwrap(), 0);
    drop((owner, other, plain));
    setup.end();
}

#[test]
fn the_same_subject_is_somebody_else_with_another_ca_and_the_same_with_a_new_certificate() {
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Authority::new(elsewhere.path(), "other").unwrap();
    let of_other = other.issue("client", &[]).unwrap();
    let setup = Setup::with(Limits::default(), |port| {
        let both = [port.client_ca.as_deref().unwrap(), other.pem()]
            .map(|pem| std::fs::read(pem).unwrap());
        let path = elsewhere.path().join("both.pem");
        std::fs::write(&path, both.concat()).unwrap();
        (port.client_ca, port.tokens) = (Some(path), None);
    });
    let ours = Settings { token: None, ..setup.keys.settings(PRODUCER) };
    let theirs =
        Settings { certificate: Some((of_other.certificate, of_other.key)), ..ours.clone() };
    let open = |settings: &Settings| {
        let enter = |role| setup.enter(settings, role).unwrap();
        let control = Control { socket: enter(Role::Control), minor: ProtocolMinor::OURS };
        Producer::over(control, || enter(Role::Data), session("mine"))
    };
    let mut owner = open(&ours);
    owner.chunk(0);
    let stream = owner.stream("ch_0", 0);
    let other = open(&theirs);
    assert_ne!(other.folder, owner.folder);
    let mut thief = setup.enter(&theirs, Role::Data).unwrap();
    thief.write_all(&Producer::packet_bytes(stream, 0)).unwrap();
    assert_eq!(thief.read(&mut [0]).unwrap(), 0);
    setup.keys.ca.issue("client", &[]).unwrap();
    assert_eq!(open(&ours).folder, owner.folder);
    drop((owner, other));
    setup.end();
}

/// The names of the sessions that a viewer is shown.
fn listed(setup: &Setup, token: &str) -> Vec<String> {
    let mut viewer = setup.enter(&setup.keys.settings(token), Role::Viewer).unwrap();
    greet(&mut viewer);
    let mut bytes = Vec::new();
    ViewerRequest::ListSessions.encode(&mut bytes);
    viewer.write_all(&bytes).unwrap();
    viewer.flush().unwrap();
    let SessionListHead { count } = read(&mut viewer, SessionListHead::decode);
    let entry = |bytes: &[u8]| SessionEntry::decode(bytes, ProtocolMinor::OURS);
    (0..count).map(|_| read(&mut viewer, entry).name).collect()
}

fn read<T>(viewer: &mut Stream, decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>) -> T {
    let mut bytes = Vec::new();
    loop {
        match decode(&bytes).unwrap() {
            Decoded::Complete { value, .. } => return value,
            Decoded::Incomplete { needed } => {
                let have = bytes.len();
                bytes.resize(needed, 0);
                viewer.read_exact(bytes.get_mut(have..).unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn a_token_for_some_hosts_is_for_no_others() {
    let setup = Setup::new();
    setup.keys.write_tokens(&format!(
        "one producer {PRODUCER} host,web\ntwo producer {OTHER} web\ndesk viewer {VIEWER} web\n\
         chief viewer token-of-the-chief\n"
    ));
    setup.relay.reload().unwrap();
    let on = |host: &str, name| {
        let mut create = session(name);
        create.hostname = Some(Name::new(host).unwrap());
        create
    };
    let held = [setup.producer(PRODUCER, on("host", "a")), setup.producer(OTHER, on("web", "b"))];
    // Producers before LTTng 2.4 name no host.
    let unnamed =
        CreateSession { hostname: None, session_name: None, identity: None, ..on("x", "d") };
    // Those before LTTng 2.11 name places of every host, and do not speak TLS.
    let old = |name| CreateSession { identity: None, ..on("web", name) };
    for (minor, create) in
        [(15, on("host", "c")), (3, unnamed), (4, old("e")), (8, old("f")), (10, old("g"))]
    {
        let mut refused = setup.control(OTHER);
        refused.minor = ProtocolMinor(minor);
        let version = Version { minor: refused.minor, ..Version::OURS };
        assert_eq!(refused.ask(&Request::Version(version)), Reply::Version(Version::OURS));
        let Reply::Session(reply) = refused.ask(&Request::CreateSession(create)) else {
            panic!("a session reply");
        };
        assert_eq!(reply.code, ReturnCode::INVALID);
    }
    assert_eq!(listed(&setup, VIEWER), ["b"]);
    assert_eq!(listed(&setup, "token-of-the-chief"), ["a", "b"]);
    drop(held);
    setup.end();
}

#[test]
fn a_stream_recorded_over_tls_is_the_same_byte_for_byte() {
    let setup = Setup::new();
    let mut plain = Producer::new(&setup.relay, session("plain"));
    record(&mut plain, &setup.relay, 200);
    let mut encrypted = setup.producer(PRODUCER, session("plain"));
    record(&mut encrypted, &setup.relay, 200);
    let folders = [plain.folder.clone(), encrypted.folder.clone()];
    drop((plain, encrypted));
    setup.runtime.block_on(setup.relay.shutdown());
    let [plain, encrypted] = folders.map(|folder| files(&setup.root.path().join(folder.as_path())));
    assert!(plain.len() >= 3, "{:?}", plain.keys());
    assert_eq!(plain, encrypted);
}

#[test]
fn large_packets_come_whole_over_tls() {
    let setup = Setup::new();
    let mut producer = setup.producer(PRODUCER, session("large"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    let mut expected = Vec::new();
    for number in 0..8_u64 {
        let len = 300_000 + 7 * u32::try_from(number).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251).to_le_bytes()[0]).collect();
        let header = wire::live::DataHeader {
            stream,
            net_seq_num: NetSeqNum::new(number),
            data_len: len,
            padding_len: 5,
        };
        producer.data.write_all(&header.encode()).unwrap();
        producer.data.write_all(&bytes).unwrap();
        producer.data.flush().unwrap();
        producer.ok(&Request::SendIndex(index(stream, number)));
        expected.extend_from_slice(&bytes);
        expected.extend_from_slice(&[0; 5]);
    }
    let folder = setup.root.path().join(producer.folder.as_path());
    let found = files(&folder);
    let recorded = found.iter().find(|(path, _)| path.ends_with("ch_0")).unwrap();
    let digest = Sha256::digest(&expected).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(*recorded.1, (expected.len() as u64, digest));
    drop(producer);
    setup.end();
}

#[test]
fn half_a_handshake_and_silence_ends_at_the_deadline() {
    let limits = Limits { first_message: Duration::from_millis(300), ..Limits::default() };
    let setup = Setup::with(limits, |_| {});
    let connect = || {
        let socket = TcpStream::connect(setup.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    };
    // Nothing, the beginning of a handshake message, and a handshake without a preamble.
    let mut nothing = connect();
    let mut half = connect();
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]).unwrap();
    let silent = setup.enter(&setup.keys.settings(PRODUCER), Role::Control).unwrap();
    let data = setup.enter(&setup.keys.settings(PRODUCER), Role::Data).unwrap();
    assert!(is_closed(&mut nothing) && is_closed(&mut half));
    for mut stream in [silent, data] {
        let end = stream.read(&mut [0]);
        assert!(matches!(&end, Ok(0) | Err(_)), "{end:?}");
    }
    wait_until("four to be gone", || setup.relay.totals().half_open_dropped == 4);
    // Data of a producer may be silent for longer, also when it is the first to be there.
    let mut patient = setup.producer(PRODUCER, session("patient"));
    for _ in 0..3 {
        assert!(is_closed(&mut connect()));
    }
    record(&mut patient, &setup.relay, 1);
    drop(patient);
    setup.end();
}

#[test]
fn a_crowd_at_the_encrypted_port_locks_nobody_out() {
    let limits =
        Limits { first_message: Duration::from_secs(3600), half_open: 64, ..Limits::default() };
    let setup = Setup::with(limits, |_| {});
    let mut early = setup.producer(PRODUCER, session("early"));
    let crowd: Vec<TcpStream> = (0..1000)
        .map(|number| {
            let mut socket = TcpStream::connect(setup.address()).unwrap();
            if number % 2 == 0 {
                socket.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
            }
            socket
        })
        .collect();
    wait_until("those who waited longest to be gone", || {
        setup.relay.totals().half_open_dropped >= 1000 - 64
    });
    record(&mut early, &setup.relay, 1);
    drop(early);
    greet(setup.enter(&setup.keys.settings(VIEWER), Role::Viewer).unwrap());
    drop(crowd);
    setup.end();
}

#[test]
fn producers_that_are_idle_keep_nobody_out_of_the_encrypted_port() {
    let limits =
        Limits { first_message: Duration::from_secs(3600), half_open: 2, ..Limits::default() };
    let setup = Setup::with(limits, |_| {});
    let mut idle: Vec<_> =
        (0..6).map(|number| setup.producer(PRODUCER, session(&format!("idle-{number}")))).collect();
    greet(setup.enter(&setup.keys.settings(VIEWER), Role::Viewer).unwrap());
    setup.producer(OTHER, session("one-more")).chunk(0);
    // Nor were they sent away themselves.
    for producer in &mut idle {
        record(producer, &setup.relay, 1);
    }
    drop(idle);
    setup.end();
}

#[test]
fn noise_is_refused_and_counted() {
    let setup = Setup::new();
    let noises: [&[u8]; 3] = [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &[0; 64], &[0xff; 4096]];
    for noise in noises {
        let mut socket = TcpStream::connect(setup.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(noise).unwrap();
        let mut answer = Vec::new();
        let read = socket.read_to_end(&mut answer);
        assert!(
            read.is_ok() || read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        );
        assert!(answer.len() < 16, "an alert at most: {answer:?}");
    }
    wait_until("the refusals", || setup.relay.totals().identities_refused == 3);
    // A preamble that announces too much, behind a good handshake.
    let mut stream = setup.openssl("throughline-viewer/1", &["-tls1_3"]);
    let Some(stream) = &mut stream else { return setup.end() };
    stream.say(&[0xff, 0xff, 1]);
    assert_eq!(stream.answer(1), b"");
    wait_until("one more", || setup.relay.totals().identities_refused == 4);
    setup.end();
}

/// `openssl s_client`, connected.
struct OpenSsl(Child);

impl OpenSsl {
    fn say(&mut self, bytes: &[u8]) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(bytes).and_then(|()| stdin.flush()).unwrap();
    }

    /// So many bytes, fewer when the connection ends before.
    fn answer(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.stdout.as_mut().unwrap().take(len).read_to_end(&mut bytes).unwrap();
        bytes
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Setup {
    /// With the client's certificate.
    fn openssl(&self, alpn: &str, options: &[&str]) -> Option<OpenSsl> {
        if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
            testkit::skip("openssl is not installed");
            return None;
        }
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-verify_hostname",
            "localhost",
        ]);
        command.args(["-connect", &self.address().to_string()]);
        command.args(["-CAfile", &path(self.keys.ca.pem())]);
        command.args(["-cert", &path(&self.keys.client.certificate)]);
        command.args(["-key", &path(&self.keys.client.key)]);
        if !alpn.is_empty() {
            command.args(["-alpn", alpn]);
        }
        command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Some(OpenSsl(command.spawn().unwrap()))
    }
}

#[test]
fn openssl_is_let_in_with_either_version_of_tls() {
    let setup = Setup::new();
    for version in ["-tls1_2", "-tls1_3"] {
        let Some(mut peer) = setup.openssl("throughline-viewer/1", &[version]) else { return };
        let mut words = Vec::new();
        Preamble::encode(Some(&Token::new(VIEWER).unwrap()), &mut words);
        words.extend_from_slice(&first_words());
        peer.say(&words);
        let answer = peer.answer(1 + Connect::LEN as u64);
        assert_eq!((answer.len(), answer.first()), (1 + Connect::LEN, Some(&0)), "{version}");
    }
    assert_eq!(setup.relay.totals().identities_refused, 0);
    setup.end();
}

#[test]
fn who_does_not_say_what_it_is_for_or_speaks_an_old_version_is_refused() {
    let setup = Setup::new();
    for (alpn, options) in [
        ("", ["-tls1_3"].as_slice()),
        ("", &["-tls1_2"]),
        ("h2", &["-tls1_3"]),
        ("throughline-viewer/2", &["-tls1_2"]),
        ("throughline-viewer/1", &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]),
    ] {
        let before = setup.relay.totals().identities_refused;
        let Some(mut peer) = setup.openssl(alpn, options) else { return };
        assert_eq!(peer.answer(1), b"", "{alpn} {options:?}");
        let refused = || setup.relay.totals().identities_refused == before + 1;
        wait_until("the refusal", refused);
    }
    setup.end();
}

#[test]
fn files_that_are_read_again_hold_for_new_connections() {
    let setup = Setup::new();
    let mut there = setup.producer(OTHER, session("there"));
    let next = "token-of-the-next-one";
    assert!(setup.enter(&setup.keys.settings(next), Role::Viewer).is_err());
    // A file that cannot be used changes nothing.
    setup.keys.write_tokens("what is this");
    assert!(matches!(setup.relay.reload(), Err(Error::Tls(DoorError::Tokens { .. }))));
    greet(setup.enter(&setup.keys.settings(VIEWER), Role::Viewer).unwrap());
    // One token goes, one comes; the certificate is another CA's, and so are the clients'.
    setup.keys.write_tokens(&format!("one producer {PRODUCER}\nnext viewer {next}\n"));
    setup.relay.reload().unwrap();
    greet(setup.enter(&setup.keys.settings(next), Role::Viewer).unwrap());
    let gone = setup.enter(&setup.keys.settings(VIEWER), Role::Viewer).unwrap_err();
    assert!(matches!(gone, DoorError::Refused(Refusal::Token)), "{gone:?}");
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca").unwrap();
    let fresh = ca.issue("relay", &["localhost"]).unwrap();
    let client = ca.issue("client", &[]).unwrap();
    std::fs::copy(ca.pem(), setup.keys.ca.pem()).unwrap();
    std::fs::copy(fresh.certificate, &setup.keys.server.certificate).unwrap();
    std::fs::copy(fresh.key, &setup.keys.server.key).unwrap();
    let old = setup.keys.settings(next);
    setup.relay.reload().unwrap();
    assert!(matches!(setup.enter(&old, Role::Viewer), Err(DoorError::Handshake(_))));
    std::fs::copy(client.certificate, &setup.keys.client.certificate).unwrap();
    std::fs::copy(client.key, &setup.keys.client.key).unwrap();
    greet(setup.enter(&setup.keys.settings(next), Role::Viewer).unwrap());
    // Who is there stays, with a token that is gone and a certificate of a CA that is.
    record(&mut there, &setup.relay, 1);
    drop(there);
    setup.end();
}

#[test]
fn a_port_that_would_let_everybody_in_or_shows_its_key_is_refused() {
    let keys = Keys::new();
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let start = |change: &dyn Fn(&mut Tls)| {
        let mut config = Config::new(root.path());
        config.control.set_port(0);
        config.data.set_port(0);
        config.viewers.set_port(0);
        let mut port = keys.port();
        change(&mut port);
        config.tls = Some(port);
        let _runtime = runtime.enter();
        Relay::start(config)
    };
    let unguarded = start(&|port| (port.client_ca, port.tokens) = (None, None));
    assert!(matches!(unguarded, Err(Error::Unguarded { .. })), "{unguarded:?}");
    let swapped = start(&|port| std::mem::swap(&mut port.certificate, &mut port.key));
    assert!(matches!(swapped, Err(Error::Tls(DoorError::Pem { .. }))), "{swapped:?}");
    let foreign = start(&|port| port.key = keys.client.key.clone());
    assert!(matches!(foreign, Err(Error::Tls(DoorError::Unusable { .. }))), "{foreign:?}");
    for private in [keys.server.key.clone(), keys.tokens()] {
        let mut permissions = std::fs::metadata(&private).unwrap().permissions();
        for (mode, is_good) in [(0o644, false), (0o620, false), (0o640, true), (0o400, true)] {
            std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, mode);
            std::fs::set_permissions(&private, permissions.clone()).unwrap();
            match start(&|_| {}) {
                Ok(relay) if is_good => runtime.block_on(relay.shutdown()),
                Err(Error::Tls(DoorError::Open { mode: found, .. })) if !is_good => {
                    assert_eq!(found, mode);
                }
                other => panic!("{mode:o}: {other:?}"),
            }
        }
    }
    // Others may come to its address without being named: each shows who it is.
    let relay = start(&|port| port.address = "0.0.0.0:0".parse().unwrap()).unwrap();
    runtime.block_on(relay.shutdown());
    assert!(Tokens::read(&keys.tokens()).is_ok());
}
