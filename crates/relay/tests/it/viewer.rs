//! The port for viewers with scripted producers and viewers: places, chunks that move, what real peers rarely do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use relay::{Config, Keep, Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::viewer::{
    AttachReply, AttachSession, Connect, CreateViewerSessionReply, DetachReply, Flags, GetPacket,
    Header, MetadataReply, NewStreamsReply, NextIndex, NextIndexReply, PacketEntry, PacketPiece,
    PacketReply, Request, Seek, SessionEntry, StreamEntry,
};
use wire::live::{
    CloseAction, CreateSession, DataHeader, Decoded, NetSeqNum, PacketIndex, ProtocolMinor,
    Request as Order, ResetMetadata, StreamHandle, TraceFormat, TracefileLimit, Version,
    ViewedSessionId, ViewedStreamId, ViewerSessionId,
};

use crate::client::shown;
use crate::disk::wait_until;
use crate::producer::{
    Producer, STREAM_PATH, add_stream, index, packet, session, start, start_with,
};
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
    fn new() -> Self {
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

    fn send_metadata(&mut self, bytes: &[u8]) {
        self.producer.metadata(self.metadata, bytes);
        self.producer.ok(&Order::StreamsSent);
    }

    fn beacon(&mut self, sent: u64, until: u64) {
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
    socket: TcpStream,
    minor: ProtocolMinor,
    session: Option<ViewedSessionId>,
}

impl Viewer {
    fn open(relay: &Relay) -> Self {
        Self::open_at(relay.viewers_addr())
    }

    fn open_at(relay: SocketAddr) -> Self {
        let socket = TcpStream::connect(relay).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, minor: ProtocolMinor::OURS, session: None }
    }

    /// Says the version; `None` when the relay has no place.
    fn try_connect(&mut self) -> Option<Connect> {
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

    fn next_entry(&mut self, stream: ViewedStreamId) -> PacketEntry {
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
    fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn connect(version: Version) -> Request {
    let viewer_session = ViewerSessionId::NONE;
    Request::Connect(Connect { viewer_session, version, kind: Connect::COMMAND })
}

fn whole(number: u64) -> (PacketPiece, Vec<u8>) {
    (PacketPiece::Bytes(128), packet(number).to_vec())
}

#[test]
fn each_viewer_reads_at_its_own_place() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut early = setup.attach(Seek::Beginning);
    let mut late = setup.attach(Seek::Last);
    assert_eq!(early.sessions().first().unwrap().viewers, 2);
    assert_eq!(early.read_on(stream), [0, 1, 2]);
    assert_eq!(late.read_on(stream), [0; 0]);
    setup.send(3..5);
    assert_eq!(late.read_on(stream), [3, 4]);
    assert_eq!(early.read_on(stream), [3, 4]);
    assert_eq!(late.next(stream).index, NextIndex::NotYet);
    setup.beacon(4, 90);
    let inactive = NextIndex::Inactive { until: 90, stream_class_id: 0 };
    assert_eq!(late.next(stream).index, inactive);
    let session = late.session.unwrap();
    assert_eq!(late.ask(&Request::DetachSession(session)), Reply::Detached(DetachReply::Detached));
    assert_eq!(late.ask(&Request::DetachSession(session)), Reply::Detached(DetachReply::Unknown));
    assert_eq!(early.sessions().first().unwrap().viewers, 1);
    setup.end();
}

#[test]
fn a_viewer_reads_on_through_chunks_that_are_moved() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.rotate(0, 3, CloseAction::MoveToArchives);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0), "announced, then moved");
    setup.send(3..5);
    setup.rotate(1, 5, CloseAction::MoveToArchives);
    setup.send(5..6);
    assert_eq!(viewer.read_on(stream), [1, 2, 3, 4, 5]);
    assert_eq!(viewer.metadata(setup.metadata), b"", "the same metadata again are not sent again");
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), [0, 1, 2, 3, 4, 5]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

