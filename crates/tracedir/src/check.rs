//! Everything that is wrong with a recording, found by reading all of it.
//!
//! Where a reader leaves out what is damaged and goes on, [`check`] says each thing by itself: what cannot be decoded,
//! what contradicts something else, and what the tracers lost. Nothing is written. Memory: one packet.

use std::fmt;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ctf::index::{IndexEntry, IndexVersion};
use ctf::packet::{EventReader, Outcome, PacketInfo};
use ctf::{DecodeError, MetadataWarning, StreamClass};
use model::Timestamp;

use crate::classes::ClassCache;
use crate::discover::METADATA;
use crate::error::Error;
use crate::finding::{Cause, Finding, Findings};
use crate::heads::{Head, Headers};
use crate::index::{Index, IndexProblem};
use crate::lane::{Before, Lost, MAX_PACKET_BYTES, losses};
use crate::manifest::{self, Difference, MANIFEST, Manifest};
use crate::merge::LossKind;
use crate::options::{Correlate, ReadOptions};
use crate::recording::Recording;
use crate::source::PacketSource;
use crate::stream::{PacketFile, Stream};
use crate::window::{Handles, READ_AHEAD, Window};

/// How much was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Logical traces.
    pub traces: u64,
    /// Stream files.
    pub files: u64,
    /// Packets whose header could be read.
    pub packets: u64,
    /// Event records that could be read.
    pub event_records: u64,
    /// Manifests of sealed chunks.
    pub manifests: u64,
    /// How many remarks were made.
    pub remarks: u64,
}

/// One thing that is wrong, and where.
#[derive(Debug)]
pub struct Remark {
    /// The file.
    pub path: PathBuf,
    /// Where the packet begins in it, bytes; absent for what is about the whole file.
    pub packet_offset_bytes: Option<u64>,
    /// Where in the packet, bits.
    pub offset_bits: Option<u64>,
    /// How many event records of the packet precede.
    pub event_index: Option<u64>,
    /// The field, as `scope.member.member`.
    pub field: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is wrong with metadata names the file itself.
        if !matches!(self.problem, Problem::Metadata(_)) {
            write!(f, "{}: ", self.path.display())?;
        }
        if let Some(offset) = self.packet_offset_bytes {
            write!(f, "packet at byte {offset}: ")?;
        }
        // What cannot be decoded says its place itself.
        let decode = matches!(
            self.problem,
            Problem::Unreadable(Cause::Damaged(_))
                | Problem::RestUnreadable { cause: Cause::Damaged(_), .. }
        );
        if let (Some(bits), Some(index), false) = (self.offset_bits, self.event_index, decode) {
            write!(f, "bit {bits} of the packet, event record {index}: ")?;
        }
        self.problem.fmt(f)
    }
}

