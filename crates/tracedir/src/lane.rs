//! One stream in the merge: packet after packet, event record after event record.

use ctf::packet::{EventReader, Outcome};
use ctf::{DecodeError, StreamClass};
use model::{TimeRange, Timestamp};

use crate::finding::{Cause, Finding, Findings};
use crate::merge::LossKind;
use crate::stream::{Head, PacketFile, Stream};
use crate::window::{Bytes, FIRST_LOOK, Handles, Window};

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
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pending {
    /// A packet that has not been entered yet.
    Packet,
    /// The end of a packet whose event records have all been given.
    PacketEnd,
    /// The reader's current event record.
    Event,
    /// A loss before the packet that comes next.
    Loss(Lost),
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

#[derive(Debug)]
pub(crate) struct Lane<'r> {
    stream: &'r Stream,
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
    reader: Option<EventReader<Bytes>>,
    packet_ends: PacketEnds,
    /// When the packet that is being read ends.
    packet_end: Option<Timestamp>,
    pending: Pending,
    /// Losses before the packet that waits, the later one first.
    losses: [Option<Lost>; 2],
    before: Option<Before>,
    packets: u64,
    /// Time of the last turn, for event records without a clock.
    at: i64,
}

impl<'r> Lane<'r> {
    pub(crate) fn new(stream: &'r Stream, handles: Handles, packet_ends: PacketEnds) -> Self {
        Self {
            stream,
            packet_ends,
            packet_end: None,
            range: TimeRange::ALL,
            file: 0,
            offset: 0,
            packet_offset: 0,
            window: Window::new(handles),
            usual: FIRST_LOOK,
            reader: None,
            pending: Pending::Packet,
            losses: [None; 2],
            before: None,
            packets: 0,
            at: i64::MIN,
        }
    }

    pub(crate) const fn pending(&self) -> Pending {
        self.pending
    }

    pub(crate) const fn reader(&self) -> Option<&EventReader<Bytes>> {
        self.reader.as_ref()
    }

    pub(crate) const fn packet_index(&self) -> u64 {
        self.packets.saturating_sub(1)
    }

    /// Stands before the first packet that may matter for `range`; gives the time of the first turn.
    pub(crate) fn begin(&mut self, range: TimeRange, findings: &mut Findings) -> Option<i64> {
        self.range = range;
        if range.begin > Timestamp::MIN {
            self.skip_to(range.begin);
        }
        self.next_packet(findings)
    }

    /// Consumes what is pending; gives the time of the next turn, `None` at the stream's end.
    #[inline]
    pub(crate) fn advance(&mut self, findings: &mut Findings) -> Option<i64> {
        match self.pending {
            Pending::Loss(_) => return Some(self.after_loss()),
            Pending::PacketEnd => return self.next_packet(findings),
            Pending::Packet | Pending::Event => {}
        }
        let reader = self.reader.as_mut()?;
        match reader.advance() {
            Ok(true) => {
                self.pending = Pending::Event;
                if let Some(at) = reader.event().and_then(|event| event.timestamp_ns()) {
                    self.at = at;
                }
                Some(self.at)
            }
            Ok(false) => self.leave_packet(findings),
            Err(error) => {
                self.report(error, findings);
                self.leave_packet(findings)
            }
        }
    }

    fn leave_packet(&mut self, findings: &mut Findings) -> Option<i64> {
        match self.packet_end.filter(|_| self.packet_ends == PacketEnds::Awaited) {
            Some(end) => {
                self.pending = Pending::PacketEnd;
                self.at = self.at.max(end.nanos());
                Some(self.at)
            }
            None => self.next_packet(findings),
        }
    }

    #[cold]
    fn report(&self, error: DecodeError, findings: &mut Findings) {
        if let Some(file) = self.stream.files.get(self.file) {
            findings.push(Finding::Packet {
                path: file.file.path.clone(),
                offset_bytes: self.packet_offset,
                cause: Cause::Damaged(Box::new(error)),
            });
        }
    }

    /// Enters the next packet that can be read; losses before it have their turns first.
    fn next_packet(&mut self, findings: &mut Findings) -> Option<i64> {
        loop {
            let file = self.stream.files.get(self.file)?;
            if self.offset >= file.file.len {
                self.turn_to(self.file + 1, 0);
                continue;
            }
            self.packet_offset = self.offset;
            match self.open(file) {
                Ok(head) => {
                    self.offset = head.next_offset().unwrap_or(file.file.len);
                    return self.enter(file, head);
                }
                Err(cause) => self.give_up(file, cause, findings),
            }
        }
    }

