//! The handlers of interrupts that a CPU is in, to tell what an interrupt does from what the interrupted thread does.
//!
//! An exit ends the innermost handler, whatever its line. A CPU that switches, enters a call or leaves one is in no handler.
//! One whose exit is not seen is taken to have ended after [`HANDLER_LIMIT`], so that what a window must ask the left about
//! lies near its begin.

use model::{CpuId, Nanos, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fact::Line;

/// The longest time for which a handler counts without its exit.
pub(crate) const HANDLER_LIMIT: Nanos = Nanos::new(100_000_000);

/// How many handlers nest: the innermost are kept.
const MAX_NEST: usize = 16;

/// The handlers of one CPU. Those of the left boundary are counted from the innermost one on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handlers {
    /// How many of the left's have ended.
    ended: usize,
    /// How many of the left's, with those that have ended, can still be told; no more than have ended: none is left.
    told: usize,
    /// Entered here, innermost last. Bound: [`MAX_NEST`].
    open: Vec<(Line, Timestamp)>,
}

/// What a CPU is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It handles an interrupt.
    Handles(Line),
    /// It runs a thread.
    Runs,
    /// It handles an interrupt if so many handlers, and one more, were open at the left boundary.
    AsLeft(OnLeft),
}

/// The handler that is innermost at a time if so many of the left boundary's have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct OnLeft {
    pub(super) cpu: CpuId,
    ended: usize,
    at: Timestamp,
}

impl Handlers {
    /// As at the left boundary.
    pub(super) const UNSEEN: Self = Self { ended: 0, told: MAX_NEST, open: Vec::new() };
    /// In no handler.
    pub(super) const NONE: Self = Self { ended: 0, told: 0, open: Vec::new() };

    pub(super) fn enter(&mut self, line: Line, at: Timestamp) {
        self.open.push((line, at));
        if self.open.len() > MAX_NEST {
            self.open.remove(0);
        }
        self.told = self.told.min(self.ended + MAX_NEST - self.open.len());
    }

    pub(super) fn exit(&mut self) {
        if self.open.pop().is_none() && self.ended < self.told {
            self.ended += 1;
        }
    }

    pub(super) fn clear(&mut self) {
        (self.ended, self.told) = (0, 0);
        self.open.clear();
    }

    /// What a CPU is doing, when its left boundary is at `begin`.
    pub(super) fn doing(&self, cpu: CpuId, at: Timestamp, begin: Timestamp) -> Doing {
        self.told(OnLeft { cpu, ended: 0, at }, begin)
    }

    /// What a CPU was doing whose left boundary is the end of this; this one's is at `begin`.
    pub(super) fn told(&self, on_left: OnLeft, begin: Timestamp) -> Doing {
        let OnLeft { cpu, ended, at } = on_left;
        if let Some((line, since)) = self.open.iter().rev().nth(ended) {
            return handles(*line, *since, at);
        }
        let ended = ended.saturating_sub(self.open.len()).saturating_add(self.ended);
        if ended < self.told && at.since(begin) <= HANDLER_LIMIT {
            return Doing::AsLeft(OnLeft { cpu, ended, at });
        }
        Doing::Runs
    }

    pub(super) fn append(&mut self, right: Self) {
        for _ in 0..right.ended {
            self.exit();
        }
        let room = right.told.saturating_sub(right.ended);
        let surplus = self.open.len().saturating_sub(room);
        self.open.drain(..surplus);
        self.told = self.told.min(self.ended + room - self.open.len());
        self.open.extend(right.open);
    }
}

fn handles(line: Line, since: Timestamp, at: Timestamp) -> Doing {
    if at.since(since) <= HANDLER_LIMIT { Doing::Handles(line) } else { Doing::Runs }
}
