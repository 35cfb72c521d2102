//! The bytes of a segment: `docs/formats/journal.md`. Pure.

use model::Timestamp;

/// At the beginning of a segment.
pub(crate) const MAGIC: [u8; 8] = *b"tl-jrnl\n";
/// Of this layout.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a segment before its first entry.
pub(crate) const PREAMBLE_LEN: usize = 56;
/// Bytes of an entry before its payload.
pub(crate) const HEADER_LEN: usize = 40;
/// The longest payload, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;

/// A place between entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The number of the next entry, from 0 on.
    pub entry: u64,
    /// Records in all entries before it.
    pub records: u64,
}

/// What is said of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where it begins.
    pub position: Position,
    /// What its payload is, as the caller numbers it.
    pub kind: u16,
    /// How many records it holds.
    pub records: u32,
    /// When it was appended.
    pub time: Timestamp,
    /// Length of its payload, in bytes.
    pub len: usize,
}

impl Header {
    /// Where the next entry begins.
    #[must_use]
    pub const fn end(&self) -> Position {
        let Position { entry, records } = self.position;
        Position { entry: entry + 1, records: records.saturating_add(self.records as u64) }
    }
}

/// What is said of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) journal: [u8; 16],
    pub(crate) begin: Position,
}

impl Preamble {
    pub(crate) fn encode(&self) -> [u8; PREAMBLE_LEN] {
        let mut bytes = Vec::with_capacity(PREAMBLE_LEN);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.journal);
        bytes.extend(self.begin.entry.to_le_bytes());
        bytes.extend(self.begin.records.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.extend([0; 4]);
        let mut whole = [0; PREAMBLE_LEN];
        whole.copy_from_slice(&bytes);
        whole
    }

    /// What is wrong, and at which byte, when these are not the bytes of one.
    pub(crate) fn decode(bytes: &[u8; PREAMBLE_LEN]) -> Result<Self, (u64, &'static str)> {
        let mut rest = Bytes(bytes);
        if rest.take::<8>() != MAGIC {
            return Err((0, "no segment of a journal"));
        }
        if u32::from_le_bytes(rest.take()) != VERSION {
            return Err((8, "a version that is not known"));
        }
        let _zero: [u8; 4] = rest.take();
        let journal = rest.take();
        let begin = Position {
            entry: u64::from_le_bytes(rest.take()),
            records: u64::from_le_bytes(rest.take()),
        };
        let (checked, _) = bytes.split_at(PREAMBLE_LEN - 8);
        if u32::from_le_bytes(rest.take()) != crc32c::crc32c(checked) {
            return Err((48, "a checksum that is not that of the bytes before"));
        }
        Ok(Self { journal, begin })
    }
}

/// An entry as it is written.
pub(crate) fn encode(header: &Header, payload: &[u8], into: &mut Vec<u8>) {
    let begin = into.len();
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    into.extend(len.to_le_bytes());
    into.extend([0; 4]);
    into.extend(header.position.entry.to_le_bytes());
    into.extend(header.position.records.to_le_bytes());
    into.extend(header.records.to_le_bytes());
    into.extend(header.kind.to_le_bytes());
    into.extend([0; 2]);
    into.extend(header.time.nanos().to_le_bytes());
    into.extend_from_slice(payload);
    let checksum = checksum(into.get(begin..).unwrap_or_default()).to_le_bytes();
    if let Some(place) = into.get_mut(begin + 4..begin + 8) {
        place.copy_from_slice(&checksum);
    }
}

/// Of all bytes but its own.
fn checksum(entry: &[u8]) -> u32 {
    let (len, rest) = entry.split_at_checked(4).unwrap_or_default();
    let rest = rest.get(4..).unwrap_or_default();
    crc32c::crc32c_append(crc32c::crc32c(len), rest)
}

/// What bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// An entry.
    Entry(Header, &'a [u8]),
    /// Not yet a whole one: so many bytes in all.
    Short(usize),
    /// None.
    Damaged(&'static str),
}

pub(crate) fn decode(bytes: &[u8]) -> Decoded<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Decoded::Short(HEADER_LEN);
    };
    let mut fields = Bytes(head);
    let len = u32::from_le_bytes(fields.take());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len > MAX_PAYLOAD {
        return Decoded::Damaged("a payload longer than any");
    }
    let Some(payload) = rest.get(..len) else { return Decoded::Short(HEADER_LEN + len) };
    let expected = u32::from_le_bytes(fields.take());
    if checksum(bytes.get(..HEADER_LEN + len).unwrap_or_default()) != expected {
        return Decoded::Damaged("a checksum that is not that of the entry");
    }
    let position = Position {
        entry: u64::from_le_bytes(fields.take()),
        records: u64::from_le_bytes(fields.take()),
    };
    let records = u32::from_le_bytes(fields.take());
    let kind = u16::from_le_bytes(fields.take());
    let _zero: [u8; 2] = fields.take();
    let time = Timestamp::from_nanos(i64::from_le_bytes(fields.take()));
    Decoded::Entry(Header { position, kind, records, time, len }, payload)
}

/// Fields one after the other, of bytes that are long enough.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk::<N>().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(payload: &[u8]) -> Header {
        let position = Position { entry: 7, records: 900 };
        let time = Timestamp::from_nanos(1_700_000_000_000_000_001);
        Header { position, kind: 3, records: 12, time, len: payload.len() }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        encode(&header(b"payload"), b"payload", &mut bytes);
        assert_eq!(bytes.len(), HEADER_LEN + 7);
        assert_eq!(decode(&bytes), Decoded::Entry(header(b"payload"), b"payload"));
        assert_eq!(header(b"").end(), Position { entry: 8, records: 912 });
    }

    #[test]
    fn a_part_of_an_entry_is_short_and_a_flipped_bit_is_damage() {
        let mut bytes = Vec::new();
        encode(&header(b"payload"), b"payload", &mut bytes);
        for len in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..len]), Decoded::Short(more) if more > len), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(&other), Decoded::Entry(..)), "bit {bit}");
        }
    }

    #[test]
    fn a_preamble_is_read_as_it_was_written_and_damage_is_seen() {
        let preamble = Preamble { journal: [9; 16], begin: Position { entry: 5, records: 77 } };
        let bytes = preamble.encode();
        assert_eq!(Preamble::decode(&bytes), Ok(preamble));
        for bit in (0..12 * 8).chain(16 * 8..52 * 8) {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(Preamble::decode(&other).is_err(), "bit {bit}");
        }
    }
}
