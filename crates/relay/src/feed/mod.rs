//! What viewers may be shown of a recording session while it is written.
//!
//! ```text
//! recording.rs, stream.rs ─▶ Feed: released packets, beacons, metadata, chunks' folders ─▶ viewer/
//! ```
//! Writers tell the feed what is written, never before; they neither wait for viewers nor know them. Viewers ask with
//! cursors of their own, so any number of them read at once. The rules of what is said are in [`law`].
//!
//! A packet is known by its chunk and its place in it, never by a path: a chunk may move while it is read. The newest
//! packets of each stream are kept in memory, at most [`Limits::viewed_packets_per_stream`]; those are the history a viewer may
//! ask for.
//!
//! Lock order: a recording session's lock may be held when its feed's lock is taken, never the other way round. Nothing
//! is read or opened while a feed's lock is held.

mod documents;
pub(crate) mod law;
#[cfg(test)]
mod simulation;
mod stream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use wire::live::{
    AddStream, ChunkId, CreateSession, Name, NetSeqNum, PacketIndex, RelativePath, RelaySessionId,
    StreamHandle, TraceFormat, TracefileLimit, ViewedSessionId, ViewedTraceId,
};

use self::documents::Documents;
pub(crate) use self::stream::{Cursor, Next, Packet};
use self::stream::{Reach, Stream, Untimed};
use crate::config::Limits;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::merge::Place;
use crate::root::Root;
use crate::stream::data_name;

/// Chunks of one session whose folders are remembered.
const CHUNKS_KEPT: usize = 4096;
/// Files of one stream that are remembered as open.
const OPEN_KEPT: usize = 8;
/// Packets of a stream that are kept at least.
const LEAST_KEPT: usize = 64;

/// The feeds of all recording sessions that viewers may see.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    feeds: Mutex<BTreeMap<ViewedSessionId, Arc<Feed>>>,
    budget: Arc<Budget>,
}

/// Packets that all feeds together keep.
#[derive(Debug, Default)]
struct Budget(AtomicUsize);

/// What viewers may be shown of one recording session.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) id: ViewedSessionId,
    pub(crate) hostname: String,
    pub(crate) name: String,
    pub(crate) live_timer_us: u32,
    pub(crate) format: TraceFormat,
    /// Viewers attached.
    viewers: AtomicU32,
    grace: Duration,
    packets_kept: usize,
    budget: Arc<Budget>,
    budget_limit: usize,
    closed_kept: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: BTreeMap<StreamHandle, Entry>,
    /// Streams that ended, oldest first.
    closed: VecDeque<StreamHandle>,
    traces: BTreeMap<RelativePath, ViewedTraceId>,
    /// The metadata stream of each trace.
    metadata: BTreeMap<ViewedTraceId, StreamHandle>,
    chunks: BTreeMap<ChunkId, Places>,
    /// How many times streams were published.
    publications: u64,
    reach: Reach,
    /// The longest span of any stream.
    span: Duration,
    is_over: bool,
}

/// Where a chunk is, and where it is being moved.
#[derive(Debug)]
struct Places {
    at: RelativePath,
    to: Option<RelativePath>,
}

/// A stream of either kind.
#[derive(Debug)]
struct Entry {
    owner: RelaySessionId,
    path: RelativePath,
    channel: Name,
    limit: Option<TracefileLimit>,
    trace: ViewedTraceId,
    /// The publication that it became visible with.
    published: Option<u64>,
    content: Content,
    /// Files that somebody has open.
    open: VecDeque<((ChunkId, u64), Weak<File>)>,
}

#[derive(Debug)]
enum Content {
    Packets(Stream),
    Metadata(Metadata),
}

/// A metadata stream. After a rotation all of it comes again into another file; viewers are shown the old one until the
/// other has as much, because what they have is the beginning of both.
#[derive(Debug, Default)]
struct Metadata {
    shown: Option<(Arc<File>, Documents)>,
    coming: Option<(Arc<File>, Documents)>,
    is_closed: bool,
}

