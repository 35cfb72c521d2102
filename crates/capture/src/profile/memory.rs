//! The C library's allocator, which keeps what was freed for what may come.
#![expect(unsafe_code, reason = "functions of the C library's allocator")]

/// Has what is freed go back to the system early, for the whole process: what a large file takes while it is read is many times what
/// sampling needs, and each thread would keep memory of its own. To be called before other threads begin.
pub fn keep_little_memory() {
    #[cfg(target_env = "gnu")]
    {
        /// What is larger is a mapping of its own, which goes when it is freed. The library begins with 128 KiB and raises that up to
        /// 32 MiB unless it is set (mallopt(3)).
        const MAPPED_BYTES: libc::c_int = 16 << 10;
        /// What may be free at the end of the heap: the library's own bound, which it would raise with the other.
        const FREE_BYTES: libc::c_int = 128 << 10;
        for (parameter, value) in [
            (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
            (libc::M_TRIM_THRESHOLD, FREE_BYTES),
            (libc::M_ARENA_MAX, 1),
        ] {
            // SAFETY: it changes numbers of the allocator, and nothing that was allocated.
            let is_set = unsafe { libc::mallopt(parameter, value) };
            debug_assert_eq!(is_set, 1, "mallopt {parameter}");
        }
    }
}

/// Free memory goes back so often, in nanoseconds: what files took while they were read lies between what is kept of them.
const EVERY_NS: u64 = 5_000_000_000;

/// And when there is so much more than there was when it last went back: files are read, most of which is free soon.
const MANY_BYTES: u64 = 4 << 20;

/// When free memory goes back.
#[derive(Debug, Default)]
pub(super) struct GivingBack {
    next_ns: u64,
    /// The least memory that there was since it last went back.
    least_bytes: u64,
}

impl GivingBack {
    /// Gives back what is free if it is time, or if there is much more memory than before.
    pub(super) fn look(&mut self, time_ns: u64, own_bytes: impl Fn() -> u64) {
        if self.is_due(time_ns, own_bytes()) {
            give_back();
            *self = Self { next_ns: time_ns.saturating_add(EVERY_NS), least_bytes: own_bytes() };
        }
    }

    fn is_due(&mut self, time_ns: u64, own_bytes: u64) -> bool {
        self.least_bytes = self.least_bytes.min(own_bytes);
        time_ns >= self.next_ns || own_bytes - self.least_bytes >= MANY_BYTES
    }
}

/// Gives back what is free now: some milliseconds for tens of megabytes.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no memory from anyone, and may be called by any thread at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_in_time_and_when_there_is_much_more_than_at_least() {
        const MIB: u64 = 1 << 20;
        let mut giving_back = GivingBack { next_ns: 10, least_bytes: 20 * MIB };
        assert!(!giving_back.is_due(9, 24 * MIB - 1));
        assert!(giving_back.is_due(9, 24 * MIB));
        assert!(giving_back.is_due(10, 20 * MIB));
        assert!(!giving_back.is_due(9, 8 * MIB));
        assert!(giving_back.is_due(9, 12 * MIB));
        giving_back.look(30, || 12 * MIB);
        assert!(!giving_back.is_due(30 + EVERY_NS - 1, 12 * MIB));
        assert!(giving_back.is_due(30 + EVERY_NS, 12 * MIB));
    }
}
