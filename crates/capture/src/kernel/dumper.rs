//! Runs state dumps on a thread of their own, so that the rings are read while a dump fills them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use super::clock;
use super::programs::StateDump;
use crate::error::{Error, Result};

/// A dump that was asked for has not ended yet.
const NOT_ENDED: u64 = u64::MAX;

/// The thread that dumps.
pub(super) struct Dumper {
    requests: SyncSender<()>,
    /// When the last dump ended, or [`NOT_ENDED`].
    ended_ns: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Dumper {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Os`] when it cannot be started.
    pub(super) fn start(dump: StateDump) -> Result<Self> {
        let (requests, wanted) = sync_channel::<()>(1);
        let ended_ns = Arc::new(AtomicU64::new(0));
        let ends = Arc::clone(&ended_ns);
        let thread = thread::Builder::new()
            .name("capture-dump".to_owned())
            .spawn(move || {
                wanted.iter().try_for_each(|()| {
                    let dumped = dump.run();
                    ends.store(clock::monotonic_ns(), Ordering::Relaxed);
                    dumped
                })
            })
            .map_err(Error::os("start the state dump's thread"))?;
        Ok(Self { requests, ended_ns, thread })
    }

    /// Asks for a dump, once the one before [has ended](Self::ended_ns).
    pub(super) fn request(&self) {
        let before_ns = self.ended_ns.swap(NOT_ENDED, Ordering::Relaxed);
        match self.requests.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => {}
            // The thread failed; `finish` tells why.
            Err(TrySendError::Disconnected(())) => {
                self.ended_ns.store(before_ns, Ordering::Relaxed);
            }
        }
    }

    /// When the dump that was asked for ended; `None` when it has not.
    pub(super) fn ended_ns(&self) -> Option<u64> {
        let ended_ns = self.ended_ns.load(Ordering::Relaxed);
        (ended_ns != NOT_ENDED).then_some(ended_ns)
    }

    /// Waits for the dumps that were asked for.
    ///
    /// # Errors
    /// What a dump failed with.
    pub(super) fn finish(self) -> Result<()> {
        drop(self.requests);
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
