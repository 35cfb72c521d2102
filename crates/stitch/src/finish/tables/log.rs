//! Everything that ended, a row each, by its end.

use std::sync::Arc;

use super::{Make, column, duration};
use super::{disk, irq, sched};
use crate::fold::{DoneCall, Handler, Item, Sure, Turn};
use crate::path::Wait;
use crate::range::Log;
use crate::select::Logged;
use crate::table::{Cell, Class, Column, Kind, Table};

const IRQ_LOG: Class = Class {
    name: "irq-log",
    title: "Interrupts",
    columns: &[
        column("begin", "Begin", Kind::Time, None),
        column("end", "End", Kind::Time, None),
        duration("duration", "Duration"),
        column("cpu", "CPU", Kind::Cpu, None),
        irq::LINE,
        column("raised", "Raised at", Kind::Time, None),
    ],
};

const LATENCY_LOG: Class =
    Class { name: "sched-latency-log", title: "Scheduling latencies", columns: sched::LATENCY };

pub(super) const CALL: &[Column] = &[
    column("begin", "Begin", Kind::Time, None),
    column("end", "End", Kind::Time, None),
    duration("duration", "Duration"),
    column("syscall", "System call", Kind::Syscall, None),
    column("size", "Bytes", Kind::Size, None),
    column("process", "Process", Kind::Process, None),
    column("fd", "Descriptor", Kind::Fd, None),
    column("returned", "Returned", Kind::Text, None),
    column("path", "File", Kind::Path, None),
];

const CALL_LOG: Class = Class { name: "syscall-log", title: "System calls", columns: CALL };

const REQUEST_LOG: Class =
    Class { name: "disk-log", title: "Requests to block devices", columns: disk::REQUEST };

const TURN_LOG: Class = Class {
    name: "cpu-log",
    title: "Who had the CPUs",
    columns: &[
        column("begin", "Begin", Kind::Time, None),
        column("end", "End", Kind::Time, None),
        duration("duration", "Duration"),
        column("cpu", "CPU", Kind::Cpu, None),
        column("thread", "Thread", Kind::Process, None),
    ],
};

const WAIT_LOG: Class = Class {
    name: "blocked-log",
    title: "Waits",
    columns: &[
        column("begin", "Begin", Kind::Time, None),
        column("end", "End", Kind::Time, None),
        duration("duration", "Duration"),
        column("cause", "Cause", Kind::Text, None),
        column("thread", "Thread", Kind::Process, None),
        column("waker", "Ended by", Kind::Process, None),
        column("interrupt", "Ended by interrupt", Kind::Irq, None),
    ],
};

pub(super) const INTERRUPTS: &[&Class] = &[&IRQ_LOG];
pub(super) const LATENCIES: &[&Class] = &[&LATENCY_LOG];
pub(super) const CALLS: &[&Class] = &[&CALL_LOG];
pub(super) const REQUESTS: &[&Class] = &[&REQUEST_LOG];

impl Make<'_> {
    pub(super) fn log(&self, of: Logged, Log(items): &Log) -> Table {
        match of {
            Logged::Interrupts => {
                let row = |handler: &Handler| self.handler(handler);
                self.rows_of(&IRQ_LOG, &items.interrupts, |_| true, row)
            }
            Logged::Latencies => self.rows_of(
                &LATENCY_LOG,
                &items.latencies,
                |latency| self.wants(latency.tid) && self.wants_cpu(latency.cpu),
                |latency| self.latency(latency),
            ),
            Logged::Calls | Logged::Operations => self.rows_of(
                &CALL_LOG,
                &items.calls,
                |call| call.sure == Sure::Certain && self.wants(call.tid),
                |call| self.call(call),
            ),
            Logged::Requests => self.rows_of(
                &REQUEST_LOG,
                &items.requests,
                |request| request.tid().is_some_and(|tid| self.wants(tid)),
                |request| self.request(request),
            ),
            Logged::Turns => {
                let wants = |turn: &Turn| self.wants(turn.tid) && self.wants_cpu(turn.cpu);
                self.rows_of(&TURN_LOG, &items.turns, wants, |turn| self.turn(turn))
            }
            Logged::Waits => {
                let wants = |wait: &Wait| self.wants(wait.tid);
                self.rows_of(&WAIT_LOG, &items.waits, wants, |wait| self.wait(wait))
            }
        }
    }

    fn rows_of<T>(
        &self,
        class: &'static Class,
        items: &[T],
        wants: impl Fn(&T) -> bool,
        row: impl Fn(&T) -> Vec<Cell>,
    ) -> Table {
        self.table(class, items.iter().filter(|item| wants(item)).map(row).collect())
    }

    fn handler(&self, handler: &Handler) -> Vec<Cell> {
        vec![
            Cell::At(handler.begin()),
            Cell::At(handler.end),
            Cell::ns(handler.ns()),
            Cell::Cpu(handler.cpu),
            irq::irq(&self.summary.folds.irqs, handler.line),
            handler.entry.raised.map_or(Cell::Unknown, Cell::At),
        ]
    }

    fn turn(&self, turn: &Turn) -> Vec<Cell> {
        vec![
            Cell::At(turn.begin),
            Cell::At(turn.end),
            Cell::ns(turn.ns()),
            Cell::Cpu(turn.cpu),
            self.thread(turn.tid),
        ]
    }

    fn wait(&self, wait: &Wait) -> Vec<Cell> {
        let [waker, interrupt] = self.waker(wait.waker);
        vec![
            Cell::At(wait.begin),
            Cell::At(wait.end),
            Cell::ns(wait.ns()),
            Cell::Text(self.finish.class(&wait.class).word().into()),
            self.thread(wait.tid),
            waker,
            interrupt,
        ]
    }

    pub(super) fn call(&self, call: &DoneCall) -> Vec<Cell> {
        vec![
            Cell::At(call.begin),
            Cell::At(call.end),
            Cell::ns(call.ns()),
            Cell::Syscall(call.name.shown()),
            Cell::bytes(call.moved()),
            self.thread(call.tid),
            call.descriptor().map_or(Cell::Unknown, Cell::Fd),
            Cell::Text(returned(call.ret)),
            call.file
                .as_ref()
                .map_or(Cell::Unknown, |file| Cell::Path(self.finish.file_name(file))),
        ]
    }
}

/// What a call returned: a number, or the name of what went wrong.
fn returned(ret: i64) -> Arc<str> {
    let failed = u16::try_from(ret.unsigned_abs()).ok().filter(|_| ret < 0);
    let name = failed.and_then(model::errno_name);
    name.map_or_else(|| ret.to_string().into(), Into::into)
}
