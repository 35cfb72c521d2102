//! A scripted producer: sessions, chunks, streams, packets, in any order a test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use relay::{Config, Limits, Relay, TimeZone};
use tokio::runtime::Runtime;
use wire::live::{
    AddStream, ChunkId, CloseAction, CloseStream, CloseTraceChunk, CreateSession, CreateTraceChunk,
    DataHeader, FullIndexFields, Name, NetSeqNum, PacketIndex, PacketSeqNum, ProtocolMinor,
    RelativePath, RelaySessionId, Request, ReturnCode, ReturnReply, RotateStreams, SendMetadata,
    SessionIdentity, SessiondSessionId, SessiondUuid, StreamHandle, StreamPosition,
    TraceChunkExists, TraceFormat, UnixSeconds, Version,
};

use crate::client::{Control, Reply, forget_shown};

/// 2026-11-20T16:22:18Z, in names `20261120-162218`.
pub(crate) const CREATED: u64 = 1_795_191_738;
/// Where streams are in their chunk.
pub(crate) const STREAM_PATH: &str = "ust/uid/0/64-bit";

pub(crate) fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

/// Starts a relay on free ports.
pub(crate) fn start(runtime: &Runtime, root: &Path, limits: Limits) -> Relay {
    start_with(runtime, root, |config| config.limits = limits)
}

/// Starts a relay on free ports, set up further.
pub(crate) fn start_with(
    runtime: &Runtime,
    root: &Path,
    set_up: impl FnOnce(&mut Config),
) -> Relay {
    forget_shown();
    runtime.block_on(async {
        let mut config = Config::new(root);
        config.control.set_port(0);
        config.data.set_port(0);
        config.viewers.set_port(0);
        config.time_zone = TimeZone::Utc;
        set_up(&mut config);
        Relay::start(config).unwrap()
    })
}

pub(crate) struct Producer<S = TcpStream> {
    pub(crate) control: Control<S>,
    pub(crate) data: S,
    pub(crate) session: RelaySessionId,
    /// As the relay said.
    pub(crate) folder: RelativePath,
}

/// The session every test means unless it says otherwise.
pub(crate) fn session(name: &str) -> CreateSession {
    CreateSession {
        session_name: Some(Name::new(name).unwrap()),
        hostname: Some(Name::new("host").unwrap()),
        live_timer_us: 0,
        snapshot: false,
        identity: Some(SessionIdentity {
            base_path: RelativePath::default(),
            name_has_creation_time: false,
            sessiond: SessiondUuid([7; 16]),
            sessiond_session: SessiondSessionId::new(1),
            created: UnixSeconds::new(CREATED),
            current_chunk: None,
            trace_format: Some(TraceFormat::Ctf1_8),
        }),
    }
}

/// A control connection after `VERSION`.
pub(crate) fn greet(relay: &Relay) -> Control {
    let mut control = Control::connect(relay.control_addr(), ProtocolMinor::OURS);
    assert_eq!(control.ask(&Request::Version(Version::OURS)), Reply::Version(Version::OURS));
    control
}

impl Producer {
    pub(crate) fn new(relay: &Relay, create: CreateSession) -> Self {
        Self::at(relay.control_addr(), relay.data_addr(), create)
    }

    pub(crate) fn at(control: SocketAddr, data: SocketAddr, create: CreateSession) -> Self {
        let control = Control::connect(control, ProtocolMinor::OURS);
        Self::over(control, || TcpStream::connect(data).unwrap(), create)
    }

    /// One that speaks protocol 2.10: it names HOST/SESSION with each stream.
    pub(crate) fn old(relay: &Relay, host: &str, name: &str) -> Self {
        let mut control = Control::connect(relay.control_addr(), ProtocolMinor(10));
        let version = Version { minor: control.minor, ..Version::OURS };
        assert_eq!(control.ask(&Request::Version(version)), Reply::Version(Version::OURS));
        let hostname = Some(Name::new(host).unwrap());
        let create = CreateSession { hostname, identity: None, ..session(name) };
        let Reply::Session(reply) = control.ask(&Request::CreateSession(create)) else {
            panic!("a session reply");
        };
        assert_eq!(reply.code, ReturnCode::OK);
        let data = TcpStream::connect(relay.data_addr()).unwrap();
        Self { control, data, session: reply.session, folder: RelativePath::default() }
    }

