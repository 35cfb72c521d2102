//! Streams as one flow of event records and losses, in order of time.
//!
//! A lane with a packet stands at its next event record; a lane without one has come to a time by the relay's word.
//! An item is given when no lane without a packet stands before it, but for *silent* ones, which were asked in vain for
//! the grace: time in which nobody asked does not count. Items of one time come in the order of [`StreamKey`]s, as from
//! a recording.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ctf::TraceClass;
use ctf::packet::{EventReader, Outcome};
use ctf::{DecodeError, DecodeErrorKind};
use model::Timestamp;
use tracedir::{Event, Gap, Gaps, Item, Stream, StreamKey};

/// A lane's number. One that has ended is given to another stream, after as many others as are kept.
pub(crate) type LaneId = usize;

/// Lanes that have ended and keep their number.
const ENDED_KEPT: usize = 1024;

#[derive(Debug)]
pub(crate) struct Merge {
    /// Bound: those that are open, and [`ENDED_KEPT`].
    lanes: Vec<Lane>,
    /// Those that have ended, oldest first. All of their items were given.
    ended: VecDeque<LaneId>,
    turns: BinaryHeap<Reverse<Turn>>,
    current: Option<LaneId>,
    /// Whether a lane got its key since the ranks were given out.
    is_unranked: bool,
    grace: Duration,
    begin: i64,
    /// Nothing later than this is given.
    horizon: i64,
    /// The last time given.
    given: i64,
    late: u64,
    is_finished: bool,
}

/// Ordered by time, then by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: i64,
    rank: usize,
    lane: LaneId,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    path: PathBuf,
    is_named: bool,
    rank: usize,
    /// The packet that it is in, or the one before, whose memory is used again.
    reader: Option<EventReader<Bytes>>,
    is_in_packet: bool,
    is_open: bool,
    gaps: Gaps,
    losses: VecDeque<Gap>,
    loss: Option<Gap>,
    packets: u64,
    /// Nothing earlier is still to come.
    reach: i64,
    /// The time of its item.
    at: i64,
    /// Since when it is asked for its next packet and gets no further.
    in_vain: Option<Duration>,
}

/// A packet's rest that cannot be read, and the lane.
pub(crate) type Damage = (LaneId, DecodeError);

impl Merge {
    /// Of what is earlier than `begin`, nothing is given.
    pub(crate) const fn new(begin: Timestamp, grace: Duration) -> Self {
        Self {
            lanes: Vec::new(),
            ended: VecDeque::new(),
            turns: BinaryHeap::new(),
            current: None,
            is_unranked: false,
            grace,
            begin: begin.nanos(),
            horizon: i64::MIN,
            given: i64::MIN,
            late: 0,
            is_finished: false,
        }
    }

    /// Adds a stream; `path` tells it from others when its packets do not.
    pub(crate) fn add(&mut self, path: PathBuf) -> LaneId {
        let lane = Lane {
            stream: Stream::without_files(StreamKey::default()),
            path,
            is_named: false,
            rank: usize::MAX,
            reader: None,
            is_in_packet: false,
            is_open: true,
            gaps: Gaps::default(),
            losses: VecDeque::new(),
            loss: None,
            packets: 0,
            reach: i64::MIN,
            at: i64::MIN,
            in_vain: None,
        };
        let is_full = self.ended.len() > ENDED_KEPT;
        let free = is_full.then(|| self.ended.pop_front()).flatten();
        match free.and_then(|id| self.lanes.get_mut(id).map(|place| (id, place))) {
            Some((id, place)) => {
                // Packets are told from those of the stream before, too.
                *place = Lane { packets: place.packets, ..lane };
                id
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() - 1
            }
        }
    }

