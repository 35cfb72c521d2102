//! How much memory packets may take that were fetched and not read to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// A bound for all packets of the viewings that share it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    taken: AtomicU64,
}

/// Memory that was set aside for a packet.
#[derive(Debug)]
pub(crate) struct Room {
    memory: Memory,
    len: u64,
}

struct Packet {
    bytes: Vec<u8>,
    _room: Room,
}

impl Memory {
    /// For packets of at most so many bytes together.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Inner { limit: limit_bytes, taken: AtomicU64::new(0) }))
    }

    /// The bound.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit
    }

    /// `None` while other packets take too much.
    pub(crate) fn set_aside(&self, len: u64) -> Option<Room> {
        let more = |taken: u64| taken.checked_add(len).filter(|taken| *taken <= self.0.limit);
        let taken = self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Room { memory: self.clone(), len })
    }
}

impl Default for Memory {
    /// For 256 MiB.
    fn default() -> Self {
        Self::new(256 << 20)
    }
}

impl Room {
    /// The bytes of the packet that it is for; it is given back with the last of them.
    pub(crate) fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Packet { bytes, _room: self })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.0.taken.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_comes_back_with_the_packet() {
        let memory = Memory::new(10);
        let bytes = memory.set_aside(6).map(|room| room.hold(vec![1; 6])).unwrap();
        assert!(memory.set_aside(5).is_none());
        assert!(memory.set_aside(u64::MAX).is_none());
        let part = bytes.slice(2..);
        drop(bytes);
        assert!(memory.clone().set_aside(5).is_none(), "a part of it is still there");
        drop(part);
        assert!(memory.set_aside(10).is_some());
    }
}
