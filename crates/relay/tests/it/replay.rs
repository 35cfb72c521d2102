//! Recorded producers, sent to the relay in the order in which they came: replies and files must be those of the
//! relay they were recorded with.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay::{Config, Relay, TimeZone};
use tracedir::manifest::Manifest;
use wire::live::{
    COMMAND_HEADER_LEN, Command, CommandHeader, DATA_HEADER_LEN, DataHeader, Decoded,
    ProtocolMinor, RelaySessionId, Request, StreamHandle, Version,
};

use crate::client::{self, Control, Reply};
use crate::disk::{files, manifests, wait_until};
use crate::viewer_replay::Viewer;

#[test]
fn live() {
    replay("live-2.13");
}

#[test]
fn live_with_late_metadata() {
    replay("live-metadata-2.13");
}

#[test]
fn live_cleared() {
    replay("live-clear-2.13");
}

#[test]
fn live_ctf2() {
    replay("live-ctf2-2.16");
}

#[test]
fn discarded_events() {
    replay("stream-discard-2.13");
}

#[test]
fn rotated() {
    replay("rotate-2.13");
}

#[test]
fn rotated_ctf2() {
    replay("rotate-ctf2-2.16");
}

#[test]
fn snapshots() {
    replay("snapshot-2.13");
}

#[test]
fn trace_file_ring_per_process() {
    replay("tracefile-perpid-2.13");
}

fn replay(name: &str) {
    let Some(shared) = testkit::shared_dir() else {
        testkit::skip("recorded streams are not on this machine");
        return;
    };
    let folder = shared.join("captures/lttng").join(name);
    let root = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let relay = runtime.block_on(async {
        let mut config = Config::new(root.path());
        config.control.set_port(0);
        config.data.set_port(0);
        config.viewers.set_port(0);
        config.time_zone = TimeZone::Utc;
        // One recording has entries that were taken down before their packets.
        config.limits.ack_patience = Duration::from_millis(5);
        Relay::start(config).unwrap()
    });
    let mut replay = Replay::new(&relay, folder.clone());
    let timeline = fs::read_to_string(folder.join("timeline.jsonl")).unwrap();
    for line in timeline.lines() {
        let step: (f64, String, String, u64, serde_json::Value) =
            serde_json::from_str(line).unwrap();
        replay.step(&step.1, &step.2, step.3 + step.4.as_u64().unwrap_or(0), &step.4);
    }
    let session = replay.session_folder.clone().unwrap();
    assert_eq!(replay.replies, replay.requests, "every recorded request was sent and answered");
    if let Some(viewer) = &replay.viewer {
        viewer.check_end();
    }
    drop(replay);
    let totals = relay.totals();
    assert_eq!(totals.requests_refused, 0);
    runtime.block_on(relay.shutdown());
    let expected = expected_files(&folder, &session);
    assert_eq!(files(root.path()), expected);
    check_manifests(root.path(), expected, totals.packets, is_kept_whole(name));
}

/// Whether every packet of a recording is still there at its end: not in rings and cleared sessions.
fn is_kept_whole(name: &str) -> bool {
    !["tracefile-perpid-2.13", "live-clear-2.13"].contains(&name)
}

/// Manifests name every file once with the digest that the recording has, and every packet.
fn check_manifests(
    root: &Path,
    expected: BTreeMap<String, (u64, String)>,
    packets: u64,
    whole: bool,
) {
    let manifests = manifests(root);
    let mut named = BTreeMap::new();
    for Manifest { origin, contents, losses, .. } in manifests.values() {
        assert_eq!(contents.problems, [""; 0]);
        assert_eq!(losses.iter().map(|lost| lost.network_packets).sum::<u64>(), 0);
        for trace in &contents.traces {
            assert!(trace.environment.contains_key("tracer_name"), "{trace:?}");
        }
        for file in &contents.files {
            let path = format!("{}/{}", origin.folder, file.path);
            assert_eq!(named.insert(path, (file.bytes, file.sha256.clone())), None);
        }
    }
    assert_eq!(named, expected);
    let counted: u64 = manifests.values().map(|manifest| manifest.contents.totals.packets).sum();
    if whole {
        assert_eq!(counted, packets);
    } else {
        assert!(0 < counted && counted < packets, "{counted} of {packets}");
    }
}

