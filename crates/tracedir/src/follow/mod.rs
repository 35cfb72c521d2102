//! Reading a recording while it is written.

mod files;
mod source;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};

use model::{TimeRange, Timestamp};

use self::files::{Arrived, Folder, Known};
use self::source::{MISSED, Source};
use crate::classes::ClassCache;
use crate::correlate::{self, Uncorrelated, Use};
use crate::discover::{Found, StreamFile, Watch};
use crate::error::Error;
use crate::finding::{Finding, Findings};
use crate::join::TraceKey;
use crate::lane::Pending;
use crate::merge::{Item, item};
use crate::options::{Correlate, ReadOptions};
use crate::recording::clock_of_trace;
use crate::stream::{PacketFile, StreamKey};
use crate::turns::Turn;

/// How a recording is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowOptions {
    /// How its traces are read.
    pub read: ReadOptions,
    /// What is given of it; losses belong to the range that holds their begin.
    pub range: TimeRange,
    /// How long a stream may be silent before the others go on without it, nanoseconds.
    pub grace_ns: u64,
}

impl FollowOptions {
    /// [`Self::grace_ns`] unless told otherwise: LTTng's switch timers are set to a second or less.
    pub const GRACE_NS: u64 = 2_000_000_000;
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { read: ReadOptions::default(), range: TimeRange::ALL, grace_ns: Self::GRACE_NS }
    }
}

/// The event records and losses of a recording that is being written, merged in time.
///
/// [`Self::poll`] looks at the folders: files that grew, files and chunks that appeared, metadata that grew, files that
/// a rotation moved. [`Self::next_item`] then gives what can be given without a later surprise. Neither waits, and no
/// clock is read: the caller says what time it is, by any clock that does not go backwards.
///
/// # When something is given
///
/// Only whole packets are read: what is there of a packet that is being written is not enough yet, and no damage. A
/// stream has *come to* the end of its last whole packet, to that packet's begin where it does not tell its end: what
/// comes later in the stream is not earlier. An item is given when every stream has come to its time, but for
/// streams that are *silent*: those to which no packet was added for [`FollowOptions::grace_ns`]. Files without a whole
/// packet count as streams that have come nowhere; so do folders whose metadata cannot be read yet.
///
/// So items come in order of time unless a stream was silent for longer than that and then tells of the time before:
/// such items are given at once, and counted in [`Self::late`]. Streams of equal times take turns in the order in which
/// they appeared.
///
/// # Files
///
/// A further file of a stream is taken up by a poll that finds the file before it and comes after one that saw a packet in
/// the further one: as packets are written one after the other, that poll sees all that was written before. A poll during
/// which a listed file was moved before it was opened takes up nothing: the next one finds the file elsewhere.
/// Folders are listed in the order in which a rotation moves chunks through them, so none passes a poll by.
///
/// A file is known again by its first packet or its inode, so a rotation that moves it into an archive changes nothing, and
/// a file that lies where another was is not taken for it. A
/// file that vanishes before it was read is waited for until the poll after the next, and then a [`Finding`]. Memory: one packet of each stream, the list of
/// files that are there, and of each stream the last 1,024 that were.
#[derive(Debug)]
pub struct Follow {
    paths: Vec<PathBuf>,
    options: FollowOptions,
    cache: ClassCache,
    watch: Watch,
    /// Folders that the last poll could not list.
    unlisted: Vec<Error>,
    folders: HashMap<PathBuf, Folder>,
    files: HashMap<PathBuf, Known>,
    traces: Vec<TraceKey>,
    sources: Vec<Source>,
    /// What a poll has seen of files that were not taken up yet; empty after it.
    arrived: Vec<Arrived>,
    /// Whether all files that a poll has listed were there when it opened them.
    steady: bool,
    by_key: HashMap<(StreamKey, usize), usize>,
    turns: BinaryHeap<Reverse<Turn>>,
    current: Option<Turn>,
    /// Nothing later than this is given.
    horizon: i64,
    /// The last time given.
    given: i64,
    late: u64,
    findings: Findings,
}

