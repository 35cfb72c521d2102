//! Reads any place of compressed content.

use std::cell::RefCell;
use std::io;
use std::sync::{Mutex, PoisonError};

use zstd::bulk::Decompressor;
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::table::{Frame, SeekTable};
use super::{SeekableError, Source, read_at_most};

/// As much of a frame's beginning is read without the rest of it: a packet's header.
const HEAD_BYTES: usize = 16 << 10;
/// Most memory, as a power of two, that is taken then; others' frames may want more than their content.
const MAX_WINDOW_LOG: u32 = 23;
/// How much of a frame is read at a time then.
const HEAD_PIECE: usize = 32 << 10;

/// Compressed content that is read at any place; from several threads too.
#[derive(Debug)]
pub struct Seekable<S> {
    source: S,
    table: SeekTable,
    held: Mutex<Held>,
}

/// The content of the frame that was read last.
#[derive(Debug, Default)]
struct Held {
    number: Option<usize>,
    content: Vec<u8>,
}

thread_local! {
    /// What zstd needs to decompress, about 160 KiB: once for each thread that does.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    /// The same for beginnings of frames, and a buffer of a frame.
    static DECODER: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
}

impl<S: Source> Seekable<S> {
    /// Reads the table of a file of `file_len` bytes.
    ///
    /// # Errors
    /// As [`SeekTable::read`].
    pub fn open(source: S, file_len: u64) -> io::Result<Self> {
        let table = SeekTable::read(&source, file_len)?;
        Ok(Self { source, table, held: Mutex::default() })
    }

    /// Where the frames are.
    pub const fn table(&self) -> &SeekTable {
        &self.table
    }

    /// What it reads from.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// Reads content from `offset`; fewer bytes than asked for at the end of a frame.
    ///
    /// # Errors
    /// [`SeekableError::Frame`], and what reading says.
    pub fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let number = self.table.frame_at(offset);
        let Some(frame) = self.table.frame(number) else { return Ok(0) };
        let skip = usize::try_from(offset - frame.content_offset).unwrap_or(usize::MAX);
        let wanted = frame.content_len.saturating_sub(skip).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted) else { return Ok(0) };
        if wanted == frame.content_len {
            self.decompress(number, frame, buffer)?;
            return Ok(wanted);
        }
        // What was being decompressed when another thread failed is not taken for content.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.number != Some(number) && skip.saturating_add(wanted) <= HEAD_BYTES {
            drop(held);
            let mut head = vec![0; skip + wanted];
            self.decompress_head(number, frame, &mut head)?;
            buffer.copy_from_slice(head.get(skip..).unwrap_or_default());
            return Ok(wanted);
        }
        if held.number != Some(number) {
            held.number = None;
            held.content.resize(frame.content_len, 0);
            self.decompress(number, frame, &mut held.content)?;
            held.number = Some(number);
        }
        let content = held.content.get(skip..skip.saturating_add(wanted)).unwrap_or_default();
        buffer.copy_from_slice(content);
        Ok(wanted)
    }

    /// Fills `head` with the beginning of a frame's content. The frame's checksum is not looked at: whoever reads on does.
    fn decompress_head(&self, number: usize, frame: Frame, head: &mut [u8]) -> io::Result<()> {
        let failed = |problem: String| SeekableError::Frame {
            frame: number,
            offset_bytes: frame.offset,
            announced: frame.content_len as u64,
            problem,
        };
        let refused = |error: io::Error| io::Error::from(failed(error.to_string()));
        let early = || failed("it ends before that".to_owned());
        DECODER.with_borrow_mut(|decoder| {
            let decoder = match decoder {
                Some(decoder) => decoder,
                None => {
                    let decoder = decoder.insert(Decoder::new()?);
                    decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
                    decoder
                }
            };
            decoder.reinit()?;
            let mut piece = vec![0; HEAD_PIECE.min(frame.len)];
            let (mut used, mut filled) = (0, 0);
            while let Some(rest) = head.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                let len = piece.len().min(frame.len - used);
                let piece = piece.get_mut(..len).filter(|piece| !piece.is_empty());
                let piece = piece.ok_or_else(early)?;
                if read_at_most(&self.source, piece, frame.offset + used as u64)? < len {
                    return Err(early().into());
                }
                let status = decoder.run_on_buffers(piece, rest).map_err(refused)?;
                if status.bytes_read + status.bytes_written == 0 {
                    return Err(early().into());
                }
                used += status.bytes_read;
                filled += status.bytes_written;
            }
            Ok(())
        })
    }

    /// Fills `content`, which is as long as the table says.
    fn decompress(&self, number: usize, frame: Frame, content: &mut [u8]) -> io::Result<()> {
        let Frame { offset, len, .. } = frame;
        let announced = content.len();
        let failed = |problem: String| SeekableError::Frame {
            frame: number,
            offset_bytes: offset,
            announced: announced as u64,
            problem,
        };
        let mut bytes = vec![0; len];
        if read_at_most(&self.source, &mut bytes, offset)? < len {
            return Err(failed("the file ends before it".to_owned()).into());
        }
        DECOMPRESSOR.with_borrow_mut(|decompressor| {
            let decompressor = match decompressor {
                Some(decompressor) => decompressor,
                None => decompressor.insert(Decompressor::new()?),
            };
            match decompressor.decompress_to_buffer(&bytes, content) {
                Ok(found) if found == announced => Ok(()),
                Ok(found) => Err(failed(format!("it holds {found}")).into()),
                Err(error) => Err(failed(error.to_string()).into()),
            }
        })
    }
}

