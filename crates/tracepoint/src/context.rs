//! Which span a thread is in, and ids for those that begin.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::{arena, clock, sampling};

/// A place in a distributed trace: what a span's children, and the requests that it sends, are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context {
    trace_id: u128,
    span_id: u64,
    is_sampled: bool,
}

/// Nobody's: neither trace nor span has the id 0.
pub(crate) const NONE: Context = Context { trace_id: 0, span_id: 0, is_sampled: true };

thread_local! {
    static CURRENT: Cell<Context> = const { Cell::new(NONE) };
    /// The state of the generator, xoroshiro128++ of Blackman and Vigna; zeros: not seeded.
    static IDS: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

impl Context {
    /// The span that this thread is in.
    #[inline]
    #[must_use]
    pub fn current() -> Option<Self> {
        Some(current()).filter(|context| *context != NONE)
    }

    /// One that is known from elsewhere; `None` when an id is 0.
    #[must_use]
    pub const fn new(trace_id: u128, span_id: u64, is_sampled: bool) -> Option<Self> {
        if trace_id == 0 || span_id == 0 {
            return None;
        }
        Some(Self { trace_id, span_id, is_sampled })
    }

    /// The value of a header `traceparent` (W3C Trace Context, section 3.2); of a later version what this one knows. `None` when it is none.
    #[must_use]
    pub fn from_traceparent(text: &str) -> Option<Self> {
        let hex = |text: &str, len: usize| {
            let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (text.len() == len && is_hex).then(|| u128::from_str_radix(text, 16).ok()).flatten()
        };
        let mut parts = text.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32)?;
        let span_id = u64::try_from(hex(parts.next()?, 16)?).ok()?;
        let flags = hex(parts.next()?, 2)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        Self::new(trace_id, span_id, flags & 1 == 1)
    }

    /// Of the trace: not 0.
    #[must_use]
    pub const fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Of the span: not 0.
    #[must_use]
    pub const fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Whether the trace's spans are written.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Has this thread be in the span until the guard is dropped: for a request that came from elsewhere, or a thread that works for another.
    #[must_use = "the thread is in the span for as long as the guard lives"]
    pub fn enter(self) -> Entered<'static> {
        Entered { before: replace(self), of: PhantomData }
    }

    /// A span in this one, or one that begins a trace.
    pub(crate) fn begin(parent: Self) -> Self {
        let span_id = new_id();
        if parent.trace_id != 0 {
            return Self { span_id, ..parent };
        }
        let trace_id = u128::from(new_id()) << 64 | u128::from(new_id());
        Self { trace_id, span_id, is_sampled: sampling::samples(trace_id) }
    }

    /// Both halves of the trace id and the span's, as records have them.
    #[inline(always)]
    pub(crate) fn words(&self) -> [u64; 3] {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let low = self.trace_id as u64;
        let high = (self.trace_id >> 64) as u64;
        [high, low, self.span_id]
    }
}

/// As the value of a header `traceparent`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

/// A thread is in a span; dropped, it is where it was before. Guards are dropped in the reverse order of their making.
#[derive(Debug)]
pub struct Entered<'a> {
    before: Context,
    /// Of the thread that made it.
    of: PhantomData<(&'a (), *const ())>,
}

impl<'a> Entered<'a> {
    pub(crate) fn of_span(context: Context) -> Self {
        Self { before: replace(context), of: PhantomData::<(&'a (), *const ())> }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        replace(self.before);
    }
}

/// Where this thread is; [`NONE`] when it is in no span.
#[inline(always)]
pub(crate) fn current() -> Context {
    CURRENT.with(Cell::get)
}

pub(crate) fn replace(context: Context) -> Context {
    CURRENT.with(|current| current.replace(context))
}

/// A child that was forked has ids of its own.
pub(crate) fn forget_ids() {
    IDS.with(|ids| ids.set([0; 2]));
}

/// Not 0.
fn new_id() -> u64 {
    IDS.with(|ids| {
        loop {
            let mut state = ids.get();
            if state == [0; 2] {
                state = seed();
            }
            let [a, b] = state;
            let id = a.wrapping_add(b).rotate_left(17).wrapping_add(a);
            let mixed = a ^ b;
            ids.set([a.rotate_left(49) ^ mixed ^ (mixed << 21), mixed.rotate_left(28)]);
            if id != 0 {
                return id;
            }
        }
    })
}

/// Once in the life of a thread.
#[cold]
fn seed() -> [u64; 2] {
    // A fork is noticed from now on, and it is known which traces are written.
    arena::get();
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK);
    let [low, high] = [&bytes[..8], &bytes[8..]]
        .map(|half| half.first_chunk().map_or(0, |half| u64::from_ne_bytes(*half)));
    match filled {
        Ok(16) if (low, high) != (0, 0) => [low, high],
        // Early in the life of a machine there is nothing random yet.
        _ => {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let (count, monotonic_ns) = clock::both();
            [count ^ u64::from(thread) << 32, monotonic_ns | 1]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_traceparent_is_read_as_it_is_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::from_traceparent(text).unwrap();
        assert_eq!(context.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span_id(), context.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.to_string(), text);
        let unsampled = Context::from_traceparent(&text.replace("-01", "-02")).unwrap();
        assert!(!unsampled.is_sampled());
        let later = text.replacen("00", "01", 1) + "-more";
        assert_eq!(Context::from_traceparent(&later), Some(context));
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let none = "0".repeat(32);
        for wrong in [
            "",
            "00",
            &text[..54],
            &format!("{text}-more"),
            &text.to_uppercase(),
            &text.replacen("00", "ff", 1),
            &text.replace("4bf92f3577b34da6a3ce929d0e0e4736", &none),
            &text.replace("00f067aa0ba902b7", &none[..16]),
            &text.replace("4bf", "+bf"),
        ] {
            assert_eq!(Context::from_traceparent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_are_different_on_all_threads() {
        let ids = || (0..1000).map(|_| new_id()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(ids)).collect();
        let found: Vec<u64> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 8000);
    }
}