impl Follow {
    /// Will look below `paths`, which need not hold anything yet.
    #[must_use]
    pub fn new<P: AsRef<Path>>(paths: &[P], options: FollowOptions) -> Self {
        Self {
            paths: paths.iter().map(|path| path.as_ref().to_owned()).collect(),
            options,
            cache: ClassCache::default(),
            watch: Watch::default(),
            unlisted: Vec::new(),
            folders: HashMap::new(),
            files: HashMap::new(),
            traces: Vec::new(),
            sources: Vec::new(),
            arrived: Vec::new(),
            steady: true,
            by_key: HashMap::new(),
            turns: BinaryHeap::new(),
            current: None,
            horizon: i64::MIN,
            given: i64::MIN,
            late: 0,
            findings: Findings::default(),
        }
    }

    /// Looks at what was written until `now`.
    ///
    /// # Errors
    /// As [`discover`](crate::discover()); [`Error::Uncorrelated`] when a trace appeared whose clock cannot be compared with the others'.
    /// Asking again is possible.
    pub fn poll(&mut self, now: Timestamp) -> Result<(), Error> {
        // Packets only need metadata that were written before them, so lengths are taken first.
        let found = self.watch.look(&self.paths)?;
        self.take(found, now)
    }

    /// Takes up what a look has found.
    fn take(&mut self, found: Found, now: Timestamp) -> Result<(), Error> {
        let Found { folders, unlisted } = found;
        self.unlisted = unlisted;
        let known = self.begun();
        self.forget_all_but(&folders);
        for folder in folders {
            self.folder(folder, now);
        }
        self.take_arrived(now);
        self.resume();
        if self.begun() > known {
            self.correlation()?;
        }
        self.horizon = self.horizon_at(now);
        Ok(())
    }

    /// How many streams have a file.
    fn begun(&self) -> usize {
        self.sources.iter().filter(|source| !source.stream.files.is_empty()).count()
    }