/// A stream as a viewer is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) handle: StreamHandle,
    pub(crate) trace: ViewedTraceId,
    pub(crate) is_metadata: bool,
    pub(crate) path: RelativePath,
    pub(crate) channel: Name,
    /// At the first packet that is kept, and behind the last one.
    pub(crate) beginning: Cursor,
    pub(crate) end: Cursor,
}

/// Where a viewer begins in streams that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All streams.
    All,
    /// Those of traces to which something may still be added.
    Open,
}

/// Where a packet's bytes are.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// In a file that is open.
    Open(Arc<File>, Packet),
    /// In a file with one of these paths.
    At(Vec<RelativePath>, Packet),
}

impl Catalogue {
    /// A feed for a recording session; it is listed if its producer sends what viewers can be shown.
    pub(crate) fn open(
        &self,
        id: RelaySessionId,
        request: &CreateSession,
        limits: &Limits,
    ) -> Arc<Feed> {
        let text = |name: &Option<Name>| name.as_ref().map(Name::to_string).unwrap_or_default();
        let format = request.identity.as_ref().and_then(|identity| identity.trace_format);
        let feed = Arc::new(Feed {
            id: ViewedSessionId::new(id.get()),
            hostname: text(&request.hostname),
            name: text(&request.session_name),
            live_timer_us: request.live_timer_us,
            format: format.unwrap_or(TraceFormat::Ctf1_8),
            viewers: AtomicU32::new(0),
            grace: limits.untimed_grace,
            budget: Arc::clone(&self.budget),
            budget_limit: limits.viewed_packets,
            packets_kept: limits.viewed_packets_per_stream,
            closed_kept: limits.viewed_closed_streams,
            state: Mutex::default(),
        });
        if request.session_name.is_some() && !request.snapshot {
            lock(&self.feeds).insert(feed.id, Arc::clone(&feed));
        }
        feed
    }

    /// The session is over: it is not listed any more; who is attached reads to the end.
    pub(crate) fn close(&self, feed: &Feed) {
        feed.end();
        lock(&self.feeds).remove(&feed.id);
    }

    /// The feeds of sessions that are recorded now.
    pub(crate) fn sessions(&self) -> Vec<Arc<Feed>> {
        lock(&self.feeds).values().filter(|feed| !feed.is_over()).cloned().collect()
    }

    /// The feed of a session that is recorded now.
    pub(crate) fn find(&self, id: ViewedSessionId) -> Option<Arc<Feed>> {
        lock(&self.feeds).get(&id).filter(|feed| !feed.is_over()).cloned()
    }
}

/// What writers tell.
impl Feed {
    /// A stream was added; it is seen from the next [`Feed::publish`] on. `trace` numbers its trace if it is new.
    pub(crate) fn add(
        &self,
        owner: RelaySessionId,
        handle: StreamHandle,
        request: &AddStream,
        trace: impl FnOnce() -> ViewedTraceId,
    ) {
        let mut state = lock(&self.state);
        let trace = *state.traces.entry(request.path.clone()).or_insert_with(trace);
        let content = if request.is_metadata() {
            state.metadata.insert(trace, handle);
            Content::Metadata(Metadata::default())
        } else {
            Content::Packets(Stream::default())
        };
        let entry = Entry {
            owner,
            path: request.path.clone(),
            channel: request.channel.clone(),
            limit: request.tracefile,
            trace,
            published: None,
            content,
            open: VecDeque::new(),
        };
        state.streams.insert(handle, entry);
    }

    /// The streams that a relay session has added so far may be seen.
    pub(crate) fn publish(&self, owner: RelaySessionId) {
        let mut state = lock(&self.state);
        let number = state.publications + 1;
        let mut is_any = false;
        for entry in state.streams.values_mut() {
            if entry.owner == owner && entry.published.is_none() {
                entry.published = Some(number);
                is_any = true;
            }
        }
        if is_any {
            state.publications = number;
        }
    }

    /// A packet and its entry are written. `file` is the packet's, if it is at hand.
    pub(crate) fn release(
        &self,
        handle: StreamHandle,
        (chunk, place): (ChunkId, Place),
        entry: PacketIndex,
        file: Option<&Arc<File>>,
        counters: &Counters,
    ) {
        self.release_at(handle, (chunk, place), entry, file, counters, Instant::now());
    }

