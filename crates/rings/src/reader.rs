//! The rings of one process as their reader sees them.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use tracepoint::layout::{
    BLOCKS, ClockKind, DROP_PLACES, Header, MAGIC, Mode, ReaderPart, RingHeader, RingState,
    SERVICE_LEN, Shape, ThreadPart, VERSION,
};

use crate::describe::{SiteInfo, describe};
use crate::error::{Error, Wrong};
use crate::map::Map;
use crate::record::{Cursor, Items};

/// The rings of a process.
///
/// Nothing in the memory file is believed: every number is checked where it is used, and what is read was copied before it is looked
/// at. A ring that says what cannot be is an [`Error::Ring`], and of no consequence to the others.
#[derive(Debug)]
pub struct Rings {
    map: Map,
    about: About,
}

/// What a memory file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its sizes.
    pub shape: Shape,
    /// What its writers do when a ring is full.
    pub mode: Mode,
    /// What times are of.
    pub clock: ClockKind,
    /// The process's number, as it sees it.
    pub pid: u32,
    /// What it calls itself.
    pub service: String,
    /// When it was made, by its clock.
    pub made: u64,
    /// The same by `CLOCK_MONOTONIC`, nanoseconds.
    pub made_monotonic_ns: u64,
}

/// A ring, and how far it was read. Of one life of a place: the next thread that takes the place has another.
#[derive(Debug)]
pub struct Ring {
    /// The number of its place.
    pub place: u32,
    /// Which of the rings that the place has had.
    pub generation: u32,
    /// Its thread, as its process sees it.
    pub tid: u32,
    /// What its thread was called.
    pub name: String,
    cursor: Cursor,
    sites: Vec<Option<SiteInfo>>,
    /// Bytes of descriptions that are in `sites`.
    described: u64,
    words: Vec<u64>,
}

/// What was copied from a ring.
#[derive(Debug)]
pub struct Batch<'a> {
    words: &'a [u64],
    sites: &'a [Option<SiteInfo>],
    shape: Shape,
    cursor: Cursor,
    /// Records of a flight recorder that gave way before they were copied.
    pub overwritten: u64,
    /// Whether the ring's thread had ended, and all that it wrote is in this batch.
    pub is_last: bool,
}

impl Batch<'_> {
    /// What is in it.
    #[must_use]
    pub fn items(&self) -> Items<'_> {
        Items::new(self.words, self.sites, &self.shape, self.cursor)
    }

    /// The words themselves.
    #[must_use]
    pub const fn words(&self) -> &[u64] {
        self.words
    }

    /// Call sites by their numbers: those that the ring has described until now.
    #[must_use]
    pub const fn sites(&self) -> &[Option<SiteInfo>] {
        self.sites
    }

    /// Where it begins.
    #[must_use]
    pub const fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// How many bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        size_of_val(self.words)
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

impl Rings {
    /// Maps the memory file that a process gave away.
    ///
    /// # Errors
    /// [`Error::Map`], and what is wrong with the file.
    pub fn open(file: impl AsFd) -> Result<Self, Error> {
        let map = Map::new(file)?;
        let about = About::read(&map)?;
        Ok(Self { map, about })
    }

    /// What the file says of itself.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// How many places were ever taken: those are to be looked at.
    #[must_use]
    pub fn touched(&self) -> u32 {
        let touched = self.map.u32(offset_of!(Header, touched) as u64);
        touched.map_or(0, |it| it.load(Ordering::Acquire)).min(self.about.shape.rings)
    }

    /// Records that came to no ring, by [`DropReason`](tracepoint::DropReason).
    #[must_use]
    pub fn dropped(&self) -> [u64; DROP_PLACES] {
        self.counts(offset_of!(Header, dropped) as u64)
    }

    /// Records that are missing in a ring, by [`DropReason`](tracepoint::DropReason).
    #[must_use]
    pub fn dropped_in(&self, ring: &Ring) -> [u64; DROP_PLACES] {
        let dropped = offset_of!(RingHeader, thread) + offset_of!(ThreadPart, dropped);
        self.counts(self.about.shape.ring(ring.place) + dropped as u64)
    }

