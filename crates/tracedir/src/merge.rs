//! All streams as one flow of event records and losses, in order of time.
//!
//! # Order
//!
//! By (time, stream, position in the stream), where streams are ordered by [`StreamKey`](crate::StreamKey). A stream
//! is read in its own order: an event record that is earlier than the one before it comes right after that one,
//! and is counted in [`Merged::backward`]. A packet takes its turn at its begin timestamp, or at its first event record
//! where its tracer is known to stamp the begin too late. At most one packet of each stream is in memory, and none of a
//! stream whose turn has not come.
//!
//! # Ranges
//!
//! For a range `[begin, end)`, packets are left out by their timestamps, which are advice only; every event record that
//! is read is judged by its own time.
//!
//! - In front, a packet is left out when it ends before `begin` **and** the stream's next packet begins before
//!   `begin`: LTTng's known fault is an end that is too early, and the next packet's begin bounds that. Where the first
//!   packet to be read lies is found without reading the others.
//! - A stream is left when a packet begins at or after `end`; of barectf before 2.3.1, which stamps a packet's begin
//!   after its first event record, when that event record lies there.
//!
//! # Losses
//!
//! A loss lies between two packets of a stream and belongs to the range that holds its begin. What was lost before a
//! stream's first packet is not known here: compare [`StreamCover`](crate::StreamCover)s.

use bytes::Bytes;
use std::sync::Arc;

use ctf::packet::EventReader;
use ctf::{EventRecord, TraceClass};
use model::{TimeRange, Timestamp};

use crate::finding::Findings;
use crate::lane::{Lane, Lost, PacketEnds, Pending};
use crate::stream::Stream;
use crate::turns::{Tournament, Turn};
use crate::window::{Handles, READ_AHEAD, READ_AHEAD_OF_MANY, Window};

/// Up to so many streams, each keeps its file open while it is read.
pub(crate) const MAX_OPEN_FILES: usize = 512;

/// From so many streams on, less is read of each at once.
const MANY_STREAMS: usize = 128;

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
    /// The event record that a packet's reader stands at; `None` before the first one.
    #[must_use]
    #[inline(always)]
    pub fn of(
        reader: &'a EventReader<Bytes>,
        stream: &'a Stream,
        stream_index: usize,
        packet_index: u64,
        timestamp: Timestamp,
    ) -> Option<Self> {
        let record = reader.event()?;
        Some(Self { timestamp, stream, stream_index, packet_index, record, reader })
    }

    /// The trace class that its packet is read by: that of its folder.
    #[must_use]
    pub const fn trace_class(&self) -> &'a Arc<TraceClass> {
        self.reader.trace_class()
    }

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
    lanes: Vec<Lane>,
    range: TimeRange,
    turns: Tournament,
    /// Whether the winner of the turns was given.
    begun: bool,
    backward: u64,
    findings: Findings,
}

impl<'r> Merged<'r> {
    pub(crate) fn new(streams: &'r [Stream], range: TimeRange, packet_ends: PacketEnds) -> Self {
        let handles =
            if streams.len() <= MAX_OPEN_FILES { Handles::Keep } else { Handles::Release };
        let read_ahead = if streams.len() < MANY_STREAMS { READ_AHEAD } else { READ_AHEAD_OF_MANY };
        let mut findings = Findings::default();
        let mut lanes = Vec::with_capacity(streams.len());
        let mut first = Vec::with_capacity(streams.len());
        for stream in streams {
            let mut lane = Lane::new(Window::new(handles, read_ahead), packet_ends);
            first.push(lane.begin(stream, range, &mut findings));
            lanes.push(lane);
        }
        let turns = Tournament::new(&first);
        Self { streams, lanes, range, turns, begun: false, backward: 0, findings }
    }

    /// The next item; `None` at the end. Damage costs the rest of a packet, is kept in [`Self::findings`], and the
    /// other packets follow.
    #[inline(always)]
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        let mut turn = match self.step_on() {
            Some(turn) => turn,
            None => self.step()?,
        };
        // Moves on until there is something inside the range.
        while !self.is_shown(turn) {
            turn = self.step()?;
        }
        item(turn, self.streams.get(turn.lane())?, self.lanes.get(turn.lane())?)
    }

    #[inline]
    fn is_shown(&self, turn: Turn) -> bool {
        let pending = self.lanes.get(turn.lane()).map(Lane::pending);
        matches!(pending, Some(Pending::Event | Pending::Loss))
            && self.range.contains(Timestamp::from_nanos(turn.at()))
    }

    /// [`Self::step`] where the lane goes on to an event record that it has gone over already; else `None`, and nothing
    /// has happened.
    #[inline(always)]
    fn step_on(&mut self) -> Option<Turn> {
        let winner = self.turns.winner()?;
        let at = self.lanes.get_mut(winner.lane())?.step_on()?;
        self.backward += u64::from(at < winner.at());
        self.turns.replace_winner(winner.lane(), Some(at))
    }

    /// Consumes the current turn and takes the next one.
    #[inline(never)]
    fn step(&mut self) -> Option<Turn> {
        let winner = self.turns.winner()?;
        if !self.begun {
            self.begun = true;
            return Some(winner);
        }
        let index = winner.lane();
        let lane = self.lanes.get_mut(index)?;
        let next = lane.advance(self.streams.get(index)?, &mut self.findings);
        if next.is_some_and(|at| at < winner.at()) && lane.pending() == Pending::Event {
            self.backward += 1;
        }
        self.turns.replace_winner(index, next)
    }

    /// How many event records were earlier than the one before them in their stream.
    #[must_use]
    pub const fn backward(&self) -> u64 {
        self.backward
    }

    /// How many packets of all streams were entered: those that the range left out are not among them.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.lanes.iter().map(Lane::packets).sum()
    }

    /// What could not be read so far.
    #[must_use]
    pub const fn findings(&self) -> &Findings {
        &self.findings
    }
}

/// What a lane whose turn it is shows.
#[inline]
pub(crate) fn item<'a>(turn: Turn, stream: &'a Stream, lane: &'a Lane) -> Option<Item<'a>> {
    let stream_index = turn.lane();
    if let Some(Lost { kind, count, begin, end }) = lane.loss() {
        return Some(Item::Loss(Loss { stream, stream_index, kind, count, begin, end }));
    }
    let at = Timestamp::from_nanos(turn.at());
    Event::of(lane.reader()?, stream, stream_index, lane.packet_index(), at).map(Item::Event)
}
