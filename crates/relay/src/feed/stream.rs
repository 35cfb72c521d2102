//! What may be shown of one stream: the packets that were released, newest in memory, and what is known of its future.
//!
//! Nothing here knows sockets, files or the clock: time comes in, and [`Stream::next`] decides.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::live::{ChunkId, NetSeqNum, PacketIndex};

use super::law::{self, Beacon};
use crate::merge::Place;

/// A packet that was released: it and its index entry are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The chunk it is in.
    pub(crate) chunk: ChunkId,
    /// Where it is in the chunk.
    pub(crate) place: Place,
    /// What its producer said of it.
    pub(crate) entry: PacketIndex,
    released: Instant,
    /// Its bytes are gone: overwritten or cleared.
    is_gone: bool,
}

/// What is known of a data stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    packets: VecDeque<Packet>,
    /// Number of the first of `packets`, counted from 0 in the stream's life.
    first: u64,
    last_number: Option<NetSeqNum>,
    /// CTF stream class; the same in every answer.
    class: Option<u64>,
    /// In force, and no packet was released since.
    beacon: Option<u64>,
    /// Came before the packets it speaks of.
    waiting: Option<(NetSeqNum, u64)>,
    /// The latest time a beacon named, in force for good.
    promised: Option<u64>,
    /// Halves of packets wait for their other half.
    is_incomplete: bool,
    last_release: Option<Instant>,
    /// End of the last packet that was released.
    reached: Option<u64>,
    /// How long packets take to be sent: the longest from begin to end, of late.
    span: Duration,
    is_closed: bool,
}

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

/// What a viewer is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The packet with this number in the stream's life.
    Packet(u64, Packet),
    /// No event before this time is still to come.
    Inactive {
        until: u64,
        class: u64,
    },
    NotYet,
    /// The stream has ended and the viewer has all of it.
    Ended,
}

/// How a session without live timer is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untimed<'a> {
    /// How long a packet is held back so that metadata can catch up, and how long a stream must be silent before it is
    /// taken to have nothing.
    pub(crate) grace: Duration,
    /// How far the streams of the session were, and when.
    pub(crate) reach: &'a Reach,
    /// The longest [`Stream::span`] in the session: a stream whose packets were all quick may have a slow one.
    pub(crate) span: Duration,
    /// All metadata have come: packets need not wait for them.
    pub(crate) is_final: bool,
    /// A class for a stream that has not named its own: that of another stream of its channel.
    pub(crate) class: Option<u64>,
}

impl Stream {
    /// A packet was released. `kept` is how many are to be kept; gives how many were let go.
    pub(crate) fn release(
        &mut self,
        chunk: ChunkId,
        place: Place,
        entry: PacketIndex,
        now: Instant,
        kept: usize,
    ) -> usize {
        debug_assert!(law::in_order(self.last_number, entry.net_seq_num));
        self.last_number = Some(entry.net_seq_num);
        self.class.get_or_insert(entry.stream_class_id);
        self.beacon = None;
        self.last_release = Some(now);
        self.reached = Some(entry.timestamp_end);
        self.span = law::span(self.span, entry.timestamp_begin, entry.timestamp_end);
        self.packets.push_back(Packet { chunk, place, entry, released: now, is_gone: false });
        let mut dropped = 0;
        while self.packets.len() > kept.max(1) {
            self.packets.pop_front();
            self.first += 1;
            dropped += 1;
        }
        dropped
    }

    /// Whether a packet keeps what beacons promised.
    pub(crate) fn keeps_promise(&self, entry: &PacketIndex) -> bool {
        law::keeps_promise(entry.timestamp_begin, self.promised)
    }

    /// A beacon came.
    pub(crate) const fn beacon(&mut self, beacon: &PacketIndex) {
        if self.class.is_none() {
            self.class = Some(beacon.stream_class_id);
        }
        self.waiting = Some((beacon.net_seq_num, beacon.timestamp_end));
    }

    /// What waits for its other half after something came: decides on the beacon that waits.
    pub(crate) fn settled(
        &mut self,
        lowest_waiting: Option<NetSeqNum>,
        last_entry: Option<NetSeqNum>,
    ) {
        self.is_incomplete = lowest_waiting.is_some();
        let Some((sent, until)) = self.waiting else { return };
        match law::beacon(sent, lowest_waiting, last_entry) {
            Beacon::Waits => {}
            Beacon::Stale => self.waiting = None,
            Beacon::Effective => {
                self.waiting = None;
                self.beacon = Some(until);
                self.promised = self.promised.max(Some(until));
            }
        }
    }

