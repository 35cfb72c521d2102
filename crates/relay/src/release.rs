//! What a stream lets out once the relay is sure of it.

use wire::live::PacketIndex;

use crate::merge::{Lost, Place};

/// One item of a stream. Packets and losses come in the order of their net sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// A packet whose bytes are in its file, and its entry.
    Packet(Place, PacketIndex),
    /// Packets that will not come.
    Lost(Lost),
    /// Nothing happened until the entry's end. Ordered with packets by its net sequence number only.
    Beacon(PacketIndex),
}
