//! What was lost of each stream of a chunk, and by whom.
//!
//! The network loses packets on the way: their net sequence numbers are missing here. The tracer loses packets that
//! were overwritten before they were sent (a jump of the packet sequence number that the net sequence number does
//! not make) and event records that found no room (the growth of the discarded counter).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tracedir::manifest;
use wire::live::{PacketIndex, RelativePath};

use crate::merge::Lost;
use crate::release::Released;
use crate::resume::LastPacket;

/// Who lost something, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossCause {
    /// Network: neither packet nor index entry came.
    Network,
    /// Network: the index entry came, its packet did not.
    PacketNeverCame,
    /// Network: the packet came and is in its file, its index entry did not.
    IndexNeverCame,
    /// Tracer: packets that were never sent.
    TracerPackets,
    /// Tracer: event records that were discarded.
    TracerEvents,
}

impl LossCause {
    const ALL: [(Self, &str); 5] = [
        (Self::Network, "network"),
        (Self::PacketNeverCame, "packet-never-came"),
        (Self::IndexNeverCame, "index-never-came"),
        (Self::TracerPackets, "tracer-packets"),
        (Self::TracerEvents, "tracer-events"),
    ];

    /// Whether the packets were lost between the producer and the relay.
    #[must_use]
    pub const fn is_network(self) -> bool {
        matches!(self, Self::Network | Self::PacketNeverCame | Self::IndexNeverCame)
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(cause, _)| cause == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for LossCause {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(cause, _)| *cause).ok_or(())
    }
}

/// One loss and its place in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// By whom.
    pub cause: LossCause,
    /// Network: the first net sequence number lost. Tracer: the packet sequence number before the loss.
    pub first: u64,
    /// Network: the last net sequence number lost. Tracer: the packet sequence number after the loss.
    pub last: u64,
    /// Packets lost; event records for [`LossCause::TracerEvents`].
    pub count: u64,
}

/// What was lost of one stream in one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Losses {
    /// Packets lost by the network.
    pub network_packets: u64,
    /// Packets lost by the tracer.
    pub tracer_packets: u64,
    /// Event records discarded by the tracer.
    pub tracer_events: u64,
    /// Where, as far as [`crate::Limits::losses_per_chunk`] allows.
    pub places: Vec<Loss>,
    /// Losses that are counted above and not in `places`.
    pub without_place: u64,
}

impl Losses {
    /// As a manifest tells it of `stream`.
    pub(crate) fn described(&self, stream: &RelativePath) -> manifest::StreamLosses {
        let place = |loss: &Loss| manifest::LossPlace {
            cause: loss.cause.to_string(),
            first: loss.first,
            last: loss.last,
            count: loss.count,
        };
        manifest::StreamLosses {
            stream: stream.to_string(),
            network_packets: self.network_packets,
            tracer_packets: self.tracer_packets,
            tracer_event_records: self.tracer_events,
            places: self.places.iter().map(place).collect(),
            without_place: self.without_place,
        }
    }

    /// Whether a packet may be there without its entry; one that was given up may have come after all.
    pub(crate) fn may_miss_entries(&self) -> bool {
        let mut causes = self.places.iter().map(|loss| loss.cause);
        let is_half =
            |cause| matches!(cause, LossCause::IndexNeverCame | LossCause::PacketNeverCame);
        self.without_place > 0 || causes.any(is_half)
    }

    fn count(&mut self, loss: &Loss) {
        let total = match loss.cause {
            LossCause::TracerPackets => &mut self.tracer_packets,
            LossCause::TracerEvents => &mut self.tracer_events,
            _ => &mut self.network_packets,
        };
        *total = total.saturating_add(loss.count);
    }
}

/// The losses of all streams of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChunkLosses {
    pub(crate) streams: BTreeMap<RelativePath, Losses>,
    placed: usize,
}

impl ChunkLosses {
    /// Adds a loss; says whether its place is noted.
    pub(crate) fn add(&mut self, stream: RelativePath, loss: Loss, max_places: usize) -> bool {
        let losses = self.streams.entry(stream).or_default();
        losses.count(&loss);
        let has_room = self.placed < max_places;
        if has_room {
            self.placed += 1;
            losses.places.push(loss);
        } else {
            losses.without_place += 1;
        }
        has_room
    }
}

