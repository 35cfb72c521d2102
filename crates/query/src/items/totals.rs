//! Threads and files from the summary of everything, and periods.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use mapper::read_periods;
use model::{Pid, Tid};
use stitch::table::Cell;
use stitch::{Question, Tables};

use super::wanted::Wanted;
use super::{Items, Name};
use crate::error::Error;
use crate::rows::{Type, Value};
use crate::source::Lost;
use crate::stream::{Find, Sink};

pub(super) const THREADS: &[(&str, Type)] = &[
    ("tid", Type::Int),
    ("pid", Type::Int),
    ("comm", Type::Text),
    ("running", Type::Int),
    ("migrations", Type::Int),
    ("latencies", Type::Int),
    ("waiting", Type::Int),
    ("waits", Type::Int),
    ("blocked", Type::Int),
    ("calls", Type::Int),
    ("in_calls", Type::Int),
    ("errors", Type::Int),
    ("uncertain_calls", Type::Int),
];

pub(super) const FILES: &[(&str, Type)] = &[
    ("pid", Type::Int),
    ("comm", Type::Text),
    ("path", Type::Text),
    ("kind", Type::Text),
    ("syscall", Type::Text),
    ("calls", Type::Int),
    ("duration", Type::Int),
    ("bytes", Type::Int),
    ("errors", Type::Int),
];

pub(super) const PERIODS: &[(&str, Type)] = &[
    ("begin", Type::Time),
    ("end", Type::Time),
    ("duration", Type::Int),
    ("name", Type::Text),
    ("parent_begin", Type::Time),
    ("begin_captures", Type::Text),
    ("end_captures", Type::Text),
];

/// Finds what threads or files come to.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) items: Arc<Items>,
    pub(super) name: Name,
    pub(super) projection: Vec<usize>,
}

impl Find for Totals {
    fn find(&self, _: usize, sink: &mut Sink) -> Result<(), Error> {
        let all = self.items.all()?;
        let question = Question::default();
        let tables = Tables::new(&all, &question);
        let mut push = |values: &[Value<'_>]| projected(sink, &self.projection, values);
        if self.name == Name::Threads {
            tables.threads(&mut |row| {
                push(&[
                    Value::int(row.tid.map(Tid::get)),
                    Value::int(row.pid.map(Pid::get)),
                    Value::text(Some(&row.comm)),
                    Value::int(Some(row.running_ns)),
                    Value::int(Some(row.migrations)),
                    Value::int(Some(row.latencies)),
                    Value::int(Some(row.waiting_ns)),
                    Value::int(Some(row.waits)),
                    Value::int(Some(row.blocked_ns)),
                    Value::int(Some(row.calls)),
                    Value::int(Some(row.calls_ns)),
                    Value::int(Some(row.errors)),
                    Value::int(Some(row.uncertain_calls)),
                ])
            });
        } else {
            tables.files(&mut |row| {
                push(&[
                    Value::int(Some(row.pid.get())),
                    Value::text(Some(&row.comm)),
                    Value::text(Some(&row.path)),
                    Value::text(row.kind),
                    Value::text(Some(&row.syscall)),
                    Value::int(Some(row.calls)),
                    Value::int(Some(row.ns)),
                    Value::int(Some(row.bytes)),
                    Value::int(Some(row.errors)),
                ])
            });
        }
        Ok(())
    }

    fn explain(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

fn projected(sink: &mut Sink, projection: &[usize], values: &[Value<'_>]) {
    // There are as many as threads or files: leaving early saves nothing.
    let _enough = sink.push(projection.iter().filter_map(|at| values.get(*at).copied()));
}

/// Finds periods.
#[derive(Debug)]
pub(super) struct Periods {
    pub(super) items: Arc<Items>,
    pub(super) wanted: Wanted,
    pub(super) projection: Vec<usize>,
}

impl Find for Periods {
    fn find(&self, _: usize, sink: &mut Sink) -> Result<(), Error> {
        periods(&self.items, &self.wanted, &mut |period| {
            let Period { begin, end, duration, name, parent, captures: [first, last] } = *period;
            let values = [begin, end, duration, name, parent, first, last];
            sink.push(self.projection.iter().filter_map(|at| values.get(*at).copied()))
        })
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wanted.explain(f)
    }
}

/// One period.
pub(super) struct Period<'a> {
    pub(super) begin: Value<'a>,
    pub(super) end: Value<'a>,
    pub(super) duration: Value<'a>,
    pub(super) name: Value<'a>,
    /// When that of which it is a part began.
    parent: Value<'a>,
    /// What was noted of its begin and of its end.
    captures: [Value<'a>; 2],
}

/// Gives the periods that somebody defined, until `give` has enough.
pub(super) fn periods(
    items: &Items,
    wanted: &Wanted,
    give: &mut dyn FnMut(&Period<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let rules = items.periods.as_ref().ok_or(Error::NoPeriods)?;
    // Which periods there are depends on all that came before.
    let range = wanted.range(true);
    let found = read_periods(&items.paths, rules, range, wanted.ns, &mut |log| {
        for row in &log.rows {
            let [begin, end, duration, name, parent, first, last] = row.as_slice() else {
                continue;
            };
            let period = Period {
                begin: value(begin),
                end: value(end),
                duration: value(duration),
                name: value(name),
                parent: value(parent),
                captures: [value(first), value(last)],
            };
            give(&period)?;
        }
        ControlFlow::Continue(())
    })?;
    items.recordings.note_all(Lost::default(), &found.findings, 0);
    Ok(())
}

fn value(cell: &Cell) -> Value<'_> {
    match cell {
        Cell::At(at) => Value::Int(at.nanos()),
        Cell::Ns(ns) => Value::int(ns.certain()),
        Cell::Text(text) => Value::text(Some(text)),
        _ => Value::Null,
    }
}