    /// Leaves a packet whose header is of no use: for the next one if the index knows it, else for the next file.
    #[cold]
    fn give_up(&mut self, file: &PacketFile, cause: Cause, findings: &mut Findings) {
        let (path, offset_bytes) = (file.file.path.clone(), self.packet_offset);
        match file.indexed_after(offset_bytes) {
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
            let least_here = usize::try_from(available).unwrap_or(usize::MAX).min(least);
            let bytes =
                self.window.get(&file.file.path, self.offset, least_here).map_err(Cause::Io)?;
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

    /// Takes up the packet that was opened. `None` when it is the range's first packet too many.
    fn enter(&mut self, file: &PacketFile, head: Head) -> Option<i64> {
        let begin = file.time(head.begin);
        if begin.is_some_and(|begin| begin >= self.range.end) {
            return None;
        }
        self.packets += 1;
        let end = file.time(head.end.filter(|end| *end != 0)).or(begin);
        let bits = file.stream_class().and_then(StreamClass::discarded_counter_bits);
        self.losses =
            self.before.map_or([None; 2], |before| losses(before, head, bits, begin, end));
        self.before = Some(Before { end, discarded: head.discarded, sequence: head.sequence });
        self.packet_end = end;
        if let Some(begin) = begin {
            self.at = begin.nanos();
        }
        Some(self.after_loss())
    }

    /// The next loss, or the packet behind it.
    fn after_loss(&mut self) -> i64 {
        match self.losses.iter_mut().find_map(Option::take) {
            Some(lost) => {
                self.pending = Pending::Loss(lost);
                lost.begin.nanos()
            }
            None => {
                self.pending = Pending::Packet;
                self.at
            }
        }
    }

    /// Stands before the last packet that must be read to miss nothing from `begin` on.
    fn skip_to(&mut self, begin: Timestamp) {
        let mut candidate: Option<(usize, Head, bool)> = None;
        for (index, file) in self.stream.files.iter().enumerate() {
            for head in file.heads() {
                let starts_before = file.time(head.begin).is_some_and(|at| at < begin);
                if let Some((passed, before, true)) = candidate.filter(|_| starts_before) {
                    self.pass(passed, before);
                } else if let Some((index, before, _)) = candidate {
                    self.turn_to(index, before.offset);
                    return;
                }
                let ends_before = file.time(head.end).is_some_and(|at| at < begin);
                candidate = Some((index, head, ends_before));
            }
        }
        if let Some((index, head, _)) = candidate {
            self.turn_to(index, head.offset);
        }
    }

    /// Leaves a packet unread, but not what it says about losses.
    fn pass(&mut self, file: usize, head: Head) {
        let Some(file) = self.stream.files.get(file) else { return };
        let end = file.time(head.end.filter(|end| *end != 0)).or_else(|| file.time(head.begin));
        self.before = Some(Before { end, discarded: head.discarded, sequence: head.sequence });
    }
}

/// What the counters of two packets in a row say was lost between their ends.
pub(crate) fn losses(
    before: Before,
    head: Head,
    discarded_bits: Option<u8>,
    begin: Option<Timestamp>,
    end: Option<Timestamp>,
) -> [Option<Lost>; 2] {
    let from = before.end.unwrap_or(Timestamp::MIN);
    let lost = |kind, count: u64, to: Option<Timestamp>| {
        let end = to.unwrap_or(from).max(from);
        (count > 0).then_some(Lost { kind, count, begin: from, end })
    };
    let discarded = before.discarded.zip(head.discarded).zip(discarded_bits);
    let records = discarded.map_or(0, |((before, now), bits)| counted(before, now, bits));
    let sequence = before.sequence.zip(head.sequence);
    let packets = sequence.map_or(0, |(before, now)| now.saturating_sub(before).saturating_sub(1));
    [lost(LossKind::EventRecords, records, end), lost(LossKind::Packets, packets, begin)]
}

/// How far a counter of `bits` bits moved on. More than half of its range is a step back, which counts nothing.
fn counted(before: u64, now: u64, bits: u8) -> u64 {
    let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
    let moved = now.wrapping_sub(before) & mask;
    if moved > mask / 2 { 0 } else { moved }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_compared_modulo_their_width() {
        assert_eq!(counted(5, 5, 64), 0);
        assert_eq!(counted(5, 9, 64), 4);
        assert_eq!(counted(u64::from(u32::MAX), 2, 32), 3);
        assert_eq!(counted(u64::MAX, 2, 64), 3);
        assert_eq!(counted(9, 5, 64), 0, "a step back");
        assert_eq!(counted(9, 5, 32), 0, "a step back");
    }
}
