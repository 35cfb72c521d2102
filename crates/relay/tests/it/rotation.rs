//! Chunks and streams in orders a real producer shows rarely.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use relay::{Event, Limits, Relay, Sealed};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use wire::live::{
    ChunkId, CloseAction, CreateTraceChunk, DataPending, Name, NetSeqNum, PendingReply, Request,
    StreamHandle, UnixSeconds,
};

use crate::client::Reply;
use tracedir::manifest::{Manifest, SealedBy};

use crate::disk::{manifests, wait_until};
use crate::producer::{CREATED, Producer, STREAM_PATH, packets, records, session, start};

const CHUNK_0: &str = "archives/20261120T162218+0000-20261120T162219+0000-0/ust/uid/0/64-bit";
const CHUNK_1: &str = "archives/20261120T162219+0000-20261120T162220+0000-1/ust/uid/0/64-bit";

struct Setup {
    runtime: Runtime,
    relay: Relay,
    events: broadcast::Receiver<Event>,
    producer: Producer,
    root: tempfile::TempDir,
}

impl Setup {
    /// A session with chunk 0 and one stream in it.
    fn new() -> (Self, StreamHandle) {
        let runtime = Runtime::new().unwrap();
        let root = tempfile::tempdir().unwrap();
        // Some tests send entries before their packets.
        let limits = Limits { ack_patience: Duration::from_millis(5), ..Limits::default() };
        let relay = start(&runtime, root.path(), limits);
        let events = relay.subscribe();
        let mut producer = Producer::new(&relay, session("s"));
        producer.chunk(0);
        let stream = producer.stream("ch_0", 0);
        (Self { runtime, relay, events, producer, root }, stream)
    }

    fn wait_for_packets(&self, count: u64) {
        wait_until("packets arriving", || self.relay.totals().packets == count);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(self.producer.folder.as_path()).join(name)
    }

    /// Rotates out of chunk 1 and checks what both chunks hold.
    fn check_split(mut self, stream: StreamHandle, first: Vec<u64>, second: Vec<u64>) {
        self.producer.close_chunk(0, Some(CloseAction::MoveToArchives));
        let end = second.last().unwrap() + 1;
        self.producer.rotate(None, &[(stream, end)]);
        self.producer.close_chunk(1, Some(CloseAction::MoveToArchives));
        self.producer.close_stream(stream, NetSeqNum::new(end - 1));
        wait_until("both chunks", || !self.producer.exists(0) && !self.producer.exists(1));
        for (folder, numbers) in [(CHUNK_0, first), (CHUNK_1, second)] {
            let data = std::fs::read(self.file(&format!("{folder}/ch_0"))).unwrap();
            assert_eq!(data, packets(numbers.iter().copied()), "{folder}");
            let expected: Vec<(u64, u64)> =
                (0..).map(|n| n * 128).zip(numbers.iter().copied()).collect();
            assert_eq!(records(&self.file(&format!("{folder}/index/ch_0.idx"))), expected);
        }
        self.runtime.block_on(self.relay.shutdown());
    }

    fn next_sealed(&mut self) -> Sealed {
        let wait = async {
            loop {
                if let Event::Sealed(sealed) = self.events.recv().await.unwrap() {
                    return sealed;
                }
            }
        };
        let limit = Duration::from_secs(20);
        self.runtime.block_on(async { tokio::time::timeout(limit, wait).await }).unwrap()
    }
}

#[test]
fn packets_that_ran_ahead_move_to_the_new_chunk() {
    let (mut setup, stream) = Setup::new();
    for number in 0..4 {
        setup.producer.packet(stream, number);
    }
    setup.wait_for_packets(4);
    setup.producer.chunk(1);
    setup.producer.rotate(Some(1), &[(stream, 2)]);
    assert!(setup.producer.exists(0));
    for number in 0..4 {
        setup.producer.index(stream, number);
    }
    setup.check_split(stream, vec![0, 1], vec![2, 3]);
}

#[test]
fn packets_and_entries_committed_too_early_move_to_the_new_chunk() {
    let (mut setup, stream) = Setup::new();
    for number in 0..4 {
        setup.producer.packet(stream, number);
        setup.producer.index(stream, number);
    }
    setup.wait_for_packets(4);
    setup.producer.chunk(1);
    setup.producer.rotate(Some(1), &[(stream, 1)]);
    setup.check_split(stream, vec![0], vec![1, 2, 3]);
}

#[test]
fn entries_that_ran_ahead_wait_for_their_packets() {
    let (mut setup, stream) = Setup::new();
    setup.producer.chunk(1);
    setup.producer.rotate(Some(1), &[(stream, 1)]);
    for number in 0..3 {
        setup.producer.index(stream, number);
    }
    for number in 0..3 {
        setup.producer.packet(stream, number);
    }
    setup.wait_for_packets(3);
    setup.check_split(stream, vec![0], vec![1, 2]);
}

