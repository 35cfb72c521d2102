//! LTTng's packet index files (`index/<stream file>.idx`): where each packet of a stream file lies.
//!
//! All numbers are big endian. Source: `src/common/index/ctf-index.hpp` of lttng-tools.
//!
//! ```text
//! offset size  header
//!      0    4  magic 0xC1F1DCC1
//!      4    4  major version, 1
//!      8    4  minor version, 0 or 1
//!     12    4  length of one entry in bytes: 56 (minor 0) or 72 (minor 1)
//!
//! offset size  entry
//!      0    8  offset of the packet in the stream file, bytes
//!      8    8  total length of the packet, bits
//!     16    8  content length of the packet, bits
//!     24    8  timestamp of the packet's begin, cycles of the stream's clock
//!     32    8  timestamp of the packet's end, cycles
//!     40    8  discarded event records counter at the packet's end
//!     48    8  data stream class id
//!     56    8  data stream instance id          (minor 1)
//!     64    8  packet sequence number           (minor 1)
//! ```
//!
//! [`PacketIndex::decode`] accepts what the layout allows; [`PacketIndex::check_against`] says whether the
//! entries describe a stream file of a given length. A reader that gets an error from either scans the
//! packets instead.

use thiserror::Error;

/// The first four bytes of an index file.
pub const MAGIC: u32 = 0xC1F1_DCC1;
/// The only major version there is.
pub const MAJOR: u32 = 1;
/// Length of the file header in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of the longest entry in bytes.
pub const MAX_ENTRY_LEN: usize = 72;

const SHORT_ENTRY_LEN: usize = 56;

/// Why bytes are not an index, or not the index of the given stream file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Fewer bytes than a header.
    #[error("index has {len} bytes, its header needs {HEADER_LEN}")]
    ShortHeader {
        /// Length of the file in bytes.
        len: usize,
    },
    /// The magic number is another one.
    #[error("index has magic {found:#010x} at offset 0, expected {MAGIC:#010x}")]
    Magic {
        /// The number found.
        found: u32,
    },
    /// The version is not one this reader knows.
    #[error("index has version {major}.{minor} at offset 4, expected 1.0 or 1.1")]
    Version {
        /// The major version found.
        major: u32,
        /// The minor version found.
        minor: u32,
    },
    /// The entry length does not belong to the version.
    #[error("index has entries of {found} bytes at offset 12, its version needs {expected}")]
    EntryLength {
        /// The length found, bytes.
        found: u32,
        /// The length of the version, bytes.
        expected: usize,
    },
    /// The file ends inside an entry.
    #[error("index ends inside an entry: {len} bytes after the header, entries have {entry_len}")]
    PartialEntry {
        /// Bytes after the header.
        len: usize,
        /// Length of one entry.
        entry_len: usize,
    },
    /// An entry does not begin where the one before it ended.
    #[error("index entry {entry}: packet at byte {found}, expected {expected}")]
    Offset {
        /// Position of the entry in the index, from 0.
        entry: usize,
        /// The offset found, bytes.
        found: u64,
        /// The end of the packet before, bytes.
        expected: u64,
    },
    /// The lengths of a packet contradict each other.
    #[error("index entry {entry}: packet of {total_bits} bits with {content_bits} bits of content")]
    Lengths {
        /// Position of the entry in the index, from 0.
        entry: usize,
        /// Total length found, bits.
        total_bits: u64,
        /// Content length found, bits.
        content_bits: u64,
    },
    /// A packet ends before it begins.
    #[error("index entry {entry}: packet begins at cycle {begin} and ends at cycle {end}")]
    Timestamps {
        /// Position of the entry in the index, from 0.
        entry: usize,
        /// Begin timestamp, cycles.
        begin: u64,
        /// End timestamp, cycles.
        end: u64,
    },
    /// The packets do not fill the stream file.
    #[error("index describes {indexed} bytes of a stream file of {file_len} bytes")]
    Coverage {
        /// Sum of the packets' total lengths, bytes.
        indexed: u64,
        /// Length of the stream file, bytes.
        file_len: u64,
    },
}

