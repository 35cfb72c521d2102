//! What the packets of a stream file say, without reading what is between their headers.
//!
//! Three ways, the cheapest that can be trusted:
//!
//! 1. the index beside the file ([`Index`](crate::index::Index)), when all its entries together describe a file of this length and its
//!    first entry says what the file's first packet says ([`PacketFile::index`]);
//! 2. by calculation ([`HeadReader::uniform`]), when all packets are as long as the first: the packet that the length
//!    leads to must have the sequence number that belongs there;
//! 3. from header to header.
//!
//! Places inside of a packet are not kept: going over the event records of one packet costs less than a millisecond per
//! mebibyte, and the places would be the only memory that grows with a trace.

use std::io;

use ctf::TraceClass;
use ctf::index::IndexEntry;
use ctf::packet::{Outcome, PacketInfo, decode_packet_header};

use crate::finding::Cause;
use crate::seekable::read_at_most;
use crate::source::PacketSource;
use crate::stream::PacketFile;
use crate::window::{FIRST_LOOK, READ_AHEAD};

/// From this many packets on, places are calculated where that is possible.
const MANY: u64 = 16;

/// Packets shorter than this are read along with their headers: that costs less than asking for each header.
const SHORT_PACKET: u64 = 4 << 10;

/// What a reader needs of a packet before it reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) offset: u64,
    /// Length in bytes; `None` for the rest of the file.
    pub(crate) len: Option<u64>,
    pub(crate) content_bits: Option<u64>,
    /// Cycles.
    pub(crate) begin: Option<u64>,
    /// Cycles.
    pub(crate) end: Option<u64>,
    pub(crate) discarded: Option<u64>,
    pub(crate) sequence: Option<u64>,
}

impl Head {
    pub(crate) fn of(info: &PacketInfo, offset: u64) -> Self {
        Self {
            offset,
            len: info.total_bytes(),
            content_bits: info.content_bits,
            begin: info.begin,
            end: info.end,
            discarded: info.events_discarded,
            sequence: info.sequence_number,
        }
    }

    pub(crate) fn indexed(entry: &IndexEntry) -> Self {
        Self {
            offset: entry.offset_bytes,
            len: Some(entry.total_length_bits / 8),
            content_bits: Some(entry.content_length_bits),
            begin: Some(entry.timestamp_begin),
            end: Some(entry.timestamp_end),
            discarded: Some(entry.events_discarded),
            sequence: entry.position.map(|position| position.packet_seq_num),
        }
    }

    /// Where the next packet begins.
    pub(crate) fn next_offset(&self) -> Option<u64> {
        self.offset.checked_add(self.len.filter(|len| *len > 0)?)
    }

    /// Whether both are about a packet of the same place, length and begin.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        (self.offset, self.len, self.begin) == (other.offset, other.len, other.begin)
    }

    /// Whether nothing that both say differs.
    pub(crate) fn is_consistent_with(&self, other: &Self) -> bool {
        let fields = |head: &Self| {
            let Self { offset: _, len, content_bits, begin, end, discarded, sequence } = *head;
            [len, content_bits, begin, end, discarded, sequence]
        };
        let differs = |(a, b): (Option<u64>, Option<u64>)| a.zip(b).is_some_and(|(a, b)| a != b);
        self.offset == other.offset && !fields(self).into_iter().zip(fields(other)).any(differs)
    }

    /// Whether both are the same packet, read from two files.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        self.begin.is_some()
            && self.end.or(self.sequence).is_some()
            && Self { offset: 0, ..*self } == Self { offset: 0, ..*other }
    }
}

/// Reads packet headers at any place of a file.
#[derive(Debug)]
pub(crate) struct Headers<'c> {
    source: PacketSource,
    class: &'c TraceClass,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    start: u64,
    /// How much is read at least.
    look: usize,
}

impl<'c> Headers<'c> {
    pub(crate) const fn new(source: PacketSource, class: &'c TraceClass) -> Self {
        Self { source, class, buffer: Vec::new(), start: 0, look: FIRST_LOOK }
    }

