//! The records of a process in a chunk: one trace of one stream, merged by time.
//!
//! Times of a ring do not step back, though two batches may draw slightly different lines through its clock: such a record gets the time of the one
//! before it. Rings are merged by these times, so that all event records of the stream are in order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ctf::writer::{
    Appended, EventHeader, OpenPacket, PacketContext, PacketStart, Schema, StreamClass, TraceClass,
};
use ctf::{ClockClass, ClockOrigin, CtfVersion, EnvValue, Uuid};
use records::{Process, RingBatch, RingId};
use rings::{Item, Items, Record};

use super::classes::{self, Classes, printable};
use crate::error::{On, Result};

/// Packets are as long at most: the longest record fits, half a mebibyte of which each byte may become a character of three.
const PACKET_LEN: usize = 2 << 20;
/// No record is from later after its clock was looked at than this: a process that says otherwise has its times cut.
const LATEST_NS: u64 = 1_000_000_000;

/// The clock of all traces of this boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) boot: Option<Uuid>,
}

impl Clock {
    /// LTTng's `monotonic`, as traces of the kernel have it: `CLOCK_MONOTONIC`, of this boot.
    pub(super) fn class(self, epoch_offset_ns: u64) -> ClockClass {
        ClockClass {
            uuid: self.boot,
            description: Some("Monotonic Clock".to_owned()),
            offset: epoch_offset_ns,
            origin: ClockOrigin::UnixEpoch,
            ..ClockClass::new("monotonic")
        }
    }
}

/// What a chunk has of a process.
pub(super) struct Trace {
    pub(super) process: Process,
    /// By place and generation.
    pub(super) lanes: BTreeMap<(u32, u32), Lane>,
}

/// What a chunk has of a ring.
pub(super) struct Lane {
    ring: RingId,
    /// No record is before, as those are in other chunks.
    begin_ns: u64,
    /// In order, with how many records are missing that were not told before.
    pub(super) batches: Vec<(RingBatch, u64)>,
}

impl Lane {
    pub(super) const fn new(ring: RingId, begin_ns: u64) -> Self {
        Self { ring, begin_ns, batches: Vec::new() }
    }
}

impl Trace {
    pub(super) const fn new(process: Process) -> Self {
        Self { process, lanes: BTreeMap::new() }
    }

    /// Whether there are records, or some are missing.
    pub(super) fn tells_anything(&self) -> bool {
        let mut batches = self.lanes.values().flat_map(|lane| &lane.batches);
        batches.any(|(batch, lost)| *lost > 0 || batch.sites().next().is_some())
    }

    /// Writes the trace to a folder that it makes. Gives when the last record of each ring is, by place and generation.
    pub(super) fn write(&self, folder: &Path, clock: ClockClass) -> Result<Vec<(u32, u32, u64)>> {
        fs::DirBuilder::new().mode(0o700).create(folder).on("make the folder", folder)?;
        let mut classes = Classes::default();
        let batches = self.lanes.values().flat_map(|lane| &lane.batches);
        for site in batches.flat_map(|(batch, _)| batch.sites()) {
            classes.id(site);
        }
        let metadata = folder.join("metadata");
        let schema = Schema::new(self.class(clock, classes.events.clone()));
        let schema = schema.map_err(std::io::Error::other).on("describe", &metadata)?;
        fs::write(&metadata, schema.metadata()).on("write", &metadata)?;
        let mut cursors: Vec<Cursor<'_>> =
            self.lanes.values().map(|lane| Cursor::new(lane, &mut classes)).collect();
        let stream = Stream::create(folder.join("stream"), &schema)?;
        self.merge(&mut cursors, &mut classes, stream)?;
        let lanes = self.lanes.keys().zip(&cursors);
        Ok(lanes.map(|((place, generation), at)| (*place, *generation, at.last_ns)).collect())
    }

