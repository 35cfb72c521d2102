//! The journal: its segments, its bounds, and how far each reader is.
//!
//! A segment goes when all readers are behind it and it is older than [`Bounds::read`], or when the journal is too large or the segment too old: then readers
//! go on behind it, and what they had not read is counted. A segment that a reader has in its hands does not go, nor does the one that is
//! written. Entries are written before anybody sees them; what cannot be written whole is cut off again.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, On, Result};
use crate::frame::{Header, MAX_PAYLOAD, PREAMBLE_LEN, Position, encode};
use crate::reader::Reader;
use crate::segment::{Segment, paths, read_small};

/// The shortest and the longest segment, in bytes; one entry more may be in it.
const SEGMENT_LEN: std::ops::RangeInclusive<u64> = 64 << 10..=16 << 20;
/// Segments of a journal that is as large as it may be, if they are not bounded otherwise.
const SEGMENTS: u64 = 16;
/// The longest file of a reader's position.
const MAX_KEPT: u64 = 64 << 10;
/// The longest name of a reader.
const MAX_NAME: usize = 100;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes on the disk. A segment more may be there for a moment.
    pub bytes: u64,
    /// From an entry's time to the present; looked at by segments.
    pub age: Duration,
    /// How long entries stay that all readers have acknowledged, for those who look at them again.
    pub read: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self { bytes: 1 << 30, age: day, read: Duration::ZERO }
    }
}

/// Why a reader did not get records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The journal was as large as it may be.
    Size,
    /// They waited too long.
    Age,
    /// Their segment was damaged or taken away.
    Damaged,
    /// Whoever they were for will not take them.
    Refused,
}

impl Reason {
    /// One word, for ledgers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Age => "age",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
        }
    }
}

/// What became of the records that a reader was there for: those before its position.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Records that never will be, by reason.
    pub dropped: BTreeMap<Reason, u64>,
    /// Records that wait.
    #[serde(skip)]
    pub waiting: u64,
}

/// How a journal stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels {
    /// Where the next entry will be.
    pub end: Position,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Of each reader, by name: records since it was first there, and what became of them.
    pub readers: BTreeMap<String, (u64, Counts)>,
}

/// How far a reader is, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    entry: u64,
    records: u64,
    /// Records before the reader was first there.
    began: u64,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Debug)]
struct Place {
    name: String,
    position: Position,
    began: u64,
    counts: Counts,
    /// Up to where entries are in the reader's hands.
    lent: Option<Position>,
}

#[derive(Debug)]
struct State {
    segments: VecDeque<(Segment, Timestamp)>,
    end: Position,
    readers: Vec<Place>,
    buffer: Vec<u8>,
    /// Entries from this one on stay whatever happens.
    floor: u64,
}

/// A journal in a folder.
#[derive(Debug)]
pub struct Journal {
    pub(crate) folder: PathBuf,
    id: [u8; 16],
    bounds: Bounds,
    state: Mutex<State>,
    appended: Condvar,
    _lock: File,
}