#[test]
fn packets_that_ran_ahead_of_a_rotation_are_read_where_they_go() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..4);
    let mut viewer = setup.attach(Seek::Beginning);
    for number in 0..3 {
        assert_eq!(viewer.next_entry(stream).timestamp_begin, number);
    }
    // Packet 2 was announced in the file it now leaves.
    setup.rotate(0, 2, CloseAction::MoveToArchives);
    assert_eq!(viewer.bytes(stream, 256, 128), whole(2));
    assert_eq!(viewer.read_on(stream), [3]);
    setup.end();
}

#[test]
fn a_packet_that_moves_while_it_is_sent_is_sent_to_its_end() {
    const LEN: u32 = 32 << 20;
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..1);
    let bytes: Vec<u8> = (0..LEN / 4).flat_map(u32::to_le_bytes).collect();
    let net_seq_num = NetSeqNum::new(1);
    let header = DataHeader { stream: setup.stream, net_seq_num, data_len: LEN, padding_len: 0 };
    setup.producer.data.write_all(&header.encode()).unwrap();
    setup.producer.data.write_all(&bytes).unwrap();
    let packet_size_bits = u64::from(LEN) * 8;
    let entry = PacketIndex { packet_size_bits, ..index(setup.stream, 1) };
    setup.producer.ok(&Order::SendIndex(entry));
    let mut viewer = setup.attach(Seek::Beginning);
    assert_eq!(viewer.next_entry(stream).timestamp_begin, 0);
    let offset_bytes = viewer.next_entry(stream).offset_bytes;
    let request = Request::GetPacket(GetPacket { stream, offset_bytes, len_bytes: LEN });
    let mut asked = Vec::new();
    request.encode(&mut asked);
    viewer.socket.write_all(&asked).unwrap();
    // Much of it is not sent while nobody reads.
    viewer.socket.peek(&mut [0]).unwrap();
    setup.rotate(0, 1, CloseAction::MoveToArchives);
    let Reply::Packet(reply, got) = viewer.socket.reply(&request, viewer.minor) else {
        panic!("a packet")
    };
    assert_eq!(reply.piece, PacketPiece::Bytes(LEN));
    assert!(got == bytes, "other bytes");
    setup.end();
}

#[test]
fn what_was_cleared_is_missed_but_what_was_announced_is_not() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.rotate(0, 3, CloseAction::Delete);
    setup.send(3..5);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0));
    assert_eq!(viewer.read_on(stream), [3, 4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 2);
    setup.end();
}

#[test]
fn chunks_that_a_viewer_has_still_to_read_are_kept_until_it_has() {
    let keep = Keep { age: Some(Duration::from_millis(20)), bytes: None };
    let mut setup = Setup::configured(live(), |config| config.keep = keep);
    let stream = setup.viewed();
    setup.send(0..2);
    let mut viewer = setup.attach(Seek::Beginning);
    setup.rotate(0, 2, CloseAction::MoveToArchives);
    setup.send(2..4);
    setup.rotate(1, 4, CloseAction::MoveToArchives);
    setup.send(4..5);
    assert_eq!(viewer.next_entry(stream).timestamp_begin, 0);
    // Another session's chunk is sealed later, and is not held.
    let mut other = session("other");
    other.identity.as_mut().unwrap().sessiond.0 = [9; 16];
    let mut producer = Producer::new(&setup.relay, other);
    producer.chunk(0);
    let handle = producer.stream("ch_0", 0);
    producer.packet(handle, 0);
    producer.index(handle, 0);
    producer.rotate(None, &[(handle, 1)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("the other chunk to go", || setup.relay.totals().chunks_expired == 1);

    assert_eq!(viewer.next_entry(stream).timestamp_begin, 1);
    assert_eq!(viewer.next_entry(stream).timestamp_begin, 2);
    wait_until("the first chunk to go", || setup.relay.totals().chunks_expired == 2);
    assert_eq!(viewer.read_on(stream), [3, 4]);
    wait_until("the second chunk to go", || setup.relay.totals().chunks_expired == 3);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.rotate(2, 5, CloseAction::MoveToArchives);
    setup.send(5..6);
    assert_eq!(viewer.read_on(stream), [5]);
    wait_until("all sealed chunks to go", || setup.relay.totals().chunks_expired == 4);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), [5]);
    setup.end();
}

