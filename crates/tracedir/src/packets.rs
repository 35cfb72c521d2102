//! The packets of a stream file by their headers alone, from its index or from the file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use ctf::TraceClass;
use ctf::index::{IndexEntry, IndexError, IndexVersion, PacketIndex};
use ctf::packet::{Outcome, PacketInfo, decode_packet_header};

use crate::discover::StreamFile;
use crate::finding::Cause;
use crate::window::FIRST_LOOK;

/// Longest index file that is read: entries of 72 bytes for some four million packets.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// What there is of an index beside a stream file.
#[derive(Debug)]
pub(crate) enum IndexState {
    /// No such file.
    Absent,
    /// It describes the stream file.
    Trusted(PacketIndex),
    /// It is there and of no use.
    Refused(IndexProblem),
}

/// Why an index file is not used.
#[derive(Debug)]
#[non_exhaustive]
pub enum IndexProblem {
    /// It is not an index, or not the one of this stream file.
    Contents(IndexError),
    /// It cannot be read.
    Io(io::Error),
    /// It is longer than what this reader takes memory for.
    TooLong {
        /// Its length, bytes.
        len: u64,
        /// The most that is taken, bytes.
        limit: u64,
    },
}

impl std::fmt::Display for IndexProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Contents(error) => error.fmt(f),
            Self::Io(error) => write!(f, "cannot read: {error}"),
            Self::TooLong { len, limit } => {
                write!(f, "the index has {len} bytes, the limit is {limit}")
            }
        }
    }
}

/// Reads the index beside a stream file and compares it with the file's length.
pub(crate) fn index_state(file: &StreamFile) -> IndexState {
    let Some(path) = file.index_path() else { return IndexState::Absent };
    let len = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return IndexState::Absent,
        Err(error) => return IndexState::Refused(IndexProblem::Io(error)),
    };
    if len > MAX_INDEX_BYTES {
        return IndexState::Refused(IndexProblem::TooLong { len, limit: MAX_INDEX_BYTES });
    }
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return IndexState::Refused(IndexProblem::Io(error)),
    };
    let checked =
        PacketIndex::decode(&bytes).and_then(|index| index.check_against(file.len).map(|()| index));
    match checked {
        Ok(index) => IndexState::Trusted(index),
        Err(error) => IndexState::Refused(IndexProblem::Contents(error)),
    }
}

/// What an index entry says of its packet.
pub(crate) fn info_of(entry: &IndexEntry) -> PacketInfo {
    PacketInfo {
        stream_class_id: entry.stream_class_id,
        stream_instance_id: entry.position.map(|position| position.stream_instance_id),
        begin: Some(entry.timestamp_begin),
        end: Some(entry.timestamp_end),
        content_bits: Some(entry.content_length_bits),
        total_bits: Some(entry.total_length_bits),
        events_discarded: Some(entry.events_discarded),
        sequence_number: entry.position.map(|position| position.packet_seq_num),
        ..PacketInfo::default()
    }
}

/// A packet and where it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketAt {
    pub(crate) offset_bytes: u64,
    pub(crate) info: PacketInfo,
}

/// Reads packet headers at any place of one stream file, a few hundred bytes for each.
#[derive(Debug)]
pub(crate) struct Headers<'f> {
    file: &'f StreamFile,
    class: &'f TraceClass,
    handle: File,
    buffer: Vec<u8>,
}

impl<'f> Headers<'f> {
    pub(crate) fn open(file: &'f StreamFile, class: &'f TraceClass) -> io::Result<Self> {
        Ok(Self { file, class, handle: File::open(&file.path)?, buffer: Vec::new() })
    }

    /// Header and context of the packet at `offset`.
    pub(crate) fn at(&mut self, offset: u64) -> Result<PacketInfo, Cause> {
        let mut least = FIRST_LOOK;
        loop {
            let bytes = self.read(offset, least).map_err(Cause::Io)?;
            let available = bytes.len();
            match decode_packet_header(self.class, self.buffer.get(..available).unwrap_or_default())
                .map_err(|error| Cause::Damaged(Box::new(error)))?
            {
                Outcome::Ready(info) => return Ok(info),
                Outcome::NeedMore { at_least_bytes } if available >= least => {
                    least = at_least_bytes.max(least.saturating_add(1));
                }
                Outcome::NeedMore { .. } => {
                    return Err(Cause::CutHeader { available: available as u64 });
                }
            }
        }
    }

    /// Up to `len` bytes from `offset`; fewer only at the file's end. The caller bounds `len`.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        self.buffer.resize(len, 0);
        let mut filled = 0;
        while let Some(rest) = self.buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.handle.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.buffer.get(..filled).unwrap_or_default())
    }

    /// Where the packet after this one begins; `None` at the file's end.
    pub(crate) fn after(&self, packet: &PacketAt) -> Option<u64> {
        let len = packet.info.total_bytes().filter(|len| *len > 0)?;
        let next = packet.offset_bytes.checked_add(len)?;
        (next < self.file.len).then_some(next)
    }
}

/// Calls `each` for the packets of a file in order: as a usable index names them, else as their headers do up to the
/// first that cannot be read, whose place and fault are returned.
pub(crate) fn for_each_packet(
    file: &StreamFile,
    class: &TraceClass,
    index: &IndexState,
    mut each: impl FnMut(PacketAt),
) -> Result<(), (u64, Cause)> {
    if let IndexState::Trusted(index) = index
        && index.version == IndexVersion::V1_1
    {
        for entry in &index.entries {
            each(PacketAt { offset_bytes: entry.offset_bytes, info: info_of(entry) });
        }
        return Ok(());
    }
    let mut headers = Headers::open(file, class).map_err(|error| (0, Cause::Io(error)))?;
    let mut next = (file.len > 0).then_some(0);
    while let Some(offset_bytes) = next {
        let info = headers.at(offset_bytes).map_err(|cause| (offset_bytes, cause))?;
        let packet = PacketAt { offset_bytes, info };
        next = headers.after(&packet);
        each(packet);
    }
    Ok(())
}