    /// A stream of such a producer.
    pub(crate) fn old_stream(&mut self, channel: &str, folder: &str) -> StreamHandle {
        let request =
            Request::AddStream(AddStream { chunk: None, ..add_stream(channel, folder, 0) });
        let Reply::Stream(reply) = self.control.ask(&request) else { panic!("a stream reply") };
        assert_eq!(reply.code, ReturnCode::OK);
        reply.handle
    }

    /// The header and bytes of a packet: 100 bytes of its number and 28 of padding.
    pub(crate) fn packet_bytes(stream: StreamHandle, number: u64) -> Vec<u8> {
        Self::packet_with(stream, NetSeqNum::new(number), number)
    }

    fn packet_with(stream: StreamHandle, net_seq_num: NetSeqNum, content: u64) -> Vec<u8> {
        let header = DataHeader { stream, net_seq_num, data_len: 100, padding_len: 28 };
        [header.encode().as_slice(), &packet(content)[..100]].concat()
    }
}

impl<S: Read + Write> Producer<S> {
    /// Over a control connection that is there; the data connection comes after the session.
    pub(crate) fn over(
        mut control: Control<S>,
        data: impl FnOnce() -> S,
        create: CreateSession,
    ) -> Self {
        assert_eq!(control.ask(&Request::Version(Version::OURS)), Reply::Version(Version::OURS));
        let Reply::Session(reply) = control.ask(&Request::CreateSession(create)) else {
            panic!("a session reply");
        };
        assert_eq!(reply.code, ReturnCode::OK);
        let data = data();
        Self { control, data, session: reply.session, folder: reply.output_path.unwrap() }
    }

    /// Sends a request that must work.
    pub(crate) fn ok(&mut self, request: &Request<'_>) {
        assert_eq!(self.code(request), ReturnCode::OK, "{request:?}");
    }

    pub(crate) fn code(&mut self, request: &Request<'_>) -> ReturnCode {
        match self.control.ask(request) {
            Reply::Plain(ReturnReply(code)) => code,
            Reply::Stream(reply) => reply.code,
            Reply::Closed(reply) => reply.code,
            other => panic!("{other:?} to {request:?}"),
        }
    }