/// `disk.txt`: digest, length, path.
fn expected_files(folder: &Path, session: &str) -> BTreeMap<String, (u64, String)> {
    let base = match folder.file_name().unwrap().to_str().unwrap().starts_with("snapshot") {
        true => session.split('/').next().unwrap(),
        false => session,
    };
    let listed = fs::read_to_string(folder.join("disk.txt")).unwrap();
    listed
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let (digest, len, path) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            (format!("{base}/{path}"), (len.parse().unwrap(), digest.to_owned()))
        })
        .collect()
}

/// The connections of a recording, as far as they are replayed.
struct Replay<'a> {
    relay: &'a Relay,
    folder: PathBuf,
    controls: HashMap<String, Recorded<Control>>,
    datas: HashMap<String, Recorded<TcpStream>>,
    streams: HashMap<StreamHandle, StreamHandle>,
    sessions: HashMap<RelaySessionId, RelaySessionId>,
    packets_sent: u64,
    requests: usize,
    replies: usize,
    session_folder: Option<String>,
    first_close: bool,
    viewer: Option<Viewer>,
}

struct Recorded<S> {
    socket: S,
    sent: Vec<u8>,
    answered: Vec<u8>,
    used: usize,
    answers_used: usize,
}

impl<'a> Replay<'a> {
    fn new(relay: &'a Relay, folder: PathBuf) -> Self {
        Self {
            relay,
            folder,
            controls: HashMap::new(),
            datas: HashMap::new(),
            streams: HashMap::new(),
            sessions: HashMap::new(),
            packets_sent: 0,
            requests: 0,
            replies: 0,
            session_folder: None,
            first_close: true,
            viewer: None,
        }
    }

    fn step(&mut self, connection: &str, direction: &str, end: u64, len: &serde_json::Value) {
        let read = |suffix: &str| {
            fs::read(self.folder.join(format!("{connection}.{suffix}"))).unwrap_or_default()
        };
        let is_control = connection.starts_with("control");
        if connection.starts_with("viewer") {
            match direction {
                "open" => self.viewer = Some(Viewer::new(self.relay, read("c2s"), read("s2c"))),
                "c2s" => {
                    if let Some(viewer) = &mut self.viewer {
                        viewer.step(usize::try_from(end).unwrap());
                    }
                }
                _ => {}
            }
            return;
        }
        match (direction, is_control) {
            ("open", true) => {
                let socket = Control::connect(self.relay.control_addr(), ProtocolMinor::OURS);
                let (sent, answered) = (read("c2s"), read("s2c"));
                let recorded = Recorded { socket, sent, answered, used: 0, answers_used: 0 };
                self.controls.insert(connection.to_owned(), recorded);
            }
            ("open", false) => {
                let socket = TcpStream::connect(self.relay.data_addr()).unwrap();
                let recorded = Recorded {
                    socket,
                    sent: read("c2s"),
                    answered: Vec::new(),
                    used: 0,
                    answers_used: 0,
                };
                self.datas.insert(connection.to_owned(), recorded);
            }
            ("c2s", true) if len.is_string() => {
                self.controls.get(connection).unwrap().socket.end();
            }
            ("c2s", false) if len.is_string() => {
                client::end(&self.datas.get(connection).unwrap().socket);
            }
            ("c2s", true) => {
                let mut recorded = self.controls.remove(connection).unwrap();
                while self.request(&mut recorded, usize::try_from(end).unwrap()) {}
                self.controls.insert(connection.to_owned(), recorded);
            }
            ("c2s", false) => {
                let mut recorded = self.datas.remove(connection).unwrap();
                while self.packet(&mut recorded, usize::try_from(end).unwrap()) {}
                self.datas.insert(connection.to_owned(), recorded);
            }
            _ => {}
        }
    }

    /// Sends the next packet if it had passed by then.
    fn packet(&mut self, recorded: &mut Recorded<TcpStream>, end: usize) -> bool {
        let arrived = recorded.sent.get(recorded.used..end).unwrap();
        let Some((header, rest)) = arrived.split_first_chunk::<DATA_HEADER_LEN>() else {
            return false;
        };
        let mut header = DataHeader::decode(header);
        let Some(body) = rest.get(..header.data_len as usize) else { return false };
        header.stream = *self.streams.get(&header.stream).unwrap();
        recorded.socket.write_all(&[header.encode().as_slice(), body].concat()).unwrap();
        recorded.used += DATA_HEADER_LEN + body.len();
        self.packets_sent += 1;
        true
    }

