//! Summaries as chunks arrive: what can be mapped is mapped once, kept in a file, and merged.
//!
//! A rotation is not atomic: a stream of the next chunk may begin before the last stream of this one ended. The time up to
//! the end of chunk `i` is therefore complete when chunk `i + 1` is sealed as well, or when the session is closed. What is
//! complete in all open sessions is mapped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Timestamp;
use stitch::{Identities, LOOK_AHEAD, Summary};
use tracedir::{ChunkName, ClassCache};

use crate::Error;
use crate::adapter::SpanRules;
use crate::local::{Origins, Source, Stretch, Times, holes, map, times_of};

/// File name ending of summaries.
const ENDING: &str = "summary";

/// The analysis of one host that goes on while its recordings do.
#[derive(Debug)]
pub struct Stitcher {
    folder: PathBuf,
    rules: SpanRules,
    sessions: BTreeMap<PathBuf, Session>,
    cache: ClassCache,
    origins: Origins,
    merged: Summary,
}

#[derive(Debug, Default)]
struct Session {
    is_closed: bool,
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    path: PathBuf,
    /// `None` when it holds no packet.
    times: Option<Times>,
    /// Whether it was given by [`Stitcher::spent`].
    is_spent: bool,
}

/// What one advance did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Advance {
    /// How many stretches of time were mapped.
    pub windows: usize,
    /// How many event records they held.
    pub events: u64,
    /// How many of the stretches were gaps.
    pub gaps: usize,
    /// What could not be read, a line each.
    pub findings: Vec<String>,
}

