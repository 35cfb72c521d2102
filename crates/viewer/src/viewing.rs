//! Asks the relay for what the merge needs next.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctf::{ClockClass, MetadataProgress, MetadataStream, TraceClass};
use model::Timestamp;
use tracedir::{Cause, Finding, Findings, Item};
use wire::live::viewer::{
    Flags, GetPacket, MetadataReply, NewStreamsReply, NextIndex, NextIndexReply, PacketEntry,
    PacketPiece, PacketReply, Request, Seek, SessionEntry, StreamEntry,
};
use wire::live::{ViewedSessionId, ViewedStreamId, ViewedTraceId};

use crate::connection::Relay;
use crate::error::Error;
use crate::memory::Memory;
use crate::merge::{Damage, LaneId, Merge};
use crate::place;

/// The most streams that are followed at a time, and traces.
const MAX_STREAMS: usize = 1 << 16;

/// The longest packet that is fetched. LTTng's largest sub-buffers are smaller by far.
const MAX_PACKET_BYTES: u64 = 64 << 20;

/// Packets are fetched in pieces of at most this many bytes, which every relay gives.
const PIECE_BYTES: u32 = 256 << 10;

/// How often new streams are asked for when the relay does not say that there are any. lttng-relayd says so only with a
/// packet, and forgets a stream that ended before it was asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a packet may wait for its metadata, or a piece of it for the relay.
const PACKET_LIMIT: Duration = Duration::from_secs(10);

/// How often a piece of a packet may be refused because something else is to be asked for first.
const ASIDES: u32 = 4;

/// How long a stream is waited for at least, unless it is asked otherwise.
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// The same in sessions without live timer: longer than the relay holds their packets back, which it does for 2 s so that
/// metadata can catch up.
const UNTIMED_GRACE: Duration = Duration::from_secs(5);

/// How long a stream of a session with this live timer is waited for by default.
fn grace(live_timer_us: u32) -> Duration {
    match live_timer_us {
        0 => UNTIMED_GRACE,
        timer => LEAST_GRACE.max(Duration::from_micros(timer.into()) * 4),
    }
}

/// How sessions are viewed.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to begin: streams that appear later are always read from their beginning.
    pub seek: Seek,
    /// Nothing earlier is given, and packets that end earlier are not fetched; of this relay they are not even asked for.
    pub begin: Timestamp,
    /// How long a stream may be silent before the others go on without it; by default four periods of the session's
    /// live timer, at least 2 s, and 5 s without live timer: our relay shows packets of such a session 2 s after they came.
    pub grace: Option<Duration>,
    /// What packets that were fetched may take, 256 MiB by default. A packet that finds no memory waits for ten seconds; then
    /// it is a finding. Streams with packets go on meanwhile, when those that wait were silent for the grace.
    pub memory: Memory,
}

impl Default for Options {
    fn default() -> Self {
        let memory = Memory::default();
        Self { seek: Seek::Last, begin: Timestamp::MIN, grace: None, memory }
    }
}

/// What a poll came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Something arrived: items may be there.
    Moved,
    /// Nothing did.
    Nothing,
    /// The sessions have ended; what is left of them can be given now.
    Ended,
}

/// The event records and losses of sessions that are being written, merged in time.
///
/// [`Self::poll`] asks the relay once for each stream that holds the others up; [`Self::next_item`] then gives what can
/// be given in order of time. A stream that was silent for longer than the grace does not hold others up; what it then
/// tells of the time before is given at once, and counted in [`Self::late`].
#[derive(Debug)]
pub struct Viewing<S> {
    relay: Relay<S>,
    sessions: Vec<Session>,
    traces: Vec<Trace>,
    /// By lane.
    sources: Vec<Source>,
    merge: Merge,
    begin: i64,
    memory: Memory,
    findings: Findings,
    damaged: Vec<Damage>,
    /// How many streams have appeared.
    appeared: usize,
    /// The lanes of those that the caller was not told of.
    fresh: Vec<LaneId>,
    /// Packets that had to wait for memory.
    short: u64,
}

/// An attached session.
#[derive(Debug)]
struct Session {
    id: ViewedSessionId,
    is_open: bool,
    /// Whether the relay has said that there are new streams.
    has_new: bool,
    looked: Duration,
}

/// What one metadata stream describes.
#[derive(Debug)]
struct Trace {
    session: usize,
    id: ViewedTraceId,
    path: PathBuf,
    metadata_stream: Option<ViewedStreamId>,
    metadata: MetadataStream,
    class: Option<Arc<TraceClass>>,
    /// Its metadata cannot be read any further.
    is_broken: bool,
    /// Lanes of its streams; `None` until it has had one.
    lanes: Option<usize>,
}

