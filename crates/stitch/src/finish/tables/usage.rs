//! Bytes: by process and file that calls moved them for, by thread that issued block requests, by network interface.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Pid, Tid};

use super::super::connections::by_end;
use super::{Make, column, disk, number};
use crate::call::Figures;
use crate::ident::Kind as FileKind;
use crate::operation::Operation;
use crate::table::{Cell, Class, Column, Kind, Table};

const PROCESS: Column = column("process", "Process", Kind::Process, None);
const READ: Column = column("read", "Read", Kind::Size, None);
const WRITTEN: Column = column("written", "Written", Kind::Size, None);

const PER_PROCESS: Class = Class {
    name: "io-per-process",
    title: "Bytes that calls moved, by process",
    columns: &[
        PROCESS,
        column("size", "All", Kind::Size, None),
        column("disk", "Disk", Kind::Size, None),
        column("net", "Network", Kind::Size, None),
        column("other", "Other", Kind::Size, None),
        READ,
        WRITTEN,
    ],
};

const PER_FILE: Class = Class {
    name: "io-per-file",
    title: "Bytes that calls moved, by file",
    columns: &[
        column("path", "File", Kind::Path, None),
        column("size", "Size", Kind::Size, None),
        number("count", "Calls", "calls"),
        READ,
        WRITTEN,
    ],
};

const BLOCK_PER_THREAD: Class = Class {
    name: "block-per-thread",
    title: "Bytes of block device requests, by thread that issued them",
    columns: &[PROCESS, READ, WRITTEN],
};

const PER_INTERFACE: Class = Class {
    name: "net-per-interface",
    title: "Packets by network interface",
    columns: &[
        column("interface", "Interface", Kind::Interface, None),
        column("received", "Received", Kind::Size, None),
        column("sent", "Sent", Kind::Size, None),
        number("packets_received", "Packets in", "packets"),
        number("packets_sent", "Packets out", "packets"),
    ],
};

pub(super) const USAGE: &[&Class] =
    &[&PER_PROCESS, &PER_FILE, &BLOCK_PER_THREAD, &disk::LATENCY, &PER_INTERFACE];

/// Bytes that calls moved.
#[derive(Default)]
struct Moved {
    all: u64,
    calls: u64,
    disk: u64,
    net: u64,
    read: u64,
    written: u64,
}

impl Moved {
    fn append(&mut self, more: Self) {
        let Self { all, calls, disk, net, read, written } = more;
        for (sum, more) in [
            (&mut self.all, all),
            (&mut self.calls, calls),
            (&mut self.disk, disk),
            (&mut self.net, net),
            (&mut self.read, read),
            (&mut self.written, written),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    fn add(&mut self, of: Option<Operation>, kind: FileKind, figures: &Figures) {
        let bytes = figures.bytes;
        let add = |sum: &mut u64| *sum = sum.saturating_add(bytes);
        add(&mut self.all);
        self.calls = self.calls.saturating_add(figures.calls);
        match kind {
            FileKind::Regular => add(&mut self.disk),
            FileKind::Socket => add(&mut self.net),
            FileKind::Pipe | FileKind::Other => {}
        }
        if matches!(of, Some(Operation::Read | Operation::ReadWrite)) {
            add(&mut self.read);
        }
        if matches!(of, Some(Operation::Write | Operation::ReadWrite)) {
            add(&mut self.written);
        }
    }
}

impl Make<'_> {
    pub(super) fn iousagetop(&self) -> Vec<Table> {
        let mut processes: BTreeMap<Pid, Moved> = BTreeMap::new();
        let mut files: BTreeMap<Arc<str>, Moved> = BTreeMap::new();
        for (owner, calls) in self.summary.processes.iter() {
            let pid = self.finish.process(*owner);
            if !self.wants(Tid::new(pid.get())) {
                continue;
            }
            for (name, total) in calls.total.iter().filter(|(_, total)| total.all.bytes > 0) {
                let of = Operation::of(name.text());
                let process = processes.entry(pid).or_default();
                let mut nameless = total.all;
                for (ident, figures) in total.files.iter() {
                    let kind = self.finish.name(ident).map_or(FileKind::Other, |name| name.kind);
                    process.add(of, kind, figures);
                    let file = files.entry(self.finish.file_name(ident)).or_default();
                    file.add(of, kind, figures);
                    nameless.bytes = nameless.bytes.saturating_sub(figures.bytes);
                }
                process.add(of, FileKind::Other, &nameless);
            }
        }
        vec![
            self.per_process(processes),
            self.per_file(files),
            self.block_per_thread(),
            self.disk_latencies(),
            self.per_interface(),
        ]
    }

    fn per_process(&self, processes: BTreeMap<Pid, Moved>) -> Table {
        let mut rows: Vec<_> = processes.into_iter().collect();
        rows.sort_by_key(|(pid, moved)| (Reverse(moved.all), *pid));
        let rows = rows.into_iter().map(|(pid, moved)| {
            let comm = self.finish.process_comm(pid);
            let Moved { all, disk, net, read, written, .. } = moved;
            let other = all.saturating_sub(disk).saturating_sub(net);
            let bytes = [all, disk, net, other, read, written].map(Cell::bytes);
            let process = Cell::Process { tid: None, pid: Some(pid), comm };
            [process].into_iter().chain(bytes).collect()
        });
        self.table(&PER_PROCESS, rows.collect())
    }

    fn per_file(&self, files: BTreeMap<Arc<str>, Moved>) -> Table {
        let mut rows: Vec<_> = by_end(files, Moved::append).into_iter().collect();
        rows.sort_by(|(one, a), (other, b)| b.all.cmp(&a.all).then_with(|| one.cmp(other)));
        let rows = rows.into_iter().map(|(name, moved)| {
            let Moved { all, calls, read, written, .. } = moved;
            let bytes = [read, written].map(Cell::bytes);
            let first = [Cell::Path(name), Cell::bytes(all), Cell::count(calls)];
            first.into_iter().chain(bytes).collect()
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

    fn per_interface(&self) -> Table {
        let interfaces = &self.summary.folds.interfaces.rows;
        let mut rows: Vec<_> = interfaces.iter().collect();
        rows.sort_by_key(|(name, row)| (Reverse(row.bytes()), Arc::clone(name)));
        let rows = rows.into_iter().map(|(name, row)| {
            vec![
                Cell::Interface(Arc::clone(name)),
                Cell::bytes(row.received.bytes),
                Cell::bytes(row.sent.bytes),
                Cell::count(row.received.packets),
                Cell::count(row.sent.packets),
            ]
        });
        self.table(&PER_INTERFACE, rows.collect())
    }
}
