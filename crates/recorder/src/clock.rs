//! Clocks of the machine.

use model::Timestamp;
use records::{Pair, Times};
use rustix::time::{ClockId, clock_gettime};
use tracepoint::clock_pair;
use tracepoint::layout::ClockKind;

/// The time of day.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_nanos(nanos(ClockId::Realtime))
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn monotonic_ns() -> i64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Follows a clock of records: pairs around what is read.
#[derive(Debug)]
pub(crate) struct Follower {
    kind: ClockKind,
    early: Pair,
    late: Pair,
}

impl Follower {
    /// Of a process that said what both clocks were when it began.
    pub(crate) fn new(kind: ClockKind, made: u64, made_monotonic_ns: u64) -> Self {
        let begin = Pair { ticks: made, monotonic_ns: made_monotonic_ns };
        let mut follower = Self { kind, early: begin, late: begin };
        follower.look();
        follower
    }

    /// Looks at both clocks. What is read next is of the time before.
    pub(crate) fn look(&mut self) {
        /// Pairs nearer to each other make no good line.
        const APART_NS: u64 = 20_000_000;
        let Some((ticks, monotonic_ns)) = clock_pair(self.kind) else { return };
        if self.late.monotonic_ns.saturating_sub(self.early.monotonic_ns) >= APART_NS {
            self.early = self.late;
        }
        self.late = Pair { ticks, monotonic_ns };
    }

    /// What ticks mean.
    pub(crate) fn times(&self) -> Times {
        let epoch_offset_ns = nanos(ClockId::Realtime) - nanos(ClockId::Monotonic);
        Times { early: self.early, late: self.late, epoch_offset_ns }
    }
}