    /// Lanes that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.lanes.len() - self.ended.len()
    }

    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// The lanes that should be asked for their next packet: those that hold others up, or else all without one.
    pub(crate) fn wanting(&self) -> Vec<LaneId> {
        let next = self.turns.peek().map_or(i64::MAX, |Reverse(turn)| turn.at);
        let empty = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_empty());
        empty.filter(|(_, lane)| lane.reach < next).map(|(id, _)| id).collect()
    }

    /// Whether every stream has ended; items may be left.
    pub(crate) fn is_over(&self) -> bool {
        self.lanes.iter().all(|lane| !lane.is_open)
    }

    /// Opens the next packet of a lane that has none.
    pub(crate) fn take(
        &mut self,
        id: LaneId,
        class: &Arc<TraceClass>,
        bytes: Bytes,
    ) -> Result<(), DecodeError> {
        let Some(lane) = self.lanes.get_mut(id) else { return Ok(()) };
        let len = bytes.len();
        let opened = match lane.reader.take() {
            Some(reader) if Arc::ptr_eq(reader.trace_class(), class) => reader.reopen(bytes)?,
            _ => EventReader::open(Arc::clone(class), bytes)?,
        };
        let Outcome::Ready(reader) = opened else { return Err(cut(len)) };
        if !lane.is_named {
            lane.name(&reader);
            self.is_unranked = true;
        }
        let clock = reader.clock_class();
        lane.losses.extend(lane.gaps.enter(reader.packet(), reader.stream_class(), clock));
        let begin = reader.packet().begin.and_then(|begin| clock?.to_ns(begin).ok());
        lane.at = lane.at.max(begin.unwrap_or(i64::MIN));
        lane.reader = Some(reader);
        lane.packets += 1;
        lane.is_in_packet = true;
        lane.in_vain = None;
        lane.loss = None;
        // The packet's own turn, at which its first item is looked for.
        let packet = begin.unwrap_or(lane.at);
        let at = lane.losses.front().map_or(packet, |gap| gap.begin().nanos().min(packet));
        self.turns.push(Reverse(Turn { at, rank: lane.rank, lane: id }));
        Ok(())
    }

    /// The lane has come to a time.
    pub(crate) fn come_to(&mut self, id: LaneId, at: i64) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if at > lane.reach {
            (lane.reach, lane.in_vain) = (at, None);
        }
    }

    /// The lane was asked for its next packet, and there is none yet.
    pub(crate) fn asked_in_vain(&mut self, id: LaneId, now: Duration) {
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.in_vain.get_or_insert(now);
        }
    }

    /// No more packets of the lane will come.
    pub(crate) fn end(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(id)
            && std::mem::take(&mut lane.is_open)
        {
            // Its memory; what it was about may still be asked for.
            lane.reader = None;
            self.ended.push_back(id);
        }
    }

    /// Decides what can be given now.
    pub(crate) fn look(&mut self, now: Duration) {
        let grace = self.grace;
        let awaited = self.lanes.iter().filter(|lane| lane.is_empty());
        let is_silent = |since: Duration| now.saturating_sub(since) > grace;
        let awaited = awaited.filter(|lane| !lane.in_vain.is_some_and(is_silent));
        self.horizon = awaited.map(|lane| lane.reach).min().unwrap_or(i64::MAX);
        if std::mem::take(&mut self.is_unranked) {
            self.rank();
        }
    }

    /// Everything that is there can be given.
    pub(crate) const fn finish(&mut self) {
        self.horizon = i64::MAX;
        self.is_finished = true;
    }

    fn rank(&mut self) {
        let mut order: Vec<LaneId> = (0..self.lanes.len()).collect();
        order.sort_by_key(|id| self.lanes.get(*id).map(|lane| (!lane.is_named, lane.stream.key())));
        for (rank, id) in order.into_iter().enumerate() {
            if let Some(lane) = self.lanes.get_mut(id) {
                lane.rank = rank;
            }
        }
        let turns = std::mem::take(&mut self.turns).into_iter().map(|Reverse(turn)| {
            let rank = self.lanes.get(turn.lane).map_or(usize::MAX, |lane| lane.rank);
            Reverse(Turn { rank, ..turn })
        });
        self.turns = turns.collect();
    }

    /// Moves to the next item that can be given. Packets whose rest cannot be read go to `damaged`.
    pub(crate) fn find(&mut self, damaged: &mut Vec<Damage>) -> bool {
        loop {
            if let Some(id) = self.current.take() {
                self.advance(id, damaged);
            }
            match self.turns.peek() {
                Some(Reverse(turn)) if turn.at <= self.horizon => {}
                _ => return false,
            }
            let Some(Reverse(turn)) = self.turns.pop() else { return false };
            self.current = Some(turn.lane);
            let Some(lane) = self.lanes.get_mut(turn.lane) else { return false };
            if !lane.has_item() {
                continue;
            }
            if turn.at < self.given && lane.loss.is_none() {
                self.late += 1;
            }
            self.given = self.given.max(turn.at);
            if turn.at >= self.begin {
                return true;
            }
        }
    }

    fn advance(&mut self, id: LaneId, damaged: &mut Vec<Damage>) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        match lane.advance() {
            Ok(Some(at)) => self.turns.push(Reverse(Turn { at, rank: lane.rank, lane: id })),
            Ok(None) => lane.leave_packet(),
            Err(error) => {
                damaged.push((id, error));
                lane.leave_packet();
            }
        }
        if lane.is_empty() && !self.is_finished {
            self.horizon = self.horizon.min(lane.reach);
        }
    }

    /// What [`Self::find`] moved to.
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        let id = self.current?;
        let lane = self.lanes.get(id)?;
        if let Some(gap) = &lane.loss {
            return Some(Item::Loss(gap.of(&lane.stream, id)));
        }
        let at = Timestamp::from_nanos(lane.at);
        let packet = lane.packets.saturating_sub(1);
        Event::of(lane.reader.as_ref()?, &lane.stream, id, packet, at).map(Item::Event)
    }
}