impl IndexError {
    /// The numbers of the message by their names, for programs.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, i128)> {
        let size = |size: usize| i128::try_from(size).unwrap_or(i128::MAX);
        match *self {
            Self::ShortHeader { len } => vec![("len", size(len))],
            Self::Magic { found } => vec![("found", found.into())],
            Self::Version { major, minor } => {
                vec![("major", major.into()), ("minor", minor.into())]
            }
            Self::EntryLength { found, expected } => {
                vec![("found", found.into()), ("expected", size(expected))]
            }
            Self::PartialEntry { len, entry_len } => {
                vec![("len", size(len)), ("entry_len", size(entry_len))]
            }
            Self::Offset { entry, found, expected } => {
                vec![("entry", size(entry)), ("found", found.into()), ("expected", expected.into())]
            }
            Self::Lengths { entry, total_bits, content_bits } => vec![
                ("entry", size(entry)),
                ("total_bits", total_bits.into()),
                ("content_bits", content_bits.into()),
            ],
            Self::Timestamps { entry, begin, end } => {
                vec![("entry", size(entry)), ("begin", begin.into()), ("end", end.into())]
            }
            Self::Coverage { indexed, file_len } => {
                vec![("indexed", indexed.into()), ("file_len", file_len.into())]
            }
        }
    }
}

/// Layout version of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexVersion {
    /// 1.0: entries without instance id and sequence number (peers before LTTng 2.8).
    V1_0,
    /// 1.1: entries with both.
    V1_1,
}

impl IndexVersion {
    /// Length of one entry in bytes.
    #[must_use]
    pub const fn entry_len(self) -> usize {
        match self {
            Self::V1_0 => SHORT_ENTRY_LEN,
            Self::V1_1 => MAX_ENTRY_LEN,
        }
    }

    /// The version of the index file that begins with `header`, [`HEADER_LEN`] bytes or more.
    ///
    /// # Errors
    /// When magic, version or entry length are not those of an index, or there are fewer bytes.
    pub fn decode(header: &[u8]) -> Result<Self, IndexError> {
        let (words, _) = header.as_chunks::<4>();
        let &[magic, major, minor, entry_len, ..] = words else {
            return Err(IndexError::ShortHeader { len: header.len() });
        };
        let found = u32::from_be_bytes(magic);
        if found != MAGIC {
            return Err(IndexError::Magic { found });
        }
        let version = match (u32::from_be_bytes(major), u32::from_be_bytes(minor)) {
            (MAJOR, 0) => Self::V1_0,
            (MAJOR, 1) => Self::V1_1,
            (major, minor) => return Err(IndexError::Version { major, minor }),
        };
        let found = u32::from_be_bytes(entry_len);
        let expected = version.entry_len();
        if usize::try_from(found) == Ok(expected) {
            Ok(version)
        } else {
            Err(IndexError::EntryLength { found, expected })
        }
    }

    /// The header of an index file of this version.
    #[must_use]
    pub fn header(self) -> [u8; HEADER_LEN] {
        let (minor, entry_len): (u32, u32) = match self {
            Self::V1_0 => (0, 56),
            Self::V1_1 => (1, 72),
        };
        let [m0, m1, m2, m3] = MAGIC.to_be_bytes();
        let [a0, a1, a2, a3] = MAJOR.to_be_bytes();
        let [i0, i1, i2, i3] = minor.to_be_bytes();
        let [l0, l1, l2, l3] = entry_len.to_be_bytes();
        [m0, m1, m2, m3, a0, a1, a2, a3, i0, i1, i2, i3, l0, l1, l2, l3]
    }
}

/// What an index of version 1.1 knows beyond 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamPosition {
    /// Data stream instance id, unique in the data stream class.
    pub stream_instance_id: u64,
    /// Packet sequence number in the data stream.
    pub packet_seq_num: u64,
}

/// One packet of a stream file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexEntry {
    /// Where the packet begins in the stream file, bytes.
    pub offset_bytes: u64,
    /// Total length of the packet, bits.
    pub total_length_bits: u64,
    /// Length of the packet without its padding, bits.
    pub content_length_bits: u64,
    /// Timestamp of the packet's begin, cycles of the stream's clock.
    pub timestamp_begin: u64,
    /// Timestamp of the packet's end, cycles of the stream's clock.
    pub timestamp_end: u64,
    /// The stream's counter of discarded event records at the packet's end.
    pub events_discarded: u64,
    /// Data stream class id.
    pub stream_class_id: u64,
    /// Instance id and sequence number; absent in version 1.0.
    pub position: Option<StreamPosition>,
}

