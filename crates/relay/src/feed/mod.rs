//! What viewers may be shown of a recording session while it is written.
//!
//! ```text
//! recording.rs, stream.rs ─▶ writing.rs ─▶ State: stream.rs, metadata.rs, chunks.rs ◀─ viewing.rs ◀─ viewer/
//!                                                      index files ─▶ history.rs ──────┘
//! ```
//! Writers tell the feed what is written, never before; they neither wait for viewers nor know them. Viewers ask with
//! cursors of their own, so any number of them read at once. The rules of what is said are in [`law`].
//!
//! A packet is known by its chunk and its place in it, never by a path: a chunk may move while it is read. The newest
//! packets of each stream are kept in memory, at most [`Limits::viewed_packets_per_stream`]; what is older is read from
//! the index files of the chunks that are on the disk. Those of at most [`Limits::viewed_files_per_stream`] trace files of a
//! stream are known, which is as far back as a viewer can go.
//!
//! Lock order: a recording session's lock may be held when its feed's lock is taken, never the other way round. Nothing
//! is read or opened while a feed's lock is held, and what is done meanwhile does not grow with the session's streams when a
//! viewer asks for a packet.

mod catalogue;
mod chunks;
mod classes;
mod cursor;
mod documents;
mod ended;
mod entry;
mod file;
mod history;
mod hold;
pub(crate) mod law;
mod metadata;
mod packet;
mod past;
mod reach;
mod renamed;
mod returnable;
mod segments;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod since;
mod stream;
mod untimed;
mod viewing;
mod writing;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use wire::live::{RelativePath, StreamHandle, TraceFormat, ViewedSessionId, ViewedTraceId};

use self::catalogue::Budget;
pub(crate) use self::catalogue::Catalogue;
pub(crate) use self::chunks::ChunkKey;
use self::chunks::Chunks;
use self::classes::Classes;
pub(crate) use self::cursor::{Cursor, Next};
pub(crate) use self::documents::Documents;
use self::ended::Ended;
use self::entry::{Content, Entry};
pub(crate) use self::entry::{Extent, Listed};
pub(crate) use self::file::TraceFile;
pub(crate) use self::hold::Hold;
pub(crate) use self::packet::{Packet, Page};
use self::past::Past;
pub(crate) use self::past::sealed_chunks;
use self::reach::Reach;
use self::renamed::Renamed;
use self::returnable::Returnable;
use self::stream::Stream;
#[cfg(doc)]
use crate::config::Limits;

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
    /// What they have still to read.
    holds: Mutex<Vec<Weak<Hold>>>,
    grace: Duration,
    budget: Arc<Budget>,
    closed_kept: usize,
    returnable_kept: usize,
    /// What was there before; looking at it takes long.
    past: Arc<tokio::sync::Mutex<Past>>,
    state: Mutex<State>,
    /// Packets that the network lost, by the path of their stream. Bound: the streams of the session.
    lost_by_network: Mutex<BTreeMap<RelativePath, u64>>,
}

#[derive(Debug, Default)]
struct State {
    streams: BTreeMap<StreamHandle, Entry>,
    renamed: Renamed,
    /// Streams whose producer may come back. Those of the past have ended too.
    returnable: Returnable,
    closed: Ended,
    traces: BTreeMap<RelativePath, ViewedTraceId>,
    /// The metadata stream of each trace.
    metadata: BTreeMap<ViewedTraceId, StreamHandle>,
    classes: Classes,
    chunks: Chunks,
    /// How many times streams were published.
    publications: u64,
    reach: Reach,
    /// The longest span of any stream.
    span: Duration,
    is_over: bool,
}

impl State {
    fn packets(&self, handle: StreamHandle) -> Option<&Stream> {
        self.streams.get(&handle)?.packets()
    }

    /// What a producer sends under a handle.
    fn sent(&mut self, handle: StreamHandle) -> Option<&mut Entry> {
        self.streams.get_mut(&self.renamed.known(handle))
    }

    fn metadata_of(&self, trace: ViewedTraceId) -> Option<(StreamHandle, u64, u64)> {
        let handle = *self.metadata.get(&trace)?;
        match self.streams.get(&handle)? {
            Entry { content: Content::Metadata(metadata), .. } => {
                Some((handle, metadata.whole(), metadata.edition()))
            }
            Entry { .. } => None,
        }
    }

    /// Whether no more metadata can come for a trace.
    fn has_all_metadata(&self, trace: ViewedTraceId) -> bool {
        let metadata = self.metadata.get(&trace).and_then(|handle| self.streams.get(handle));
        metadata.is_some_and(Entry::is_closed)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for entry in state.streams.values() {
            if let Some(stream) = entry.packets() {
                self.budget.give_back(stream.len());
            }
        }
    }
}

/// A panic while the lock was held has been reported where it happened; the state is what it was before or after a step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
