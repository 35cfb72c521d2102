//! Reading a recording while it is written.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::TraceClass;
use model::{TimeRange, Timestamp};

use crate::classes::ClassCache;
use crate::correlate::{self, Uncorrelated, Use};
use crate::discover::{Found, StreamFile, TraceFolder, Watch};
use crate::error::Error;
use crate::finding::{Cause, Finding, Findings};
use crate::heads::{Head, Headers};
use crate::join::{TraceKey, grouping, place, stream_of};
use crate::lane::{Lane, PacketEnds, Pending};
use crate::merge::{Item, MAX_OPEN_FILES, item};
use crate::options::{Correlate, ReadOptions};
use crate::recording::clock_of_trace;
use crate::source::{FileId, PacketSource};
use crate::stream::{COMPARED, PacketFile, Stream, StreamKey};
use crate::turns::Turn;
use crate::window::{Handles, READ_AHEAD_OF_MANY, Window};

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

/// A trace folder.
#[derive(Debug)]
struct Folder {
    metadata_len: u64,
    /// Absent while the metadata cannot be read.
    class: Option<Arc<TraceClass>>,
    trouble: Option<Error>,
    first_seen: Timestamp,
}

/// A stream file.
#[derive(Debug)]
enum Known {
    /// Without a whole packet, or not taken up yet.
    Waiting { first_seen: Timestamp },
    /// A file of a source.
    Read { source: usize, id: Option<FileId> },
}

/// A file is lost when it was not found so many times in a row: once may be while a rotation moves it.
const MISSED: u32 = 2;

/// So many files of a stream are remembered at least, also when they were read and deleted.
const REMEMBERED: usize = 1024;

/// Where in its stream a packet belongs: begin and sequence number.
type Order = (Option<u64>, Option<u64>);

fn order(file: &PacketFile) -> Order {
    (file.first.begin, file.first.sequence)
}

/// A file with a whole packet that was not taken up.
#[derive(Debug)]
struct Arrived {
    file: PacketFile,
    /// Its last whole packet.
    last: Head,
    source: usize,
}

/// A stream that is being written.
#[derive(Debug)]
struct Source {
    stream: Stream,
    /// The last file that was seen, by its first packet.
    seen: Option<Order>,
    /// How many times in a row files had to wait because the one before was not found.
    held_up: u32,
    lane: Lane,
    trace: usize,
    /// Whether the lane has no turn.
    drained: bool,
    /// How far the stream has come.
    reach: i64,
    /// When a packet was added last.
    grown: Timestamp,
    /// How many times in a row the file that is being read was not found.
    missed: u32,
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

    fn folder(&mut self, folder: TraceFolder, now: Timestamp) {
        let known = self.folders.entry(folder.path.clone()).or_insert(Folder {
            metadata_len: 0,
            class: None,
            trouble: None,
            first_seen: now,
        });
        if folder.metadata_len != known.metadata_len {
            match self.cache.read(&folder, &self.options.read) {
                Ok(class) => {
                    let replaced = known.class.replace(Arc::clone(&class));
                    (known.metadata_len, known.trouble) = (folder.metadata_len, None);
                    if let Some(replaced) = replaced {
                        self.replace_class(&folder.path, &replaced, &class);
                    }
                }
                // Half of a declaration: more of it will come, and what was there before still holds.
                Err(error) => known.trouble = Some(error),
            }
        }
        let Some(known) = self.folders.get(&folder.path) else { return };
        let Some(class) = known.class.clone() else {
            // What is in there may come before all else.
            self.steady &= self.is_silent(known.first_seen, now);
            return;
        };
        for file in folder.stream_files {
            self.file(file, &class, now);
        }
    }

    /// Packets that are not read yet are read by the metadata that came later.
    fn replace_class(&mut self, folder: &Path, old: &Arc<TraceClass>, new: &Arc<TraceClass>) {
        let files = self.sources.iter_mut().flat_map(|source| &mut source.stream.files);
        let own = files.filter(|file| file.file.path.parent() == Some(folder));
        own.filter(|file| Arc::ptr_eq(&file.class, old))
            .for_each(|file| file.class = Arc::clone(new));
    }