impl Journal {
    /// Opens or makes a journal, which nobody else may have open; goes on behind the last entry that is whole.
    ///
    /// # Errors
    /// Any but [`Error::TooLong`].
    pub fn open(folder: &Path, bounds: Bounds) -> Result<Arc<Self>> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).on("make the folder", folder)?;
        let lock = lock(folder)?;
        let mut segments: VecDeque<(Segment, Timestamp)> = VecDeque::new();
        let mut id = None;
        for path in paths(folder)? {
            match Segment::open(path.clone())? {
                Some((segment, of)) => {
                    id.get_or_insert(of);
                    // Older than anything, until its last entry is known.
                    segments.push_back((segment, Timestamp::MIN));
                }
                None => fs::remove_file(&path).on("remove", &path)?,
            }
        }
        let id = id.unwrap_or_else(|| *uuid::Uuid::new_v4().as_bytes());
        let mut end = Position::default();
        let last = segments.len().saturating_sub(1);
        for (at, (segment, newest)) in segments.iter_mut().enumerate() {
            end = segment.begin;
            let (whole, wrong) = segment.scan(PREAMBLE_LEN as u64, |header, _| {
                (end, *newest) = (header.end(), header.time);
            })?;
            if at == last && wrong.is_some() {
                tracing::info!(path = %segment.path.display(), offset = whole, "an entry that was cut off is left out");
                segment.file.set_len(whole).on("cut", &segment.path)?;
                segment.len = whole;
            }
        }
        if segments.is_empty() {
            segments.push_back((Segment::create(folder, id, end)?, Timestamp::MIN));
        }
        let state =
            State { segments, end, readers: Vec::new(), buffer: Vec::new(), floor: u64::MAX };
        Ok(Arc::new(Self {
            folder: folder.to_owned(),
            id,
            bounds,
            state: Mutex::new(state),
            appended: Condvar::new(),
            _lock: lock,
        }))
    }

    /// What tells this journal from all others, also when its folder is copied or moved.
    #[must_use]
    pub const fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Appends an entry: it survives this process from now on.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Full`], or the disk cannot be written: then it is as if nothing had been asked.
    pub fn append(
        &self,
        kind: u16,
        records: u32,
        payload: &[u8],
        now: Timestamp,
    ) -> Result<Position> {
        if payload.len() > MAX_PAYLOAD {
            return Err(Error::TooLong { len: payload.len(), max: MAX_PAYLOAD });
        }
        let mut state = self.lock();
        self.make_room(&mut state, payload.len() as u64, now)?;
        let State { segments, end, buffer, .. } = &mut *state;
        let position = *end;
        let header = Header { position, kind, records, time: now, len: payload.len() };
        buffer.clear();
        encode(&header, payload, buffer);
        let Some((segment, newest)) = segments.back_mut() else { return Ok(position) };
        if let Err(error) = segment.file.write_all_at(buffer, segment.len) {
            // What is there of it is seen as cut off if this fails, too.
            drop(segment.file.set_len(segment.len));
            return Err(error).on("write", &segment.path);
        }
        segment.len += buffer.len() as u64;
        (*newest, *end) = (now, header.end());
        // An entry of megabytes is not remembered.
        buffer.shrink_to(1 << 20);
        drop(state);
        self.appended.notify_all();
        Ok(position)
    }

    /// All that was appended survives the machine, too, from now on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        let (file, path) = {
            let state = self.lock();
            let Some((segment, _)) = state.segments.back() else { return Ok(()) };
            (Arc::clone(&segment.file), segment.path.clone())
        };
        file.sync_data().on("sync", &path)?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).on("sync", &self.folder)
    }

    /// Goes through the entries from a position on that are there, in order. Gives where that ends.
    ///
    /// # Errors
    /// [`Error::Io`]. What is damaged is passed over.
    pub fn replay(&self, from: u64, mut visit: impl FnMut(&Header, &[u8])) -> Result<Position> {
        let (segments, end) = {
            let state = self.lock();
            let segments = state.segments.iter().map(|(it, _)| it.clone());
            (segments.collect::<Vec<_>>(), state.end)
        };
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map_or(end, |next| next.begin);
            if next.entry > from {
                segment.scan(PREAMBLE_LEN as u64, |header, payload| {
                    if header.position.entry >= from {
                        visit(header, payload);
                    }
                })?;
            }
        }
        Ok(end)
    }

    /// A reader by name; nobody else may have it. One that was not there before begins at the end.
    ///
    /// # Errors
    /// [`Error::Name`], and what is wrong with its file.
    pub fn reader(self: &Arc<Self>, name: &str) -> Result<Reader> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain);
        let mut state = self.lock();
        if !is_name || state.readers.iter().any(|it| it.name == name) {
            return Err(Error::Name { name: name.to_owned() });
        }
        let path = self.kept_path(name);
        let kept = match read_small(&path, MAX_KEPT) {
            Ok(bytes) => {
                serde_json::from_slice::<Kept>(&bytes).map_err(|error| Error::Damaged {
                    path,
                    offset: error.column() as u64,
                    what: "no position of a reader",
                })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept {
                entry: state.end.entry,
                records: state.end.records,
                began: state.end.records,
                counts: Counts::default(),
            },
            Err(error) => return Err(error).on("read", &path),
        };
        let Kept { entry, records, began, counts } = kept;
        let position = Position { entry, records }.min(state.end);
        let oldest = state.segments.front().map_or(state.end, |(segment, _)| segment.begin);
        let mut place = Place { name: name.to_owned(), position, began, counts, lent: None };
        place.pass_over(oldest, Reason::Damaged);
        self.keep(&place)?;
        state.readers.push(place);
        let index = state.readers.len() - 1;
        drop(state);
        Ok(Reader::new(Arc::clone(self), index))
    }

    /// How it stands.
    #[must_use]
    pub fn levels(&self) -> Levels {
        let state = self.lock();
        let readers = state.readers.iter().map(|it| {
            let waiting = state.end.records.saturating_sub(it.position.records);
            let counts = Counts { waiting, ..it.counts.clone() };
            (it.name.clone(), (state.end.records.saturating_sub(it.began), counts))
        });
        Levels { end: state.end, bytes: state.bytes(), readers: readers.collect() }
    }

    /// Lets go of what is too old, or was read by all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn enforce(&self, now: Timestamp) -> Result<()> {
        let mut state = self.lock();
        self.let_go(&mut state, 0, now)
    }

    /// Entries from this one on do not go, for who counts them elsewhere and has counted those before; what finds no room is refused.
    pub fn hold(&self, floor: u64) {
        self.lock().floor = floor;
    }

    /// Waits until there is an entry behind a position, for so long at most. Gives whether there is.
    pub(crate) fn wait(&self, position: Position, patience: Duration) -> bool {
        let is_behind = |state: &mut State| state.end.entry <= position.entry;
        let waited = self.appended.wait_timeout_while(self.lock(), patience, is_behind);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Where a reader is.
    pub(crate) fn position(&self, reader: usize) -> Position {
        self.lock().readers.get(reader).map_or_else(Position::default, |it| it.position)
    }

    /// The segment with the entries at a reader's position, which stays until they are given back; nothing when there are none.
    pub(crate) fn lend(&self, reader: usize) -> Option<(Segment, Position)> {
        let mut state = self.lock();
        let State { segments, end, readers, .. } = &mut *state;
        let place = readers.get_mut(reader)?;
        if place.position.entry >= end.entry {
            return None;
        }
        let at = segments.partition_point(|(it, _)| it.begin.entry <= place.position.entry);
        let (segment, _) = segments.get(at.checked_sub(1)?)?;
        let segment_end = segments.get(at).map_or(*end, |(next, _)| next.begin);
        place.lent = Some(segment_end);
        Some((segment.clone(), segment_end))
    }

    /// Entries are no longer in a reader's hands.
    pub(crate) fn give_back(&self, reader: usize) {
        if let Some(place) = self.lock().readers.get_mut(reader) {
            place.lent = None;
        }
    }

    /// A reader goes on at `to`, and has acknowledged what is before.
    pub(crate) fn advance(&self, reader: usize, to: Position) -> Result<()> {
        let mut state = self.lock();
        let end = state.end;
        let Some(place) = state.readers.get_mut(reader) else { return Ok(()) };
        let to = to.min(end).max(place.position);
        place.counts.acknowledged += to.records.saturating_sub(place.position.records);
        (place.position, place.lent) = (to, None);
        self.keep(place)
    }

    /// A reader goes on at `to`, because what is before is damaged.
    pub(crate) fn pass_over(&self, reader: usize, to: Position) -> Result<()> {
        let mut state = self.lock();
        let Some(place) = state.readers.get_mut(reader) else { return Ok(()) };
        place.lent = None;
        place.pass_over(to, Reason::Damaged);
        self.keep(place)
    }

    pub(crate) fn reject(&self, reader: usize, reason: Reason, records: u64) -> Result<()> {
        let mut state = self.lock();
        let Some(place) = state.readers.get_mut(reader) else { return Ok(()) };
        let records = records.min(place.counts.acknowledged);
        if records == 0 {
            return Ok(());
        }
        place.counts.acknowledged -= records;
        *place.counts.dropped.entry(reason).or_default() += records;
        self.keep(place)
    }

    /// Makes room for an entry in the last segment.
    fn make_room(&self, state: &mut State, len: u64, now: Timestamp) -> Result<()> {
        let is_over = |segment: &Segment| {
            segment.len > PREAMBLE_LEN as u64 && segment.len + len > self.segment_len()
        };
        if state.segments.back().is_none_or(|(segment, _)| is_over(segment)) {
            let segment = Segment::create(&self.folder, self.id, state.end)?;
            state.segments.push_back((segment, now));
        }
        self.let_go(state, len, now)?;
        let bytes = state.bytes() + len;
        // Readers hold on to segments for as long as an attempt to deliver takes.
        if bytes > self.bounds.bytes.saturating_add(2 * self.segment_len()) {
            return Err(Error::Full { bytes });
        }
        Ok(())
    }

    fn segment_len(&self) -> u64 {
        (self.bounds.bytes / SEGMENTS).clamp(*SEGMENT_LEN.start(), *SEGMENT_LEN.end())
    }

    fn let_go(&self, state: &mut State, more: u64, now: Timestamp) -> Result<()> {
        while let Some(reason) = self.goes(state, more, now) {
            let Some((segment, _)) = state.segments.front() else { return Ok(()) };
            segment.remove().on("remove", &segment.path)?;
            state.segments.pop_front();
            let oldest = state.segments.front().map_or(state.end, |(it, _)| it.begin);
            for place in &mut state.readers {
                if place.pass_over(oldest, reason) {
                    self.keep(place)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the oldest segment goes, and what is told of it to those who have not read it.
    fn goes(&self, state: &State, more: u64, now: Timestamp) -> Option<Reason> {
        let (_, newest) = state.segments.front()?;
        let (next, _) = state.segments.get(1)?;
        let is_held = |it: &Place| it.lent.is_some() && it.position.entry < next.begin.entry;
        if state.readers.iter().any(is_held) || next.begin.entry > state.floor {
            return None;
        }
        let age = Duration::from_nanos(now.since(*newest).get());
        let is_read = state.readers.iter().all(|it| it.position.entry >= next.begin.entry);
        if state.bytes() + more > self.bounds.bytes {
            Some(Reason::Size)
        } else if age > self.bounds.age || (is_read && age >= self.bounds.read) {
            Some(Reason::Age)
        } else {
            None
        }
    }

    fn kept_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.reader"))
    }

    /// Writes down where a reader is. It survives this process; after the machine it may be where it was before.
    fn keep(&self, place: &Place) -> Result<()> {
        let Place { name, position: Position { entry, records }, began, counts, .. } = place;
        let kept = Kept { entry: *entry, records: *records, began: *began, counts: counts.clone() };
        let (path, part) = (self.kept_path(name), self.kept_path(&format!("{name}.part")));
        let bytes = serde_json::to_vec(&kept).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| fs::write(&part, bytes));
        written.and_then(|()| fs::rename(&part, &path)).on("write", &path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.segments.iter().map(|(segment, _)| segment.len).sum()
    }
}

impl Place {
    /// Goes on at the oldest that there is, and counts what was not read; gives whether there was any.
    fn pass_over(&mut self, oldest: Position, reason: Reason) -> bool {
        if self.position.entry >= oldest.entry {
            return false;
        }
        let missed = oldest.records.saturating_sub(self.position.records);
        if missed > 0 {
            *self.counts.dropped.entry(reason).or_default() += missed;
        }
        self.position = oldest;
        true
    }
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let lock = File::create(&path).on("open", &path)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Taken { path: folder.to_owned() }),
        Err(TryLockError::Error(error)) => Err(error).on("lock", &path),
    }
}
