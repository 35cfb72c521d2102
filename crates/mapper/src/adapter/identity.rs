//! Who is who in traces that do not say so on every event: the thread on a CPU, the process of a thread.
//!
//! Learnt in a first reading: which thread left each CPU first and got it last, which process a thread belongs to. Events
//! before the first switch of a CPU belong to the thread that this switch takes away.

use std::collections::BTreeMap;

use model::{CpuId, Pid, Tid, Timestamp};

/// The thread on each CPU, as far as switches tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OnCpu(BTreeMap<CpuId, Option<Tid>>);

impl OnCpu {
    pub(crate) fn get(&self, cpu: CpuId) -> Option<Tid> {
        self.0.get(&cpu).copied().flatten()
    }

    pub(crate) fn set(&mut self, cpu: CpuId, tid: Option<Tid>) {
        self.0.insert(cpu, tid);
    }

    /// Events of the CPU are lost: nobody knows until its next switch.
    pub(crate) fn forget(&mut self, cpu: CpuId) {
        self.set(cpu, None);
    }
}

/// The process of each thread, and who runs where at given times.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// Bound: births and dumped threads.
    processes: BTreeMap<Tid, Vec<(Timestamp, Pid)>>,
    tables: BTreeMap<u64, Pid>,
    /// The first thread known on each CPU.
    first: BTreeMap<CpuId, Tid>,
    now: OnCpu,
    /// Who ran where at the begin of each window, in order.
    at_windows: Vec<(Timestamp, OnCpu)>,
}

impl Identities {
    /// A window begins here; called in order of time, before what follows is learnt.
    pub(crate) fn begin_window(&mut self, begin: Timestamp) {
        self.at_windows.push((begin, self.now.clone()));
    }

    pub(crate) fn switch(&mut self, cpu: CpuId, prev: Tid, next: Tid) {
        if !self.now.0.contains_key(&cpu) {
            self.first.insert(cpu, prev);
        }
        self.now.set(cpu, Some(next));
    }

    pub(crate) fn lost(&mut self, cpu: CpuId) {
        self.now.forget(cpu);
    }

    pub(crate) fn thread(&mut self, tid: Tid, at: Timestamp, pid: Pid) {
        let lives = self.processes.entry(tid).or_default();
        if lives.last().is_none_or(|(_, last)| *last != pid) {
            lives.push((at, pid));
        }
    }

    pub(crate) fn tables(&mut self, tables: BTreeMap<u64, Pid>) {
        self.tables.extend(tables);
    }

    /// The process a thread belongs to at a time: by the last word before, else by the first after.
    pub(crate) fn process(&self, tid: Tid, at: Timestamp) -> Option<Pid> {
        let lives = self.processes.get(&tid)?;
        let before = lives.iter().rev().find(|(since, _)| *since <= at);
        before.or_else(|| lives.first()).map(|(_, pid)| *pid)
    }

    pub(crate) fn process_of_table(&self, address: u64) -> Option<Pid> {
        self.tables.get(&address).copied()
    }

    /// Who ran where at the begin of a window: by what precedes it, else by the first switch after.
    pub(crate) fn on_cpu_at(&self, begin: Timestamp) -> OnCpu {
        let known = self.at_windows.iter().rev().find(|(window, _)| *window <= begin);
        let mut on_cpu = known.map(|(_, on_cpu)| on_cpu.clone()).unwrap_or_default();
        for (cpu, tid) in &self.first {
            on_cpu.0.entry(*cpu).or_insert(Some(*tid));
        }
        on_cpu
    }
}
