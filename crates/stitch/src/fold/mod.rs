//! Everything that is counted beside the spans: one analysis in each module, all fed by the same pass.
//!
//! Each has a part for all threads ([`Folds`]) and, where it counts by thread, a part for each ([`Counted`], which stands
//! in the thread's own record so that an event looks its thread up once). A part holds totals, which add, and the few
//! registers that say what is open at its ends. Steps go forward by a fact, `append` puts the window to the right behind
//! this one, `closed` is the same with nothing to the left; `append` is associative, and a window for each fact gives the
//! totals of one window.

mod calls;
mod cpu;
mod disk;
mod irq;
mod net;
mod pages;
mod sieve;
mod stat;
mod top;
mod wake;

use std::sync::Arc;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{HeadExit, InFlight};
use crate::fact::{Fact, FactKind, Missing};
use crate::ident::Left;
use crate::path::Wait;
use crate::select::Selection;

pub(crate) use calls::{CallRow, CallStats, DoneCall, Lengths, Sure, ThreadCalls};
pub(crate) use cpu::{CpuRow, CpuTime, Share, Turn};
pub(crate) use disk::{DiskRow, Disks, Request};
pub(crate) use irq::{Handler, Irqs};
pub(crate) use net::Interfaces;
pub(crate) use pages::PageRow;
pub(crate) use sieve::{Item, Sieve};
pub(crate) use stat::{Histogram, Stat, bucket, percentile, values};
pub(crate) use top::{KEPT, Top, rank};
pub(crate) use wake::{Latencies, Latency, ThreadLatencies, Wake};

use disk::Issue;

/// All analyses of one window, but for what they count by thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folds {
    pub(crate) calls: CallStats,
    pub(crate) latencies: Latencies,
    pub(crate) irqs: Irqs,
    pub(crate) cpu: CpuTime,
    pub(crate) disks: Disks,
    pub(crate) interfaces: Interfaces,
}

/// What the analyses count of one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) calls: ThreadCalls,
    pub(crate) latencies: ThreadLatencies,
    /// `None` when it neither had a CPU nor moved between two.
    pub(crate) cpu: Option<CpuRow>,
    /// `None` when it neither took nor gave back any.
    pub(crate) pages: Option<PageRow>,
}

/// What a log holds: of each kind, what the selection asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Items {
    pub(crate) interrupts: Vec<Handler>,
    pub(crate) latencies: Vec<Latency>,
    pub(crate) calls: Vec<DoneCall>,
    pub(crate) requests: Vec<Request>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) waits: Vec<Wait>,
}

impl Counted {
    /// Whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { calls, latencies, cpu, pages } = self;
        calls.is_empty() && latencies.all.count == 0 && cpu.is_none() && pages.is_none()
    }

    /// What was counted of the life that ends; what is open goes on.
    pub(crate) fn take_life(&mut self) -> Self {
        Self {
            calls: std::mem::take(&mut self.calls),
            latencies: self.latencies.take_counted(),
            cpu: self.cpu.take(),
            pages: self.pages.take(),
        }
    }

    /// What was counted of a life that goes on, where nothing was counted yet.
    pub(crate) fn take_up(&mut self, life: Self) {
        let latencies = life.latencies.in_state_of(&self.latencies);
        *self = Self { latencies, ..life };
    }

    /// Adds what was counted of another life.
    pub(crate) fn add(&mut self, more: &Self) {
        self.calls.add(&more.calls);
        self.latencies.all.append(&more.latencies.all);
        if let Some(more) = &more.cpu {
            self.cpu.get_or_insert_default().append(more);
        }
        if let Some(more) = &more.pages {
            self.pages.get_or_insert_default().append(more);
        }
    }

    /// What is open, and nothing counted.
    pub(crate) fn empty(&mut self) {
        self.calls.empty();
        self.latencies.empty();
        (self.cpu, self.pages) = (None, None);
    }
}

impl Folds {
    /// A stretch of time that nobody recorded.
    pub(crate) fn gap(at: Timestamp) -> Self {
        let mut folds = Self::default();
        folds.lose(Missing::KernelEverywhere, at, std::iter::empty());
        folds
    }

    /// A thread without an event in the window.
    pub(crate) fn unseen(&self) -> Counted {
        Counted {
            calls: ThreadCalls::default(),
            latencies: self.latencies.unseen(),
            cpu: None,
            pages: None,
        }
    }

    /// Takes in a fact of this thread at a time that does not go back. What it says of threads comes beside.
    pub(crate) fn take(&mut self, at: Timestamp, fact: &Fact<&str>, thread: Option<Tid>) {
        if fact.cpu.is_some() {
            self.cpu.see(at);
        }
        match (fact.kind, fact.cpu) {
            (FactKind::IrqEntry { line, name }, Some(cpu)) => {
                self.irqs.enter(cpu, line, at);
                if !name.is_empty() && !self.irqs.knows_name(line, name) {
                    self.irqs.name(line, name.into());
                }
            }
            (FactKind::IrqExit { line }, Some(cpu)) => self.irqs.exit(cpu, line, at),
            (FactKind::IrqRaise { line }, Some(cpu)) => self.irqs.raise(cpu, line, at),
            (FactKind::BlockIssue { dev, sector, sectors, op, tid }, _) => {
                self.disks.issue(dev, sector, Issue { at, sectors, op, tid: tid.or(thread) });
            }
            (FactKind::BlockDone { dev, sector }, _) => self.disks.complete(dev, sector, at),
            (FactKind::BlockRemap { dev, part }, _) => self.disks.map(dev, part),
            (FactKind::DumpDisk { dev, name }, _) => self.disks.name(dev, name.into()),
            (FactKind::Packet { interface, bytes, sent }, _) => {
                self.interfaces.take(interface, bytes, sent);
            }
            _ => {}
        }
    }

