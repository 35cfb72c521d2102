//! The seek table: where each frame is, and what it holds.
//!
//! ```text
//! offset  size  all numbers little-endian                 (zstd seekable format 0.1.0, contrib/seekable_format of zstd)
//! 0       4     0x184D2A5E, a skippable frame of zstd
//! 4       4     length of what follows
//! 8       8, 12 for each frame: compressed length, length of its content, low half of XXH64 of the content where bit 7 below is set
//! -9      4     number of frames
//! -5      1     bit 7: checksums are there; bits 6 to 2: 0
//! -4      4     0x8F92EAB1
//! ```

use std::io;

use super::{MAX_FRAME_BYTES, MAX_FRAMES, SeekableError, Source, read_at_most};

const SKIPPABLE: u32 = 0x184D_2A5E;
const MAGIC: u32 = 0x8F92_EAB1;
const HEAD_LEN: usize = 8;
const FOOT_LEN: usize = 9;
const CHECKSUMS: u8 = 0x80;
const RESERVED: u8 = 0x7C;
/// A frame that does not shrink is little longer than its content.
const MOST_GROWTH: usize = 16 << 10;

/// Where one frame is, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// Where it begins in the compressed file.
    pub offset: u64,
    /// Its compressed length.
    pub len: usize,
    /// Where its content begins in all of the content.
    pub content_offset: u64,
    /// Length of its content.
    pub content_len: usize,
}

/// All frames of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeekTable {
    /// Where each frame ends: in the compressed file, and its content.
    ends: Vec<(u64, u64)>,
}

impl SeekTable {
    /// Reads the table at the end of a file of `file_len` bytes.
    ///
    /// # Errors
    /// [`SeekableError`] when it is none or too large, and what reading says.
    pub fn read(source: &(impl Source + ?Sized), file_len: u64) -> io::Result<Self> {
        let mut foot = [0; FOOT_LEN];
        let at = file_len.checked_sub(FOOT_LEN as u64).ok_or(SeekableError::NoTable)?;
        if read_at_most(source, &mut foot, at)? < foot.len() {
            return Err(SeekableError::NoTable.into());
        }
        let [f0, f1, f2, f3, flags, m0, m1, m2, m3] = foot;
        if u32::from_le_bytes([m0, m1, m2, m3]) != MAGIC {
            return Err(SeekableError::NoTable.into());
        }
        let frames = u64::from(u32::from_le_bytes([f0, f1, f2, f3]));
        if frames > MAX_FRAMES as u64 {
            return Err(SeekableError::TooManyFrames { frames, limit: MAX_FRAMES }.into());
        }
        let entry_len: u64 = if flags & CHECKSUMS == 0 { 8 } else { 12 };
        let len = HEAD_LEN as u64 + frames * entry_len + FOOT_LEN as u64;
        let offset_bytes = file_len.saturating_sub(len);
        let damaged = SeekableError::Table { offset_bytes };
        if len > file_len || flags & RESERVED != 0 {
            return Err(damaged.into());
        }
        let mut bytes = vec![0; usize::try_from(len - FOOT_LEN as u64).unwrap_or(usize::MAX)];
        if read_at_most(source, &mut bytes, offset_bytes)? < bytes.len() {
            return Err(damaged.into());
        }
        let (head, entries) = bytes.split_at_checked(HEAD_LEN).unwrap_or_default();
        if (word(head, 0), word(head, 4).map(u64::from))
            != (Some(SKIPPABLE), Some(len - HEAD_LEN as u64))
        {
            return Err(damaged.into());
        }
        Ok(Self::of_entries(entries, entry_len, offset_bytes)?)
    }

    fn of_entries(entries: &[u8], entry_len: u64, frames_len: u64) -> Result<Self, SeekableError> {
        let mut table = Self::default();
        for entry in entries.chunks_exact(usize::try_from(entry_len).unwrap_or(8)) {
            let (Some(len), Some(content_len)) = (word(entry, 0), word(entry, 4)) else { break };
            let (offset_bytes, _) = table.end();
            let frame = table.ends.len();
            let bounds = [(content_len, MAX_FRAME_BYTES), (len, MAX_FRAME_BYTES + MOST_GROWTH)];
            for (announced, limit) in bounds.map(|(len, limit)| (u64::from(len), limit)) {
                if announced > limit as u64 {
                    let error =
                        SeekableError::FrameTooLong { frame, offset_bytes, announced, limit };
                    return Err(error);
                }
            }
            table.push(len, content_len);
        }
        let (announced, _) = table.end();
        if announced != frames_len {
            return Err(SeekableError::OtherLength { announced, found: frames_len });
        }
        Ok(table)
    }