#[test]
fn a_rotation_in_the_middle_of_a_packet_waits_for_its_end() {
    let (mut setup, stream) = Setup::new();
    setup.producer.packet(stream, 0);
    setup.producer.index(stream, 0);
    setup.wait_for_packets(1);
    let bytes = Producer::packet_bytes(stream, 1);
    let (head, tail) = bytes.split_at(60);
    setup.producer.data.write_all(head).unwrap();
    let file = setup.file("ust/uid/0/64-bit/ch_0");
    wait_until("half a packet", || std::fs::metadata(&file).unwrap().len() > 128);
    setup.producer.chunk(1);
    setup.producer.rotate(Some(1), &[(stream, 1)]);
    setup.producer.index(stream, 1);
    assert!(setup.producer.exists(0));
    setup.producer.data.write_all(tail).unwrap();
    setup.wait_for_packets(2);
    setup.check_split(stream, vec![0], vec![1]);
}

#[test]
fn a_chunk_lives_until_the_last_consumer_daemon_has_left_it() {
    let (mut setup, stream) = Setup::new();
    let mut create = session("s");
    create.identity.as_mut().unwrap().current_chunk = Some(ChunkId::new(0));
    let mut sibling = Producer::new(&setup.relay, create);
    assert_eq!(sibling.folder, setup.producer.folder);
    sibling.chunk(0);
    let other = sibling.stream("ch_1", 0);
    for producer in [&mut setup.producer, &mut sibling] {
        producer.chunk(1);
    }
    setup.producer.rotate(Some(1), &[(stream, 0)]);
    setup.producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    assert!(setup.producer.exists(0));
    sibling.rotate(Some(1), &[(other, 0)]);
    sibling.close_chunk(0, Some(CloseAction::MoveToArchives));
    let sealed = setup.next_sealed();
    assert_eq!(sealed.chunk, ChunkId::new(0));
    assert_eq!(
        sealed.streams,
        [PathBuf::from("ust/uid/0/64-bit/ch_0"), PathBuf::from("ust/uid/0/64-bit/ch_1")]
    );
    assert!(!setup.producer.exists(0));
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn a_snapshot_is_complete_when_its_data_came_after_everything_else() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut create = session("s");
    create.snapshot = true;
    let mut producer = Producer::new(&relay, create);
    producer.ok(&Request::CreateTraceChunk(CreateTraceChunk {
        chunk: ChunkId::new(0),
        created: UnixSeconds::new(CREATED),
        override_name: Some(Name::new("snap-0").unwrap()),
    }));
    let stream = producer.stream("ch_0", 0);
    producer.close_stream(stream, NetSeqNum::new(6));
    producer.close_chunk(0, None);
    assert!(producer.exists(0));
    producer.control.end();
    assert!(producer.control.is_closed());
    producer.packet(stream, 5);
    producer.packet(stream, 6);
    let file = root.path().join(producer.folder.as_path()).join("snap-0/ust/uid/0/64-bit/ch_0");
    wait_until("the chunk", || relay.totals().chunks_sealed == 1);
    assert_eq!(std::fs::read(file).unwrap(), packets([5, 6]));
    assert_eq!(relay.totals().packets_without_index, 0);
    runtime.block_on(relay.shutdown());
}

