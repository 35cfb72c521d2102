//! Scheduling latencies.

use super::{Make, P50, P95, P99, column, duration, frequencies, moments, number, percentiles};
use crate::fold::{Item, Latencies, Latency, Stat};
use crate::table::{Cell, Class, Column, Kind, Table};

const COUNT: Column = number("count", "Schedulings", "schedulings");
const MIN: Column = duration("min", "Min");
const MEAN: Column = duration("avg", "Avg");
const MAX: Column = duration("max", "Max");
const DEVIATION: Column = duration("stdev", "Stdev");
const WAKEE: Column = column("wakee", "Wakee", Kind::Process, None);

const TOTAL: Class = Class {
    name: "sched-latency-total",
    title: "Scheduling latencies of all threads",
    columns: &[COUNT, MIN, MEAN, MAX, DEVIATION, P50, P95, P99],
};

const PER_THREAD: Class = Class {
    name: "sched-latency-per-thread",
    title: "Scheduling latencies by thread",
    columns: &[WAKEE, COUNT, MIN, MEAN, MAX, DEVIATION],
};

pub(super) const LATENCY: &[Column] = &[
    column("wakeup", "Woken at", Kind::Time, None),
    column("switch", "Running at", Kind::Time, None),
    duration("latency", "Latency"),
    column("cpu", "CPU", Kind::Cpu, None),
    WAKEE,
    column("context", "Woken in the context of", Kind::Process, None),
];

const LONGEST: Class =
    Class { name: "sched-latency-top", title: "Longest scheduling latencies", columns: LATENCY };

const LENGTHS: Class = Class {
    name: "sched-latency-freq",
    title: "Scheduling latencies by length",
    columns: &[duration("from", "From"), duration("to", "To"), COUNT],
};

pub(super) const STATS: &[&Class] = &[&TOTAL, &PER_THREAD];
pub(super) const TOP: &[&Class] = &[&LONGEST];
pub(super) const FREQ: &[&Class] = &[&LENGTHS];

impl Make<'_> {
    pub(super) fn schedstats(&self) -> Vec<Table> {
        let closed = self.closed();
        let mut total = Stat::default();
        let mut rows = Vec::new();
        for life in &closed.lives {
            let stat = &life.counted.latencies.all;
            if stat.count > 0 {
                total.append(stat);
                rows.push([life.cell()].into_iter().chain(moments(stat)).collect());
            }
        }
        let percentiles = self.if_all(percentiles(&closed.latencies.lengths));
        let all = moments(&total).into_iter().chain(percentiles).collect();
        vec![self.table(&TOTAL, vec![all]), self.table(&PER_THREAD, rows)]
    }

    pub(super) fn latencies(&self) -> Latencies {
        let threads = self.summary.threads.iter();
        let threads = threads.map(|(tid, thread)| (*tid, &thread.counted.latencies));
        self.summary.folds.latencies.closed(threads).0
    }

    pub(super) fn schedtop(&self) -> Vec<Table> {
        let latencies = self.latencies();
        let wanted = |latency: &&Latency| self.wants(latency.tid) && self.wants_cpu(latency.cpu);
        let rows = latencies.top.iter().filter(wanted).map(|latency| self.latency(latency));
        vec![self.table(&LONGEST, rows.collect())]
    }

    pub(super) fn latency(&self, latency: &Latency) -> Vec<Cell> {
        vec![
            Cell::At(latency.wake.at),
            Cell::At(latency.switch),
            Cell::ns(latency.ns()),
            Cell::Cpu(latency.cpu),
            self.thread(latency.tid),
            latency.wake.by.map_or(Cell::Unknown, |by| self.thread(by)),
        ]
    }

    pub(super) fn schedfreq(&self) -> Vec<Table> {
        let latencies = self.latencies();
        let rows = frequencies(&latencies.lengths).map(Vec::from);
        vec![self.table(&LENGTHS, rows.collect())]
    }
}
