//! Threads that serve connections, each with an event loop of its own.
//!
//! A packet costs a wait, a read and a write on each of its two connections. An event loop shared by several threads
//! adds waking one thread from another to each; measured at 4 KiB packets that was as much as the rest together.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::error::{Error, Result};

/// The most threads: beyond it the disk is the bound.
const MAX: usize = 8;

/// The threads.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Vec<Handle>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stop: watch::Sender<bool>,
}

impl Workers {
    /// Starts one for each core, called `name` and a number.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let (stop, stopped) = watch::channel(false);
        let mut handles = Vec::new();
        let mut threads = Vec::new();
        for number in 0..cores.min(MAX) {
            let thread = |source| Error::Thread { source };
            let runtime = Builder::new_current_thread().enable_all().build().map_err(thread)?;
            handles.push(runtime.handle().clone());
            let mut stopped = stopped.clone();
            let run = move || {
                // Ends when told, or when the sender is gone with the relay.
                drop(runtime.block_on(stopped.wait_for(|stop| *stop)));
            };
            let name = format!("{name}-{number}");
            threads.push(thread::Builder::new().name(name).spawn(run).map_err(thread)?);
        }
        Ok(Self { handles, threads: Mutex::new(threads), stop })
    }

    /// The thread of the n-th connection.
    pub(crate) fn pick(&self, number: usize) -> &Handle {
        #[expect(
            clippy::indexing_slicing,
            reason = "there is at least one, and the index is below their number"
        )]
        &self.handles[number % self.handles.len()]
    }

    /// Ends them. Every task must have ended before.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the relay failed");
            }
        }
    }
}