/// A stream at the relay.
#[derive(Debug)]
struct Source {
    stream: ViewedStreamId,
    trace: usize,
    path: PathBuf,
    /// A packet that cannot be fetched or read yet, and since when.
    waiting: Option<(PacketEntry, Duration)>,
}

/// What became of a packet's bytes.
enum Fetched {
    Whole(Vec<u8>),
    NotYet,
    Gone,
}

impl<S: Read + Write> Viewing<S> {
    pub(crate) fn begin(
        mut relay: Relay<S>,
        sessions: &[SessionEntry],
        options: &Options,
    ) -> Result<Self, Error> {
        let mut places = Vec::with_capacity(sessions.len());
        for session in sessions {
            let (back, place) = place::find(relay, session, options)?;
            relay = back;
            places.push((session, place));
        }
        let mut viewing = Self::new(relay, options, sessions);
        for (session, place) in places {
            viewing.attach(session, place)?;
        }
        Ok(viewing)
    }

    pub(crate) fn new(relay: Relay<S>, options: &Options, sessions: &[SessionEntry]) -> Self {
        let graces = sessions.iter().map(|session| grace(session.live_timer_us));
        let grace = options.grace.or_else(|| graces.max()).unwrap_or(LEAST_GRACE);
        Self {
            relay,
            sessions: Vec::new(),
            traces: Vec::new(),
            sources: Vec::new(),
            merge: Merge::new(options.begin, grace),
            begin: options.begin.nanos(),
            memory: options.memory.clone(),
            findings: Findings::default(),
            damaged: Vec::new(),
            appeared: 0,
            fresh: Vec::new(),
            short: 0,
        }
    }

    pub(crate) fn attach(&mut self, session: &SessionEntry, seek: Seek) -> Result<(), Error> {
        let streams = self.relay.attach(session.session, seek)?;
        let (id, looked) = (session.session, Duration::ZERO);
        self.sessions.push(Session { id, is_open: true, has_new: false, looked });
        self.add(self.sessions.len() - 1, streams)
    }

    pub(crate) fn into_relay(self) -> Relay<S> {
        self.relay
    }

    /// The clocks of the traces whose metadata are known.
    pub(crate) fn clocks(&self) -> impl Iterator<Item = &ClockClass> {
        let classes = self.traces.iter().filter_map(|trace| trace.class.as_deref());
        classes.flat_map(TraceClass::clock_classes)
    }

    /// Asks the relay for what is missing. `now` is any time that does not go backwards, from 0 on.
    ///
    /// # Errors
    /// [`Error::TooManyStreams`], and what comes of talking to the relay: the viewing is over, but for the items that
    /// are there.
    pub fn poll(&mut self, now: Duration) -> Result<Progress, Error> {
        let asked = self.ask_all(now);
        self.merge.look(now);
        let moved = asked?;
        let is_over = self.merge.is_over() && self.sessions.iter().all(|session| !session.is_open);
        Ok(match moved {
            _ if is_over => Progress::Ended,
            true => Progress::Moved,
            false => Progress::Nothing,
        })
    }

    fn ask_all(&mut self, now: Duration) -> Result<bool, Error> {
        let mut moved = false;
        for session in 0..self.sessions.len() {
            moved |= self.look_for_streams(session, now)?;
        }
        for lane in self.merge.wanting() {
            match self.ask(lane, now)? {
                true => moved = true,
                false => self.merge.asked_in_vain(lane, now),
            }
        }
        Ok(moved)
    }

