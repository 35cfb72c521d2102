//! Which of the things that begin and end are counted.

use model::{CpuId, Tid};
use serde::{Deserialize, Serialize};

use crate::fact::Line;
use crate::fold::Item;
use crate::path::Asked;

/// Which interrupts, scheduling latencies, calls and requests to block devices a summary counts, by what each of them
/// says about itself. Without a list all are in; what an item does not have, does not count against it. The time of
/// phases, the bytes of processes and files, CPU time, pages and packets are not selected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// On these CPUs: handled there, got the CPU there, returned there.
    pub cpus: Option<Vec<CpuId>>,
    /// Of these threads: woken, calling, that issued the request.
    pub tids: Option<Vec<Tid>>,
    /// These interrupts.
    pub lines: Option<Vec<Line>>,
    /// So many nanoseconds long.
    pub ns: Between,
    /// Moving so many bytes: calls, which may move none, and requests.
    pub bytes: Between,
    /// What is kept one by one besides.
    pub logs: Vec<Logged>,
    /// Whether the longest calls that work on files are kept besides. They take more room than all totals of few calls.
    pub longest_calls: bool,
    /// Which paths are kept besides those of the slowest requests.
    pub paths: Asked,
}

/// The least and the greatest number that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// No less than this.
    pub least: u64,
    /// No more than this.
    pub greatest: u64,
}

/// What a log is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Logged {
    /// Interrupts, hard and soft.
    Interrupts,
    /// Scheduling latencies.
    Latencies,
    /// Calls that open, close, read, write or sync files.
    Operations,
    /// All calls.
    Calls,
    /// Requests to block devices.
    Requests,
    /// Stretches of time for which a thread had a CPU.
    Turns,
    /// Waits of threads, by cause.
    Waits,
}

impl Default for Between {
    fn default() -> Self {
        Self { least: 0, greatest: u64::MAX }
    }
}

impl Between {
    pub(crate) const fn contains(self, number: u64) -> bool {
        self.least <= number && number <= self.greatest
    }
}

impl Selection {
    /// Whether an item counts.
    pub(crate) fn takes<T: Item>(&self, item: &T) -> bool {
        self.ns.contains(item.ns())
            && item.bytes().is_none_or(|bytes| self.bytes.contains(bytes))
            && is_one(self.cpus.as_deref(), item.cpu())
            && is_one(self.tids.as_deref(), item.tid())
            && is_one(self.lines.as_deref(), item.line())
    }

    /// Whether this interrupt counts here, however long it takes.
    pub(crate) fn takes_line(&self, cpu: CpuId, line: Line) -> bool {
        is_one(self.cpus.as_deref(), Some(cpu)) && is_one(self.lines.as_deref(), Some(line))
    }
}

fn is_one<K: PartialEq>(wanted: Option<&[K]>, found: Option<K>) -> bool {
    wanted.is_none_or(|wanted| found.is_none_or(|found| wanted.contains(&found)))
}