    /// As [`Self::poll`] for the last time: all that is there is given, and what is not whole is a finding.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn finish(&mut self, now: Timestamp) -> Result<(), Error> {
        self.poll(now)?;
        self.take_cut_packets();
        self.take_unfinished(now);
        for source in &mut self.sources {
            source.missed = MISSED;
        }
        let troubles = self.folders.values_mut().filter_map(|folder| folder.trouble.take());
        let troubles = troubles.chain(self.unlisted.drain(..));
        troubles.for_each(|trouble| self.findings.push(Finding::Trace(trouble)));
        self.resume();
        self.horizon = i64::MAX;
        Ok(())
    }

    /// Takes files of known streams to their ends, also where a last packet is not whole.
    fn take_cut_packets(&mut self) {
        for (path, known) in &self.files {
            let Known::Read { source, id } = known else { continue };
            let Ok(now) = StreamFile::now(path.clone()) else { continue };
            let Some(source) = self.sources.get_mut(*source) else { continue };
            if now.is(*id)
                && let Some(at) = source.known(&now)
                && let Some(file) = source.stream.files.get_mut(at)
            {
                file.file.len = file.file.len.max(now.len);
            }
        }
    }

    /// Takes files without a whole packet as they are.
    fn take_unfinished(&mut self, now: Timestamp) {
        let waiting = self.files.iter().filter(|(_, known)| matches!(known, Known::Waiting { .. }));
        let mut paths: Vec<PathBuf> = waiting.map(|(path, _)| path.clone()).collect();
        paths.sort_unstable();
        for path in paths {
            let folder = path.parent().and_then(|folder| self.folders.get(folder));
            let Some(class) = folder.and_then(|folder| folder.class.clone()) else { continue };
            let Ok(file) = StreamFile::now(path.clone()) else { continue };
            let len = file.len;
            if len == 0 {
                continue;
            }
            match PacketFile::open(file, &class) {
                Ok(opened) => self.add(opened, None, now),
                Err((file, cause)) => self.findings.push(Finding::Rest {
                    path: file.path,
                    offset_bytes: 0,
                    lost_bytes: len,
                    cause,
                }),
            }
            self.files.remove(&path);
        }
    }

    /// The next item; `None` when there is no more until the next [`Self::poll`].
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        let turn = self.find()?;
        let source = self.sources.get(turn.lane())?;
        item(turn, &source.stream, &source.lane)
    }

    fn find(&mut self) -> Option<Turn> {
        loop {
            let turn = self.step()?;
            let pending = self.sources.get(turn.lane())?.lane.pending();
            if !matches!(pending, Pending::Event | Pending::Loss) {
                continue;
            }
            if turn.at() < self.given && pending == Pending::Event {
                self.late += 1;
            }
            self.given = self.given.max(turn.at());
            if self.options.range.contains(Timestamp::from_nanos(turn.at())) {
                return Some(turn);
            }
        }
    }

    fn step(&mut self) -> Option<Turn> {
        if let Some(done) = self.current.take() {
            let source = self.sources.get_mut(done.lane())?;
            match source.lane.advance(&source.stream, &mut self.findings) {
                Some(at) => self.turns.push(Reverse(Turn::new(at, done.lane()))),
                None => {
                    source.drained = true;
                    self.horizon = source.lane.stalled().unwrap_or(i64::MAX).min(self.horizon);
                }
            }
        }
        if self.turns.peek()?.0.at() > self.horizon {
            return None;
        }
        self.current = self.turns.pop().map(|Reverse(turn)| turn);
        self.current
    }

    /// How many items were given after one of a later time.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Nothing later than this can be given before the next [`Self::poll`].
    #[must_use]
    pub const fn horizon(&self) -> Timestamp {
        Timestamp::from_nanos(self.horizon)
    }

    /// Whether a stream has come to `at` and all others have, too, but for silent ones. Silence alone tells nothing: all
    /// streams may go on.
    #[must_use]
    pub fn has_come_to(&self, at: Timestamp) -> bool {
        // Streams without a clock have come everywhere from the beginning.
        let timed = |source: &&Source| source.reach < i64::MAX;
        let mut reached = self.sources.iter().filter(timed).map(|source| source.reach);
        self.horizon >= at.nanos() && reached.any(|reach| reach >= at.nanos())
    }

    /// How many streams have appeared: [`Item`]s name them by position.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.sources.len()
    }

    /// What could not be read so far.
    #[must_use]
    pub const fn findings(&self) -> &Findings {
        &self.findings
    }

    fn is_silent(&self, since: Timestamp, now: Timestamp) -> bool {
        let quiet_ns = now.nanos().saturating_sub(since.nanos());
        u64::try_from(quiet_ns).is_ok_and(|quiet| quiet >= self.options.grace_ns)
    }

    fn horizon_at(&self, now: Timestamp) -> i64 {
        let silent = |since: Timestamp| self.is_silent(since, now);
        let nowhere = |first_seen: &Timestamp| (!silent(*first_seen)).then_some(i64::MIN);
        let waiting = self.files.values().filter_map(|file| match file {
            Known::Waiting { first_seen } => nowhere(first_seen),
            Known::Read { .. } => None,
        });
        let unreadable = self.folders.values().filter(|folder| folder.class.is_none());
        let unreadable = unreadable.filter_map(|folder| nowhere(&folder.first_seen));
        let sources = self.sources.iter().filter(|source| !silent(source.grown));
        let reached = sources.map(|source| source.reach);
        let stalled = self.sources.iter().filter_map(|source| source.lane.stalled());
        waiting.chain(unreadable).chain(reached).chain(stalled).min().unwrap_or(i64::MAX)
    }

    fn correlation(&self) -> Result<(), Error> {
        if self.options.read.correlate != Correlate::Required {
            return Ok(());
        }
        let begun = self.sources.iter().filter(|source| !source.stream.files.is_empty());
        let begun: Vec<&Source> = begun.collect();
        let uses: Vec<Use> = begun
            .iter()
            .filter_map(|source| {
                let file = source.stream.files.first()?;
                let origin = correlate::origin(&file.class, file.clock(), source.trace);
                Some(Use { origin, trace: source.trace })
            })
            .collect();
        let groups = correlate::groups(&uses);
        let mut clocks = groups
            .iter()
            .filter_map(|group| clock_of_trace(&begun.get(*group.streams.first()?)?.stream, group));
        match (clocks.next(), clocks.next()) {
            (Some(a), Some(b)) => Err(Error::Uncorrelated(Box::new(Uncorrelated { a, b }))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
