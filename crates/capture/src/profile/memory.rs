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

/// Gives back what is free now: some milliseconds for tens of megabytes.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no memory from anyone, and may be called by any thread at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
