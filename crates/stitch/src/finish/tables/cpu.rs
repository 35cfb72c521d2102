//! CPU time and memory of threads.

use std::cmp::Reverse;

use model::Timestamp;

use super::lives::{Closed, Life};
use super::{Make, column, duration, number};
use crate::fold::PageRow;
use crate::table::{Cell, Class, Column, Kind, Table};

const PROCESS: Column = column("process", "Process", Kind::Process, None);
const SHARE: Column = column("usage", "CPU usage", Kind::Ratio, None);

const PER_THREAD: Class = Class {
    name: "cpu-per-thread",
    title: "CPU usage by thread",
    columns: &[
        PROCESS,
        number("migrations", "Migrations", "migrations"),
        SHARE,
        duration("running", "Running"),
    ],
};

const PER_CPU: Class = Class {
    name: "cpu-per-cpu",
    title: "CPU usage by CPU",
    columns: &[
        column("cpu", "CPU", Kind::Cpu, None),
        SHARE,
        duration("busy", "Busy"),
        duration("idle", "Idle"),
        duration("unknown", "Unknown"),
    ],
};

const ALL_CPUS: Class = Class {
    name: "cpu-total",
    title: "CPU usage in total",
    columns: &[SHARE, duration("busy", "Busy"), duration("idle", "Idle")],
};

const PAGES: Class = Class {
    name: "memory-per-thread",
    title: "Pages of memory by thread",
    columns: &[
        PROCESS,
        number("allocated", "Allocated", "pages"),
        number("freed", "Freed", "pages"),
        number("allocations", "Allocations", "calls"),
        number("frees", "Frees", "calls"),
    ],
};

const ALL_PAGES: Class = Class {
    name: "memory-total",
    title: "Pages of memory in total",
    columns: &[
        number("allocated", "Allocated", "pages"),
        number("freed", "Freed", "pages"),
        number("allocations", "Allocations", "calls"),
        number("frees", "Frees", "calls"),
    ],
};

pub(super) const CPUTOP: &[&Class] = &[&PER_THREAD, &PER_CPU, &ALL_CPUS];
pub(super) const MEMTOP: &[&Class] = &[&PAGES, &ALL_PAGES];

impl Make<'_> {
    pub(super) fn cputop(&self) -> Vec<Table> {
        let Closed { lives, cpu, .. } = self.closed();
        let nothing = Timestamp::from_nanos(0);
        let (begin, end) = cpu.seen.unwrap_or((nothing, nothing));
        let whole = end.since(begin).get();
        let ratio = |part: u64, whole: u64| match whole {
            0 => Cell::Unknown,
            whole => Cell::Ratio { part, whole },
        };
        let mut threads: Vec<_> =
            lives.iter().filter_map(|life| Some((life, life.counted.cpu?))).collect();
        threads.sort_by_key(|(life, row)| (Reverse(row.ns), life.order()));
        let threads = threads.into_iter().map(|(life, row)| {
            vec![life.cell(), Cell::count(row.migrations), ratio(row.ns, whole), Cell::ns(row.ns)]
        });
        let (mut busy, mut idle, mut there) = (0_u64, 0_u64, 0_u64);
        let mut per_cpu = Vec::new();
        for (id, row) in cpu.cpus.iter().filter(|(cpu, _)| self.wants_cpu(**cpu)) {
            busy = busy.saturating_add(row.busy_ns);
            idle = idle.saturating_add(row.idle_ns);
            let present = whole.saturating_sub(row.off_ns);
            there = there.saturating_add(present);
            let known = row.busy_ns.saturating_add(row.idle_ns);
            per_cpu.push(vec![
                Cell::Cpu(*id),
                ratio(row.busy_ns, present),
                Cell::ns(row.busy_ns),
                Cell::ns(row.idle_ns),
                Cell::ns(present.saturating_sub(known)),
            ]);
        }
        let total = vec![ratio(busy, there), Cell::ns(busy), Cell::ns(idle)];
        vec![
            self.table(&PER_THREAD, threads.collect()),
            self.table(&PER_CPU, per_cpu),
            self.table(&ALL_CPUS, vec![total]),
        ]
    }

    pub(super) fn memtop(&self) -> Vec<Table> {
        let lives = self.closed().lives;
        let rows = lives.iter().filter_map(|life| Some((life, life.counted.pages?)));
        let mut rows: Vec<(&Life, PageRow)> = rows.collect();
        rows.sort_by_key(|(life, row)| (Reverse(row.allocated), Reverse(row.freed), life.order()));
        let mut total = PageRow::default();
        rows.iter().for_each(|(_, row)| total.append(row));
        let figures =
            |row: &PageRow| [row.allocated, row.freed, row.allocations, row.frees].map(Cell::count);
        let per_thread = rows
            .into_iter()
            .map(|(life, row)| [life.cell()].into_iter().chain(figures(&row)).collect());
        vec![
            self.table(&PAGES, per_thread.collect()),
            self.table(&ALL_PAGES, vec![figures(&total).into()]),
        ]
    }
}