    /// Header and context of the packet at `offset`, whichever stream it is of.
    pub(crate) fn info(&mut self, offset: u64) -> Result<PacketInfo, Cause> {
        if self.held(offset).len() < FIRST_LOOK {
            self.fill(offset, self.look)?;
        }
        let info = loop {
            let held = self.held(offset);
            match decode_packet_header(self.class, held)
                .map_err(|error| Cause::Damaged(Box::new(error)))?
            {
                Outcome::Ready(info) => break info,
                Outcome::NeedMore { at_least_bytes } => {
                    let before = held.len();
                    self.fill(offset, at_least_bytes.max(before + 1))?;
                    if self.buffer.len() <= before {
                        return Err(Cause::CutHeader { available: before as u64 });
                    }
                }
            }
        };
        let short = info.total_bytes().is_some_and(|len| len < SHORT_PACKET);
        self.look = if short { READ_AHEAD } else { FIRST_LOOK };
        Ok(info)
    }

    /// What of the file is there from `offset` on.
    fn held(&self, offset: u64) -> &[u8] {
        let skip = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default()
    }

    /// Holds `len` bytes from `offset`; fewer at the file's end.
    fn fill(&mut self, offset: u64, len: usize) -> Result<(), Cause> {
        self.start = offset;
        self.buffer.resize(len, 0);
        let read = read_at_most(&self.source, &mut self.buffer, offset);
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop).map_err(Cause::Io)
    }
}

/// Reads packet headers of a stream's file.
#[derive(Debug)]
pub(crate) struct HeadReader<'f> {
    file: &'f PacketFile,
    headers: Headers<'f>,
}

impl<'f> HeadReader<'f> {
    pub(crate) fn open(file: &'f PacketFile) -> io::Result<Self> {
        Ok(Self { file, headers: Headers::new(file.file.open()?, &file.class) })
    }

    /// The header at `offset`.
    pub(crate) fn at(&mut self, offset: u64) -> Result<Head, Cause> {
        let info = self.headers.info(offset)?;
        self.file.own(&info)?;
        Ok(Head::of(&info, offset))
    }

    /// The heads from `offset` on, up to the first that cannot be read.
    pub(crate) fn heads(mut self, offset: u64) -> impl Iterator<Item = Head> + use<'f> {
        let mut next = Some(offset);
        std::iter::from_fn(move || {
            let head = self.at(next.take()?).ok()?;
            next = self.file.after(&head);
            Some(head)
        })
    }

    /// The packets by number, when all are of one length.
    pub(crate) fn uniform(&mut self) -> Option<Uniform<'_, 'f>> {
        let first = self.file.first;
        let len = first.len.filter(|len| *len > 0 && first.offset == 0)?;
        let packets = self.file.file.len / len;
        let whole = self.file.file.len.is_multiple_of(len) && packets >= MANY;
        (whole && first.sequence.is_some()).then_some(Uniform { reader: self, len, packets })
    }
}

/// A file whose packets all seem to be of one length.
#[derive(Debug)]
pub(crate) struct Uniform<'r, 'f> {
    reader: &'r mut HeadReader<'f>,
    len: u64,
    packets: u64,
}

impl Uniform<'_, '_> {
    /// The packet with this number; `None` when they are not of one length after all.
    pub(crate) fn packet(&mut self, number: u64) -> Option<Head> {
        let first = self.reader.file.first;
        let head = self.reader.at(number.checked_mul(self.len)?).ok()?;
        let expected = first.sequence?.checked_add(number)?;
        (head.sequence == Some(expected) && head.len == Some(self.len)).then_some(head)
    }

    /// The last packet.
    pub(crate) fn last(&mut self) -> Option<Head> {
        self.packet(self.packets.checked_sub(1)?)
    }

    /// The packet before the first that `passed` does not hold for; the very first packet when there is none before.
    /// `passed` must hold for all packets before one for which it holds.
    pub(crate) fn before_first_not(&mut self, passed: impl Fn(&Head) -> bool) -> Option<Head> {
        self.last()?;
        let mut before = self.packet(0)?;
        let (mut low, mut high) = (0, self.packets);
        while low < high {
            let middle = low + (high - low) / 2;
            let head = self.packet(middle)?;
            if passed(&head) {
                (low, before) = (middle + 1, head);
            } else {
                high = middle;
            }
        }
        Some(before)
    }
}
