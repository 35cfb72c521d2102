//! Block devices, and bytes by process and file.

use std::sync::Arc;

use model::Tid;

use super::{
    Make, P50, P95, P99, column, duration, frequencies, joined, moments, number, operations,
    percentiles,
};
use crate::fact::Dev;
use crate::fold::{DiskRow, Disks, Item, Request};
use crate::table::{Cell, Class, Column, Kind, Table};

const DISK: Column = column("disk", "Disk", Kind::Disk, None);
const PARTS: Column = column("parts", "Parts", Kind::Text, None);
const OPERATION: Column = column("operation", "Operation", Kind::Text, None);
const COUNT: Column = number("count", "Requests", "requests");
const PROCESS: Column = column("process", "Process", Kind::Process, None);

pub(super) const LATENCY: Class = Class {
    name: "disk-latency",
    title: "Requests to block devices",
    columns: &[
        DISK,
        COUNT,
        duration("min", "Min"),
        duration("avg", "Avg"),
        duration("max", "Max"),
        duration("stdev", "Stdev"),
        PARTS,
        OPERATION,
        number("sectors", "Sectors", "sectors"),
        duration("total", "Total"),
        P50,
        P95,
        P99,
    ],
};

pub(super) const REQUEST: &[Column] = &[
    column("begin", "Issued at", Kind::Time, None),
    column("end", "Done at", Kind::Time, None),
    duration("latency", "Latency"),
    DISK,
    OPERATION,
    number("sector", "Sector", "sector"),
    column("size", "Size", Kind::Size, None),
    PROCESS,
];

const LONGEST: Class = Class {
    name: "disk-latency-top",
    title: "Longest requests to block devices",
    columns: REQUEST,
};

const LENGTHS: Class = Class {
    name: "disk-latency-freq",
    title: "Requests to block devices by length",
    columns: &[DISK, OPERATION, duration("from", "From"), duration("to", "To"), COUNT],
};

pub(super) const STATS: &[&Class] = &[operations::LATENCY, &LATENCY];
pub(super) const TOP: &[&Class] =
    &[operations::OPEN, operations::READ, operations::WRITE, operations::SYNC, &LONGEST];
pub(super) const FREQ: &[&Class] = &[operations::LENGTHS, &LENGTHS];

impl Make<'_> {
    pub(super) fn iolatencystats(&self) -> Vec<Table> {
        vec![self.operations(), self.disk_latencies()]
    }

    pub(super) fn iolatencyfreq(&self) -> Vec<Table> {
        let disks = &self.summary.folds.disks;
        let rows = disks.rows.iter().flat_map(|((dev, op), row)| {
            let of = [disk(disks, *dev), Cell::Text(op.word().into())];
            frequencies(&row.lengths).map(move |cells| of.iter().cloned().chain(cells).collect())
        });
        vec![self.operation_lengths(), self.table(&LENGTHS, rows.collect())]
    }

    pub(super) fn disk_latencies(&self) -> Table {
        let disks = &self.summary.folds.disks;
        let rows = disks.rows.iter().map(|((dev, op), row)| {
            let DiskRow { ns, lengths, sectors } = row;
            let mut cells = vec![disk(disks, *dev)];
            cells.extend(moments(ns));
            cells.push(Cell::Text(parts(disks, *dev)));
            cells.push(Cell::Text(op.word().into()));
            cells.extend([Cell::count(*sectors), Cell::ns(ns.sum)]);
            cells.extend(percentiles(lengths));
            cells
        });
        self.table(&LATENCY, rows.collect())
    }

    pub(super) fn iolatencytop(&self) -> Vec<Table> {
        let found = self.summary.folds.disks.top.iter();
        let wanted = found.filter(|request| self.wants(request.issue.tid.unwrap_or(Tid::IDLE)));
        let requests = wanted.map(|request| self.request(request)).collect();
        self.longest_calls().chain([self.table(&LONGEST, requests)]).collect()
    }

    pub(super) fn request(&self, request: &Request) -> Vec<Cell> {
        let issue = request.issue;
        vec![
            Cell::At(issue.at),
            Cell::At(request.end),
            Cell::ns(request.ns()),
            disk(&self.summary.folds.disks, request.dev),
            Cell::Text(issue.op.word().into()),
            Cell::count(request.sector),
            Cell::bytes(u64::from(issue.sectors) * 512),
            issue.tid.map_or(Cell::Unknown, |tid| self.thread(tid)),
        ]
    }
}

fn disk(disks: &Disks, dev: Dev) -> Cell {
    Cell::Disk { dev, name: disk_name(disks, dev) }
}

/// The name that a dump gave, else the kernel's `(major,minor)`.
pub(super) fn disk_name(disks: &Disks, dev: Dev) -> Arc<str> {
    let number = || format!("({},{})", dev.0 >> 20, dev.0 & 0xf_ffff).into();
    disks.names.get(&dev).map_or_else(number, Arc::clone)
}

fn parts(disks: &Disks, dev: Dev) -> Arc<str> {
    let parts = disks.parts.get(&dev).into_iter().flatten();
    let names: Vec<Arc<str>> = parts.map(|part| disk_name(disks, *part)).collect();
    joined(&names)
}
