//! Runs state dumps on a thread of their own, so that the rings are read while a dump fills them.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use super::programs::StateDump;
use crate::error::{Error, Result};

/// The thread that dumps.
pub(super) struct Dumper {
    requests: SyncSender<()>,
    thread: JoinHandle<Result<()>>,
}

impl Dumper {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Os`] when it cannot be started.
    pub(super) fn start(dump: StateDump) -> Result<Self> {
        let (requests, wanted) = sync_channel::<()>(1);
        let thread = thread::Builder::new()
            .name("capture-dump".to_owned())
            .spawn(move || wanted.iter().try_for_each(|()| dump.run()))
            .map_err(Error::os("start the state dump's thread"))?;
        Ok(Self { requests, thread })
    }

    /// Asks for a dump; one that is still waiting serves both requests.
    pub(super) fn request(&self) {
        match self.requests.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => {}
            // The thread failed; `finish` tells why.
            Err(TrySendError::Disconnected(())) => {}
        }
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
