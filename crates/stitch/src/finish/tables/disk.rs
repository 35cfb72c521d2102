//! Block devices, and bytes by process and file.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Pid, Tid};

use super::{
    Make, P50, P95, P99, column, duration, joined, moments, number, operations, percentiles,
};
use crate::fact::Dev;
use crate::fold::{DiskRow, Disks, Item, Request};
use crate::ident::Kind as FileKind;
use crate::table::{Cell, Class, Column, Kind, Table};

const DISK: Column = column("disk", "Disk", Kind::Disk, None);
const PARTS: Column = column("parts", "Parts", Kind::Text, None);
const OPERATION: Column = column("operation", "Operation", Kind::Text, None);
const COUNT: Column = number("count", "Requests", "requests");
const PROCESS: Column = column("process", "Process", Kind::Process, None);

const LATENCY: Class = Class {
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

const PER_PROCESS: Class = Class {
    name: "io-per-process",
    title: "Bytes that calls moved, by process",
    columns: &[
        PROCESS,
        column("size", "All", Kind::Size, None),
        column("disk", "Disk", Kind::Size, None),
        column("net", "Network", Kind::Size, None),
        column("other", "Other", Kind::Size, None),
    ],
};

const PER_FILE: Class = Class {
    name: "io-per-file",
    title: "Bytes that calls moved, by file",
    columns: &[
        column("path", "File", Kind::Path, None),
        column("size", "Size", Kind::Size, None),
        number("count", "Calls", "calls"),
    ],
};

const BLOCK_PER_THREAD: Class = Class {
    name: "block-per-thread",
    title: "Bytes of block device requests, by thread that issued them",
    columns: &[
        PROCESS,
        column("read", "Read", Kind::Size, None),
        column("written", "Written", Kind::Size, None),
    ],
};

pub(super) const STATS: &[&Class] = &[operations::LATENCY, &LATENCY];
pub(super) const TOP: &[&Class] =
    &[operations::OPEN, operations::READ, operations::WRITE, operations::SYNC, &LONGEST];
pub(super) const USAGE: &[&Class] = &[&PER_PROCESS, &PER_FILE, &BLOCK_PER_THREAD, &LATENCY];

impl Make<'_> {
    pub(super) fn iolatencystats(&self) -> Vec<Table> {
        vec![self.operations(), self.disk_latencies()]
    }

    fn disk_latencies(&self) -> Table {
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

    pub(super) fn iousagetop(&self) -> Vec<Table> {
        let mut processes: BTreeMap<Pid, [u64; 3]> = BTreeMap::new();
        let mut files: BTreeMap<Arc<str>, (u64, u64)> = BTreeMap::new();
        for (owner, calls) in self.summary.processes.iter() {
            let pid = self.finish.process(*owner);
            if !self.wants(Tid::new(pid.get())) {
                continue;
            }
            for total in calls.total.values().filter(|total| total.all.bytes > 0) {
                let by_kind = processes.entry(pid).or_default();
                let mut named = 0_u64;
                for (ident, figures) in total.files.iter() {
                    let kind = self.finish.name(ident).map_or(FileKind::Other, |name| name.kind);
                    let [disk, net, other] = &mut *by_kind;
                    let sum = match kind {
                        FileKind::Regular => disk,
                        FileKind::Socket => net,
                        FileKind::Pipe | FileKind::Other => other,
                    };
                    *sum = sum.saturating_add(figures.bytes);
                    named = named.saturating_add(figures.bytes);
                    let file = files.entry(self.finish.file_name(ident)).or_default();
                    file.0 = file.0.saturating_add(figures.bytes);
                    file.1 = file.1.saturating_add(figures.calls);
                }
                let [_, _, other] = by_kind;
                *other = other.saturating_add(total.all.bytes.saturating_sub(named));
            }
        }
        vec![
            self.per_process(processes),
            self.per_file(files),
            self.block_per_thread(),
            self.disk_latencies(),
        ]
    }

    fn per_process(&self, processes: BTreeMap<Pid, [u64; 3]>) -> Table {
        let mut rows: Vec<_> = processes
            .into_iter()
            .map(|(pid, bytes)| (bytes.iter().sum::<u64>(), pid, bytes))
            .collect();
        rows.sort_by_key(|(all, pid, _)| (Reverse(*all), *pid));
        let rows = rows.into_iter().map(|(all, pid, bytes)| {
            let comm = self.finish.process_comm(pid);
            let process = Cell::Process { tid: None, pid: Some(pid), comm };
            [process, Cell::bytes(all)].into_iter().chain(bytes.map(Cell::bytes)).collect()
        });
        self.table(&PER_PROCESS, rows.collect())
    }

    fn per_file(&self, files: BTreeMap<Arc<str>, (u64, u64)>) -> Table {
        let mut rows: Vec<_> = files.into_iter().collect();
        rows.sort_by(|(one, a), (other, b)| b.0.cmp(&a.0).then_with(|| one.cmp(other)));
        let rows = rows.into_iter().map(|(name, (bytes, calls))| {
            vec![Cell::Path(name), Cell::bytes(bytes), Cell::count(calls)]
        });
        self.table(&PER_FILE, rows.collect())
    }

    fn block_per_thread(&self) -> Table {
        let threads = self.summary.folds.disks.threads.iter();
        let mut rows: Vec<_> = threads.filter(|(tid, _)| self.wants(**tid)).collect();
        rows.sort_by_key(|(tid, (read, written))| (Reverse(read.saturating_add(*written)), **tid));
        let rows = rows.into_iter().map(|(tid, (read, written))| {
            vec![self.thread(*tid), Cell::bytes(*read), Cell::bytes(*written)]
        });
        self.table(&BLOCK_PER_THREAD, rows.collect())
    }
}

fn disk(disks: &Disks, dev: Dev) -> Cell {
    Cell::Disk { dev, name: disk_name(disks, dev) }
}

/// The name that a dump gave, else the kernel's `(major,minor)`.
fn disk_name(disks: &Disks, dev: Dev) -> Arc<str> {
    let number = || format!("({},{})", dev.0 >> 20, dev.0 & 0xf_ffff).into();
    disks.names.get(&dev).map_or_else(number, Arc::clone)
}

fn parts(disks: &Disks, dev: Dev) -> Arc<str> {
    let parts = disks.parts.get(&dev).into_iter().flatten();
    let names: Vec<Arc<str>> = parts.map(|part| disk_name(disks, *part)).collect();
    joined(&names)
}
