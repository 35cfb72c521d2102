//! Where a stream's packets and their index entries meet.
//!
//! Packets come on the data connection, entries on the control connection, in no order relative to each
//! other; both carry the packet's net sequence number. On each connection the numbers of a stream
//! increase, which gives the rules:
//!
//! 1. an entry is **committed** (written) when both halves are there, in the order of the numbers;
//! 2. a half whose number is below a complete pair's will never find its other half: it is **lost**, and so are
//!    numbers between two that came that neither connection brought ([`Lost`]);
//! 3. a rotation names the *packet* sequence number of the first packet of the new chunk. Only entries carry that
//!    number, so the stream rotates as soon as the entry before it is committed, or an entry at or after
//!    it is the next one; packets that ran ahead are then moved;
//! 4. nothing rotates in the middle of a packet.
//!
//! This module decides; [`crate::stream`] acts on files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::live::{NetSeqNum, PacketIndex, PacketSeqNum};

use crate::halves::{FREE, Halves, Share};

/// Where a packet lies in a stream's trace files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The trace file, counted from 0 in each chunk.
    pub(crate) file: u64,
    /// Offset in it, bytes.
    pub(crate) offset: u64,
}

/// One or both halves of a packet.
#[derive(Debug, Clone, Copy)]
struct Pair {
    place: Option<Place>,
    index: Option<PacketIndex>,
    since: Instant,
}

/// Memory that one takes up, in a tree whose nodes are half full.
pub(crate) const HALF_BYTES: usize = 2 * size_of::<(NetSeqNum, Pair)>();

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write this entry for the packet at this place.
    Commit(Place, PacketIndex),
    /// Enter the new chunk; entries from this packet on belong there.
    Rotate(PacketSeqNum),
    /// Packets that will not be committed.
    Lost(Lost),
    /// Nothing until more arrives.
    Wait,
}

/// Packets that were sent and will not be complete here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Neither half of these came: the first and the last of them.
    Both(NetSeqNum, NetSeqNum),
    /// The packet's entry will not come; its bytes are at this place.
    Index(NetSeqNum, Place),
    /// The entry's packet will not come.
    Packet(NetSeqNum, PacketIndex),
}

impl Lost {
    /// The numbers, from the first to the last.
    pub(crate) const fn numbers(&self) -> (NetSeqNum, NetSeqNum) {
        match self {
            Self::Both(first, last) => (*first, *last),
            Self::Index(number, _) | Self::Packet(number, _) => (*number, *number),
        }
    }
}

/// The halves of one stream that wait, and its rotation.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    waiting: BTreeMap<NetSeqNum, Pair>,
    last_data: Option<NetSeqNum>,
    last_index: Option<NetSeqNum>,
    last_committed: Option<PacketSeqNum>,
    /// The number committed or lost last.
    resolved: Option<NetSeqNum>,
    /// The last number whose entry came without its packet.
    lost_packet: Option<NetSeqNum>,
    in_flight: bool,
    rotation: Option<Rotation>,
    /// What the last step took out.
    undo: Undo,
    share: Share,
}

#[derive(Debug, Default)]
struct Undo {
    since: Option<Instant>,
    resolved: Option<NetSeqNum>,
    last_committed: Option<PacketSeqNum>,
    rotation: Option<Rotation>,
}

#[derive(Debug, Clone, Copy)]
struct Rotation {
    at: PacketSeqNum,
    since: Instant,
    forced: bool,
}

/// Why a half cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its number is not above the last one's.
    NotAfter(NetSeqNum),
    /// Too many wait already.
    Full,
    /// Another packet of the stream is being written.
    InFlight,
}

impl Merge {
    /// Its halves are held in memory that all streams share.
    pub(crate) fn new(halves: &Arc<Halves>) -> Self {
        Self { share: halves.share(), ..Self::default() }
    }

