//! Stream files compressed with zstd in frames of their own, with a table that says where each is.
//!
//! ```text
//! frame 0 | frame 1 | … | seek table      the zstd seekable format, version 0.1.0
//! ```
//! `zstd -d` reads such a file like any other. Each frame holds whole packets where they are not longer than
//! 256 KiB, longer ones begin a frame, so any packet is read by decompressing the frames it lies in and nothing before them.
//!
//! Pure but for [`Source`], which has places to read from: a file, or memory in tests. Bounds: [`MAX_FRAME_BYTES`] of content
//! in a frame, [`MAX_FRAMES`] frames; what declares more is refused before memory is taken for it. A reader holds the
//! content of one frame.

mod plan;
mod read;
mod table;
mod write;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub use read::Seekable;
pub use table::{Frame, SeekTable};
pub use write::{Level, LevelError, Written, compress};

pub(crate) use plan::FrameEnds;

/// Ending of a compressed stream file's name.
pub const ENDING: &str = ".zst";
/// Most content of one frame.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Most frames of one file.
pub const MAX_FRAMES: usize = 1 << 20;
/// Small packets are put together in frames of this size, and longer ones are cut into them.
pub(crate) const FRAME_BYTES: u64 = 256 << 10;

/// What can be read at any place.
pub trait Source {
    /// Reads into `buffer` from `offset`; says how much.
    ///
    /// # Errors
    /// What the system says.
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
}

impl Source for &[u8] {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let mut rest = self.get(from..).unwrap_or_default();
        io::Read::read(&mut rest, buffer)
    }
}

/// Fills `buffer` from `offset`; fewer bytes only at the end.
pub(crate) fn read_at_most(
    source: &(impl Source + ?Sized),
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read_some_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Why a compressed file cannot be read. Offsets are bytes in the compressed file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeekableError {
    /// Something else, or cut off.
    #[error("its last 9 bytes are no end of a zstd seek table; zstd -d may read it")]
    NoTable,
    /// The table is not what its own end says.
    #[error("the seek table at byte {offset_bytes} of the compressed file is damaged")]
    Table {
        /// Where it should begin.
        offset_bytes: u64,
    },
    /// More frames than are read.
    #[error("the seek table announces {frames} frames, the limit is {limit}")]
    TooManyFrames {
        /// How many.
        frames: u64,
        /// The most that are read.
        limit: usize,
    },
    /// The frames together are not as long as the file.
    #[error("the seek table speaks of {announced} bytes of frames, the file has {found}")]
    OtherLength {
        /// By the table.
        announced: u64,
        /// By the file.
        found: u64,
    },
    /// A frame that announces more than any of ours holds.
    #[error(
        "frame {frame} at byte {offset_bytes} of the compressed file announces {announced} bytes, the limit is {limit}"
    )]
    FrameTooLong {
        /// Its number, from 0.
        frame: usize,
        /// Where it begins.
        offset_bytes: u64,
        /// Bytes of its content, or of itself.
        announced: u64,
        /// The most that is taken.
        limit: usize,
    },
    /// A frame that is no zstd frame, or damaged, or holds more than the table says.
    #[error(
        "frame {frame} at byte {offset_bytes} of the compressed file cannot be decompressed to {announced} bytes: {problem}"
    )]
    Frame {
        /// Its number, from 0.
        frame: usize,
        /// Where it begins.
        offset_bytes: u64,
        /// Bytes of its content by the table.
        announced: u64,
        /// What zstd says.
        problem: String,
    },
}

impl From<SeekableError> for io::Error {
    fn from(error: SeekableError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
