//! Spans that are open, by the numbers that `tracing` gives them.
//!
//! Groups of eight places; a number's group is its hash, and its place is any of them. A place is taken by [`TAKEN`], filled, and published by the number itself; who knows
//! a number holds the span open, so that its place stays.
#![expect(unsafe_code, reason = "a pointer to a static is kept as a number")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::sites::SpanSites;
use crate::context::{Context, NONE};

/// Places of a group: their numbers are one cache line.
const PLACES: usize = 8;
/// 8,192 spans that are open at a time, if they fell evenly.
const GROUPS: usize = 1024;

/// Nobody's; `tracing` gives no such number.
const FREE: u64 = 0;
/// Being filled. The number of no span either: it would be the last one of all.
const TAKEN: u64 = u64::MAX;

#[repr(C, align(64))]
struct Group {
    numbers: [AtomicU64; PLACES],
    spans: [Place; PLACES],
}

struct Place {
    words: [AtomicU64; 3],
    /// Bit 0: whether its trace is sampled.
    flags: AtomicU64,
    sites: AtomicPtr<SpanSites>,
}

impl Place {
    const fn empty() -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; 3],
            flags: AtomicU64::new(0),
            sites: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Group {
    const fn empty() -> Self {
        Self {
            numbers: [const { AtomicU64::new(FREE) }; PLACES],
            spans: [const { Place::empty() }; PLACES],
        }
    }
}

/// Memory is taken as it is written to.
static OPEN: [Group; GROUPS] = [const { Group::empty() }; GROUPS];

/// An open span.
#[derive(Clone, Copy)]
pub(super) struct OpenSpan {
    pub(super) context: Context,
    /// `None` when it is not written.
    pub(super) sites: Option<&'static SpanSites>,
}

fn group(number: u64) -> &'static Group {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, section 6.4).
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - GROUPS.trailing_zeros());
    let at = usize::try_from(hash).unwrap_or_default() % GROUPS;
    OPEN.get(at).unwrap_or(&OPEN[0])
}

impl Group {
    fn find(&self, number: u64) -> Option<(&AtomicU64, &Place)> {
        let mut places = self.numbers.iter().zip(&self.spans);
        places.find(|(it, _)| it.load(Ordering::Acquire) == number)
    }
}

/// Keeps a span; `false` when there is no place for it.
pub(super) fn insert(number: u64, context: Context, sites: Option<&'static SpanSites>) -> bool {
    let group = group(number);
    let taken = group.numbers.iter().zip(&group.spans).find(|(place, _)| {
        place.load(Ordering::Relaxed) == FREE
            && place.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    let Some((published, place)) = taken else { return false };
    for (to, word) in place.words.iter().zip(context.words()) {
        to.store(word, Ordering::Relaxed);
    }
    place.flags.store(context.is_sampled().into(), Ordering::Relaxed);
    let sites = sites.map_or(ptr::null_mut(), |sites| ptr::from_ref(sites).cast_mut());
    place.sites.store(sites, Ordering::Relaxed);
    published.store(number, Ordering::Release);
    true
}

pub(super) fn find(number: u64) -> Option<OpenSpan> {
    group(number).find(number).map(|(_, place)| place.get())
}

pub(super) fn remove(number: u64) -> Option<OpenSpan> {
    let (published, place) = group(number).find(number)?;
    let open = place.get();
    published.store(FREE, Ordering::Release);
    Some(open)
}

impl Place {
    fn get(&self) -> OpenSpan {
        let [high, low, span_id] = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let trace_id = u128::from(high) << 64 | u128::from(low);
        let is_sampled = self.flags.load(Ordering::Relaxed) & 1 == 1;
        // SAFETY: null, or made of a `&'static SpanSites`.
        let sites = unsafe { self.sites.load(Ordering::Relaxed).cast_const().as_ref() };
        OpenSpan { context: Context::new(trace_id, span_id, is_sampled).unwrap_or(NONE), sites }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_found_until_they_are_removed_and_no_more_than_there_is_room_for() {
        // Numbers that no other test's spans have.
        let number = |at: u64| 1 << 60 | at;
        let context =
            |at: u64| Context::new(u128::from(at) << 65 | 5, at + 1, at.is_multiple_of(2)).unwrap();
        let kept: Vec<u64> =
            (0..20_000).filter(|at| insert(number(*at), context(*at), None)).collect();
        assert!((4096..=8192).contains(&kept.len()), "{}", kept.len());
        for at in &kept {
            assert_eq!(find(number(*at)).map(|it| it.context), Some(context(*at)));
        }
        for at in &kept {
            assert_eq!(remove(number(*at)).map(|it| it.context), Some(context(*at)));
            assert!(find(number(*at)).is_none());
        }
        assert!(insert(number(1), context(1), None) && remove(number(1)).is_some());
    }
}
