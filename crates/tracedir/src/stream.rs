//! Streams of packets over one or more files.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use ctf::packet::PacketInfo;
use ctf::{ClockClass, EnvValue, StreamClass, TraceClass, Uuid};
use model::Timestamp;

use crate::discover::StreamFile;
use crate::finding::Cause;
use crate::heads::{Head, HeadReader, IndexHeads, first_info};
use crate::join;

/// What a stream is, whichever files hold it.
///
/// Files of one trace are one stream when their packets have the same data stream class and instance id. Where the trace
/// has no name of its own, or packets no instance id, files of one class are still one stream when
///
/// - they lie at the same place of different chunks of a session, and begin in the order of the chunks; or
/// - an LTTng tracer wrote them for the same CPU, they are called alike but for a last number (its tracefile rotation),
///   and each ends before the next begins.
///
/// Otherwise each file is a stream of its own.
///
/// The order of keys is the order of event records of equal times. Babeltrace orders them by trace name, which it makes
/// of host and folder; host and process give the same order and do not depend on where the folder lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamKey {
    /// Host that recorded it.
    pub host: Option<String>,
    /// Name of the process that it is about, for traces of one process.
    pub process: Option<String>,
    /// Id of that process.
    pub process_id: Option<i128>,
    /// UUID of its trace.
    pub trace: Option<Uuid>,
    /// Data stream class id.
    pub class_id: u64,
    /// Data stream instance id.
    pub instance_id: Option<u64>,
    /// Its first file by name, when it has no UUID or no instance id: nothing else may tell it from other streams.
    pub file: Option<PathBuf>,
}

/// One data stream.
#[derive(Debug)]
pub struct Stream {
    pub(crate) key: StreamKey,
    /// In order of their first packets' begin; of their chunks where there is none.
    pub(crate) files: Vec<PacketFile>,
}

impl Stream {
    pub(crate) fn new(key: StreamKey, mut files: Vec<PacketFile>) -> Self {
        files.sort_by_cached_key(|file| {
            let chunk = join::place(&file.file.path).0.map(|chunk| chunk.id);
            (file.first.begin, chunk, file.file.path.clone())
        });
        Self { key, files }
    }

    /// What identifies it.
    #[must_use]
    pub const fn key(&self) -> &StreamKey {
        &self.key
    }

    /// Its files, in order of time.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &StreamFile> {
        self.files.iter().map(|file| &file.file)
    }

    pub(crate) fn cover(&self) -> Option<StreamCover> {
        let (first, last) = (self.files.first()?, self.files.last()?);
        let begin = first.first;
        let end = last.last_head();
        Some(StreamCover {
            stream: self.key.clone(),
            begin: first.time(begin.begin),
            end: last.time(end.end.filter(|end| *end != 0)).max(last.time(end.begin)),
            first_sequence: begin.sequence,
            last_sequence: end.sequence,
            first_discarded: begin.discarded,
            last_discarded: end.discarded,
            discarded_bits: first.stream_class().and_then(StreamClass::discarded_counter_bits),
        })
    }
}

/// What the packets at both ends of a stream say: where it may be cut, and what was lost around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamCover {
    /// The stream.
    pub stream: StreamKey,
    /// Begin of the first packet; `None` without a clock.
    pub begin: Option<Timestamp>,
    /// End of the last packet, its begin when it was never closed; `None` without a clock.
    pub end: Option<Timestamp>,
    /// Sequence number of the first packet.
    pub first_sequence: Option<u64>,
    /// Sequence number of the last packet.
    pub last_sequence: Option<u64>,
    /// Counter of discarded event records at the end of the first packet.
    pub first_discarded: Option<u64>,
    /// Counter of discarded event records at the end of the last packet.
    pub last_discarded: Option<u64>,
    /// Width of that counter in bits: differences are taken modulo 2 to this power.
    pub discarded_bits: Option<u8>,
}

/// One file of a stream, and what its first packet says.
#[derive(Debug)]
pub(crate) struct PacketFile {
    pub(crate) file: StreamFile,
    pub(crate) class: Arc<TraceClass>,
    pub(crate) first: Head,
    pub(crate) stream_class_id: u64,
    pub(crate) instance_id: Option<u64>,
    pub(crate) cpu: Option<u64>,
    /// Whether event records may lie before their packet's begin.
    pub(crate) early: bool,
}