    /// A packet's header came; its bytes follow.
    pub(crate) fn packet_begins(
        &mut self,
        number: NetSeqNum,
        max_waiting: usize,
    ) -> Result<(), Refused> {
        if self.in_flight {
            return Err(Refused::InFlight);
        }
        if let Some(last) = self.last_data.filter(|last| number <= *last) {
            return Err(Refused::NotAfter(last));
        }
        if self.waiting.len() >= max_waiting && !self.waiting.contains_key(&number) {
            return Err(Refused::Full);
        }
        self.in_flight = true;
        Ok(())
    }

    /// The packet's last byte is in its file. `indexed` says whether an entry is to be expected.
    pub(crate) fn packet_done(
        &mut self,
        number: NetSeqNum,
        place: Place,
        indexed: bool,
        now: Instant,
    ) {
        self.in_flight = false;
        self.last_data = Some(number);
        if indexed && !self.is_late(number) {
            self.pair(number, now).place = Some(place);
            self.share.holds(self.waiting.len());
        }
    }

    /// Whether the number was committed or given up: a half of it that comes after that changes nothing.
    pub(crate) fn is_late(&self, number: NetSeqNum) -> bool {
        self.resolved.is_some_and(|resolved| number <= resolved)
    }

    /// The connection ended inside the packet.
    pub(crate) const fn packet_cut_short(&mut self) {
        self.in_flight = false;
    }

    /// An entry came.
    pub(crate) fn index(
        &mut self,
        index: PacketIndex,
        max_waiting: usize,
        now: Instant,
    ) -> Result<(), Refused> {
        let number = index.net_seq_num;
        if let Some(last) = self.last_index.filter(|last| number <= *last) {
            return Err(Refused::NotAfter(last));
        }
        if self.waiting.len() >= max_waiting && !self.waiting.contains_key(&number) {
            return Err(Refused::Full);
        }
        self.last_index = Some(number);
        if self.is_late(number) {
            return Ok(());
        }
        self.pair(number, now).index = Some(index);
        self.share.holds(self.waiting.len());
        Ok(())
    }

    /// The stream is to enter another chunk at the given packet.
    pub(crate) const fn rotate_at(&mut self, at: PacketSeqNum, now: Instant) {
        self.rotation = Some(Rotation { at, since: now, forced: false });
    }

    /// Makes a waiting rotation happen at the next [`Merge::step`] outside a packet.
    pub(crate) const fn force_rotation(&mut self) {
        if let Some(rotation) = &mut self.rotation {
            rotation.forced = true;
        }
    }

    /// Whether a rotation waits, and since when.
    pub(crate) fn rotation_since(&self) -> Option<Instant> {
        self.rotation.map(|rotation| rotation.since)
    }

    /// Decides the next step; call until it says [`Step::Wait`].
    pub(crate) fn step(&mut self) -> Step {
        let lowest = self.waiting.first_key_value().map(|(number, pair)| (*number, *pair));
        if let Some(rotation) = self.rotation {
            let next = lowest.and_then(|(_, pair)| pair.index).map(packet_seq_num);
            let reached = rotation.at.get() == 0
                || self
                    .last_committed
                    .is_some_and(|p| p.get().saturating_add(1) >= rotation.at.get())
                || next.is_some_and(|next| next >= rotation.at)
                || rotation.forced;
            if reached && !self.in_flight {
                self.undo.rotation = self.rotation.take();
                return Step::Rotate(rotation.at);
            }
            if reached {
                return Step::Wait;
            }
        }
        match lowest {
            None => Step::Wait,
            Some((number, pair)) => self.resolve(number, pair, false),
        }
    }

    /// The last step, a commit or rotation, could not be done: it will be the next again.
    pub(crate) fn put_back(&mut self, step: Step) {
        match step {
            Step::Commit(place, index) => {
                let Some(since) = self.undo.since.take() else { return };
                let pair = Pair { place: Some(place), index: Some(index), since };
                self.waiting.insert(index.net_seq_num, pair);
                self.resolved = self.undo.resolved;
                self.last_committed = self.undo.last_committed;
            }
            Step::Rotate(_) => self.rotation = self.undo.rotation.take(),
            Step::Lost(_) | Step::Wait => {}
        }
    }