    fn file(&mut self, file: StreamFile, class: &Arc<TraceClass>, now: Timestamp) {
        let is_known = match self.files.get(&file.path) {
            Some(Known::Read { source, id }) => {
                let source = *source;
                if file.is(*id) && self.grow(source, &file, now) {
                    return;
                }
                false
            }
            Some(Known::Waiting { .. }) => true,
            None => false,
        };
        if !is_known {
            self.files.insert(file.path.clone(), Known::Waiting { first_seen: now });
        }
        if file.len == 0 {
            return;
        }
        // What cannot be read yet is tried again, and told in the end.
        let Some(handle) = self.found(file.open()) else { return };
        let len = file.len;
        let mut opened = match PacketFile::open(file, class) {
            Ok(opened) => opened,
            Err((_, Cause::Io(error))) => {
                self.found::<()>(Err(error));
                return;
            }
            Err(_) => return,
        };
        opened.file.len = 0;
        let Some((whole, last)) = whole_packets(handle, &opened, len) else { return };
        opened.file.len = whole;
        let source = self.source_of(&opened, now);
        let moved = self.sources.get(source).and_then(|source| source.position(&opened)).is_some();
        if moved {
            self.add(opened, Some(&last), now);
        } else {
            self.arrived.push(Arrived { file: opened, last, source });
        }
    }

    /// What was opened; remembers that a file was listed and is not there.
    fn found<T>(&mut self, opened: io::Result<T>) -> Option<T> {
        let missing = opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.steady &= !missing;
        opened.ok()
    }

    /// Takes up files of which nothing that comes before can be missing.
    ///
    /// The file before may have been listed before its last packet was written and the further one after it, and it may
    /// not have been found while a rotation moved it.
    fn take_arrived(&mut self, now: Timestamp) {
        let steady = std::mem::replace(&mut self.steady, true);
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.sort_by_key(|arrived| order(&arrived.file));
        let empty = self.places_of_empty_files(&arrived);
        let mut limits: HashMap<usize, Option<Order>> = HashMap::new();
        for Arrived { file, last, source: index } in arrived {
            let Some(source) = self.sources.get_mut(index) else { continue };
            let limit = *limits.entry(index).or_insert_with(|| {
                let alone = || !empty.contains(&place(&file.file.path).1);
                let first = source.stream.files.is_empty() && alone();
                let seen = source.seen.max(first.then(|| order(&file)));
                (source.has_found_all(&self.files) && steady).then_some(seen).flatten()
            });
            source.seen = source.seen.max(Some(order(&file)));
            if limit.is_some_and(|limit| order(&file) <= limit) {
                self.add(file, Some(&last), now);
            }
        }
    }

    /// Where files lie, in every chunk of their sessions, that have not got a packet yet; nowhere when no stream begins.
    fn places_of_empty_files(&self, arrived: &[Arrived]) -> HashSet<PathBuf> {
        let begins = |arrived: &Arrived| {
            let source = self.sources.get(arrived.source);
            source.is_some_and(|source| source.stream.files.is_empty())
        };
        if !arrived.iter().any(begins) {
            return HashSet::new();
        }
        let with_packets: HashSet<&Path> =
            arrived.iter().map(|arrived| arrived.file.file.path.as_path()).collect();
        let waiting = self.files.iter().filter(|(path, known)| {
            matches!(known, Known::Waiting { .. }) && !with_packets.contains(path.as_path())
        });
        waiting.map(|(path, _)| place(path).1).collect()
    }

    fn add(&mut self, file: PacketFile, last: Option<&Head>, now: Timestamp) {
        let source = self.source_of(&file, now);
        self.files.insert(file.file.path.clone(), Known::Read { source, id: file.file.id });
        if let Some(source) = self.sources.get_mut(source) {
            source.add(file, last, now);
        }
    }

    /// Forgets where files were that are not there any more.
    fn forget_all_but(&mut self, folders: &[TraceFolder]) {
        let files = folders.iter().flat_map(|folder| &folder.stream_files);
        let listed = Listed(files.map(|file| (file.path.as_path(), file.id)).collect());
        self.files.retain(|path, _| listed.0.contains_key(path.as_path()));
        let there: HashSet<&Path> = folders.iter().map(|folder| folder.path.as_path()).collect();
        self.folders.retain(|path, _| there.contains(path.as_path()));
        for source in &mut self.sources {
            let file = source.stream.files.get(source.lane.file());
            let missed = file.is_some_and(|file| !listed.holds(&file.file));
            source.missed = if missed { source.missed.saturating_add(1) } else { 0 };
            source.forget_all_but(&listed);
        }
    }

