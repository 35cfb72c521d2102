//! The feeds of all recording sessions, and how much memory they may take together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use wire::live::{CreateSession, Name, RelativePath, RelaySessionId, TraceFormat, ViewedSessionId};

use super::past::Past;
use super::stream::{Change, Kept};
use super::{Feed, State, lock};
use crate::config::Limits;

/// What of a stream is kept at least: packets in memory, and trace files that are known.
const LEAST_KEPT: usize = 16;

/// The feeds of all recording sessions that viewers may see.
#[derive(Debug)]
pub(crate) struct Catalogue {
    feeds: Mutex<BTreeMap<ViewedSessionId, Arc<Feed>>>,
    budget: Arc<Budget>,
}

/// What all feeds together keep, and may.
#[derive(Debug)]
pub(super) struct Budget {
    packets: Share,
    files: Share,
}

/// Things of one kind.
#[derive(Debug)]
struct Share {
    kept: AtomicUsize,
    /// When there are more, each stream that grows is cut to [`LEAST_KEPT`].
    limit: usize,
    per_stream: usize,
}

impl Budget {
    fn new(limits: &Limits) -> Self {
        let share = |limit, per_stream| Share { kept: AtomicUsize::new(0), limit, per_stream };
        Self {
            packets: share(limits.viewed_packets, limits.viewed_packets_per_stream),
            files: share(limits.viewed_files, limits.viewed_files_per_stream),
        }
    }

    /// What a stream that grows may keep.
    pub(super) fn for_stream(&self, pace: Option<std::time::Duration>) -> Kept {
        Kept { packets: self.packets.for_stream(), files: self.files.for_stream(), pace }
    }

    /// A stream keeps more, or less.
    pub(super) fn note(&self, Change { packets, files }: Change) {
        self.packets.note(packets);
        self.files.note(files);
    }

    /// So many packets and trace files are let go.
    pub(super) fn give_back(&self, (packets, files): (usize, usize)) {
        self.packets.kept.fetch_sub(packets, Ordering::Relaxed);
        self.files.kept.fetch_sub(files, Ordering::Relaxed);
    }
}

impl Share {
    fn note(&self, change: isize) {
        if change < 0 {
            self.kept.fetch_sub(change.unsigned_abs(), Ordering::Relaxed);
        } else {
            self.kept.fetch_add(change.unsigned_abs(), Ordering::Relaxed);
        }
    }

    fn for_stream(&self) -> usize {
        let is_full = self.kept.load(Ordering::Relaxed) >= self.limit;
        if is_full { self.per_stream.min(LEAST_KEPT) } else { self.per_stream }
    }
}

impl Catalogue {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { feeds: Mutex::default(), budget: Arc::new(Budget::new(limits)) }
    }

    /// A feed for a recording session, of which `past` are sealed chunks that are there already; it is listed if its producer sends what viewers can be shown.
    pub(crate) fn open(
        &self,
        id: RelaySessionId,
        request: &CreateSession,
        past: Vec<RelativePath>,
        limits: &Limits,
    ) -> Arc<Feed> {
        let text = |name: &Option<Name>| name.as_ref().map(Name::to_string).unwrap_or_default();
        let format = request.identity.as_ref().and_then(|identity| identity.trace_format);
        let past = Past::of(past);
        let mut state = State::default();
        for (chunk, folder) in past.chunks() {
            state.chunks.is_at(*chunk, folder);
        }
        let feed = Arc::new(Feed {
            id: ViewedSessionId::new(id.get()),
            hostname: text(&request.hostname),
            name: text(&request.session_name),
            live_timer_us: request.live_timer_us,
            format: format.unwrap_or(TraceFormat::Ctf1_8),
            viewers: AtomicU32::new(0),
            holds: Mutex::default(),
            grace: limits.untimed_grace,
            budget: Arc::clone(&self.budget),
            closed_kept: limits.viewed_closed_streams,
            // Of as many as there may be at a time, all may lose their producer at once.
            returnable_kept: limits.streams.saturating_add(limits.viewed_closed_streams),
            past: Arc::new(tokio::sync::Mutex::new(past)),
            state: Mutex::new(state),
            lost_by_network: Mutex::default(),
        });
        if request.session_name.is_some() && !request.snapshot {
            lock(&self.feeds).insert(feed.id, Arc::clone(&feed));
        }
        feed
    }

    /// Packets in memory, and trace files that are known.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn kept(&self) -> (usize, usize) {
        let kept = |share: &Share| share.kept.load(Ordering::Relaxed);
        (kept(&self.budget.packets), kept(&self.budget.files))
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