/// Two sealed chunks with two packets each and an open one, before a viewer that began at the first and asks for none.
fn three_chunks_before_a_silent_viewer(config: impl FnOnce(&mut relay::Config)) -> (Setup, Viewer) {
    let mut setup = Setup::configured(live(), config);
    setup.send(0..2);
    let viewer = setup.attach(Seek::Beginning);
    setup.rotate(0, 2, CloseAction::MoveToArchives);
    setup.send(2..4);
    setup.rotate(1, 4, CloseAction::MoveToArchives);
    setup.send(4..5);
    (setup, viewer)
}

#[test]
fn a_viewer_that_does_not_move_holds_chunks_for_a_while_only() {
    let (setup, mut viewer) = three_chunks_before_a_silent_viewer(|config| {
        config.keep = Keep { age: Some(Duration::from_millis(20)), bytes: None };
        config.limits.viewer_hold = Duration::from_millis(500);
    });
    wait_until("both sealed chunks to go", || setup.relay.totals().chunks_expired == 2);
    let stream = setup.viewed();
    assert_eq!(viewer.read_on(stream), [4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 4);
    setup.end();
}

#[test]
fn chunks_that_are_too_large_together_go_whoever_views_them() {
    let (setup, mut viewer) = three_chunks_before_a_silent_viewer(|config| {
        config.keep = Keep { age: None, bytes: Some(0) };
    });
    wait_until("both sealed chunks to go", || setup.relay.totals().chunks_expired == 2);
    let stream = setup.viewed();
    assert_eq!(viewer.read_on(stream), [4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 4);
    setup.end();
}

#[test]
fn a_viewer_that_a_ring_of_trace_files_overtook_goes_on_at_its_oldest() {
    let mut setup = Setup::new();
    let mut request = add_stream("ring_0", STREAM_PATH, 0);
    // One packet a file, three files.
    request.tracefile = Some(TracefileLimit { size_bytes: 128, count: Some(3) });
    let crate::client::Reply::Stream(reply) =
        setup.producer.control.ask(&Order::AddStream(request))
    else {
        panic!("a stream")
    };
    setup.producer.ok(&Order::StreamsSent);
    setup.stream = reply.handle;
    let stream = setup.viewed();
    setup.send(0..2);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.send(2..7);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0), "announced before");
    assert_eq!(viewer.read_on(stream), [4, 5, 6]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 3);
    setup.end();
}

/// Four packets in memory; the others are on the disk.
fn little_memory() -> Limits {
    Limits { viewed_packets_per_stream: 4, ..Limits::default() }
}

#[test]
fn what_is_not_in_memory_is_read_from_the_chunks() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..1);
    let mut early = setup.attach(Seek::Beginning);
    assert_eq!(early.next_entry(stream).timestamp_begin, 0);
    setup.send(1..70);
    setup.rotate(0, 70, CloseAction::MoveToArchives);
    setup.send(70..75);
    let mut second = setup.attach(Seek::Beginning);
    let read = |viewer: &mut Viewer, count: u64| -> Vec<u64> {
        (0..count).map(|_| viewer.next_entry(stream).timestamp_begin).collect()
    };
    assert_eq!(read(&mut second, 40), (0..40).collect::<Vec<_>>());
    // Its chunks move while it stands in them.
    setup.rotate(1, 75, CloseAction::MoveToArchives);
    setup.send(75..76);
    setup.rotate(2, 76, CloseAction::MoveToArchives);
    assert_eq!(second.read_on(stream), (40..76).collect::<Vec<_>>());
    assert_eq!(early.read_on(stream), (1..76).collect::<Vec<_>>());
    setup.send(76..90);
    for viewer in [&mut early, &mut second] {
        assert_eq!(viewer.read_on(stream), (76..90).collect::<Vec<_>>(), "at the seam");
    }
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (0..90).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

