//! Scheduling latencies: from a thread's first wake-up to the moment it gets a CPU.
//!
//! A wake-up counts while the thread has no CPU, whatever it left the last one for; the first one counts. A thread that
//! is known to run, also because it is later seen to leave a CPU that it never got, is not woken. Where kernel events are
//! lost, on any CPU, every pending wake-up is forgotten: a latency is certain or not counted.

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::stat::{Histogram, Stat};
use super::top::Top;

/// A wake-up that waits for its thread to get a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Wake {
    pub(crate) at: Timestamp,
    /// The thread on the CPU where it happened, when it is known.
    pub(crate) by: Option<Tid>,
}

/// One latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) tid: Tid,
    pub(crate) wake: Wake,
    pub(crate) switch: Timestamp,
    pub(crate) cpu: CpuId,
}

/// Latencies by thread, and what a window leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// Bound: threads.
    pub(crate) rows: BTreeMap<Tid, Stat>,
    pub(crate) lengths: Histogram,
    pub(crate) top: Top<Latency>,
    threads: BTreeMap<Tid, Register>,
    /// Whether nothing before the window counts any more, for threads that the window does not mention either.
    forgotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Register {
    head: Head,
    tail: Tail,
}

/// What the window shows first of a thread that has a state at the left boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Head {
    /// Nothing but perhaps this wake-up.
    Open(Option<Wake>),
    /// It got a CPU, woken in the window before that or not.
    GotCpu { wake: Option<Wake>, at: Timestamp, cpu: CpuId },
    /// It left a CPU, was born or forgotten: whatever was pending does not count.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Tail {
    AsLeft,
    Running,
    Off(Option<Wake>),
}

impl Register {
    const UNSEEN: Self = Self { head: Head::Open(None), tail: Tail::AsLeft };
    const FORGOTTEN: Self = Self { head: Head::Over, tail: Tail::Off(None) };
}

impl Latencies {
    fn register(&mut self, tid: Tid) -> &mut Register {
        let unseen = if self.forgotten { Register::FORGOTTEN } else { Register::UNSEEN };
        self.threads.entry(tid).or_insert(unseen)
    }

    pub(crate) fn woken(&mut self, tid: Tid, wake: Wake) {
        let register = self.register(tid);
        match (&mut register.tail, &mut register.head) {
            (Tail::AsLeft, Head::Open(first)) => {
                first.get_or_insert(wake);
            }
            (Tail::Off(pending), _) => {
                pending.get_or_insert(wake);
            }
            (Tail::Running | Tail::AsLeft, _) => {}
        }
    }

    pub(crate) fn got_cpu(&mut self, tid: Tid, at: Timestamp, cpu: CpuId) {
        let register = self.register(tid);
        let tail = std::mem::replace(&mut register.tail, Tail::Running);
        match (tail, register.head) {
            (Tail::AsLeft, Head::Open(wake)) => register.head = Head::GotCpu { wake, at, cpu },
            (Tail::Off(Some(wake)), _) => self.count(Latency { tid, wake, switch: at, cpu }),
            (Tail::AsLeft | Tail::Running | Tail::Off(None), _) => {}
        }
    }

    /// It leaves its CPU, or a new thread begins under its number.
    pub(crate) fn off(&mut self, tid: Tid) {
        let register = self.register(tid);
        if register.tail == Tail::AsLeft {
            register.head = Head::Over;
        }
        register.tail = Tail::Off(None);
    }

    /// Kernel events are missing.
    pub(crate) fn forget(&mut self) {
        for register in self.threads.values_mut() {
            if register.tail == Tail::AsLeft {
                register.head = Head::Over;
            }
            register.tail = Tail::Off(None);
        }
        self.forgotten = true;
    }

    fn count(&mut self, latency: Latency) {
        let ns = latency.switch.since(latency.wake.at).get();
        self.rows.entry(latency.tid).or_default().take(ns);
        self.lengths.take(ns);
        self.top.push(ns, latency.wake.at, latency.tid, latency);
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (tid, more) in &right.rows {
            self.rows.entry(*tid).or_default().append(more);
        }
        self.lengths.append(&right.lengths);
        if right.forgotten {
            for (tid, register) in &mut self.threads {
                if !right.threads.contains_key(tid) {
                    let rooted = register.tail != Tail::AsLeft;
                    register.head = if rooted { register.head } else { Head::Over };
                    register.tail = Tail::Off(None);
                }
            }
        }
        for (tid, more) in right.threads {
            self.continue_as(tid, more);
        }
        self.forgotten |= right.forgotten;
        // Last: what the merge itself brought to an end must find its place too.
        self.top.append(right.top);
    }

    fn continue_as(&mut self, tid: Tid, more: Register) {
        let register = self.register(tid);
        let was = register.tail;
        let head = register.head;
        if more.tail != Tail::AsLeft {
            register.tail = more.tail;
        }
        match (was, head, more.head) {
            (Tail::AsLeft, Head::Open(first), Head::Open(wake)) => {
                register.head = Head::Open(first.or(wake));
            }
            (Tail::AsLeft, Head::Open(first), Head::GotCpu { wake, at, cpu }) => {
                register.head = Head::GotCpu { wake: first.or(wake), at, cpu };
            }
            (Tail::AsLeft, _, Head::Over) => register.head = Head::Over,
            (Tail::Off(pending), _, Head::Open(wake)) => {
                register.tail = Tail::Off(pending.or(wake));
            }
            (Tail::Off(pending), _, Head::GotCpu { wake, at, cpu }) => {
                if let Some(wake) = pending.or(wake) {
                    self.count(Latency { tid, wake, switch: at, cpu });
                }
            }
            (Tail::AsLeft | Tail::Running | Tail::Off(_), _, _) => {}
        }
    }

    /// The same with nothing to the left: no thread had a CPU and none was woken.
    pub(crate) fn closed(&self) -> Self {
        let mut nothing = Self { forgotten: true, ..Self::default() };
        nothing.append(self.clone());
        nothing
    }
}
