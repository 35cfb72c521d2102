//! One packet: its bytes, its index entry, the times of its event records.

use std::iter::Peekable;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ctf::index::{IndexEntry, IndexVersion};
use ctf::packet::{EventReader, Outcome, PacketInfo};

use super::problem::Problem;
use crate::finding::Cause;
use crate::index::Index;
use crate::lane::MAX_PACKET_BYTES;
use crate::stream::PacketFile;
use crate::window::Window;

/// The entries of an index, numbered.
#[derive(Debug)]
pub(super) struct IndexBeside {
    pub(super) path: PathBuf,
    pub(super) version: IndexVersion,
    pub(super) entries: Peekable<std::iter::Enumerate<Index>>,
}

impl IndexBeside {
    /// Where the first packet after `offset` begins.
    pub(super) fn after(&mut self, offset: u64) -> Option<u64> {
        while self.entries.next_if(|(_, entry)| entry.offset_bytes <= offset).is_some() {}
        self.entries.peek().map(|(_, entry)| entry.offset_bytes)
    }
}

/// The packets of one file, each in the memory of the one before.
#[derive(Debug)]
pub(super) struct Packets {
    pub(super) window: Window,
    pub(super) reader: Option<EventReader<Bytes>>,
}

impl Packets {
    /// Stands before the first event record of the packet at `offset`, of which `len` bytes of those that it announces
    /// are there.
    pub(super) fn open(
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
        let bytes = self.window.get(&file.file, offset, least, available).map_err(Cause::Io)?;
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
pub(super) struct Place {
    pub(super) offset_bits: u64,
    pub(super) event_index: u64,
}

/// What is wrong with the times of one packet's event records: the first of each kind, and how many.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) begin: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) outside: Option<(Place, Problem)>,
    pub(super) backward: Option<(Place, Problem)>,
}

impl Times {
    #[inline]
    pub(super) fn add(&mut self, at_ns: i64, before: Option<i64>, place: Place) {
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
pub(super) fn differences(
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
