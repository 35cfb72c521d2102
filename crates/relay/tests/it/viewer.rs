//! The port for viewers with scripted producers and viewers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use relay::{Config, Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::viewer::{
    AttachReply, AttachSession, Connect, CreateViewerSessionReply, GetPacket, MetadataReply,
    NextIndex, NextIndexReply, PacketEntry, PacketPiece, PacketReply, Request, Seek, SessionEntry,
    StreamEntry,
};
use wire::live::{
    CloseAction, CreateSession, Decoded, NetSeqNum, PacketIndex, ProtocolMinor, Request as Order,
    StreamHandle, Version, ViewedSessionId, ViewedStreamId, ViewerSessionId,
};

use crate::client::shown;
use crate::disk::wait_until;
use crate::producer::{Producer, index, packet, session, start_with};
use crate::viewer_replay::{Reply, Source};

const PATIENCE: Duration = Duration::from_secs(20);
/// Metadata that are whole.
pub(crate) const METADATA: &[u8] = b"/* CTF 1.8 */ trace { };";

/// A live session with one data stream and metadata.
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) relay: Relay,
    pub(crate) producer: Producer,
    pub(crate) stream: StreamHandle,
    pub(crate) metadata: StreamHandle,
    pub(crate) root: tempfile::TempDir,
}

pub(crate) fn live() -> CreateSession {
    CreateSession { live_timer_us: 1_000_000, ..session("s") }
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with(live(), Limits::default())
    }

    pub(crate) fn with(create: CreateSession, limits: Limits) -> Self {
        Self::configured(create, |config| config.limits = limits)
    }

    pub(crate) fn configured(create: CreateSession, set_up: impl FnOnce(&mut Config)) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), 0, create, set_up)
    }

    /// In a folder where a relay may have been before, beginning with a chunk of this number.
    pub(crate) fn in_folder(
        root: tempfile::TempDir,
        chunk: u64,
        create: CreateSession,
        set_up: impl FnOnce(&mut Config),
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        let relay = start_with(&runtime, root.path(), set_up);
        let mut producer = Producer::new(&relay, create);
        producer.chunk(chunk);
        let stream = producer.stream("ch_0", chunk);
        let metadata = producer.stream("metadata", chunk);
        producer.metadata(metadata, METADATA);
        // Metadata are not answered, this is.
        producer.ok(&Order::StreamsSent);
        Self { runtime, relay, producer, stream, metadata, root }
    }

    /// Sends packets with their entries.
    pub(crate) fn send(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.producer.packet(self.stream, number);
            self.producer.index(self.stream, number);
        }
    }

    pub(crate) fn send_metadata(&mut self, bytes: &[u8]) {
        self.producer.metadata(self.metadata, bytes);
        self.producer.ok(&Order::StreamsSent);
    }

    pub(crate) fn beacon(&mut self, sent: u64, until: u64) {
        let beacon = PacketIndex {
            net_seq_num: NetSeqNum::new(sent),
            packet_size_bits: 0,
            timestamp_begin: 0,
            timestamp_end: until,
            ..index(self.stream, 0)
        };
        self.producer.ok(&Order::SendIndex(beacon));
    }

    /// Rotates into a chunk and closes the one before it.
    pub(crate) fn rotate(&mut self, from: u64, at: u64, action: CloseAction) {
        self.producer.chunk(from + 1);
        self.producer.rotate(Some(from + 1), &[(self.stream, at)]);
        self.producer.rotate(Some(from + 1), &[(self.metadata, 0)]);
        self.producer.metadata(self.metadata, METADATA);
        self.producer.close_chunk(from, Some(action));
        wait_until("the chunk's last move", || !self.producer.exists(from));
    }

    pub(crate) fn viewed(&self) -> ViewedStreamId {
        shown(self.stream)
    }

    /// A viewer that is attached and has read all metadata.
    pub(crate) fn attach(&self, seek: Seek) -> Viewer {
        let mut viewer = Viewer::connect(&self.relay, 15);
        let session = viewer.sessions().first().unwrap().session;
        viewer.attach(session, seek);
        assert_eq!(viewer.metadata(self.metadata), METADATA);
        assert_eq!(viewer.metadata(self.metadata), b"");
        viewer
    }

    pub(crate) fn end(self) {
        self.runtime.block_on(self.relay.shutdown());
    }
}

pub(crate) struct Viewer {
    pub(crate) socket: TcpStream,
    pub(crate) minor: ProtocolMinor,
    pub(crate) session: Option<ViewedSessionId>,
}