/// What is wrong at one place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The metadata of a folder is of no use, and with it everything in the folder.
    #[error("{}", chain(.0))]
    Metadata(Error),
    /// The metadata says something that a reader reads past.
    #[error("{0}")]
    MetadataWarning(MetadataWarning),
    /// A packet or an event record cannot be decoded; the rest of the packet is lost.
    #[error("{0}")]
    Unreadable(Cause),
    /// No packet can be told from the rest of the file.
    #[error("{cause}; the remaining {lost_bytes} bytes cannot be read")]
    RestUnreadable {
        /// How much is lost, bytes.
        lost_bytes: u64,
        /// What is wrong.
        cause: Cause,
    },
    /// The index beside a stream file is of no use.
    #[error("{0}")]
    Index(IndexProblem),
    /// An index entry says something else than its packet.
    #[error("entry {entry} says {what} {indexed}, the packet {found}")]
    IndexDisagrees {
        /// Position of the entry in the index, from 0.
        entry: usize,
        /// What they disagree on.
        what: &'static str,
        /// The index's value.
        indexed: Shown,
        /// The packet's value.
        found: Shown,
    },
    /// The tracer had no room for event records.
    #[error("{count} event records were discarded in the time up to this packet's end")]
    DiscardedEventRecords {
        /// How many.
        count: u64,
    },
    /// Packets are absent before this one.
    #[error("{count} packets are lost before this one, by the sequence numbers")]
    LostPackets {
        /// How many.
        count: u64,
    },
    /// The sequence number does not go on from the packet before.
    #[error("sequence number {found} follows {before}")]
    SequenceBackward {
        /// The sequence number of the packet before.
        before: u64,
        /// This packet's.
        found: u64,
    },
    /// A packet that a tracer did not close.
    #[error("the packet was not closed: its end timestamp is 0")]
    Unclosed,
    /// A packet that ends before it begins.
    #[error("the packet begins at cycle {begin} and ends at cycle {end}")]
    Bounds {
        /// Begin timestamp, cycles.
        begin: u64,
        /// End timestamp, cycles.
        end: u64,
    },
    /// A packet begins before the one before it ended.
    #[error(
        "the packet begins at {begin_ns} ns, before the end of the one before it at {before_ns} ns"
    )]
    Overlap {
        /// Begin of this packet, nanoseconds.
        begin_ns: i64,
        /// End of the packet before, nanoseconds.
        before_ns: i64,
    },
    /// Event records lie outside of their packet's bounds; the place is that of the first.
    #[error(
        "{count} event records lie outside of the packet's bounds, the first at {at_ns} ns {side} {bound_ns} ns"
    )]
    OutsideBounds {
        /// How many in this packet.
        count: u64,
        /// Time of the first, nanoseconds.
        at_ns: i64,
        /// On which side of the bound.
        side: &'static str,
        /// The bound, nanoseconds.
        bound_ns: i64,
    },
    /// Event records are earlier than the one before them in the stream; the place is that of the first.
    #[error("{count} event records go back in time, the first to {at_ns} ns from {before_ns} ns")]
    TimeBackward {
        /// How many in this packet.
        count: u64,
        /// Time of the first, nanoseconds.
        at_ns: i64,
        /// Time of the event record before it, nanoseconds.
        before_ns: i64,
    },
    /// A sealed chunk is not what its manifest says.
    #[error("{0}")]
    Manifest(Difference),
    /// More of something than is listed one by one.
    #[error("{count} more {what}")]
    More {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
    },
}

/// A number that may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown(pub Option<u64>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

pub(crate) fn chain(error: &Error) -> String {
    std::error::Error::source(error)
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Problem {
    /// A short name for programs; the same for all remarks of one kind.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Metadata(_) => "metadata",
            Self::MetadataWarning(_) => "metadata-warning",
            Self::Unreadable(_) => "unreadable",
            Self::RestUnreadable { .. } => "rest-unreadable",
            Self::Index(_) => "index",
            Self::IndexDisagrees { .. } => "index-disagrees",
            Self::DiscardedEventRecords { .. } => "discarded-event-records",
            Self::LostPackets { .. } => "lost-packets",
            Self::SequenceBackward { .. } => "sequence-backward",
            Self::Unclosed => "unclosed",
            Self::Bounds { .. } => "bounds",
            Self::Overlap { .. } => "overlap",
            Self::OutsideBounds { .. } => "outside-bounds",
            Self::TimeBackward { .. } => "time-backward",
            Self::Manifest(_) => "manifest",
            Self::More { .. } => "more",
        }
    }
}

