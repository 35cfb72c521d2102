//! Scheduling latencies: from a thread's first wake-up to the moment it gets a CPU.
//!
//! A wake-up counts while the thread has no CPU, whatever it left the last one for; the first one counts. A thread that
//! is known to run, also because it is later seen to leave a CPU that it never got, is not woken. Where kernel events are
//! lost, on any CPU, every pending wake-up is forgotten: a latency is certain or not counted.

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::sieve::{Item, Sieve};
use super::stat::{Histogram, Stat};
use super::top::Top;
use crate::select::Logged;

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

impl Item for Latency {
    fn begin(&self) -> Timestamp {
        self.wake.at
    }

    fn end(&self) -> Timestamp {
        self.switch
    }

    fn is_in(&self, log: Logged) -> bool {
        log == Logged::Latencies
    }

    fn tid(&self) -> Option<Tid> {
        Some(self.tid)
    }

    fn cpu(&self) -> Option<CpuId> {
        Some(self.cpu)
    }
}

/// Latencies of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    pub(crate) lengths: Histogram,
    pub(crate) top: Top<Latency>,
    pub(crate) sieve: Sieve<Latency>,
    /// Whether nothing before the window counts any more, for threads that the window does not mention either.
    forgotten: bool,
}

/// Latencies of one thread, and what a window leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadLatencies {
    pub(crate) all: Stat,
    register: Register,
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

impl Default for ThreadLatencies {
    fn default() -> Self {
        Self { all: Stat::NONE, register: Register::UNSEEN }
    }
}

impl ThreadLatencies {
    /// Of a thread whose wake-ups before now do not count.
    pub(crate) const FORGOTTEN: Self = Self { all: Stat::NONE, register: Register::FORGOTTEN };

    /// Whether nothing was counted and nothing of the left counts.
    pub(crate) fn is_forgotten(&self) -> bool {
        *self == Self::FORGOTTEN
    }

    /// What was counted; the state goes on.
    pub(crate) fn take_counted(&mut self) -> Self {
        Self { all: std::mem::take(&mut self.all), ..Self::default() }
    }

    /// With this state.
    pub(crate) fn in_state_of(self, other: &Self) -> Self {
        Self { register: other.register, ..self }
    }

    pub(crate) fn empty(&mut self) {
        self.all = Stat::NONE;
    }

    /// The wake-up that waits for a CPU.
    pub(crate) fn pending(&self) -> Option<Wake> {
        match self.register.tail {
            Tail::Off(wake) => wake,
            Tail::AsLeft | Tail::Running => None,
        }
    }

    /// It leaves its CPU, or a new thread begins under its number.
    pub(crate) fn off(&mut self) {
        if self.register.tail == Tail::AsLeft {
            self.register.head = Head::Over;
        }
        self.register.tail = Tail::Off(None);
    }

    pub(crate) fn woken(&mut self, wake: Wake) {
        match (&mut self.register.tail, &mut self.register.head) {
            (Tail::AsLeft, Head::Open(first)) => {
                first.get_or_insert(wake);
            }
            (Tail::Off(pending), _) => {
                pending.get_or_insert(wake);
            }
            (Tail::Running | Tail::AsLeft, _) => {}
        }
    }
}

impl Latencies {
    /// A thread without an event in the window.
    pub(crate) fn unseen(&self) -> ThreadLatencies {
        let register = if self.forgotten { Register::FORGOTTEN } else { Register::UNSEEN };
        ThreadLatencies { all: Stat::NONE, register }
    }

    pub(crate) fn got_cpu(
        &mut self,
        thread: &mut ThreadLatencies,
        tid: Tid,
        at: Timestamp,
        cpu: CpuId,
    ) {
        let register = &mut thread.register;
        let tail = std::mem::replace(&mut register.tail, Tail::Running);
        match (tail, register.head) {
            (Tail::AsLeft, Head::Open(wake)) => register.head = Head::GotCpu { wake, at, cpu },
            (Tail::Off(Some(wake)), _) => {
                self.count(thread, Latency { tid, wake, switch: at, cpu });
            }
            (Tail::AsLeft | Tail::Running | Tail::Off(None), _) => {}
        }
    }