    fn merge<'a>(
        &'a self,
        cursors: &mut [Cursor<'a>],
        classes: &mut Classes,
        mut stream: Stream<'_>,
    ) -> Result<()> {
        let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        next.extend(
            cursors.iter().enumerate().filter_map(|(at, it)| Some(Reverse((it.time()?, at)))),
        );
        while let Some(Reverse((_, at))) = next.pop() {
            let Some(cursor) = cursors.get_mut(at) else { continue };
            let Some((time, step)) = cursor.take(classes) else { continue };
            match step {
                Step::Lost(count) => stream.lose(time, count)?,
                Step::Record(class, record) => {
                    stream.append(class, time, |out| {
                        classes::write(&record, &self.process, &cursor.lane.ring, out)
                    })?;
                }
            }
            next.extend(cursor.time().map(|time| Reverse((time, at))));
        }
        stream.close()
    }

    fn class(&self, clock: ClockClass, events: Vec<ctf::writer::EventClass>) -> TraceClass {
        let highest = events.len().saturating_sub(1) as u64;
        let stream = StreamClass {
            clock: Some(0),
            packet: PacketContext { discarded_bits: Some(64), ..PacketContext::default() },
            context: Some(classes::context()),
            ..StreamClass::new(0, EventHeader::suited_to(highest, true), events)
        };
        let text = |value: &str| EnvValue::Text(printable(value));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let version = |part: &str| EnvValue::Integer(part.parse().unwrap_or(0));
        let environment = [
            ("hostname", text(&host)),
            ("domain", text("ust")),
            ("tracer_name", text("throughline")),
            ("tracer_major", version(env!("CARGO_PKG_VERSION_MAJOR"))),
            ("tracer_minor", version(env!("CARGO_PKG_VERSION_MINOR"))),
            ("tracer_patchlevel", version(env!("CARGO_PKG_VERSION_PATCH"))),
            ("procname", text(&self.process.service)),
            ("vpid", EnvValue::Integer(self.process.own_pid.into())),
        ];
        TraceClass {
            uuid: Some(Uuid(*uuid::Uuid::new_v4().as_bytes())),
            environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
            clocks: vec![clock],
            instance_ids: true,
            ..TraceClass::new(CtfVersion::V1_8, vec![stream])
        }
    }
}

/// What comes next of a ring.
enum Step<'a> {
    /// So many records are missing around here.
    Lost(u64),
    /// A record and its class.
    Record(u64, Record<'a>),
}

/// Goes through a ring's batches.
struct Cursor<'a> {
    lane: &'a Lane,
    /// The batch that comes after this one.
    next: usize,
    batch: Option<(&'a RingBatch, Items<'a>)>,
    /// Classes by call site's number, of this batch.
    ids: Vec<u64>,
    /// What is known to come, two at most.
    ready: VecDeque<(u64, Step<'a>)>,
    last_ns: u64,
}

impl<'a> Cursor<'a> {
    fn new(lane: &'a Lane, classes: &mut Classes) -> Self {
        let (ids, ready) = (Vec::new(), VecDeque::new());
        let mut cursor = Self { lane, next: 0, batch: None, ids, ready, last_ns: lane.begin_ns };
        cursor.fill(classes);
        cursor
    }

    /// When what comes next is.
    fn time(&self) -> Option<u64> {
        self.ready.front().map(|(time, _)| *time)
    }

    fn take(&mut self, classes: &mut Classes) -> Option<(u64, Step<'a>)> {
        let taken = self.ready.pop_front();
        self.fill(classes);
        taken
    }

    fn fill(&mut self, classes: &mut Classes) {
        while self.ready.is_empty() {
            if let Some((time, class, record)) = self.record() {
                self.ready.push_back((time, Step::Record(class, record)));
                return;
            }
            let Some((batch, lost)) = self.lane.batches.get(self.next) else { return };
            self.next += 1;
            self.ids.clear();
            for site in batch.sites() {
                let number = usize::from(site.number);
                self.ids.resize(self.ids.len().max(number + 1), 0);
                if let Some(id) = self.ids.get_mut(number) {
                    *id = classes.id(site);
                }
            }
            self.batch = Some((batch, batch.items()));
            let first = self.record();
            if *lost > 0 {
                let time = first.as_ref().map_or_else(|| self.read_ns(batch), |(time, ..)| *time);
                self.ready.push_back((time, Step::Lost(*lost)));
            }
            let first = first.map(|(time, class, record)| (time, Step::Record(class, record)));
            self.ready.extend(first);
        }
    }