    fn counts(&self, offset: u64) -> [u64; DROP_PLACES] {
        let count = |at: u64| self.map.u64(offset + at * 8).map(|it| it.load(Ordering::Relaxed));
        let mut counts = [0; DROP_PLACES];
        (0..).zip(&mut counts).for_each(|(at, place)| *place = count(at).unwrap_or_default());
        counts
    }

    fn state(&self, place: u32) -> Result<RingState, Error> {
        let offset = self.about.shape.ring(place) + offset_of!(RingHeader, state) as u64;
        let code = self.map.u32(offset).map_or(0, |state| state.load(Ordering::Acquire));
        RingState::from_code(code).ok_or(Error::Ring {
            ring: place,
            position: 0,
            what: Wrong::State { code },
        })
    }

    fn u32_of(&self, place: u32, field: usize) -> u32 {
        let offset = self.about.shape.ring(place) + field as u64;
        self.map.u32(offset).map_or(0, |it| it.load(Ordering::Acquire))
    }

    fn word_of(&self, place: u32, field: usize) -> Option<&AtomicU64> {
        self.map.u64(self.about.shape.ring(place) + field as u64)
    }

    fn u64_of(&self, place: u32, field: usize) -> u64 {
        self.word_of(place, field).map_or(0, |it| it.load(Ordering::Acquire))
    }

