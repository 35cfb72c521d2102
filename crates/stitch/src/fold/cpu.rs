//! Who had the CPUs.
//!
//! The time between two switches of a CPU belongs to the thread that the second one takes away: so also the time before
//! its first switch. Where events of a CPU are lost, nobody knows who had it from the switch before to the one after.

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

/// What one thread had of all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuRow {
    pub(crate) ns: u64,
    pub(crate) migrations: u64,
}

/// CPU time by thread and by CPU, and what a window leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    /// Bound: threads. The idle thread is none.
    pub(crate) threads: BTreeMap<Tid, CpuRow>,
    /// Bound: CPUs.
    pub(crate) cpus: BTreeMap<CpuId, Busy>,
    /// The first and the last moment at which something happened on a CPU.
    pub(crate) seen: Option<(Timestamp, Timestamp)>,
    forgotten: Option<Timestamp>,
}

/// One CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Busy {
    pub(crate) busy_ns: u64,
    pub(crate) idle_ns: u64,
    /// Until when, and who had it until then: the first switch, or a loss.
    first: Option<(Timestamp, Had)>,
    /// Since when, and who has it since then.
    last: Option<(Timestamp, Had)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Had {
    Thread(Tid),
    Unknown,
}

impl CpuTime {
    pub(crate) fn see(&mut self, at: Timestamp) {
        let (first, last) = self.seen.unwrap_or((at, at));
        self.seen = Some((first.min(at), last.max(at)));
    }

    pub(crate) fn switch(&mut self, cpu: CpuId, at: Timestamp, prev: Tid, next: Tid) {
        self.step(cpu, at, Had::Thread(prev), (at, Had::Thread(next)));
    }

    pub(crate) fn migrate(&mut self, tid: Tid) {
        let row = self.threads.entry(tid).or_default();
        row.migrations = row.migrations.saturating_add(1);
    }

    /// Events of a CPU are missing.
    pub(crate) fn forget(&mut self, cpu: CpuId, at: Timestamp) {
        self.step(cpu, at, Had::Unknown, (at, Had::Unknown));
    }

    /// Events of all CPUs are missing.
    pub(crate) fn forget_all(&mut self, at: Timestamp) {
        let cpus: Vec<CpuId> = self.cpus.keys().copied().collect();
        cpus.into_iter().for_each(|cpu| self.forget(cpu, at));
        self.forgotten = Some(at);
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut Busy {
        let last = self.forgotten.map(|at| (at, Had::Unknown));
        self.cpus.entry(cpu).or_insert(Busy { busy_ns: 0, idle_ns: 0, first: last, last })
    }

    /// Until `at`, `had` had the CPU; `last` is who has it since when.
    fn step(&mut self, cpu: CpuId, at: Timestamp, had: Had, last: (Timestamp, Had)) {
        let busy = self.cpu(cpu);
        let before = busy.last.replace(last);
        match before {
            None => busy.first = Some((at, had)),
            Some((_, Had::Unknown)) => {}
            Some((since, Had::Thread(_))) => self.spend(cpu, since, at, had),
        }
    }

    fn spend(&mut self, cpu: CpuId, since: Timestamp, until: Timestamp, had: Had) {
        let Had::Thread(tid) = had else { return };
        let ns = until.since(since).get();
        let busy = self.cpu(cpu);
        if tid == Tid::IDLE {
            busy.idle_ns = busy.idle_ns.saturating_add(ns);
            return;
        }
        busy.busy_ns = busy.busy_ns.saturating_add(ns);
        let row = self.threads.entry(tid).or_default();
        row.ns = row.ns.saturating_add(ns);
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (tid, more) in right.threads {
            let row = self.threads.entry(tid).or_default();
            row.ns = row.ns.saturating_add(more.ns);
            row.migrations = row.migrations.saturating_add(more.migrations);
        }
        if let Some(at) = right.forgotten {
            let mine = self.cpus.keys().filter(|cpu| !right.cpus.contains_key(cpu));
            let unseen: Vec<CpuId> = mine.copied().collect();
            unseen.into_iter().for_each(|cpu| self.forget(cpu, at));
        }
        for (cpu, more) in right.cpus {
            if let (Some((at, had)), Some(last)) = (more.first, more.last) {
                self.step(cpu, at, had, last);
            }
            let busy = self.cpu(cpu);
            busy.busy_ns = busy.busy_ns.saturating_add(more.busy_ns);
            busy.idle_ns = busy.idle_ns.saturating_add(more.idle_ns);
        }
        for at in right.seen.into_iter().flat_map(|(first, last)| [first, last]) {
            self.see(at);
        }
        self.forgotten = right.forgotten.or(self.forgotten);
    }

    /// The same with nothing to either side: the time before the first switch and after the last one counts as far as
    /// anything was seen.
    pub(crate) fn closed(&self) -> Self {
        let mut whole = self.clone();
        let Some((begin, end)) = self.seen else { return whole };
        for (cpu, busy) in &self.cpus {
            if let Some((at, had)) = busy.first {
                whole.spend(*cpu, begin, at, had);
            }
            if let Some((since, had)) = busy.last {
                whole.spend(*cpu, since, end, had);
            }
        }
        whole
    }
}
