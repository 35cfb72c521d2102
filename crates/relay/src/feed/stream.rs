//! What may be shown of one stream: the packets that were released, newest in memory, and what is known of its future.
//!
//! Packets are numbered in the order of their release. Each is in a trace file ([`Segments`] says in which); the newest
//! are in memory too. A viewer that is behind those brings the entries it has read ([`Page`]), or is told which to read
//! ([`Next::Stored`]); both kinds are one sequence, so nothing is twice or missing where they meet.
//!
//! Nothing here knows sockets, files or the clock: time comes in, and [`Stream::next`] decides.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::live::{NetSeqNum, PacketIndex};

use super::chunks::ChunkKey;
use super::cursor::{Cursor, Next, ORIGIN};
use super::law::{self, Beacon};
use super::packet::{Packet, Page, Stored};
use super::reach::Reach;
use super::segments::Segments;
use super::since::Sought;
use super::untimed::Untimed;
use crate::index;
use crate::merge::Place;

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

/// What is at a number.
enum At {
    Packet(Packet),
    Stored(Stored),
    /// It is gone, and so are all before this number.
    Gone(u64),
    /// It was not released.
    Nothing,
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

    /// Packets from `first` of file `number` of one chunk on were moved to the first files of another.
    /// They are the last ones; `moved` says how many are in each of those files.
    pub(crate) fn relocate(
        &mut self,
        (from, number, first): (ChunkKey, u64, u64),
        moved: &[u64],
        to: ChunkKey,
    ) -> Change {
        for packet in &mut self.packets {
            let offset = packet.entry.offset_bytes;
            if packet.chunk == from && packet.file == number && offset >= first {
                (packet.chunk, packet.file) = (to, 0);
                packet.entry.offset_bytes = offset - first;
            } else if packet.chunk == from && packet.file > number {
                (packet.chunk, packet.file) = (to, packet.file - number);
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
pub(super) mod tests;
