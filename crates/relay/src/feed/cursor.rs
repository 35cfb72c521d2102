//! How far a viewer has read a stream, and what it is told next.

use super::packet::{Packet, Stored};

/// The number of the first packet that is released: smaller ones are of packets that were there before.
pub(crate) const ORIGIN: u64 = 1 << 48;

/// How far a viewer has read a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    /// The packet it gets next.
    pub(crate) next: u64,
    /// The latest time before which it was told that nothing is still to come.
    pub(crate) told: u64,
    /// Packets that were gone before it came to them.
    pub(crate) missed: u64,
    /// Packets not given to it because it was told that they would not come.
    pub(crate) withheld: u64,
}

impl Cursor {
    /// Not at what was recorded before the feed.
    pub(crate) fn not_before_feed(self) -> Self {
        Self { next: self.next.max(ORIGIN), ..self }
    }
}

/// What a viewer is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The packet with this number in the stream's life.
    Packet(u64, Packet),
    /// Nothing yet: these entries are to be read first.
    Stored(Stored),
    /// No event before this time is still to come.
    Inactive {
        until: u64,
        class: u64,
    },
    NotYet,
    /// The stream has ended and the viewer has all of it.
    Ended,
}
