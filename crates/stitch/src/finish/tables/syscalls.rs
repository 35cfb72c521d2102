//! System calls by thread, by name, and in total.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Make, P50, P95, P99, column, duration, moments, number, percentiles};
use crate::fold::CallRow;
use crate::name::CallName;
use crate::table::{Bound, Cell, Class, Column, Kind, Table};

const BYTES: Column = column("bytes", "Bytes", Kind::Size, None);
const CALL: Column = column("syscall", "System call", Kind::Syscall, None);
const COUNT: Column = number("count", "Calls", "calls");
const MIN: Column = duration("min", "Min");
const MEAN: Column = duration("avg", "Avg");
const MAX: Column = duration("max", "Max");
const DEVIATION: Column = duration("stdev", "Stdev");
const TOTAL_NS: Column = duration("total", "Total");
const PROCESS: Column = column("process", "Process", Kind::Process, None);
const RESTARTED: Column = number("restarted", "Restarted", "calls");

const PER_THREAD: Class = Class {
    name: "syscalls-per-thread",
    title: "System calls by thread",
    columns: &[
        PROCESS,
        CALL,
        COUNT,
        MIN,
        MEAN,
        MAX,
        DEVIATION,
        column("returns", "Return values", Kind::Text, None),
        TOTAL_NS,
        BYTES,
        RESTARTED,
    ],
};

const PER_CALL: Class = Class {
    name: "syscalls-per-call",
    title: "System calls by name",
    columns: &[
        CALL,
        COUNT,
        MIN,
        MEAN,
        MAX,
        DEVIATION,
        TOTAL_NS,
        P50,
        P95,
        P99,
        BYTES,
        number("errors", "Errors", "calls"),
        RESTARTED,
    ],
};

const TOTAL: Class = Class {
    name: "syscalls-total",
    title: "System calls of threads in total",
    columns: &[PROCESS, COUNT, TOTAL_NS],
};

pub(super) const CLASSES: &[&Class] = &[&PER_THREAD, &PER_CALL, &TOTAL];

impl Make<'_> {
    pub(super) fn syscallstats(&self) -> Vec<Table> {
        let lives = self.closed().lives;
        let mut per_thread = Vec::new();
        let mut per_call: BTreeMap<&str, (&CallName, CallRow, u64)> = BTreeMap::new();
        let mut totals = Vec::new();
        for (place, life) in lives.iter().enumerate() {
            let (names, open) = (&life.counted.calls.rows, life.open.as_ref());
            if names.is_empty() && open.is_none() {
                continue;
            }
            let without_row = open.filter(|name| !names.contains_key(name));
            for name in names.keys().chain(without_row) {
                let row = names.get(name).cloned().unwrap_or_default();
                let more = row.uncertain.saturating_add(u64::from(open == Some(name)));
                per_thread.push((place, life, name, row.clone(), more));
                let none = (name, CallRow::default(), 0);
                let (_, sum, open) = per_call.entry(name.text()).or_insert(none);
                sum.append(&row);
                *open += more;
            }
            let count = names.values().map(|row| row.ns.count).sum::<u64>();
            let ns = names.values().map(|row| row.ns.sum).sum::<u64>();
            let uncertain = names.values().map(|row| row.uncertain).sum::<u64>();
            let more = uncertain.saturating_add(u64::from(open.is_some()));
            totals.push((count, life, ns, more));
        }
        totals.sort_by_key(|(count, life, ns, more)| (Reverse(*count), life.order(), *ns, *more));
        per_thread
            .sort_by_key(|(place, _, name, row, _)| (*place, Reverse(row.ns.count), name.shown()));
        let per_thread = per_thread.into_iter().map(|(_, life, name, row, open)| {
            let mut cells = vec![life.cell(), Cell::Syscall(name.shown())];
            cells.extend(figures(&row, open));
            cells.push(Cell::Text(returns(&row)));
            cells.push(total_ns(row.ns.sum, open));
            cells.extend([Cell::bytes(row.bytes), Cell::count(row.restarted)]);
            cells
        });
        let totals = totals.into_iter().map(|(count, life, ns, open)| {
            vec![life.cell(), counted(count, open), total_ns(ns, open)]
        });
        vec![
            self.table(&PER_THREAD, per_thread.collect()),
            self.table(&PER_CALL, self.by_name(per_call)),
            self.table(&TOTAL, totals.collect()),
        ]
    }

    fn by_name(&self, rows: BTreeMap<&str, (&CallName, CallRow, u64)>) -> Vec<Vec<Cell>> {
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|(_, row, _)| Reverse(row.ns.sum));
        let row = |(name, row, open): (&CallName, CallRow, u64)| {
            let mut cells = vec![Cell::Syscall(name.shown())];
            cells.extend(figures(&row, open));
            cells.push(total_ns(row.ns.sum, open));
            let lengths = self.summary.folds.calls.lengths.get(name);
            let none = [Cell::Unknown, Cell::Unknown, Cell::Unknown];
            cells.extend(self.if_all(lengths.map_or(none, percentiles)));
            cells.push(Cell::bytes(row.bytes));
            cells.push(Cell::count(row.errors.values().sum()));
            cells.push(Cell::count(row.restarted));
            cells
        };
        rows.into_iter().map(row).collect()
    }
}

/// The moments of calls, of which `open` more have begun: they may count, and may take any time.
fn figures(row: &CallRow, open: u64) -> [Cell; 5] {
    let mut cells = moments(&row.ns);
    if let Some(count) = cells.first_mut() {
        *count = counted(row.ns.count, open);
    }
    cells
}

fn counted(count: u64, open: u64) -> Cell {
    Cell::Count(Bound { low: count, high: count.checked_add(open) })
}

fn total_ns(ns: u64, open: u64) -> Cell {
    Cell::Ns(Bound { low: ns, high: (open == 0).then_some(ns) })
}

/// How calls returned: `success 12, ENOENT 3`.
fn returns(row: &CallRow) -> Arc<str> {
    let failed: u64 = row.errors.values().sum();
    let success = row.ns.count.saturating_sub(failed).saturating_sub(row.restarted);
    let mut text = String::new();
    let mut add = |name: &str, count: u64| {
        let comma = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{comma}{name} {count}"));
    };
    if success > 0 {
        add("success", success);
    }
    for (number, count) in &row.errors {
        match model::errno_name(*number) {
            Some(name) => add(name, *count),
            None => add(&format!("error {number}"), *count),
        }
    }
    if row.restarted > 0 {
        add("restarted", row.restarted);
    }
    text.into()
}
