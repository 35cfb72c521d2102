//! What the relay counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Totals since the start.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: Counter,)*
        }

        /// Totals since the start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Totals {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            pub(crate) fn totals(&self) -> Totals {
                Totals { $($field: self.$field.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Packets written, counted when their last byte was.
    packets,
    /// Bytes of packets written, padding included.
    packet_bytes,
    /// Bytes of metadata written, padding included.
    metadata_bytes,
    /// Index entries written.
    index_entries,
    /// Beacons taken.
    beacons,
    /// Packets whose index entry never came: their bytes are in the file, without entry.
    packets_without_index,
    /// Index entries whose packet never came: dropped.
    indexes_without_packet,
    /// Of those two, ones that were given up because those of all streams took up [`crate::Limits::unpaired_bytes`].
    halves_given_up,
    /// Packets of which nothing came, seen by the numbers of those that came after them.
    packets_never_came,
    /// Packets that the tracer lost before it sent them.
    tracer_packets_lost,
    /// Event records that the tracer discarded.
    tracer_events_discarded,
    /// Index entries that were acknowledged although their packet had not come within [`crate::Limits::ack_patience`].
    acknowledged_early,
    /// Packets cut short by the end of their connection: dropped.
    packets_cut_short,
    /// Packets or entries beyond the last packet of a stream that left for no chunk: the packet's bytes stay in
    /// the file the stream left, its entry is dropped.
    beyond_last_chunk,
    /// Rotations made without waiting any longer for the packet they were to happen at.
    rotations_forced,
    /// Requests refused.
    requests_refused,
    /// Connections closed because the rest of a request took too long.
    requests_unfinished,
    /// Connections that waited because the disk had no room for what they brought, once for each time.
    waits_for_room,
    /// Those that gave up after [`crate::Limits::room_patience`].
    room_never_came,
    /// Connections refused because there were too many.
    connections_refused,
    /// Viewers refused because there were too many.
    viewers_refused,
    /// Connections closed because they said nothing for too long, or because too many did.
    half_open_dropped,
    /// Connections refused because of where they came from.
    peers_refused,
    /// Connections to the encrypted port refused because of what they showed: no TLS, another protocol, a certificate or
    /// token that is wrong, missing, or for another role.
    identities_refused,
    /// Packets that a viewer did not get because they were cleared, overwritten or let go before it came to them; once
    /// for each viewer.
    packets_missed_by_viewers,
    /// Packets that a viewer did not get because their index entry promises more bytes than were sent; once for each viewer.
    packets_short,
    /// Packets that a viewer did not get because it had been told that no such packet would come; once for each viewer.
    packets_withheld,
    /// Packets that began before the time that a beacon of their producer had named.
    promises_broken,
    /// Chunks sealed.
    chunks_sealed,
    /// Attempts to seal a chunk that failed; each is made again, up to [`crate::Limits::seal_attempts`].
    seals_failed,
    /// Chunks that are left as they are until the next start, which tries again to seal them, or to delete those that were
    /// cleared.
    seals_given_up,
    /// Sealed chunks that were compressed.
    chunks_compressed,
    /// Bytes of their data streams.
    bytes_compressed,
    /// Bytes that those were compressed to.
    bytes_compressed_to,
    /// Sealed chunks that could not be compressed, and stay as they are.
    compressions_failed,
    /// Sealed chunks that were not compressed because more than [`crate::Announce::waiting`] waited.
    compressions_skipped,
    /// Sealed chunks copied, once for each place.
    chunks_copied,
    /// Bytes of those that were sent; files that were there already are not.
    bytes_copied,
    /// Attempts to copy a chunk that failed; each is made again.
    copies_failed,
    /// Files copied that had been changed after their chunk was sealed.
    files_copied_changed,
    /// Attempts to delete a sealed chunk that failed; each is made again.
    deletions_failed,
    /// Sealed chunks deleted because they were old or all of them too large.
    chunks_expired,
    /// Bytes of those.
    bytes_expired,
    /// Chunks that a target was told of.
    announcements,
    /// Attempts to tell a target of a chunk that failed; each is made again.
    announcements_failed,
    /// Chunks that a target was not told of because more than [`crate::Announce::waiting`] waited.
    announcements_dropped_full,
    /// Chunks that a target was not told of because they waited longer than [`crate::Announce::give_up`].
    announcements_dropped_old,
    /// Chunks that a target was not told of because they were deleted, or the target was taken out of the configuration.
    announcements_dropped_gone,
    /// Attempts to note on the disk which chunks are to be compressed or announced, or no longer are, that failed; each is made
    /// again.
    outbox_failures,
}

/// One total.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}
