//! Calls by what they do to a file.

use std::collections::BTreeMap;

use super::{
    Make, P50, P95, P99, column, duration, frequencies, log, moments, number, percentiles,
};
use crate::fold::{DoneCall, KEPT, Lengths, rank};
use crate::operation::Operation;
use crate::table::{Cell, Class, Kind, Table};

pub(super) const LATENCY: &Class = &Class {
    name: "io-latency",
    title: "Operations on files",
    columns: &[
        column("operation", "Operation", Kind::Text, None),
        number("count", "Calls", "calls"),
        duration("min", "Min"),
        duration("avg", "Avg"),
        duration("max", "Max"),
        duration("stdev", "Stdev"),
        duration("total", "Total"),
        P50,
        P95,
        P99,
    ],
};

const fn longest(name: &'static str, title: &'static str) -> Class {
    Class { name, title, columns: log::CALL }
}

pub(super) const OPEN: &Class = &longest("io-latency-top-open", "Longest calls that open files");
pub(super) const READ: &Class = &longest("io-latency-top-read", "Longest calls that read");
pub(super) const WRITE: &Class = &longest("io-latency-top-write", "Longest calls that write");
pub(super) const SYNC: &Class = &longest("io-latency-top-sync", "Longest calls that sync");

pub(super) const LENGTHS: &Class = &Class {
    name: "io-latency-freq",
    title: "Operations on files by length",
    columns: &[
        column("operation", "Operation", Kind::Text, None),
        duration("from", "From"),
        duration("to", "To"),
        number("count", "Calls", "calls"),
    ],
};

/// What the longest calls are listed by, with the operations that belong there.
const LONGEST: [(&Class, &[Operation]); 4] = [
    (OPEN, &[Operation::Open]),
    (READ, &[Operation::Read, Operation::ReadWrite]),
    (WRITE, &[Operation::Write, Operation::ReadWrite]),
    (SYNC, &[Operation::Sync]),
];

impl Make<'_> {
    /// Of all threads that were counted.
    pub(super) fn operation_lengths(&self) -> Table {
        let rows =
            self.by_operation().into_iter().flat_map(|(operation, Lengths { lengths, .. })| {
                let rows: Vec<Vec<Cell>> = frequencies(&lengths)
                    .map(|cells| {
                        [Cell::Text(operation.word().into())].into_iter().chain(cells).collect()
                    })
                    .collect();
                rows
            });
        self.table(LENGTHS, rows.collect())
    }

    fn by_operation(&self) -> BTreeMap<Operation, Lengths> {
        let calls = &self.summary.folds.calls;
        let mut all: BTreeMap<Operation, Lengths> = BTreeMap::new();
        for life in self.closed().lives {
            for (name, row) in life.counted.calls.rows.iter() {
                if let Some(operation) = Operation::of(name.text()) {
                    all.entry(operation).or_default().ns.append(&row.ns);
                }
            }
        }
        for (name, lengths) in calls.lengths.iter() {
            if let Some(operation) = Operation::of(name.text()) {
                all.entry(operation).or_default().lengths.append(lengths);
            }
        }
        if calls.duplicates.ns.count > 0 {
            all.entry(Operation::Open).or_default().append(&calls.duplicates);
        }
        all
    }

    pub(super) fn operations(&self) -> Table {
        let all = self.by_operation();
        let rows = all.iter().map(|(operation, lengths)| {
            let Lengths { ns, lengths } = lengths;
            let mut cells = vec![Cell::Text(operation.word().into())];
            cells.extend(moments(ns));
            cells.push(Cell::ns(ns.sum));
            cells.extend(self.if_all(percentiles(lengths)));
            cells
        });
        self.table(LATENCY, rows.collect())
    }

    pub(super) fn longest_calls(&self) -> impl Iterator<Item = Table> {
        let calls = &self.summary.folds.calls;
        LONGEST.into_iter().map(|(class, operations)| {
            let of_these = calls.longest.iter().filter(|(of, _)| operations.contains(of));
            let mut longest: Vec<&DoneCall> =
                of_these.flat_map(|(_, longest)| longest.iter()).collect();
            longest.sort_by(|one, other| rank(*one, *other));
            longest.truncate(KEPT);
            longest.retain(|call| self.wants(call.tid));
            self.table(class, longest.into_iter().map(|call| self.call(call)).collect())
        })
    }
}