    /// Nothing more comes.
    pub(crate) const fn close(&mut self) {
        self.is_closed = true;
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) const fn class(&self) -> Option<u64> {
        self.class
    }

    /// How long its packets took to be sent.
    pub(crate) const fn span(&self) -> Duration {
        self.span
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// A cursor at the first packet that is kept.
    pub(crate) fn beginning(&self) -> Cursor {
        Cursor { next: self.first, ..Cursor::default() }
    }

    /// A cursor behind the last packet.
    pub(crate) fn end(&self) -> Cursor {
        Cursor { next: self.first + self.packets.len() as u64, ..Cursor::default() }
    }

    /// Whether a viewer has all there will be.
    pub(crate) fn is_read(&self, cursor: &Cursor) -> bool {
        self.is_closed && cursor.next >= self.end().next
    }

    /// The packet with this number, if it is kept and there.
    pub(crate) fn packet(&self, number: u64) -> Option<&Packet> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get(at).filter(|packet| !packet.is_gone)
    }

    /// The packets that `which` picks are gone.
    pub(crate) fn lose(&mut self, which: impl Fn(&Packet) -> bool) {
        for packet in self.packets.iter_mut().filter(|packet| which(packet)) {
            packet.is_gone = true;
        }
    }

    /// Packets from `first` of file `number` of one chunk on were moved to the front of the first file of another.
    pub(crate) fn relocate(&mut self, from: ChunkId, number: u64, first: u64, to: ChunkId) {
        for packet in &mut self.packets {
            let Place { file, offset } = packet.place;
            if packet.chunk == from && file == number && offset >= first {
                packet.chunk = to;
                packet.place = Place { file: 0, offset: offset - first };
            }
        }
    }

    /// Decides what a viewer is told, and moves its cursor over what it cannot get. After [`Next::Packet`] the caller
    /// sets `cursor.next` behind the packet it has given.
    pub(crate) fn next(
        &self,
        cursor: &mut Cursor,
        now: Instant,
        untimed: Option<Untimed<'_>>,
    ) -> Next {
        if cursor.next < self.first {
            cursor.missed += self.first - cursor.next;
            cursor.next = self.first;
        }
        let waited = |since: Instant, grace| now.saturating_duration_since(since) >= grace;
        let skipped = usize::try_from(cursor.next - self.first).unwrap_or(usize::MAX);
        for packet in self.packets.iter().skip(skipped) {
            if packet.is_gone {
                cursor.missed += 1;
            } else if untimed.is_some_and(|it| !it.is_final && !waited(packet.released, it.grace)) {
                return Next::NotYet;
            } else if law::may_follow(packet.entry.timestamp_begin, cursor.told) {
                return Next::Packet(cursor.next, *packet);
            } else {
                cursor.withheld += 1;
            }
            cursor.next += 1;
        }
        if self.is_closed {
            return Next::Ended;
        }
        let silent = untimed.filter(|it| {
            !self.is_incomplete && self.last_release.is_none_or(|last| waited(last, it.grace))
        });
        let silence = silent.and_then(|it| it.reach.before(now, it.grace + self.span.max(it.span)));
        // A time before the end of a packet that was given would take the viewer back.
        let until = self.beacon.max(silence).filter(|until| Some(*until) >= self.reached);
        let class = self.class.or(untimed.and_then(|it| it.class));
        match (until, class) {
            (Some(until), Some(class)) => {
                cursor.told = cursor.told.max(until);
                Next::Inactive { until: cursor.told, class }
            }
            _ => Next::NotYet,
        }
    }
}

/// The latest time any stream of a session had reached, now and a while ago.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// When, and how far; both increase.
    steps: VecDeque<(Instant, u64)>,
}

/// Steps closer together than this are one, counted from the later.
const REACH_STEP: Duration = Duration::from_millis(50);

impl Reach {
    /// A stream has reached a time. Keeps what is needed to look back by `back`: about `back` / 25 ms steps at most.
    pub(crate) fn note(&mut self, now: Instant, time: u64, back: Duration) {
        let before = self.steps.back().copied();
        if before.is_some_and(|(_, reached)| reached >= time) {
            return;
        }
        // The last step is moved up only while the one before it is near, so that steps cannot be put off for ever.
        let previous = self.steps.len().checked_sub(2).and_then(|at| self.steps.get(at));
        let is_near =
            previous.is_some_and(|(then, _)| now.saturating_duration_since(*then) < REACH_STEP);
        if is_near {
            self.steps.pop_back();
        }
        self.steps.push_back((now, time));
        while self.steps.get(1).is_some_and(|(then, _)| has_passed(now, *then, back)) {
            self.steps.pop_front();
        }
    }

