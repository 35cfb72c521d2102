//! What every part of a running relay needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use wire::live::{RelativePath, StreamHandle, ViewedTraceId};

use crate::after::Outbox;
use crate::config::Limits;
use crate::counters::Counters;
use crate::feed::TraceFile;
use crate::files::OpenFiles;
use crate::halves::Halves;
use crate::journal;
use crate::merge::HALF_BYTES;
use crate::names::Names;
use crate::room::Room;
use crate::root::Root;

/// Root folder, names, bounds and counters of a relay.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) root: Root,
    pub(crate) names: Names,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    pub(crate) outbox: Outbox,
    pub(crate) files: Arc<OpenFiles>,
    /// Bytes of memory for large requests.
    pub(crate) request_room: Arc<Semaphore>,
    /// Memory for packets without entries, and entries without packets.
    pub(crate) halves: Arc<Halves>,
    /// Who waits for room on the disk.
    pub(crate) room: Arc<Room>,
    /// Files that viewers have read last, and may go on with.
    pub(crate) viewed: Arc<OpenFiles<TraceFile>>,
    next_number: AtomicU64,
    next_trash: AtomicU64,
    last_trace: AtomicU64,
    last_shown_stream: AtomicU64,
    last_past_stream: AtomicU64,
}

impl Env {
    /// `first_number` is above the numbers of all journal and session files that are there.
    /// `counters` are those that `outbox` was opened with.
    pub(crate) fn new(
        root: Root,
        names: Names,
        limits: Limits,
        counters: Counters,
        outbox: Outbox,
        first_number: u64,
    ) -> Self {
        let files = Arc::new(OpenFiles::new(limits.open_files));
        let halves = Arc::new(Halves::new(limits.unpaired_bytes, HALF_BYTES));
        let request_room = limits.request_bytes.clamp(1, Semaphore::MAX_PERMITS);
        let viewed = Arc::new(OpenFiles::new(limits.viewed_open_files));
        Self {
            root,
            names,
            limits,
            counters,
            outbox,
            files,
            request_room: Arc::new(Semaphore::new(request_room)),
            halves,
            room: Arc::default(),
            viewed,
            next_number: AtomicU64::new(first_number),
            next_trash: AtomicU64::new(0),
            last_trace: AtomicU64::new(0),
            last_shown_stream: AtomicU64::new(0),
            last_past_stream: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_number(&self) -> journal::Number {
        journal::Number(self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a trace: what one metadata stream describes.
    pub(crate) fn next_trace(&self) -> ViewedTraceId {
        ViewedTraceId::new(self.last_trace.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A handle under which viewers are shown a stream; a producer knows it by another one.
    pub(crate) fn next_shown_stream(&self) -> StreamHandle {
        StreamHandle::new(self.last_shown_stream.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A handle for a stream that no producer sends; above those of the others.
    pub(crate) fn next_past_stream(&self) -> StreamHandle {
        const FIRST: u64 = 1 << 63;
        StreamHandle::new(FIRST | self.last_past_stream.fetch_add(1, Ordering::Relaxed))
    }

    /// A folder of its own for what is to be deleted; `trash` is empty at the start.
    pub(crate) fn next_trash(&self) -> RelativePath {
        Root::own(&format!("trash/{}", self.next_trash.fetch_add(1, Ordering::Relaxed)))
    }
}
