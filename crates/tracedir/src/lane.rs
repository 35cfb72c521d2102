//! One stream in the merge: packet after packet, event record after event record.

use std::io;

use bytes::Bytes;
use ctf::packet::{EventReader, Outcome};
use ctf::{DecodeError, DecodeErrorKind, StreamClass};
use model::{TimeRange, Timestamp};

use crate::finding::{Cause, Finding, Findings};
use crate::heads::Head;
use crate::merge::LossKind;
use crate::skip;
use crate::stream::{PacketFile, Stream};
use crate::window::{FIRST_LOOK, Window};

/// Longest packet that is read. LTTng's largest sub-buffers are smaller by far.
pub const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Whether a stream goes on to its next packet before the end of the last one is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketEnds {
    /// It does: event records come in order of time also where a stream's packets overlap.
    #[default]
    Passed,
    /// It waits until all other streams have come to the packet's end timestamp. Babeltrace does; where packets overlap
    /// (LTTng-UST 2.3), event records then come late.
    Awaited,
}

/// What a lane offers next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    /// A packet that is not in memory yet.
    Packet,
    /// A packet whose first event record is the next.
    Opened,
    /// A packet whose first event record the reader stands at.
    First,
    /// The end of a packet whose event records have all been given.
    PacketEnd,
    /// The end of the range.
    RangeEnd,
    /// The reader's current event record.
    Event,
    /// A loss before the packet that comes next.
    Loss,
}

/// A loss without its stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) kind: LossKind,
    pub(crate) count: u64,
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
}

/// What the packet before said, with its times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    pub(crate) end: Option<Timestamp>,
    pub(crate) discarded: Option<u64>,
    pub(crate) sequence: Option<u64>,
}

/// Begins at a file's first packet without reading it: its header is known from opening the recording.
///
/// What every event record needs lies side by side: with a thousand lanes, the nearest caches hold no more than that.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lane {
    /// Time of the last turn, for event records without a clock.
    at: i64,
    packets: u64,
    pending: Pending,
    packet_ends: PacketEnds,
    /// What is pending after the losses.
    entry: Pending,
    /// Whether a file that is not there is waited for: a rotation may have moved it.
    patient: bool,
    reader: Option<EventReader<Bytes>>,
    range: TimeRange,
    /// Position of the file that is being read.
    file: usize,
    /// Where in it the next packet begins.
    offset: u64,
    /// Where the packet that the reader is in begins.
    packet_offset: u64,
    window: Window,
    /// Length of the packet before, which is most often the length of the next one.
    usual: usize,
    /// When the packet that is being read ends.
    packet_end: Option<Timestamp>,
    /// Losses before the packet that waits, the later one first.
    losses: [Option<Lost>; 2],
    /// The loss that is pending.
    loss: Option<Lost>,
    before: Option<Before>,
    /// What is to be kept of the first packet when packets before it were passed.
    passed: Option<Before>,
    /// Since what time something is waited for.
    stalled: Option<i64>,
}

impl Lane {
    pub(crate) fn new(window: Window, packet_ends: PacketEnds) -> Self {
        Self {
            packet_ends,
            packet_end: None,
            range: TimeRange::ALL,
            file: 0,
            offset: 0,
            packet_offset: 0,
            window,
            usual: FIRST_LOOK,
            reader: None,
            pending: Pending::Packet,
            entry: Pending::Packet,
            losses: [None; 2],
            loss: None,
            before: None,
            passed: None,
            packets: 0,
            patient: false,
            stalled: None,
            at: i64::MIN,
        }
    }

    pub(crate) const fn pending(&self) -> Pending {
        self.pending
    }

    /// The loss that is pending.
    #[inline]
    pub(crate) fn loss(&self) -> Option<Lost> {
        self.loss.filter(|_| self.pending == Pending::Loss)
    }

    pub(crate) const fn reader(&self) -> Option<&EventReader<Bytes>> {
        self.reader.as_ref()
    }