    /// Commits the lowest pair, or gives it up when its other half has been passed by or will not be waited for.
    fn resolve(&mut self, number: NetSeqNum, pair: Pair, is_over: bool) -> Step {
        let passed = |by: Option<NetSeqNum>| is_over || by.is_some_and(|by| by > number);
        let step = match pair {
            Pair { place: Some(place), index: Some(index), .. } => Step::Commit(place, index),
            Pair { place: Some(place), .. } if passed(self.last_index) => {
                Step::Lost(Lost::Index(number, place))
            }
            Pair { index: Some(index), .. } if passed(self.last_data) => {
                Step::Lost(Lost::Packet(number, index))
            }
            Pair { .. } => return Step::Wait,
        };
        if let Some(before) = self.resolved.map(NetSeqNum::next).filter(|next| *next < number) {
            let last = NetSeqNum::new(number.get() - 1);
            self.resolved = Some(last);
            return Step::Lost(Lost::Both(before, last));
        }
        self.waiting.remove(&number);
        self.share.holds(self.waiting.len());
        self.undo.since = Some(pair.since);
        self.undo.last_committed = self.last_committed;
        self.undo.resolved = self.resolved.replace(number);
        match step {
            Step::Commit(_, index) => self.last_committed = Some(packet_seq_num(index)),
            Step::Lost(Lost::Packet(..)) => self.lost_packet = Some(number),
            Step::Lost(_) | Step::Rotate(_) | Step::Wait => {}
        }
        step
    }

    /// Gives up the halves that wait longer than `timeout`. Call it after [`Merge::step`] said [`Step::Wait`].
    pub(crate) fn expire(&mut self, now: Instant, timeout: Duration) -> Vec<Step> {
        self.give_up(|pair| {
            let is_whole = pair.place.is_some() && pair.index.is_some();
            !is_whole && now.saturating_duration_since(pair.since) > timeout
        })
    }

    /// Gives up the oldest halves but for the newest that every stream may have.
    pub(crate) fn shed(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while self.waiting.len() > FREE
            && let Some((number, pair)) = self.waiting.first_key_value().map(|(n, p)| (*n, *p))
            && (pair.place.is_none() || pair.index.is_none())
        {
            steps.push(self.resolve(number, pair, true));
        }
        steps
    }

    /// Takes all that waits out; pairs that a rotation held are commits.
    pub(crate) fn drain(&mut self) -> Vec<Step> {
        self.give_up(|_| true)
    }

