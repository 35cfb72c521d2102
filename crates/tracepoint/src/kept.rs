//! A value that one thread at a time holds, behind a lock that a fork cannot leave locked.
//!
//! Whoever waits for a mutex in a child that was forked while another thread held it waits for ever: that thread is not in the child. Here
//! the lock says who holds it, and the child takes it away from whoever is not there. The value is one pointer, so that it is whole at any time.
#![expect(unsafe_code, reason = "a value behind a pointer, for who holds the lock")]

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

thread_local! {
    /// Of which the address is the thread's: it is never 0, and the same in a child.
    static THREAD: u8 = const { 0 };
}

/// Different for each thread that is there.
fn this_thread() -> usize {
    THREAD.with(|thread| ptr::from_ref(thread).addr())
}

/// A static's value; there is none at first.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    /// [`this_thread`] of who holds it; 0: nobody.
    holder: AtomicUsize,
    /// Null, or of a box.
    value: AtomicPtr<T>,
    of: PhantomData<T>,
}

// SAFETY: the value is seen and changed by one thread at a time, by way of `Held`.
unsafe impl<T: Send> Sync for Kept<T> {}

/// The right to look at the value and to change it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    kept: &'a Kept<T>,
    /// It is a thread's.
    of: PhantomData<*const T>,
}

impl<T> Kept<T> {
    pub(crate) const fn none() -> Self {
        Self {
            holder: AtomicUsize::new(0),
            value: AtomicPtr::new(ptr::null_mut()),
            of: PhantomData,
        }
    }

    /// `None` when somebody holds it. In one order with [`Held`]'s end and with other `SeqCst` operations.
    pub(crate) fn try_hold(&self) -> Option<Held<'_, T>> {
        let (free, this) = (0, this_thread());
        let taken = self.holder.compare_exchange(free, this, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok().then(|| Held { kept: self, of: PhantomData })
    }

    /// Whether the calling thread holds it, as it may in a signal handler.
    pub(crate) fn is_held_here(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == this_thread()
    }

    /// Waits for who holds it: not on the way of a record, nor in a signal handler.
    pub(crate) fn hold(&self) -> Held<'_, T> {
        loop {
            if let Some(held) = self.try_hold() {
                return held;
            }
            std::thread::yield_now();
        }
    }

    /// In a child: nobody holds it but the calling thread, which may have been interrupted while it did. Gives whether somebody else did.
    pub(crate) fn take_back(&self) -> bool {
        let holder = self.holder.load(Ordering::SeqCst);
        let is_gone = holder != 0 && holder != this_thread();
        if is_gone {
            self.holder.store(0, Ordering::SeqCst);
        }
        is_gone
    }
}

impl<T> Held<'_, T> {
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null or a box's, which nobody else changes while this lives.
        unsafe { self.kept.value.load(Ordering::Relaxed).cast_const().as_ref() }
    }

    pub(crate) fn set(&mut self, value: T) {
        let before = self.kept.value.swap(Box::into_raw(Box::new(value)), Ordering::Relaxed);
        if !before.is_null() {
            // SAFETY: made of a box, and nobody knows it any more.
            drop(unsafe { Box::from_raw(before) });
        }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.kept.holder.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_it_and_one_that_is_gone_is_noticed() {
        static TEXT: Kept<String> = Kept::none();
        let mut held = TEXT.hold();
        assert_eq!(held.get(), None);
        held.set("a".to_owned());
        held.set("b".to_owned());
        let elsewhere = || TEXT.try_hold().map(|held| held.get().cloned());
        assert_eq!(std::thread::spawn(elsewhere).join().unwrap(), None);
        assert!(!TEXT.take_back(), "this thread is in the child, and goes on");
        assert!(std::thread::spawn(elsewhere).join().unwrap().is_none());
        drop(held);
        assert_eq!(std::thread::spawn(elsewhere).join().unwrap(), Some(Some("b".to_owned())));
        std::thread::spawn(|| std::mem::forget(TEXT.hold())).join().unwrap();
        assert!(TEXT.try_hold().is_none());
        assert!(TEXT.take_back() && TEXT.try_hold().is_some() && !TEXT.take_back());
    }
}
