//! How a thread writes a record: into its own ring, published by one store.
//!
//! ```text
//! is the site on? ─▶ is it described, and is there room up to the limit? ─▶ words, time, fields ─▶ head
//!                                    │ no
//!                                    ▼
//!      prepare: take a ring, number and describe the site, fill up the block, look at the tail ─▶ or drop and count
//! ```
//! The limit is the nearest position at which something else than writing has to be done: the end of the block, or of what was read, or as
//! far as the longest record reaches.
//! It is 0 while a record is being written, so that a signal handler that writes one too finds out in the same comparison.
#![expect(unsafe_code, reason = "memory that an agent reads, written without a lock")]

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

use crate::arena::{self, Place};
use crate::clock;
use crate::field::{Fields, InSpan};
use crate::layout::{
    BLOCKS, DROP_PLACES, DROPPED, DropReason, FILLER, MAX_DESCRIPTION_LEN, MAX_RECORD_WORDS,
    MAX_SITES, Mode, RingHeader, RingState, Word,
};
use crate::site::{OFF, Site};

/// Words before the fields: [`Word`] and the time.
const HEAD_WORDS: u64 = 2;
/// How many records a thread that finds no ring drops before it looks again.
const LOOK_EVERY: u32 = 256;
/// Words of a record that tells what was dropped.
const DROPPED_WORDS: u16 = 10;
const _: () = assert!(DROPPED_WORDS as usize == 2 + DROP_PLACES);

/// What a thread knows of its ring. It has no destructor, so that it can be read at any time of a thread's life.
struct Local {
    records: Cell<*mut u64>,
    /// The ring's length less one.
    mask: Cell<u64>,
    position: Cell<u64>,
    limit: Cell<u64>,
    /// Of the next record.
    number: Cell<u64>,
    header: Cell<Option<&'static RingHeader>>,
    /// A bit for each site that is described in the ring.
    described: [Cell<u64>; MAX_SITES as usize / 64],
    life: Cell<Life>,
    place: Cell<Option<Place>>,
    /// Records that are still to be dropped before a ring is looked for.
    patience: Cell<u32>,
    /// What was told of [`ThreadPart::dropped`](crate::layout::ThreadPart::dropped).
    told: [Cell<u64>; DROP_PLACES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It has no ring.
    Without,
    Writes,
    /// A record is being prepared.
    Prepares,
    /// Its destructors have run.
    Over,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            records: Cell::new(std::ptr::null_mut()),
            mask: Cell::new(0),
            position: Cell::new(0),
            limit: Cell::new(0),
            number: Cell::new(0),
            header: Cell::new(None),
            described: [const { Cell::new(0) }; MAX_SITES as usize / 64],
            life: Cell::new(Life::Without),
            place: Cell::new(None),
            patience: Cell::new(0),
            told: [const { Cell::new(0) }; DROP_PLACES],
        }
    };
    static END: End = const { End };
}

/// Gives the thread's ring back when the thread ends.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            local.let_go();
            local.life.set(Life::Over);
        });
    }
}

/// Writes a record, if its site is on.
#[inline(always)]
pub(crate) fn write(site: &'static Site, fields: &impl Fields) {
    let state = site.state();
    if state == OFF {
        return;
    }
    LOCAL.with(|local| local.write(site, state.wrapping_sub(1), fields));
}

/// Writes a record whose fields stand behind words of a span, if its site is on.
#[inline(always)]
pub(crate) fn write_in_span<const N: usize>(
    site: &'static Site,
    span: &[u64; N],
    fields: &impl Fields,
) {
    write(site, &InSpan(span, fields));
}

/// The calling thread has no ring: it is a process that was forked.
pub(crate) fn forget() {
    LOCAL.with(|local| {
        local.forget();
        if local.life.get() != Life::Over {
            local.life.set(Life::Without);
        }
    });
}