    pub(crate) fn chunk(&mut self, id: u64) {
        self.ok(&Request::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId::new(id),
            created: UnixSeconds::new(CREATED + id),
            override_name: None,
        }));
    }

    pub(crate) fn stream(&mut self, channel: &str, chunk: u64) -> StreamHandle {
        let request = add_stream(channel, STREAM_PATH, chunk);
        let Reply::Stream(reply) = self.control.ask(&Request::AddStream(request)) else {
            panic!("a stream reply");
        };
        assert_eq!(reply.code, ReturnCode::OK);
        reply.handle
    }

    pub(crate) fn packet(&mut self, stream: StreamHandle, number: u64) {
        self.data.write_all(&Producer::packet_bytes(stream, number)).unwrap();
        self.data.flush().unwrap();
    }

    pub(crate) fn index(&mut self, stream: StreamHandle, number: u64) {
        self.ok(&Request::SendIndex(index(stream, number)));
    }

    /// Sends a packet with the content of another number, and its entry; says whether it was acknowledged.
    pub(crate) fn try_packet(
        &mut self,
        stream: StreamHandle,
        number: NetSeqNum,
        content: u64,
    ) -> bool {
        let bytes = Producer::packet_with(stream, number, content);
        let mut request = Vec::new();
        Request::SendIndex(index(stream, number.get()))
            .encode(self.control.minor, &mut request)
            .unwrap();
        let sent =
            self.data.write_all(&bytes).and_then(|()| self.control.socket.write_all(&request));
        let mut reply = [0; 4];
        sent.and_then(|()| self.control.socket.read_exact(&mut reply)).is_ok()
            && reply == ReturnCode::OK.0.to_be_bytes()
    }

    pub(crate) fn metadata(&mut self, handle: StreamHandle, bytes: &[u8]) {
        let request = Request::SendMetadata(SendMetadata { handle, padding_len: 0, bytes });
        assert_eq!(self.control.ask(&request), Reply::None);
    }

    pub(crate) fn rotate(&mut self, new_chunk: Option<u64>, positions: &[(StreamHandle, u64)]) {
        self.ok(&rotate(new_chunk, positions));
    }

    pub(crate) fn close_chunk(&mut self, chunk: u64, action: Option<CloseAction>) {
        self.ok(&close_chunk(chunk, action));
    }

    pub(crate) fn close_stream(&mut self, handle: StreamHandle, last: NetSeqNum) {
        self.ok(&Request::CloseStream(CloseStream { handle, last }));
    }

    pub(crate) fn exists(&mut self, chunk: u64) -> bool {
        let request = Request::TraceChunkExists(TraceChunkExists { chunk: ChunkId::new(chunk) });
        match self.control.ask(&request) {
            Reply::Exists(reply) => {
                assert_eq!(reply.code, ReturnCode::OK);
                reply.exists
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn add_stream(channel: &str, folder: &str, chunk: u64) -> AddStream {
    AddStream {
        channel: Name::new(channel).unwrap(),
        path: path(folder),
        tracefile: None,
        chunk: Some(ChunkId::new(chunk)),
    }
}

pub(crate) fn rotate(new: Option<u64>, positions: &[(StreamHandle, u64)]) -> Request<'static> {
    let positions = positions.iter();
    Request::RotateStreams(RotateStreams {
        new_chunk: new.map(ChunkId::new),
        positions: positions
            .map(|(handle, at)| StreamPosition {
                handle: *handle,
                rotate_at: PacketSeqNum::new(*at),
            })
            .collect(),
    })
}

pub(crate) fn close_chunk(chunk: u64, action: Option<CloseAction>) -> Request<'static> {
    Request::CloseTraceChunk(CloseTraceChunk {
        chunk: ChunkId::new(chunk),
        closed: UnixSeconds::new(CREATED + chunk + 1),
        action,
    })
}

/// The entry of a packet; its net and packet sequence numbers are the same.
pub(crate) fn index(handle: StreamHandle, number: u64) -> PacketIndex {
    PacketIndex {
        handle,
        net_seq_num: NetSeqNum::new(number),
        packet_size_bits: 128 * 8,
        content_size_bits: 100 * 8,
        timestamp_begin: number,
        timestamp_end: number + 1,
        events_discarded: 0,
        stream_class_id: 0,
        full: Some(FullIndexFields {
            stream_instance_id: 0,
            packet_seq_num: PacketSeqNum::new(number),
        }),
    }
}

/// A packet as it lies on the disk.
pub(crate) fn packet(number: u64) -> [u8; 128] {
    let mut packet = [0; 128];
    packet[..100].fill(u8::try_from(number + 1).unwrap());
    packet
}

/// Packets one after the other as they lie on the disk.
pub(crate) fn packets(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(packet).collect()
}

/// (offset, packet sequence number) of each record of an index file.
pub(crate) fn records(file: &Path) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(file).unwrap();
    let word = |record: &[u8], at: usize| {
        u64::from_be_bytes(*record.get(at..).unwrap().first_chunk().unwrap())
    };
    assert_eq!(bytes.get(..8).unwrap(), [0xC1, 0xF1, 0xDC, 0xC1, 0, 0, 0, 1]);
    bytes.get(16..).unwrap().chunks_exact(72).map(|r| (word(r, 0), word(r, 64))).collect()
}