    /// The next item; `None` when there is no more until the next [`Self::poll`].
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        let found = self.merge.find(&mut self.damaged);
        for (lane, error) in self.damaged.drain(..) {
            let path = self.sources.get(lane).map(|source| source.path.clone()).unwrap_or_default();
            let (offset_bytes, cause) = (0, Cause::Damaged(Box::new(error)));
            self.findings.push(Finding::Packet { path, offset_bytes, cause });
        }
        if found { self.merge.item() } else { None }
    }

    /// No more is asked for: what was fetched can be given now.
    pub const fn finish(&mut self) {
        self.merge.finish();
    }

    /// How many streams have appeared so far.
    #[must_use]
    pub const fn streams(&self) -> usize {
        self.appeared
    }

    /// The indexes of streams that have appeared since this was asked last, to be asked before the next item. An index may have
    /// been that of a stream that has ended, of which nothing more comes.
    pub fn take_new_streams(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.fresh)
    }

    /// How many packets had to wait because others took the memory of [`Options::memory`].
    #[must_use]
    pub const fn short_of_memory(&self) -> u64 {
        self.short
    }

    /// How many items were given after one of a later time.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.merge.late()
    }

    /// What could not be read so far. The paths are those of streams at the relay.
    #[must_use]
    pub const fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The folder of a stream's trace at the relay, such as `ust/uid/1000/64-bit`.
    #[must_use]
    pub fn folder_of(&self, stream_index: usize) -> Option<&Path> {
        let source = self.sources.get(stream_index)?;
        self.traces.get(source.trace).map(|trace| trace.path.as_path())
    }

    /// The path of a stream at the relay, such as `ust/uid/1000/64-bit/channel_0`.
    #[must_use]
    pub fn path_of(&self, stream_index: usize) -> Option<&Path> {
        self.sources.get(stream_index).map(|source| source.path.as_path())
    }

    fn look_for_streams(&mut self, index: usize, now: Duration) -> Result<bool, Error> {
        let Some(session) = self.sessions.get_mut(index) else { return Ok(false) };
        let is_due = session.has_new || now.saturating_sub(session.looked) >= LOOK_EVERY;
        if !session.is_open || !(is_due || self.merge.is_over()) {
            return Ok(false);
        }
        (session.has_new, session.looked) = (false, now);
        let request = Request::GetNewStreams(session.id);
        let streams = match self.relay.ask(&request, NewStreamsReply::decode)? {
            NewStreamsReply::Streams(count) => self.relay.streams(count)?,
            NewStreamsReply::NoneNew => Vec::new(),
            NewStreamsReply::Failed | NewStreamsReply::HangUp => {
                session.is_open = false;
                return Ok(true);
            }
        };
        let found = !streams.is_empty();
        self.add(index, streams)?;
        Ok(found)
    }

    fn add(&mut self, session: usize, streams: Vec<StreamEntry>) -> Result<(), Error> {
        for entry in streams {
            let trace = self.trace(session, &entry)?;
            let path = Path::new(&entry.path).join(&entry.channel);
            if entry.is_metadata {
                if let Some(trace) = self.traces.get_mut(trace) {
                    trace.metadata_stream = Some(entry.stream);
                }
            } else {
                self.add_stream(Source { stream: entry.stream, trace, path, waiting: None })?;
            }
        }
        for trace in 0..self.traces.len() {
            if self.traces.get(trace).is_some_and(|trace| trace.class.is_none()) {
                self.fetch_metadata(trace)?;
            }
        }
        Ok(())
    }

    fn add_stream(&mut self, source: Source) -> Result<(), Error> {
        if self.merge.open() >= MAX_STREAMS {
            return Err(Error::TooManyStreams { limit: MAX_STREAMS });
        }
        let lane = self.merge.add(source.path.clone());
        if let Some(trace) = self.traces.get_mut(source.trace) {
            trace.lanes = Some(trace.lanes.unwrap_or(0) + 1);
        }
        match self.sources.get_mut(lane) {
            Some(place) => {
                let before = std::mem::replace(place, source);
                let trace = self.traces.get_mut(before.trace);
                if let Some(lanes) = trace.and_then(|trace| trace.lanes.as_mut()) {
                    *lanes -= 1;
                }
            }
            None => self.sources.push(source),
        }
        self.appeared += 1;
        self.fresh.push(lane);
        Ok(())
    }

    fn trace(&mut self, session: usize, entry: &StreamEntry) -> Result<usize, Error> {
        let is_it = |trace: &Trace| (trace.session, trace.id) == (session, entry.trace);
        if let Some(known) = self.traces.iter().rposition(is_it) {
            return Ok(known);
        }
        let trace = Trace {
            session,
            id: entry.trace,
            path: PathBuf::from(&entry.path),
            metadata_stream: None,
            metadata: MetadataStream::new(),
            class: None,
            is_broken: false,
            lanes: None,
        };
        // In the place of one whose streams have all ended so long ago that their lanes are those of others.
        let free = self.traces.iter().position(|trace| trace.lanes == Some(0));
        if let Some((index, place)) =
            free.and_then(|index| self.traces.get_mut(index).map(|place| (index, place)))
        {
            *place = trace;
            return Ok(index);
        }
        if self.traces.len() >= MAX_STREAMS {
            return Err(Error::TooManyStreams { limit: MAX_STREAMS });
        }
        self.traces.push(trace);
        Ok(self.traces.len() - 1)
    }

    /// Fetches the metadata that were not yet, up to what the relay has now.
    fn fetch_metadata(&mut self, index: usize) -> Result<(), Error> {
        let Some(trace) = self.traces.get_mut(index) else { return Ok(()) };
        while let Some(stream) = trace.metadata_stream.filter(|_| !trace.is_broken) {
            match self.relay.ask(&Request::GetMetadata(stream), MetadataReply::decode)? {
                MetadataReply::Bytes(0) | MetadataReply::NoneNew => break,
                MetadataReply::Bytes(len) => {
                    let mut piece = Vec::new();
                    self.relay.bytes(usize::try_from(len).unwrap_or(usize::MAX), &mut piece)?;
                    if let Err(source) = trace.grow(&piece) {
                        let path = trace.path.join("metadata");
                        let error = tracedir::Error::Metadata { path, source };
                        self.findings.push(Finding::Trace(error));
                    }
                }
                MetadataReply::Failed => trace.metadata_stream = None,
            }
        }
        Ok(())
    }

    /// Asks for the next packet of a lane; gives whether the lane got further.
    fn ask(&mut self, lane: LaneId, now: Duration) -> Result<bool, Error> {
        let Some(source) = self.sources.get_mut(lane) else { return Ok(false) };
        let trace = source.trace;
        if let Some((entry, since)) = source.waiting.take() {
            self.fetch_metadata(trace)?;
            return self.packet(lane, entry, since, now);
        }
        let request = Request::GetNextIndex(source.stream);
        let NextIndexReply { index, flags } = self.relay.ask(&request, NextIndexReply::decode)?;
        self.heed(trace, flags, now)?;
        match index {
            NextIndex::Packet(entry) => return self.packet(lane, entry, now, now),
            NextIndex::NotYet => return Ok(false),
            NextIndex::Inactive { until, stream_class_id } => {
                let at = self.nanos(trace, stream_class_id, until);
                at.into_iter().for_each(|at| self.merge.come_to(lane, at));
                return Ok(false);
            }
            NextIndex::HangUp | NextIndex::End => self.merge.end(lane),
            NextIndex::Failed => {
                self.find(lane, 0, gone("the relay cannot say what comes next"));
                self.merge.end(lane);
            }
        }
        Ok(true)
    }

    /// Does what a reply's flags ask for.
    fn heed(&mut self, trace: usize, flags: Flags, now: Duration) -> Result<(), Error> {
        if flags.contains(Flags::NEW_METADATA) {
            self.fetch_metadata(trace)?;
        }
        let session = self.traces.get(trace).map(|trace| trace.session);
        if let Some(index) = session.filter(|_| flags.contains(Flags::NEW_STREAMS)) {
            if let Some(session) = self.sessions.get_mut(index) {
                session.has_new = true;
            }
            self.look_for_streams(index, now)?;
        }
        Ok(())
    }

    /// Fetches and opens a packet, which waits since `since`.
    fn packet(
        &mut self,
        lane: LaneId,
        entry: PacketEntry,
        since: Duration,
        now: Duration,
    ) -> Result<bool, Error> {
        let Some(trace) = self.sources.get(lane).map(|source| source.trace) else {
            return Ok(false);
        };
        let may_wait = now.saturating_sub(since) < PACKET_LIMIT;
        let known = self.traces.get(trace).and_then(|trace| trace.known(entry.stream_class_id));
        let Some(class) = known else {
            let broken = self.traces.get(trace).is_some_and(|trace| trace.is_broken);
            let why = "its metadata did not come";
            return Ok(self.wait(lane, entry, since, may_wait && !broken, why));
        };
        let end = self.nanos(trace, entry.stream_class_id, entry.timestamp_end);
        if let Some(end) = end.filter(|end| *end < self.begin) {
            self.merge.come_to(lane, end);
            return Ok(true);
        }
        // Its padding is not fetched.
        let content = entry.content_size_bits.min(entry.packet_size_bits).div_ceil(8);
        let limit = MAX_PACKET_BYTES.min(self.memory.limit_bytes());
        if content > limit {
            self.find(lane, entry.offset_bytes, Cause::TooLong { announced: content, limit });
            return Ok(true);
        }
        let Some(room) = self.memory.set_aside(content) else {
            // Counted once, however long it waits.
            self.short += u64::from(since == now);
            let limit = self.memory.limit_bytes() >> 20;
            let why = format!("other packets take all of {limit} MiB");
            return Ok(self.wait(lane, entry, since, may_wait, &why));
        };
        match self.fetch(lane, trace, &entry, now)? {
            Fetched::Whole(bytes) => {
                if let Err(error) = self.merge.take(lane, &class, room.hold(bytes)) {
                    self.find(lane, entry.offset_bytes, Cause::Damaged(Box::new(error)));
                }
                Ok(true)
            }
            Fetched::NotYet => {
                Ok(self.wait(lane, entry, since, may_wait, "its bytes did not come"))
            }
            Fetched::Gone => {
                self.find(lane, entry.offset_bytes, gone("the relay has not kept it"));
                Ok(true)
            }
        }
    }

    /// Lets a packet wait, or gives it up; gives whether the lane gets further.
    fn wait(
        &mut self,
        lane: LaneId,
        entry: PacketEntry,
        since: Duration,
        may_wait: bool,
        why: &str,
    ) -> bool {
        if !may_wait {
            self.find(lane, entry.offset_bytes, gone(why));
        } else if let Some(source) = self.sources.get_mut(lane) {
            source.waiting = Some((entry, since));
        }
        !may_wait
    }

    /// The content of a packet, without its padding.
    fn fetch(
        &mut self,
        lane: LaneId,
        trace: usize,
        entry: &PacketEntry,
        now: Duration,
    ) -> Result<Fetched, Error> {
        let Some(stream) = self.sources.get(lane).map(|source| source.stream) else {
            return Ok(Fetched::Gone);
        };
        let bits = entry.content_size_bits.min(entry.packet_size_bits);
        let len = usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
        let (mut bytes, mut asides) = (Vec::new(), 0);
        while bytes.len() < len {
            let left = u32::try_from(len - bytes.len()).unwrap_or(u32::MAX);
            let len_bytes = left.min(PIECE_BYTES);
            let offset_bytes = entry.offset_bytes.saturating_add(bytes.len() as u64);
            let request = Request::GetPacket(GetPacket { stream, offset_bytes, len_bytes });
            let decode = |bytes: &[u8]| PacketReply::decode(bytes, len_bytes);
            let PacketReply { piece, flags } = self.relay.ask(&request, decode)?;
            match piece {
                PacketPiece::Bytes(0) | PacketPiece::End => return Ok(Fetched::Gone),
                PacketPiece::Bytes(len) => {
                    let len = usize::try_from(len).unwrap_or(usize::MAX);
                    self.relay.bytes(len, &mut bytes)?;
                }
                PacketPiece::NotYet => return Ok(Fetched::NotYet),
                PacketPiece::Failed if flags == Flags::NONE || asides >= ASIDES => {
                    return Ok(Fetched::Gone);
                }
                PacketPiece::Failed => {
                    asides += 1;
                    self.heed(trace, flags, now)?;
                }
            }
        }
        Ok(Fetched::Whole(bytes))
    }

    fn find(&mut self, lane: LaneId, offset_bytes: u64, cause: Cause) {
        let path = self.sources.get(lane).map(|source| source.path.clone()).unwrap_or_default();
        self.findings.push(Finding::Packet { path, offset_bytes, cause });
    }

    /// A clock value as nanoseconds.
    fn nanos(&self, trace: usize, stream_class_id: u64, cycles: u64) -> Option<i64> {
        let class = self.traces.get(trace)?.class.as_ref()?;
        // A relay that has seen no packet of the stream may not know its class; a tracer has one clock for all.
        let of_stream = class.stream_class(stream_class_id).and_then(|s| class.clock_of(s));
        let clock = of_stream.or_else(|| class.clock_classes().first())?;
        clock.to_ns(cycles).ok()
    }
}

impl Trace {
    fn grow(&mut self, piece: &[u8]) -> Result<(), ctf::Error> {
        match self.metadata.push(piece) {
            Ok(MetadataProgress::Grown(class)) => self.class = Some(class),
            Ok(MetadataProgress::NeedMore) => {}
            Err(error) => {
                self.is_broken = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// The trace class, once it declares a stream class.
    fn known(&self, stream_class_id: u64) -> Option<Arc<TraceClass>> {
        self.class.clone().filter(|class| class.stream_class(stream_class_id).is_some())
    }
}

/// A packet that cannot be had.
fn gone(why: &str) -> Cause {
    Cause::Io(io::Error::new(io::ErrorKind::NotFound, why))
}