impl Viewer {
    pub(crate) fn open(relay: &Relay) -> Self {
        Self::open_at(relay.viewers_addr())
    }

    pub(crate) fn open_at(relay: SocketAddr) -> Self {
        let socket = TcpStream::connect(relay).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, minor: ProtocolMinor::OURS, session: None }
    }

    /// Says the version; `None` when the relay has no place.
    pub(crate) fn try_connect(&mut self) -> Option<Connect> {
        let mut bytes = Vec::new();
        connect(Version::OURS).encode(&mut bytes);
        self.socket.write_all(&bytes).ok()?;
        let mut reply = vec![0; Connect::LEN];
        self.socket.read_exact(&mut reply).ok()?;
        match Connect::decode(&reply).ok()? {
            Decoded::Complete { value, .. } => Some(value),
            Decoded::Incomplete { .. } => None,
        }
    }

    /// With a viewer session.
    pub(crate) fn connect(relay: &Relay, minor: u32) -> Self {
        Self::connect_to(relay.viewers_addr(), minor)
    }

    pub(crate) fn connect_to(relay: SocketAddr, minor: u32) -> Self {
        let mut viewer = Self::open_at(relay);
        viewer.minor = ProtocolMinor(minor);
        let version = Version { major: 2, minor: viewer.minor };
        let Reply::Connected(reply) = viewer.ask(&connect(version)) else { panic!("a greeting") };
        assert_eq!((reply.version, reply.kind), (Version::OURS, 0));
        assert_ne!(reply.viewer_session, ViewerSessionId::NONE);
        assert_eq!(
            viewer.ask(&Request::CreateSession),
            Reply::Made(CreateViewerSessionReply::Made)
        );
        viewer
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Reply {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
        self.socket.reply(request, self.minor)
    }

    pub(crate) fn sessions(&mut self) -> Vec<SessionEntry> {
        let Reply::Sessions(sessions) = self.ask(&Request::ListSessions) else { panic!("a list") };
        sessions
    }

    pub(crate) fn attach(&mut self, session: ViewedSessionId, seek: Seek) -> Vec<StreamEntry> {
        self.session = Some(session);
        let request = Request::AttachSession(AttachSession { session, seek });
        match self.ask(&request) {
            Reply::Attached(AttachReply::Attached(_), streams) => streams,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn new_streams(&mut self) -> Reply {
        let session = self.session.unwrap();
        self.ask(&Request::GetNewStreams(session))
    }

    pub(crate) fn metadata(&mut self, stream: StreamHandle) -> Vec<u8> {
        let request = Request::GetMetadata(shown(stream));
        match self.ask(&request) {
            Reply::Metadata(MetadataReply::Bytes(_) | MetadataReply::NoneNew, bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn next(&mut self, stream: ViewedStreamId) -> NextIndexReply {
        let Reply::Index(reply) = self.ask(&Request::GetNextIndex(stream)) else {
            panic!("an index")
        };
        reply
    }

    pub(crate) fn bytes(
        &mut self,
        stream: ViewedStreamId,
        offset: u64,
        len: u32,
    ) -> (PacketPiece, Vec<u8>) {
        let request = GetPacket { stream, offset_bytes: offset, len_bytes: len };
        match self.ask(&Request::GetPacket(request)) {
            Reply::Packet(PacketReply { piece, .. }, bytes) => (piece, bytes),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn next_entry(&mut self, stream: ViewedStreamId) -> PacketEntry {
        match self.next(stream).index {
            NextIndex::Packet(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    /// The packets that are there, by what is in them; each is compared with what was sent.
    pub(crate) fn read_on(&mut self, stream: ViewedStreamId) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let NextIndex::Packet(entry) = self.next(stream).index {
            let number = entry.timestamp_begin;
            assert_eq!(self.bytes(stream, entry.offset_bytes, 128), whole(number));
            numbers.push(number);
        }
        numbers
    }

    /// Whether the relay closes the connection without another word.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0]), Ok(0) | Err(_))
    }
}

pub(crate) fn connect(version: Version) -> Request {
    let viewer_session = ViewerSessionId::NONE;
    Request::Connect(Connect { viewer_session, version, kind: Connect::COMMAND })
}

pub(crate) fn whole(number: u64) -> (PacketPiece, Vec<u8>) {
    (PacketPiece::Bytes(128), packet(number).to_vec())
}

/// Waits until there is something.
pub(crate) fn wait_for<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until("an answer", || {
        found = found.take().or_else(&mut find);
        found.is_some()
    });
    found.unwrap()
}
