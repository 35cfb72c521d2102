//! How much memory a piece of code holds at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has taken and not given back. Below zero when it gives back what another one took.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread holds. To be a test binary's `#[global_allocator]`.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting;

fn count(taken: usize, given_back: usize) {
    let signed = |bytes| isize::try_from(bytes).unwrap_or(isize::MAX);
    // While a thread ends its counters are gone, and nobody asks for them any more.
    HELD.try_with(|held| {
        let now = held.get().saturating_add(signed(taken)).saturating_sub(signed(given_back));
        held.set(now);
        MOST.try_with(|most| most.set(most.get().max(now))).unwrap_or_default();
    })
    .unwrap_or_default();
}

#[expect(unsafe_code, reason = "an allocator can be counted only from inside")]
// SAFETY: every call is passed on to the system's allocator with the same arguments, under the caller's own promises;
// counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// What `work` gives, and the most bytes that this thread held during it beyond what it held before. 0 unless
/// [`Counting`] is the allocator.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, usize::try_from(MOST.get().saturating_sub(before)).unwrap_or(0))
}
