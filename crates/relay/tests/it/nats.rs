//! Sealed chunks announced on a subject of a real nats-server.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use relay::{Config, Target};
use serde_json::Value;
use tracedir::manifest::Manifest;
use wire::nats::{FromServer, Writer};

use crate::announce::{Setup, hurry, record};
use crate::disk::wait_until;

const SUBJECT: &str = "trace.chunks";

/// A nats-server that is killed at the end.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// `None`, said, when it is not installed.
    fn start(port: u16, options: &[&str]) -> Option<Self> {
        if !testkit::is_installed("nats-server") {
            testkit::skip("nats-server is not installed");
            return None;
        }
        let process = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .args(options)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port };
        wait_until("nats-server", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(server)
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}/{SUBJECT}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn tell(config: &mut Config, url: &str, credentials: Option<&Path>) {
    let mut subject: relay::NatsSubject = url.parse().unwrap();
    subject.credentials = credentials.map(Path::to_owned);
    config.announce.targets.push(Target::Nats(subject));
    hurry(config);
}

/// Another client.
struct Client {
    socket: TcpStream,
    arrived: Vec<u8>,
}

impl Client {
    fn connect(port: u16, subscribe: &str) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.connect("{\"verbose\":false,\"headers\":true,\"no_responders\":true}");
        writer.subscribe(subscribe, 1);
        writer.ping();
        socket.write_all(&bytes).unwrap();
        let mut client = Self { socket, arrived: Vec::new() };
        while client.next(|said| matches!(said, FromServer::Pong).then_some(())).is_none() {}
        client
    }

    /// What `look` makes of the next thing the server says.
    fn next<T>(&mut self, look: impl Fn(&FromServer<'_>) -> Option<T>) -> Option<T> {
        loop {
            if let Some((said, used)) = FromServer::decode(&self.arrived).unwrap() {
                let seen = look(&said);
                self.arrived.drain(..used);
                return seen;
            }
            let mut piece = [0; 4096];
            let read = self.socket.read(&mut piece).unwrap();
            assert!(read > 0, "the server ended the connection");
            self.arrived.extend(piece.iter().take(read));
        }
    }

    /// The payload of the next message.
    fn message(&mut self) -> Vec<u8> {
        loop {
            let payload = |said: &FromServer<'_>| match said {
                FromServer::Message(message) => Some(message.payload.to_vec()),
                _ => None,
            };
            if let Some(payload) = self.next(payload) {
                return payload;
            }
        }
    }

    /// Asks JetStream something.
    fn ask(&mut self, what: &str, question: &str) -> Value {
        let mut bytes = Vec::new();
        Writer(&mut bytes).publish(&format!("$JS.API.{what}"), "answer", &[], question.as_bytes());
        self.socket.write_all(&bytes).unwrap();
        let answer: Value = serde_json::from_slice(&self.message()).unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
        answer
    }

    /// The chunks of the manifests that a stream has stored.
    fn stored(&mut self) -> Vec<u64> {
        let info = self.ask("STREAM.INFO.chunks", "");
        let count = info.pointer("/state/messages").unwrap().as_u64().unwrap();
        (1..=count)
            .map(|seq| {
                let found = self.ask("STREAM.MSG.GET.chunks", &format!("{{\"seq\":{seq}}}"));
                // Base64 of JSON; all that matters is which chunk it is.
                let data = decode_base64(found.pointer("/message/data").unwrap().as_str().unwrap());
                Manifest::parse(&data).unwrap().unwrap().origin.chunk
            })
            .collect()
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(value).collect();
    let bits = |four: &[u8]| four.iter().fold(0_u32, |all, digit| all << 6 | u32::from(*digit));
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = bits(four) << (6 * (4 - four.len()));
        bits.to_be_bytes().into_iter().skip(1).take(four.len() - 1).collect::<Vec<u8>>()
    });
    bytes.collect()
}

const STREAM: &str = "{\"name\":\"chunks\",\"subjects\":[\"trace.*\"],\"storage\":\"file\"}";

#[test]
fn a_stream_has_each_chunk_once_also_when_it_is_told_twice_and_the_server_restarts() {
    let store = tempfile::tempdir().unwrap();
    let options = ["-js", "-sd", store.path().to_str().unwrap()];
    let port = free_port();
    let Some(server) = Server::start(port, &options) else { return };
    let url = server.url();
    Client::connect(port, "answer").ask("STREAM.CREATE.chunks", STREAM);
    let setup = Setup::new();
    let relay = setup.start(|config| tell(config, &url, None));
    record(&relay, "a", 2);
    wait_until("two announcements", || relay.totals().announcements == 2);
    drop(server);
    record(&relay, "b", 2);
    wait_until("failures", || relay.totals().announcements_failed >= 3);
    let _server = Server::start(port, &options);
    wait_until("all announcements", || relay.totals().announcements == 4);
    setup.runtime.block_on(relay.shutdown());
    let mut client = Client::connect(port, "answer");
    let mut stored = client.stored();
    stored.sort_unstable();
    assert_eq!(stored, [0, 0, 1, 1]);
    // As after a kill between the telling and its note.
    for (number, (_, manifest)) in setup.manifests().iter().enumerate() {
        let note =
            format!("relay-announcement 1\nto nats {url}\nfolder {}\n", manifest.origin.folder);
        fs::write(setup.root.path().join(format!(".relay/outbox/{number}")), note).unwrap();
    }
    let relay = setup.start(|config| tell(config, &url, None));
    wait_until("announcements again", || relay.totals().announcements == 4);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(client.stored().len(), 4, "the stream knows them");
}