impl Problem {
    /// The numbers and words of the message by their names, for programs.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, Detail)> {
        let size = |size: usize| i128::try_from(size).unwrap_or(i128::MAX);
        let number = |name, number: i128| (name, Detail::Number(number));
        let numbers = |all: Vec<(&'static str, i128)>| {
            all.into_iter().map(|(name, value)| (name, Detail::Number(value))).collect()
        };
        match self {
            Self::Metadata(Error::Metadata { source, .. }) => match source {
                ctf::Error::MetadataText { offset_bytes, line, .. }
                | ctf::Error::MetadataJson { offset_bytes, line, .. } => {
                    vec![number("offset_bytes", size(*offset_bytes)), number("line", size(*line))]
                }
                ctf::Error::MetadataPacket { offset_bytes, .. } => {
                    vec![number("offset_bytes", size(*offset_bytes))]
                }
                _ => Vec::new(),
            },
            Self::Metadata(_) | Self::Unclosed => Vec::new(),
            Self::MetadataWarning(MetadataWarning { offset_bytes, line, .. }) => {
                vec![number("offset_bytes", size(*offset_bytes)), number("line", size(*line))]
            }
            Self::Unreadable(cause) => numbers(cause.values()),
            Self::RestUnreadable { lost_bytes, cause } => {
                let mut values: Vec<_> = numbers(cause.values());
                values.push(number("lost_bytes", (*lost_bytes).into()));
                values
            }
            Self::Index(IndexProblem::Contents(error)) => numbers(error.values()),
            Self::Index(IndexProblem::OtherPacket { offset_bytes }) => {
                vec![number("offset_bytes", (*offset_bytes).into())]
            }
            Self::Index(IndexProblem::Io(_)) => Vec::new(),
            Self::IndexDisagrees { entry, what, indexed, found } => {
                let mut values = vec![number("entry", size(*entry)), ("what", Detail::Word(what))];
                let both = [("indexed", indexed.0), ("found", found.0)];
                let there = |(name, value): (_, Option<u64>)| Some(number(name, value?.into()));
                values.extend(both.into_iter().filter_map(there));
                values
            }
            Self::DiscardedEventRecords { count } | Self::LostPackets { count } => {
                vec![number("count", (*count).into())]
            }
            Self::SequenceBackward { before, found } => {
                vec![number("before", (*before).into()), number("found", (*found).into())]
            }
            Self::Bounds { begin, end } => {
                vec![number("begin", (*begin).into()), number("end", (*end).into())]
            }
            Self::Overlap { begin_ns, before_ns } => vec![
                number("begin_ns", (*begin_ns).into()),
                number("before_ns", (*before_ns).into()),
            ],
            Self::OutsideBounds { count, at_ns, side, bound_ns } => vec![
                number("count", (*count).into()),
                number("at_ns", (*at_ns).into()),
                ("side", Detail::Word(side)),
                number("bound_ns", (*bound_ns).into()),
            ],
            Self::TimeBackward { count, at_ns, before_ns } => vec![
                number("count", (*count).into()),
                number("at_ns", (*at_ns).into()),
                number("before_ns", (*before_ns).into()),
            ],
            Self::Manifest(difference) => match difference {
                Difference::Length { found, expected } => {
                    vec![number("found", (*found).into()), number("expected", (*expected).into())]
                }
                Difference::Stream { what, found, expected } => {
                    let mut values = vec![("what", Detail::Word(what)), number("found", *found)];
                    values.extend(expected.map(|expected| number("expected", expected)));
                    values
                }
                Difference::Missing { bytes } => vec![number("bytes", (*bytes).into())],
                Difference::OtherStream { class_id, .. } => {
                    vec![number("class_id", (*class_id).into())]
                }
                Difference::Unreadable { .. }
                | Difference::Changed
                | Difference::Recompressed
                | Difference::Unnamed => Vec::new(),
            },
            Self::More { what, count } => {
                vec![("what", Detail::Word(what)), number("count", (*count).into())]
            }
        }
    }
}

/// A part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// A number.
    Number(i128),
    /// One of a few words.
    Word(&'static str),
}

/// Reads all traces at or below `paths` and calls `tell` for each thing that is wrong, file after file; then compares
/// each sealed chunk with its manifest where it has one.
///
/// # Errors
/// As [`Recording::open`], but not for metadata of no use: that is a remark.
pub fn check<P: AsRef<Path>>(paths: &[P], tell: &mut dyn FnMut(Remark)) -> Result<Checked, Error> {
    let mut checked = Checked::default();
    let mut checker = Checker { checked: &mut checked, tell };
    let options = ReadOptions { correlate: Correlate::Unchecked, ..ReadOptions::default() };
    let opened = Recording::open_as(paths, &options, &mut ClassCache::default());
    let manifests = manifest::find(paths);
    match opened {
        Ok(recording) => checker.recording(recording),
        // Nothing was recorded in a chunk, or what was is gone: its manifest knows.
        Err(Error::NoTrace { .. }) if !manifests.is_empty() => {}
        Err(error) => match metadata_path(&error) {
            Some(path) => checker.whole(path, Problem::Metadata(error)),
            None => return Err(error),
        },
    }
    manifests.iter().try_for_each(|folder| checker.manifest(folder))?;
    Ok(checked)
}

