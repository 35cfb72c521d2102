//! Waits: for what, how long, and who ended them.

use std::collections::BTreeMap;

use super::irq::irq;
use super::lives::{Process, folded};
use super::{Make, P50, P95, P99, column, duration, moments, number, percentiles};
use crate::call::Class as Cause;
use crate::fold::Stat;
use crate::path::{WaitRow, Waker};
use crate::table::{Cell, Class, Column, Kind, Table};

const CAUSE: Column = column("cause", "Cause", Kind::Text, None);
const THREAD: Column = column("thread", "Thread", Kind::Process, None);
const PROCESS: Column = column("process", "Process", Kind::Process, None);
const WAKER: Column = column("waker", "Ended by", Kind::Process, None);
const INTERRUPT: Column = column("interrupt", "Ended by interrupt", Kind::Irq, None);
const COUNT: Column = number("count", "Waits", "waits");
const TOTAL: Column = duration("total", "Total");
const MIN: Column = duration("min", "Min");
const MEAN: Column = duration("avg", "Avg");
const MAX: Column = duration("max", "Max");
const DEVIATION: Column = duration("stdev", "Stdev");

const BY_CAUSE: Class = Class {
    name: "blocked-by-cause",
    title: "Waits of all threads by cause",
    columns: &[CAUSE, COUNT, TOTAL, MIN, MEAN, MAX, DEVIATION, P50, P95, P99],
};

const PER_PROCESS: Class = Class {
    name: "blocked-per-process",
    title: "Waits by process and cause",
    columns: &[PROCESS, CAUSE, COUNT, TOTAL, MIN, MEAN, MAX, DEVIATION, P50, P95, P99],
};

const PER_THREAD: Class = Class {
    name: "blocked-per-thread",
    title: "Waits by thread and cause",
    columns: &[THREAD, CAUSE, COUNT, TOTAL, MIN, MEAN, MAX, DEVIATION, P50, P95, P99],
};

const BY_WAKER: Class = Class {
    name: "blocked-by-waker",
    title: "Waits of all threads by who ended them",
    columns: &[WAKER, INTERRUPT, COUNT, TOTAL, MIN, MEAN, MAX, DEVIATION],
};

const PER_THREAD_AND_WAKER: Class = Class {
    name: "blocked-per-thread-and-waker",
    title: "Waits by thread and who ended them",
    columns: &[THREAD, WAKER, INTERRUPT, COUNT, TOTAL, MIN, MEAN, MAX, DEVIATION],
};

pub(super) const BLOCKED: &[&Class] =
    &[&BY_CAUSE, &PER_PROCESS, &PER_THREAD, &BY_WAKER, &PER_THREAD_AND_WAKER];

/// Rows of a table with the sum that they are sorted by: most time first.
#[derive(Default)]
struct Rows(Vec<(u64, Vec<Cell>)>);

impl Rows {
    fn push(&mut self, sum: u64, cells: impl IntoIterator<Item = Cell>) {
        self.0.push((sum, cells.into_iter().collect()));
    }

    fn sorted(mut self) -> Vec<Vec<Cell>> {
        self.0.sort_by_key(|(sum, _)| std::cmp::Reverse(*sum));
        self.0.into_iter().map(|(_, cells)| cells).collect()
    }
}

impl Make<'_> {
    pub(super) fn blocked(&self) -> Vec<Table> {
        let lives = self.closed().lives;
        let mut by_cause: BTreeMap<Cause, WaitRow> = BTreeMap::new();
        let mut by_process: BTreeMap<(Process, Cause), WaitRow> = BTreeMap::new();
        let mut threads = Rows::default();
        for life in &lives {
            let mut of_thread: BTreeMap<Cause, WaitRow> = BTreeMap::new();
            for (term, row) in life.waits.causes.iter() {
                of_thread.entry(self.finish.class(term)).or_default().append(row);
            }
            for (cause, row) in of_thread {
                by_cause.entry(cause).or_default().append(&row);
                by_process.entry((life.process(), cause)).or_default().append(&row);
                threads.push(row.ns.sum, [life.cell()].into_iter().chain(waits_of(cause, &row)));
            }
        }
        let mut processes = Rows::default();
        for ((process, cause), row) in &by_process {
            let process = match process {
                Process::Of(pid) => {
                    let comm = self.finish.process_comm(*pid);
                    Cell::Process { tid: None, pid: Some(*pid), comm }
                }
                Process::Folded(name) => Cell::Process { tid: None, pid: None, comm: folded(name) },
            };
            processes.push(row.ns.sum, [process].into_iter().chain(waits_of(*cause, row)));
        }
        let mut causes = Rows::default();
        for (cause, row) in &by_cause {
            causes.push(row.ns.sum, waits_of(*cause, row));
        }
        let mut wakers = Rows::default();
        let mut pairs = Rows::default();
        let mut by_waker: BTreeMap<Waker, Stat> = BTreeMap::new();
        for life in &lives {
            for (waker, stat) in life.waits.wakers.iter() {
                by_waker.entry(*waker).or_default().append(stat);
                let who = [life.cell()].into_iter().chain(self.waker(*waker));
                pairs.push(stat.sum, who.chain(ended(stat)));
            }
        }
        for (waker, stat) in &by_waker {
            wakers.push(stat.sum, self.waker(*waker).into_iter().chain(ended(stat)));
        }
        vec![
            self.table(&BY_CAUSE, causes.sorted()),
            self.table(&PER_PROCESS, processes.sorted()),
            self.table(&PER_THREAD, threads.sorted()),
            self.table(&BY_WAKER, wakers.sorted()),
            self.table(&PER_THREAD_AND_WAKER, pairs.sorted()),
        ]
    }

    /// The thread or the interrupt that ended a wait.
    pub(super) fn waker(&self, waker: Waker) -> [Cell; 2] {
        match waker {
            Waker::Thread(tid) => [self.thread(tid), Cell::Nothing],
            Waker::Handler(line) => [Cell::Nothing, irq(&self.summary.folds.irqs, line)],
            Waker::LeftHandler(..) | Waker::Unknown => [Cell::Unknown, Cell::Unknown],
        }
    }
}

fn waits_of(cause: Cause, row: &WaitRow) -> impl Iterator<Item = Cell> {
    let cause = Cell::Text(cause.word().into());
    [cause].into_iter().chain(ended(&row.ns)).chain(percentiles(&row.lengths))
}

/// How many, all together, and the moments.
fn ended(stat: &Stat) -> impl Iterator<Item = Cell> + use<> {
    let [count, rest @ ..] = moments(stat);
    [count, Cell::ns(stat.sum)].into_iter().chain(rest)
}