    /// How many packets had their turn so far.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    pub(crate) const fn packet_index(&self) -> u64 {
        self.packets.saturating_sub(1)
    }

    /// Position in the stream of the file that is being read.
    pub(crate) const fn file(&self) -> usize {
        self.file
    }

    /// The first `files` files of the stream, which were all read, are not in its list any more.
    pub(crate) const fn forget(&mut self, files: usize) {
        self.file = self.file.saturating_sub(files);
    }

    /// Whether a packet was met.
    pub(crate) const fn has_begun(&self) -> bool {
        self.packets > 0
    }

    /// Whether to come to an end, until asked again, where a file is not there; otherwise that is a finding.
    pub(crate) const fn set_patient(&mut self, patient: bool) {
        self.patient = patient;
    }

    /// The time from which on a file is missing that is waited for.
    pub(crate) const fn stalled(&self) -> Option<i64> {
        self.stalled
    }

    /// Stands before the first packet that may matter for `range`; gives the time of the first turn.
    pub(crate) fn begin(
        &mut self,
        stream: &Stream,
        range: TimeRange,
        findings: &mut Findings,
    ) -> Option<i64> {
        self.range = range;
        if range.begin > Timestamp::MIN {
            self.skip_to(stream, range.begin);
        }
        self.next_packet(stream, findings)
    }

    /// Consumes an event record if the next turn is the packet's next event record, has a time, and was gone over
    /// already; gives that time.
    #[inline]
    pub(crate) fn step_on(&mut self) -> Option<i64> {
        if self.pending != Pending::Event {
            return None;
        }
        let at = self.reader.as_mut()?.step_on()?;
        self.at = at;
        Some(at)
    }

    /// Consumes what is pending; gives the time of the next turn, `None` at the stream's end.
    pub(crate) fn advance(&mut self, stream: &Stream, findings: &mut Findings) -> Option<i64> {
        if self.pending != Pending::Event {
            match self.pending {
                Pending::Loss => return Some(self.after_loss()),
                Pending::PacketEnd => return self.next_packet(stream, findings),
                Pending::Packet => match self.open_announced(stream, findings) {
                    Ok(()) => {}
                    Err(next) => return next,
                },
                Pending::First => {
                    self.pending = Pending::Event;
                    return Some(self.event_time());
                }
                Pending::RangeEnd => return self.finish(),
                Pending::Opened | Pending::Event => {}
            }
            self.pending = Pending::Event;
        }
        let reader = self.reader.as_mut()?;
        match reader.advance() {
            Ok(true) => Some(self.event_time()),
            Ok(false) => self.leave_packet(stream, findings),
            Err(error) => {
                self.report(stream, error, findings);
                self.leave_packet(stream, findings)
            }
        }
    }

    /// Time of the reader's event record; without a clock, that of the turn before.
    #[inline]
    fn event_time(&mut self) -> i64 {
        if let Some(at) = self.reader.as_ref().and_then(EventReader::timestamp_ns) {
            self.at = at;
        }
        self.at
    }

    /// Goes through the whole stream and counts, as far as they lie in the range, its event records; losses go to
    /// `lose`, lengths of packets to `pass`.
    pub(crate) fn count(
        &mut self,
        stream: &Stream,
        range: TimeRange,
        findings: &mut Findings,
        mut lose: impl FnMut(Lost),
        mut pass: impl FnMut(u64),
    ) -> (u64, u64) {
        let (mut events, mut backward) = (0, 0);
        let mut turn = self.begin(stream, range, findings);
        while let Some(at) = turn {
            let is_in = range.contains(Timestamp::from_nanos(at));
            match self.pending {
                Pending::Loss => self.loss.filter(|_| is_in).into_iter().for_each(&mut lose),
                Pending::Packet => {
                    if let Err(next) = self.open_announced(stream, findings) {
                        turn = next;
                        continue;
                    }
                    self.pending = Pending::Opened;
                    continue;
                }
                Pending::First | Pending::Event => events += u64::from(is_in),
                Pending::Opened => {
                    let Some(reader) = self.reader.as_mut() else { break };
                    pass(reader.packet().total_bytes().unwrap_or(0));
                    let count = reader.count_rest(range.begin.nanos()..range.end.nanos());
                    events += count.events + if is_in { count.untimed } else { 0 };
                    backward += count.backward;
                    if let Some(error) = count.error {
                        self.report(stream, error, findings);
                    }
                    turn = self.leave_packet(stream, findings);
                    continue;
                }
                Pending::PacketEnd | Pending::RangeEnd => {}
            }
            // After the first event record of a packet the others are counted together.
            if self.pending == Pending::First {
                self.pending = Pending::Opened;
            } else {
                turn = self.advance(stream, findings);
            }
        }
        (events, backward)
    }

    fn leave_packet(&mut self, stream: &Stream, findings: &mut Findings) -> Option<i64> {
        match self.packet_end.filter(|_| self.packet_ends == PacketEnds::Awaited) {
            Some(end) => {
                self.pending = Pending::PacketEnd;
                self.at = self.at.max(end.nanos());
                Some(self.at)
            }
            None => self.next_packet(stream, findings),
        }
    }

    #[cold]
    fn report(&self, stream: &Stream, error: DecodeError, findings: &mut Findings) {
        if let Some(file) = stream.files.get(self.file) {
            findings.push(Finding::Packet {
                path: file.file.path.clone(),
                offset_bytes: self.packet_offset,
                cause: Cause::Damaged(Box::new(error)),
            });
        }
    }

    /// Announces the next packet that can be read; losses before it have their turns first. At the end, asking again
    /// goes on with what was added to the stream.
    pub(crate) fn next_packet(&mut self, stream: &Stream, findings: &mut Findings) -> Option<i64> {
        self.stalled = None;
        loop {
            let Some(file) = stream.files.get(self.file) else { return self.finish() };
            if self.offset >= file.file.len {
                let next = self.file + 1;
                let Some(start) = stream.files.get(next).map(|file| file.start) else {
                    return self.finish();
                };
                self.turn_to(next, start);
                continue;
            }
            self.packet_offset = self.offset;
            if self.offset == file.first.offset && !self.window.is_open() && !file.early {
                return self.announce(file, file.first, Pending::Packet);
            }
            match self.open(file) {
                Ok(head) if file.early => return self.announce_early(stream, file, head, findings),
                Ok(head) => return self.announce(file, head, Pending::Opened),
                Err(cause) if self.waits_for(&cause) => return self.stall(),
                Err(cause) => self.give_up(file, cause, findings),
            }
        }
    }

    /// The stream is over, or the range is: takes no more memory.
    fn finish(&mut self) -> Option<i64> {
        self.reader = None;
        self.window.close();
        None
    }

    fn stall(&mut self) -> Option<i64> {
        self.stalled = Some(self.at);
        self.finish()
    }

    fn waits_for(&self, cause: &Cause) -> bool {
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        self.patient && matches!(cause, Cause::Io(error) if absent(error))
    }

    /// Reads the packet that was announced by its header. Otherwise gives what comes next.
    fn open_announced(
        &mut self,
        stream: &Stream,
        findings: &mut Findings,
    ) -> Result<(), Option<i64>> {
        let Some(file) = stream.files.get(self.file) else { return Err(None) };
        self.offset = self.packet_offset;
        match self.open(file) {
            Ok(head) => {
                self.offset = head.next_offset().unwrap_or(file.file.len);
                Ok(())
            }
            Err(cause) if self.waits_for(&cause) => Err(self.stall()),
            Err(cause) => {
                self.give_up(file, cause, findings);
                Err(self.next_packet(stream, findings))
            }
        }
    }

    /// Leaves a packet whose header is of no use: for the next one if its length or the index tells where that
    /// is, else for the next file.
    #[cold]
    fn give_up(&mut self, file: &PacketFile, cause: Cause, findings: &mut Findings) {
        let (path, offset_bytes) = (file.file.path.clone(), self.packet_offset);
        let announced = || match &cause {
            Cause::Damaged(error) => match error.kind {
                DecodeErrorKind::PacketSizes { total_bits, .. } if total_bits % 8 == 0 => {
                    let next = offset_bytes.checked_add(total_bits / 8)?;
                    (next > offset_bytes && next <= file.file.len).then_some(next)
                }
                _ => None,
            },
            _ => None,
        };
        match announced().or_else(|| file.indexed_after(offset_bytes)) {
            Some(next) => {
                self.offset = next;
                findings.push(Finding::Packet { path, offset_bytes, cause });
            }
            None => {
                self.offset = file.file.len;
                let lost_bytes = file.file.len.saturating_sub(offset_bytes);
                findings.push(Finding::Rest { path, offset_bytes, lost_bytes, cause });
            }
        }
    }

    fn turn_to(&mut self, file: usize, offset: u64) {
        if file != self.file {
            self.window.close();
        }
        (self.file, self.offset) = (file, offset);
    }

    /// Makes the reader stand before the first event record of the packet at the offset.
    fn open(&mut self, file: &PacketFile) -> Result<Head, Cause> {
        let available = file.file.len.saturating_sub(self.offset);
        let mut least = self.usual;
        loop {
            // So that the window has its memory for itself.
            drop(self.reader.as_mut().map(EventReader::take_bytes));
            let least_here = usize::try_from(available).unwrap_or(usize::MAX).min(least);
            let bytes = self
                .window
                .get(&file.file, self.offset, least_here, available)
                .map_err(Cause::Io)?;
            let len = bytes.len();
            let reader = match self.read(file, bytes)? {
                Outcome::Ready(reader) => reader,
                Outcome::NeedMore { at_least_bytes }
                    if len >= least_here && least_here == least =>
                {
                    least = at_least_bytes.max(least.saturating_add(1));
                    continue;
                }
                Outcome::NeedMore { .. } => return Err(Cause::CutHeader { available: len as u64 }),
            };
            let head = Head::of(reader.packet(), self.offset);
            self.reader = Some(reader);
            let announced = head.len.unwrap_or(available);
            let wanted = announced.min(available);
            if wanted > MAX_PACKET_BYTES {
                return Err(Cause::TooLong { announced, limit: MAX_PACKET_BYTES });
            }
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            self.usual = wanted.max(FIRST_LOOK);
            if wanted <= len || len < least_here {
                return Ok(head);
            }
            least = wanted;
        }
    }

    /// A reader of `bytes`, made of the one that is there when it reads the same trace class.
    fn read(
        &mut self,
        file: &PacketFile,
        bytes: Bytes,
    ) -> Result<Outcome<EventReader<Bytes>>, Cause> {
        match self.reader.take() {
            Some(reader) if std::sync::Arc::ptr_eq(reader.trace_class(), &file.class) => {
                reader.reopen(bytes)
            }
            _ => EventReader::open(file.class.clone(), bytes),
        }
        .map_err(|error| Cause::Damaged(Box::new(error)))
    }

    /// Gives the packet its turn, or the end of the range when it is the first packet too many.
    fn announce(&mut self, file: &PacketFile, head: Head, entry: Pending) -> Option<i64> {
        let begin = file.time(head.begin);
        let end = file.time(head.end.filter(|end| *end != 0)).or(begin);
        let bits = file.stream_class().and_then(StreamClass::discarded_counter_bits);
        let (mut now, losses) = Before::step(self.before, head, bits, begin, end);
        self.losses = losses;
        if let Some(passed) = self.passed.take() {
            now.discarded = passed.discarded;
        }
        if let Some(begin) = begin {
            self.at = begin.nanos();
        }
        if begin.is_some_and(|begin| begin >= self.range.end) {
            // What it tells was lost may have begun inside.
            self.entry = Pending::RangeEnd;
            return Some(self.after_loss());
        }
        self.offset = head.next_offset().unwrap_or(file.file.len);
        self.packets += 1;
        self.before = Some(now);
        self.packet_end = end;
        self.entry = entry;
        Some(self.after_loss())
    }

    /// As [`Self::announce`] for a packet that is there, when its first event record may lie before its begin.
    fn announce_early(
        &mut self,
        stream: &Stream,
        file: &PacketFile,
        head: Head,
        findings: &mut Findings,
    ) -> Option<i64> {
        let advanced = self.reader.as_mut().map(EventReader::advance);
        let first = self.reader.as_ref().and_then(EventReader::event);
        let first = first.and_then(|event| event.timestamp_ns());
        let entry = match advanced {
            Some(Ok(true)) => Pending::First,
            Some(Err(error)) => {
                self.report(stream, error, findings);
                Pending::Opened
            }
            _ => Pending::Opened,
        };
        let begin = file.time(head.begin);
        let early = first.filter(|first| begin.is_none_or(|begin| *first < begin.nanos()));
        let Some(first) = early else { return self.announce(file, head, entry) };
        if first >= self.range.end.nanos() {
            return self.announce(file, head, entry);
        }
        // What was lost before it is told as the packet tells it; only its turn comes earlier.
        let end = std::mem::replace(&mut self.range.end, Timestamp::MAX);
        let turn = self.announce(file, head, entry);
        self.range.end = end;
        self.at = first;
        if self.pending == Pending::Loss { turn } else { Some(first) }
    }

    /// The next loss, or the packet behind it.
    fn after_loss(&mut self) -> i64 {
        self.loss = self.losses.iter_mut().find_map(Option::take);
        match self.loss {
            Some(lost) => {
                self.pending = Pending::Loss;
                lost.begin.nanos()
            }
            None => {
                self.pending = self.entry;
                self.at
            }
        }
    }

    /// Stands before the last packet that must be read to miss nothing from `begin` on.
    fn skip_to(&mut self, stream: &Stream, begin: Timestamp) {
        if let Some(place) = skip::find(&stream.files, begin) {
            (self.file, self.offset) = (place.file, place.head.offset);
            self.passed = Some(place.kept);
        }
    }
}

