//! A sender on a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use wire::remote_write::Version;

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::sender::{Next, Sender};

/// A source that has nothing is asked again after this, if nobody says that it has.
const POLL: Duration = Duration::from_secs(1);

/// A source or cursor that fails is asked again after this.
const RETRY: Duration = Duration::from_secs(5);

/// How a sender is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How far it is. Not all of it need be durable.
    pub cursor: Cursor,
    /// The message that is sent.
    pub version: Version,
    /// Why nothing is taken at the moment.
    pub trouble: Option<String>,
}

/// Sends until it is stopped. Dropped, it stops as well: a request that has no answer then is sent again, as it was, by the next one.
#[derive(Debug)]
pub struct Exporter {
    status: Arc<Mutex<Status>>,
    more: Arc<Notify>,
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(sender: Sender) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let status = Arc::new(Mutex::new(status(&sender, None)));
        let more = Arc::new(Notify::new());
        let (end, ended) = watch::channel(false);
        let shared = (Arc::clone(&status), Arc::clone(&more));
        let run = move || {
            runtime.block_on(run(sender, &shared.0, &shared.1, ended));
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("export".to_owned()).spawn(run);
        Ok(Self { status, more, end, thread: Some(thread.map_err(Error::Thread)?) })
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that the source has more.
    pub fn wake(&self) {
        self.more.notify_one();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn status(sender: &Sender, error: Option<&Error>) -> Status {
    let machine = sender.machine();
    let trouble = error.map(ToString::to_string);
    Status {
        cursor: machine.cursor().clone(),
        version: machine.version(),
        trouble: trouble.or_else(|| machine.trouble().map(str::to_owned)),
    }
}

async fn run(
    mut sender: Sender,
    shown: &Mutex<Status>,
    more: &Notify,
    mut ended: watch::Receiver<bool>,
) {
    let mut is_failing = false;
    loop {
        let stepped = tokio::select! {
            stepped = sender.step() => stepped,
            _ = ended.wait_for(|it| *it) => return,
        };
        let status = status(&sender, stepped.as_ref().err());
        if is_failing != status.trouble.is_some() {
            is_failing = !is_failing;
            match &status.trouble {
                Some(why) => tracing::warn!(why, "cells cannot be sent; it is tried again"),
                None => tracing::warn!("cells are sent again"),
            }
        }
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = status;
        let wait = match stepped {
            Ok(Next::Now) => continue,
            Ok(Next::After(wait)) => wait,
            Ok(Next::WhenMore) => {
                tokio::select! {
                    () = more.notified() => {}
                    () = tokio::time::sleep(POLL) => {}
                    _ = ended.wait_for(|it| *it) => return,
                }
                continue;
            }
            Err(_told) => RETRY,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = ended.wait_for(|it| *it) => return,
        }
    }
}
