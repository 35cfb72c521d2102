//! Rotation chunks of a recording session: their names, which are sealed and which were interrupted.
//!
//! ```text
//! SESSION/archives/<begin>-<end>-<id>/…   sealed
//! SESSION/<begin>-<id>/…                  being written, or left behind by a relay that was killed
//! ```
//!
//! `<begin>` and `<end>` are `YYYYMMDDTHHMMSS+ZZZZ`, `<id>` is a decimal number.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use ctf::index::PacketIndex;
use model::Timestamp;

use crate::discover::{StreamFile, TraceFolder, discover};
use crate::error::{Action, Error};

/// Folder of a session's sealed chunks.
pub const ARCHIVES: &str = "archives";

/// Length of `YYYYMMDDTHHMMSS+ZZZZ`.
const TIME_LEN: usize = 20;

/// What the name of a chunk's folder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkName {
    /// Number of the chunk in its session, from 0.
    pub id: u64,
    /// When it was begun, to the second.
    pub begin: Timestamp,
    /// When it was sealed, to the second; `None` while it is written.
    pub end: Option<Timestamp>,
}

impl ChunkName {
    /// Reads a folder name; `None` when it is not a chunk's.
    ///
    /// ```
    /// use tracedir::ChunkName;
    /// let name = ChunkName::parse("20261120T164407+0000-20261120T164408+0000-3").expect("a chunk name");
    /// assert_eq!((name.id, name.begin.nanos()), (3, 1_795_193_047_000_000_000));
    /// assert!(ChunkName::parse("20261120T164407+0000-4").is_some_and(|name| name.end.is_none()));
    /// assert!(ChunkName::parse("archives").is_none());
    /// ```
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (begin, rest) = name.split_at_checked(TIME_LEN)?;
        let begin = parse_time(begin)?;
        let rest = rest.strip_prefix('-')?;
        let sealed = rest
            .split_at_checked(TIME_LEN)
            .and_then(|(end, rest)| Some((parse_time(end)?, rest.strip_prefix('-')?)));
        let (end, id) = match sealed {
            Some((end, id)) => (Some(end), id),
            None => (None, rest),
        };
        let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { id: digits.then(|| id.parse().ok()).flatten()?, begin, end })
    }
}

/// One sealed chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What its folder's name says.
    pub name: ChunkName,
    /// Its folder.
    pub path: PathBuf,
}

/// One chunk that was never sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsealedChunk {
    /// What its folder's name says; the end is absent.
    pub name: ChunkName,
    /// Its folder.
    pub path: PathBuf,
    /// What a reader will miss in it; empty when all that arrived can be read.
    pub missing: Vec<Missing>,
}

/// Something an interrupted chunk lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// A trace folder without a byte of metadata: none of its packets can be read.
    Metadata {
        /// The trace folder.
        folder: PathBuf,
        /// Bytes of packets in it.
        stream_bytes: u64,
    },
    /// Packets that the index of a stream file does not name: the last may be incomplete.
    IndexEntries {
        /// The stream file.
        file: PathBuf,
        /// Bytes that the index covers.
        indexed_bytes: u64,
        /// Bytes in the file.
        file_bytes: u64,
    },
    /// A chunk folder without any trace in it.
    Everything {
        /// The chunk's folder.
        folder: PathBuf,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata { folder, stream_bytes } => write!(
                f,
                "{}: no metadata arrived, {stream_bytes} bytes of packets cannot be read",
                folder.display()
            ),
            Self::IndexEntries { file, indexed_bytes, file_bytes } => write!(
                f,
                "{}: the index names {indexed_bytes} of {file_bytes} bytes",
                file.display()
            ),
            Self::Everything { folder } => write!(f, "{}: no trace arrived", folder.display()),
        }
    }
}

/// The chunks of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionChunks {
    /// Sealed chunks in order of their ids.
    pub sealed: Vec<Chunk>,
    /// Chunks without an end, in order of their ids.
    pub unsealed: Vec<UnsealedChunk>,
}