    /// When a batch without records was read.
    fn read_ns(&mut self, batch: &RingBatch) -> u64 {
        self.last_ns = self.last_ns.max(batch.times.late.monotonic_ns);
        self.last_ns
    }

    /// The next record of the batch.
    fn record(&mut self) -> Option<(u64, u64, Record<'a>)> {
        let (batch, items) = self.batch.as_mut()?;
        loop {
            match items.next_item() {
                Ok(Some(Item::Record(record))) => {
                    let latest = batch.times.late.monotonic_ns.saturating_add(LATEST_NS);
                    let time = u64::try_from(batch.times.monotonic_ns(record.time)).unwrap_or(0);
                    self.last_ns = time.min(latest).max(self.last_ns);
                    let class = self.ids.get(usize::from(record.site.number)).copied()?;
                    return Some((self.last_ns, class, record));
                }
                // It is counted where the batch says how many are missing of all.
                Ok(Some(Item::Dropped { .. })) => {}
                Ok(None) => return None,
                Err(error) => {
                    let process = &batch.process.service;
                    tracing::warn!(
                        process,
                        error = model::with_causes(&error),
                        "a batch is damaged: the rest of it is dropped"
                    );
                    self.batch = None;
                    return None;
                }
            }
        }
    }
}

/// The file of a stream.
struct Stream<'s> {
    schema: &'s Schema,
    path: PathBuf,
    file: File,
    packet: Option<OpenPacket<'s>>,
    discarded: u64,
}

impl<'s> Stream<'s> {
    fn create(path: PathBuf, schema: &'s Schema) -> Result<Self> {
        let file = File::create_new(&path).on("make", &path)?;
        Ok(Self { schema, path, file, packet: None, discarded: 0 })
    }

    /// The packet, which begins here when there is none.
    fn packet(&mut self, begin: u64) -> Result<&mut OpenPacket<'s>> {
        let packet = match self.packet.take() {
            Some(packet) => packet,
            None => {
                let max_bytes = PACKET_LEN;
                let start = PacketStart {
                    stream_class: 0,
                    instance: 0,
                    sequence_number: 0,
                    begin,
                    max_bytes,
                };
                self.schema
                    .open(start, |_| Ok(()))
                    .map_err(std::io::Error::other)
                    .on("write", &self.path)?
            }
        };
        Ok(self.packet.insert(packet))
    }

    fn append(
        &mut self,
        class: u64,
        time: u64,
        write: impl Fn(&mut ctf::writer::Record<'_>) -> std::result::Result<(), ctf::writer::WriteError>,
    ) -> Result<()> {
        let mut appended = self.packet(time)?.append(class, time, &write);
        if appended == Ok(Appended::Full) {
            self.end_packet(time)?;
            appended = self.packet(time)?.append(class, time, &write);
        }
        match appended {
            Ok(Appended::Yes) => Ok(()),
            Ok(Appended::Full) => self.lose(time, 1),
            Err(error) => {
                tracing::warn!(
                    error = model::with_causes(&error),
                    "a record cannot be written: it is counted as lost"
                );
                self.lose(time, 1)
            }
        }
    }

    /// Counts records that are missing. Readers see that the counter of a packet is more than that of the one before, which so ends here.
    fn lose(&mut self, time: u64, count: u64) -> Result<()> {
        let packet = self.packet(time)?;
        if packet.records() > 0 || packet.sequence_number() == 0 {
            self.end_packet(time)?;
        }
        self.discarded = self.discarded.saturating_add(count);
        Ok(())
    }

    /// Ends the packet at a time; the next one begins there.
    fn end_packet(&mut self, time: u64) -> Result<()> {
        let discarded = self.discarded;
        let sealed = self.packet(time)?.roll(time, discarded);
        self.file.write_all(&sealed.bytes).on("write", &self.path)
    }

    fn close(mut self) -> Result<()> {
        let Some(packet) = &self.packet else { return Ok(()) };
        let end = packet.last();
        self.end_packet(end)
    }
}