#[test]
fn chunks_that_were_compressed_are_read_on() {
    let mut setup = Setup::configured(live(), |config| {
        config.limits = little_memory();
        config.compress = Some("zstd".parse().unwrap());
    });
    let stream = setup.viewed();
    setup.send(0..40);
    // One stands in the file that goes, one comes later.
    let mut early = setup.attach(Seek::Beginning);
    assert_eq!(early.next_entry(stream).timestamp_begin, 0);
    setup.rotate(0, 40, CloseAction::MoveToArchives);
    wait_until("compression", || setup.relay.totals().chunks_compressed == 1);
    assert_eq!(early.bytes(stream, 0, 128), whole(0));
    setup.send(40..60);
    setup.rotate(1, 60, CloseAction::MoveToArchives);
    wait_until("compression", || setup.relay.totals().chunks_compressed == 2);
    setup.send(60..65);
    assert_eq!(early.read_on(stream), (1..65).collect::<Vec<_>>());
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (0..65).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

#[test]
fn what_was_announced_from_the_disk_is_given_whatever_becomes_of_its_chunk() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..40);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.rotate(0, 40, CloseAction::Delete);
    setup.send(40..50);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0));
    assert_eq!(viewer.read_on(stream), (40..50).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 39);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (40..50).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 39, "they were gone before");
    setup.end();
}

#[test]
fn packets_that_ran_ahead_are_read_from_the_disk_where_they_go() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..30);
    let mut viewer = setup.attach(Seek::Beginning);
    for number in 0..12 {
        assert_eq!(viewer.next_entry(stream).timestamp_begin, number);
    }
    // Packet 11 was announced in the file that it and what was read ahead now leave.
    setup.rotate(0, 10, CloseAction::MoveToArchives);
    assert_eq!(viewer.bytes(stream, 11 * 128, 128), whole(11));
    assert_eq!(viewer.read_on(stream), (12..30).collect::<Vec<_>>());
    setup.end();
}

#[test]
fn an_index_that_cannot_be_read_costs_its_packets_and_not_the_viewer() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..20);
    setup.rotate(0, 20, CloseAction::MoveToArchives);
    setup.send(20..30);
    let archives = setup.relay.root().join(setup.producer.folder.as_path()).join("archives");
    let chunk = std::fs::read_dir(&archives).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(chunk.join(STREAM_PATH).join("index/ch_0.idx")).unwrap();
    let mut viewer = setup.attach(Seek::Beginning);
    wait_until(
        "what can be read",
        || matches!(viewer.next(stream).index, NextIndex::Packet(entry) if entry.timestamp_begin == 20),
    );
    assert_eq!(viewer.read_on(stream), (21..30).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 20);
    setup.end();
}

#[test]
fn history_is_bounded_by_its_files_and_what_is_beyond_is_counted() {
    let limits = Limits { viewed_files_per_stream: 2, ..little_memory() };
    let mut setup = Setup::with(live(), limits);
    let stream = setup.viewed();
    setup.send(0..1);
    let mut viewer = setup.attach(Seek::Beginning);
    setup.send(1..10);
    setup.rotate(0, 10, CloseAction::MoveToArchives);
    setup.send(10..20);
    setup.rotate(1, 20, CloseAction::MoveToArchives);
    setup.send(20..30);
    assert_eq!(viewer.read_on(stream), (10..30).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 10);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (10..30).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 10);
    setup.end();
}

