//! Finding the first packet that a range of time needs.
//!
//! # Rule
//!
//! A packet is passed when it ends before the range **and** the stream's next packet begins before it: LTTng's known
//! fault is an end that is too early, and the next packet's begin bounds that. A packet that was never closed, or that
//! does not tell its end, is bounded by the next packet's begin alone. A file is passed unseen when two later files of
//! its stream begin before the range. Within a file, packets are taken to end in the order in which they lie.

use ctf::StreamClass;
use model::Timestamp;

use crate::heads::{Head, HeadReader};
use crate::lane::Before;
use crate::stream::PacketFile;

/// One packet of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Position of its file in the stream.
    pub(crate) file: usize,
    pub(crate) head: Head,
    /// What is to be kept of it, after the packets before it that were looked at.
    pub(crate) kept: Before,
}

/// The first packet that must be read to miss nothing from `begin` on; `None` when it is the stream's very first.
///
/// What was lost before it has its place at the end of the packet before, so it is not of the range.
pub(crate) fn find(files: &[PacketFile], begin: Timestamp) -> Option<Place> {
    let starts_before =
        |file: &PacketFile| file.time(file.first.begin).is_some_and(|at| at < begin);
    let started = files.partition_point(starts_before);
    let from = started.saturating_sub(2);
    let mut search = Search { begin, candidate: None };
    for (index, file) in files.iter().enumerate().skip(from).take(started + 1 - from) {
        if search.file(index, file) == Found::Yes {
            break;
        }
    }
    search.candidate
}

#[derive(PartialEq, Eq)]
enum Found {
    Yes,
    /// All packets so far may be passed if the next one begins before the range.
    NotYet,
}

struct Search {
    begin: Timestamp,
    candidate: Option<Place>,
}

impl Search {
    fn file(&mut self, index: usize, file: &PacketFile) -> Found {
        let saved = self.candidate;
        if let Some(entries) = file.trusted_index() {
            let own = entries.heads().skip_while(|head| head.offset < file.start);
            let found = self.heads(index, file, own);
            if self.confirmed(index, file) {
                return found;
            }
            self.candidate = saved;
        }
        let reader = || HeadReader::open(file).ok();
        let from = reader().and_then(|mut reader| {
            let passed =
                |head: &Head| self.starts_before(file, head) && self.ends_before(file, head);
            Some(reader.uniform()?.before_first_not(passed)?.offset)
        });
        match reader() {
            Some(reader) => {
                let from = from.unwrap_or(file.first.offset).max(file.start);
                self.heads(index, file, reader.heads(from))
            }
            // What cannot be opened is met again when it is read.
            None => Found::Yes,
        }
    }

    /// Goes on with packets in a row.
    fn heads(
        &mut self,
        index: usize,
        file: &PacketFile,
        heads: impl Iterator<Item = Head>,
    ) -> Found {
        let bits = file.stream_class().and_then(StreamClass::discarded_counter_bits);
        for head in heads {
            if self.candidate.is_some() && !self.starts_before(file, &head) {
                return Found::Yes;
            }
            let passed = self.candidate.map(|place| place.kept);
            let (kept, _) = Before::step(passed, head, bits, None, None);
            self.candidate = Some(Place { file: index, head, kept });
            if !self.ends_before(file, &head) {
                return Found::Yes;
            }
        }
        Found::NotYet
    }

    /// Whether the packet of this file that an index led to says what the index says of it.
    fn confirmed(&self, index: usize, file: &PacketFile) -> bool {
        let Some(place) = self.candidate.filter(|place| place.file == index) else { return true };
        let told =
            HeadReader::open(file).ok().and_then(|mut reader| reader.at(place.head.offset).ok());
        told.is_some_and(|head| head.agrees(&place.head))
    }

    fn starts_before(&self, file: &PacketFile, head: &Head) -> bool {
        file.time(head.begin).is_some_and(|at| at < self.begin)
    }

    fn ends_before(&self, file: &PacketFile, head: &Head) -> bool {
        let end = head.end.filter(|end| *end != 0);
        match (end, file.time(end)) {
            (Some(_), time) => time.is_some_and(|at| at < self.begin),
            (None, _) => self.starts_before(file, head),
        }
    }
}