/// Lists the chunks of the session at `session`; both lists are empty when it was never rotated.
///
/// # Errors
/// [`Error::Io`] when a folder cannot be listed, and what [`discover`] reports for an unsealed chunk.
pub fn session_chunks(session: &Path) -> Result<SessionChunks, Error> {
    let archives = session.join(ARCHIVES);
    let mut chunks = SessionChunks::default();
    if archives.is_dir() {
        let sealed = chunk_folders(&archives)?.into_iter().filter(|(name, _)| name.end.is_some());
        chunks.sealed = sealed.map(|(name, path)| Chunk { name, path }).collect();
    }
    for (name, path) in chunk_folders(session)?.into_iter().filter(|(name, _)| name.end.is_none()) {
        let missing = missing_in(&path)?;
        chunks.unsealed.push(UnsealedChunk { name, path, missing });
    }
    Ok(chunks)
}

/// Whether `folder` is a session with chunks: it holds `archives` or a chunk that was never sealed.
///
/// # Errors
/// [`Error::Io`] when it cannot be listed.
pub fn has_chunks(folder: &Path) -> Result<bool, Error> {
    Ok(folder.join(ARCHIVES).is_dir() || !chunk_folders(folder)?.is_empty())
}

fn chunk_folders(folder: &Path) -> Result<Vec<(ChunkName, PathBuf)>, Error> {
    let failed = |source| Error::io(Action::List, folder, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_str().and_then(ChunkName::parse);
        if let Some(name) = name
            && entry.file_type().map_err(failed)?.is_dir()
        {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn missing_in(chunk: &Path) -> Result<Vec<Missing>, Error> {
    let traces = discover(&[chunk])?;
    if traces.is_empty() {
        return Ok(vec![Missing::Everything { folder: chunk.to_owned() }]);
    }
    Ok(traces.iter().flat_map(missing_in_trace).collect())
}

fn missing_in_trace(trace: &TraceFolder) -> Vec<Missing> {
    if trace.metadata_len == 0 {
        let (folder, stream_bytes) = (trace.path.clone(), trace.stream_bytes());
        return vec![Missing::Metadata { folder, stream_bytes }];
    }
    trace.stream_files.iter().filter_map(missing_in_index).collect()
}

fn missing_in_index(file: &StreamFile) -> Option<Missing> {
    // A reader scans the packets when there is no usable index, so only one that falls short is worth a word.
    let index = PacketIndex::decode(&fs::read(file.index_path()?).ok()?).ok()?;
    let indexed_bytes = index
        .entries
        .last()
        .map_or(0, |last| last.offset_bytes.saturating_add(last.total_length_bits / 8));
    (indexed_bytes < file.len).then(|| Missing::IndexEntries {
        file: file.path.clone(),
        indexed_bytes,
        file_bytes: file.len,
    })
}

/// `YYYYMMDDTHHMMSS+ZZZZ`.
fn parse_time(text: &str) -> Option<Timestamp> {
    let fits = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'+' || byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    if text.len() != TIME_LEN || !text.bytes().enumerate().all(fits) {
        return None;
    }
    let parsed = jiff::fmt::strtime::parse("%Y%m%dT%H%M%S%z", text).ok()?;
    let nanos = parsed.to_timestamp().ok()?.as_nanosecond();
    i64::try_from(nanos).ok().map(Timestamp::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_names_say_times_in_any_zone_and_an_id() {
        let seconds = |time: Timestamp| time.nanos() / 1_000_000_000;
        let west = ChunkName::parse("20261120T114407-0500-20261120T114408-0500-12").unwrap();
        assert_eq!(seconds(west.begin), 1_795_193_047);
        assert_eq!(west.end.map(seconds), Some(1_795_193_048));
        assert_eq!(west.id, 12);
        let leap = ChunkName::parse("20000229T000000+0000-0").unwrap();
        assert_eq!(seconds(leap.begin), 951_782_400);
        let east = ChunkName::parse("20261120T221407+0530-0").unwrap();
        assert_eq!((seconds(east.begin), east.end, east.id), (1_795_193_047, None, 0));
    }

    #[test]
    fn other_names_are_no_chunks() {
        for name in [
            "",
            "archives",
            "20261120T114407-0500",
            "20261120T114407-0500-",
            "20261120T114407-0500-x",
            "20261120T114407-0500-+3",
            "20261320T114407-0500-3",
            "20260229T114407-0500-3",
            "99991120T114407-0500-3",
            "+0261120T114407-0500-3",
            "20261120T114407-0500-20261120T114408-0500",
            "20261120T114407-0500-20261120T114408-0500-99999999999999999999",
            "2026112éT14407-0500-3",
        ] {
            assert_eq!(ChunkName::parse(name), None, "{name}");
        }
    }
}