    /// The ring at a place below [`Self::touched`], to be read from what was not given back on; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn ring(&self, place: u32) -> Result<Option<Ring>, Error> {
        if matches!(self.state(place)?, RingState::Free | RingState::Claimed) {
            return Ok(None);
        }
        let name = offset_of!(RingHeader, name);
        let name = [name, name + 8].map(|field| self.u64_of(place, field).to_ne_bytes());
        let tail = self.u64_of(place, TAIL);
        let number = self.u64_of(place, NUMBER);
        let begin = self.u64_of(place, offset_of!(RingHeader, begin));
        let ring = Ring {
            place,
            generation: self.u32_of(place, offset_of!(RingHeader, generation)),
            tid: self.u32_of(place, offset_of!(RingHeader, tid)),
            name: text(name.as_flattened()),
            cursor: Cursor { position: tail, number, is_certain: tail == begin },
            sites: Vec::new(),
            described: 0,
            words: Vec::new(),
        };
        Ok(Some(ring))
    }

    /// Copies what is published and was not read, at most about `most` bytes of it but a block at least.
    ///
    /// # Errors
    /// [`Error::Ring`]: the ring is not to be read any further.
    pub fn read<'a>(&self, ring: &'a mut Ring, most: usize) -> Result<Batch<'a>, Error> {
        ring.words.clear();
        let shape = self.about.shape;
        // Before the head, so that what a thread wrote last is seen.
        let has_ended = self.state(ring.place)? == RingState::Ended;
        let head = self.u64_of(ring.place, HEAD);
        if !self.is_same(ring)? {
            return Ok(ring.batch(shape, 0, true));
        }
        let mut overwritten = 0;
        let end = match self.about.mode {
            Mode::Drop => {
                let end = ring.end(head, most, &shape)?;
                self.copy(ring, end);
                end
            }
            Mode::Overwrite => {
                let (end, lost) = self.copy_behind_writer(ring, head, most)?;
                overwritten = lost;
                end
            }
        };
        // After the head: what is published is described.
        self.read_sites(ring)?;
        if !self.is_same(ring)? {
            ring.words.clear();
            return Ok(ring.batch(shape, overwritten, true));
        }
        Ok(ring.batch(shape, overwritten, has_ended && end == head))
    }

    /// What lies behind the cursor may be overwritten from now on.
    pub fn release(&self, ring: &mut Ring, cursor: Cursor) {
        ring.cursor = cursor;
        for (field, value) in [(NUMBER, cursor.number), (TAIL, cursor.position)] {
            if let Some(place) = self.word_of(ring.place, field) {
                place.store(value, Ordering::Release);
            }
        }
    }

    /// Gives the place of a ring back, whose thread has ended and of which everything was released. Gives whether it was still the ring's: the
    /// next thread may have taken a flight recorder's place.
    #[must_use]
    pub fn free(&self, ring: &Ring) -> bool {
        let offset = self.about.shape.ring(ring.place) + offset_of!(RingHeader, state) as u64;
        let (ended, free) = (RingState::Ended as u32, RingState::Free as u32);
        self.is_same(ring).unwrap_or_default()
            && self.map.u32(offset).is_some_and(|state| {
                state.compare_exchange(ended, free, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
    }

    /// Whether the place has no other ring by now.
    fn is_same(&self, ring: &Ring) -> Result<bool, Error> {
        let generation = self.u32_of(ring.place, offset_of!(RingHeader, generation));
        let state = self.state(ring.place)?;
        let is_there = matches!(state, RingState::Open | RingState::Ended);
        Ok(is_there && generation == ring.generation)
    }

    /// Copies what the thread of a flight recorder has not begun to overwrite; gives where that ends, and how many records gave way.
    fn copy_behind_writer(
        &self,
        ring: &mut Ring,
        head: u64,
        most: usize,
    ) -> Result<(u64, u64), Error> {
        let shape = self.about.shape;
        let (mut head, before) = (head, ring.cursor.number);
        for _ in 0..TRIES {
            let oldest = self.oldest(ring.place);
            if ring.cursor.position < oldest {
                let block = oldest / shape.block_len() % BLOCKS as u64;
                let field = offset_of!(RingHeader, first_numbers) as u64 + block * 8;
                let number = self.u64_of(ring.place, usize::try_from(field).unwrap_or(usize::MAX));
                if self.oldest(ring.place) != oldest {
                    continue;
                }
                head = self.u64_of(ring.place, HEAD);
                ring.cursor = Cursor { position: oldest, number, is_certain: true };
            }
            let end = ring.end(head, most, &shape)?;
            ring.words.clear();
            self.copy(ring, end);
            if self.oldest(ring.place) <= ring.cursor.position {
                return Ok((end, ring.cursor.number.saturating_sub(before)));
            }
        }
        // The thread is faster. It is tried again later.
        ring.words.clear();
        Ok((ring.cursor.position, ring.cursor.number.saturating_sub(before)))
    }

    /// The first position that the thread of a flight recorder has left alone.
    fn oldest(&self, place: u32) -> u64 {
        self.u64_of(place, RESERVED).saturating_sub(self.about.shape.ring_len)
    }

    fn read_sites(&self, ring: &mut Ring) -> Result<(), Error> {
        let shape = self.about.shape;
        let len = self.u64_of(ring.place, offset_of!(RingHeader, sites_len));
        if len < ring.described || len > shape.sites_len || !len.is_multiple_of(8) {
            return Err(ring.wrong(Wrong::SitesLen { len }));
        }
        let more = usize::try_from((len - ring.described) / 8).unwrap_or_default();
        if more == 0 {
            return Ok(());
        }
        let mut words = Vec::new();
        let copied = self.map.copy(shape.sites(ring.place) + ring.described, more, &mut words);
        debug_assert!(copied.is_some(), "descriptions are inside of their file");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let offset = ring.described;
            let described = describe(rest);
            let (site, len) = described.ok_or_else(|| ring.wrong(Wrong::Description { offset }))?;
            let number = usize::from(site.number);
            if ring.sites.len() <= number {
                // At most `MAX_SITES`.
                ring.sites.resize(number + 1, None);
            }
            if let Some(place) = ring.sites.get_mut(number) {
                *place = Some(site);
            }
            rest = rest.get(len..).unwrap_or_default();
            ring.described += len as u64;
        }
        Ok(())
    }

    /// Copies what lies between the cursor and `end`.
    fn copy(&self, ring: &mut Ring, end: u64) {
        let shape = &self.about.shape;
        let words = usize::try_from((end - ring.cursor.position) / 8).unwrap_or_default();
        let records = shape.records(ring.place);
        let offset = ring.cursor.position % shape.ring_len;
        let first = usize::try_from((shape.ring_len - offset) / 8).unwrap_or(usize::MAX).min(words);
        for (offset, words) in [(offset, first), (0, words - first)] {
            if words > 0 {
                let copied = self.map.copy(records + offset, words, &mut ring.words);
                debug_assert!(copied.is_some(), "a ring is inside of its file");
            }
        }
    }
}

impl Ring {
    /// Where it is read next.
    #[must_use]
    pub const fn cursor(&self) -> Cursor {
        self.cursor
    }

    fn wrong(&self, what: Wrong) -> Error {
        Error::Ring { ring: self.place, position: self.cursor.position, what }
    }

    /// [`Error::Ring`] of what was found in a batch behind a cursor.
    #[must_use]
    pub fn damaged(&self, at: Cursor, what: Wrong) -> Error {
        Error::Ring { ring: self.place, position: at.position, what }
    }

    /// How far to read: up to the head, or to the end of a block before it.
    fn end(&self, head: u64, most: usize, shape: &Shape) -> Result<u64, Error> {
        let position = self.cursor.position;
        let is_sane = head >= position
            && head - position <= shape.ring_len
            && (head | position).is_multiple_of(8);
        if !is_sane {
            return Err(self.wrong(Wrong::Head { head }));
        }
        let block = shape.block_len();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let border = position.saturating_add(most) / block * block;
        let next = (position / block + 1).saturating_mul(block);
        Ok(head.min(border.max(next)))
    }

    fn batch(&self, shape: Shape, overwritten: u64, is_last: bool) -> Batch<'_> {
        let (words, sites, cursor) = (&*self.words, &*self.sites, self.cursor);
        Batch { words, sites, shape, cursor, overwritten, is_last }
    }
}

