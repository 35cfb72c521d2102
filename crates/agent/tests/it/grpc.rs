//! OTLP over gRPC, against grpcio and OpenTelemetry's own messages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agent::{Agent, Attempt, Headers, PacketName, Reason, Sender, Sending};
use serde_json::Value;
use testkit::pki::Authority;
use testkit::{Running, wait_for};

use crate::collector::{Collector, answer};
use crate::http::settings;
use crate::packets::packet;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/otlp_peer.py");

/// The Python that has `grpc` and OpenTelemetry's messages, as `./test` installs them.
pub(crate) fn python() -> Option<String> {
    let found =
        std::env::var("THROUGHLINE_OTLP_PYTHON").unwrap_or_else(|_unset| "python3".to_owned());
    let mut command = Command::new(&found);
    command.args(["-c", "import grpc, opentelemetry.proto.collector.profiles.v1development"]);
    let is_there = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_there {
        testkit::skip("OpenTelemetry's messages for Python are not installed");
    }
    is_there.then_some(found)
}

/// A collector of other people.
struct Peer {
    address: String,
    /// What it said of each request.
    told: Arc<Mutex<Vec<Value>>>,
    _running: Running,
}

impl Peer {
    fn start(python: &str, log: PathBuf, arguments: &[&str]) -> Self {
        let mut command = Command::new(python);
        command.arg(SCRIPT).args(arguments).stdout(Stdio::piped());
        let mut running = Running::start(&mut command, "the collector", &log);
        let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("where it listens").unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                hears.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let port = first.strip_prefix("listens ").expect("a port");
        Self { address: format!("127.0.0.1:{port}"), told, _running: running }
    }
}

#[test]
fn other_people_s_collector_reads_every_name_and_is_heard() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = ["serve", "unavailable", "exhausted", "ok", "invalid", "partial"];
    let peer = Peer::start(&python, folder.path().join("log"), &script);
    let url = format!("grpc://{}", peer.address);
    let mut settings = settings(&folder.path().join("spool"), &[url]);
    settings.targets[0].1 = Sending {
        headers: Headers::of_list("authorization=Bearer%20secret").unwrap(),
        ..Sending::default()
    };
    let agent = Agent::start(settings).unwrap();
    let packets = [packet(1, &["a", "b"]), packet(2, &["a"]), packet(3, &["c"])];
    for (count, packet) in (1..).zip(&packets) {
        agent.offer(packet.clone());
        wait_for("an answer", || {
            let (_, counts) = &agent.status().targets[0];
            (counts.delivered + counts.all_dropped() == count).then_some(())
        });
    }
    let status = agent.stop(Duration::from_secs(30));
    let (_, counts) = &status.targets[0];
    assert_eq!((counts.delivered, counts.rejected_profiles, counts.failed_attempts), (2, 2, 2));
    assert_eq!(counts.dropped, BTreeMap::from([(Reason::Refused, 1)]));

    let told = peer.told.lock().unwrap().clone();
    assert_eq!(told.len(), 5);
    assert!(told[0] == told[1] && told[1] == told[2]);
    assert_eq!(told[0]["metadata"]["authorization"], "Bearer secret");
    let profiles = told[0]["profiles"].as_array().unwrap();
    for (profile, name) in profiles.iter().zip(["a", "b"]) {
        assert_eq!(profile["type"], "samples");
        assert_eq!(profile["begin"], packets[0].begin_unix_ns);
        assert!(profile["id"].as_str().unwrap().starts_with(&packets[0].id.to_string()));
        assert_eq!(profile["stacks"], serde_json::json!([[format!("work_of_{name}")]]));
        assert_eq!(profile["attributes"]["process.executable.name"], name);
        assert_eq!(profile["attributes"]["host.name"], "h1");
    }
}

#[test]
fn an_encrypted_collector_is_known_by_its_certificate() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (ours, theirs) = (
        Authority::new(folder.path(), "ours").unwrap(),
        Authority::new(folder.path(), "theirs").unwrap(),
    );
    ours.issue("collector", &["127.0.0.1"]).unwrap();
    let [chain, key] =
        ["collector.pem", "collector.key"].map(|name| at(name).display().to_string());
    let peer = Peer::start(&python, at("log"), &["serve-tls", &chain, &key]);
    let packet = packet(1, &["a"]);
    let name = PacketName::of(&packet);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let send = |url: &str, ca: &Authority| {
        let sending = Sending { ca: Some(ca.pem().to_owned()), ..Sending::default() };
        let sender = Sender::new(&url.parse().unwrap(), &sending).unwrap();
        runtime.block_on(sender.send(&name, packet.gzip().into()))
    };
    let (grpcs, grpc) = (format!("grpcs://{}", peer.address), format!("grpc://{}", peer.address));
    let Attempt::Again { why, .. } = send(&grpcs, &theirs) else { panic!("sent to a stranger") };
    assert!(why.contains("certificate"), "{why}");
    assert!(matches!(send(&grpc, &ours), Attempt::Again { .. }));
    assert!(peer.told.lock().unwrap().is_empty());
    assert_eq!(send(&grpcs, &ours), Attempt::Delivered { rejected_profiles: 0 });
    let told = wait_for("the packet", || peer.told.lock().unwrap().first().cloned());
    assert_eq!(told["profiles"][0]["stacks"], serde_json::json!([["work_of_a"]]));
}

#[test]
fn a_collector_that_knows_no_gzip_gets_packets_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let ok = || answer(200, &[("grpc-status", "0")], b"");
    let unknown = [("grpc-status", "12"), ("grpc-accept-encoding", "identity")];
    let collector = Collector::start("127.0.0.1:0", vec![answer(200, &unknown, b""), ok(), ok()]);
    let url = format!("grpc://{}", collector.address);
    let agent = Agent::start(settings(folder.path(), &[url])).unwrap();
    let packets = [packet(1, &["a"]), packet(2, &["b"])];
    packets.iter().for_each(|packet| agent.offer(packet.clone()));
    wait_for("both", || (agent.status().targets[0].1.delivered == 2).then_some(()));
    assert!(agent.stop(Duration::from_secs(30)).targets[0].1.dropped.is_empty());
    let requests = collector.requests();
    let frame = |is_compressed: u8, message: &[u8]| {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[is_compressed][..], &length, message].concat()
    };
    let [first, second] = &packets;
    let expected = [frame(1, &first.gzip()), frame(0, &first.bytes), frame(0, &second.bytes)];
    assert_eq!(requests.iter().map(|seen| seen.body.to_vec()).collect::<Vec<_>>(), expected);
    assert_eq!(requests[0].headers["grpc-encoding"], "gzip");
    assert!(!requests[1].headers.contains_key("grpc-encoding"));
}
