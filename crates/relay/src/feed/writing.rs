//! What writers tell of a session. Each call is short and waits for nobody but others who ask or tell just then.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use wire::live::{
    AddStream, ChunkId, NetSeqNum, PacketIndex, RelativePath, RelaySessionId, StreamHandle,
    ViewedTraceId,
};

use super::chunks::ChunkKey;
use super::entry::{Content, Entry};
use super::file::TraceFile;
use super::metadata::Metadata;
use super::stream::Stream;
use super::{Feed, State, law, lock};
use crate::counters::Counters;
use crate::merge::Place;

/// What writers tell.
impl Feed {
    /// So many packets of a stream were lost on their way here.
    pub(crate) fn lost_by_network(&self, stream: &RelativePath, packets: u64) {
        let mut lost = lock(&self.lost_by_network);
        let count = lost.entry(stream.clone()).or_default();
        *count = count.saturating_add(packets);
    }

    /// A stream was added; it is seen from the next [`Feed::publish`] on. `trace` numbers its trace if it is new.
    pub(crate) fn add(
        &self,
        owner: RelaySessionId,
        handle: StreamHandle,
        request: &AddStream,
        trace: impl FnOnce() -> ViewedTraceId,
    ) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.take_back(owner, handle, request) {
            return;
        }
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

    pub(super) fn release_at(
        &self,
        handle: StreamHandle,
        (chunk, place): (ChunkId, Place),
        entry: PacketIndex,
        file: Option<&Arc<File>>,
        counters: &Counters,
        now: Instant,
    ) {
        let mut state = lock(&self.state);
        let State { streams, renamed, reach, span, classes, .. } = &mut *state;
        let known = streams.get_mut(&renamed.known(handle));
        let Some(known) = known else { return };
        let Content::Packets(stream) = &mut known.content else { return };
        if stream.class().is_none() {
            classes.is(known.trace, &known.channel, entry.stream_class_id);
        }
        if !stream.keeps_promise(&entry) {
            counters.promises_broken.add(1);
            tracing::warn!(%handle, begin = entry.timestamp_begin, "a packet began before the time a beacon named");
        }
        let chunk = ChunkKey::Since(chunk);
        let pace = self.is_untimed().then_some(self.grace);
        let change = stream.release(chunk, place, &entry, now, self.budget.for_stream(pace));
        self.budget.note(change);
        if self.is_untimed() {
            *span = (*span).max(stream.span());
            reach.note(now, entry.timestamp_end, self.grace + law::MOST_SPAN);
        }
        if let Some(file) = file {
            known.opened(chunk, place.file, &TraceFile::written(file));
        }
    }

    /// The file of a packet was overwritten before its entry came.
    pub(crate) fn pass(&self, handle: StreamHandle, entry: &PacketIndex) {
        self.pass_at(handle, entry, Instant::now());
    }

    pub(super) fn pass_at(&self, handle: StreamHandle, entry: &PacketIndex, now: Instant) {
        self.with_packets_of(handle, entry.stream_class_id, |stream| stream.pass(entry, now));
    }

    /// A beacon came.
    pub(crate) fn beacon(&self, handle: StreamHandle, beacon: &PacketIndex) {
        self.with_packets_of(handle, beacon.stream_class_id, |stream| stream.beacon(beacon));
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
        self.with_metadata(handle, |metadata| metadata.begin(TraceFile::written(file)));
    }

    /// The file of a metadata stream is about to be emptied, for metadata that replace those it had.
    pub(crate) fn metadata_reset(&self, handle: StreamHandle, file: &Arc<File>) {
        self.with_metadata(handle, |metadata| metadata.reset(TraceFile::written(file)));
    }

    /// Metadata were written.
    pub(crate) fn metadata(&self, handle: StreamHandle, bytes: &[u8], padding: u64) {
        self.with_metadata(handle, |metadata| metadata.grow(bytes, padding));
    }

    /// A stream ended.
    pub(crate) fn close_stream(&self, handle: StreamHandle) {
        let mut state = lock(&self.state);
        let handle = state.renamed.known(handle);
        state.end_stream(handle);
        self.let_go_of_closed(&mut state);
    }

