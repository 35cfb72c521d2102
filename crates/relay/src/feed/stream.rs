//! What may be shown of one stream: the packets that were released, newest in memory, and what is known of its future.
//!
//! Packets are numbered in the order of their release. Each is in a trace file ([`Segments`] says in which); the newest
//! are in memory too. A viewer that is behind those brings the entries it has read ([`Page`]), or is told which to read
//! ([`Next::Stored`]); both kinds are one sequence, so nothing is twice or missing where they meet.
//!
//! Nothing here knows sockets, files or the clock: time comes in, and [`Stream::next`] decides.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ctf::index::IndexEntry;
use wire::live::{NetSeqNum, PacketIndex};

use super::chunks::ChunkKey;
use super::file::TraceFile;
use super::law::{self, Beacon};
use super::reach::Reach;
use super::segments::{Segment, Segments};
use super::since::Sought;
use crate::index;
use crate::merge::Place;

/// The number of the first packet that is released: smaller ones are of packets that were there before.
pub(crate) const ORIGIN: u64 = 1 << 48;

/// A packet that was released: it and its index entry are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The chunk it is in.
    pub(crate) chunk: ChunkKey,
    /// The trace file of the chunk.
    pub(crate) file: u64,
    /// Where it is in the file, and what its producer said of it.
    pub(crate) entry: IndexEntry,
    /// Its bytes are gone: overwritten or cleared.
    is_gone: bool,
}

/// Entries that a viewer has read from an index file.
#[derive(Debug)]
pub(crate) struct Page {
    pub(super) chunk: ChunkKey,
    /// The trace file of the chunk.
    pub(super) number: u64,
    /// Number of the first of `entries`.
    pub(super) first: u64,
    pub(super) entries: Vec<IndexEntry>,
    /// The trace file itself, until it is taken.
    pub(crate) file: Option<TraceFile>,
}

/// Entries that a viewer is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(super) segment: Segment,
    /// Number of the first one.
    pub(crate) number: u64,
    /// How many there are, in this file and not in memory.
    pub(super) count: u64,
}

/// What is known of a data stream.
#[derive(Debug)]
pub(crate) struct Stream {
    packets: VecDeque<Packet>,
    /// Number of the first of `packets`.
    first: u64,
    segments: Segments,
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
    /// Of a session without live timer: how many packets had been released, and when.
    pace: Reach,
    /// End of the last packet that was released.
    reached: Option<u64>,
    /// How long packets take to be sent: the longest from begin to end, of late.
    span: Duration,
    life: Life,
}

/// Whether more comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    /// Its producer is gone and may come back.
    Suspended,
    Closed,
}

/// How much of a stream is kept in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) packets: usize,
    /// Trace files that are known; packets of older ones cannot be found.
    pub(crate) files: usize,
    /// For sessions without live timer: how far back the pace is known.
    pub(crate) pace: Option<Duration>,
}

/// How much more is kept in memory, or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) packets: isize,
    pub(crate) files: isize,
}

