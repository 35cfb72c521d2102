//! A packet that viewers may read, and where its entry is when it is not in memory.

use ctf::index::IndexEntry;

use super::chunks::ChunkKey;
use super::file::TraceFile;
use super::segments::Segment;

/// A packet that was released: it and its index entry are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The chunk it is in.
    pub(crate) chunk: ChunkKey,
    /// The trace file of the chunk.
    pub(crate) file: u64,
    /// Where it is in the file, and what its producer said of it.
    pub(crate) entry: IndexEntry,
    /// Its bytes are gone: overwritten or cleared.
    pub(super) is_gone: bool,
}

/// Entries that a viewer has read from an index file.
#[derive(Debug)]
pub(crate) struct Page {
    pub(super) chunk: ChunkKey,
    /// The trace file of the chunk.
    pub(super) number: u64,
    /// Number of the first of `entries`.
    pub(super) first: u64,
    pub(super) entries: Vec<IndexEntry>,
    /// The trace file itself, until it is taken.
    pub(crate) file: Option<TraceFile>,
}

/// Entries that a viewer is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(super) segment: Segment,
    /// Number of the first one.
    pub(crate) number: u64,
    /// How many there are, in this file and not in memory.
    pub(super) count: u64,
}

impl Packet {
    /// Bytes that it has.
    pub(crate) const fn len(&self) -> u64 {
        self.entry.total_length_bits / 8
    }
}

impl Stored {
    /// The trace file they are of.
    pub(crate) const fn file(&self) -> (ChunkKey, u64) {
        (self.segment.chunk, self.segment.file)
    }

    /// How many entries of the index file are before them.
    pub(super) const fn record(&self) -> u64 {
        self.number - self.segment.first
    }

    /// Behind the last one.
    pub(crate) const fn end(&self) -> u64 {
        self.number + self.count
    }
}

impl Page {
    /// Whether it is of the file that a packet is in.
    pub(crate) fn is_of(&self, packet: &Packet) -> bool {
        (self.chunk, self.number) == (packet.chunk, packet.file)
    }

    /// The first packet, and its file.
    pub(crate) fn take_first(self) -> Option<(TraceFile, Packet)> {
        let (chunk, file) = (self.chunk, self.number);
        let entry = *self.entries.first()?;
        Some((self.file?, Packet { chunk, file, entry, is_gone: false }))
    }

    /// A packet of a trace file, if its entry is here.
    pub(super) fn packet(&self, segment: &Segment, number: u64) -> Option<Packet> {
        if !segment.is_in(self.chunk, self.number) {
            return None;
        }
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = *self.entries.get(at)?;
        Some(Packet { chunk: self.chunk, file: self.number, entry, is_gone: false })
    }
}
