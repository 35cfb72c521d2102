//! Any change of the disk may fail, at any time: whatever was acknowledged is in the sealed chunks afterwards, once, with metadata.
//!
//! A conversation is held again and again; each time the next change of the disk fails. For lack of room, a few times: the
//! connections wait and go on. For good: as if the relay had been killed there, for nothing of it reaches the disk any more.

mod once;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctf::CtfVersion;
use ctf::index::PacketIndex as Index;
use ctf::writer::{EventHeader, PacketStart, Schema, StreamClass, TraceClass};
use rustix::io::Errno;
use tracedir::manifest::{self, Manifest};
use wire::live::{
    AddStream, ChunkId, CloseAction, CloseStream, CloseTraceChunk, CreateTraceChunk, DataHeader,
    FullIndexFields, NetSeqNum, PacketIndex, PacketSeqNum, ProtocolMinor, RelativePath,
    RelaySessionId, ResetMetadata, RotateStreams, SendMetadata, StreamHandle, StreamPosition,
    TracefileLimit, UnixSeconds,
};

use super::Recording;
use super::packets::Awaited;
use crate::after::{Announce, Outbox};
use crate::config::{Limits, TimeZone};
use crate::counters::Counters;
use crate::doors::Who;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::intake::Intake;
use crate::names::Names;
use crate::recover::recover;
use crate::registry::tests::{request, stream_request};
use crate::registry::{Registry, Shared};
use crate::root::Root;

const FOLDER: &str = "ust/uid/0/64-bit";
/// Before a seal is tried again.
const PAUSE: Duration = Duration::from_micros(100);
const BEGIN: u64 = 1_795_191_738;

fn schema() -> Schema {
    let mut stream = StreamClass::new(0, EventHeader::Large, Vec::new());
    stream.clock = Some(0);
    let mut trace = TraceClass::new(CtfVersion::V1_8, vec![stream]);
    trace.clocks = vec![ctf::ClockClass::new("monotonic")];
    Schema::new(trace).unwrap()
}

fn packet(number: u64) -> Vec<u8> {
    let start = PacketStart {
        stream_class: 0,
        instance: 0,
        sequence_number: number,
        begin: 10 * number,
        max_bytes: 4096,
    };
    schema().open(start, |_context| Ok(())).unwrap().seal(10 * number + 5, 0).bytes
}

fn env(folder: &Path) -> Env {
    let root = Root::open(folder).unwrap();
    let counters = Counters::default();
    let announce = Announce { first_pause: PAUSE, longest_pause: PAUSE, ..Announce::default() };
    let outbox = Outbox::open(&root, announce, false, &counters).unwrap();
    Env::new(root, Names::new(TimeZone::Utc), Limits::default(), counters, outbox, 0)
}

/// A packet as it comes.
fn framed(stream: StreamHandle, number: u64) -> Vec<u8> {
    let bytes = packet(number);
    let header = DataHeader {
        stream,
        net_seq_num: NetSeqNum::new(number),
        data_len: u32::try_from(bytes.len()).unwrap(),
        padding_len: 0,
    };
    [header.encode().as_slice(), &bytes].concat()
}

/// A producer, without sockets.
struct Producer {
    registry: Arc<Registry>,
    intake: Intake,
    id: RelaySessionId,
    shared: Arc<Shared>,
    acknowledged: BTreeSet<u64>,
}

/// Does something until there is room for it.
fn with_room<T>(mut action: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match action() {
            Err(error) if error.is_no_room() => {}
            done => return done,
        }
    }
}

impl Producer {
    fn new(registry: Arc<Registry>) -> Result<Self> {
        let who = Who::default();
        let (id, shared, _) =
            with_room(|| registry.create_session(ProtocolMinor::OURS, &request(), &who))?;
        let intake = Intake::new(Arc::clone(&registry), who);
        Ok(Self { registry, intake, id, shared, acknowledged: BTreeSet::new() })
    }

    fn act<T>(&self, mut action: impl FnMut(&mut Recording, &Env) -> Result<T>) -> Result<T> {
        with_room(|| self.registry.act(&self.shared, &mut action))
    }

