//! Streams of packets over one or more files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::packet::PacketInfo;
use ctf::{ClockClass, EnvValue, StreamClass, TraceClass, Uuid};
use model::Timestamp;

use crate::discover::StreamFile;
use crate::finding::Cause;
use crate::heads::{Head, HeadReader, Headers};
use crate::index::{Index, IndexProblem};
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
/// Otherwise each file is a stream of its own. Packets that files in two folders both hold, as snapshots of one session
/// do, are read from the first of them.
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

impl StreamKey {
    /// The key of a stream of a trace, by what its packets say; without a file.
    #[must_use]
    pub fn of(class: &TraceClass, class_id: u64, instance_id: Option<u64>) -> Self {
        let env = |name| class.env(name);
        let text = |name| env(name).and_then(EnvValue::as_str).map(str::to_owned);
        Self {
            host: text("hostname"),
            process: text("procname"),
            process_id: env("vpid").and_then(EnvValue::as_integer),
            trace: class.uuid(),
            class_id,
            instance_id,
            file: None,
        }
    }
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
        pass_over_repeated(&mut files);
        Self { key, files }
    }

    /// A stream whose packets come from elsewhere than files, such as a live session.
    #[must_use]
    pub const fn without_files(key: StreamKey) -> Self {
        Self { key, files: Vec::new() }
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

    /// The trace classes that its files are read by, in the order of the files, each but once in a row.
    pub fn trace_classes(&self) -> impl Iterator<Item = &Arc<TraceClass>> {
        let mut before: Option<&Arc<TraceClass>> = None;
        let classes = self.files.iter().map(|file| &file.class);
        classes.filter(move |class| {
            before.replace(class).is_none_or(|before| !Arc::ptr_eq(before, class))
        })
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

/// With so many files before it a file is compared.
pub(crate) const COMPARED: usize = 32;

/// Whether two files cannot hold the same packets: one tracer wrote one after the other, in one folder or in different
/// chunks.
fn written_apart(a: &Path, b: &Path) -> bool {
    a.parent() == b.parent() || join::place(a).1.parent() == join::place(b).1.parent()
}

/// Leaves out packets that files before, in order of time, hold as well.
fn pass_over_repeated(files: &mut [PacketFile]) {
    let apart = |two: &[PacketFile]| match two {
        [a, b] => written_apart(&a.file.path, &b.file.path),
        _ => true,
    };
    if files.windows(2).all(apart) {
        return;
    }
    // Files that have not ended where the next one begins, and where their last packets begin.
    let mut open: Vec<(usize, Option<u64>)> = Vec::new();
    for at in 0..files.len() {
        let Some((before, [file, ..])) = files.split_at_mut_checked(at) else { return };
        open.retain(|(_, last)| *last >= file.first.begin);
        for before in open.iter().filter_map(|(position, _)| before.get(*position)) {
            file.pass_over_packets_of(before);
        }
        if open.len() == COMPARED {
            open.remove(0);
        }
        open.push((at, file.last_head().begin));
    }
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
    /// Where the packets begin that no file before it in the stream holds.
    pub(crate) start: u64,
}

impl PacketFile {
    /// Reads the first packet header; when that one is damaged, the first readable one that can be found.
    pub(crate) fn open(
        file: StreamFile,
        class: &Arc<TraceClass>,
    ) -> Result<Self, (StreamFile, Cause)> {
        let source = match file.open() {
            Ok(source) => source,
            Err(error) => return Err((file, Cause::Io(error))),
        };
        let mut headers = Headers::new(source, class);
        let readable = match headers.info(0) {
            Ok(info) => Ok((0, info)),
            // The packets before it are met and reported again when the file is read.
            Err(cause) => first_announced(&file, &mut headers, &cause)
                .or_else(|| first_indexed(&file, &mut headers))
                .ok_or(cause),
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
            start: 0,
        })
    }

    /// What identifies its stream, but for the file.
    pub(crate) fn key(&self) -> StreamKey {
        StreamKey::of(&self.class, self.stream_class_id, self.instance_id)
    }

    /// Refuses a packet of this file that is of another stream than the file's first.
    pub(crate) fn own(&self, info: &PacketInfo) -> Result<(), Cause> {
        let (class_id, instance_id) = (info.stream_class_id, info.stream_instance_id);
        if (class_id, instance_id) == (self.stream_class_id, self.instance_id) {
            return Ok(());
        }
        Err(Cause::OtherStream { class_id, instance_id })
    }

    /// Where the packet after this one begins; `None` at the file's end.
    pub(crate) fn after(&self, head: &Head) -> Option<u64> {
        head.next_offset().filter(|next| *next < self.file.len)
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
        let indexed = self.trusted_index().and_then(|index| index.ends());
        // What an index says of other packets than the first, the packet itself must say too.
        let reader = || HeadReader::open(self).ok();
        let confirmed = indexed.and_then(|(_, last)| reader()?.at(last.offset_bytes).ok());
        confirmed
            .or_else(|| reader()?.uniform()?.last())
            .or_else(|| reader()?.heads(self.first.offset).last())
            .unwrap_or(self.first)
    }

    /// Leaves out the packets in front that `before` holds as well, by what their headers say.
    pub(crate) fn pass_over_packets_of(&mut self, before: &Self) {
        if written_apart(&self.file.path, &before.file.path) {
            return;
        }
        let (Ok(known), Ok(mut own)) = (HeadReader::open(before), HeadReader::open(self)) else {
            return;
        };
        let Ok(first) = own.at(self.start) else { return };
        let known = known.heads(before.first.offset).skip_while(|head| !head.repeats(&first));
        let mut start = self.start;
        for known in known {
            match own.at(start) {
                Ok(head) if head.repeats(&known) => {
                    start = self.after(&head).unwrap_or(self.file.len);
                }
                _ => break,
            }
        }
        self.start = start;
    }

    /// Where the first packet after `offset` begins, if the index knows.
    pub(crate) fn indexed_after(&self, offset: u64) -> Option<u64> {
        self.trusted_index()?.map(|entry| entry.offset_bytes).find(|begin| *begin > offset)
    }

    /// The index beside the file; `None` when there is none.
    ///
    /// # Errors
    /// It does not describe a file of this length, or its first entry not the file's first packet.
    pub(crate) fn index(&self) -> Result<Option<Index>, IndexProblem> {
        let Some(index) = Index::open(&self.file)? else { return Ok(None) };
        if let Some((first, _)) = index.ends() {
            let instance = first.position.zip(self.instance_id);
            let same_stream = first.stream_class_id == self.stream_class_id
                && instance.is_none_or(|(told, own)| told.stream_instance_id == own);
            // When the first packet cannot be read, it says nothing that the index could contradict.
            let same = self.first.offset != 0 || self.first.agrees(&Head::indexed(&first));
            if !same_stream || !same {
                return Err(IndexProblem::OtherPacket { offset_bytes: first.offset_bytes });
            }
        }
        Ok(Some(index))
    }

    /// [`Self::index`], whatever is wrong with it: an index is a short cut, and the packets themselves say the same.
    pub(crate) fn trusted_index(&self) -> Option<Index> {
        self.index().ok().flatten()
    }
}

/// The first readable packet behind damaged ones that announce their lengths all the same.
fn first_announced(
    file: &StreamFile,
    headers: &mut Headers<'_>,
    cause: &Cause,
) -> Option<(u64, PacketInfo)> {
    const MOST: usize = 1024;
    let end = |offset: u64, cause: &Cause| match cause {
        Cause::Damaged(error) => {
            offset.checked_add(error.kind.packet_bytes()?).filter(|end| *end < file.len)
        }
        _ => None,
    };
    let mut offset = end(0, cause)?;
    for _ in 0..MOST {
        match headers.info(offset) {
            Ok(info) => return Some((offset, info)),
            Err(cause) => offset = end(offset, &cause)?,
        }
    }
    None
}

/// The first packet after the file's very first that can be read, by the index.
fn first_indexed(file: &StreamFile, headers: &mut Headers<'_>) -> Option<(u64, PacketInfo)> {
    let mut offsets = Index::open(file).ok()??.skip(1).map(|entry| entry.offset_bytes);
    offsets.find_map(|at| Some((at, headers.info(at).ok()?)))
}

/// barectf before 2.3.1 stamps a packet's begin after its first event record.
fn early_event_records(class: &TraceClass) -> bool {
    let number = |name| class.env(name).and_then(EnvValue::as_integer).unwrap_or(0);
    class.env("tracer_name").and_then(EnvValue::as_str) == Some("barectf")
        && (number("tracer_major"), number("tracer_minor"), number("tracer_patch")) < (2, 3, 1)
}
