//! Reading a recording while it is written.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::TraceClass;
use model::{TimeRange, Timestamp};

use crate::classes::ClassCache;
use crate::correlate::{self, Uncorrelated, Use};
use crate::discover::{Found, StreamFile, TraceFolder, Watch};
use crate::error::Error;
use crate::finding::{Finding, Findings};
use crate::heads::{Head, Headers};
use crate::join::{TraceKey, grouping, stream_of};
use crate::lane::{Lane, PacketEnds, Pending};
use crate::merge::{Item, MAX_OPEN_FILES, item};
use crate::options::{Correlate, ReadOptions};
use crate::recording::clock_of_trace;
use crate::source::{self, PacketSource};
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
/// the further one: only then all of the file before is known to be listed. A file is known again by its first packet or its inode, so a rotation that moves it into an archive changes nothing. A
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
    /// What a poll has seen of files that come after others; empty after it.
    further: Vec<Further>,
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
    /// Without a whole packet, or a further file of a stream that was not taken up yet.
    Waiting {
        first_seen: Timestamp,
        /// How many times in a row it was seen with a whole packet.
        whole: u32,
    },
    /// The file with this inode of a source.
    Read { source: usize, inode: Inode },
}

/// Device and number.
type Inode = (u64, u64);

/// A file is lost when it was not found so many times in a row: once may be while a rotation moves it.
const MISSED: u32 = 2;

/// So many files of a stream are remembered at least, also when they were read and deleted.
const REMEMBERED: usize = 1024;

/// A further file of a known stream.
#[derive(Debug)]
struct Further {
    file: PacketFile,
    inode: Inode,
    /// Its last whole packet.
    last: Head,
    source: usize,
}