/// The metadata file that an error is about.
fn metadata_path(error: &Error) -> Option<PathBuf> {
    match error {
        Error::Metadata { path, .. }
        | Error::MetadataEmpty { path, .. }
        | Error::MetadataTooLarge { path, .. } => Some(path.clone()),
        _ => None,
    }
}

struct Checker<'c> {
    checked: &'c mut Checked,
    tell: &'c mut dyn FnMut(Remark),
}

/// A place in a file.
#[derive(Debug, Clone, Copy)]
struct At<'f> {
    path: &'f Path,
    packet: u64,
}

/// What the packets of a stream before the current one said.
#[derive(Debug, Default)]
struct Course {
    before: Option<Before>,
    /// End of the packet before, when it said one.
    end: Option<Timestamp>,
    /// Time of the event record before.
    last_ns: Option<i64>,
}

impl Checker<'_> {
    fn remark(&mut self, remark: Remark) {
        self.checked.remarks += 1;
        (self.tell)(remark);
    }

    fn whole(&mut self, path: PathBuf, problem: Problem) {
        self.remark(Remark {
            path,
            packet_offset_bytes: None,
            offset_bits: None,
            event_index: None,
            field: None,
            problem,
        });
    }

    fn packet(&mut self, at: At<'_>, problem: Problem) {
        let decode = match &problem {
            Problem::Unreadable(Cause::Damaged(error))
            | Problem::RestUnreadable { cause: Cause::Damaged(error), .. } => Some(&**error),
            _ => None,
        };
        self.remark(Remark {
            path: at.path.to_owned(),
            packet_offset_bytes: Some(at.packet),
            offset_bits: decode.map(|error| error.offset_bits),
            event_index: decode.and_then(|error| error.event_index),
            field: decode.map(|error| error.field.clone()).filter(|field| !field.is_empty()),
            problem,
        });
    }

    fn event(&mut self, at: At<'_>, place: Place, problem: Problem) {
        self.remark(Remark {
            path: at.path.to_owned(),
            packet_offset_bytes: Some(at.packet),
            offset_bits: Some(place.offset_bits),
            event_index: Some(place.event_index),
            field: None,
            problem,
        });
    }

    fn recording(&mut self, mut recording: Recording) {
        self.findings(recording.take_findings());
        for trace in recording.traces() {
            self.checked.traces += 1;
            let Some(folder) = trace.folders().first() else { continue };
            let metadata = folder.join(METADATA);
            for warning in trace.class().warnings() {
                self.whole(metadata.clone(), Problem::MetadataWarning(warning.clone()));
            }
            let count = trace.class().unlisted_warnings();
            if count > 0 {
                self.whole(metadata, Problem::More { what: "metadata warnings", count });
            }
        }
        for stream in recording.streams() {
            self.stream(stream);
        }
    }

    /// Compares a sealed chunk with its manifest.
    fn manifest(&mut self, folder: &Path) -> Result<(), Error> {
        let differences = match Manifest::read(folder) {
            Ok(None) => return Ok(()),
            Ok(Some(manifest)) => manifest.differences(folder)?,
            Err(unreadable) => vec![(folder.join(MANIFEST), unreadable)],
        };
        self.checked.manifests += 1;
        for (path, difference) in differences {
            self.whole(path, Problem::Manifest(difference));
        }
        Ok(())
    }

    /// What opening the recording found.
    fn findings(&mut self, findings: Findings) {
        let (kept, count) = findings.into_parts();
        for finding in kept {
            match finding {
                Finding::Trace(error) => {
                    let path = match &error {
                        Error::Io { path, .. } => path.clone(),
                        error => metadata_path(error).unwrap_or_default(),
                    };
                    self.whole(path, Problem::Metadata(error));
                }
                Finding::Rest { path, offset_bytes, lost_bytes, cause } => {
                    let at = At { path: &path, packet: offset_bytes };
                    self.packet(at, Problem::RestUnreadable { lost_bytes, cause });
                }
                Finding::Packet { path, offset_bytes, cause } => {
                    let at = At { path: &path, packet: offset_bytes };
                    self.packet(at, Problem::Unreadable(cause));
                }
            }
        }
        if count > 0 {
            self.whole(PathBuf::new(), Problem::More { what: "unreadable files", count });
        }
    }

    fn stream(&mut self, stream: &Stream) {
        let mut course = Course::default();
        for file in &stream.files {
            self.file(file, &mut course);
        }
    }

    fn file(&mut self, file: &PacketFile, course: &mut Course) {
        self.checked.files += 1;
        let path = &*file.file.path;
        let mut headers = match PacketSource::open(path) {
            Ok(source) => Headers::new(source, &file.class),
            Err(error) => {
                let lost_bytes = file.file.len;
                let problem = Problem::RestUnreadable { lost_bytes, cause: Cause::Io(error) };
                return self.packet(At { path, packet: 0 }, problem);
            }
        };
        let mut index = self.index(file);
        let mut packets = Packets { window: Window::new(Handles::Keep, READ_AHEAD), reader: None };
        let mut next = Some(file.start).filter(|start| *start < file.file.len);
        while let Some(offset) = next {
            let at = At { path, packet: offset };
            let entry = index.as_mut().and_then(|index| index.entries.next());
            let info = match headers.info(offset) {
                Ok(info) => info,
                Err(cause) => {
                    next = self.damaged_header(file, index.as_mut(), at, cause);
                    continue;
                }
            };
            next = file.after(&Head::of(&info, offset));
            if let Err(cause) = file.own(&info) {
                self.packet(at, Problem::Unreadable(cause));
                continue;
            }
            self.checked.packets += 1;
            if let Some((index, entry)) = index.as_ref().zip(entry) {
                self.compare(index, entry, &info, offset);
            }
            self.bounds(file, at, &info, course);
            self.contents(file, at, &mut packets, &info, course);
        }
    }

    /// The index beside a file, to be compared with the packets.
    fn index(&mut self, file: &PacketFile) -> Option<IndexBeside> {
        let path = file.file.index_path()?;
        match Index::open(&file.file) {
            Ok(index) => {
                let index = index?;
                let version = index.version();
                let mut entries = index.enumerate().peekable();
                while entries.next_if(|(_, entry)| entry.offset_bytes < file.start).is_some() {}
                Some(IndexBeside { path, version, entries })
            }
            Err(problem) => {
                self.whole(path, Problem::Index(problem));
                None
            }
        }
    }

    /// Says why a header cannot be read; gives where the next packet begins, if that is known.
    fn damaged_header(
        &mut self,
        file: &PacketFile,
        index: Option<&mut IndexBeside>,
        at: At<'_>,
        cause: Cause,
    ) -> Option<u64> {
        let indexed = index.and_then(|index| index.after(at.packet));
        let announced = match &cause {
            Cause::Damaged(error) => error.kind.packet_bytes(),
            _ => None,
        };
        let announced = announced.and_then(|bytes| at.packet.checked_add(bytes));
        let next = announced.filter(|next| *next <= file.file.len).or(indexed);
        let lost_bytes = file.file.len.saturating_sub(at.packet);
        self.packet(
            at,
            match next {
                Some(_) => Problem::Unreadable(cause),
                None => Problem::RestUnreadable { lost_bytes, cause },
            },
        );
        next
    }

    /// Compares what the index says of a packet with the packet.
    fn compare(
        &mut self,
        index: &IndexBeside,
        (position, entry): (usize, IndexEntry),
        info: &PacketInfo,
        offset: u64,
    ) {
        for (what, indexed, found) in differences(&entry, index.version, info, offset) {
            let problem = Problem::IndexDisagrees {
                entry: position,
                what,
                indexed: Shown(indexed),
                found: Shown(found),
            };
            self.packet(At { path: &index.path, packet: offset }, problem);
        }
    }

    /// What a packet says of itself, and of what came before it.
    fn bounds(&mut self, file: &PacketFile, at: At<'_>, info: &PacketInfo, course: &mut Course) {
        let head = Head::of(info, at.packet);
        let begin = file.time(info.begin);
        let closed = info.end.filter(|end| *end != 0);
        let end = file.time(closed);
        match (info.begin, info.end) {
            (Some(begin), Some(0)) if begin > 0 => self.packet(at, Problem::Unclosed),
            (Some(begin), Some(end)) if end < begin => {
                self.packet(at, Problem::Bounds { begin, end });
            }
            _ => {}
        }
        if let (Some(before), Some(begin)) = (course.end, begin)
            && begin < before
        {
            let (begin_ns, before_ns) = (begin.nanos(), before.nanos());
            self.packet(at, Problem::Overlap { begin_ns, before_ns });
        }
        let bits = file.stream_class().and_then(StreamClass::discarded_counter_bits);
        if let Some(before) = course.before {
            for Lost { kind, count, .. } in
                losses(before, head, bits, begin, end.or(begin)).into_iter().flatten()
            {
                self.packet(
                    at,
                    match kind {
                        LossKind::EventRecords => Problem::DiscardedEventRecords { count },
                        LossKind::Packets => Problem::LostPackets { count },
                    },
                );
            }
            if let (Some(before), Some(found)) = (before.sequence, head.sequence)
                && found <= before
            {
                self.packet(at, Problem::SequenceBackward { before, found });
            }
        }
        course.before =
            Some(Before { end: end.or(begin), discarded: head.discarded, sequence: head.sequence });
        course.end = end;
    }

    /// Goes through the event records of a packet.
    fn contents(
        &mut self,
        file: &PacketFile,
        at: At<'_>,
        packets: &mut Packets,
        info: &PacketInfo,
        course: &mut Course,
    ) {
        let available = file.file.len.saturating_sub(at.packet);
        let announced = info.total_bytes().filter(|len| *len > 0).unwrap_or(available);
        match packets.open(file, at.packet, announced.min(available), announced) {
            Ok(events) => self.events(file, at, events, course),
            Err(cause) => self.packet(at, Problem::Unreadable(cause)),
        }
    }

    fn events(
        &mut self,
        file: &PacketFile,
        at: At<'_>,
        events: &mut EventReader<Bytes>,
        course: &mut Course,
    ) {
        let info = *events.packet();
        let begin = file.time(info.begin).map(Timestamp::nanos);
        let end = file.time(info.end.filter(|end| *end != 0)).map(Timestamp::nanos);
        let mut times = Times { begin, end, outside: None, backward: None };
        let fault: Option<DecodeError> = loop {
            match events.next_event() {
                Ok(Some(event)) => {
                    self.checked.event_records += 1;
                    if let Some(at_ns) = event.timestamp_ns() {
                        let place =
                            Place { offset_bits: event.begin_bits(), event_index: event.index() };
                        times.add(at_ns, course.last_ns, place);
                        course.last_ns = Some(at_ns);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some((place, problem)) = times.outside {
            self.event(at, place, problem);
        }
        if let Some((place, problem)) = times.backward {
            self.event(at, place, problem);
        }
        if let Some(error) = fault {
            self.packet(at, Problem::Unreadable(Cause::Damaged(Box::new(error))));
        }
    }
}

/// The entries of an index, numbered.
#[derive(Debug)]
struct IndexBeside {
    path: PathBuf,
    version: IndexVersion,
    entries: Peekable<std::iter::Enumerate<Index>>,
}

impl IndexBeside {
    /// Where the first packet after `offset` begins.
    fn after(&mut self, offset: u64) -> Option<u64> {
        while self.entries.next_if(|(_, entry)| entry.offset_bytes <= offset).is_some() {}
        self.entries.peek().map(|(_, entry)| entry.offset_bytes)
    }
}

/// The packets of one file, each in the memory of the one before.
#[derive(Debug)]
struct Packets {
    window: Window,
    reader: Option<EventReader<Bytes>>,
}

impl Packets {
    /// Stands before the first event record of the packet at `offset`, of which `len` bytes of those that it announces
    /// are there.
    fn open(
        &mut self,
        file: &PacketFile,
        offset: u64,
        len: u64,
        announced: u64,
    ) -> Result<&mut EventReader<Bytes>, Cause> {
        if len > MAX_PACKET_BYTES {
            return Err(Cause::TooLong { announced, limit: MAX_PACKET_BYTES });
        }
        let least = usize::try_from(len).unwrap_or(usize::MAX);
        let mut before = self.reader.take();
        // So that the window has its memory for itself.
        drop(before.as_mut().map(EventReader::take_bytes));
        let available = file.file.len.saturating_sub(offset);
        let bytes =
            self.window.get(&file.file.path, offset, least, available).map_err(Cause::Io)?;
        let held = bytes.len() as u64;
        let opened = match before {
            Some(reader) => reader.reopen(bytes),
            None => EventReader::open(Arc::clone(&file.class), bytes),
        };
        match opened.map_err(|error| Cause::Damaged(Box::new(error)))? {
            Outcome::Ready(events) => Ok(self.reader.insert(events)),
            Outcome::NeedMore { .. } => Err(Cause::CutHeader { available: held }),
        }
    }
}

/// Where an event record is in its packet.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset_bits: u64,
    event_index: u64,
}

/// What is wrong with the times of one packet's event records: the first of each kind, and how many.
#[derive(Debug)]
struct Times {
    begin: Option<i64>,
    end: Option<i64>,
    outside: Option<(Place, Problem)>,
    backward: Option<(Place, Problem)>,
}

impl Times {
    #[inline]
    fn add(&mut self, at_ns: i64, before: Option<i64>, place: Place) {
        if let Some(begin) = self.begin.filter(|begin| at_ns < *begin) {
            self.outside(at_ns, "before", begin, place);
        } else if let Some(end) = self.end.filter(|end| at_ns > *end) {
            self.outside(at_ns, "after", end, place);
        }
        if let Some(before_ns) = before.filter(|before| at_ns < *before) {
            match &mut self.backward {
                Some((_, Problem::TimeBackward { count, .. })) => *count += 1,
                backward => {
                    let problem = Problem::TimeBackward { count: 1, at_ns, before_ns };
                    *backward = Some((place, problem));
                }
            }
        }
    }

    #[cold]
    fn outside(&mut self, at_ns: i64, side: &'static str, bound_ns: i64, place: Place) {
        match &mut self.outside {
            Some((_, Problem::OutsideBounds { count, .. })) => *count += 1,
            outside => {
                let problem = Problem::OutsideBounds { count: 1, at_ns, side, bound_ns };
                *outside = Some((place, problem));
            }
        }
    }
}

/// What an index entry and its packet both say, where they differ.
fn differences(
    entry: &IndexEntry,
    version: IndexVersion,
    info: &PacketInfo,
    offset: u64,
) -> impl Iterator<Item = (&'static str, Option<u64>, Option<u64>)> + use<> {
    // What the packet does not tell, the index cannot contradict.
    let told = |found: Option<u64>, indexed| (Some(indexed), found.or(Some(indexed)));
    let position = entry.position.filter(|_| version == IndexVersion::V1_1);
    let positioned = |found: Option<u64>, indexed: Option<u64>| {
        (indexed, found.filter(|_| indexed.is_some()).or(indexed))
    };
    let all = [
        ("offset", (Some(entry.offset_bytes), Some(offset))),
        ("total length", (Some(entry.total_length_bits), info.total_bits)),
        ("content length", (Some(entry.content_length_bits), info.content_bits)),
        ("begin", told(info.begin, entry.timestamp_begin)),
        ("end", told(info.end, entry.timestamp_end)),
        ("discarded event records", told(info.events_discarded, entry.events_discarded)),
        ("stream class", (Some(entry.stream_class_id), Some(info.stream_class_id))),
        (
            "stream instance",
            positioned(info.stream_instance_id, position.map(|own| own.stream_instance_id)),
        ),
        (
            "sequence number",
            positioned(info.sequence_number, position.map(|own| own.packet_seq_num)),
        ),
    ];
    let all = all.into_iter().map(|(what, (indexed, found))| (what, indexed, found));
    all.filter(|(_, indexed, found)| indexed != found)
}