    fn release_at(
        &self,
        handle: StreamHandle,
        (chunk, place): (ChunkId, Place),
        entry: PacketIndex,
        file: Option<&Arc<File>>,
        counters: &Counters,
        now: Instant,
    ) {
        let mut state = lock(&self.state);
        let State { streams, reach, span, .. } = &mut *state;
        let Some(known) = streams.get_mut(&handle) else { return };
        let Content::Packets(stream) = &mut known.content else { return };
        if !stream.keeps_promise(&entry) {
            counters.promises_broken.add(1);
            tracing::warn!(%handle, begin = entry.timestamp_begin, "a packet began before the time a beacon named");
        }
        let is_full = self.budget.0.load(Ordering::Relaxed) >= self.budget_limit;
        let kept = if is_full { self.packets_kept.min(LEAST_KEPT) } else { self.packets_kept };
        let dropped = stream.release(chunk, place, entry, now, kept);
        self.budget.0.fetch_add(1, Ordering::Relaxed);
        self.budget.0.fetch_sub(dropped, Ordering::Relaxed);
        if self.is_untimed() {
            *span = (*span).max(stream.span());
            reach.note(now, entry.timestamp_end, self.grace + law::MOST_SPAN);
        }
        if let Some(file) = file {
            known.opened(chunk, place.file, file);
        }
    }

    /// A beacon came.
    pub(crate) fn beacon(&self, handle: StreamHandle, beacon: &PacketIndex) {
        self.with_packets(handle, |stream| stream.beacon(beacon));
    }

    /// What of a stream waits for its other half.
    pub(crate) fn settled(
        &self,
        handle: StreamHandle,
        lowest_waiting: Option<NetSeqNum>,
        last_entry: Option<NetSeqNum>,
    ) {
        self.with_packets(handle, |stream| stream.settled(lowest_waiting, last_entry));
    }

    /// Metadata begin in a new file.
    pub(crate) fn metadata_begins(&self, handle: StreamHandle, file: &Arc<File>) {
        self.with_metadata(handle, |metadata| {
            let begun = Some((Arc::clone(file), Documents::default()));
            if metadata.shown.is_some() {
                metadata.coming = begun;
            } else {
                metadata.shown = begun;
            }
        });
    }

    /// The file of a metadata stream is about to be emptied, for metadata that replace those it had.
    pub(crate) fn metadata_reset(&self, handle: StreamHandle, file: &Arc<File>) {
        self.with_metadata(handle, |metadata| {
            metadata.shown = Some((Arc::clone(file), Documents::default()));
            metadata.coming = None;
        });
    }

    /// Metadata were written.
    pub(crate) fn metadata(&self, handle: StreamHandle, bytes: &[u8], padding: u64) {
        self.with_metadata(handle, |metadata| metadata.grow(bytes, padding));
    }

    /// A stream ended.
    pub(crate) fn close_stream(&self, handle: StreamHandle) {
        let mut state = lock(&self.state);
        let Some(entry) = state.streams.get_mut(&handle) else { return };
        match &mut entry.content {
            Content::Packets(stream) => stream.close(),
            Content::Metadata(metadata) => metadata.close(),
        }
        state.closed.push_back(handle);
        while state.closed.len() > self.closed_kept.max(1) {
            let Some(oldest) = state.closed.pop_front() else { break };
            self.remove(&mut state, oldest);
        }
    }

    /// A stream came to nothing.
    pub(crate) fn forget(&self, handle: StreamHandle) {
        self.remove(&mut lock(&self.state), handle);
    }

    fn remove(&self, state: &mut State, handle: StreamHandle) {
        let Some(entry) = state.streams.remove(&handle) else { return };
        if let Content::Packets(stream) = &entry.content {
            self.budget.0.fetch_sub(stream.len(), Ordering::Relaxed);
        }
        if !state.streams.values().any(|other| other.trace == entry.trace) {
            state.traces.remove(&entry.path);
            state.metadata.remove(&entry.trace);
        }
    }

    /// A trace file is about to be overwritten: it and those before it in the chunk are gone.
    pub(crate) fn overwritten(&self, handle: StreamHandle, chunk: ChunkId, last: u64) {
        self.with_packets(handle, |stream| {
            stream.lose(|packet| packet.chunk == chunk && packet.place.file <= last);
        });
    }

