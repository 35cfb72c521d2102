//! Everything that is counted beside the spans: one analysis in each module, all fed by the same pass.
//!
//! Each holds totals, which add, and the few registers that say what is open at its ends. `take` steps forward by a fact,
//! `append` puts the window to the right behind this one, `closed` is the same with nothing to the left; `append` is
//! associative, and a window for each fact gives the totals of one window.

mod calls;
mod cpu;
mod disk;
mod irq;
mod pages;
mod stat;
mod top;
mod wake;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{HeadExit, InFlight};
use crate::fact::{Fact, FactKind, Missing};
use crate::ident::Left;

pub(crate) use calls::{CallRow, CallStats};
pub(crate) use cpu::CpuTime;
pub(crate) use disk::{DiskRow, Disks};
pub(crate) use irq::Irqs;
pub(crate) use pages::{PageRow, Pages};
pub(crate) use stat::{Histogram, Stat};
pub(crate) use wake::Latencies;

use disk::Issue;
use wake::Wake;

/// All analyses of one window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folds {
    pub(crate) calls: CallStats,
    pub(crate) latencies: Latencies,
    pub(crate) irqs: Irqs,
    pub(crate) cpu: CpuTime,
    pub(crate) disks: Disks,
    pub(crate) pages: Pages,
}

impl Folds {
    /// A stretch of time that nobody recorded.
    pub(crate) fn gap(at: Timestamp) -> Self {
        let mut folds = Self::default();
        folds.lose(Missing::KernelEverywhere, at);
        folds
    }

    /// Takes in a fact of this thread at a time that does not go back.
    pub(crate) fn take(&mut self, at: Timestamp, fact: &Fact<&str>, thread: Option<Tid>) {
        if fact.cpu.is_some() {
            self.cpu.see(at);
        }
        match (fact.kind, fact.cpu) {
            (FactKind::Switch { prev, next, .. }, Some(cpu)) => {
                self.cpu.switch(cpu, at, prev, next);
                if prev != Tid::IDLE {
                    self.latencies.off(prev);
                }
                if next != Tid::IDLE {
                    self.latencies.got_cpu(next, at, cpu);
                }
            }
            (FactKind::Wakeup { tid, .. }, _) => {
                self.latencies.woken(tid, Wake { at, by: thread });
            }
            (FactKind::Fork { child, .. }, _) => self.latencies.off(child),
            (FactKind::Migrate { tid }, _) => self.cpu.migrate(tid),
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
            (FactKind::Pages { pages, freed }, _) => {
                if let Some(tid) = thread {
                    self.pages.take(tid, pages, freed);
                }
            }
            (FactKind::Lost { what, .. }, _) => self.lose(what, at),
            _ => {}
        }
    }

    fn lose(&mut self, what: Missing, at: Timestamp) {
        match what {
            Missing::Spans => {}
            Missing::Kernel(cpu) => {
                self.latencies.forget();
                self.irqs.forget(cpu);
                self.cpu.forget(cpu, at);
            }
            Missing::KernelEverywhere => {
                self.latencies.forget();
                self.irqs.forget_all();
                self.cpu.forget_all(at);
                self.disks.forget_all();
            }
        }
    }

    /// A call returns to the thread that had this one in flight.
    pub(crate) fn call_exit(&mut self, tid: Tid, exit: &HeadExit, in_flight: &InFlight) {
        self.calls.count(tid, exit, in_flight);
    }

    /// The window is complete.
    pub(crate) fn settle(&mut self) {
        self.latencies.top.keep_greatest();
        self.disks.top.keep_greatest();
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.calls.resolve(left);
    }

    /// Appends the window to the right. Its terms must have been resolved already.
    pub(crate) fn append(&mut self, right: Self) {
        self.calls.append(right.calls);
        self.latencies.append(right.latencies);
        self.irqs.append(right.irqs);
        self.cpu.append(right.cpu);
        self.disks.append(right.disks);
        self.pages.append(right.pages);
    }
}
