//! Who had the CPUs.
//!
//! The time between two switches of a CPU belongs to the thread that the second one takes away, if that is the one that the
//! first one gave the CPU to and still lives the same life: else the CPU was busy, and nobody knows with whom. The time before
//! the first switch belongs to the thread that it takes away, if that had not begun its life since. Where events of a CPU are
//! lost, nobody knows who had it from the switch before to the one after. A CPU that is switched off is so until its next switch;
//! that time is neither busy nor idle.

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::sieve::{Item, Sieve};
use crate::keyed::Keyed;
use crate::lives::Begin;
use crate::select::Logged;

/// What one thread had of all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuRow {
    pub(crate) ns: u64,
    pub(crate) migrations: u64,
}

/// CPU time by CPU, and what a window leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    /// Bound: CPUs.
    pub(crate) cpus: Keyed<CpuId, Busy>,
    /// The first and the last moment at which something happened on a CPU.
    pub(crate) seen: Option<(Timestamp, Timestamp)>,
    forgotten: Option<Timestamp>,
    /// What is logged is given away before a summary is written.
    #[serde(skip)]
    pub(crate) sieve: Sieve<Turn>,
}

/// A stretch of time for which a thread had a CPU, from one switch to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) tid: Tid,
    pub(crate) cpu: CpuId,
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
}

impl Item for Turn {
    fn begin(&self) -> Timestamp {
        self.begin
    }

    fn end(&self) -> Timestamp {
        self.end
    }

    fn is_in(&self, log: Logged) -> bool {
        log == Logged::Turns
    }

    fn tid(&self) -> Option<Tid> {
        Some(self.tid)
    }

    fn cpu(&self) -> Option<CpuId> {
        Some(self.cpu)
    }
}

/// One CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Busy {
    pub(crate) busy_ns: u64,
    pub(crate) idle_ns: u64,
    /// How long it was switched off.
    pub(crate) off_ns: u64,
    /// Until when, and who had it until then: the first switch, or a loss.
    first: Option<(Timestamp, Had)>,
    /// Since when, and who has it since then.
    last: Option<(Timestamp, Had)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Had {
    Thread(Tid),
    /// A thread that had not begun its life when the stretch began.
    Newborn,
    /// Nobody: it was switched off.
    Off,
    Unknown,
}

/// Time of a CPU that belongs to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) tid: Tid,
    pub(crate) ns: u64,
    /// From when to when.
    times: (Timestamp, Timestamp),
}

impl Share {
    pub(crate) fn since(self) -> Timestamp {
        self.times.0
    }
}

impl CpuRow {
    pub(crate) fn migrate(&mut self) {
        self.migrations = self.migrations.saturating_add(1);
    }

    pub(crate) fn had(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
    }

    pub(crate) fn append(&mut self, more: &Self) {
        self.ns = self.ns.saturating_add(more.ns);
        self.migrations = self.migrations.saturating_add(more.migrations);
    }
}

impl CpuTime {
    pub(crate) fn see(&mut self, at: Timestamp) {
        let (first, last) = self.seen.unwrap_or((at, at));
        self.seen = Some((first.min(at), last.max(at)));
    }

    /// Gives what the thread that leaves had of the CPU, unless its life has begun since.
    pub(crate) fn switch(
        &mut self,
        cpu: CpuId,
        at: Timestamp,
        (prev, begin): (Tid, Begin),
        next: Tid,
    ) -> Option<Share> {
        let is_first = self.cpu(cpu).last.is_none();
        let had = match begin {
            Begin::Seen(_) | Begin::Born(_) if is_first => Had::Newborn,
            _ => Had::Thread(prev),
        };
        let share = self.cpu(cpu).step(at, had, (at, Had::Thread(next)));
        let share = share.filter(|share| !begin.is_after(share.since()));
        self.note(cpu, share);
        share
    }

    /// A CPU is switched off.
    pub(crate) fn offline(&mut self, cpu: CpuId, at: Timestamp) {
        let share = self.cpu(cpu).step(at, Had::Off, (at, Had::Off));
        debug_assert!(share.is_none(), "nobody has a CPU that is off");
    }

    /// Events of a CPU are missing.
    pub(crate) fn forget(&mut self, cpu: CpuId, at: Timestamp) {
        self.cpu(cpu).step(at, Had::Unknown, (at, Had::Unknown));
    }

    /// Events of all CPUs are missing.
    pub(crate) fn forget_all(&mut self, at: Timestamp) {
        self.cpus.values_mut().for_each(|busy| {
            busy.step(at, Had::Unknown, (at, Had::Unknown));
        });
        self.forgotten = Some(at);
    }

    fn note(&mut self, cpu: CpuId, share: Option<Share>) {
        if let Some(Share { tid, times: (begin, end), .. }) = share {
            self.sieve.note(Logged::Turns, || Turn { tid, cpu, begin, end });
        }
    }

