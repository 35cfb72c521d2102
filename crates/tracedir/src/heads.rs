//! What the packets of a stream file say, without reading what is between their headers.
//!
//! Three ways, the cheapest that can be trusted:
//!
//! 1. the index beside the file ([`IndexHeads`]), when all its entries together describe a file of this length and its
//!    first entry says what the file's first packet says;
//! 2. by calculation ([`HeadReader::uniform`]), when all packets are as long as the first: the packet that the length
//!    leads to must have the sequence number that belongs there;
//! 3. from header to header.
//!
//! Places inside of a packet are not kept: going over the event records of one packet costs less than a millisecond per
//! mebibyte, and the places would be the only memory that grows with a trace.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use ctf::TraceClass;
use ctf::index::{HEADER_LEN, IndexCheck, IndexEntry, IndexVersion};
use ctf::packet::{Outcome, PacketInfo, decode_packet_header};

use crate::discover::StreamFile;
use crate::finding::Cause;
use crate::stream::PacketFile;
use crate::window::{FIRST_LOOK, READ_AHEAD};

/// From this many packets on, places are calculated where that is possible.
const MANY: u64 = 16;

/// Packets shorter than this are read along with their headers: that costs less than asking for each header.
const SHORT_PACKET: u64 = 4 << 10;

/// Bytes of an index file that are read at once.
const INDEX_BLOCK: usize = 64 << 10;

/// What a reader needs of a packet before it reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) offset: u64,
    /// Length in bytes; `None` for the rest of the file.
    pub(crate) len: Option<u64>,
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
            begin: info.begin,
            end: info.end,
            discarded: info.events_discarded,
            sequence: info.sequence_number,
        }
    }

    fn indexed(entry: &IndexEntry) -> Self {
        Self {
            offset: entry.offset_bytes,
            len: Some(entry.total_length_bits / 8),
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
}

/// Reads packet headers of one file.
#[derive(Debug)]
pub(crate) struct HeadReader<'f> {
    file: &'f PacketFile,
    source: File,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    start: u64,
    /// How much is read at least.
    look: usize,
}

impl<'f> HeadReader<'f> {
    pub(crate) fn open(file: &'f PacketFile) -> io::Result<Self> {
        let source = File::open(&file.file.path)?;
        Ok(Self { file, source, buffer: Vec::new(), start: 0, look: FIRST_LOOK })
    }

    /// The header at `offset`.
    pub(crate) fn at(&mut self, offset: u64) -> Result<Head, Cause> {
        let info = self.info(offset)?;
        if info.stream_class_id == self.file.stream_class_id
            && info.stream_instance_id == self.file.instance_id
        {
            return Ok(Head::of(&info, offset));
        }
        Err(Cause::OtherStream {
            class_id: info.stream_class_id,
            instance_id: info.stream_instance_id,
        })
    }

    fn info(&mut self, offset: u64) -> Result<PacketInfo, Cause> {
        let class = &*self.file.class;
        let mut held = usize::try_from(offset.wrapping_sub(self.start))
            .ok()
            .and_then(|skip| self.buffer.get(skip..))
            .unwrap_or_default();
        if held.len() < FIRST_LOOK {
            fill(&self.source, &mut self.buffer, offset, self.look)?;
            (self.start, held) = (offset, &self.buffer);
        }
        let info = loop {
            match decode(class, held)? {
                Decoded::Info(info) => break info,
                Decoded::More(least) => {
                    let before = held.len();
                    fill(&self.source, &mut self.buffer, offset, least)?;
                    (self.start, held) = (offset, &self.buffer);
                    if held.len() <= before {
                        return Err(Cause::CutHeader { available: before as u64 });
                    }
                }
            }
        };
        let short = info.total_bytes().is_some_and(|len| len < SHORT_PACKET);
        self.look = if short { READ_AHEAD } else { FIRST_LOOK };
        Ok(info)
    }

