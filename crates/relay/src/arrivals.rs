//! What a relay session's control connection knows of its data connection.

use std::sync::atomic::{AtomicU64, Ordering};

/// Between the connections of one relay session.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Counts arrivals; odd while something is being written.
    mark: AtomicU64,
}

impl Arrivals {
    /// Bytes came; they are being written until [`Arrivals::wait`].
    pub(crate) fn came(&self) {
        self.mark.fetch_or(1, Ordering::Relaxed);
    }

    /// All that came is written, and more is waited for.
    pub(crate) fn wait(&self) {
        if self.mark.load(Ordering::Relaxed) & 1 == 1 {
            self.mark.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A number that differs after bytes came; odd while they are being written.
    pub(crate) fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }
}