impl Local {
    #[inline(always)]
    fn write(&self, site: &'static Site, number: u32, fields: &impl Fields) {
        let len = (HEAD_WORDS + fields.words() as u64) * 8;
        // From here on a signal handler's record is not written, and what was found out stays true.
        let limit = self.limit.replace(0);
        compiler_fence(Ordering::SeqCst);
        let is_near = self.position.get() + len <= limit;
        let (number, limit) = if is_near && self.is_described(number) {
            (number, limit)
        } else {
            match self.prepare(site, len, limit) {
                Some((number, limit)) => (number.into(), limit),
                None => return,
            }
        };
        let position = self.position.get();
        #[expect(clippy::cast_possible_truncation, reason = "checked against their bounds")]
        let word = Word::new((len / 8) as u16, number as u16, self.number.get());
        // SAFETY: the ring has `len` bytes from here on before the limit, in one piece, which its reader leaves alone
        // until the head is behind them.
        unsafe {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "less than the length of a mapping"
            )]
            let at = self.records.get().byte_add((position & self.mask.get()) as usize);
            at.write(word.0);
            at.add(1).write(clock::now());
            fields.put(at.add(2));
        }
        if let Some(header) = self.header.get() {
            header.thread.head.store(position + len, Ordering::Release);
        }
        self.position.set(position + len);
        self.number.set(self.number.get() + 1);
        compiler_fence(Ordering::SeqCst);
        self.limit.set(limit);
    }

    #[inline(always)]
    fn is_described(&self, number: u32) -> bool {
        let word = self.described.get(number as usize / 64);
        word.is_some_and(|word| word.get() >> (number % 64) & 1 == 1)
    }

    /// Makes room for a record at `position`, where `limit` was the limit; gives the site's number and the limit that holds then. `None`: it is
    /// dropped, and counted, or its site was found to be off.
    #[cold]
    #[inline(never)]
    fn prepare(&self, site: &'static Site, len: u64, limit: u64) -> Option<(u16, u64)> {
        match self.life.get() {
            Life::Writes if limit != 0 => {}
            Life::Writes | Life::Prepares => return self.drop_record(DropReason::Reentrant),
            Life::Over => return self.drop_record(DropReason::ThreadEnded),
            Life::Without => {}
        }
        let before = self.life.replace(Life::Prepares);
        compiler_fence(Ordering::SeqCst);
        let prepared = self.take_ring(before).and_then(|place| self.find_room(place, site, len));
        compiler_fence(Ordering::SeqCst);
        let has_ring = self.place.get().is_some();
        if self.life.get() == Life::Prepares {
            self.life.set(if has_ring { Life::Writes } else { Life::Without });
        }
        if prepared.is_none() && has_ring {
            // Not 0, which would say that a record is being written; and so near that the next one comes here too.
            self.limit.set(limit.min(self.position.get()).max(1));
        }
        prepared
    }

    fn drop_record<T>(&self, reason: DropReason) -> Option<T> {
        let place = self.place.get();
        let counts = place.as_ref().map(|place| &place.header.thread.dropped);
        match counts.and_then(|counts| counts.get(reason as usize)) {
            Some(count) => {
                count.fetch_add(1, Ordering::Relaxed);
            }
            None => arena::count_drop(reason),
        }
        None
    }

    fn take_ring(&self, before: Life) -> Option<Place> {
        if let Some(place) = self.place.get().filter(|_| before == Life::Writes) {
            return Some(place);
        }
        if self.patience.get() > 0 {
            self.patience.set(self.patience.get() - 1);
            return self.drop_record(DropReason::NoRing);
        }
        let Some(place) = arena::get().and_then(arena::Arena::claim) else {
            self.patience.set(LOOK_EVERY);
            return self.drop_record(DropReason::NoRing);
        };
        // From now on the thread's end is noticed; not when it has come already.
        if END.try_with(|_| ()).is_err() {
            place.header.state.store(RingState::Ended as u32, Ordering::Release);
            self.life.set(Life::Over);
            return self.drop_record(DropReason::ThreadEnded);
        }
        self.forget();
        self.records.set(place.records.as_ptr().cast());
        self.mask.set(place.shape.ring_len - 1);
        self.position.set(place.header.begin.load(Ordering::Relaxed));
        self.header.set(Some(place.header));
        self.place.set(Some(place));
        Some(place)
    }

    fn forget(&self) {
        self.place.set(None);
        self.header.set(None);
        self.records.set(std::ptr::null_mut());
        for cell in [&self.mask, &self.position, &self.limit, &self.number] {
            cell.set(0);
        }
        self.described.iter().chain(&self.told).for_each(|word| word.set(0));
        self.patience.set(0);
    }

    fn let_go(&self) {
        if let Some(place) = self.place.get() {
            place.header.state.store(RingState::Ended as u32, Ordering::Release);
        }
        self.forget();
    }

    fn find_room(&self, place: Place, site: &'static Site, len: u64) -> Option<(u16, u64)> {
        let block = place.shape.block_len();
        if len > block || len / 8 > MAX_RECORD_WORDS {
            return self.drop_record(DropReason::TooLong);
        }
        let Some(number) = site.register() else {
            return self.drop_record(DropReason::TooManySites);
        };
        if site.state() == OFF {
            // The rules said so when it was registered.
            return None;
        }
        if !self.is_described(number.into()) {
            self.describe(place, site, number)?;
        }
        let untold = self.untold(place);
        let telling = if untold.is_some() { u64::from(DROPPED_WORDS) * 8 } else { 0 };
        // What was dropped is told as soon as it fits in before a record.
        let (untold, telling) = if telling + len > block { (None, 0) } else { (untold, telling) };
        let position = self.position.get();
        let left = block - position % block;
        // At a border the next block begins, which may be still to be read.
        let filler = if telling + len > left { left } else { 0 };
        let begin = position + filler;
        let readable_to = match place.mode {
            Mode::Drop => {
                // A tail that makes no sense leaves no room, or more than there is; neither reaches beyond the ring.
                let tail = place.header.reader.tail.load(Ordering::Acquire);
                let limit = tail.wrapping_add(place.shape.ring_len);
                if begin + telling + len > limit || limit - position > place.shape.ring_len {
                    return self.drop_record(DropReason::Full);
                }
                limit
            }
            Mode::Overwrite => u64::MAX,
        };
        if filler > 0 {
            self.put(place, position, &[Word::new(1, FILLER, 0).0]);
        }
        if begin.is_multiple_of(block) {
            self.enter_block(place, begin);
        }
        self.position.set(begin);
        if let Some(counts) = untold {
            self.tell(place, counts);
        }
        let end_of_block = begin - begin % block + block;
        // What is longer than a record may be comes here as what finds no room does.
        let longest = self.position.get() + MAX_RECORD_WORDS * 8;
        Some((number, end_of_block.min(readable_to).min(longest)))
    }

    fn enter_block(&self, place: Place, begin: u64) {
        let block = place.shape.block_len();
        let header = place.header;
        if place.mode == Mode::Overwrite {
            header.thread.reserved.store(begin + block, Ordering::Relaxed);
            // Readers see this before anything of what is written over the old block.
            fence(Ordering::Release);
        }
        let number: Option<&AtomicU64> = usize::try_from(begin / block % BLOCKS as u64)
            .ok()
            .and_then(|at| header.first_numbers.get(at));
        if let Some(place) = number {
            place.store(self.number.get(), Ordering::Relaxed);
        }
    }

    /// What was dropped since it was told last.
    fn untold(&self, place: Place) -> Option<[u64; DROP_PLACES]> {
        let counts = std::array::from_fn(|at| {
            let told = self.told.get(at).map_or(0, Cell::get);
            let count = place.header.thread.dropped.get(at);
            count.map_or(0, |count| count.load(Ordering::Relaxed)).wrapping_sub(told)
        });
        (counts != [0; DROP_PLACES]).then_some(counts)
    }

    fn tell(&self, place: Place, counts: [u64; DROP_PLACES]) {
        let position = self.position.get();
        let mut words = [0; DROPPED_WORDS as usize];
        let [word, time, rest @ ..] = &mut words;
        *word = Word::new(DROPPED_WORDS, DROPPED, self.number.get()).0;
        *time = clock::now();
        *rest = counts;
        self.put(place, position, &words);
        for (told, count) in self.told.iter().zip(counts) {
            told.set(told.get().wrapping_add(count));
        }
        self.position.set(position + u64::from(DROPPED_WORDS) * 8);
        self.number.set(self.number.get() + 1);
    }

    /// Puts words where there is room for them, before the head.
    fn put(&self, place: Place, position: u64, words: &[u64]) {
        let offset = usize::try_from(position & self.mask.get()).unwrap_or_default();
        // SAFETY: the caller has found room for these words in one piece, which nobody else touches.
        unsafe {
            let at = place.records.add(offset).cast::<u64>();
            at.copy_from_nonoverlapping(NonNull::from(words).cast(), words.len());
        }
    }

    fn describe(&self, place: Place, site: &'static Site, number: u16) -> Option<()> {
        let mut bytes = [0; MAX_DESCRIPTION_LEN];
        let header = place.header;
        let filled = header.sites_len.load(Ordering::Relaxed);
        let room = place.shape.sites_len.saturating_sub(filled);
        let described = site.describe(number, &mut bytes).filter(|len| *len as u64 <= room);
        let Some(len) = described else { return self.drop_record(DropReason::NoRoomForSite) };
        let offset = usize::try_from(filled).unwrap_or(usize::MAX);
        // SAFETY: `len` bytes are left of the room for descriptions, and readers look only at what is before its length.
        unsafe {
            let from = NonNull::from(&bytes).cast::<u8>();
            place.sites.add(offset).copy_from_nonoverlapping(from, len);
        }
        header.sites_len.store(filled + len as u64, Ordering::Release);
        if let Some(word) = self.described.get(usize::from(number / 64)) {
            word.set(word.get() | 1 << (number % 64));
        }
        Some(())
    }
}