    /// Takes up what was added to a known file; `false` when another one lies there.
    fn grow(&mut self, source: usize, file: &StreamFile, now: Timestamp) -> bool {
        let same = self.sources.get(source).and_then(|source| source.known(file));
        let known = |follow: &mut Self| {
            let source = follow.sources.get_mut(source)?;
            Some(source.stream.files.get_mut(same?)?.file.len)
        };
        let Some(len) = known(self).filter(|len| *len <= file.len) else { return false };
        if file.len == len {
            return true;
        }
        let Some(handle) = self.found(file.open()) else { return true };
        let Some(source) = self.sources.get_mut(source) else { return false };
        let known = same.and_then(|at| source.stream.files.get_mut(at));
        let Some(known) = known else { return false };
        if let Some((whole, last)) = whole_packets(handle, known, file.len) {
            known.file.len = whole;
            let reach = reach(known, &last);
            source.reach = source.reach.max(reach);
            source.grown = now;
        }
        true
    }

    /// The stream that the file is of, which may have no file yet.
    fn source_of(&mut self, file: &PacketFile, now: Timestamp) -> usize {
        let path = &file.file.path;
        let trace = TraceKey::of(path.parent().unwrap_or(path), &file.class);
        let trace = self.traces.iter().position(|known| *known == trace).unwrap_or_else(|| {
            self.traces.push(trace);
            self.traces.len() - 1
        });
        let named = self.traces.get(trace).is_some_and(TraceKey::is_named);
        let key = (grouping(file, named), trace);
        let next = self.sources.len();
        let index = *self.by_key.entry(key).or_insert(next);
        if index == next {
            // A descriptor also leads to a file that is being moved.
            let handles = if next < MAX_OPEN_FILES { Handles::Keep } else { Handles::Release };
            let window = Window::new(handles, READ_AHEAD_OF_MANY);
            self.sources.push(Source {
                stream: stream_of(vec![]),
                seen: None,
                held_up: 0,
                lane: Lane::new(window, PacketEnds::Passed),
                trace,
                drained: true,
                reach: i64::MIN,
                grown: now,
                missed: 0,
            });
        }
        index
    }