impl PacketFile {
    /// Reads the first packet header; when that one is damaged and there is an index, the first readable one.
    pub(crate) fn open(
        file: StreamFile,
        class: &Arc<TraceClass>,
    ) -> Result<Self, (StreamFile, Cause)> {
        let source = match File::open(&file.path) {
            Ok(source) => source,
            Err(error) => return Err((file, Cause::Io(error))),
        };
        let readable = match first_info(&source, class, 0) {
            Ok(info) => Ok((0, info)),
            // The packets before it are met and reported again when the file is read.
            Err(cause) => first_indexed(&file, &source, class).ok_or(cause),
        };
        let (offset, info) = match readable {
            Ok(readable) => readable,
            Err(cause) => return Err((file, cause)),
        };
        Ok(Self {
            file,
            class: Arc::clone(class),
            first: Head::of(&info, offset),
            stream_class_id: info.stream_class_id,
            instance_id: info.stream_instance_id,
            cpu: info.cpu_id,
            early: early_event_records(class),
        })
    }

    /// What identifies its stream, but for the file.
    pub(crate) fn key(&self) -> StreamKey {
        let env = |name| self.class.env(name);
        let text = |name| env(name).and_then(EnvValue::as_str).map(str::to_owned);
        StreamKey {
            host: text("hostname"),
            process: text("procname"),
            process_id: env("vpid").and_then(EnvValue::as_integer),
            trace: self.class.uuid(),
            class_id: self.stream_class_id,
            instance_id: self.instance_id,
            file: None,
        }
    }

    /// Whether a packet of this file is of the file's stream.
    pub(crate) fn is_of(&self, info: &PacketInfo) -> bool {
        (info.stream_class_id, info.stream_instance_id) == (self.stream_class_id, self.instance_id)
    }

    pub(crate) fn stream_class(&self) -> Option<&StreamClass> {
        self.class.stream_class(self.stream_class_id)
    }

    pub(crate) fn clock(&self) -> Option<&ClockClass> {
        self.class.clock_of(self.stream_class()?)
    }

    /// A clock value as a time; `None` also when it has none in 64 bits.
    pub(crate) fn time(&self, cycles: Option<u64>) -> Option<Timestamp> {
        self.clock()?.to_ns(cycles?).ok().map(Timestamp::from_nanos)
    }

    /// The last packet that can be read.
    pub(crate) fn last_head(&self) -> Head {
        let indexed = IndexHeads::open(self).and_then(Iterator::last);
        // What an index says of other packets than the first, the packet itself must say too.
        let reader = || HeadReader::open(self).ok();
        let confirmed = indexed.and_then(|head| reader()?.at(head.offset).ok());
        confirmed
            .or_else(|| reader()?.uniform()?.last())
            .or_else(|| reader()?.heads(self.first.offset).last())
            .unwrap_or(self.first)
    }

    /// Where the first packet after `offset` begins, if the index knows.
    pub(crate) fn indexed_after(&self, offset: u64) -> Option<u64> {
        IndexHeads::open(self)?.map(|head| head.offset).find(|begin| *begin > offset)
    }
}

/// The first packet after the file's very first that can be read, by the index.
fn first_indexed(
    file: &StreamFile,
    source: &File,
    class: &TraceClass,
) -> Option<(u64, PacketInfo)> {
    let mut offsets = IndexHeads::trusted(file, |_| true)?.skip(1).map(|head| head.offset);
    offsets.find_map(|at| Some((at, first_info(source, class, at).ok()?)))
}

/// barectf before 2.3.1 stamps a packet's begin after its first event record.
fn early_event_records(class: &TraceClass) -> bool {
    let number = |name| class.env(name).and_then(EnvValue::as_integer).unwrap_or(0);
    class.env("tracer_name").and_then(EnvValue::as_str) == Some("barectf")
        && (number("tracer_major"), number("tracer_minor"), number("tracer_patch")) < (2, 3, 1)
}
