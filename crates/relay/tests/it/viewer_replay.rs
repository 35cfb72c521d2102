//! Recorded conversations of babeltrace2 with another relay, asked again: the answers must be the same.
//!
//! The producer is sent in the order of the recording's clock, and each request of the viewer at its time. Where a
//! recording's relay had more or less at that moment because its threads run as they like, asking is repeated until the
//! answer comes; the packets, metadata, lists and ends must then be the recorded ones.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use wire::live::viewer::{
    AttachReply, Connect, CreateViewerSessionReply, DetachReply, Flags, Header, MetadataReply,
    NewStreamsReply, NextIndex, NextIndexReply, PacketPiece, PacketReply, Request, SessionEntry,
    SessionListHead, StreamEntry,
};
use wire::live::{Decoded, ProtocolMinor, Result, ViewedSessionId, ViewedStreamId, ViewedTraceId};

const PATIENCE: Duration = Duration::from_secs(20);

/// Where replies come from: a relay, or a recording.
pub(crate) trait Source {
    /// Exactly so many bytes.
    fn bytes(&mut self, len: usize) -> Vec<u8>;

    fn take<T>(&mut self, decode: impl Fn(&[u8]) -> Result<Decoded<T>>) -> T {
        let mut bytes = Vec::new();
        loop {
            match decode(&bytes).unwrap() {
                Decoded::Complete { value, used } => {
                    assert_eq!(used, bytes.len());
                    return value;
                }
                Decoded::Incomplete { needed } => {
                    let more = self.bytes(needed - bytes.len());
                    bytes.extend(more);
                }
            }
        }
    }

    fn streams(&mut self, count: u32) -> Vec<StreamEntry> {
        (0..count).map(|_| self.take(StreamEntry::decode)).collect()
    }

    fn reply(&mut self, request: &Request, minor: ProtocolMinor) -> Reply {
        match request {
            Request::Connect(_) => Reply::Connected(self.take(Connect::decode)),
            Request::CreateSession => Reply::Made(self.take(CreateViewerSessionReply::decode)),
            Request::ListSessions => {
                let count = self.take(SessionListHead::decode).count;
                let entry = |bytes: &[u8]| SessionEntry::decode(bytes, minor);
                Reply::Sessions((0..count).map(|_| self.take(entry)).collect())
            }
            Request::AttachSession(_) => {
                let reply = self.take(AttachReply::decode);
                let count = if let AttachReply::Attached(count) = reply { count } else { 0 };
                Reply::Attached(reply, self.streams(count))
            }
            Request::GetNextIndex(_) => Reply::Index(self.take(NextIndexReply::decode)),
            Request::GetPacket(request) => {
                let reply = self.take(|bytes| PacketReply::decode(bytes, request.len_bytes));
                let len = if let PacketPiece::Bytes(len) = reply.piece { len } else { 0 };
                Reply::Packet(reply, self.bytes(len as usize))
            }
            Request::GetMetadata(_) => {
                let reply = self.take(MetadataReply::decode);
                let len = if let MetadataReply::Bytes(len) = reply { len } else { 0 };
                Reply::Metadata(reply, self.bytes(usize::try_from(len).unwrap()))
            }
            Request::GetNewStreams(_) => {
                let reply = self.take(NewStreamsReply::decode);
                let count = if let NewStreamsReply::Streams(count) = reply { count } else { 0 };
                Reply::Streams(reply, self.streams(count))
            }
            Request::DetachSession(_) => Reply::Detached(self.take(DetachReply::decode)),
        }
    }
}

/// A reply with what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Connected(Connect),
    Made(CreateViewerSessionReply),
    Sessions(Vec<SessionEntry>),
    Attached(AttachReply, Vec<StreamEntry>),
    Index(NextIndexReply),
    Packet(PacketReply, Vec<u8>),
    Metadata(MetadataReply, Vec<u8>),
    Streams(NewStreamsReply, Vec<StreamEntry>),
    Detached(DetachReply),
}

/// A recorded byte stream.
struct Recorded {
    bytes: Vec<u8>,
    used: usize,
}

impl Source for Recorded {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let bytes = self.bytes.get(self.used..self.used + len).unwrap().to_vec();
        self.used += len;
        bytes
    }
}

impl Source for TcpStream {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// The viewer of a recording.
pub(crate) struct Viewer {
    socket: TcpStream,
    sent: Recorded,
    answered: Recorded,
    minor: ProtocolMinor,
    /// Recorded numbers and the relay's.
    sessions: HashMap<ViewedSessionId, ViewedSessionId>,
    streams: HashMap<ViewedStreamId, ViewedStreamId>,
    traces: HashMap<ViewedTraceId, ViewedTraceId>,
}

impl Viewer {
    pub(crate) fn new(relay: &relay::Relay, sent: Vec<u8>, answered: Vec<u8>) -> Self {
        let socket = TcpStream::connect(relay.viewers_addr()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            sent: Recorded { bytes: sent, used: 0 },
            answered: Recorded { bytes: answered, used: 0 },
            minor: ProtocolMinor::OURS,
            sessions: HashMap::new(),
            streams: HashMap::new(),
            traces: HashMap::new(),
        }
    }