#[test]
fn streams_are_seen_once_they_are_announced() {
    let mut setup = Setup::new();
    let old = setup.viewed();
    setup.send(0..1);
    let mut viewer = setup.attach(Seek::Last);
    assert_eq!(viewer.next(old).flags, Flags::NEW_STREAMS);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    assert_eq!(viewer.next(old).flags, Flags::NONE);

    let late = setup.producer.stream("ch_1", 0);
    assert_eq!(viewer.sessions().first().unwrap().streams, 2);
    assert_eq!(viewer.next(old).flags, Flags::NONE);
    setup.stream = late;
    setup.send(0..2);
    setup.producer.ok(&Order::StreamsSent);
    let asked = [viewer.next(old).flags, viewer.next(old).flags];
    assert_eq!(asked, [Flags::NEW_STREAMS; 2], "said until it is asked for");
    let Reply::Streams(NewStreamsReply::Streams(1), streams) = viewer.new_streams() else {
        panic!("the new stream")
    };
    let [entry] = streams.as_slice() else { panic!("{streams:?}") };
    assert_eq!((entry.path.as_str(), entry.channel.as_str()), (STREAM_PATH, "ch_1"));
    assert_eq!(viewer.read_on(entry.stream), [0, 1], "from its beginning");

    // Before 2.15 only packets carry flags.
    let mut older = Viewer::connect(&setup.relay, 4);
    let session = older.sessions().first().unwrap().session;
    assert_eq!(older.attach(session, Seek::Last).len(), 3);
    let said = older.next(old);
    assert_eq!((said.index, said.flags), (NextIndex::NotYet, Flags::NONE));
    setup.end();
}

#[test]
fn time_stands_for_a_viewer_that_does_not_know_all_streams() {
    let mut setup = Setup::new();
    let (old, known) = (setup.stream, setup.viewed());
    let mut viewer = setup.attach(Seek::Beginning);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    setup.beacon(u64::MAX, 10);
    assert!(matches!(viewer.next(known).index, NextIndex::Inactive { until: 10, .. }));

    let late = setup.producer.stream("ch_1", 0);
    setup.stream = late;
    setup.send([20]);
    setup.producer.ok(&Order::StreamsSent);
    setup.stream = old;
    setup.beacon(u64::MAX, 90);
    let reply = viewer.next(known);
    assert_eq!(
        (reply.index, reply.flags),
        (NextIndex::NotYet, Flags::NEW_STREAMS),
        "20 is to come"
    );
    let Reply::Streams(NewStreamsReply::Streams(1), streams) = viewer.new_streams() else {
        panic!("the new stream")
    };
    assert!(matches!(viewer.next(known).index, NextIndex::Inactive { until: 90, .. }));
    assert_eq!(viewer.read_on(streams.first().unwrap().stream), [20]);
    setup.end();
}

#[test]
fn metadata_come_whole_and_before_what_they_describe() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    let mut viewer = setup.attach(Seek::Beginning);
    viewer.new_streams();
    setup.send_metadata(b"\nevent { id = 1");
    assert_eq!(viewer.metadata(setup.metadata), b"\n");
    setup.send_metadata(b"; };");
    setup.send(0..1);
    let reply = viewer.next(stream);
    assert!(matches!(reply.index, NextIndex::Packet(_)));
    assert_eq!(reply.flags, Flags::NEW_METADATA);
    assert_eq!(viewer.metadata(setup.metadata), b"event { id = 1; };");
    assert_eq!(viewer.metadata(setup.metadata), b"");
    setup.send(1..2);
    assert_eq!(viewer.next(stream).flags, Flags::NONE);

    // Replaced by others: who has the old ones keeps them, who comes gets the others.
    let (handle, version) = (setup.metadata, 1);
    setup.producer.ok(&Order::ResetMetadata(ResetMetadata { handle, version }));
    assert_eq!(viewer.metadata(setup.metadata), b"");
    setup.send_metadata(METADATA);
    assert_eq!(viewer.metadata(setup.metadata), b"");
    let mut other = setup.attach(Seek::Last);
    setup.send_metadata(b"event { id = 1; }; event { id = 2; }; event { id = 3; };");
    setup.send(2..3);
    assert_eq!(viewer.next(stream).flags, Flags::NONE);
    assert_eq!(viewer.metadata(setup.metadata), b"");
    assert!(other.next(stream).flags.contains(Flags::NEW_METADATA));
    assert!(other.metadata(setup.metadata).ends_with(b"{ id = 3; };"));
    setup.end();
}