    /// Takes pairs out from the lowest on, as long as they are to be. What waits after a step is halves of one kind,
    /// the oldest first, or is held by a rotation until the packet being written is whole.
    fn give_up(&mut self, which: impl Fn(&Pair) -> bool) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((number, pair)) = self.waiting.first_key_value().map(|(n, p)| (*n, *p)) {
            if !which(&pair) {
                break;
            }
            steps.push(self.resolve(number, pair, true));
        }
        steps
    }

    /// Whether the packet has been committed or given up, or is unknown.
    pub(crate) fn is_resolved(&self, number: NetSeqNum) -> bool {
        !self.waiting.contains_key(&number)
    }

    /// Whether a packet is being written.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Whether the packet's entry came and the packet never will.
    pub(crate) fn has_lost(&self, number: NetSeqNum) -> bool {
        self.lost_packet == Some(number)
    }

    /// Forgets all halves that wait; gives where their packets are.
    pub(crate) fn forget_waiting(&mut self) -> impl Iterator<Item = Place> + use<> {
        self.share.holds(0);
        std::mem::take(&mut self.waiting).into_values().filter_map(|pair| pair.place)
    }

    /// The lowest place of a waiting packet, and every place for changing it after a move.
    pub(crate) fn waiting_places(&mut self) -> impl Iterator<Item = &mut Place> {
        self.waiting.values_mut().filter_map(|pair| pair.place.as_mut())
    }

    /// The lowest number of which a half waits.
    pub(crate) fn lowest_waiting(&self) -> Option<NetSeqNum> {
        self.waiting.first_key_value().map(|(number, _)| *number)
    }

    /// The last index entry that came.
    pub(crate) const fn last_index(&self) -> Option<NetSeqNum> {
        self.last_index
    }

    /// The packet committed last.
    pub(crate) const fn last_committed(&self) -> Option<PacketSeqNum> {
        self.last_committed
    }

    /// Whether every packet up to `last` has arrived, and every entry if `indexed`. Counts as the
    /// protocol does: signed distance, nothing yet is one before 0.
    pub(crate) fn is_complete(&self, last: NetSeqNum, indexed: bool) -> bool {
        let reached =
            |seen: Option<NetSeqNum>| seen.unwrap_or(NetSeqNum::NONE).distance_from(last) >= 0;
        !self.in_flight && reached(self.last_data) && (!indexed || reached(self.last_index))
    }

    fn pair(&mut self, number: NetSeqNum, now: Instant) -> &mut Pair {
        self.waiting.entry(number).or_insert(Pair { place: None, index: None, since: now })
    }
}