impl IndexEntry {
    /// Appends the entry in the layout of `version`: [`IndexVersion::entry_len`] bytes.
    ///
    /// A position that the version has no room for is left out; one that is missing is written as zeros.
    pub fn encode(&self, version: IndexVersion, out: &mut Vec<u8>) {
        let common = [
            self.offset_bytes,
            self.total_length_bits,
            self.content_length_bits,
            self.timestamp_begin,
            self.timestamp_end,
            self.events_discarded,
            self.stream_class_id,
        ];
        common.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        if version == IndexVersion::V1_1 {
            let (instance, seq_num) =
                self.position.map_or((0, 0), |p| (p.stream_instance_id, p.packet_seq_num));
            out.extend_from_slice(&instance.to_be_bytes());
            out.extend_from_slice(&seq_num.to_be_bytes());
        }
    }

    /// Reads an entry in the layout of `version`; `None` when `bytes` are fewer than [`IndexVersion::entry_len`].
    #[must_use]
    pub fn decode(bytes: &[u8], version: IndexVersion) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).copied().map(u64::from_be_bytes);
        let position = match version {
            IndexVersion::V1_0 => None,
            IndexVersion::V1_1 => {
                Some(StreamPosition { stream_instance_id: word(7)?, packet_seq_num: word(8)? })
            }
        };
        Some(Self {
            offset_bytes: word(0)?,
            total_length_bits: word(1)?,
            content_length_bits: word(2)?,
            timestamp_begin: word(3)?,
            timestamp_end: word(4)?,
            events_discarded: word(5)?,
            stream_class_id: word(6)?,
            position,
        })
    }
}

/// A whole index file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketIndex {
    /// Layout version.
    pub version: IndexVersion,
    /// One entry for each packet, in the order of the stream file.
    pub entries: Vec<IndexEntry>,
}

impl PacketIndex {
    /// Reads an index file. Memory taken is at most the input's length times 10/7.
    ///
    /// # Errors
    /// When magic, version, entry length or file length are not those of an index.
    pub fn decode(bytes: &[u8]) -> Result<Self, IndexError> {
        let (header, body) = bytes
            .split_at_checked(HEADER_LEN)
            .ok_or(IndexError::ShortHeader { len: bytes.len() })?;
        let version = IndexVersion::decode(header)?;
        let entry_len = version.entry_len();
        let chunks = body.chunks_exact(entry_len);
        if !chunks.remainder().is_empty() {
            return Err(IndexError::PartialEntry { len: body.len(), entry_len });
        }
        let entries = chunks.filter_map(|chunk| IndexEntry::decode(chunk, version)).collect();
        Ok(Self { version, entries })
    }

    /// The bytes of the index file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(HEADER_LEN + self.entries.len() * self.version.entry_len());
        out.extend_from_slice(&self.version.header());
        self.entries.iter().for_each(|entry| entry.encode(self.version, &mut out));
        out
    }

    /// Checks that the entries describe a stream file of `file_len` bytes: packets without gap from byte 0 to
    /// the end, content within each packet, begin not after end.
    ///
    /// An end timestamp of 0 is what LTTng leaves in a packet that was never closed; it is accepted.
    ///
    /// # Errors
    /// The first entry that contradicts, or the coverage.
    pub fn check_against(&self, file_len: u64) -> Result<(), IndexError> {
        let mut check = IndexCheck::default();
        self.entries.iter().try_for_each(|entry| check.entry(entry))?;
        check.finish(file_len)
    }
}

/// [`PacketIndex::check_against`] for entries that come one by one.
#[derive(Debug, Clone, Copy, Default)]
pub struct IndexCheck {
    entries: usize,
    indexed: u64,
}

impl IndexCheck {
    /// Takes the next entry.
    ///
    /// # Errors
    /// The entry contradicts itself or the ones before.
    pub fn entry(&mut self, entry: &IndexEntry) -> Result<(), IndexError> {
        let (at, expected) = (self.entries, self.indexed);
        if entry.offset_bytes != expected {
            return Err(IndexError::Offset { entry: at, found: entry.offset_bytes, expected });
        }
        let (total_bits, content_bits) = (entry.total_length_bits, entry.content_length_bits);
        let whole_bytes = total_bits != 0 && total_bits.is_multiple_of(8);
        if !whole_bytes || content_bits > total_bits {
            return Err(IndexError::Lengths { entry: at, total_bits, content_bits });
        }
        let (begin, end) = (entry.timestamp_begin, entry.timestamp_end);
        if begin > end && end != 0 {
            return Err(IndexError::Timestamps { entry: at, begin, end });
        }
        self.entries += 1;
        self.indexed = expected.saturating_add(total_bits / 8);
        Ok(())
    }