/// A stream that is being written.
#[derive(Debug)]
struct Source {
    stream: Stream,
    /// Of each file of the stream.
    inodes: Vec<Inode>,
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
            further: Vec::new(),
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
        let Found { folders, unlisted } = self.watch.look(&self.paths)?;
        self.unlisted = unlisted;
        let known = self.sources.len();
        self.forget_all_but(&folders);
        for folder in folders {
            self.folder(folder, now);
        }
        self.take_further(now);
        self.resume();
        if self.sources.len() > known {
            self.correlation()?;
        }
        self.horizon = self.horizon_at(now);
        Ok(())
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
            let Known::Read { source, inode } = known else { continue };
            let len = source::len_of(path);
            let Some(source) = self.sources.get_mut(*source) else { continue };
            let files = source.inodes.iter().zip(&mut source.stream.files);
            let own = files.filter(|(own, file)| *own == inode && file.file.path == *path);
            own.for_each(|(_, file)| file.file.len = file.file.len.max(len));
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
            let len = source::len_of(&path);
            if len == 0 {
                continue;
            }
            match PacketFile::open(StreamFile { path: path.clone(), len }, &class) {
                Ok(opened) => self.add(opened, (0, 0), None, now),
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

    fn horizon_at(&self, now: Timestamp) -> i64 {
        let silent = |since: Timestamp| {
            let quiet_ns = now.nanos().saturating_sub(since.nanos());
            u64::try_from(quiet_ns).is_ok_and(|quiet| quiet >= self.options.grace_ns)
        };
        let nowhere = |first_seen: &Timestamp| (!silent(*first_seen)).then_some(i64::MIN);
        let waiting = self.files.values().filter_map(|file| match file {
            Known::Waiting { first_seen, .. } => nowhere(first_seen),
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
        let Some(class) = self.folders.get(&folder.path).and_then(|known| known.class.clone())
        else {
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
            Some(Known::Read { source, inode }) => {
                let (source, inode) = (*source, *inode);
                if self.grow(source, inode, &file, now) {
                    return;
                }
                false
            }
            Some(Known::Waiting { .. }) => true,
            None => false,
        };
        if !is_known {
            self.files.insert(file.path.clone(), Known::Waiting { first_seen: now, whole: 0 });
        }
        if file.len == 0 {
            return;
        }
        // What cannot be read yet is tried again, and told in the end.
        let Ok(handle) = PacketSource::open(&file.path) else { return };
        let Ok(attributes) = handle.file().metadata() else { return };
        let inode = (attributes.dev(), attributes.ino());
        let len = file.len;
        let Ok(mut opened) = PacketFile::open(file, class) else { return };
        opened.file.len = 0;
        let Some((whole, last)) = whole_packets(handle, &opened, len) else { return };
        opened.file.len = whole;
        match self.follows_another(&opened, inode) {
            Some(source) => self.further.push(Further { file: opened, inode, last, source }),
            None => self.add(opened, inode, Some(&last), now),
        }
    }

    /// The stream that the file is a further one of.
    fn follows_another(&self, file: &PacketFile, inode: Inode) -> Option<usize> {
        let trace = TraceKey::of(file.file.path.parent().unwrap_or(&file.file.path), &file.class);
        let trace_index = self.traces.iter().position(|known| *known == trace)?;
        let source_index = *self.by_key.get(&(grouping(file, trace.is_named()), trace_index))?;
        let source = self.sources.get(source_index)?;
        let last = source.stream.files.last();
        let later = last.is_none_or(|last| last.first.begin <= file.first.begin);
        (later && source.position(file, inode).is_none()).then_some(source_index)
    }

    /// Takes up further files of known streams, when all of the files before them is known.
    ///
    /// The file before may have been listed before its last packet was written and the further one after it, and it may
    /// not have been found while a rotation moved it.
    fn take_further(&mut self, now: Timestamp) {
        let mut further = std::mem::take(&mut self.further);
        further.sort_by_key(|further| further.file.first.begin);
        let mut held_up = HashSet::new();
        for Further { file, inode, last, source } in further {
            let before = self.sources.get(source).and_then(|source| source.stream.files.last());
            let found = before.is_none_or(|before| {
                matches!(self.files.get(&before.file.path), Some(Known::Read { .. }))
            });
            let Some(Known::Waiting { whole, .. }) = self.files.get_mut(&file.file.path) else {
                continue;
            };
            if *whole > MISSED || *whole > 0 && found && !held_up.contains(&source) {
                self.add(file, inode, Some(&last), now);
            } else {
                *whole += 1;
                held_up.insert(source);
            }
        }
    }

    fn add(&mut self, file: PacketFile, inode: Inode, last: Option<&Head>, now: Timestamp) {
        let path = file.file.path.clone();
        let trace = TraceKey::of(path.parent().unwrap_or(&path), &file.class);
        let trace = self.traces.iter().position(|known| *known == trace).unwrap_or_else(|| {
            self.traces.push(trace);
            self.traces.len() - 1
        });
        let source = self.source_of(&file, trace, now);
        self.files.insert(path, Known::Read { source, inode });
        if let Some(source) = self.sources.get_mut(source) {
            source.add(file, inode, last, now);
        }
    }

    /// Forgets where files were that are not there any more.
    fn forget_all_but(&mut self, folders: &[TraceFolder]) {
        let listed: HashSet<&Path> = folders
            .iter()
            .flat_map(|folder| &folder.stream_files)
            .map(|f| f.path.as_path())
            .collect();
        self.files.retain(|path, _| listed.contains(path.as_path()));
        let there: HashSet<&Path> = folders.iter().map(|folder| folder.path.as_path()).collect();
        self.folders.retain(|path, _| there.contains(path.as_path()));
        for source in &mut self.sources {
            let file = source.stream.files.get(source.lane.file());
            let missed = file.is_some_and(|file| !listed.contains(file.file.path.as_path()));
            source.missed = if missed { source.missed.saturating_add(1) } else { 0 };
            source.forget_all_but(&listed);
        }
    }

    /// Takes up what was added to a known file; `false` when another one lies there.
    fn grow(&mut self, source: usize, inode: Inode, file: &StreamFile, now: Timestamp) -> bool {
        let Some(source) = self.sources.get_mut(source) else { return false };
        let Some(at) = source.inodes.iter().position(|known| *known == inode) else { return false };
        let Some(known) = source.stream.files.get_mut(at) else { return false };
        if known.file.path != file.path {
            // It was moved, and this is another.
            return false;
        }
        if file.len == known.file.len {
            return true;
        }
        let Ok(handle) = PacketSource::open(&file.path) else { return true };
        let same = handle.file().metadata().is_ok_and(|it| (it.dev(), it.ino()) == inode);
        if !same || file.len < known.file.len {
            return false;
        }
        if let Some((whole, last)) = whole_packets(handle, known, file.len) {
            known.file.len = whole;
            let reach = reach(known, &last);
            source.reach = source.reach.max(reach);
            source.grown = now;
        }
        true
    }

    fn source_of(&mut self, file: &PacketFile, trace: usize, now: Timestamp) -> usize {
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
                inodes: Vec::new(),
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
        let uses: Vec<Use> = self
            .sources
            .iter()
            .filter_map(|source| {
                let file = source.stream.files.first()?;
                let origin = correlate::origin(&file.class, file.clock(), source.trace);
                Some(Use { origin, trace: source.trace })
            })
            .collect();
        let groups = correlate::groups(&uses);
        let mut clocks = groups.iter().filter_map(|group| {
            clock_of_trace(&self.sources.get(*group.streams.first()?)?.stream, group)
        });
        match (clocks.next(), clocks.next()) {
            (Some(a), Some(b)) => Err(Error::Uncorrelated(Box::new(Uncorrelated { a, b }))),
            _ => Ok(()),
        }
    }
}

impl Source {
    /// Forgets files that were read and are not there any more: a recording of which old chunks are deleted has no end.
    fn forget_all_but(&mut self, listed: &HashSet<&Path>) {
        let spare = self.stream.files.len().saturating_sub(REMEMBERED).min(self.lane.file());
        let gone = |file: &&PacketFile| !listed.contains(file.file.path.as_path());
        let gone = self.stream.files.iter().take(spare).take_while(gone).count();
        self.stream.files.drain(..gone);
        self.inodes.drain(..gone);
        self.lane.forget(gone);
    }

    /// Where in the stream this very file is, wherever it lay before. A copy beside it is another.
    fn position(&self, file: &PacketFile, inode: Inode) -> Option<usize> {
        let tells = file.first.begin.is_some() || file.first.sequence.is_some();
        let path = &file.file.path;
        self.inodes.iter().zip(&self.stream.files).position(|(known, other)| {
            let replaced = || other.file.path == *path || !other.file.path.exists();
            other.first == file.first && (*known == inode || tells && replaced())
        })
    }

    /// Takes up a file: one that was moved, or a further one.
    fn add(&mut self, mut file: PacketFile, inode: Inode, last: Option<&Head>, now: Timestamp) {
        let same = self.position(&file, inode);
        let reach = reach(&file, last.unwrap_or(&file.first));
        if reach > self.reach || self.stream.files.is_empty() || same.is_none() {
            self.grown = now;
        }
        self.reach = self.reach.max(reach);
        match same {
            Some(at) => {
                if let Some(known) = self.stream.files.get_mut(at) {
                    let len = known.file.len.max(file.file.len);
                    known.file = StreamFile { path: file.file.path, len };
                    known.class = file.class;
                }
                if let Some(known) = self.inodes.get_mut(at) {
                    *known = inode;
                }
            }
            None => {
                // Never before the file that is being read, if one is.
                let reading = usize::from(self.lane.has_begun());
                let begun = self.lane.file().saturating_add(reading).min(self.stream.files.len());
                let later = self.stream.files.iter().skip(begun);
                let before =
                    later.take_while(|other| other.first.begin <= file.first.begin).count();
                let at = begun + before;
                let before = self.stream.files.get(at.saturating_sub(COMPARED)..at);
                before.into_iter().flatten().for_each(|before| file.pass_over_packets_of(before));
                if self.stream.files.is_empty() {
                    self.stream = stream_of(vec![file]);
                } else {
                    self.stream.files.insert(at, file);
                }
                self.inodes.insert(at, inode);
            }
        }
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