    /// Where a request that has no room is not to be made again, but what it allows is.
    fn settled(&self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.is_no_room() => self.act(|it, env| it.go_on(env, self.id)),
            outcome => outcome,
        }
    }

    fn chunk(&self, id: u64) -> Result<()> {
        let request = CreateTraceChunk {
            chunk: ChunkId::new(id),
            created: UnixSeconds::new(BEGIN + id),
            override_name: None,
        };
        self.act(|it, env| it.create_chunk(env, &request))
    }

    fn stream(&self, channel: &str, tracefile: Option<TracefileLimit>) -> Result<StreamHandle> {
        self.stream_in(channel, tracefile, 0)
    }

    fn stream_in(
        &self,
        channel: &str,
        tracefile: Option<TracefileLimit>,
        chunk: u64,
    ) -> Result<StreamHandle> {
        let request = AddStream {
            path: RelativePath::new(FOLDER).unwrap(),
            tracefile,
            chunk: Some(ChunkId::new(chunk)),
            ..stream_request(channel)
        };
        with_room(|| {
            let handle = self.registry.new_handle(&self.shared)?;
            self.registry.add_stream(&self.shared, self.id, handle, &request).map(|()| handle)
        })
    }

    fn metadata(&self, handle: StreamHandle, bytes: &[u8]) -> Result<()> {
        let request = SendMetadata { handle, bytes, padding_len: 0 };
        self.act(|it, env| it.metadata(env, self.id, request))
    }

    fn data(&mut self, stream: StreamHandle, number: u64) -> Result<()> {
        let bytes = framed(stream, number);
        // In two pieces, as sockets give them.
        for piece in bytes.chunks(bytes.len() / 2 + 1) {
            self.intake.room()[..piece.len()].copy_from_slice(piece);
            self.intake.arrived(piece.len());
            self.intake.take()?;
            while self.intake.waits_for_room() {
                self.intake.again()?;
            }
        }
        Ok(())
    }

    /// What is answered is what the relay has to keep.
    fn index(&mut self, handle: StreamHandle, number: u64) -> Result<()> {
        let bits = packet(number).len() as u64 * 8;
        let index = PacketIndex {
            handle,
            net_seq_num: NetSeqNum::new(number),
            packet_size_bits: bits,
            content_size_bits: bits,
            timestamp_begin: 10 * number,
            timestamp_end: 10 * number + 5,
            events_discarded: 0,
            stream_class_id: 0,
            full: Some(FullIndexFields {
                stream_instance_id: 0,
                packet_seq_num: PacketSeqNum::new(number),
            }),
        };
        let taken = self
            .registry
            .act(&self.shared, |it, env| it.index(env, self.id, index, Instant::now()).map(drop));
        self.settled(taken)?;
        let number = NetSeqNum::new(number);
        let awaited = self.shared.look(|it| it.awaited(self.id, handle, number));
        if awaited == Awaited::Written {
            self.acknowledged.insert(number.get());
        }
        Ok(())
    }

    fn rotate(&self, positions: &[(StreamHandle, u64)]) -> Result<()> {
        let position = |(handle, at): &(StreamHandle, u64)| StreamPosition {
            handle: *handle,
            rotate_at: PacketSeqNum::new(*at),
        };
        let request = RotateStreams {
            new_chunk: Some(ChunkId::new(1)),
            positions: positions.iter().map(position).collect(),
        };
        let now = Instant::now();
        let rotated =
            self.registry.act(&self.shared, |it, env| it.rotate(env, self.id, &request, now));
        self.settled(rotated)
    }

    fn close(&self, chunk: u64) -> Result<()> {
        let request = CloseTraceChunk {
            chunk: ChunkId::new(chunk),
            closed: UnixSeconds::new(BEGIN + chunk + 1),
            action: Some(CloseAction::MoveToArchives),
        };
        self.act(|it, env| it.close_chunk(env, &request).map(drop))
    }

    /// Packets run ahead of a rotation, with and without entries; then their metadata come again, and are regenerated.
    fn record(&mut self, tracefile: Option<TracefileLimit>) -> Result<()> {
        let metadata_text = schema().metadata().to_owned();
        self.chunk(0)?;
        let (stream, metadata) = (self.stream("ch_0", tracefile)?, self.stream("metadata", None)?);
        self.metadata(metadata, metadata_text.as_bytes())?;
        for number in 0..4 {
            self.data(stream, number)?;
            self.index(stream, number)?;
        }
        self.data(stream, 4)?;
        self.data(stream, 5)?;
        self.chunk(1)?;
        self.rotate(&[(stream, 2), (metadata, 0)])?;
        self.index(stream, 4)?;
        self.index(stream, 5)?;
        let (half, rest) = metadata_text.as_bytes().split_at(metadata_text.len() / 2);
        self.metadata(metadata, half)?;
        self.metadata(metadata, rest)?;
        self.close(0)?;
        self.seal(1)?;
        self.data(stream, 6)?;
        self.index(stream, 6)?;
        let reset = ResetMetadata { handle: metadata, version: 1 };
        self.act(|it, env| it.reset_metadata(env, self.id, reset))?;
        self.metadata(metadata, metadata_text.as_bytes())?;
        for handle in [stream, metadata] {
            let last = if handle == stream { NetSeqNum::new(6) } else { NetSeqNum::NONE };
            self.act(|it, env| it.close_stream(env, self.id, CloseStream { handle, last }))?;
        }
        self.act(|it, env| it.control_ended(env, self.id, Instant::now()))?;
        self.close(1)?;
        self.seal(2)
    }

    /// Does what was put off, as often as it takes unless it fails for good.
    fn seal(&self, chunks: u64) -> Result<()> {
        for _ in 0..20 {
            self.registry.run_jobs();
            if self.registry.env.counters.totals().chunks_sealed == chunks {
                return Ok(());
            }
            self.registry.expire(Instant::now());
            std::thread::park_timeout(2 * PAUSE);
        }
        Err(std::io::Error::other("not sealed").into())
    }
}

