//! Who had a CPU, for the threads that waited for it.
//!
//! One rule makes this compose: the time between two switches of a CPU belongs to the thread that the second switch takes
//! away. The first switch of a window therefore settles the time since the last switch of the window before.

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::keyed::Keyed;
use crate::who::Spans;

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
    /// From the first switch to the last; empty where nobody asks. Bound: threads that ran.
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

/// How many switches are kept one by one.
const MAX_LOG: usize = 16_384;

/// The switches of every CPU while a window is read, one by one as far as somebody may ask for them.
///
/// Bound: [`MAX_LOG`] switches of 16 bytes. When they are reached, whoever waits notes who had the CPUs since, and the
/// switches are dropped.
#[derive(Debug)]
pub(crate) struct SwitchLog {
    /// Whether somebody may ask who had a CPU since its first switch: threads that began to wait inside a span further left.
    sums: bool,
    cpus: Keyed<CpuId, CpuLog>,
    kept: usize,
}

#[derive(Debug)]
struct CpuLog {
    switches: CpuSwitches,
    /// The last switch that is not kept any more.
    dropped: Option<Timestamp>,
    kept: Vec<(Timestamp, Tid)>,
}

impl SwitchLog {
    /// Of a window before which threads may be inside these.
    pub(crate) fn new(spans: &Spans) -> Self {
        Self { sums: !spans.are_none(), cpus: Keyed::new(), kept: 0 }
    }

    pub(crate) fn switch(&mut self, cpu: CpuId, at: Timestamp, prev: Tid) {
        let log = self.cpus.or_insert_with(&cpu, || CpuLog {
            switches: CpuSwitches::new(at, prev),
            dropped: None,
            kept: Vec::new(),
        });
        let switches = &mut log.switches;
        if self.sums {
            add(&mut switches.between, prev, switches.last_at, at);
        }
        switches.last_at = at.max(switches.last_at);
        log.kept.push((switches.last_at, prev));
        self.kept += 1;
    }

    /// Whether whoever waits must note who had the CPUs before the next switch.
    pub(crate) fn is_full(&self) -> bool {
        self.kept >= MAX_LOG
    }

    /// Drops all switches.
    pub(crate) fn drop_kept(&mut self) {
        for log in self.cpus.values_mut() {
            log.dropped = log.kept.last().map(|(at, _)| *at).or(log.dropped);
            log.kept.clear();
        }
        self.kept = 0;
    }

    /// Who had the CPU from its first switch until now.
    pub(crate) fn so_far(&self, cpu: CpuId) -> Occupancy {
        self.cpus.get(&cpu).map(|log| log.switches.between.clone()).unwrap_or_default()
    }

    /// Adds who had the CPU from `since`, or from the last switch that is not kept, until its last switch.
    pub(crate) fn add_since(&self, cpu: CpuId, since: Timestamp, occupancy: &mut Occupancy) {
        if let Some(log) = self.cpus.get(&cpu) {
            log.add_since(since, occupancy);
        }
    }

    /// The same of every CPU.
    pub(crate) fn add_all_since(&self, since: Timestamp, by_cpu: &mut ByCpu) {
        for (cpu, log) in self.cpus.iter() {
            let mut occupancy = by_cpu.remove(cpu).unwrap_or_default();
            log.add_since(since, &mut occupancy);
            if !occupancy.is_empty() {
                by_cpu.insert(*cpu, occupancy);
            }
        }
    }

    /// The switches for the neighbours.
    pub(crate) fn finish(self) -> BTreeMap<CpuId, CpuSwitches> {
        self.cpus.into_entries().map(|(cpu, log)| (cpu, log.switches)).collect()
    }
}

impl CpuLog {
    fn add_since(&self, since: Timestamp, occupancy: &mut Occupancy) {
        let since = self.dropped.map_or(since, |dropped| dropped.max(since));
        let mut later = self.kept.iter().rev().peekable();
        while let Some(&(end, tid)) = later.next() {
            if end <= since {
                break;
            }
            let begin = later.peek().map_or(since, |(before, _)| (*before).max(since));
            add(occupancy, tid, begin, end);
        }
    }
}