const fn difference(before: usize, after: usize) -> isize {
    after.cast_signed() - before.cast_signed()
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

/// What is at a number.
enum At {
    Packet(Packet),
    Stored(Stored),
    /// It is gone, and so are all before this number.
    Gone(u64),
    /// It was not released.
    Nothing,
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

impl Packet {
    /// Bytes that it has.
    pub(crate) const fn len(&self) -> u64 {
        self.entry.total_length_bits / 8
    }
}

impl Stored {
    /// The trace file they are of.
    pub(crate) const fn file(&self) -> (ChunkKey, u64) {
        (self.segment.chunk, self.segment.file)
    }

    /// How many entries of the index file are before them.
    pub(super) const fn record(&self) -> u64 {
        self.number - self.segment.first
    }

    /// Behind the last one.
    pub(crate) const fn end(&self) -> u64 {
        self.number + self.count
    }
}

impl Page {
    /// Whether it is of the file that a packet is in.
    pub(crate) fn is_of(&self, packet: &Packet) -> bool {
        (self.chunk, self.number) == (packet.chunk, packet.file)
    }

    /// The first packet, and its file.
    pub(crate) fn take_first(self) -> Option<(TraceFile, Packet)> {
        let (chunk, file) = (self.chunk, self.number);
        let entry = *self.entries.first()?;
        Some((self.file?, Packet { chunk, file, entry, is_gone: false }))
    }

    /// A packet of a trace file, if its entry is here.
    fn packet(&self, segment: &Segment, number: u64) -> Option<Packet> {
        if !segment.is_in(self.chunk, self.number) {
            return None;
        }
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = *self.entries.get(at)?;
        Some(Packet { chunk: self.chunk, file: self.number, entry, is_gone: false })
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            packets: VecDeque::new(),
            first: ORIGIN,
            segments: Segments::default(),
            last_number: None,
            class: None,
            beacon: None,
            waiting: None,
            promised: None,
            is_incomplete: false,
            last_release: None,
            pace: Reach::default(),
            reached: None,
            span: Duration::ZERO,
            life: Life::Open,
        }
    }
}

impl Stream {
    /// Puts packets in front that were there before all others: for each trace file its chunk, its number and how many.
    pub(crate) fn prepend(
        &mut self,
        parts: Vec<(ChunkKey, u64, u64)>,
        class: Option<u64>,
        kept: usize,
    ) -> Change {
        self.class = self.class.or(class);
        let files = self.segments.prepend(parts, ORIGIN, kept);
        Change { packets: 0, files: difference(0, files) }
    }

    /// A packet has its turn. One whose file was overwritten before has no more than that: it says how far the stream is.
    pub(crate) fn pass(&mut self, entry: &PacketIndex, now: Instant) {
        debug_assert!(law::in_order(self.last_number, entry.net_seq_num));
        self.last_number = Some(entry.net_seq_num);
        self.class.get_or_insert(entry.stream_class_id);
        self.beacon = None;
        self.last_release = Some(now);
        self.reached = Some(entry.timestamp_end);
        self.span = law::span(self.span, entry.timestamp_begin, entry.timestamp_end);
    }

    /// A packet was released.
    pub(crate) fn release(
        &mut self,
        chunk: ChunkKey,
        place: Place,
        entry: &PacketIndex,
        now: Instant,
        kept: Kept,
    ) -> Change {
        self.pass(entry, now);
        let files = self.segments.len();
        self.segments.add(chunk, place.file, self.end_number());
        self.segments.cut(kept.files);
        let entry = index::entry(place.offset, entry);
        self.packets.push_back(Packet { chunk, file: place.file, entry, is_gone: false });
        if let Some(back) = kept.pace {
            self.pace.note(now, self.end_number(), back);
        }
        let excess = self.packets.len().saturating_sub(kept.packets.max(1));
        self.packets.drain(..excess);
        self.first += excess as u64;
        Change { packets: difference(excess, 1), files: difference(files, self.segments.len()) }
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
        self.life = Life::Closed;
    }

    /// Its producer is gone and may come back.
    pub(crate) const fn suspend(&mut self) {
        self.life = Life::Suspended;
    }

    /// Its producer is back, and numbers what it sends from the beginning.
    pub(crate) const fn reopen(&mut self) {
        self.life = Life::Open;
        self.last_number = None;
        (self.beacon, self.waiting, self.is_incomplete) = (None, None, false);
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.life, Life::Closed)
    }

    pub(crate) const fn class(&self) -> Option<u64> {
        self.class
    }

    /// How long its packets took to be sent.
    pub(crate) const fn span(&self) -> Duration {
        self.span
    }

    /// Packets in memory, and trace files that are known.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.packets.len(), self.segments.len())
    }

    /// The number of the packet that is released next.
    fn end_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// A cursor at the first packet that is there.
    pub(crate) fn beginning(&self) -> Cursor {
        let next = self.segments.first_from(0).unwrap_or_else(|| self.end_number());
        Cursor { next, ..Cursor::default() }
    }

    /// A cursor behind the last packet.
    pub(crate) fn end(&self) -> Cursor {
        Cursor { next: self.end_number(), ..Cursor::default() }
    }

    /// Where the first packet is that ends at this clock value or later.
    pub(super) fn seek(&self, cycles: u64) -> Sought {
        let older = self.packets.partition_point(|packet| packet.entry.timestamp_end < cycles);
        let in_files = self.segments.before(self.first);
        if older == 0 && !in_files.is_empty() {
            return Sought::In(in_files);
        }
        Sought::At(Cursor { next: self.first + older as u64, ..Cursor::default() })
    }

    /// Whether the packet `number` or a later one is in this chunk.
    pub(crate) fn has_from(&self, chunk: ChunkKey, number: u64) -> bool {
        self.segments.has_from(chunk, number)
    }

    /// Whether a viewer has all there will be.
    pub(crate) fn is_read(&self, cursor: &Cursor) -> bool {
        self.is_closed() && cursor.next >= self.end_number()
    }

    /// The packets of the trace files that `which` picks are gone; gives how many of those were known.
    pub(crate) fn lose(&mut self, which: impl Fn(ChunkKey, u64) -> bool) -> Change {
        for packet in self.packets.iter_mut().filter(|packet| which(packet.chunk, packet.file)) {
            packet.is_gone = true;
        }
        let files = self.segments.lose(|segment| which(segment.chunk, segment.file));
        Change { packets: 0, files: difference(files, 0) }
    }

    /// Packets from `first` of file `number` of one chunk on were moved to the front of the first file of another.
    /// They are the last `moved` ones.
    pub(crate) fn relocate(
        &mut self,
        (from, number, first): (ChunkKey, u64, u64),
        moved: u64,
        to: ChunkKey,
    ) -> Change {
        for packet in &mut self.packets {
            let offset = packet.entry.offset_bytes;
            if packet.chunk == from && packet.file == number && offset >= first {
                (packet.chunk, packet.file) = (to, 0);
                packet.entry.offset_bytes = offset - first;
            }
        }
        let files = self.segments.len();
        self.segments.relocate(moved, self.end_number(), to);
        Change { packets: 0, files: difference(files, self.segments.len()) }
    }

    fn at(&self, number: u64, page: Option<&Page>) -> At {
        let after_first = number.checked_sub(self.first);
        if let Some(at) = after_first.and_then(|at| usize::try_from(at).ok()) {
            return match self.packets.get(at) {
                Some(packet) if packet.is_gone => At::Gone(number + 1),
                Some(packet) => At::Packet(*packet),
                None => At::Nothing,
            };
        }
        let Some(segment) = self.segments.of(number) else {
            let next = self.segments.first_from(number).unwrap_or(self.first);
            return At::Gone(next.min(self.first));
        };
        match page.and_then(|page| page.packet(&segment, number)) {
            Some(packet) => At::Packet(packet),
            None => {
                let count = segment.end().min(self.first) - number;
                At::Stored(Stored { segment, number, count })
            }
        }
    }

    /// The packet with this number, or where its entry is when it is not in memory.
    pub(crate) fn find(&self, number: u64) -> Option<Result<Packet, Stored>> {
        match self.at(number, None) {
            At::Packet(packet) => Some(Ok(packet)),
            At::Stored(stored) => Some(Err(stored)),
            At::Gone(_) | At::Nothing => None,
        }
    }

    /// Whether entries are where they were when they were to be read.
    pub(crate) fn has(&self, stored: &Stored) -> bool {
        self.segments.of(stored.number).is_some_and(|segment| {
            segment.is_in(stored.segment.chunk, stored.segment.file)
                && segment.first == stored.segment.first
        })
    }

    /// Decides what a viewer is told, and moves its cursor over what it cannot get. After [`Next::Packet`] the caller
    /// sets `cursor.next` behind the packet it has given; after [`Next::Stored`] it asks again with those entries.
    pub(crate) fn next(
        &self,
        cursor: &mut Cursor,
        page: Option<&Page>,
        now: Instant,
        untimed: Option<Untimed<'_>>,
    ) -> Next {
        let waited = |since: Instant, grace| now.saturating_duration_since(since) >= grace;
        let held_from = untimed
            .filter(|it| !it.is_final)
            .map(|it| self.pace.before(now, it.grace).unwrap_or(ORIGIN));
        loop {
            let at = self.at(cursor.next, page);
            let is_held = held_from.is_some_and(|first| cursor.next >= first);
            match at {
                At::Nothing => break,
                At::Gone(next) => {
                    cursor.missed += next - cursor.next;
                    cursor.next = next;
                }
                At::Packet(_) | At::Stored(_) if is_held => return Next::NotYet,
                At::Stored(stored) => return Next::Stored(stored),
                At::Packet(packet) => {
                    if law::may_follow(packet.entry.timestamp_begin, cursor.told) {
                        return Next::Packet(cursor.next, packet);
                    }
                    cursor.withheld += 1;
                    cursor.next += 1;
                }
            }
        }
        if self.is_closed() {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::feed::law::MOST_SPAN;
    use std::sync::Arc;
    use wire::live::{ChunkId, StreamHandle};

    const KEPT: Kept = Kept { packets: 4, files: 3, pace: Some(MOST_SPAN) };

    fn chunk(number: u64) -> ChunkKey {
        ChunkKey::Since(ChunkId::new(number))
    }

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
        stream.release(chunk(0), place(number), &entry(number, begin, begin + 9), now, KEPT);
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
        ask_with(stream, cursor, None, now, untimed)
    }

    fn ask_with(
        stream: &Stream,
        cursor: &mut Cursor,
        page: Option<&Page>,
        now: Instant,
        untimed: Option<Untimed<'_>>,
    ) -> String {
        match stream.next(cursor, page, now, untimed) {
            Next::Packet(number, packet) => {
                cursor.next = number + 1;
                format!("packet {} at {}", number - ORIGIN, packet.entry.offset_bytes)
            }
            Next::Stored(Stored { segment, number, count }) => {
                format!("read {count} from {} of {}", number - segment.first, segment.file)
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
    fn what_is_not_in_memory_is_read() {
        let now = Instant::now();
        let mut stream = Stream::default();
        for number in 0..12 {
            let place = Place { file: number / 3, offset: number % 3 * 4096 };
            stream.release(chunk(0), place, &entry(number, number, number), now, KEPT);
        }
        assert_eq!(stream.len(), (4, 3), "the first file is forgotten");
        let mut cursor = stream.beginning();
        assert_eq!(cursor.next, ORIGIN + 3);
        assert_eq!(ask(&stream, &mut cursor, now, None), "read 3 from 0 of 1");
        let null = Arc::new(std::fs::File::open("/dev/null").unwrap());
        let page = |number, first| Page {
            chunk: chunk(0),
            number,
            first: ORIGIN + first,
            entries: (first..first + 2)
                .map(|number| index::entry(number % 3 * 4096, &entry(number, number, number)))
                .collect(),
            file: Some(TraceFile::written(&null)),
        };
        let mut say = |page| ask_with(&stream, &mut cursor, Some(&page), now, None);
        assert_eq!(say(page(1, 3)), "packet 3 at 0");
        assert_eq!(say(page(1, 3)), "packet 4 at 4096");
        assert_eq!(say(page(1, 3)), "read 1 from 2 of 1");
        assert_eq!(say(page(2, 5)), "read 1 from 2 of 1", "a page of another file");
        assert_eq!(say(page(1, 5)), "packet 5 at 8192");
        assert_eq!(say(page(1, 5)), "read 2 from 0 of 2");
        assert_eq!(say(page(2, 6)), "packet 6 at 0");
        assert_eq!(say(page(2, 6)), "packet 7 at 4096");
        let seen: Vec<String> = (0..5).map(|_| ask(&stream, &mut cursor, now, None)).collect();
        let memory =
            ["packet 8 at 8192", "packet 9 at 0", "packet 10 at 4096", "packet 11 at 8192"];
        assert_eq!(seen[..4], memory);
        assert_eq!((seen[4].as_str(), cursor.missed), ("not yet", 0));

        let mut late = stream.beginning();
        assert_eq!(stream.lose(|_, file| file == 1).files, -1);
        assert_eq!(ask(&stream, &mut late, now, None), "read 2 from 0 of 2");
        assert_eq!(late.missed, 3);
    }

    #[test]
    fn what_is_gone_is_missed_and_counted() {
        let now = Instant::now();
        let mut stream = Stream::default();
        let mut cursor = stream.beginning();
        for number in 0..6 {
            let place = Place { file: number, offset: 7 };
            stream.release(chunk(0), place, &entry(number, number, number), now, KEPT);
        }
        assert_eq!(stream.lose(|_, file| file == 2 || file == 4).files, -1);
        assert_eq!(ask(&stream, &mut cursor, now, None), "packet 3 at 7");
        assert_eq!(ask(&stream, &mut cursor, now, None), "packet 5 at 7");
        assert_eq!((cursor.missed, stream.len()), (4, (4, 2)));
    }

    #[test]
    fn packets_that_were_moved_are_found_where_they_are() {
        let now = Instant::now();
        let mut stream = Stream::default();
        for number in 0..4 {
            release(&mut stream, number, number * 10, now);
        }
        stream.relocate((chunk(0), 0, 8192), 2, chunk(1));
        let at = |number| {
            let packet = stream.find(ORIGIN + number).unwrap().unwrap();
            (packet.chunk, packet.entry.offset_bytes)
        };
        assert_eq!([at(1), at(2), at(3)], [(chunk(0), 4096), (chunk(1), 0), (chunk(1), 4096)]);
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
        stream.release(chunk(0), place(0), &first, at(0), KEPT);
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
}
