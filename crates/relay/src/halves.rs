//! Memory for packets and index entries that wait for their other half, of the whole relay.
//!
//! The first [`FREE`] of each stream are always there, so that no producer takes what others need; those beyond share one
//! bound. When it is reached, a stream that brings more is cut to its newest [`FREE`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Halves of each stream that are not counted.
pub(crate) const FREE: usize = 16;

/// Those of all streams that are counted.
#[derive(Debug)]
pub(crate) struct Halves {
    held: AtomicUsize,
    limit: usize,
}

/// Those of one stream.
#[derive(Debug, Default)]
pub(crate) struct Share {
    of: Option<Arc<Halves>>,
    counted: usize,
}

impl Halves {
    /// As many as fit into so many bytes; one takes `size`.
    pub(crate) const fn new(bytes: usize, size: usize) -> Self {
        Self { held: AtomicUsize::new(0), limit: bytes / size }
    }

    /// Whether there are too many.
    pub(crate) fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit
    }

    /// The place of a stream.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { of: Some(Arc::clone(self)), counted: 0 }
    }
}

impl Share {
    /// The stream holds so many.
    pub(crate) fn holds(&mut self, len: usize) {
        let counted = len.saturating_sub(FREE);
        let before = std::mem::replace(&mut self.counted, counted);
        if let Some(halves) = self.of.as_ref().filter(|_| counted != before) {
            halves.held.fetch_add(counted.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.holds(0);
    }
}