impl About {
    fn read(map: &Map) -> Result<Self, Error> {
        let u32_at = |field: usize| map.u32(field as u64).map(|it| it.load(Ordering::Relaxed));
        let u64_at = |field: usize| map.u64(field as u64).map(|it| it.load(Ordering::Relaxed));
        let u32_of = |field| u32_at(field).ok_or(Error::NotRings);
        let u64_of = |field| u64_at(field).ok_or(Error::NotRings);
        if u64_of(offset_of!(Header, magic))?.to_ne_bytes() != MAGIC {
            return Err(Error::NotRings);
        }
        let version = u32_of(offset_of!(Header, version))?;
        if version != VERSION {
            return Err(Error::Version { version, known: VERSION });
        }
        let shape = Shape {
            rings: u32_of(offset_of!(Header, rings))?,
            ring_len: u64_of(offset_of!(Header, ring_len))?,
            sites_len: u64_of(offset_of!(Header, sites_len))?,
        };
        let wrong = |field, value| Err(Error::Header { field, value });
        if !shape.is_valid() {
            return wrong("ring length", shape.ring_len);
        }
        if map.len() < shape.file_len() {
            return wrong("length", map.len());
        }
        let mode = u32_of(offset_of!(Header, mode))?;
        let Some(mode) = Mode::from_code(mode) else { return wrong("mode", mode.into()) };
        let clock = u32_of(offset_of!(Header, clock))?;
        let Some(clock) = ClockKind::from_code(clock) else { return wrong("clock", clock.into()) };
        let mut service = Vec::with_capacity(SERVICE_LEN);
        for at in (0..SERVICE_LEN).step_by(8) {
            service.extend(u64_of(offset_of!(Header, service) + at)?.to_ne_bytes());
        }
        Ok(Self {
            shape,
            mode,
            clock,
            pid: u32_of(offset_of!(Header, pid))?,
            service: text(&service),
            made: u64_of(offset_of!(Header, made))?,
            made_monotonic_ns: u64_of(offset_of!(Header, made_monotonic_ns))?,
        })
    }
}

/// What is before the first zero; what is not UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// How often a flight recorder is copied before its thread is let go on.
const TRIES: usize = 4;

const HEAD: usize = offset_of!(RingHeader, thread) + offset_of!(ThreadPart, head);
const RESERVED: usize = offset_of!(RingHeader, thread) + offset_of!(ThreadPart, reserved);
const TAIL: usize = offset_of!(RingHeader, reader) + offset_of!(ReaderPart, tail);
const NUMBER: usize = offset_of!(RingHeader, reader) + offset_of!(ReaderPart, number);