    /// Packets were moved to the first file of another chunk.
    pub(crate) fn relocate(
        &self,
        handle: StreamHandle,
        (from, number, first): (ChunkId, u64, u64),
        to: ChunkId,
    ) {
        self.with_packets(handle, |stream| stream.relocate(from, number, first, to));
    }

    /// Where a chunk is.
    pub(crate) fn chunk_is_at(&self, chunk: ChunkId, folder: &RelativePath) {
        let mut state = lock(&self.state);
        state.chunks.insert(chunk, Places { at: folder.clone(), to: None });
        while state.chunks.len() > CHUNKS_KEPT {
            state.chunks.pop_first();
        }
    }

    /// A chunk is about to move.
    pub(crate) fn chunk_goes_to(&self, chunk: ChunkId, folder: &RelativePath) {
        if let Some(places) = lock(&self.state).chunks.get_mut(&chunk) {
            places.to = Some(folder.clone());
        }
    }

    /// A chunk is about to be deleted.
    pub(crate) fn chunk_is_gone(&self, chunk: ChunkId) {
        let mut state = lock(&self.state);
        state.chunks.remove(&chunk);
        for entry in state.streams.values_mut() {
            if let Content::Packets(stream) = &mut entry.content {
                stream.lose(|packet| packet.chunk == chunk);
            }
        }
    }

    /// Nobody records into the session any more.
    pub(crate) fn end(&self) {
        lock(&self.state).is_over = true;
    }

    fn with_packets(&self, handle: StreamHandle, act: impl FnOnce(&mut Stream)) {
        if let Some(Entry { content: Content::Packets(stream), .. }) =
            lock(&self.state).streams.get_mut(&handle)
        {
            act(stream);
        }
    }

    fn with_metadata(&self, handle: StreamHandle, act: impl FnOnce(&mut Metadata)) {
        if let Some(Entry { content: Content::Metadata(metadata), .. }) =
            lock(&self.state).streams.get_mut(&handle)
        {
            act(metadata);
        }
    }
}