    /// Sends the next request if it had passed by then, and compares the reply.
    fn request(&mut self, recorded: &mut Recorded<Control>, end: usize) -> bool {
        let sent = recorded.sent.clone();
        let arrived = sent.get(recorded.used..end).unwrap();
        let Some((header, rest)) = arrived.split_first_chunk::<COMMAND_HEADER_LEN>() else {
            return false;
        };
        let CommandHeader { command, payload_len } = CommandHeader::decode(header).unwrap();
        let Some(payload) = rest.get(..usize::try_from(payload_len).unwrap()) else { return false };
        recorded.used += COMMAND_HEADER_LEN + payload.len();
        self.requests += 1;
        let control = &mut recorded.socket;
        let request = Request::decode(command, control.minor, payload).unwrap();
        if let Request::Version(theirs) = request {
            control.minor = Version::OURS.negotiate(theirs).unwrap();
        }
        let request = self.mapped(request);
        let answers = recorded.answered.get(recorded.answers_used..).unwrap();
        let expected = match client::decode(command, control.minor, answers).unwrap() {
            Decoded::Complete { value, used } => {
                recorded.answers_used += used;
                value
            }
            Decoded::Incomplete { .. } => panic!("the recording ends in a reply"),
        };
        if matches!(command, Command::DataPending | Command::EndDataPending) {
            // The recording's connections were as far as its clock says; ours catch up here.
            let sent = self.packets_sent;
            wait_until("all packets arriving", || self.relay.totals().packets == sent);
        }
        let mut reply = control.ask(&request);
        if command == Command::TraceChunkExists && reply != expected {
            wait_until("the chunk's last move", || {
                reply = control.ask(&request);
                reply == expected
            });
        }
        self.compare(&request, &expected, &reply);
        self.replies += 1;
        true
    }

    fn compare(&mut self, request: &Request<'_>, expected: &Reply, reply: &Reply) {
        match (expected, reply) {
            // Each relay says its own version.
            (Reply::Version(_), Reply::Version(ours)) => assert_eq!(*ours, Version::OURS),
            (Reply::Session(expected), Reply::Session(reply)) => {
                self.sessions.insert(expected.session, reply.session);
                assert_eq!(
                    (expected.code, &expected.output_path),
                    (reply.code, &reply.output_path)
                );
                let path = reply.output_path.as_ref().unwrap().to_string();
                self.session_folder.get_or_insert(path);
            }
            (Reply::Stream(expected), Reply::Stream(reply)) => {
                self.streams.insert(expected.handle, reply.handle);
                assert_eq!(expected.code, reply.code);
            }
            // The reference relay says a wrong place for the first rotated chunk.
            (Reply::Closed(expected), Reply::Closed(reply))
                if std::mem::take(&mut self.first_close)
                    && reply.path.as_str().contains("/archives/") =>
            {
                assert_eq!(expected.code, reply.code);
                assert!(reply.path.as_str().starts_with(expected.path.as_str()));
            }
            _ => assert_eq!(expected, reply, "{request:?}"),
        }
    }

    /// The request with the relay's own numbers.
    fn mapped<'b>(&self, mut request: Request<'b>) -> Request<'b> {
        let stream = |handle: &mut StreamHandle| *handle = *self.streams.get(handle).unwrap();
        match &mut request {
            Request::SendMetadata(request) => stream(&mut request.handle),
            Request::ResetMetadata(request) => stream(&mut request.handle),
            Request::SendIndex(request) => stream(&mut request.handle),
            Request::CloseStream(request) => stream(&mut request.handle),
            Request::DataPending(request) => stream(&mut request.handle),
            Request::QuiescentControl(handle) => stream(handle),
            Request::RotateStreams(request) => {
                request.positions.iter_mut().for_each(|position| stream(&mut position.handle));
            }
            Request::BeginDataPending(session) | Request::EndDataPending(session) => {
                *session = *self.sessions.get(session).unwrap();
            }
            _ => {}
        }
        request
    }
}

impl Drop for Replay<'_> {
    /// Ends every connection and waits until the relay has ended them too, so that nothing is cut short.
    fn drop(&mut self) {
        for control in self.controls.values_mut() {
            control.socket.end();
            assert!(control.socket.is_closed() || std::thread::panicking());
        }
        for data in self.datas.values_mut() {
            client::end(&data.socket);
            assert!(client::is_closed(&mut data.socket) || std::thread::panicking());
        }
    }
}
