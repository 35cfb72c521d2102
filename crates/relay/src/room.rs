//! Connections that wait because the disk has no room for what they brought.
//!
//! A full disk is the tracer's loss, not the connection's: nothing more is read from the producer, so its buffers fill and it
//! counts what finds no place there. The write is made again every [`AGAIN`] until there is room or
//! [`Limits::room_patience`] is over.
//!
//! [`Limits::room_patience`]: crate::Limits::room_patience

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::env::Env;
use crate::error::{Error, Result};

/// How often a write is tried again.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// Who waits.
#[derive(Debug, Default)]
pub(crate) struct Room {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Since the first of them began; how many there were.
    since: Option<Instant>,
    waited: u64,
    /// When somebody waited last.
    last: Option<Instant>,
}

/// The place of one who waits, if it does.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<Waiting>);

#[derive(Debug)]
struct Waiting {
    room: Arc<Room>,
    since: Instant,
}

impl Room {
    /// Whether somebody waits, or did within `time` before `now`.
    pub(crate) fn was_short(&self, now: Instant, time: Duration) -> bool {
        let state = self.state();
        let recent = |last| now.saturating_duration_since(last) < time;
        state.waiting > 0 || state.last.is_some_and(recent)
    }

    /// It is numbers: always whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether a write is to be made again.
    pub(crate) const fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    /// A write failed. It is to be made again after a while if it was for lack of room, and for not too long.
    pub(crate) fn failed(&mut self, env: &Env, error: Error) -> Result<()> {
        if !error.is_no_room() {
            return Err(error);
        }
        let waiting = self.0.get_or_insert_with(|| {
            env.counters.waits_for_room.add(1);
            Waiting::begin(&env.room)
        });
        if waiting.since.elapsed() < env.limits.room_patience {
            return Ok(());
        }
        env.counters.room_never_came.add(1);
        Err(error)
    }

    /// The write was made.
    pub(crate) fn leave(&mut self) {
        self.0 = None;
    }
}

impl Waiting {
    fn begin(room: &Arc<Room>) -> Self {
        let since = Instant::now();
        let mut state = room.state();
        state.waiting += 1;
        state.waited += 1;
        if state.since.is_none() {
            state.since = Some(since);
            tracing::warn!("the disk has no room: producers are held back");
        }
        drop(state);
        Self { room: Arc::clone(room), since }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.waiting = state.waiting.saturating_sub(1);
        state.last = Some(Instant::now());
        if state.waiting == 0
            && let Some(since) = state.since.take()
        {
            let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let connections = std::mem::take(&mut state.waited);
            tracing::warn!(connections, waited_ms, "no producer waits for room on the disk");
        }
    }
}
