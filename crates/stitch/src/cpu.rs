//! Who had a CPU, for the threads that waited for it.
//!
//! One rule makes this compose: the time between two switches of a CPU belongs to the thread that the second switch takes
//! away. The first switch of a window therefore settles the time since the last switch of the window before.

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

/// Time on one CPU by thread, for a stretch that is known from the outside.
pub(crate) type Occupancy = BTreeMap<Tid, u64>;

/// Time by CPU and thread.
pub(crate) type ByCpu = BTreeMap<CpuId, Occupancy>;

/// The switches of one CPU in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuSwitches {
    first_at: Timestamp,
    first_prev: Tid,
    last_at: Timestamp,
    /// From the first switch to the last. Bound: threads that ran.
    between: Occupancy,
}

impl CpuSwitches {
    fn new(at: Timestamp, prev: Tid) -> Self {
        Self { first_at: at, first_prev: prev, last_at: at, between: Occupancy::new() }
    }

    pub(crate) fn between(&self) -> &Occupancy {
        &self.between
    }

    /// Adds the time from `since`, which lies before this window, or from the last switch before it, to this window's
    /// first switch.
    pub(crate) fn add_gap(
        &self,
        since: Timestamp,
        before: Option<&Self>,
        occupancy: &mut Occupancy,
    ) {
        let begin = before.map_or(since, |cpu| cpu.last_at.max(since));
        add(occupancy, self.first_prev, begin, self.first_at);
    }

    /// Appends the switches of the window to the right.
    pub(crate) fn append(&mut self, right: Self) {
        add(&mut self.between, right.first_prev, self.last_at, right.first_at);
        crate::spent::add_ns(&mut self.between, right.between);
        self.last_at = right.last_at;
    }

    /// The time from this part's first switch to the right part's first one, and on by `more` after that.
    pub(crate) fn up_to(&self, right: &Self, more: &Occupancy) -> Occupancy {
        let mut occupancy = self.between.clone();
        add(&mut occupancy, right.first_prev, self.last_at, right.first_at);
        crate::spent::add_ns(&mut occupancy, more.clone());
        occupancy
    }
}

fn add(occupancy: &mut Occupancy, tid: Tid, begin: Timestamp, end: Timestamp) {
    let ns = end.since(begin).get();
    if ns > 0 {
        let sum = occupancy.entry(tid).or_default();
        *sum = sum.saturating_add(ns);
    }
}

/// The switches of every CPU while a window is read, one by one.
///
/// Bound: 16 bytes per switch of the window; gone when the window is summarised.
#[derive(Debug, Default)]
pub(crate) struct SwitchLog {
    cpus: BTreeMap<CpuId, (CpuSwitches, Vec<(Timestamp, Tid)>)>,
}

impl SwitchLog {
    pub(crate) fn switch(&mut self, cpu: CpuId, at: Timestamp, prev: Tid) {
        let (switches, log) =
            self.cpus.entry(cpu).or_insert_with(|| (CpuSwitches::new(at, prev), Vec::new()));
        if !log.is_empty() {
            add(&mut switches.between, prev, switches.last_at, at);
            switches.last_at = at.max(switches.last_at);
        }
        log.push((switches.last_at, prev));
    }

    /// Who had the CPU from its first switch until now.
    pub(crate) fn so_far(&self, cpu: CpuId) -> Occupancy {
        self.cpus.get(&cpu).map(|(switches, _)| switches.between.clone()).unwrap_or_default()
    }

    /// Who had the CPU from `since` until its last switch.
    pub(crate) fn since(&self, cpu: CpuId, since: Timestamp) -> Occupancy {
        let mut occupancy = Occupancy::new();
        let Some((_, log)) = self.cpus.get(&cpu) else { return occupancy };
        let mut later = log.iter().rev().peekable();
        while let Some(&(end, tid)) = later.next() {
            if end <= since {
                break;
            }
            let begin = later.peek().map_or(since, |(before, _)| (*before).max(since));
            add(&mut occupancy, tid, begin, end);
        }
        occupancy
    }

    /// Who had each CPU from `since` until its last switch.
    pub(crate) fn all_since(&self, since: Timestamp) -> ByCpu {
        let mut all = ByCpu::new();
        for cpu in self.cpus.keys() {
            let occupancy = self.since(*cpu, since);
            if !occupancy.is_empty() {
                all.insert(*cpu, occupancy);
            }
        }
        all
    }

    pub(crate) fn finish(self) -> BTreeMap<CpuId, CpuSwitches> {
        self.cpus.into_iter().map(|(cpu, (switches, _))| (cpu, switches)).collect()
    }
}