#[test]
fn packets_without_metadata_wait() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, live());
    producer.chunk(0);
    let handle = producer.stream("ch_0", 0);
    let metadata = producer.stream("metadata", 0);
    producer.ok(&Order::StreamsSent);
    producer.packet(handle, 0);
    producer.index(handle, 0);
    let mut viewer = Viewer::connect(&relay, 15);
    let session = viewer.sessions().first().unwrap().session;
    viewer.attach(session, Seek::Beginning);
    let stream = shown(handle);
    assert_eq!(viewer.next(stream).index, NextIndex::NotYet);
    producer.metadata(metadata, METADATA);
    producer.ok(&Order::StreamsSent);
    assert_eq!(viewer.metadata(metadata), METADATA);
    assert_eq!(viewer.read_on(stream), [0]);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_packet_that_breaks_a_promise_is_withheld_from_those_who_heard_it() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    let mut viewer = setup.attach(Seek::Beginning);
    setup.beacon(u64::MAX, 50);
    assert!(matches!(viewer.next(stream).index, NextIndex::Inactive { until: 50, .. }));
    setup.send([40, 60]);
    assert_eq!(viewer.read_on(stream), [60]);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), [40, 60]);
    let totals = setup.relay.totals();
    assert_eq!((totals.promises_broken, totals.packets_withheld), (1, 1));
    setup.end();
}

#[test]
fn a_session_without_timer_speaks_for_streams_that_are_silent() {
    let grace = Duration::from_millis(300);
    let limits = Limits { untimed_grace: grace, ..Limits::default() };
    let mut setup = Setup::with(session("s"), limits);
    let silent = setup.producer.stream("ch_1", 0);
    setup.producer.ok(&Order::StreamsSent);
    let mut viewer = setup.attach(Seek::Beginning);
    let before = Instant::now();
    setup.send(0..3);
    let stream = setup.viewed();
    let entry = wait_for(|| match viewer.next(stream).index {
        NextIndex::Packet(entry) => Some(entry),
        _ => None,
    });
    assert_eq!(entry.timestamp_begin, 0);
    assert!(before.elapsed() >= grace, "metadata had time to come");
    // The stream that never had a packet: the class of its channel, the time of the other.
    // The packets may have come at some distance from each other, and then it speaks for each.
    let said = wait_for(|| match viewer.next(shown(silent)).index {
        NextIndex::NotYet | NextIndex::Inactive { until: 1..3, .. } => None,
        said => Some(said),
    });
    assert_eq!(said, NextIndex::Inactive { until: 3, stream_class_id: 0 });
    setup.end();
}

/// Waits until there is something.
fn wait_for<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until("an answer", || {
        found = found.take().or_else(&mut find);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_session_that_ended_is_read_to_its_end() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    viewer.new_streams();
    setup.producer.rotate(None, &[(setup.stream, 3)]);
    setup.producer.rotate(None, &[(setup.metadata, 0)]);
    setup.producer.close_chunk(0, None);
    setup.producer.close_stream(setup.stream, NetSeqNum::new(2));
    setup.producer.close_stream(setup.metadata, NetSeqNum::NONE);
    setup.producer.control.end();
    setup.producer.data.shutdown(Shutdown::Write).unwrap();
    let mut lister = Viewer::connect(&setup.relay, 15);
    wait_until("the session's end", || lister.sessions().is_empty());
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    assert_eq!(viewer.read_on(stream), [0, 1, 2]);
    assert_eq!(viewer.next(stream).index, NextIndex::HangUp);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::HangUp, Vec::new()));
    let session = viewer.session.unwrap();
    let attach = Request::AttachSession(AttachSession { session, seek: Seek::Last });
    assert_eq!(lister.ask(&attach), Reply::Attached(AttachReply::Unknown, Vec::new()));
    setup.end();
}

