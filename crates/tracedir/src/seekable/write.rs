//! Compresses content into frames and their table.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::table::SeekTable;
use super::{MAX_FRAME_BYTES, MAX_FRAMES, SeekableError};
use crate::digest::hex;

/// How hard zstd tries: 1 (fast) to 19 (small).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(i32);

/// Why a text is no [`Level`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not zstd or zstd:LEVEL with a level from 1 to 19")]
pub struct LevelError;

impl Default for Level {
    /// zstd's own.
    fn default() -> Self {
        Self(3)
    }
}

impl FromStr for Level {
    type Err = LevelError;

    /// `zstd` or `zstd:LEVEL`.
    fn from_str(text: &str) -> Result<Self, LevelError> {
        match text.split_once(':') {
            None if text == "zstd" => Ok(Self::default()),
            Some(("zstd", level)) => match level.parse() {
                Ok(level @ 1..=19) => Ok(Self(level)),
                _ => Err(LevelError),
            },
            _ => Err(LevelError),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zstd:{}", self.0)
    }
}

/// What was written of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Bytes of content.
    pub content_bytes: u64,
    /// SHA-256 of the content, hexadecimal.
    pub content_sha256: String,
    /// Bytes of the compressed file.
    pub bytes: u64,
    /// SHA-256 of the compressed file, hexadecimal.
    pub sha256: String,
}

/// Compresses `input` into frames that end at `ends`, ascending and at most [`MAX_FRAME_BYTES`] apart. `go_on` is asked before
/// each frame.
///
/// # Errors
/// What reading and writing say; [`io::ErrorKind::UnexpectedEof`] when `input` ends before the last frame;
/// [`io::ErrorKind::Interrupted`] when `go_on` says no.
pub fn compress(
    input: &mut dyn Read,
    ends: impl Iterator<Item = u64>,
    level: Level,
    output: &mut dyn Write,
    go_on: &dyn Fn() -> bool,
) -> io::Result<Written> {
    let mut compressor = zstd::bulk::Compressor::new(level.0)?;
    compressor.include_checksum(true)?;
    let mut table = SeekTable::default();
    let (mut content_digest, mut digest) = (Sha256::new(), Sha256::new());
    let mut content = vec![0; MAX_FRAME_BYTES];
    let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(MAX_FRAME_BYTES));
    for end in ends {
        if !go_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = usize::try_from(end.saturating_sub(table.content_len())).unwrap_or(usize::MAX);
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        let content = content.get_mut(..len).ok_or_else(too_long)?;
        input.read_exact(content)?;
        content_digest.update(&*content);
        frame.clear();
        compressor.compress_to_buffer(content, &mut frame)?;
        if table.frames() == MAX_FRAMES {
            let frames = MAX_FRAMES as u64 + 1;
            return Err(SeekableError::TooManyFrames { frames, limit: MAX_FRAMES }.into());
        }
        let [len, content_len] = [frame.len(), content.len()].map(u32::try_from);
        let both = len.and_then(|len| Ok((len, content_len?)));
        let (len, content_len) = both.map_err(|_too_long| too_long())?;
        table.push(len, content_len);
        output.write_all(&frame)?;
        digest.update(&frame);
    }
    let end = table.encode();
    output.write_all(&end)?;
    digest.update(&end);
    let frames = table.frame(table.frames().wrapping_sub(1)).unwrap_or_default();
    Ok(Written {
        content_bytes: table.content_len(),
        content_sha256: hex(&content_digest.finalize()),
        bytes: frames.offset + frames.len as u64 + end.len() as u64,
        sha256: hex(&digest.finalize()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_named_with_its_method() {
        let parse = |text: &str| text.parse::<Level>().map(|level| level.to_string());
        assert_eq!(parse("zstd").as_deref(), Ok("zstd:3"));
        assert_eq!(parse("zstd:19").as_deref(), Ok("zstd:19"));
        for text in ["", "gzip", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "3", "zstd:3:4", "gzip:3"]
        {
            assert_eq!(parse(text), Err(LevelError), "{text}");
        }
    }
}