/// With the paths that events have.
pub(crate) fn by_path(losses: BTreeMap<RelativePath, Losses>) -> BTreeMap<PathBuf, Losses> {
    losses.into_iter().map(|(path, losses)| (path.as_path().into(), losses)).collect()
}

/// Follows one stream and tells its losses.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: Option<Seen>,
    /// Packets lost by the network since `last`.
    missing: u64,
    /// A rotation lies between `last` and what comes. Clearing skips a packet number there that was never used.
    has_rotated: bool,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Packet sequence number, if the producer sends it.
    number: Option<u64>,
    discarded: u64,
}

impl Seen {
    /// What is to be kept of a packet after another one.
    ///
    /// LTTng-UST writes 0 as its count of discarded event records into some packets that its switch timer ends (seen
    /// with 2.13): while packet numbers go on, the highest count so far holds.
    fn after(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if before.number < self.number || self.number.is_none() => {
                Self { discarded: self.discarded.max(before.discarded), ..self }
            }
            _ => self,
        }
    }
}

impl Meter {
    /// Reads an item; gives the losses it shows.
    pub(crate) fn read(&mut self, released: &Released) -> Vec<Loss> {
        match released {
            Released::Packet(_, entry) => self.entry(entry),
            Released::Lost(lost) => {
                let (first, last) = lost.numbers();
                let (first, last) = (first.get(), last.get());
                let count = (last - first).saturating_add(1);
                let (cause, mut losses) = match lost {
                    Lost::Both(..) => (LossCause::Network, Vec::new()),
                    Lost::Index(..) => (LossCause::IndexNeverCame, Vec::new()),
                    Lost::Packet(_, entry) => (LossCause::PacketNeverCame, self.entry(entry)),
                };
                if cause != LossCause::PacketNeverCame {
                    self.missing = self.missing.saturating_add(count);
                }
                losses.push(Loss { cause, first, last, count });
                losses
            }
            Released::Beacon(_) => Vec::new(),
        }
    }

    /// Its producer was away after this packet.
    pub(crate) fn goes_on(&mut self, last: &LastPacket) {
        let number = Some(last.number);
        self.last = last.discarded.map(|discarded| Seen { number, discarded });
    }

    /// Event records that the tracer has discarded until the last packet.
    pub(crate) fn discarded(&self) -> Option<u64> {
        self.last.map(|last| last.discarded)
    }

    /// The stream enters another chunk.
    pub(crate) const fn rotated(&mut self) {
        self.has_rotated = true;
    }