#[test]
fn what_makes_no_sense_is_answered_with_an_error() {
    let mut setup = Setup::new();
    setup.send(0..2);
    let stream = setup.viewed();
    let mut viewer = Viewer::open(&setup.relay);
    let version = Version { major: 2, minor: ProtocolMinor(15) };
    viewer.ask(&connect(version));
    let session = viewer.sessions().first().unwrap().session;
    let attach = |session| Request::AttachSession(AttachSession { session, seek: Seek::Beginning });
    let refused = |reply| Reply::Attached(reply, Vec::new());
    assert_eq!(viewer.ask(&attach(session)), refused(AttachReply::NoViewerSession));
    viewer.ask(&Request::CreateSession);
    let nowhere = ViewedSessionId::new(u64::MAX);
    assert_eq!(viewer.ask(&attach(nowhere)), refused(AttachReply::Unknown));
    assert_eq!(viewer.next(stream).index, NextIndex::Failed, "not attached");
    assert_eq!(viewer.bytes(stream, 0, 128).0, PacketPiece::Failed);
    let metadata = Request::GetMetadata(shown(setup.metadata));
    assert_eq!(viewer.ask(&metadata), Reply::Metadata(MetadataReply::Failed, Vec::new()));
    let streams = Request::GetNewStreams(session);
    assert_eq!(viewer.ask(&streams), Reply::Streams(NewStreamsReply::Failed, Vec::new()));

    let mut bad_seek = Vec::new();
    attach(session).encode(&mut bad_seek);
    *bad_seek.last_mut().unwrap() = 9;
    viewer.socket.write_all(&bad_seek).unwrap();
    let minor = viewer.minor;
    assert_eq!(viewer.socket.reply(&attach(session), minor), refused(AttachReply::BadSeek));

    viewer.attach(session, Seek::Beginning);
    assert_eq!(viewer.ask(&attach(session)), refused(AttachReply::Taken));
    assert_eq!(viewer.bytes(stream, 0, 128).0, PacketPiece::Failed, "nothing was announced");
    assert_eq!(viewer.next_entry(stream).offset_bytes, 0);
    for (offset, len) in [(0, 129), (128, 1), (1, 128), (0, 0), (u64::MAX, 1), (64, u32::MAX)] {
        assert_eq!(viewer.bytes(stream, offset, len).0, PacketPiece::Failed, "{offset} {len}");
    }
    assert_eq!(viewer.bytes(stream, 0, 128), whole(0));
    let (_, tail) = viewer.bytes(stream, 100, 28);
    assert_eq!(tail, [0; 28]);
    assert_eq!(viewer.next(ViewedStreamId::new(u64::MAX)).index, NextIndex::Failed);
    let data_stream = Request::GetMetadata(stream);
    assert_eq!(viewer.ask(&data_stream), Reply::Metadata(MetadataReply::Failed, Vec::new()));
    let metadata = shown(setup.metadata);
    assert_eq!(viewer.next(metadata).index, NextIndex::HangUp);
    setup.end();
}

#[test]
fn older_viewers_do_not_see_ctf_2() {
    let mut create = live();
    create.identity.as_mut().unwrap().trace_format = Some(TraceFormat::Ctf2);
    let setup = Setup::with(create, Limits::default());
    let seen = Viewer::connect(&setup.relay, 15).sessions();
    let [entry] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(entry.format, TraceFormat::Ctf2);
    let mut older = Viewer::connect(&setup.relay, 14);
    assert_eq!(older.sessions(), []);
    let request = AttachSession { session: entry.session, seek: Seek::Last };
    let refused = Reply::Attached(AttachReply::Unknown, Vec::new());
    assert_eq!(older.ask(&Request::AttachSession(request)), refused);
    setup.end();
}

#[test]
fn snapshots_are_not_listed() {
    let setup = Setup::new();
    let before = Viewer::connect(&setup.relay, 15).sessions();
    let create = CreateSession { snapshot: true, ..session("t") };
    let snapshot = Producer::new(&setup.relay, create);
    assert_eq!(Viewer::connect(&setup.relay, 15).sessions(), before);
    drop(snapshot);
    setup.end();
}

