//! These codecs as a viewer of a real lttng-relayd.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::lttng::{RelayDaemon, SessionDaemon};
use wire::live::viewer::{
    AttachReply, AttachSession, Connect, CreateViewerSessionReply, DetachReply, MetadataReply,
    NewStreamsReply, NextIndex, NextIndexReply, Request, Seek, SessionEntry, SessionListHead,
};
use wire::live::{
    Decoded, ProtocolMinor, Result, TraceFormat, Version, ViewedSessionId, ViewedStreamId,
    ViewerSessionId,
};

/// How long a reply, or a session that was just made, may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

struct Viewer {
    socket: TcpStream,
    minor: ProtocolMinor,
}

impl Viewer {
    /// Connects, announcing a minor version.
    fn connect(relay: &RelayDaemon, minor: u32) -> Self {
        let socket = TcpStream::connect(relay.live()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut viewer = Self { socket, minor: ProtocolMinor(minor) };
        let version = Version { major: 2, minor: viewer.minor };
        let viewer_session = ViewerSessionId::NONE;
        let connect = Connect { viewer_session, version, kind: Connect::COMMAND };
        let reply = viewer.ask(&Request::Connect(connect), Connect::decode);
        assert_ne!(reply.viewer_session, ViewerSessionId::NONE);
        viewer.minor = version.negotiate(reply.version).unwrap();
        viewer
    }

    fn ask<T>(&mut self, request: &Request, decode: impl Fn(&[u8]) -> Result<Decoded<T>>) -> T {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
        self.read(decode)
    }

    fn read<T>(&mut self, decode: impl Fn(&[u8]) -> Result<Decoded<T>>) -> T {
        let mut bytes = Vec::new();
        loop {
            match decode(&bytes).unwrap() {
                Decoded::Complete { value, used } => {
                    assert_eq!(used, bytes.len());
                    return value;
                }
                Decoded::Incomplete { needed } => {
                    let have = bytes.len();
                    bytes.resize(needed, 0);
                    self.socket.read_exact(&mut bytes[have..]).unwrap();
                }
            }
        }
    }

    fn sessions(&mut self) -> Vec<SessionEntry> {
        let minor = self.minor;
        let SessionListHead { count } = self.ask(&Request::ListSessions, SessionListHead::decode);
        (0..count).map(|_| self.read(|bytes| SessionEntry::decode(bytes, minor))).collect()
    }

    fn attach(&mut self, session: ViewedSessionId, seek: Seek) -> AttachReply {
        let request = Request::AttachSession(AttachSession { session, seek });
        self.ask(&request, AttachReply::decode)
    }

    fn detach(&mut self, session: ViewedSessionId) {
        let reply = self.ask(&Request::DetachSession(session), DetachReply::decode);
        assert_eq!(reply, DetachReply::Detached);
    }
}

#[test]
fn lttng_relayd_answers_as_it_is_understood() {
    for tool in ["lttng-sessiond", "lttng-relayd"] {
        if !testkit::is_installed(tool) {
            testkit::skip(&format!("{tool} is not installed"));
            return;
        }
    }
    let relay = RelayDaemon::start().unwrap();
    let daemon = SessionDaemon::start().unwrap();
    let url = format!("net://127.0.0.1:{}:{}", relay.control().port(), relay.data().port());
    daemon.lttng(["create", "seen", "--live=250000", "--set-url", &url]).unwrap();
    // The first channel makes the daemon connect.
    daemon.lttng(["enable-event", "--userspace", "--all", "--session", "seen"]).unwrap();
    daemon.lttng(["start", "seen"]).unwrap();

    for minor in [4, 15] {
        let mut viewer = Viewer::connect(&relay, minor);
        let deadline = Instant::now() + PATIENCE;
        let sessions = loop {
            let sessions = viewer.sessions();
            if !sessions.is_empty() || Instant::now() > deadline {
                break sessions;
            }
            std::thread::yield_now();
        };
        let [seen] = sessions.as_slice() else { panic!("one session: {sessions:?}") };
        let about = (seen.name.as_str(), seen.live_timer_us, seen.streams, seen.viewers);
        assert_eq!(about, ("seen", 250_000, 0, 0));
        assert_eq!(seen.format, TraceFormat::Ctf1_8);

        assert_eq!(viewer.attach(seen.session, Seek::Last), AttachReply::NoViewerSession);
        let made = viewer.ask(&Request::CreateSession, CreateViewerSessionReply::decode);
        assert_eq!(made, CreateViewerSessionReply::Made);
        let unknown = ViewedSessionId::new(u64::MAX);
        assert_eq!(viewer.attach(unknown, Seek::Last), AttachReply::Unknown);
        assert_eq!(viewer.attach(seen.session, Seek::Beginning), AttachReply::Attached(0));
        let nothing = viewer.ask(&Request::GetNewStreams(seen.session), NewStreamsReply::decode);
        assert_eq!(nothing, NewStreamsReply::Streams(0));
        let stream = ViewedStreamId::new(u64::MAX);
        let index = viewer.ask(&Request::GetNextIndex(stream), NextIndexReply::decode);
        assert_eq!(index.index, NextIndex::Failed);
        let metadata = viewer.ask(&Request::GetMetadata(stream), MetadataReply::decode);
        assert_eq!(metadata, MetadataReply::Failed);

        let mut second = Viewer::connect(&relay, minor);
        second.ask(&Request::CreateSession, CreateViewerSessionReply::decode);
        assert_eq!(second.attach(seen.session, Seek::Last), AttachReply::Taken);
        viewer.detach(seen.session);
        assert_eq!(second.attach(seen.session, Seek::Last), AttachReply::Attached(0));
        second.detach(seen.session);
    }
    daemon.lttng(["destroy", "seen"]).unwrap();
}