impl Lane {
    /// Whether its next packet is awaited.
    const fn is_empty(&self) -> bool {
        self.is_open && !self.is_in_packet
    }

    fn has_item(&self) -> bool {
        let event = || self.reader.as_ref().is_some_and(|reader| reader.event().is_some());
        self.is_in_packet && (self.loss.is_some() || event())
    }

    fn name(&mut self, reader: &EventReader<Bytes>) {
        let info = reader.packet();
        let class = reader.trace_class();
        let mut key = StreamKey::of(class, info.stream_class_id, info.stream_instance_id);
        if key.trace.is_none() || key.instance_id.is_none() {
            key.file = Some(self.path.clone());
        }
        self.stream = Stream::without_files(key);
        self.is_named = true;
    }

    /// The time of the next item of the packet; `None` at its end.
    fn advance(&mut self) -> Result<Option<i64>, DecodeError> {
        self.loss = self.losses.pop_front();
        if let Some(gap) = &self.loss {
            return Ok(Some(gap.begin().nanos()));
        }
        let Some(reader) = self.reader.as_mut() else { return Ok(None) };
        if !reader.advance()? {
            return Ok(None);
        }
        self.at = reader.timestamp_ns().unwrap_or(self.at);
        Ok(Some(self.at))
    }

    fn leave_packet(&mut self) {
        self.is_in_packet = false;
        let reader = self.reader.as_ref();
        let end = reader.and_then(|reader| {
            let end = reader.packet().end.filter(|end| *end != 0)?;
            reader.clock_class()?.to_ns(end).ok()
        });
        self.reach = self.reach.max(end.unwrap_or(self.at));
        // The reader is used again, the packet is not.
        drop(self.reader.as_mut().map(EventReader::take_bytes));
    }
}

/// A packet that ends inside of its header.
fn cut(len: usize) -> DecodeError {
    let available_bits = u64::try_from(len).unwrap_or(u64::MAX).saturating_mul(8);
    DecodeError {
        offset_bits: available_bits,
        event_index: None,
        field: "packet header".to_owned(),
        kind: DecodeErrorKind::Truncated { announced_bits: 0, available_bits },
    }
}