    /// The producer of a stream is gone, and may come back as long as the session is there.
    pub(crate) fn suspend_stream(&self, handle: StreamHandle) {
        let mut state = lock(&self.state);
        let handle = state.renamed.known(handle);
        let Some(entry) = state.streams.get_mut(&handle) else { return };
        if let Content::Packets(stream) = &mut entry.content {
            stream.suspend();
        }
        let key = entry.key();
        let other = state.returnable.add(key, handle);
        let excess = state.returnable.excess(self.returnable_kept.max(1));
        for gone in other.into_iter().chain(excess) {
            state.end_stream(gone);
        }
        self.let_go_of_closed(&mut state);
    }

    /// Forgets the streams that ended first, of more than may be kept.
    pub(super) fn let_go_of_closed(&self, state: &mut State) {
        while state.closed.len() > self.closed_kept.max(1) {
            let Some(oldest) = state.closed.take_first() else { break };
            self.remove(state, oldest);
        }
    }

    /// A stream came to nothing.
    pub(crate) fn forget(&self, handle: StreamHandle) {
        self.remove(&mut lock(&self.state), handle);
    }

    fn remove(&self, state: &mut State, handle: StreamHandle) {
        let handle = state.renamed.known(handle);
        let Some(entry) = state.streams.remove(&handle) else { return };
        state.renamed.forget(handle);
        state.returnable.forget(&entry.key(), handle);
        if let Some(stream) = entry.packets() {
            self.budget.give_back(stream.len());
        }
        let State { streams, classes, .. } = &mut *state;
        let mut others = streams.values().filter(|other| other.trace == entry.trace);
        classes.keep(entry.trace, others.clone().map(|other| &other.channel), &entry.channel);
        if others.next().is_none() {
            state.traces.remove(&entry.path);
            state.metadata.remove(&entry.trace);
        }
    }

    /// A trace file is about to be overwritten: it and those before it in the chunk are gone.
    pub(crate) fn overwritten(&self, handle: StreamHandle, chunk: ChunkId, last: u64) {
        let chunk = ChunkKey::Since(chunk);
        self.with_packets(handle, |stream| {
            self.budget.note(stream.lose(|of, file| of == chunk && file <= last));
        });
    }

    /// The last packets of a stream were moved to the first files of another chunk: `moved` says how many are in each.
    pub(crate) fn relocate(
        &self,
        handle: StreamHandle,
        (from, number, first): (ChunkId, u64, u64),
        moved: &[u64],
        to: ChunkId,
    ) {
        let (from, to) = (ChunkKey::Since(from), ChunkKey::Since(to));
        self.with_packets(handle, |stream| {
            self.budget.note(stream.relocate((from, number, first), moved, to));
        });
    }

    /// Where a chunk is.
    pub(crate) fn chunk_is_at(&self, chunk: ChunkId, folder: &RelativePath) {
        let mut state = lock(&self.state);
        for forgotten in state.chunks.is_at(ChunkKey::Since(chunk), folder) {
            self.lose_chunk(&mut state, forgotten);
        }
    }

    /// A chunk is about to move.
    pub(crate) fn chunk_goes_to(&self, chunk: ChunkId, folder: &RelativePath) {
        lock(&self.state).chunks.goes_to(ChunkKey::Since(chunk), folder);
    }

    /// A chunk is about to be deleted.
    pub(crate) fn chunk_is_gone(&self, chunk: ChunkId) {
        self.lose_chunk(&mut lock(&self.state), ChunkKey::Since(chunk));
    }

    /// What is in a folder is about to be deleted.
    pub(crate) fn folder_is_gone(&self, folder: &RelativePath) {
        let mut state = lock(&self.state);
        if let Some(chunk) = state.chunks.find(folder) {
            self.lose_chunk(&mut state, chunk);
        }
    }

    fn lose_chunk(&self, state: &mut State, chunk: ChunkKey) {
        state.chunks.is_gone(chunk);
        for entry in state.streams.values_mut() {
            if let Content::Packets(stream) = &mut entry.content {
                self.budget.note(stream.lose(|of, _| of == chunk));
            }
        }
    }