    /// A thread gets a CPU.
    pub(crate) fn got_cpu(&mut self, thread: &mut Counted, tid: Tid, at: Timestamp, cpu: CpuId) {
        self.latencies.got_cpu(&mut thread.latencies, tid, at, cpu);
    }

    /// A call returns to the thread that had this one in flight.
    pub(crate) fn call_exit(
        &mut self,
        thread: &mut Counted,
        exit: &HeadExit,
        in_flight: &InFlight,
    ) {
        self.calls.count(exit.tid, &mut thread.calls, exit, in_flight);
    }

    /// Events are missing. `threads` are those that the window mentions.
    pub(crate) fn lose<'t>(
        &mut self,
        what: Missing,
        at: Timestamp,
        threads: impl Iterator<Item = &'t mut Counted>,
    ) {
        let latencies = threads.map(|thread| &mut thread.latencies);
        match what {
            Missing::Spans => {}
            Missing::Kernel(cpu) => {
                self.latencies.forget(latencies);
                self.irqs.forget(cpu);
                self.cpu.forget(cpu, at);
            }
            Missing::KernelEverywhere => {
                self.latencies.forget(latencies);
                self.irqs.forget_all();
                self.cpu.forget_all(at);
                self.disks.forget_all();
            }
        }
    }

    /// Counts only what this selects. Before the first fact.
    pub(crate) fn select(&mut self, selection: &Arc<Selection>) {
        self.calls.sieve.select(selection);
        self.latencies.sieve.select(selection);
        self.irqs.sieve.select(selection);
        self.disks.sieve.select(selection);
        self.cpu.sieve.select(selection);
    }

    /// How many items are logged.
    pub(crate) fn logged(&self) -> usize {
        self.calls.sieve.len()
            + self.latencies.sieve.len()
            + self.irqs.sieve.len()
            + self.disks.sieve.len()
            + self.cpu.sieve.len()
    }

    /// Takes the log out, each kind in order, all but waits; `None` where none is wanted.
    pub(crate) fn take_log(&mut self) -> Option<Items> {
        self.calls.sieve.selection().filter(|selection| !selection.logs.is_empty())?;
        Some(Items {
            interrupts: self.irqs.sieve.take_log(),
            latencies: self.latencies.sieve.take_log(),
            calls: self.calls.sieve.take_log(),
            requests: self.disks.sieve.take_log(),
            turns: self.cpu.sieve.take_log(),
            waits: Vec::new(),
        })
    }

    /// The same with nothing to the left. Nothing that was counted changes, but what began at the left boundary at last
    /// counts or does not. Of threads whose life at the left boundary is another one than the last, that one comes beside.
    pub(crate) fn closed<'t>(
        self,
        threads: impl Iterator<Item = (Tid, &'t mut Counted, Option<&'t mut Counted>)>,
    ) -> Self {
        let mut calls = self.calls;
        let threads = threads.map(|(tid, thread, mut of_left)| {
            calls.close_thread(&mut thread.calls);
            if let Some(of_left) = &mut of_left {
                calls.close_thread(&mut of_left.calls);
            }
            (tid, &mut thread.latencies, of_left.map(|of_left| &mut of_left.latencies))
        });
        let latencies = self.latencies.close(threads);
        Self {
            calls,
            latencies,
            irqs: self.irqs.closed(),
            cpu: self.cpu,
            disks: self.disks.closed(),
            interfaces: self.interfaces,
        }
    }

    /// What is open at the end, at `at`, with nothing to the left, which it must be already, and nothing counted.
    pub(crate) fn counting_from(self, at: Timestamp) -> Self {
        Self {
            calls: self.calls.emptied(),
            latencies: self.latencies.emptied(),
            irqs: self.irqs.emptied(),
            cpu: self.cpu.emptied(at),
            disks: self.disks.emptied(),
            interfaces: Interfaces::default(),
        }
    }

    /// The window is complete.
    pub(crate) fn settle(&mut self) {
        self.calls.settle();
        self.latencies.top.keep_longest();
        self.disks.top.keep_longest();
    }

    /// Puts the calls that threads had in flight at the left boundary into what was counted of this one.
    pub(crate) fn resolve(&mut self, thread: &mut Counted, left: &impl Left) {
        self.calls.resolve(&mut thread.calls, left);
    }

    /// Puts the files of the left boundary into the calls that are kept one by one.
    pub(crate) fn resolve_files(&mut self, left: &impl Left) {
        self.calls.resolve_files(left);
    }

    /// Appends what the window to the right counted of a thread.
    pub(crate) fn append_thread(&mut self, tid: Tid, thread: &mut Counted, more: Counted) {
        thread.calls.append(more.calls);
        self.latencies.append_thread(tid, &mut thread.latencies, &more.latencies);
        if let Some(more) = more.cpu {
            thread.cpu.get_or_insert_default().append(&more);
        }
        if let Some(more) = more.pages {
            thread.pages.get_or_insert_default().append(&more);
        }
    }

    /// Appends that this window does not mention a thread of the one to the left.
    pub(crate) fn append_absence(&self, thread: &mut Counted) {
        self.latencies.append_absence(&mut thread.latencies);
    }

    /// Appends the window to the right, after its threads and the time of its CPUs.
    pub(crate) fn append(&mut self, right: Self) {
        self.calls.append(right.calls);
        self.latencies.append(right.latencies);
        self.irqs.append(right.irqs);
        self.disks.append(right.disks);
        self.interfaces.append(right.interfaces);
    }
}