/// The packets of all sealed chunks, in order; every chunk describes itself, and every packet has its entry.
fn sealed(folder: &Path) -> Vec<u64> {
    let root = folder.canonicalize().unwrap();
    let mut found = Vec::new();
    let len = packet(0).len();
    for chunk in manifest::find(&[root.as_path()]) {
        let manifest = Manifest::read(&chunk).unwrap().unwrap();
        assert_eq!(manifest.differences(&chunk).unwrap(), []);
        let folder = chunk.join(FOLDER);
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut holds_packets = false;
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !name.starts_with("ch_0") {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            for bytes in bytes.chunks(len) {
                let number = (0..10).find(|number| packet(*number) == bytes);
                found.push(number.unwrap_or_else(|| panic!("{name}: {} bytes", bytes.len())));
            }
            holds_packets |= !bytes.is_empty();
            if let Ok(index) = std::fs::read(folder.join(format!("index/{name}.idx"))) {
                Index::decode(&index).unwrap().check_against(bytes.len() as u64).unwrap();
            } else {
                assert!(bytes.is_empty(), "{name} without index");
            }
        }
        if holds_packets {
            let metadata = std::fs::read(folder.join("metadata")).unwrap();
            assert_eq!(ctf::TraceClass::parse(&metadata).unwrap().stream_classes().len(), 1);
        }
    }
    found.sort_unstable();
    found
}

/// Two packets a file, or all in one.
fn limits() -> [Option<TracefileLimit>; 2] {
    let size_bytes = 2 * packet(0).len() as u64;
    [None, Some(TracefileLimit { size_bytes, count: None })]
}

#[test]
fn a_disk_that_is_full_for_a_moment_anywhere_loses_nothing() {
    for (tracefile, times) in limits().into_iter().flat_map(|limit| [(limit, 1), (limit, 4)]) {
        for number in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let registry = Arc::new(Registry::new(env(folder.path()), Vec::new()));
            registry.env.root.faults.plan(Errno::NOSPC, number, times);
            let mut producer = Producer::new(Arc::clone(&registry)).unwrap();
            producer.record(tracefile).unwrap_or_else(|error| panic!("{number}: {error:?}"));
            assert_eq!(sealed(folder.path()), (0..7).collect::<Vec<_>>(), "change {number}");
            if registry.env.root.faults.end() == 0 {
                assert!(number > 40, "the conversation changes the disk more often");
                break;
            }
        }
    }
}

#[test]
fn a_relay_that_is_killed_between_any_two_changes_has_all_that_it_acknowledged_once() {
    for tracefile in limits() {
        for number in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let registry = Arc::new(Registry::new(env(folder.path()), Vec::new()));
            registry.env.root.faults.plan(Errno::IO, number, u64::MAX);
            let producer = Producer::new(Arc::clone(&registry));
            let mut acknowledged = BTreeSet::new();
            let recorded = producer.and_then(|mut producer| {
                let recorded = producer.record(tracefile);
                acknowledged = std::mem::take(&mut producer.acknowledged);
                recorded
            });
            let failed = registry.env.root.faults.end();
            assert_eq!(failed == 0, recorded.is_ok(), "change {number}: {recorded:?}");
            drop(registry);
            // What the first start did not get done, the next does.
            let root = Root::open(folder.path()).unwrap();
            let mut found = recover(&root, &Names::new(TimeZone::Utc)).unwrap();
            drop(root);
            assert!(found.seal(&env(folder.path())).is_empty());
            assert!(found.recovered.unreadable.is_empty(), "{:?}", found.recovered.unreadable);
            let sealed = sealed(folder.path());
            let once: BTreeSet<u64> = sealed.iter().copied().collect();
            assert_eq!(sealed.len(), once.len(), "change {number}: {sealed:?} are not there once");
            let missing: Vec<_> = acknowledged.difference(&once).collect();
            assert!(
                missing.is_empty(),
                "change {number}: {missing:?} of {acknowledged:?} are gone"
            );
            if failed == 0 {
                assert!(number > 40, "the conversation changes the disk more often");
                break;
            }
        }
    }
}
