//! All streams as one flow of event records and losses, in order of time.
//!
//! # Order
//!
//! By (time, stream, position in the stream), where streams are ordered by [`StreamKey`](crate::StreamKey). A stream
//! is read in its own order: an event record that is earlier than the one before it comes right after that one,
//! and is counted in [`Merged::backward`]. A packet takes its turn at its begin timestamp; so at most one packet
//! of each stream is in memory.
//!
//! # Ranges
//!
//! For a range `[begin, end)`, packets are left out by their timestamps, which are advice only:
//!
//! - in front, a packet is left out when it ends before `begin` **and** the stream's next packet begins before
//!   `begin`: LTTng's known fault is an end that is too early, and the next packet's begin bounds that;
//! - a stream is left when a packet begins at or after `end`; what would lie in that packet before its own begin
//!   (barectf before 2.3.1) is not looked for. Every other event record is judged by its own time.
//!
//! # Losses
//!
//! A loss lies between two packets of a stream and belongs to the range that holds its begin. What was lost before a
//! stream's first packet is not known here: compare [`StreamCover`](crate::StreamCover)s.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ctf::EventRecord;
use ctf::packet::EventReader;
use model::{TimeRange, Timestamp};

use crate::finding::Findings;
use crate::lane::{Lane, PacketEnds, Pending};
use crate::stream::Stream;
use crate::window::{Bytes, Handles};

/// Up to so many streams, each keeps its file open while it is read.
const MAX_OPEN_FILES: usize = 512;

/// Something that a recording tells.
#[derive(Debug)]
pub enum Item<'a> {
    /// An event record.
    Event(Event<'a>),
    /// Something that was lost when the trace was recorded.
    Loss(Loss<'a>),
}

/// An event record and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its time; [`Timestamp::MIN`] without a clock.
    pub timestamp: Timestamp,
    /// Its stream.
    pub stream: &'a Stream,
    /// Position of the stream in [`Recording::streams`](crate::Recording::streams).
    pub stream_index: usize,
    /// How many packets of the stream were read before its own.
    pub packet_index: u64,
    /// The event record itself.
    pub record: EventRecord<'a>,
    reader: &'a EventReader<Bytes>,
}

impl<'a> Event<'a> {
    /// Shows the fields of its packet's context.
    pub fn visit_packet_context(&self, visitor: &mut impl ctf::Visitor<'a>) {
        self.reader.visit_packet(ctf::Scope::PacketContext, visitor);
    }
}

/// Something that a tracer counted and did not record, or that never arrived.
#[derive(Debug, Clone, Copy)]
pub struct Loss<'a> {
    /// The stream.
    pub stream: &'a Stream,
    /// Position of the stream in [`Recording::streams`](crate::Recording::streams).
    pub stream_index: usize,
    /// What was lost.
    pub kind: LossKind,
    /// How many.
    pub count: u64,
    /// From the end of the last packet before: this is the loss's place in the order.
    pub begin: Timestamp,
    /// To the end of the packet that tells (event records), or to its begin (packets).
    pub end: Timestamp,
}

/// What was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossKind {
    /// Event records for which the tracer had no room.
    EventRecords,
    /// Whole packets, by a gap in the sequence numbers.
    Packets,
}

/// A lending iterator over [`Item`]s.
#[derive(Debug)]
pub struct Merged<'r> {
    streams: &'r [Stream],
    lanes: Vec<Lane<'r>>,
    range: TimeRange,
    /// Lanes that wait, by what comes next in them.
    waiting: BinaryHeap<Reverse<Turn>>,
    current: Option<Turn>,
    backward: u64,
    findings: Findings,
}

/// Whose turn it is when: ordered by time, then by stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: i64,
    lane: usize,
}

impl<'r> Merged<'r> {
    pub(crate) fn new(streams: &'r [Stream], range: TimeRange, packet_ends: PacketEnds) -> Self {
        let handles =
            if streams.len() <= MAX_OPEN_FILES { Handles::Keep } else { Handles::Release };
        let mut merged = Self {
            streams,
            lanes: Vec::with_capacity(streams.len()),
            range,
            waiting: BinaryHeap::with_capacity(streams.len()),
            current: None,
            backward: 0,
            findings: Findings::default(),
        };
        for (index, stream) in streams.iter().enumerate() {
            let mut lane = Lane::new(stream, handles, packet_ends);
            let first = lane.begin(range, &mut merged.findings);
            merged.waiting.extend(first.map(|at| Reverse(Turn { at, lane: index })));
            merged.lanes.push(lane);
        }
        merged
    }

    /// The next item; `None` at the end. Damage costs the rest of a packet, is kept in [`Self::findings`], and the
    /// other packets follow.
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        let turn = self.find()?;
        let stream = self.streams.get(turn.lane)?;
        let lane = self.lanes.get(turn.lane)?;
        let (stream_index, packet_index) = (turn.lane, lane.packet_index());
        if let Pending::Loss(loss) = lane.pending() {
            let crate::lane::Lost { kind, count, begin, end } = loss;
            return Some(Item::Loss(Loss { stream, stream_index, kind, count, begin, end }));
        }
        let reader = lane.reader()?;
        let record = reader.event()?;
        let timestamp = Timestamp::from_nanos(turn.at);
        Some(Item::Event(Event { timestamp, stream, stream_index, packet_index, record, reader }))
    }

    /// Moves on until there is something inside the range.
    fn find(&mut self) -> Option<Turn> {
        loop {
            let turn = self.step()?;
            let lane = self.lanes.get(turn.lane)?;
            let shown = !matches!(lane.pending(), Pending::Packet | Pending::PacketEnd);
            if shown && self.range.contains(Timestamp::from_nanos(turn.at)) {
                return Some(turn);
            }
        }
    }

    /// Consumes the current turn and takes the next one.
    #[inline]
    fn step(&mut self) -> Option<Turn> {
        let after = match self.current.take() {
            None => None,
            Some(done) => {
                let lane = self.lanes.get_mut(done.lane)?;
                let next = lane.advance(&mut self.findings);
                if matches!(lane.pending(), Pending::Event) && next.is_some_and(|at| at < done.at) {
                    self.backward += 1;
                }
                next.map(|at| Turn { at, lane: done.lane })
            }
        };
        self.current = match after {
            None => self.waiting.pop().map(|Reverse(turn)| turn),
            Some(mine) => Some(self.first_of(mine)),
        };
        self.current
    }

    /// The earlier of `mine` and the first that waits; the other one waits.
    #[inline]
    fn first_of(&mut self, mine: Turn) -> Turn {
        match self.waiting.peek_mut() {
            Some(mut first) if first.0 < mine => {
                let turn = first.0;
                first.0 = mine;
                turn
            }
            _ => mine,
        }
    }

    /// How many event records were earlier than the one before them in their stream.
    #[must_use]
    pub const fn backward(&self) -> u64 {
        self.backward
    }

    /// What could not be read so far.
    #[must_use]
    pub const fn findings(&self) -> &Findings {
        &self.findings
    }
}
