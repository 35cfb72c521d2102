//! What viewers ask of a session. Nothing here reads or opens a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use wire::live::{RelativePath, StreamHandle, ViewedTraceId};

use super::chunks::ChunkKey;
use super::cursor::{Cursor, Next};
use super::entry::{Content, Entry, Extent, Listed};
use super::file::TraceFile;
use super::packet::{Packet, Page};
use super::untimed::Untimed;
use super::{Feed, lock};

/// What viewers ask.
impl Feed {
    /// Whether the session has no live timer.
    pub(super) const fn is_untimed(&self) -> bool {
        self.live_timer_us == 0
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// How many times streams were published.
    pub(crate) fn publications(&self) -> u64 {
        lock(&self.state).publications
    }

    /// What was lost on its way here, by the path of each stream.
    pub(crate) fn network_losses(&self) -> BTreeMap<RelativePath, u64> {
        lock(&self.lost_by_network).clone()
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
        page: Option<&Page>,
        now: Instant,
    ) -> Option<Next> {
        let state = lock(&self.state);
        let entry = state.streams.get(&handle)?;
        let stream = entry.packets()?;
        // Nobody can read packets of a trace without metadata.
        let has_metadata = state.metadata_of(entry.trace).is_some_and(|(_, len, _)| len > 0);
        if !has_metadata && !state.is_over {
            return Some(Next::NotYet);
        }
        let untimed = self.is_untimed().then(|| Untimed {
            grace: self.grace,
            reach: &state.reach,
            span: state.span,
            is_final: state.is_over || state.has_all_metadata(entry.trace),
            class: stream.class().or_else(|| state.classes.of(entry.trace, &entry.channel)),
        });
        Some(stream.next(cursor, page, now, untimed))
    }

    /// Whether a viewer has all there will be of a stream; one that is forgotten counts as read.
    pub(crate) fn is_read(&self, handle: StreamHandle, cursor: &Cursor) -> bool {
        lock(&self.state).packets(handle).is_none_or(|stream| stream.is_read(cursor))
    }

    /// The trace file that a packet is in; `None` when it is gone.
    pub(crate) fn file_of(&self, handle: StreamHandle, number: u64) -> Option<(ChunkKey, u64)> {
        let state = lock(&self.state);
        Some(match state.packets(handle)?.find(number)? {
            Ok(packet) => (packet.chunk, packet.file),
            Err(stored) => stored.file(),
        })
    }

    /// The file of a packet, if somebody has it open.
    pub(crate) fn open_file(&self, handle: StreamHandle, packet: &Packet) -> Option<TraceFile> {
        lock(&self.state).streams.get(&handle)?.open_file(packet.chunk, packet.file)
    }

    /// The metadata file of a stream, how much of it may be shown, and which edition they are.
    pub(crate) fn metadata_file(&self, handle: StreamHandle) -> Option<(TraceFile, u64, u64)> {
        match lock(&self.state).streams.get(&handle) {
            Some(Entry { content: Content::Metadata(metadata), .. }) => {
                let (file, whole) = metadata.file()?;
                Some((file, whole, metadata.edition()))
            }
            _ => None,
        }
    }

    /// The metadata stream of a trace, how much of it may be shown, in bytes, and which edition they are.
    pub(crate) fn metadata_of(&self, trace: ViewedTraceId) -> Option<(StreamHandle, u64, u64)> {
        lock(&self.state).metadata_of(trace)
    }
}
