//! Rows for programs: spans one by one, threads, files.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Pid;

use super::Make;
use super::irq::irq;
use crate::call::{Calls, Figures, InFlight};
use crate::fact::Line;
use crate::fold::{DoneCall, Handler, Item, Latency, Request, Sure, Turn};
use crate::ident::Kind;
use crate::path::{Wait, Waker};
use crate::range::Log;
use crate::select::Logged;
use crate::spans::{FileRow, Span, SpanKind, ThreadRow};
use crate::table::Cell;

/// A file's name, and that of a call.
type PathAndCall = (Arc<str>, Arc<str>);

impl Make<'_> {
    pub(super) fn spans(&self, Log(items): &Log, give: &mut dyn FnMut(Span)) {
        items.calls.iter().for_each(|call| give(self.call_span(call)));
        items.turns.iter().for_each(|turn| give(turn_span(turn)));
        items.latencies.iter().for_each(|latency| give(latency_span(latency)));
        items.waits.iter().for_each(|wait| give(self.wait_span(wait)));
        items.interrupts.iter().for_each(|handler| give(self.handler_span(handler)));
        items.requests.iter().for_each(|request| give(self.request_span(request)));
    }

    pub(super) fn open_spans(&self, of: &[Logged], give: &mut dyn FnMut(Span)) {
        if of.contains(&Logged::Calls) {
            self.open_calls(give);
        }
        if of.contains(&Logged::Turns) {
            for (cpu, [first, last]) in self.summary.folds.cpu.edges() {
                let turn =
                    |tid| Span { tid: Some(tid), cpu: Some(cpu), ..Span::new(SpanKind::Running) };
                if let Some((end, tid)) = first {
                    give(Span { end: Some(end), ..turn(tid) });
                }
                if let Some((begin, tid)) = last {
                    give(Span { begin: Some(begin), ..turn(tid) });
                }
            }
        }
        if of.contains(&Logged::Latencies) {
            for (tid, thread) in self.summary.threads.iter() {
                if let Some(wake) = thread.counted.latencies.pending() {
                    let (begin, tid) = (Some(wake.at), Some(*tid));
                    give(Span { begin, tid, waker: wake.by, ..Span::new(SpanKind::Waiting) });
                }
            }
        }
        if of.contains(&Logged::Waits) {
            for (tid, begin, class) in self.summary.paths.asleep() {
                let name = Some(self.finish.class(class).word().into());
                let (begin, tid) = (Some(begin), Some(tid));
                give(Span { name, begin, tid, ..Span::new(SpanKind::Blocked) });
            }
        }
    }

    fn open_calls(&self, give: &mut dyn FnMut(Span)) {
        for (tid, thread) in self.summary.threads.iter() {
            let InFlight::Call(call) = &thread.call else { continue };
            let path = call.file.as_ref().map(|file| self.finish.file_name(file));
            let (name, begin) = (Some(call.name.shown()), Some(call.at));
            let (tid, is_uncertain) = (Some(*tid), call.is_uncertain);
            let call = Span { name, begin, is_uncertain, tid, ..Span::new(SpanKind::Syscall) };
            give(Span { path, ..call });
        }
    }

    fn call_span(&self, call: &DoneCall) -> Span {
        let is_begun = call.sure != Sure::Unbegun;
        Span {
            name: Some(call.name.shown()).filter(|name| !name.is_empty()),
            begin: Some(call.begin).filter(|_| is_begun),
            end: Some(call.end),
            is_uncertain: call.sure == Sure::Uncertain,
            tid: Some(call.tid),
            cpu: call.cpu,
            ret: Some(call.ret),
            fd: call.descriptor(),
            path: call.file.as_ref().map(|file| self.finish.file_name(file)),
            bytes: Some(call.moved()),
            ..Span::new(SpanKind::Syscall)
        }
    }

    fn wait_span(&self, wait: &Wait) -> Span {
        let (waker, line) = match wait.waker {
            Waker::Thread(tid) | Waker::LeftHandler(_, Some(tid)) => (Some(tid), None),
            Waker::Handler(line) => (None, Some(line)),
            Waker::LeftHandler(_, None) | Waker::Unknown => (None, None),
        };
        Span {
            name: Some(self.finish.class(&wait.class).word().into()),
            begin: Some(wait.begin),
            end: Some(wait.end),
            tid: Some(wait.tid),
            waker,
            line,
            ..Span::new(SpanKind::Blocked)
        }
    }

    fn handler_span(&self, handler: &Handler) -> Span {
        let kind = match handler.line {
            Line::Hard(_) => SpanKind::Irq,
            Line::Soft(_) => SpanKind::Softirq,
        };
        let name = match irq(&self.summary.folds.irqs, handler.line) {
            Cell::Irq { name, .. } => Some(name).filter(|name| !name.is_empty()),
            _ => None,
        };
        Span {
            name,
            begin: Some(handler.begin()),
            end: Some(handler.end),
            cpu: Some(handler.cpu),
            line: Some(handler.line),
            raised: handler.entry.raised,
            ..Span::new(kind)
        }
    }

    fn request_span(&self, request: &Request) -> Span {
        let device = super::disk::disk_name(&self.summary.folds.disks, request.dev);
        Span {
            name: Some(request.issue.op.word().into()),
            begin: Some(request.issue.at),
            end: Some(request.end),
            tid: request.issue.tid,
            bytes: request.bytes(),
            device: Some((request.dev, device)),
            sector: Some(request.sector),
            ..Span::new(SpanKind::Disk)
        }
    }

    pub(super) fn threads(&self, give: &mut dyn FnMut(ThreadRow)) {
        for life in self.closed().lives {
            let cpu = life.counted.cpu.unwrap_or_default();
            let latencies = life.counted.latencies.all;
            let (waits, blocked_ns) =
                life.waits.causes.values().fold((0, 0_u64), |(count, sum), row| {
                    (count + row.ns.count, sum.saturating_add(row.ns.sum))
                });
            let (mut calls, mut calls_ns, mut errors, mut uncertain_calls) = (0, 0_u64, 0, 0);
            for (_, row) in life.counted.calls.rows.iter() {
                calls += row.ns.count;
                calls_ns = calls_ns.saturating_add(row.ns.sum);
                errors += row.errors.values().sum::<u64>();
                uncertain_calls += row.uncertain;
            }
            give(ThreadRow {
                tid: life.tid,
                pid: life.pid,
                comm: life.name(),
                running_ns: cpu.ns,
                migrations: cpu.migrations,
                latencies: latencies.count,
                waiting_ns: latencies.sum,
                waits,
                blocked_ns,
                calls,
                calls_ns,
                errors,
                uncertain_calls,
            });
        }
    }

    pub(super) fn files(&self, give: &mut dyn FnMut(FileRow)) {
        let mut by_process: BTreeMap<Pid, Vec<&Calls>> = BTreeMap::new();
        for (owner, calls) in self.summary.processes.iter() {
            by_process.entry(self.finish.process(*owner)).or_default().push(calls);
        }
        for (pid, all) in by_process {
            let mut rows: BTreeMap<PathAndCall, (Option<Kind>, Figures)> = BTreeMap::new();
            for (name, total) in all.into_iter().flat_map(|calls| calls.total.iter()) {
                for (ident, figures) in total.files.iter() {
                    let kind = self.finish.name(ident).map(|name| name.kind);
                    let key = (self.finish.file_name(ident), name.shown());
                    let (_, sum) = rows.entry(key).or_insert((kind, Figures::default()));
                    sum.add(*figures);
                }
            }
            let comm = self.finish.process_comm(pid);
            for ((path, syscall), (kind, Figures { calls, ns, bytes, errors })) in rows {
                let (comm, kind) = (Arc::clone(&comm), kind.map(word));
                give(FileRow { pid, comm, path, kind, syscall, calls, ns, bytes, errors });
            }
        }
    }
}

fn turn_span(turn: &Turn) -> Span {
    Span {
        begin: Some(turn.begin),
        end: Some(turn.end),
        tid: Some(turn.tid),
        cpu: Some(turn.cpu),
        ..Span::new(SpanKind::Running)
    }
}

fn latency_span(latency: &Latency) -> Span {
    Span {
        begin: Some(latency.begin()),
        end: Some(latency.switch),
        tid: Some(latency.tid),
        cpu: Some(latency.cpu),
        waker: latency.wake.by,
        ..Span::new(SpanKind::Waiting)
    }
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Socket => "socket",
        Kind::Pipe => "pipe",
        Kind::Other => "other",
    }
}
