//! Everything that is wrong with a recording, found by reading all of it.
//!
//! Where a reader leaves out what is damaged and goes on, [`check`] says each thing by itself: what cannot be decoded,
//! what contradicts something else, and what the tracers lost. Nothing is written. Memory: one packet.

mod packet;
mod problem;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ctf::index::IndexEntry;
use ctf::packet::{EventReader, PacketInfo};
use ctf::{DecodeError, StreamClass};
use model::Timestamp;

use self::packet::{IndexBeside, Packets, Place, Times, differences};
pub use self::problem::{Detail, Problem, Remark, Shown};
use crate::classes::ClassCache;
use crate::discover::METADATA;
use crate::error::Error;
use crate::finding::{Cause, Finding, Findings};
use crate::heads::{Head, Headers};
use crate::index::Index;
use crate::lane::{Before, Lost};
use crate::manifest::{self, MANIFEST, Manifest};
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
        let (now, lost) = Before::step(course.before, head, bits, begin, end.or(begin));
        for Lost { kind, count, .. } in lost.into_iter().flatten() {
            let problem = match kind {
                LossKind::EventRecords => Problem::DiscardedEventRecords { count },
                LossKind::Packets => Problem::LostPackets { count },
            };
            self.packet(at, problem);
        }
        let before = course.before.and_then(|before| before.sequence);
        if let (Some(before), Some(found)) = (before, head.sequence)
            && found <= before
        {
            self.packet(at, Problem::SequenceBackward { before, found });
        }
        course.before = Some(now);
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