#[test]
fn without_a_stream_somebody_must_listen() {
    let Some(server) = Server::start(free_port(), &[]) else { return };
    let setup = Setup::new();
    let relay = setup.start(|config| tell(config, &server.url(), None));
    record(&relay, "s", 1);
    wait_until("failures", || relay.totals().announcements_failed >= 3);
    assert_eq!(relay.totals().announcements, 0);
    let mut listener = Client::connect(server.port, "trace.>");
    let manifest = Manifest::parse(&listener.message()).unwrap().unwrap();
    assert_eq!(manifest, setup.manifests().pop().unwrap().1);
    wait_until("the announcement", || relay.totals().announcements == 1);
    setup.runtime.block_on(relay.shutdown());
}

#[test]
fn credentials_come_from_a_file_and_go_nowhere_else() {
    let Some(server) = Server::start(free_port(), &["--auth", "hunter22"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    fs::write(&file, "wrong\n").unwrap();
    let setup = Setup::new();
    let relay = setup.start(|config| tell(config, &server.url(), Some(&file)));
    record(&relay, "s", 1);
    wait_until("failures", || relay.totals().announcements_failed >= 2);
    // Read for each attempt. Nobody listens, so that the attempt is seen to get further.
    fs::write(&file, "hunter22\n").unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut bytes = Vec::new();
    let mut writer = Writer(&mut bytes);
    writer.connect("{\"verbose\":false,\"auth_token\":\"hunter22\"}");
    writer.subscribe(SUBJECT, 1);
    socket.write_all(&bytes).unwrap();
    wait_until("the announcement", || relay.totals().announcements == 1);
    let note = fs::read_dir(setup.root.path().join(".relay/outbox")).unwrap().next();
    assert!(note.is_none());
    setup.runtime.block_on(relay.shutdown());
}

#[test]
fn a_manifest_that_the_server_finds_too_long_is_sent_short() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings");
    fs::write(&settings, "max_payload: 1800\n").unwrap();
    let options = ["-c", settings.to_str().unwrap()];
    let Some(server) = Server::start(free_port(), &options) else { return };
    let mut listener = Client::connect(server.port, SUBJECT);
    let setup = Setup::new();
    let relay = setup.start(|config| tell(config, &server.url(), None));
    record(&relay, "s", 1);
    let manifest = Manifest::parse(&listener.message()).unwrap().unwrap();
    let whole = setup.manifests().pop().unwrap().1;
    assert!(whole.to_json().len() > 1800 - 1024, "{}", whole.to_json().len());
    assert_eq!(
        (&manifest.origin, manifest.contents.totals),
        (&whole.origin, whole.contents.totals)
    );
    assert_eq!(manifest.contents.files_unlisted, whole.contents.totals.files);
    wait_until("the announcement", || relay.totals().announcements == 1);
    setup.runtime.block_on(relay.shutdown());
}

#[test]
fn a_peer_that_is_no_server_of_nats_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers: [&[u8]; 6] = [
        b"",
        b"SSH-2.0-none\r\n",
        b"INFO not json\r\n",
        // Does not go on as it should.
        b"INFO {\"tls_required\":true}\r\n",
        b"-ERR 'maximum connections exceeded'\r\n",
        // Says nothing more.
        b"INFO {}\r\n",
    ];
    let peer = std::thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(answer).unwrap();
            if answer.starts_with(b"INFO {}") {
                // Until the relay has had enough.
                drop(socket.read_to_end(&mut Vec::new()));
            }
        }
    });
    let setup = Setup::new();
    let url = format!("nats://127.0.0.1:{port}/{SUBJECT}");
    let relay = setup.start(|config| tell(config, &url, None));
    record(&relay, "s", 1);
    peer.join().unwrap();
    wait_until("failures", || relay.totals().announcements_failed >= 6);
    assert_eq!(relay.totals().announcements, 0);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(setup.outbox_len(), 1, "it is told after the next start");
}

#[test]
fn a_server_that_is_encrypted_must_show_a_certificate_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = testkit::pki::Authority::new(folder.path(), "ca").unwrap();
    let other = testkit::pki::Authority::new(folder.path(), "other").unwrap();
    let issued = authority.issue("nats", &["127.0.0.1"]).unwrap();
    let settings = folder.path().join("settings");
    let (certificate, key) = (issued.certificate.display(), issued.key.display());
    let text = format!(
        "tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\nallow_non_tls: true\n"
    );
    fs::write(&settings, text).unwrap();
    let options = ["-c", settings.to_str().unwrap()];
    let Some(server) = Server::start(free_port(), &options) else { return };
    let _listener = Client::connect(server.port, SUBJECT);
    let url = server.url().replace("nats://", "tls://");
    let setup = Setup::new();
    let tell = |config: &mut Config, ca: &Path| {
        config.announce.ca = Some(ca.to_owned());
        config.announce.targets.push(Target::Nats(url.parse().unwrap()));
        hurry(config);
    };
    let relay = setup.start(|config| tell(config, other.pem()));
    record(&relay, "s", 1);
    wait_until("failures", || relay.totals().announcements_failed >= 2);
    assert_eq!(relay.totals().announcements, 0);
    setup.runtime.block_on(relay.shutdown());
    let relay = setup.start(|config| tell(config, authority.pem()));
    wait_until("the announcement", || relay.totals().announcements == 1);
    setup.runtime.block_on(relay.shutdown());
}