    /// Asks what had been asked when `end` bytes had passed.
    pub(crate) fn step(&mut self, end: usize) {
        while self.sent.used + Header::LEN <= end {
            let header = self.sent.bytes(Header::LEN);
            let Header { command, payload_len } =
                Header::decode(header.first_chunk().unwrap()).unwrap();
            let payload = self.sent.bytes(payload_len as usize);
            let request = Request::decode(command, &payload).unwrap();
            if let Request::Connect(connect) = &request {
                // The recording was made with a relay of another version.
                self.minor = connect.version.minor;
            }
            let expected = self.answered.reply(&request, self.minor);
            self.ask(&self.mapped(request), expected);
        }
    }

    /// Everything recorded was asked and answered.
    pub(crate) fn check_end(&self) {
        assert_eq!(self.sent.used, self.sent.bytes.len());
        assert_eq!(self.answered.used, self.answered.bytes.len());
    }

    fn mapped(&self, mut request: Request) -> Request {
        match &mut request {
            Request::AttachSession(request) => {
                request.session = *self.sessions.get(&request.session).unwrap()
            }
            Request::GetNewStreams(session) | Request::DetachSession(session) => {
                *session = *self.sessions.get(session).unwrap();
            }
            Request::GetNextIndex(stream) | Request::GetMetadata(stream) => {
                *stream = *self.streams.get(stream).unwrap();
            }
            Request::GetPacket(request) => {
                request.stream = *self.streams.get(&request.stream).unwrap()
            }
            Request::Connect(_) | Request::ListSessions | Request::CreateSession => {}
        }
        request
    }

    fn ask(&mut self, request: &Request, expected: Reply) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            self.socket.write_all(&bytes).unwrap();
            let reply = self.socket.reply(request, self.minor);
            if self.is_same(&expected, &reply) {
                return;
            }
            let may_change =
                matches!(request, Request::GetNextIndex(_) | Request::GetNewStreams(_));
            assert!(
                may_change && Instant::now() < deadline,
                "{request:?}\nexpected {expected:?}\nfound    {reply:?}"
            );
        }
    }

    fn is_same(&mut self, expected: &Reply, reply: &Reply) -> bool {
        match (expected, reply) {
            (Reply::Connected(_), Reply::Connected(reply)) => reply.kind == 0,
            (Reply::Sessions(expected), Reply::Sessions(reply)) => {
                assert_eq!(expected.len(), reply.len());
                for (expected, reply) in expected.iter().zip(reply) {
                    self.sessions.insert(expected.session, reply.session);
                    assert_eq!(
                        *expected,
                        SessionEntry { session: expected.session, ..reply.clone() }
                    );
                }
                true
            }
            (Reply::Attached(expected, streams), Reply::Attached(reply, ours)) => {
                assert_eq!(expected, reply);
                self.map_streams(streams, ours);
                true
            }
            (Reply::Streams(expected, streams), Reply::Streams(reply, ours)) => {
                if expected == reply {
                    self.map_streams(streams, ours);
                }
                expected == reply
            }
            (Reply::Index(expected), Reply::Index(reply)) => {
                // The reference relay asks once for streams that were listed already.
                let is_asked = expected.flags.contains(Flags::NEW_STREAMS);
                let flags = if is_asked { reply.flags | Flags::NEW_STREAMS } else { reply.flags };
                is_same_answer(&expected.index, &reply.index) && expected.flags == flags
            }
            (expected, reply) => expected == reply,
        }
    }

    /// Streams may be listed in any order.
    fn map_streams(&mut self, expected: &[StreamEntry], ours: &[StreamEntry]) {
        assert_eq!(expected.len(), ours.len());
        for theirs in expected {
            let same = |ours: &&StreamEntry| {
                (&ours.path, &ours.channel) == (&theirs.path, &theirs.channel)
            };
            let ours = ours.iter().find(same).unwrap();
            assert_eq!(theirs.is_metadata, ours.is_metadata);
            self.streams.insert(theirs.stream, ours.stream);
            let trace = *self.traces.entry(theirs.trace).or_insert(ours.trace);
            assert_eq!(trace, ours.trace);
        }
    }
}

/// A relay may know more at a moment: that nothing happened until later, instead of nothing.
fn is_same_answer(expected: &NextIndex, reply: &NextIndex) -> bool {
    match (expected, reply) {
        (NextIndex::NotYet, NextIndex::Inactive { .. }) => true,
        _ => expected == reply,
    }
}