impl Stitcher {
    /// Goes on with the summaries in `folder`, which is made when it is not there. Returns also what of them could not be
    /// used, a line each: it and what follows it is mapped again.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] when the folder cannot be read.
    pub fn open(folder: &Path, rules: SpanRules) -> Result<(Self, Vec<String>), Error> {
        let failed = |source| Error::Store { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|ending| ending == ENDING) {
                paths.push(path);
            }
        }
        paths.sort();
        let mut merged = Summary::identity();
        let mut unusable = Vec::new();
        for path in paths {
            match load(&path).and_then(|summary| Ok(merged.clone().merge(summary)?)) {
                Ok(longer) => merged = longer,
                Err(error) => {
                    unusable.push(format!("{}: {error}", path.display()));
                    fs::remove_file(&path).map_err(failed)?;
                }
            }
        }
        let stitcher = Self {
            folder: folder.to_owned(),
            rules,
            sessions: BTreeMap::new(),
            cache: ClassCache::default(),
            origins: Origins::new(),
            merged,
        };
        Ok((stitcher, unusable))
    }

    /// A session begins to record: nothing is mapped beyond what it has sealed.
    pub fn session_opened(&mut self, session: &Path) {
        self.sessions.entry(session.to_owned()).or_default();
    }

    /// A chunk of a session is complete, or will get no more: sealed, or left behind by a relay that was killed. A session
    /// that was never rotated is one chunk, in the session's own folder. The same chunk again changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Recording`] when it cannot be read, [`Error::NotAChunk`] when its name is not a chunk's.
    pub fn chunk_sealed(&mut self, session: &Path, chunk: &Path) -> Result<(), Error> {
        let name = chunk.file_name().and_then(|name| name.to_str()).and_then(ChunkName::parse);
        let id = match name {
            Some(name) => name.id,
            None if chunk == session => 0,
            None => return Err(Error::NotAChunk { path: chunk.to_owned() }),
        };
        let times = times_of(chunk, &mut self.cache, &mut self.origins)?;
        let session = self.sessions.entry(session.to_owned()).or_default();
        session.chunks.insert(id, Chunk { path: chunk.to_owned(), times, is_spent: false });
        Ok(())
    }

    /// A session ended: no more chunks will come.
    pub fn session_closed(&mut self, session: &Path) {
        self.sessions.entry(session.to_owned()).or_default().is_closed = true;
    }

    /// Everything mapped so far, merged.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.merged
    }

    /// Maps what is complete now, stores it and merges it.
    ///
    /// # Errors
    ///
    /// [`Error::Recording`], [`Error::SeveralHosts`] when chunks cannot be read together; [`Error::Store`] when a summary
    /// cannot be stored. What was merged before stays.
    pub fn advance(&mut self) -> Result<Advance, Error> {
        let mut advance = Advance::default();
        let begin = self.mapped_to();
        let Some(end) = self.complete_to() else { return Ok(advance) };
        let chunks: Vec<PathBuf> = self.sessions.values().flat_map(|s| s.from(begin)).collect();
        if begin.is_some_and(|begin| end <= begin) || chunks.is_empty() {
            return Ok(advance);
        }
        let source = Source::open(&chunks, &self.rules, &mut self.cache, &mut self.origins)?;
        let begin = begin.unwrap_or_else(|| source.begin());
        // Chunks tell their ends by their own clock, the source by the common one.
        let all_closed = self.sessions.values().all(|session| session.is_closed);
        let end = if all_closed { source.end() } else { end };
        if end <= begin {
            return Ok(advance);
        }
        let mut cuts = vec![begin, end];
        let gaps = self.gaps();
        let inside = |cut: &Timestamp| begin < *cut && *cut < end;
        cuts.extend(gaps.iter().flat_map(|(from, to)| [*from, *to]).filter(inside));
        cuts.sort_unstable();
        cuts.dedup();
        let is_gap = |at: Timestamp| gaps.iter().any(|(from, to)| *from <= at && at < *to);
        for (begin, end) in cuts.iter().copied().zip(cuts.iter().copied().skip(1)) {
            let window = Stretch { begin, end, is_gap: is_gap(begin) };
            let Some(entry) = self.entry(&source, &window, all_closed) else { break };
            let mapped = map(&source, &window, Arc::new(entry), None);
            self.store(&mapped.summary, begin, end)?;
            self.merged = std::mem::take(&mut self.merged).merge(mapped.summary)?;
            advance.gaps += usize::from(window.is_gap);
            advance.events += mapped.events;
            advance.findings.extend(mapped.findings);
            advance.windows += 1;
        }
        Ok(advance)
    }

    /// Who is who at the begin of a window; `None` while a chunk that is still to come may say who had a CPU first.
    fn entry(&self, source: &Source, window: &Stretch, all_closed: bool) -> Option<Identities> {
        let mut entry = self.merged.identities();
        if self.merged.cover().is_none() {
            entry = entry.outside_spans();
        }
        let begins = self.merged.cover().is_none() || self.merged.ends_in_gap();
        if window.is_gap || !begins {
            return Some(entry);
        }
        let ahead = source.look_ahead(window.begin);
        let reached = source.end().since(window.begin);
        if !all_closed && reached <= LOOK_AHEAD && ahead.waits(window.end) {
            return None;
        }
        ahead.complete(&mut entry);
        Some(entry)
    }

    /// The chunks that are not read any more, because all of their time is part of stored summaries. Each is given once,
    /// or again when [`Self::chunk_sealed`] was told of it again.
    pub fn spent(&mut self) -> Vec<PathBuf> {
        let mapped_to = self.mapped_to();
        self.sessions.values_mut().flat_map(|session| session.spend(mapped_to)).collect()
    }

    fn mapped_to(&self) -> Option<Timestamp> {
        self.merged.cover().map(|cover| cover.end)
    }

    /// Up to where every session is complete; `None` when one has nothing yet or there is none.
    fn complete_to(&self) -> Option<Timestamp> {
        let ends = self.sessions.values().flat_map(|s| s.times()).map(|times| times.end);
        let mut to = ends.max()?;
        for session in self.sessions.values().filter(|session| !session.is_closed) {
            to = to.min(session.complete_to()?);
        }
        Some(to)
    }

    /// Where no session has a chunk, and where one lacks a chunk between two.
    fn gaps(&self) -> Vec<(Timestamp, Timestamp)> {
        let runs: Vec<_> = self.sessions.values().map(Session::runs).collect();
        let mut gaps = holes(runs.iter().flatten().copied().collect());
        gaps.extend(runs.into_iter().flat_map(holes));
        gaps
    }

    /// Writes a summary so that it is whole or not there.
    fn store(&self, summary: &Summary, begin: Timestamp, end: Timestamp) -> Result<(), Error> {
        let name = format!("{:020}-{:020}.{ENDING}", begin.nanos(), end.nanos());
        let path = self.folder.join(name);
        let bytes = summary.to_bytes()?;
        write_whole(&path, &bytes).map_err(|source| Error::Store { path, source })
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file = fs::File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn load(path: &Path) -> Result<Summary, Error> {
    let bytes = fs::read(path).map_err(|source| Error::Store { path: path.to_owned(), source })?;
    Ok(Summary::from_bytes(&bytes)?)
}

impl Session {
    fn times(&self) -> impl DoubleEndedIterator<Item = Times> {
        self.chunks.values().filter_map(|chunk| chunk.times)
    }

    /// The end of the last sealed chunk but one; of a session with only one, its begin.
    fn complete_to(&self) -> Option<Timestamp> {
        let mut last = self.times().rev();
        let newest = last.next()?;
        Some(last.next().map_or(newest.begin, |times| times.end))
    }

    /// The chunks that may hold something at or after a time, and the one before them.
    fn from(&self, begin: Option<Timestamp>) -> Vec<PathBuf> {
        let over = |times: Times| begin.is_some_and(|begin| times.end < begin);
        if self.times().all(over) {
            return Vec::new();
        }
        let kept = self.with_packets().skip(self.over(begin).saturating_sub(1));
        kept.map(|(_, chunk)| chunk.path.clone()).collect()
    }

    fn with_packets(&self) -> impl DoubleEndedIterator<Item = (u64, &Chunk)> {
        let chunks = self.chunks.iter().filter(|(_, chunk)| chunk.times.is_some());
        chunks.map(|(id, chunk)| (*id, chunk))
    }

    /// How many of the chunks with packets end before a time.
    fn over(&self, begin: Option<Timestamp>) -> usize {
        let is_over = |times: &Times| begin.is_some_and(|begin| times.end < begin);
        self.times().take_while(is_over).count()
    }

    /// The chunks that [`Self::from`] will not give when everything before `begin` is mapped, whatever comes. Of those given
    /// before, only the last is remembered: it tells how far the session came.
    fn spend(&mut self, begin: Option<Timestamp>) -> Vec<PathBuf> {
        let is_mapped = |times: Times| begin.is_some_and(|begin| times.end <= begin);
        let first = if self.is_closed && self.times().all(is_mapped) {
            u64::MAX
        } else {
            let skip = self.over(begin).saturating_sub(1);
            self.with_packets().nth(skip).map_or(u64::MAX, |(id, _)| id)
        };
        let last = self.with_packets().next_back().map(|(id, _)| id);
        let mut spent = Vec::new();
        for (id, chunk) in &mut self.chunks {
            let is_spent = *id < first || chunk.times.is_none();
            if is_spent && !std::mem::replace(&mut chunk.is_spent, true) {
                spent.push(chunk.path.clone());
            }
        }
        self.chunks.retain(|id, _| *id >= first || Some(*id) == last);
        spent
    }

    /// Stretches of chunks whose numbers follow each other.
    fn runs(&self) -> Vec<(Timestamp, Timestamp)> {
        let mut runs: Vec<(Timestamp, Timestamp)> = Vec::new();
        let mut before = None;
        for (id, chunk) in &self.chunks {
            let follows = before == id.checked_sub(1) && before.is_some();
            before = Some(*id);
            let Some(times) = chunk.times else { continue };
            match runs.last_mut().filter(|_| follows) {
                Some((_, end)) => *end = (*end).max(times.end),
                None => runs.push((times.begin, times.end)),
            }
        }
        runs
    }
}