    /// Adds a frame behind the others.
    pub(super) fn push(&mut self, len: u32, content_len: u32) {
        let (end, content_end) = self.end();
        // Both are sums of at most 2²⁰ numbers below 2³².
        self.ends.push((end + u64::from(len), content_end + u64::from(content_len)));
    }

    /// As it is written: without checksums, which the frames have themselves.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(self.ends.len() * 8 + 17);
        let len = u32::try_from(self.ends.len() * 8 + 9).unwrap_or(u32::MAX);
        bytes.extend([SKIPPABLE, len].iter().flat_map(|word| word.to_le_bytes()));
        for frame in (0..self.ends.len()).filter_map(|at| self.frame(at)) {
            let lens = [frame.len, frame.content_len].map(|len| u32::try_from(len).unwrap_or(0));
            bytes.extend(lens.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.extend(count.to_le_bytes());
        bytes.push(0);
        bytes.extend(MAGIC.to_le_bytes());
        bytes
    }

    /// How many frames there are.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of content.
    #[must_use]
    pub fn content_len(&self) -> u64 {
        self.end().1
    }

    fn end(&self) -> (u64, u64) {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The frame with this number.
    #[must_use]
    pub fn frame(&self, number: usize) -> Option<Frame> {
        let (end, content_end) = *self.ends.get(number)?;
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before).copied());
        let (offset, content_offset) = before.unwrap_or_default();
        let len = usize::try_from(end - offset).ok()?;
        let content_len = usize::try_from(content_end - content_offset).ok()?;
        Some(Frame { offset, len, content_offset, content_len })
    }

    /// Number of the frame that holds the content at `offset`; behind the last at the end.
    #[must_use]
    pub fn frame_at(&self, offset: u64) -> usize {
        self.ends.partition_point(|(_, content_end)| *content_end <= offset)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(frames: &[(u32, u32)]) -> SeekTable {
        let mut table = SeekTable::default();
        frames.iter().for_each(|(len, content)| table.push(*len, *content));
        table
    }

    /// A file of such frames, whose bytes are of no matter.
    fn file(table: &SeekTable) -> Vec<u8> {
        let mut file = vec![7; usize::try_from(table.end().0).unwrap()];
        file.extend(table.encode());
        file
    }

    fn read(file: &[u8]) -> Result<SeekTable, SeekableError> {
        SeekTable::read(&file, file.len() as u64)
            .map_err(|error| error.downcast::<SeekableError>().unwrap())
    }

    #[test]
    fn what_is_written_is_read_back() {
        for frames in [&[][..], &[(5, 100)], &[(5, 100), (7, 0), (9, 1 << 20)]] {
            let table = table(frames);
            assert_eq!(read(&file(&table)), Ok(table));
        }
    }

    #[test]
    fn places_are_found() {
        let table = table(&[(5, 100), (7, 0), (9, 50)]);
        assert_eq!(
            [0, 99, 100, 149, 150, u64::MAX].map(|at| table.frame_at(at)),
            [0, 0, 2, 2, 3, 3]
        );
        let third = Frame { offset: 12, len: 9, content_offset: 100, content_len: 50 };
        assert_eq!(table.frame(2), Some(third));
        assert_eq!((table.frame(3), table.content_len()), (None, 150));
    }

    #[test]
    fn a_table_with_checksums_is_read() {
        let mut bytes = vec![7; 5];
        bytes.extend([0x5E, 0x2A, 0x4D, 0x18, 21, 0, 0, 0, 5, 0, 0, 0, 100, 0, 0, 0, 1, 2, 3, 4]);
        bytes.extend([1, 0, 0, 0, 0x80, 0xB1, 0xEA, 0x92, 0x8F]);
        assert_eq!(read(&bytes), Ok(table(&[(5, 100)])));
    }

    #[test]
    fn a_file_that_is_cut_or_changed_in_its_table_is_refused() {
        let whole = file(&table(&[(5, 100), (9, 50)]));
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len} bytes");
        }
        for at in 14..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x44;
            // Lengths of content are known by the frames alone.
            let is_content = [26, 27, 34, 35].contains(&at);
            assert!(is_content || read(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_announces_too_much_is_refused_with_its_place() {
        let long = file(&table(&[(5, 100), (9, (1 << 20) + 1)]));
        let error = SeekableError::FrameTooLong {
            frame: 1,
            offset_bytes: 5,
            announced: (1 << 20) + 1,
            limit: MAX_FRAME_BYTES,
        };
        assert_eq!(read(&long), Err(error));
        let mut many = file(&table(&[(5, 100)]));
        let at = many.len() - 9;
        many[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = SeekableError::TooManyFrames { frames: u32::MAX.into(), limit: MAX_FRAMES };
        assert_eq!(read(&many), Err(error));
        many[at..at + 4].copy_from_slice(&1000_u32.to_le_bytes());
        assert_eq!(read(&many), Err(SeekableError::Table { offset_bytes: 0 }));
    }
}