#[test]
fn viewers_have_a_bound() {
    let setup = Setup::with(live(), Limits { viewers: 2, ..Limits::default() });
    let first = Viewer::connect(&setup.relay, 15);
    let mut second = Viewer::connect(&setup.relay, 15);
    let mut one_too_many = Viewer::open(&setup.relay);
    let mut bytes = Vec::new();
    connect(Version::OURS).encode(&mut bytes);
    one_too_many.socket.write_all(&bytes).unwrap();
    assert!(one_too_many.is_closed());
    assert_eq!(setup.relay.totals().viewers_refused, 1);
    assert_eq!(second.sessions().len(), 1);
    drop(first);
    wait_until("the place of the first viewer", || {
        Viewer::open(&setup.relay).try_connect().is_some()
    });
    setup.end();
}

#[test]
fn a_viewer_that_follows_nothing_and_says_nothing_gives_up_its_place() {
    let viewer_idle = Duration::from_millis(300);
    let setup = Setup::with(live(), Limits { viewer_idle, viewers: 2, ..Limits::default() });
    let begin = Instant::now();
    let mut idle = Viewer::connect(&setup.relay, 15);
    let mut follower = setup.attach(Seek::Last);
    assert!(idle.is_closed());
    assert!(begin.elapsed() >= viewer_idle);
    wait_until("the place", || Viewer::open(&setup.relay).try_connect().is_some());
    // Who follows a session may wait for it.
    assert_eq!(follower.next(setup.viewed()).index, NextIndex::NotYet);
    setup.end();
}

#[test]
fn a_viewer_that_takes_nothing_holds_nobody_up() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..1);
    let mut idle = setup.attach(Seek::Beginning);
    idle.next_entry(stream);
    idle.socket.set_nonblocking(true).unwrap();
    let mut request = Vec::new();
    let all = GetPacket { stream, offset_bytes: 0, len_bytes: 128 };
    Request::GetPacket(all).encode(&mut request);
    // Replies are four times as long as requests, so the relay stops reading first.
    while idle.socket.write(&request.repeat(1000)).is_ok() {}
    setup.send(1..100);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (0..100).collect::<Vec<_>>());
    setup.end();
}

#[test]
fn a_connection_that_is_cut_or_speaks_nonsense_ends_alone() {
    let mut setup = Setup::new();
    setup.send(0..1);
    let mut conversation = Vec::new();
    let session = ViewedSessionId::new(1);
    for request in [
        connect(Version::OURS),
        Request::CreateSession,
        Request::ListSessions,
        Request::AttachSession(AttachSession { session, seek: Seek::Beginning }),
        Request::GetNextIndex(setup.viewed()),
    ] {
        request.encode(&mut conversation);
    }
    let end = |mut viewer: Viewer, bytes: &[u8]| {
        viewer.socket.write_all(bytes).unwrap();
        viewer.socket.shutdown(Shutdown::Write).unwrap();
        // Whatever is answered, then the end.
        let mut replies = Vec::new();
        drop(viewer.socket.read_to_end(&mut replies));
        replies.len()
    };
    let mut lens = Vec::new();
    for cut in 0..=conversation.len() {
        lens.push(end(Viewer::open(&setup.relay), &conversation[..cut]));
    }
    assert!(lens.is_sorted());
    assert_eq!(lens.first(), Some(&0));
    assert_eq!(lens.last(), Some(&(20 + 4 + 4 + 32 + 5 + 8 + 2 * 4371 + 64)));

    // Unknown command, long payload, other major version, asking before connecting.
    let mut unknown = [0; Header::LEN];
    unknown[11] = 99;
    assert_eq!(end(Viewer::open(&setup.relay), &unknown), 0);
    let mut long = [0xFF; Header::LEN];
    long[8..12].copy_from_slice(&[0, 0, 0, 1]);
    assert_eq!(end(Viewer::open(&setup.relay), &long), 0);
    let mut other = Vec::new();
    connect(Version { major: 3, minor: ProtocolMinor(0) }).encode(&mut other);
    assert_eq!(end(Viewer::open(&setup.relay), &other), Connect::LEN, "told, then closed");
    assert_eq!(end(Viewer::open(&setup.relay), &conversation[36..]), 0);

    assert_eq!(setup.attach(Seek::Beginning).read_on(setup.viewed()), [0]);
    setup.end();
}