    fn entry(&mut self, entry: &PacketIndex) -> Vec<Loss> {
        let number = entry.full.map(|full| full.packet_seq_num.get());
        let seen = Seen { number, discarded: entry.events_discarded };
        let missing = std::mem::take(&mut self.missing);
        let has_rotated = std::mem::take(&mut self.has_rotated);
        let before = self.last;
        self.last = Some(seen.after(before));
        // A stream's first packet counts what was discarded before it; one that joins later says nothing of before.
        let start = Seen { number: Some(0), discarded: 0 };
        let Some(before) = before.or((number == Some(0)).then_some(start)) else {
            return Vec::new();
        };
        let (first, last) = (before.number.unwrap_or(0), number.unwrap_or(0));
        let packets = last.saturating_sub(first).saturating_sub(1).saturating_sub(missing);
        let events = seen.discarded.saturating_sub(before.discarded);
        let loss = |cause, count| Loss { cause, first, last, count };
        let mut losses = Vec::new();
        if packets > 0 && !has_rotated {
            losses.push(loss(LossCause::TracerPackets, packets));
        }
        if events > 0 {
            losses.push(loss(LossCause::TracerEvents, events));
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::Place;
    use wire::live::{FullIndexFields, NetSeqNum, PacketSeqNum, StreamHandle};

    fn entry(net: u64, packet: u64, discarded: u64) -> PacketIndex {
        PacketIndex {
            handle: StreamHandle::new(1),
            net_seq_num: NetSeqNum::new(net),
            packet_size_bits: 8,
            content_size_bits: 8,
            timestamp_begin: 0,
            timestamp_end: 0,
            events_discarded: discarded,
            stream_class_id: 0,
            full: Some(FullIndexFields {
                stream_instance_id: 0,
                packet_seq_num: PacketSeqNum::new(packet),
            }),
        }
    }

    fn packet(net: u64, packet: u64, discarded: u64) -> Released {
        Released::Packet(Place { file: 0, offset: 0 }, entry(net, packet, discarded))
    }

    fn losses(items: &[Released]) -> Vec<(LossCause, u64, u64, u64)> {
        let mut meter = Meter::default();
        let losses = items.iter().flat_map(|item| meter.read(item)).collect::<Vec<_>>();
        losses.iter().map(|loss| (loss.cause, loss.first, loss.last, loss.count)).collect()
    }

    #[test]
    fn network_and_tracer_are_told_apart() {
        use LossCause::{Network, PacketNeverCame, TracerEvents, TracerPackets};
        let net =
            |first, last| Released::Lost(Lost::Both(NetSeqNum::new(first), NetSeqNum::new(last)));
        assert_eq!(losses(&[packet(0, 0, 0), packet(1, 1, 0)]), []);
        assert_eq!(
            losses(&[packet(0, 0, 3), packet(1, 1, 5)]),
            [(TracerEvents, 0, 0, 3), (TracerEvents, 0, 1, 2)]
        );
        assert_eq!(losses(&[packet(0, 0, 0), packet(1, 4, 0)]), [(TracerPackets, 0, 4, 3)]);
        assert_eq!(losses(&[packet(0, 0, 0), net(1, 2), packet(3, 3, 0)]), [(Network, 1, 2, 2)]);
        assert_eq!(
            losses(&[packet(0, 0, 0), net(1, 2), packet(3, 5, 0)]),
            [(Network, 1, 2, 2), (TracerPackets, 0, 5, 2)]
        );
        let lost = Released::Lost(Lost::Packet(NetSeqNum::new(1), entry(1, 1, 7)));
        assert_eq!(
            losses(&[packet(0, 0, 0), lost, packet(2, 2, 7)]),
            [(TracerEvents, 0, 1, 7), (PacketNeverCame, 1, 1, 1)]
        );
    }

    #[test]
    fn a_counter_that_is_wrong_in_a_packet_counts_nothing_twice() {
        let recorded =
            [packet(0, 139, 500), packet(1, 140, 0), packet(2, 141, 0), packet(3, 142, 500)];
        assert_eq!(losses(&recorded), []);
        let begun_anew = [packet(0, 139, 500), packet(1, 0, 0), packet(2, 1, 3)];
        assert_eq!(losses(&begun_anew), [(LossCause::TracerEvents, 0, 1, 3)]);
    }

    #[test]
    fn a_stream_that_joins_late_has_lost_nothing_before() {
        assert_eq!(losses(&[packet(5, 9, 100), packet(6, 10, 100)]), []);
    }

    #[test]
    fn a_number_skipped_at_a_rotation_is_no_loss() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(&packet(0, 2, 0)), []);
        meter.rotated();
        assert_eq!(meter.read(&packet(1, 4, 0)), []);
        assert_eq!(meter.read(&packet(2, 6, 0)).len(), 1);
    }

    #[test]
    fn places_are_bounded_and_counts_are_not() {
        let mut chunk = ChunkLosses::default();
        let stream = RelativePath::new("a").unwrap();
        let loss = Loss { cause: LossCause::Network, first: 1, last: 2, count: 2 };
        assert!(chunk.add(stream.clone(), loss, 1));
        assert!(!chunk.add(stream.clone(), loss, 1));
        let losses = &chunk.streams[&stream];
        assert_eq!((losses.network_packets, losses.places.len(), losses.without_place), (4, 1, 1));
    }

    #[test]
    fn causes_are_read_as_they_are_written() {
        for (cause, _) in LossCause::ALL {
            assert_eq!(cause.to_string().parse(), Ok(cause));
        }
        assert_eq!("other".parse::<LossCause>(), Err(()));
    }
}