#[test]
fn data_is_pending_until_packet_and_entry_are_there() {
    let (mut setup, stream) = Setup::new();
    let request = Request::DataPending(DataPending { handle: stream, last: NetSeqNum::new(0) });
    assert_eq!(setup.producer.control.ask(&request), Reply::Pending(PendingReply::Pending));
    setup.producer.packet(stream, 0);
    setup.wait_for_packets(1);
    assert_eq!(setup.producer.control.ask(&request), Reply::Pending(PendingReply::Pending));
    setup.producer.index(stream, 0);
    assert_eq!(setup.producer.control.ask(&request), Reply::Pending(PendingReply::Complete));

    let session = setup.producer.session;
    setup.producer.ok(&Request::BeginDataPending(session));
    let end = Request::EndDataPending(session);
    assert_eq!(setup.producer.control.ask(&end), Reply::Pending(PendingReply::Pending));
    assert_eq!(setup.producer.control.ask(&request), Reply::Pending(PendingReply::Complete));
    assert_eq!(setup.producer.control.ask(&end), Reply::Pending(PendingReply::Complete));
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn what_never_comes_is_given_up_and_counted() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let limits = Limits { pair_timeout: Duration::from_millis(1), ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let (data_only, index_only) = (producer.stream("a", 0), producer.stream("b", 0));
    producer.packet(data_only, 0);
    producer.index(index_only, 0);
    wait_until("both expiring", || {
        let totals = relay.totals();
        (totals.packets_without_index, totals.indexes_without_packet) == (1, 1)
    });
    producer.chunk(1);
    producer.rotate(Some(1), &[(data_only, 5)]);
    wait_until("the rotation", || relay.totals().rotations_forced == 1);
    runtime.block_on(relay.shutdown());
    // No metadata came: the manifests say so, and know the files.
    let manifests: Vec<Manifest> = manifests(root.path()).into_values().collect();
    let [first, second] = manifests.as_slice() else { panic!("{manifests:?}") };
    let lost: Vec<_> = first
        .losses
        .iter()
        .flat_map(|lost| {
            lost.places.iter().map(|place| (&*lost.stream, &*place.cause, place.count))
        })
        .collect();
    let (a, b) = (format!("{STREAM_PATH}/a"), format!("{STREAM_PATH}/b"));
    assert_eq!(lost, [(&*a, "index-never-came", 1), (&*b, "packet-never-came", 1)]);
    assert_eq!((first.origin.chunk, first.origin.sealed_by), (0, SealedBy::ProducerGone));
    assert_eq!(first.contents.totals.bytes, 128);
    assert_eq!((second.origin.chunk, &*second.losses), (1, &[][..]));
}

#[test]
fn a_session_whose_producer_vanished_is_sealed_where_it_stands() {
    let (mut setup, stream) = Setup::new();
    setup.producer.packet(stream, 0);
    setup.producer.index(stream, 0);
    setup.wait_for_packets(1);
    setup.producer.control.end();
    crate::client::end(&setup.producer.data);
    let sealed = setup.next_sealed();
    assert_eq!(sealed.end, None);
    assert_eq!(sealed.folder, sealed.recording.folder);
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn a_shutdown_seals_what_is_open() {
    let (setup, _) = Setup::new();
    let mut events = setup.events;
    setup.runtime.block_on(setup.relay.shutdown());
    let told: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert!(matches!(
        told.as_slice(),
        [Event::SessionOpened(_), Event::Sealed(Sealed { end: None, .. }), Event::SessionClosed(_)]
    ));
}

#[test]
fn cleared_before_the_first_rotation_the_session_keeps_its_folder() {
    let (mut setup, stream) = Setup::new();
    setup.producer.packet(stream, 0);
    setup.producer.index(stream, 0);
    setup.wait_for_packets(1);
    setup.producer.chunk(1);
    setup.producer.rotate(Some(1), &[(stream, 1)]);
    setup.producer.close_chunk(0, Some(CloseAction::Delete));
    setup.producer.packet(stream, 1);
    setup.producer.index(stream, 1);
    setup.wait_for_packets(2);
    let file = setup.file("ust/uid/0/64-bit/ch_0");
    assert_eq!(std::fs::read(file).unwrap(), packets([1]));
    let inside = std::fs::read_dir(setup.file("")).unwrap().count();
    assert_eq!(inside, 1);
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn many_streams_are_recorded_with_few_open_files() {
    const STREAMS: u64 = 40;
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits { open_files: 3, ..Limits::default() });
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let names: Vec<String> = (0..STREAMS).map(|number| format!("ch_{number}")).collect();
    let streams: Vec<StreamHandle> = names.iter().map(|name| producer.stream(name, 0)).collect();
    let metadata = producer.stream("metadata", 0);
    let send = |producer: &mut Producer, numbers: std::ops::Range<u64>| {
        for number in numbers {
            producer.metadata(metadata, b"more");
            for stream in &streams {
                producer.packet(*stream, number);
                producer.index(*stream, number);
            }
        }
    };
    send(&mut producer, 0..3);
    producer.chunk(1);
    // Packet 2 was written to chunk 0 already and moves.
    let mut positions: Vec<_> = streams.iter().map(|stream| (*stream, 2)).collect();
    positions.push((metadata, 0));
    producer.rotate(Some(1), &positions);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    send(&mut producer, 3..5);
    wait_until("chunk 0", || !producer.exists(0));
    let session = root.path().join(producer.folder.as_path());
    let present = "20261120T162219+0000-1/ust/uid/0/64-bit";
    for (folder, numbers) in [(CHUNK_0, 0..2), (present, 2..5)] {
        for name in &names {
            let data = std::fs::read(session.join(folder).join(name)).unwrap();
            assert_eq!(data, packets(numbers.clone()), "{folder}/{name}");
            let index = records(&session.join(folder).join(format!("index/{name}.idx")));
            let expected: Vec<(u64, u64)> = (0..).map(|n| n * 128).zip(numbers.clone()).collect();
            assert_eq!(index, expected, "{folder}/{name}");
        }
    }
    let metadata = std::fs::read(session.join(CHUNK_0).join("metadata")).unwrap();
    assert_eq!(metadata, b"moremoremore");
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_stream_whose_next_chunk_is_gone_leaves_the_old_one() {
    let (mut setup, stream) = Setup::new();
    let producer = &mut setup.producer;
    producer.packet(stream, 0);
    producer.index(stream, 0);
    producer.chunk(1);
    producer.rotate(Some(1), &[(stream, 2)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    producer.close_chunk(1, None);
    wait_until("the end of chunk 1", || !producer.exists(1));
    producer.packet(stream, 1);
    let pivot = Request::SendIndex(crate::producer::index(stream, 1));
    assert!(!producer.code(&pivot).is_ok());
    wait_until("the end of chunk 0", || !producer.exists(0));
    assert_eq!(std::fs::read(setup.file(CHUNK_0).join("ch_0")).unwrap(), packets(0..2));
    setup.runtime.block_on(setup.relay.shutdown());
    assert_eq!(manifests(&setup.root.path().canonicalize().unwrap()).len(), 1);
}