/// What viewers ask.
impl Feed {
    /// Whether the session has no live timer.
    const fn is_untimed(&self) -> bool {
        self.live_timer_us == 0
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// How many times streams were published.
    pub(crate) fn publications(&self) -> u64 {
        lock(&self.state).publications
    }

    pub(crate) fn viewers(&self) -> u32 {
        self.viewers.load(Ordering::Relaxed)
    }

    pub(crate) fn viewer_came(&self) {
        self.viewers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn viewer_left(&self) {
        self.viewers.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many streams may be seen.
    pub(crate) fn stream_count(&self) -> usize {
        let state = lock(&self.state);
        state.streams.values().filter(|entry| entry.published.is_some()).count()
    }

    /// Streams published after the publication `since`, at most `limit` of them, metadata first, and the number of the
    /// last publication.
    pub(crate) fn streams(&self, since: u64, extent: Extent, limit: usize) -> (Vec<Listed>, u64) {
        let state = lock(&self.state);
        if state.publications <= since {
            return (Vec::new(), since);
        }
        let open: BTreeSet<ViewedTraceId> = match extent {
            Extent::All => BTreeSet::new(),
            Extent::Open => {
                let open = state.streams.values().filter(|entry| !entry.is_closed());
                open.map(|entry| entry.trace).collect()
            }
        };
        let is_shown = |entry: &Entry| extent == Extent::All || open.contains(&entry.trace);
        let mut listed: Vec<Listed> = state
            .streams
            .iter()
            .filter(|(_, entry)| entry.published.is_some_and(|number| number > since))
            .filter(|(_, entry)| is_shown(entry))
            .take(limit)
            .map(|(handle, entry)| entry.listed(*handle))
            .collect();
        listed.sort_by_key(|stream| !stream.is_metadata);
        (listed, state.publications)
    }

    /// What a viewer is to be told of a data stream; `None` when there is no such stream (any more).
    pub(crate) fn next(
        &self,
        handle: StreamHandle,
        cursor: &mut Cursor,
        now: Instant,
    ) -> Option<Next> {
        let state = lock(&self.state);
        let entry = state.streams.get(&handle)?;
        let Content::Packets(stream) = &entry.content else { return None };
        // Nobody can read packets of a trace without metadata.
        let has_metadata = state.metadata_of(entry.trace).is_some_and(|(_, len)| len > 0);
        if !has_metadata && !state.is_over {
            return Some(Next::NotYet);
        }
        let untimed = self.is_untimed().then(|| Untimed {
            grace: self.grace,
            reach: &state.reach,
            span: state.span,
            is_final: state.is_over || state.has_all_metadata(entry.trace),
            class: stream.class().or_else(|| state.class_of_channel(entry)),
        });
        Some(stream.next(cursor, now, untimed))
    }

    /// Whether a viewer has all there will be of a stream; one that is forgotten counts as read.
    pub(crate) fn is_read(&self, handle: StreamHandle, cursor: &Cursor) -> bool {
        match lock(&self.state).streams.get(&handle) {
            Some(Entry { content: Content::Packets(stream), .. }) => stream.is_read(cursor),
            _ => true,
        }
    }

    /// Where a packet is; `None` when it is gone.
    pub(crate) fn locate(&self, handle: StreamHandle, number: u64) -> Option<Location> {
        let state = lock(&self.state);
        let entry = state.streams.get(&handle)?;
        let Content::Packets(stream) = &entry.content else { return None };
        let packet = *stream.packet(number)?;
        let key = (packet.chunk, packet.place.file);
        let open = entry.open.iter().find(|(known, _)| *known == key);
        Some(match open.and_then(|(_, file)| file.upgrade()) {
            Some(file) => Location::Open(file, packet),
            None => {
                let Places { at, to } = state.chunks.get(&packet.chunk)?;
                let folders = std::iter::once(at).chain(to);
                Location::At(folders.map(|it| entry.file_path(it, packet)).collect(), packet)
            }
        })
    }

    /// Opens the file of a packet; `None` when the packet is gone.
    pub(crate) fn open(
        &self,
        root: &Root,
        handle: StreamHandle,
        number: u64,
    ) -> Result<Option<(Arc<File>, Packet)>> {
        let mut last_failure = None;
        // A chunk may move between the look and the opening.
        for _ in 0..3 {
            let (paths, packet) = match self.locate(handle, number) {
                None => return Ok(None),
                Some(Location::Open(file, packet)) => return Ok(Some((file, packet))),
                Some(Location::At(paths, packet)) => (paths, packet),
            };
            let opened = paths.iter().map(|path| root.read(path));
            match opened
                .reduce(Result::or)
                .unwrap_or(Err(Error::Meaningless { what: "a chunk that is nowhere" }))
            {
                // A file of this name may be another one by now, but then the packet is gone or elsewhere.
                Ok(file) if self.is_still(handle, number, &packet) => {
                    let file = Arc::new(file);
                    if let Some(entry) = lock(&self.state).streams.get_mut(&handle) {
                        entry.opened(packet.chunk, packet.place.file, &file);
                    }
                    return Ok(Some((file, packet)));
                }
                Ok(_) => {}
                Err(error) => last_failure = Some(error),
            }
        }
        last_failure.map_or(Ok(None), Err)
    }

    fn is_still(&self, handle: StreamHandle, number: u64, packet: &Packet) -> bool {
        match lock(&self.state).streams.get(&handle) {
            Some(Entry { content: Content::Packets(stream), .. }) => {
                stream.packet(number) == Some(packet)
            }
            _ => false,
        }
    }

    /// The metadata file of a stream and how much of it may be shown.
    pub(crate) fn metadata_file(&self, handle: StreamHandle) -> Option<(Arc<File>, u64)> {
        match lock(&self.state).streams.get(&handle) {
            Some(Entry { content: Content::Metadata(metadata), .. }) => {
                metadata.shown.as_ref().map(|(file, it)| (Arc::clone(file), it.whole()))
            }
            _ => None,
        }
    }

    /// The metadata stream of a trace and how much of it may be shown, in bytes.
    pub(crate) fn metadata_of(&self, trace: ViewedTraceId) -> Option<(StreamHandle, u64)> {
        lock(&self.state).metadata_of(trace)
    }
}

impl State {
    fn metadata_of(&self, trace: ViewedTraceId) -> Option<(StreamHandle, u64)> {
        let handle = *self.metadata.get(&trace)?;
        match self.streams.get(&handle)? {
            Entry { content: Content::Metadata(metadata), .. } => Some((handle, metadata.whole())),
            Entry { .. } => None,
        }
    }

    /// Whether no more metadata can come for a trace.
    fn has_all_metadata(&self, trace: ViewedTraceId) -> bool {
        let metadata = self.metadata.get(&trace).and_then(|handle| self.streams.get(handle));
        metadata.is_some_and(Entry::is_closed)
    }

    /// The class of another stream of the same channel: LTTng names streams `CHANNEL_CPU`.
    fn class_of_channel(&self, of: &Entry) -> Option<u64> {
        let channel =
            |name: &Name| name.as_str().rsplit_once('_').map(|(channel, _)| channel.to_owned());
        let wanted = channel(&of.channel)?;
        self.streams
            .values()
            .filter(|entry| entry.trace == of.trace)
            .filter(|entry| channel(&entry.channel).is_some_and(|channel| channel == wanted))
            .find_map(|entry| match &entry.content {
                Content::Packets(stream) => stream.class(),
                Content::Metadata(_) => None,
            })
    }
}

impl Entry {
    const fn is_closed(&self) -> bool {
        match &self.content {
            Content::Packets(stream) => stream.is_closed(),
            Content::Metadata(metadata) => metadata.is_closed,
        }
    }

    fn listed(&self, handle: StreamHandle) -> Listed {
        let (beginning, end) = match &self.content {
            Content::Packets(stream) => (stream.beginning(), stream.end()),
            Content::Metadata(_) => (Cursor::default(), Cursor::default()),
        };
        Listed {
            handle,
            trace: self.trace,
            is_metadata: matches!(self.content, Content::Metadata(_)),
            path: self.path.clone(),
            channel: self.channel.clone(),
            beginning,
            end,
        }
    }

    fn file_path(&self, chunk: &RelativePath, packet: Packet) -> RelativePath {
        let folder = chunk.join_path(&self.path);
        let name = data_name(&self.channel, self.limit, packet.place.file);
        folder.join_path(&RelativePath::new(&name).unwrap_or_default())
    }

    /// A file is open: others may share it.
    fn opened(&mut self, chunk: ChunkId, number: u64, file: &Arc<File>) {
        let key = (chunk, number);
        if self.open.back().is_some_and(|(known, open)| {
            *known == key && std::ptr::eq(open.as_ptr(), Arc::as_ptr(file))
        }) {
            return;
        }
        self.open.retain(|(known, open)| *known != key && open.strong_count() > 0);
        if self.open.len() >= OPEN_KEPT {
            self.open.pop_front();
        }
        self.open.push_back((key, Arc::downgrade(file)));
    }
}

impl Metadata {
    fn grow(&mut self, bytes: &[u8], padding: u64) {
        let growing = self.coming.as_mut().or(self.shown.as_mut());
        if let Some((_, documents)) = growing {
            documents.push(bytes);
            documents.push_zeros(padding);
        }
        self.catch_up();
    }

    /// Shows the other file once it has as much as the one that is shown.
    fn catch_up(&mut self) {
        if self.coming.as_ref().is_some_and(|(_, coming)| coming.whole() >= self.whole()) {
            self.shown = self.coming.take();
        }
    }

    fn whole(&self) -> u64 {
        self.shown.as_ref().map_or(0, |(_, documents)| documents.whole())
    }

    fn close(&mut self) {
        self.is_closed = true;
        for (_, documents) in self.shown.iter_mut().chain(self.coming.iter_mut()) {
            documents.finish();
        }
        self.catch_up();
    }
}

/// A panic while the lock was held has been reported where it happened; the state is what it was before or after a step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Feed {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let kept = state.streams.values().map(|entry| match &entry.content {
            Content::Packets(stream) => stream.len(),
            Content::Metadata(_) => 0,
        });
        self.budget.0.fetch_sub(kept.sum(), Ordering::Relaxed);
    }
}