    /// Gives turns to streams that had come to their end and went on.
    fn resume(&mut self) {
        for (index, source) in self.sources.iter_mut().enumerate().filter(|(_, s)| s.drained) {
            source.lane.set_patient(source.missed < MISSED);
            if let Some(at) = source.lane.next_packet(&source.stream, &mut self.findings) {
                source.drained = false;
                self.turns.push(Reverse(Turn::new(at, index)));
            }
        }
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

impl Source {
    /// Forgets files that were read and are not there any more: a recording of which old chunks are deleted has no end.
    fn forget_all_but(&mut self, listed: &Listed<'_>) {
        let spare = self.stream.files.len().saturating_sub(REMEMBERED).min(self.lane.file());
        let gone = |file: &&PacketFile| !listed.holds(&file.file);
        let gone = self.stream.files.iter().take(spare).take_while(gone).count();
        self.stream.files.drain(..gone);
        self.lane.forget(gone);
    }

    /// Where in the stream this very file is, wherever it lay before. A copy beside it is another.
    fn position(&self, file: &PacketFile) -> Option<usize> {
        let tells = file.first.begin.is_some() || file.first.sequence.is_some();
        let path = &file.file.path;
        self.stream.files.iter().position(|other| {
            let same = other.file.id.is_some() && other.file.id == file.file.id;
            let replaced = || other.file.path == *path || other.file.open().is_err();
            other.first == file.first && (same || tells && replaced())
        })
    }

    /// Where in the stream the file is that lies there; `None` when that one was moved, and this is another.
    fn known(&self, file: &StreamFile) -> Option<usize> {
        let mut files = self.stream.files.iter();
        files.position(|known| known.file.is(file.id) && known.file.path == file.path)
    }

    /// Whether the last file is where it was, or was not there for so long that it is not waited for.
    fn has_found_all(&mut self, files: &HashMap<PathBuf, Known>) -> bool {
        let found = self.stream.files.last().is_none_or(|last| {
            let known = files.get(&last.file.path);
            known.is_some_and(|it| matches!(it, Known::Read { id, .. } if last.file.is(*id)))
        });
        self.held_up = if found { 0 } else { self.held_up.saturating_add(1) };
        found || self.held_up > MISSED
    }

    /// Takes up a file: one that was moved, or a further one.
    fn add(&mut self, mut file: PacketFile, last: Option<&Head>, now: Timestamp) {
        let same = self.position(&file);
        let reach = reach(&file, last.unwrap_or(&file.first));
        if reach > self.reach || self.stream.files.is_empty() || same.is_none() {
            self.grown = now;
        }
        self.reach = self.reach.max(reach);
        match same {
            Some(at) => {
                if let Some(known) = self.stream.files.get_mut(at) {
                    let len = known.file.len.max(file.file.len);
                    known.file = StreamFile { len, ..file.file };
                    known.class = file.class;
                }
            }
            None => {
                // Never before the file that is being read, if one is.
                let reading = usize::from(self.lane.has_begun());
                let begun = self.lane.file().saturating_add(reading).min(self.stream.files.len());
                let later = self.stream.files.iter().skip(begun);
                let before = later.take_while(|other| order(other) <= order(&file)).count();
                let at = begun + before;
                let before = self.stream.files.get(at.saturating_sub(COMPARED)..at);
                before.into_iter().flatten().for_each(|before| file.pass_over_packets_of(before));
                if self.stream.files.is_empty() {
                    self.stream = stream_of(vec![file]);
                } else {
                    self.stream.files.insert(at, file);
                }
            }
        }
    }
}

/// The files that a look has found.
struct Listed<'f>(HashMap<&'f Path, Option<FileId>>);

impl Listed<'_> {
    /// Whether this very file is where it was.
    fn holds(&self, file: &StreamFile) -> bool {
        self.0.get(file.path.as_path()).is_some_and(|id| file.is(*id))
    }
}

/// How far a stream has come with its last whole packet.
fn reach(file: &PacketFile, last: &Head) -> i64 {
    let end = file.time(last.end.filter(|end| *end != 0)).max(file.time(last.begin));
    // Event records without a time come before all others, whenever they come.
    end.map_or(i64::MAX, Timestamp::nanos)
}