    /// Whether the entries fill a stream file of `file_len` bytes.
    ///
    /// # Errors
    /// [`IndexError::Coverage`] when they do not.
    pub fn finish(self, file_len: u64) -> Result<(), IndexError> {
        let indexed = self.indexed;
        if indexed == file_len { Ok(()) } else { Err(IndexError::Coverage { indexed, file_len }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, version: IndexVersion) -> IndexEntry {
        IndexEntry {
            offset_bytes: at * 4096,
            total_length_bits: 4096 * 8,
            content_length_bits: 672 + at,
            timestamp_begin: 1_000 + at,
            timestamp_end: 2_000 + at,
            events_discarded: 3 * at,
            stream_class_id: 1,
            position: (version == IndexVersion::V1_1)
                .then_some(StreamPosition { stream_instance_id: 7, packet_seq_num: at }),
        }
    }

    fn index(version: IndexVersion) -> PacketIndex {
        PacketIndex { version, entries: (0..3).map(|at| entry(at, version)).collect() }
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        for version in [IndexVersion::V1_0, IndexVersion::V1_1] {
            let index = index(version);
            let bytes = index.encode();
            assert_eq!(bytes.len(), HEADER_LEN + 3 * version.entry_len());
            assert_eq!(PacketIndex::decode(&bytes), Ok(index.clone()));
            assert_eq!(index.check_against(3 * 4096), Ok(()));
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = index(IndexVersion::V1_1).encode();
        assert_eq!(bytes[..16], *b"\xc1\xf1\xdc\xc1\0\0\0\x01\0\0\0\x01\0\0\0\x48");
        assert_eq!(bytes[16 + 72 + 6..16 + 72 + 8], [0x10, 0x00], "offset of the second packet");
        assert_eq!(bytes[16 + 72 + 71], 1, "sequence number of the second packet");
    }

    #[test]
    fn every_flipped_header_byte_is_refused() {
        let good = index(IndexVersion::V1_1).encode();
        for at in 0..HEADER_LEN {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            let error = PacketIndex::decode(&bytes).expect_err("a damaged header");
            let expected = match at {
                0..4 => matches!(error, IndexError::Magic { .. }),
                4..12 => matches!(error, IndexError::Version { .. }),
                _ => matches!(error, IndexError::EntryLength { .. }),
            };
            assert!(expected, "byte {at}: {error}");
        }
    }

    #[test]
    fn every_cut_but_between_entries_is_refused() {
        let good = index(IndexVersion::V1_0).encode();
        for len in 0..good.len() {
            let between = len >= HEADER_LEN && (len - HEADER_LEN).is_multiple_of(56);
            assert_eq!(PacketIndex::decode(&good[..len]).is_ok(), between, "{len} bytes");
        }
    }

    #[test]
    fn contradicting_entries_are_refused() {
        let check = |change: fn(&mut PacketIndex), expected: fn(&IndexError) -> bool| {
            let mut index = index(IndexVersion::V1_1);
            change(&mut index);
            let error = index.check_against(3 * 4096).expect_err("a contradiction");
            assert!(expected(&error), "{error}");
        };
        check(
            |i| i.entries[1].offset_bytes = 4097,
            |e| matches!(e, IndexError::Offset { entry: 1, .. }),
        );
        check(
            |i| i.entries[2].total_length_bits = 0,
            |e| matches!(e, IndexError::Lengths { entry: 2, .. }),
        );
        check(
            |i| i.entries[0].total_length_bits = 9,
            |e| matches!(e, IndexError::Lengths { entry: 0, .. }),
        );
        check(
            |i| i.entries[0].content_length_bits = u64::MAX,
            |e| matches!(e, IndexError::Lengths { entry: 0, .. }),
        );
        check(
            |i| i.entries[0].timestamp_begin = 9_999,
            |e| matches!(e, IndexError::Timestamps { entry: 0, .. }),
        );
        check(
            |i| i.entries.truncate(2),
            |e| *e == IndexError::Coverage { indexed: 8192, file_len: 12288 },
        );
    }
}
