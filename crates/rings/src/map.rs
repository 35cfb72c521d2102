//! A mapped memory file of another process, which may write to it at any time.
#![expect(unsafe_code, reason = "memory that another process writes to is read by atomics only")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::Error;

/// A mapping. Every access is of an aligned word inside of it, atomic.
#[derive(Debug)]
pub(crate) struct Map {
    begin: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is shared with other processes anyway, and only read and written by atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps a file that nobody can make shorter.
    pub(crate) fn new(file: impl AsFd) -> Result<Self, Error> {
        let failed = |error: rustix::io::Errno| Error::Map(io::Error::from(error));
        let seals = fcntl_get_seals(&file).map_err(failed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::NotSealed);
        }
        let len = fstat(&file).map_err(failed)?.st_size;
        let len = usize::try_from(len).map_err(|_no_len| Error::NotRings)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that keeps its length: no access inside of it can be beyond
        // the file's end.
        let begin = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) };
        let begin = NonNull::new(begin.map_err(failed)?.cast()).ok_or(Error::NotRings)?;
        Ok(Self { begin, len })
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len as u64
    }

    fn at<T>(&self, offset: u64) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(size_of::<T>())?;
        let is_inside = end <= self.len && offset.is_multiple_of(align_of::<T>());
        // SAFETY: inside of the mapping.
        is_inside.then(|| unsafe { self.begin.add(offset).cast() })
    }

    pub(crate) fn u32(&self, offset: u64) -> Option<&AtomicU32> {
        // SAFETY: an aligned word of the mapping, which lives as long as the reference.
        self.at(offset).map(|at| unsafe { at.as_ref() })
    }

    pub(crate) fn u64(&self, offset: u64) -> Option<&AtomicU64> {
        // SAFETY: an aligned word of the mapping, which lives as long as the reference.
        self.at(offset).map(|at| unsafe { at.as_ref() })
    }

    /// Appends words to `out`, each as it is at some moment of the call; `None`, and none appended, when they are not inside.
    pub(crate) fn copy(&self, offset: u64, words: usize, out: &mut Vec<u64>) -> Option<()> {
        let len = u64::try_from(words).ok()?.checked_mul(8)?;
        let last = offset.checked_add(len.checked_sub(8)?)?;
        let begin = self.at::<AtomicU64>(offset)?;
        self.at::<AtomicU64>(last)?;
        out.reserve(words);
        // SAFETY: all words from the first to the last are inside of the mapping and aligned.
        let from = unsafe { std::slice::from_raw_parts(begin.as_ptr().cast_const(), words) };
        out.extend(from.iter().map(|word| word.load(Ordering::Relaxed)));
        // What is read afterwards was not written before these.
        fence(Ordering::Acquire);
        Some(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives it.
        let unmapped = unsafe { munmap(self.begin.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