    /// Kernel events are missing.
    pub(crate) fn forget<'t>(&mut self, threads: impl Iterator<Item = &'t mut ThreadLatencies>) {
        threads.for_each(ThreadLatencies::off);
        self.forgotten = true;
    }

    fn count(&mut self, thread: &mut ThreadLatencies, latency: Latency) {
        if !self.sieve.passes(&latency) {
            return;
        }
        let ns = latency.ns();
        thread.all.take(ns);
        self.lengths.take(ns);
        self.top.push(&latency);
    }

    /// Appends the window to the right, in which every thread was appended already.
    pub(crate) fn append(&mut self, right: Self) {
        self.lengths.append(&right.lengths);
        self.forgotten |= right.forgotten;
        // Last: what the merge itself brought to an end must find its place too.
        self.top.append(right.top);
        self.sieve.append(right.sieve);
    }

    /// Appends what the window to the right knows of a thread that it does not mention.
    pub(crate) fn append_absence(&self, thread: &mut ThreadLatencies) {
        if self.forgotten {
            thread.off();
        }
    }

    /// Appends what the window to the right knows of a thread.
    pub(crate) fn append_thread(
        &mut self,
        tid: Tid,
        thread: &mut ThreadLatencies,
        more: &ThreadLatencies,
    ) {
        thread.all.append(&more.all);
        let register = &mut thread.register;
        let (was, head) = (register.tail, register.head);
        let more = more.register;
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
                    self.count(thread, Latency { tid, wake, switch: at, cpu });
                }
            }
            (Tail::AsLeft | Tail::Running | Tail::Off(_), _, _) => {}
        }
    }

    /// The same with nothing to the left: no thread had a CPU and none was woken. Also what that makes of what
    /// crossed the left boundary.
    pub(crate) fn closed<'t>(
        &self,
        threads: impl Iterator<Item = (Tid, &'t ThreadLatencies)>,
    ) -> (Self, BTreeMap<Tid, Stat>) {
        let sieve = self.sieve.emptied();
        let mut whole = Self { forgotten: true, sieve, ..Self::default() };
        let mut rows = BTreeMap::new();
        for (tid, thread) in threads {
            let crossing = whole.close_thread(tid, &mut thread.clone());
            if crossing.count > 0 {
                rows.insert(tid, crossing);
            }
        }
        whole.append(self.clone());
        (whole, rows)
    }

    /// Puts nothing to the left of a thread; gives what that makes of what crossed the left boundary.
    fn close_thread(&mut self, tid: Tid, thread: &mut ThreadLatencies) -> Stat {
        let open = ThreadLatencies { all: Stat::NONE, ..*thread };
        let mut nothing = ThreadLatencies::FORGOTTEN;
        self.append_thread(tid, &mut nothing, &open);
        thread.register = nothing.register;
        nothing.all
    }

    /// The same with nothing to the left, for what will be appended. Of threads whose life at the left boundary is another
    /// one than the last, that one comes beside.
    pub(crate) fn close<'t>(
        self,
        threads: impl Iterator<Item = (Tid, &'t mut ThreadLatencies, Option<&'t mut ThreadLatencies>)>,
    ) -> Self {
        let sieve = self.sieve.emptied();
        let mut whole = Self { forgotten: true, sieve, ..Self::default() };
        for (tid, thread, of_left) in threads {
            let crossing = whole.close_thread(tid, thread);
            of_left.unwrap_or(thread).all.append(&crossing);
        }
        whole.append(self);
        whole
    }

    /// The same, and nothing counted.
    pub(crate) fn emptied(self) -> Self {
        Self { sieve: self.sieve.emptied(), forgotten: self.forgotten, ..Self::default() }
    }
}