    /// The latest time reached at least `back` ago.
    pub(crate) fn before(&self, now: Instant, back: Duration) -> Option<u64> {
        let old = self.steps.iter().rev().find(|(then, _)| has_passed(now, *then, back));
        old.map(|(_, time)| *time)
    }
}

fn has_passed(now: Instant, then: Instant, back: Duration) -> bool {
    now.saturating_duration_since(then) >= back
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::feed::law::MOST_SPAN;
    use wire::live::StreamHandle;

    pub(crate) fn entry(number: u64, begin: u64, end: u64) -> PacketIndex {
        PacketIndex {
            handle: StreamHandle::new(1),
            net_seq_num: NetSeqNum::new(number),
            packet_size_bits: if begin == u64::MAX { 0 } else { 32_768 },
            content_size_bits: 672,
            timestamp_begin: begin,
            timestamp_end: end,
            events_discarded: 0,
            stream_class_id: 7,
            full: None,
        }
    }

    fn place(number: u64) -> Place {
        Place { file: 0, offset: number * 4096 }
    }

    fn release(stream: &mut Stream, number: u64, begin: u64, now: Instant) {
        let entry = entry(number, begin, begin + 9);
        stream.release(ChunkId::new(0), place(number), entry, now, 4);
        stream.settled(None, Some(NetSeqNum::new(number)));
    }

    fn beacon(stream: &mut Stream, number: u64, until: u64) {
        stream.beacon(&entry(number, u64::MAX, until));
        stream.settled(None, Some(NetSeqNum::new(number)));
    }

    /// The next answer as text; a packet is taken.
    fn ask(
        stream: &Stream,
        cursor: &mut Cursor,
        now: Instant,
        untimed: Option<Untimed<'_>>,
    ) -> String {
        match stream.next(cursor, now, untimed) {
            Next::Packet(number, packet) => {
                cursor.next = number + 1;
                format!("packet {number} at {}", packet.place.offset)
            }
            Next::Inactive { until, class } => format!("nothing before {until} (class {class})"),
            Next::NotYet => "not yet".to_owned(),
            Next::Ended => "ended".to_owned(),
        }
    }

    #[test]
    fn a_stream_with_a_live_timer_is_packets_and_beacons() {
        let now = Instant::now();
        let mut stream = Stream::default();
        let mut cursor = stream.beginning();
        assert_eq!(ask(&stream, &mut cursor, now, None), "not yet");
        beacon(&mut stream, u64::MAX, 50);
        assert_eq!(ask(&stream, &mut cursor, now, None), "nothing before 50 (class 7)");
        release(&mut stream, 0, 100, now);
        assert_eq!(ask(&stream, &mut cursor, now, None), "packet 0 at 0");
        assert_eq!(ask(&stream, &mut cursor, now, None), "not yet");
        beacon(&mut stream, 0, 150);
        assert_eq!(ask(&stream, &mut cursor, now, None), "nothing before 150 (class 7)");
        stream.close();
        assert_eq!(ask(&stream, &mut cursor, now, None), "ended");
    }

    #[test]
    fn a_beacon_waits_for_the_packets_it_speaks_of() {
        let mut stream = Stream::default();
        let mut cursor = stream.beginning();
        let now = Instant::now();
        let number = NetSeqNum::new(0);
        stream.settled(Some(number), Some(number));
        stream.beacon(&entry(0, u64::MAX, 150));
        stream.settled(Some(number), Some(number));
        assert_eq!(ask(&stream, &mut cursor, now, None), "not yet");
        release(&mut stream, 0, 100, now);
        assert_eq!(ask(&stream, &mut cursor, now, None), "packet 0 at 0");
        assert_eq!(ask(&stream, &mut cursor, now, None), "nothing before 150 (class 7)");
    }

    #[test]
    fn a_packet_that_was_said_not_to_come_is_withheld() {
        let now = Instant::now();
        let mut stream = Stream::default();
        let mut early = stream.beginning();
        beacon(&mut stream, u64::MAX, 50);
        ask(&stream, &mut early, now, None);
        assert!(!stream.keeps_promise(&entry(0, 40, 49)));
        release(&mut stream, 0, 40, now);
        release(&mut stream, 1, 60, now);
        assert_eq!(ask(&stream, &mut early, now, None), "packet 1 at 4096");
        assert_eq!((early.withheld, early.missed), (1, 0));
        let mut late = stream.beginning();
        assert_eq!(ask(&stream, &mut late, now, None), "packet 0 at 0");
    }

    #[test]
    fn what_is_gone_is_missed_and_counted() {
        let now = Instant::now();
        let mut stream = Stream::default();
        let mut cursor = stream.beginning();
        for number in 0..6 {
            release(&mut stream, number, number * 10, now);
        }
        stream.lose(|packet| packet.place.offset == 3 * 4096);
        assert_eq!(ask(&stream, &mut cursor, now, None), "packet 2 at 8192");
        assert_eq!(ask(&stream, &mut cursor, now, None), "packet 4 at 16384");
        assert_eq!((cursor.missed, stream.len()), (3, 4));
    }

    #[test]
    fn packets_that_were_moved_are_found_where_they_are() {
        let now = Instant::now();
        let mut stream = Stream::default();
        for number in 0..4 {
            release(&mut stream, number, number * 10, now);
        }
        stream.relocate(ChunkId::new(0), 0, 8192, ChunkId::new(1));
        let at = |number| stream.packet(number).map(|p| (p.chunk.get(), p.place.offset)).unwrap();
        assert_eq!([at(1), at(2), at(3)], [(0, 4096), (1, 0), (1, 4096)]);
    }

    #[test]
    fn without_a_timer_silence_speaks_after_a_while() {
        let start = Instant::now();
        let grace = Duration::from_secs(2);
        let at = |millis| start + Duration::from_millis(millis);
        let mut reach = Reach::default();
        let mut stream = Stream::default();
        let mut cursor = stream.beginning();
        let say = |stream: &Stream, cursor: &mut Cursor, millis, reach: &Reach| {
            let is_final = stream.is_closed();
            let untimed = Untimed { grace, reach, span: Duration::ZERO, is_final, class: None };
            ask(stream, cursor, at(millis), Some(untimed))
        };
        // Its packets take 400 ms to be sent.
        let first = entry(0, 100, 400_000_100);
        stream.release(ChunkId::new(0), place(0), first, at(0), 4);
        stream.settled(None, Some(NetSeqNum::new(0)));
        assert_eq!(say(&stream, &mut cursor, 1999, &reach), "not yet");
        assert_eq!(say(&stream, &mut cursor, 2000, &reach), "packet 0 at 0");
        assert_eq!(say(&stream, &mut cursor, 2000, &reach), "not yet");
        reach.note(at(100), 300_000_000, MOST_SPAN);
        assert_eq!(say(&stream, &mut cursor, 2501, &reach), "not yet", "it would go back");
        reach.note(at(200), 500_000_000, MOST_SPAN);
        assert_eq!(say(&stream, &mut cursor, 2599, &reach), "not yet");
        assert_eq!(say(&stream, &mut cursor, 2600, &reach), "nothing before 500000000 (class 7)");
        release(&mut stream, 1, 600_000_000, at(3000));
        assert_eq!(say(&stream, &mut cursor, 3000, &reach), "not yet");
        stream.close();
        assert_eq!(say(&stream, &mut cursor, 3000, &reach), "packet 1 at 4096");
        assert_eq!(say(&stream, &mut cursor, 3000, &reach), "ended");
    }

    #[test]
    fn a_silent_stream_takes_class_and_span_of_others() {
        let start = Instant::now();
        let mut reach = Reach::default();
        reach.note(start, 5, MOST_SPAN);
        let (grace, span) = (Duration::from_millis(10), Duration::from_millis(30));
        let stream = Stream::default();
        let say = |millis, class| {
            let untimed = Untimed { grace, reach: &reach, span, is_final: false, class };
            let now = start + Duration::from_millis(millis);
            ask(&stream, &mut stream.beginning(), now, Some(untimed))
        };
        assert_eq!(say(40, None), "not yet");
        assert_eq!(say(39, Some(3)), "not yet");
        assert_eq!(say(40, Some(3)), "nothing before 5 (class 3)");
    }

    #[test]
    fn reach_looks_back() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let back = Duration::from_millis(500);
        let mut reach = Reach::default();
        for millis in 0..5000 {
            reach.note(at(millis), millis, back);
            assert!(reach.steps.len() <= 2 + 500 / 25 + 2, "{}", reach.steps.len());
            let before = reach.before(at(millis), back);
            let limit = millis.checked_sub(500);
            assert!(before <= limit, "{before:?} at {millis}");
            let is_near = before.map(|before| before + 100) >= limit.filter(|limit| *limit >= 100);
            assert!(is_near, "{before:?} at {millis}");
        }
    }
}