/// Where the whole packets of a file of `len` bytes end, and the last of them, if there are more than is known.
fn whole_packets(handle: PacketSource, file: &PacketFile, len: u64) -> Option<(u64, Head)> {
    let mut headers = Headers::new(handle, &file.class);
    let mut whole = file.file.len;
    let mut last = None;
    while whole < len {
        let Ok(info) = headers.info(whole) else { break };
        let head = Head::of(&info, whole);
        match head.next_offset().filter(|next| *next <= len) {
            Some(next) => (whole, last) = (next, Some(head)),
            None => break,
        }
    }
    Some((whole, last?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::discover::OLD_CHUNK;

    const METADATA: &str = "/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        typealias integer { size = 64; align = 8; } := u64;
        trace { major = 1; minor = 8; byte_order = le; uuid = \"07070707-0707-0707-0707-070707070707\";
          packet.header := struct { u64 stream_instance_id; }; };
        clock { name = c; };
        typealias integer { size = 64; align = 8; map = clock.c.value; } := time;
        stream { packet.context := struct { time timestamp_begin; time timestamp_end; u64 content_size;
            u64 packet_size; u64 packet_seq_num; };
          event.header := struct { time timestamp; }; };
        event { name = tick; fields := struct { u8 none; }; };";

    /// A packet of one event record, whose time is the packet's number.
    fn packet(number: u64) -> Vec<u8> {
        const BITS: u64 = 8 * (6 * 8 + 9);
        let words = [0, number, number, BITS, BITS, number, number];
        words.iter().flat_map(|word| word.to_le_bytes()).chain([0]).collect()
    }

    struct Session(tempfile::TempDir);

    impl Session {
        fn at(&self, place: &str) -> PathBuf {
            self.0.path().join(place)
        }

        fn write(&self, chunk: &str, packets: impl IntoIterator<Item = u64>) {
            let folder = self.at(chunk).join("ust");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("metadata"), METADATA).unwrap();
            let file = folder.join("ch");
            let mut bytes = fs::read(&file).unwrap_or_default();
            bytes.extend(packets.into_iter().flat_map(packet));
            fs::write(file, bytes).unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            fs::create_dir_all(self.at(to)).unwrap();
            fs::rename(self.at(from).join("ust"), self.at(to).join("ust")).unwrap();
        }

        fn archive(&self, from: &str, id: u64) {
            self.rename(from, &format!("archives/20261120T164407+0000-20261120T164408+0000-{id}"));
        }
    }

    /// Times; a loss of packets is negative.
    fn drain(follow: &mut Follow) -> Vec<i64> {
        let mut times = Vec::new();
        while let Some(item) = follow.next_item() {
            times.push(match item {
                Item::Event(event) => event.timestamp.nanos(),
                Item::Loss(loss) => -i64::try_from(loss.count).unwrap(),
            });
        }
        times
    }

    /// Follows a session whose second chunk follows its first; `between` happens between listing and opening in look 3.
    fn with_a_move(between: impl Fn(&Session)) -> Vec<i64> {
        let session = Session(tempfile::tempdir().unwrap());
        let mut follow = Follow::new(&[session.0.path()], FollowOptions::default());
        let mut given = Vec::new();
        session.write("", [1, 2]);
        for look in 0..8 {
            let now = Timestamp::from_nanos(look);
            match look {
                1 => {
                    session.rename("", OLD_CHUNK);
                    session.write(OLD_CHUNK, [3]);
                    session.write("", [5]);
                }
                2 => session.write(OLD_CHUNK, [4]),
                _ => {}
            }
            let found = follow.watch.look(&follow.paths).unwrap();
            if look == 2 {
                between(&session);
            }
            follow.take(found, now).unwrap();
            given.extend(drain(&mut follow));
        }
        follow.finish(Timestamp::from_nanos(9)).unwrap();
        given.extend(drain(&mut follow));
        assert!(follow.findings().is_empty() && follow.late() == 0, "{:?}", follow.findings());
        given
    }

    #[test]
    fn what_moves_between_listing_and_opening_is_given_once_and_in_order() {
        let in_order: Vec<i64> = (1..=8).collect();
        assert_eq!(with_a_move(|session| session.write("", [6, 7, 8])), in_order);
        let archived = |session: &Session| {
            session.archive(OLD_CHUNK, 0);
            session.write("", [6, 7, 8]);
        };
        assert_eq!(with_a_move(archived), in_order, "archived");
        let two_rotations = |session: &Session| {
            session.archive(OLD_CHUNK, 0);
            session.rename("", OLD_CHUNK);
            session.write("", [7, 8]);
            session.write(OLD_CHUNK, [6]);
        };
        assert_eq!(with_a_move(two_rotations), in_order, "two rotations");
        let archived_both = |session: &Session| {
            two_rotations(session);
            session.archive(OLD_CHUNK, 1);
        };
        assert_eq!(with_a_move(archived_both), in_order, "both archived");
    }

    #[test]
    fn a_file_that_lies_where_another_was_is_not_read_for_it() {
        let session = Session(tempfile::tempdir().unwrap());
        let mut follow = Follow::new(&[session.0.path()], FollowOptions::default());
        session.write("", [1]);
        follow.poll(Timestamp::from_nanos(0)).unwrap();
        assert_eq!(drain(&mut follow), [1]);
        session.write("", [2]);
        follow.poll(Timestamp::from_nanos(1)).unwrap();
        // Before it is read, a file of the same length lies there.
        session.rename("", OLD_CHUNK);
        session.write("", [3, 4]);
        let mut given = drain(&mut follow);
        for now in 2..5 {
            follow.poll(Timestamp::from_nanos(now)).unwrap();
            given.extend(drain(&mut follow));
        }
        assert_eq!(given, [2, 3, 4]);
        assert!(follow.findings().is_empty(), "{:?}", follow.findings());
    }
}
