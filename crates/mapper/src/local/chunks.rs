//! Where rotated sessions may be cut, and which of their chunks are missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::Timestamp;
use tracedir::{ARCHIVES, ChunkName, ClassCache, Recording, UnsealedChunk, session_chunks};

use super::source::{Origins, Shifts, learn_origins};
use crate::Error;

/// A recording session and its chunks, as far as they were given.
#[derive(Debug)]
pub(super) struct Session {
    /// Chunk folders by number.
    chunks: BTreeMap<u64, PathBuf>,
    /// Chunks that were never sealed.
    pub(super) unsealed: Vec<UnsealedChunk>,
}

/// The sessions that these trace folders belong to; none for traces that were not rotated.
pub(super) fn sessions<'p>(folders: impl Iterator<Item = &'p Path>) -> Result<Vec<Session>, Error> {
    let mut sessions: BTreeMap<PathBuf, BTreeMap<u64, PathBuf>> = BTreeMap::new();
    for folder in folders {
        let Some((session, id, chunk)) = chunk_of(folder) else { continue };
        sessions.entry(session).or_default().insert(id, chunk);
    }
    sessions
        .into_iter()
        .map(|(path, chunks)| {
            let given = |chunk: &UnsealedChunk| chunks.values().any(|path| *path == chunk.path);
            let mut unsealed = session_chunks(&path)?.unsealed;
            unsealed.retain(given);
            Ok(Session { chunks, unsealed })
        })
        .collect()
}

/// The session, number and folder of the chunk that a trace folder lies in.
fn chunk_of(folder: &Path) -> Option<(PathBuf, u64, PathBuf)> {
    folder.ancestors().find_map(|chunk| {
        let name = ChunkName::parse(chunk.file_name()?.to_str()?)?;
        let above = chunk.parent()?;
        let in_archives = above.file_name().is_some_and(|name| name == ARCHIVES);
        let session = if in_archives { above.parent()? } else { above };
        Some((session.to_owned(), name.id, chunk.to_owned()))
    })
}

/// The first moment of a chunk and the first after it, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
}

/// The first moments after each chunk but the last of its session, on all its streams.
pub(super) fn ends(
    sessions: &[Session],
    shifts: &Shifts,
    cache: &mut ClassCache,
) -> Result<Vec<Timestamp>, Error> {
    let mut cuts = Vec::new();
    for session in sessions {
        for chunk in session.chunks.values().rev().skip(1) {
            cuts.extend(shifted_times(chunk, shifts, cache)?.map(|times| times.end));
        }
    }
    Ok(cuts)
}

/// The stretches of time whose chunk is missing between two that are there.
pub(super) fn gaps(
    sessions: &[Session],
    shifts: &Shifts,
    cache: &mut ClassCache,
) -> Result<Vec<(Timestamp, Timestamp)>, Error> {
    let mut gaps = Vec::new();
    for session in sessions {
        let chunks = session.chunks.iter().zip(session.chunks.iter().skip(1));
        for ((_, left), (_, right)) in chunks.filter(|((a, _), (b, _))| *a + 1 < **b) {
            let left = shifted_times(left, shifts, cache)?;
            let right = shifted_times(right, shifts, cache)?;
            if let (Some(left), Some(right)) = (left, right)
                && left.end < right.begin
            {
                gaps.push((left.end, right.begin));
            }
        }
    }
    Ok(gaps)
}

/// The stretches between the first and the last moment of these runs in which none of them is.
pub(crate) fn holes(mut runs: Vec<(Timestamp, Timestamp)>) -> Vec<(Timestamp, Timestamp)> {
    runs.sort_unstable();
    let mut holes = Vec::new();
    let mut reached: Option<Timestamp> = None;
    for (begin, end) in runs {
        holes.extend(reached.filter(|reached| *reached < begin).map(|reached| (reached, begin)));
        reached = Some(reached.map_or(end, |reached| reached.max(end)));
    }
    holes
}

fn shifted_times(
    chunk: &Path,
    shifts: &Shifts,
    cache: &mut ClassCache,
) -> Result<Option<Times>, Error> {
    let below = shifts.range(chunk.to_owned()..).take_while(|(path, _)| path.starts_with(chunk));
    let shift_ns = below.map(|(_, shift_ns)| *shift_ns).min().unwrap_or(0);
    let shifted = |at: Timestamp| Timestamp::from_nanos(at.nanos().saturating_add(shift_ns));
    let times = times_of(chunk, cache, &mut Origins::new())?;
    Ok(times.map(|times| Times { begin: shifted(times.begin), end: shifted(times.end) }))
}

/// The time a chunk covers by its own clock, which is added to the known ones; `None` when it holds no packet.
pub(crate) fn times_of(
    chunk: &Path,
    cache: &mut ClassCache,
    origins: &mut Origins,
) -> Result<Option<Times>, Error> {
    let recording = match Recording::open_with(&[chunk], cache) {
        Err(tracedir::Error::NoTrace { .. } | tracedir::Error::MetadataEmpty { .. }) => {
            return Ok(None);
        }
        other => other?,
    };
    learn_origins(recording.traces(), origins);
    let covers = recording.covers();
    let begin = covers.iter().filter_map(|cover| cover.begin).min();
    let end = covers.iter().filter_map(|cover| cover.end).max();
    let after = |at: Timestamp| Timestamp::from_nanos(at.nanos().saturating_add(1));
    Ok(begin.zip(end).map(|(begin, end)| Times { begin, end: after(end) }))
}