    /// Nobody records into the session any more.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        while let Some(handle) = state.returnable.excess(0) {
            if let Some(entry) = state.streams.get_mut(&handle) {
                entry.close();
            }
        }
    }

    fn with_packets(&self, handle: StreamHandle, act: impl FnOnce(&mut Stream)) {
        if let Some(Entry { content: Content::Packets(stream), .. }) =
            lock(&self.state).sent(handle)
        {
            act(stream);
        }
    }

    /// Something came of a stream that says its class.
    fn with_packets_of(&self, handle: StreamHandle, class: u64, act: impl FnOnce(&mut Stream)) {
        let mut state = lock(&self.state);
        let State { streams, renamed, classes, .. } = &mut *state;
        let known = streams.get_mut(&renamed.known(handle));
        let Some(Entry { content: Content::Packets(stream), trace, channel, .. }) = known else {
            return;
        };
        if stream.class().is_none() {
            classes.is(*trace, channel, class);
        }
        act(stream);
    }

    fn with_metadata(&self, handle: StreamHandle, act: impl FnOnce(&mut Metadata)) {
        if let Some(Entry { content: Content::Metadata(metadata), .. }) =
            lock(&self.state).sent(handle)
        {
            act(metadata);
        }
    }
}

impl State {
    /// Nothing more comes of a stream.
    fn end_stream(&mut self, handle: StreamHandle) {
        let Some(entry) = self.streams.get_mut(&handle).filter(|entry| !entry.is_closed()) else {
            return;
        };
        entry.close();
        self.closed.last(handle);
    }

    /// Whether a stream that is added is one whose producer has come back; viewers go on reading it.
    fn take_back(
        &mut self,
        owner: RelaySessionId,
        handle: StreamHandle,
        request: &AddStream,
    ) -> bool {
        let key = (request.path.clone(), request.channel.clone());
        let Some(known) = self.returnable.get(&key) else { return false };
        let Some(entry) = self.streams.get_mut(&known).filter(|it| it.limit == request.tracefile)
        else {
            return false;
        };
        entry.reopen(owner);
        self.returnable.take(&key);
        self.closed.forget(known);
        self.renamed.rename(known, handle);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::feed::stream::tests::entry;
    use crate::feed::{Catalogue, Extent};
    use crate::registry::tests::{request, stream_request};

    /// A feed that keeps two streams for their return, and one that has ended.
    fn feed() -> (Arc<Feed>, RelaySessionId) {
        let limits = Limits { streams: 1, viewed_closed_streams: 1, ..Limits::default() };
        let id = RelaySessionId::new(1);
        (Catalogue::new(&limits).open(id, &request(), Vec::new(), &limits), id)
    }

    fn add(feed: &Feed, owner: RelaySessionId, handle: u64, channel: &str) -> StreamHandle {
        let handle = StreamHandle::new(handle);
        feed.add(owner, handle, &stream_request(channel), || ViewedTraceId::new(1));
        feed.publish(owner);
        handle
    }

    #[test]
    fn streams_that_wait_for_their_producer_have_a_bound() {
        let (feed, owner) = feed();
        for handle in 0..100 {
            let handle = add(&feed, owner, handle, &format!("ch_{handle}"));
            feed.suspend_stream(handle);
        }
        assert_eq!(feed.stream_count(), 3);
        // One that is among them is read on.
        add(&feed, owner, 200, "ch_99");
        let (listed, _) = feed.streams(0, Extent::All, 10);
        let handles: Vec<u64> = listed.iter().map(|it| it.handle.get()).collect();
        assert_eq!(handles, [97, 98, 99]);
    }

    #[test]
    fn a_stream_whose_name_another_takes_has_ended() {
        let (feed, owner) = feed();
        let first = add(&feed, owner, 1, "ch_0");
        let second = add(&feed, owner, 2, "ch_0");
        let mut cursor = super::super::Cursor::default();
        feed.suspend_stream(first);
        assert!(!feed.is_read(first, &cursor));
        feed.suspend_stream(second);
        cursor.next = u64::MAX;
        assert!(feed.is_read(first, &cursor));
        assert!(!feed.is_read(second, &cursor));
    }

    #[test]
    fn a_silent_stream_is_of_the_class_of_its_channel() {
        let (feed, owner) = feed();
        let speaks = add(&feed, owner, 1, "ch_0");
        add(&feed, owner, 2, "ch_1");
        let trace = ViewedTraceId::new(1);
        let class =
            |feed: &Feed| lock(&feed.state).classes.of(trace, &stream_request("ch_1").channel);
        assert_eq!(class(&feed), None);
        feed.beacon(speaks, &entry(0, u64::MAX, 50));
        assert_eq!(class(&feed), Some(7));
        feed.close_stream(speaks);
        assert_eq!(class(&feed), Some(7));
    }
}