    /// Of each CPU: who had it up to its first switch, and who has it since its last one.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (CpuId, [Option<(Timestamp, Tid)>; 2])> {
        let turn = |edge| match edge {
            Some((at, Had::Thread(tid))) if tid != Tid::IDLE => Some((at, tid)),
            _ => None,
        };
        self.cpus.iter().map(move |(cpu, busy)| (*cpu, [turn(busy.first), turn(busy.last)]))
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut Busy {
        let last = self.forgotten.map(|at| (at, Had::Unknown));
        self.cpus.or_insert_with(&cpu, || Busy {
            busy_ns: 0,
            idle_ns: 0,
            off_ns: 0,
            first: last,
            last,
        })
    }

    /// Appends the window to the right. Gives what threads of this one had across the boundary; `begin_of` says when the life
    /// began that a thread has there.
    pub(crate) fn append(&mut self, right: Self, begin_of: impl Fn(Tid) -> Begin) -> Vec<Share> {
        let mut shares = Vec::new();
        if let Some(at) = right.forgotten {
            for (cpu, busy) in self.cpus.iter_mut() {
                if !right.cpus.contains_key(cpu) {
                    busy.step(at, Had::Unknown, (at, Had::Unknown));
                }
            }
        }
        for (cpu, more) in right.cpus.into_entries() {
            let busy = self.cpu(cpu);
            if let (Some((at, had)), Some(last)) = (more.first, more.last) {
                let had = match had {
                    Had::Thread(tid) if busy.last.is_none() && begin_of(tid) != Begin::AsLeft => {
                        Had::Newborn
                    }
                    had => had,
                };
                let share = busy.step(at, had, last);
                let share = share.filter(|share| !begin_of(share.tid).is_after(share.since()));
                self.note(cpu, share);
                shares.extend(share);
            }
            let busy = self.cpu(cpu);
            busy.busy_ns = busy.busy_ns.saturating_add(more.busy_ns);
            busy.idle_ns = busy.idle_ns.saturating_add(more.idle_ns);
            busy.off_ns = busy.off_ns.saturating_add(more.off_ns);
        }
        self.sieve.append(right.sieve);
        for at in right.seen.into_iter().flat_map(|(first, last)| [first, last]) {
            self.see(at);
        }
        self.forgotten = right.forgotten.or(self.forgotten);
        shares
    }

    /// The same, and nothing counted before `at`: time from there on is.
    pub(crate) fn emptied(self, at: Timestamp) -> Self {
        let Self { mut cpus, seen, forgotten, sieve } = self;
        for busy in cpus.values_mut() {
            let last = busy.last.map(|(_, had)| (at, had));
            *busy = Busy { busy_ns: 0, idle_ns: 0, off_ns: 0, first: None, last };
        }
        Self { cpus, seen: seen.map(|_| (at, at)), forgotten, sieve: sieve.emptied() }
    }

    /// The same with nothing to either side: the time before the first switch and after the last one counts as far as
    /// anything was seen; gives what threads had at the begin and at the end.
    pub(crate) fn closed(&self) -> (Self, Vec<Share>, Vec<Share>) {
        let mut whole = self.clone();
        let (mut at_begin, mut at_end) = (Vec::new(), Vec::new());
        let Some((begin, end)) = self.seen else { return (whole, at_begin, at_end) };
        for busy in whole.cpus.values_mut() {
            if let Some((at, had)) = busy.first {
                at_begin.extend(busy.spend(begin, at, had));
            }
            if let Some((since, had)) = busy.last {
                at_end.extend(busy.spend(since, end, had));
            }
        }
        (whole, at_begin, at_end)
    }
}

impl Busy {
    fn step(&mut self, at: Timestamp, had: Had, last: (Timestamp, Had)) -> Option<Share> {
        match self.last.replace(last) {
            None => {
                self.first = Some((at, had));
                None
            }
            Some((_, Had::Unknown)) => None,
            // Off until the switch that ends it; before that, whose it was.
            Some((since, got)) if had == Had::Off || got == Had::Off && had != Had::Unknown => {
                self.spend(since, at, got);
                None
            }
            Some((since, got)) => self.spend(since, at, had).filter(|_| got == had),
        }
    }

    fn spend(&mut self, since: Timestamp, until: Timestamp, had: Had) -> Option<Share> {
        let ns = until.since(since).get();
        match had {
            Had::Unknown => return None,
            Had::Off => {
                self.off_ns = self.off_ns.saturating_add(ns);
                return None;
            }
            Had::Thread(Tid::IDLE) => {
                self.idle_ns = self.idle_ns.saturating_add(ns);
                return None;
            }
            Had::Thread(_) | Had::Newborn => self.busy_ns = self.busy_ns.saturating_add(ns),
        }
        let Had::Thread(tid) = had else { return None };
        Some(Share { tid, ns, times: (since, until) })
    }
}