impl<S: Source> Source for Seekable<S> {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Self::read_some_at(self, buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FrameEnds, Level, compress};
    use super::*;

    /// Content that neither repeats at once nor is random.
    fn content(len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| ((at * at) >> 9).to_le_bytes()[0]).collect()
    }

    fn compressed(content: &[u8], packets: &[u64]) -> Vec<u8> {
        let mut file = Vec::new();
        let ends = FrameEnds::new(packets.iter().copied(), content.len() as u64);
        let written =
            compress(&mut &*content, ends, Level::default(), &mut file, &|| true).unwrap();
        assert_eq!(
            (written.content_bytes, written.bytes),
            (content.len() as u64, file.len() as u64)
        );
        file
    }

    fn open(file: &[u8]) -> Seekable<&[u8]> {
        Seekable::open(file, file.len() as u64).unwrap()
    }

    #[test]
    fn any_place_is_read_as_it_was() {
        let content = content(1_500_000);
        let file = compressed(&content, &[4096, 300_000, 1_400_000]);
        let reader = open(&file);
        assert_eq!(reader.table().content_len(), 1_500_000);
        for (offset, len) in [(0, 10), (4090, 100), (299_999, 1_200_000), (1_499_999, 5), (7, 0)] {
            let mut bytes = vec![0; len];
            let at = usize::try_from(offset).unwrap();
            let read = read_at_most(&reader, &mut bytes, offset).unwrap();
            assert_eq!(&bytes[..read], &content[at..(at + len).min(content.len())], "{offset}");
        }
        let mut all = vec![0; content.len()];
        assert_eq!(read_at_most(&reader, &mut all, 0).unwrap(), content.len());
        assert_eq!(all, content);
        assert_eq!(reader.read_some_at(&mut all, u64::MAX).unwrap(), 0);
    }

    #[test]
    fn zstd_itself_reads_it() {
        let content = content(700_000);
        let file = compressed(&content, &[]);
        // Frames one after the other, and a skippable one.
        assert_eq!(zstd::stream::decode_all(&*file).unwrap(), content);
    }

    #[test]
    fn a_changed_byte_of_a_frame_is_told_with_the_place_of_the_frame() {
        let content = content(600_000);
        let mut file = compressed(&content, &[]);
        let second = open(&file).table().frame(1).unwrap();
        let at = usize::try_from(second.offset).unwrap() + second.len / 2;
        file[at] ^= 1;
        let reader = open(&file);
        // More than a header.
        let mut bytes = [0; 20_000];
        assert_eq!(reader.read_some_at(&mut bytes, 0).unwrap(), 20_000);
        for _ in 0..2 {
            let error = reader.read_some_at(&mut bytes, second.content_offset).unwrap_err();
            match error.downcast::<SeekableError>().unwrap() {
                SeekableError::Frame { frame: 1, offset_bytes, .. } => {
                    assert_eq!(offset_bytes, second.offset);
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(reader.read_some_at(&mut bytes, 10).unwrap(), 20_000, "the others are read");
        assert_eq!(bytes, content[10..20_010]);
        // A header is read without the damage behind it.
        let head = reader.read_some_at(&mut bytes[..100], second.content_offset).unwrap();
        let begin = usize::try_from(second.content_offset).unwrap();
        assert_eq!(bytes[..head], content[begin..begin + 100]);
    }

    #[test]
    fn whatever_byte_changes_content_is_as_it_was_or_refused() {
        let content = content(3000);
        let mut file = Vec::new();
        let ends = [1000, 2000, 3000].into_iter();
        compress(&mut &*content, ends, Level::default(), &mut file, &|| true).unwrap();
        let read = |file: &[u8]| -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; 4000];
            let read = read_at_most(&Seekable::open(file, file.len() as u64)?, &mut bytes, 0)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        assert_eq!(read(&file).unwrap(), content);
        let mut refused = 0;
        for at in 0..file.len() {
            for change in [1, 0x10, 0x80, 0xFF] {
                let mut changed = file.clone();
                changed[at] ^= change;
                match read(&changed) {
                    Ok(found) => assert!(found == content, "byte {at} changed by {change:#x}"),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 3 * file.len(), "{refused} of {}", 4 * file.len());
    }

    #[test]
    fn a_frame_that_holds_more_or_less_than_the_table_says_is_refused() {
        for claimed in [10_u32, 1000] {
            let mut file = zstd::bulk::compress(&[0; 100], 3).unwrap();
            let mut table = SeekTable::default();
            table.push(u32::try_from(file.len()).unwrap(), claimed);
            file.extend(table.encode());
            let mut whole = vec![0; usize::try_from(claimed).unwrap()];
            let error = open(&file).read_some_at(&mut whole, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{claimed}");
        }
    }
}