/// The packet's number in its stream; producers before LTTng 2.8 do not send it.
pub(crate) fn packet_seq_num(index: PacketIndex) -> PacketSeqNum {
    index.full.map_or(PacketSeqNum::new(u64::MAX), |full| full.packet_seq_num)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::live::{FullIndexFields, StreamHandle};

    const MAX: usize = 4;

    fn entry(net: u64, packet: u64) -> PacketIndex {
        PacketIndex {
            handle: StreamHandle::new(1),
            net_seq_num: NetSeqNum::new(net),
            packet_size_bits: 32_768,
            content_size_bits: 672,
            timestamp_begin: 0,
            timestamp_end: 0,
            events_discarded: 0,
            stream_class_id: 0,
            full: Some(FullIndexFields {
                stream_instance_id: 0,
                packet_seq_num: PacketSeqNum::new(packet),
            }),
        }
    }

    fn place(offset: u64) -> Place {
        Place { file: 0, offset }
    }

    /// Feeds `d<net>` packets (4096 bytes each), `i<net>:<packet>` entries and `r<packet>` rotations; gives the steps.
    fn run(merge: &mut Merge, script: &str) -> Vec<Step> {
        let now = Instant::now();
        let mut steps = Vec::new();
        for word in script.split_whitespace() {
            let (kind, rest) = word.split_at(1);
            match kind {
                "d" => {
                    let net = rest.parse().unwrap();
                    merge.packet_begins(NetSeqNum::new(net), MAX).unwrap();
                    merge.packet_done(NetSeqNum::new(net), place(net * 4096), true, now);
                }
                "i" => {
                    let (net, packet) = rest.split_once(':').unwrap();
                    let entry = entry(net.parse().unwrap(), packet.parse().unwrap());
                    merge.index(entry, MAX, now).unwrap();
                }
                _ => merge.rotate_at(PacketSeqNum::new(rest.parse().unwrap()), now),
            }
            loop {
                match merge.step() {
                    Step::Wait => break,
                    step => steps.push(step),
                }
            }
        }
        steps
    }

    fn rotate(packet: u64) -> Step {
        Step::Rotate(PacketSeqNum::new(packet))
    }

    fn without_index(net: u64) -> Step {
        Step::Lost(Lost::Index(NetSeqNum::new(net), place(net * 4096)))
    }

    fn without_packet(net: u64) -> Step {
        Step::Lost(Lost::Packet(NetSeqNum::new(net), entry(net, net)))
    }

    fn commit(net: u64, packet: u64) -> Step {
        Step::Commit(place(net * 4096), entry(net, packet))
    }

    #[test]
    fn halves_of_all_streams_have_one_bound_and_each_stream_keeps_some() {
        let halves = Arc::new(Halves::new(10 * HALF_BYTES, HALF_BYTES));
        let mut merges = [Merge::new(&halves), Merge::new(&halves)];
        let now = Instant::now();
        let bring = |merge: &mut Merge, number: u64| {
            let place = Place { file: 0, offset: 8 * number };
            merge.packet_begins(NetSeqNum::new(number), 1000).unwrap();
            merge.packet_done(NetSeqNum::new(number), place, true, now);
        };
        for number in 0..(FREE as u64 + 10) {
            bring(&mut merges[0], number);
        }
        for number in 0..FREE as u64 {
            bring(&mut merges[1], number);
        }
        assert!(!halves.is_full());
        bring(&mut merges[1], FREE as u64);
        assert!(halves.is_full());
        assert_eq!(merges[1].shed().len(), 1);
        assert!(!halves.is_full());
        // An entry still finds the newest of them.
        merges[1].index(entry(FREE as u64, 0), 1000, now).unwrap();
        assert!(!merges[1].is_resolved(NetSeqNum::new(FREE as u64)));
        bring(&mut merges[0], 100);
        assert!(halves.is_full());
        drop(merges);
        assert!(!halves.is_full());
    }

    #[test]
    fn a_pair_is_committed_whichever_half_comes_first() {
        let expected = vec![commit(0, 0), commit(1, 1)];
        for script in ["d0 i0:0 d1 i1:1", "i0:0 d0 i1:1 d1", "d0 d1 i0:0 i1:1", "i0:0 i1:1 d0 d1"] {
            assert_eq!(run(&mut Merge::default(), script), expected, "{script}");
        }
    }

    #[test]
    fn a_rotation_happens_between_the_packets_it_names() {
        let expected = vec![commit(0, 0), rotate(1), commit(1, 1)];
        for script in
            ["d0 i0:0 r1 d1 i1:1", "r1 d0 i0:0 d1 i1:1", "d0 d1 r1 i0:0 i1:1", "r1 i0:0 i1:1 d0 d1"]
        {
            assert_eq!(run(&mut Merge::default(), script), expected, "{script}");
        }
    }

    #[test]
    fn packets_lost_by_the_tracer_do_not_hold_a_rotation() {
        assert_eq!(
            run(&mut Merge::default(), "d0 i0:0 r5 d1 i1:7"),
            [commit(0, 0), rotate(5), commit(1, 7)]
        );
    }

    #[test]
    fn a_rotation_behind_what_is_committed_happens_at_once() {
        assert_eq!(
            run(&mut Merge::default(), "d0 i0:0 d1 i1:1 r1"),
            [commit(0, 0), commit(1, 1), rotate(1)]
        );
    }

    #[test]
    fn nothing_rotates_inside_a_packet() {
        let mut merge = Merge::default();
        merge.packet_begins(NetSeqNum::new(0), MAX).unwrap();
        assert_eq!(run(&mut merge, "r0"), []);
        merge.packet_done(NetSeqNum::new(0), place(0), true, Instant::now());
        assert_eq!(run(&mut merge, "i0:0"), [rotate(0), commit(0, 0)]);
    }

    #[test]
    fn a_half_that_was_passed_by_is_dropped() {
        assert_eq!(run(&mut Merge::default(), "d0 i1:1 d1"), [without_index(0), commit(1, 1)]);
        assert_eq!(run(&mut Merge::default(), "i0:0 d1 i1:1"), [without_packet(0), commit(1, 1)]);
    }

    #[test]
    fn numbers_that_neither_connection_brought_are_lost_between_two_that_came() {
        let both =
            |first, last| Step::Lost(Lost::Both(NetSeqNum::new(first), NetSeqNum::new(last)));
        for script in ["d3 i3:0 d7 i7:4", "i3:0 i7:4 d3 d7"] {
            let steps = run(&mut Merge::default(), script);
            assert_eq!(steps, [commit(3, 0), both(4, 6), commit(7, 4)], "{script}");
        }
        let steps = run(&mut Merge::default(), "d0 i0:0 i2:2 d3 i3:3");
        assert_eq!(steps, [commit(0, 0), both(1, 1), without_packet(2), commit(3, 3)]);
    }

    #[test]
    fn a_packet_is_resolved_when_it_waits_for_nothing() {
        let mut merge = Merge::default();
        run(&mut merge, "i0:0 i1:1");
        assert!(!merge.is_resolved(NetSeqNum::new(0)));
        run(&mut merge, "d1");
        assert!(merge.is_resolved(NetSeqNum::new(0)) && merge.is_resolved(NetSeqNum::new(1)));
    }

    #[test]
    fn numbers_must_increase_and_waiting_is_bounded() {
        let mut merge = Merge::default();
        run(&mut merge, "i0:0 i1:1 i2:2 i3:3");
        let now = Instant::now();
        assert_eq!(merge.index(entry(4, 4), MAX, now), Err(Refused::Full));
        assert_eq!(merge.index(entry(3, 3), MAX, now), Err(Refused::NotAfter(NetSeqNum::new(3))));
        assert_eq!(merge.packet_begins(NetSeqNum::new(4), MAX), Err(Refused::Full));
        assert_eq!(merge.packet_begins(NetSeqNum::new(0), MAX), Ok(()));
    }

    #[test]
    fn a_half_that_was_given_up_is_lost_once() {
        let given_up = 24;
        let (mut merge, now) = (Merge::default(), Instant::now());
        for number in 0..FREE as u64 + given_up {
            merge.packet_begins(NetSeqNum::new(number), 1000).unwrap();
            merge.packet_done(NetSeqNum::new(number), place(8 * number), true, now);
        }
        assert_eq!(merge.shed().len() as u64, given_up);
        let mut steps = Vec::new();
        for number in 0..FREE as u64 + given_up {
            merge.index(entry(number, number), 1000, now).unwrap();
            steps.extend(std::iter::from_fn(|| Some(merge.step()).filter(|it| *it != Step::Wait)));
        }
        let expected = (given_up..FREE as u64 + given_up)
            .map(|number| Step::Commit(place(8 * number), entry(number, number)));
        assert_eq!(steps, expected.collect::<Vec<_>>());
        // Likewise the other way round.
        let mut merge = Merge::default();
        run(&mut merge, "i0:0 i1:1");
        assert_eq!(merge.drain(), [without_packet(0), without_packet(1)]);
        assert_eq!(run(&mut merge, "d0 d1 d2 i2:2"), [commit(2, 2)]);
    }

    #[test]
    fn what_waits_too_long_is_dropped_by_reason() {
        let mut merge = Merge::default();
        run(&mut merge, "d0 d1");
        let later = Instant::now() + Duration::from_secs(10);
        assert_eq!(merge.expire(later, Duration::from_secs(60)), []);
        let given_up = merge.expire(later, Duration::from_secs(5));
        assert_eq!(given_up, [without_index(0), without_index(1)]);
        assert_eq!(merge.drain(), []);
        run(&mut merge, "i2:2");
        assert_eq!(merge.drain(), [without_packet(2)]);
    }

    #[test]
    fn complete_counts_as_the_protocol_does() {
        let mut merge = Merge::default();
        assert!(merge.is_complete(NetSeqNum::NONE, true));
        assert!(!merge.is_complete(NetSeqNum::new(0), true));
        run(&mut merge, "d0 d1 i0:0");
        assert!(merge.is_complete(NetSeqNum::new(0), true));
        assert!(!merge.is_complete(NetSeqNum::new(1), true));
        assert!(merge.is_complete(NetSeqNum::new(1), false));
    }
}