impl Before {
    /// Goes on to a packet: what is to be kept of it, and what the counters of both say was lost between their ends.
    ///
    /// A counter of discarded event records that steps back while the packets' numbers go on is wrong, and the one
    /// before stays: LTTng-UST writes 0 into some packets that its switch timer ends (seen with 2.13).
    pub(crate) fn step(
        before: Option<Self>,
        head: Head,
        discarded_bits: Option<u8>,
        begin: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> (Self, [Option<Lost>; 2]) {
        let now = Self { end, discarded: head.discarded, sequence: head.sequence };
        let Some(before) = before else { return (now, [None; 2]) };
        let from = before.end.unwrap_or(Timestamp::MIN);
        let lost = |kind, count: u64, to: Option<Timestamp>| {
            let end = to.unwrap_or(from).max(from);
            (count > 0).then_some(Lost { kind, count, begin: from, end })
        };
        let sequence = before.sequence.zip(now.sequence);
        let packets = sequence.map_or(0, |(before, now)| now.saturating_sub(before));
        let discarded = before.discarded.zip(now.discarded).zip(discarded_bits);
        let moved = discarded.map(|((before, now), bits)| counted(before, now, bits));
        let has_begun_anew = sequence.is_some_and(|(before, now)| now <= before);
        let kept = match moved {
            Some(None) if !has_begun_anew => before.discarded,
            _ => now.discarded,
        };
        let losses = [
            lost(LossKind::EventRecords, moved.flatten().unwrap_or(0), end),
            lost(LossKind::Packets, packets.saturating_sub(1), begin),
        ];
        (Self { discarded: kept, ..now }, losses)
    }
}

/// How far a counter of `bits` bits moved on; `None` when it stepped back: by more than half of its range on.
fn counted(before: u64, now: u64, bits: u8) -> Option<u64> {
    let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
    let moved = now.wrapping_sub(before) & mask;
    (moved <= mask / 2).then_some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_compared_modulo_their_width() {
        assert_eq!(counted(5, 5, 64), Some(0));
        assert_eq!(counted(5, 9, 64), Some(4));
        assert_eq!(counted(u64::from(u32::MAX), 2, 32), Some(3));
        assert_eq!(counted(u64::MAX, 2, 64), Some(3));
        assert_eq!(counted(9, 5, 64), None, "a step back");
        assert_eq!(counted(9, 5, 32), None, "a step back");
    }

    /// What is lost before each packet of a stream, given sequence numbers and counters.
    fn lost(packets: &[(Option<u64>, u64)]) -> Vec<u64> {
        let mut before = None;
        let mut each = Vec::new();
        for &(sequence, discarded) in packets {
            let head = Head {
                offset: 0,
                len: None,
                content_bits: None,
                begin: None,
                end: None,
                discarded: Some(discarded),
                sequence,
            };
            let (now, [records, _]) = Before::step(before, head, Some(64), None, None);
            before = Some(now);
            each.push(records.map_or(0, |lost| lost.count));
        }
        each
    }

    #[test]
    fn a_counter_that_is_wrong_in_a_packet_counts_nothing_twice() {
        // As recorded of LTTng-UST with sub-buffers of 4 KiB and a switch timer.
        let recorded = [(139, 221_942), (140, 0), (141, 0), (142, 221_942), (143, 221_950)];
        assert_eq!(lost(&recorded.map(|(at, count)| (Some(at), count))), [0, 0, 0, 0, 8]);
        assert_eq!(lost(&recorded.map(|(_, count)| (None, count))), [0, 0, 0, 0, 8]);
    }

    #[test]
    fn a_stream_that_begins_anew_counts_from_there() {
        assert_eq!(lost(&[(Some(7), 500), (Some(0), 0), (Some(1), 3)]), [0, 0, 3]);
    }
}