    /// The heads from `offset` on, up to the first that cannot be read.
    pub(crate) fn heads(mut self, offset: u64) -> impl Iterator<Item = Head> + use<'f> {
        let mut next = Some(offset);
        std::iter::from_fn(move || {
            let offset = next.take().filter(|offset| *offset < self.file.file.len)?;
            let head = self.at(offset).ok()?;
            next = head.next_offset();
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

enum Decoded {
    Info(PacketInfo),
    More(usize),
}

fn decode(class: &TraceClass, bytes: &[u8]) -> Result<Decoded, Cause> {
    match decode_packet_header(class, bytes).map_err(|error| Cause::Damaged(Box::new(error)))? {
        Outcome::Ready(info) => Ok(Decoded::Info(info)),
        Outcome::NeedMore { at_least_bytes } => Ok(Decoded::More(at_least_bytes)),
    }
}

/// Makes `buffer` hold `len` bytes from `offset`; fewer at the file's end.
fn fill(file: &File, buffer: &mut Vec<u8>, offset: u64, len: usize) -> Result<(), Cause> {
    buffer.resize(len, 0);
    let read = read_at_most(file, buffer, offset).map_err(Cause::Io)?;
    buffer.truncate(read);
    Ok(())
}

/// The header of the packet at `offset` of a file of which nothing is known yet.
pub(crate) fn first_info(
    file: &File,
    class: &TraceClass,
    offset: u64,
) -> Result<PacketInfo, Cause> {
    let mut look = [0; FIRST_LOOK];
    let read = read_at_most(file, &mut look, offset).map_err(Cause::Io)?;
    let mut needed = match decode(class, look.get(..read).unwrap_or_default())? {
        Decoded::Info(info) => return Ok(info),
        Decoded::More(needed) => needed,
    };
    let mut buffer = Vec::new();
    loop {
        let before = buffer.len().max(read);
        fill(file, &mut buffer, offset, needed)?;
        if buffer.len() <= before {
            return Err(Cause::CutHeader { available: before as u64 });
        }
        match decode(class, &buffer)? {
            Decoded::Info(info) => return Ok(info),
            Decoded::More(more) => needed = more,
        }
    }
}

/// Fills `buffer` from `offset`; fewer bytes only at the file's end.
pub(crate) fn read_at_most(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The packets as an index tells them. Reads the index in blocks.
#[derive(Debug)]
pub(crate) struct IndexHeads {
    source: io::Take<File>,
    version: IndexVersion,
    block: Vec<u8>,
    at: usize,
}

impl IndexHeads {
    /// The index beside `file`; `None` when there is none that describes it.
    ///
    /// An index is a short cut: whatever is wrong with it, the packets themselves say the same.
    pub(crate) fn open(file: &PacketFile) -> Option<Self> {
        Self::trusted(&file.file, |first| {
            let instance = first.position.zip(file.instance_id);
            let same_stream = first.stream_class_id == file.stream_class_id
                && instance.is_none_or(|(told, own)| told.stream_instance_id == own);
            // When the first packet cannot be read, it says nothing that the index could contradict.
            same_stream && (file.first.offset != 0 || file.first.agrees(&Head::indexed(first)))
        })
    }

    /// The index beside `file`, when its first entry is accepted and all of them describe a file of that length.
    pub(crate) fn trusted(
        file: &StreamFile,
        accept: impl FnOnce(&IndexEntry) -> bool,
    ) -> Option<Self> {
        let path = file.index_path()?;
        let mut heads = Self::start(File::open(&path).ok()?)?;
        let mut check = IndexCheck::default();
        let first = heads.next_entry().filter(accept)?;
        check.entry(&first).ok()?;
        while let Some(entry) = heads.next_entry() {
            check.entry(&entry).ok()?;
        }
        check.finish(file.len).ok()?;
        Self::start(File::open(path).ok()?)
    }

    fn start(mut source: File) -> Option<Self> {
        let len = source.metadata().ok()?.len().checked_sub(HEADER_LEN as u64)?;
        let mut header = [0; HEADER_LEN];
        source.read_exact(&mut header).ok()?;
        let version = IndexVersion::decode(&header).ok()?;
        let whole = len.is_multiple_of(version.entry_len() as u64);
        whole.then_some(Self { source: source.take(len), version, block: Vec::new(), at: 0 })
    }

    fn next_entry(&mut self) -> Option<IndexEntry> {
        let len = self.version.entry_len();
        if self.at >= self.block.len() {
            self.block.clear();
            self.at = 0;
            let block = (INDEX_BLOCK / len * len) as u64;
            self.source.by_ref().take(block).read_to_end(&mut self.block).ok()?;
        }
        let entry = IndexEntry::decode(self.block.get(self.at..)?.get(..len)?, self.version);
        self.at += len;
        entry
    }
}

impl Iterator for IndexHeads {
    type Item = Head;

    fn next(&mut self) -> Option<Head> {
        self.next_entry().map(|entry| Head::indexed(&entry))
    }
}
