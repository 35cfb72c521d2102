//! The last step: a summary with nothing to its left and right becomes an answer.

mod connections;
mod path;
mod requests;
mod tables;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Pid, Tid, Timestamp};

use crate::answer::{
    Blocked, File, Loss, MAX_ROWS, PHASES_FORMAT, PathState, PathTotal, Phase, Phases, Process,
    Request, RequestCount, RequestPhase, SYSCALLS_FORMAT, Split, Syscall, Syscalls, WaitedFor,
};
use crate::call::{Calls, Class, ClassTerm, Figures, class_in};
use crate::ident::{Ident, Name};
use crate::keyed::Keyed;
use crate::path::{Ended, Walked};
use crate::spent::Times;
use crate::summary::{BETWEEN, Cover, Owner, Summary};

pub use path::{request_path, thread_path};
pub(crate) use tables::{
    P50, P95, P99, column, duration, frequencies, moments, number, percentiles,
};
pub use tables::{Question, Subject, Tables, tables};

const OTHER: &str = "(other)";

/// Where the time of requests went, by phase.
#[must_use]
pub fn phases(summary: &Summary) -> Phases {
    let finish = Finish::new(summary);
    let (loss, partial) = finish.loss();
    let mut phases: Vec<Phase> =
        summary.phases.iter().map(|(name, phase)| finish.phase(name, phase)).collect();
    phases.sort_by_key(|phase| (Reverse(phase.split.wall_ns), Arc::clone(&phase.name)));
    let paths: BTreeMap<Ended, Walked> =
        summary.paths.closed().requests.slowest.into_iter().collect();
    let request_list: Vec<Request> =
        summary.requests.slowest.iter().map(|request| finish.request(request, &paths)).collect();
    let listed = request_list.len() as u64;
    let complete = summary.requests.complete;
    let mut files = BTreeMap::new();
    for phase in summary.phases.values() {
        for total in phase.spent.calls.total.values() {
            finish.add_files(&total.files, &mut files);
        }
    }
    let (host, begin, end) = finish.cover();
    Phases {
        format: PHASES_FORMAT.into(),
        host,
        begin_ns: begin.nanos(),
        end_ns: end.nanos(),
        requests: RequestCount {
            complete,
            partial,
            wall_ns: summary.requests.wall_ns,
            listed,
            unlisted: complete.saturating_sub(listed),
        },
        durations: finish.durations(),
        timeline: finish.timeline(),
        phases,
        request_list,
        files: file_rows(files),
        loss,
    }
}

/// Complete system calls by process and name.
#[must_use]
pub fn syscalls(summary: &Summary) -> Syscalls {
    let finish = Finish::new(summary);
    let (loss, _) = finish.loss();
    let (host, begin, end) = finish.cover();
    let mut by_process: BTreeMap<Pid, Calls> = BTreeMap::new();
    for (owner, calls) in summary.processes.iter().filter(|(_, calls)| !calls.total.is_empty()) {
        by_process.entry(finish.process(*owner)).or_default().add(calls.clone());
    }
    let mut processes: Vec<Process> = by_process
        .iter()
        .map(|(pid, calls)| Process {
            pid: pid.get(),
            comm: finish.process_comm(*pid),
            syscalls: finish.syscalls(calls),
        })
        .collect();
    processes.sort_by_key(|process| {
        let calls: u64 = process.syscalls.iter().map(|call| call.calls).sum();
        (Reverse(calls), process.pid)
    });
    Syscalls {
        format: SYSCALLS_FORMAT.into(),
        host,
        begin_ns: begin.nanos(),
        end_ns: end.nanos(),
        processes,
        loss,
    }
}

/// The threads that have one of these command names when they or the recording end.
#[must_use]
pub fn threads_named(summary: &Summary, names: &[String]) -> Vec<Tid> {
    let is_wanted = |comm: &str| names.iter().any(|name| **name == *comm);
    let is_named = |comm: &Option<Arc<str>>| is_wanted(comm.as_deref().unwrap_or_default());
    let mut tids: BTreeSet<Tid> = BTreeSet::new();
    for (tid, thread) in summary.threads.iter() {
        let of_left = thread.left_life.as_ref().is_some_and(|life| is_named(&life.comm));
        if of_left || is_named(&thread.comm) {
            tids.insert(*tid);
        }
    }
    let lives = summary.lives.iter().filter(|life| is_named(&life.comm));
    tids.extend(lives.map(|life| life.tid));
    let folded = summary.lives.folded.iter().filter(|(name, _)| is_wanted(name));
    tids.extend(folded.flat_map(|(_, folded)| folded.numbers.iter()));
    tids.into_iter().collect()
}

/// What is missing from a summary or makes no sense in it.
#[must_use]
pub fn loss(summary: &Summary) -> Loss {
    Finish::new(summary).loss().0
}

struct Finish<'a> {
    summary: &'a Summary,
    names: BTreeMap<Ident, (Timestamp, Name)>,
    processes: BTreeMap<Pid, Tid>,
    /// The command name of the last life of each number.
    comms: BTreeMap<Tid, Arc<str>>,
}

impl<'a> Finish<'a> {
    fn new(summary: &'a Summary) -> Self {
        let mut names: BTreeMap<Ident, (Timestamp, Name)> = BTreeMap::new();
        for (ident, found) in &summary.names {
            let first = names.entry(ident.closed()).or_insert_with(|| found.clone());
            if found < first {
                *first = found.clone();
            }
        }
        let mut processes = BTreeMap::new();
        for (tid, pid) in summary.who.processes() {
            if summary.threads.get(&tid).is_some_and(|thread| thread.comm.is_some()) {
                processes.entry(pid).or_insert(tid);
            }
        }
        Self { summary, names, processes, comms: comms(summary) }
    }

    /// The process that calls are printed under.
    fn process(&self, owner: Owner) -> Pid {
        match owner {
            Owner::Process(pid) => pid,
            Owner::Thread(tid) => {
                let told = self.summary.who.process_before_words(tid);
                told.unwrap_or(Pid::new(tid.get()))
            }
        }
    }

    fn cover(&self) -> (Arc<str>, Timestamp, Timestamp) {
        let nothing = Timestamp::from_nanos(0);
        match &self.summary.cover {
            Some(Cover { host, begin, end }) => (Arc::clone(host), *begin, *end),
            None => ("".into(), nothing, nothing),
        }
    }

    /// What is missing, and how many requests are partial.
    fn loss(&self) -> (Loss, u64) {
        let mut count = self.summary.loss;
        let mut partial = self.summary.requests.abandoned;
        for thread in self.summary.threads.values() {
            let (open, outcome) = thread.stack.clone().closed();
            count.unmatched_ends += outcome.unmatched_ends;
            count.ends_without_request += outcome.ends_without_request;
            count.abandoned_phases += outcome.abandoned_phases;
            count.outside_requests += outcome.outside_requests;
            partial += outcome.abandoned_requests + open.open_requests();
        }
        let unbegun = self.summary.processes.values().map(Calls::closed_without_begin);
        let (calls_without_begin, bytes_without_begin) = unbegun
            .fold((0, 0), |(calls, bytes), (more, more_bytes)| (calls + more, bytes + more_bytes));
        let loss = Loss {
            events_discarded: count.events_discarded,
            packets_lost: count.packets_lost,
            gaps: count.gaps,
            unmatched_span_ends: count.unmatched_ends,
            abandoned_phases: count.abandoned_phases,
            phases_outside_requests: count.outside_requests,
            calls_without_begin,
            bytes_without_begin,
            uncertain_calls: self.summary.processes.values().map(Calls::uncertain).sum(),
            ring_operations: count.ring_operations,
            without_thread: count.without_thread,
            backward_times: count.backward,
        };
        (loss, partial.saturating_add(count.ends_without_request))
    }

    fn phase(&self, name: &Arc<str>, phase: &crate::spent::Phase) -> Phase {
        Phase {
            name: Arc::clone(name),
            spans: phase.spans,
            split: self.split(&phase.spent.times),
            waited_for: self.waited_for(&phase.spent.waited_for_ns),
            syscalls: self.syscalls(&phase.spent.calls),
        }
    }

    fn request(
        &self,
        request: &crate::requests::Request,
        paths: &BTreeMap<Ended, Walked>,
    ) -> Request {
        let mut phases = vec![RequestPhase {
            name: BETWEEN.into(),
            spans: 1,
            split: self.split(&request.body.own.times),
        }];
        let mut calls = request.body.own.calls.clone();
        for (name, phase) in &request.body.phases {
            let split = self.split(&phase.spent.times);
            phases.push(RequestPhase { name: Arc::clone(name), spans: phase.spans, split });
            calls.add(phase.spent.calls.clone());
        }
        phases.sort_by_key(|phase| (Reverse(phase.split.wall_ns), Arc::clone(&phase.name)));
        let mut split = Split::default();
        for phase in &phases {
            split.add(&phase.split);
        }
        split.wall_ns = request.wall_ns();
        let mut syscalls = self.syscalls(&calls);
        for call in &mut syscalls {
            call.files = None;
        }
        let walked = paths.get(&request.ended());
        let critical_path = walked.map(|walked| self.critical_path(walked, request.begin));
        let is_known = |total: &PathTotal| total.state != PathState::Unknown;
        let critical_path = critical_path.filter(|path| path.totals.iter().any(is_known));
        let pid = self.summary.who.process(request.tid);
        Request {
            id: request.request,
            name: Arc::clone(&request.name),
            process: self.process_comm(pid.unwrap_or(Pid::new(request.tid.get()))),
            tid: request.tid.get(),
            begin_ns: request.begin.nanos(),
            end_ns: request.end.nanos(),
            split,
            phases,
            syscalls,
            critical_path,
        }
    }

    fn split(&self, times: &Times) -> Split {
        let mut blocked = Blocked::default();
        for (class, ns) in &times.blocked_ns {
            let sum = match self.class(class) {
                Class::Disk => &mut blocked.disk,
                Class::Network => &mut blocked.network,
                Class::Lock => &mut blocked.lock,
                Class::Timer => &mut blocked.timer,
                Class::Pipe => &mut blocked.pipe,
                Class::Child => &mut blocked.child,
                Class::Other => &mut blocked.other,
            };
            *sum = sum.saturating_add(*ns);
        }
        Split {
            wall_ns: times.wall_ns(),
            running_ns: times.running_ns,
            waiting_ns: times.waiting_ns,
            blocked_ns: blocked,
            unknown_ns: times.unknown_ns,
        }
    }

    /// The class with nothing to the left: no call was in flight, and a file without a name is neither disk nor network.
    fn class(&self, class: &ClassTerm) -> Class {
        match class {
            ClassTerm::Known(class) => *class,
            ClassTerm::LeftCall(_, sleep) => match class_in(None, *sleep) {
                ClassTerm::Known(class) => class,
                ClassTerm::LeftCall(..) | ClassTerm::File(_) => Class::Other,
            },
            ClassTerm::File(ident) => {
                self.name(ident).map_or(Class::Other, |name| Class::of_kind(name.kind))
            }
        }
    }

    fn name(&self, ident: &Ident) -> Option<Name> {
        let ident = ident.closed();
        let learnt = || self.names.get(&ident).map(|(_, name)| name.clone());
        ident.name().cloned().or_else(learnt).or_else(|| ident.made_name().cloned())
    }

    fn file_name(&self, ident: &Ident) -> Arc<str> {
        let number = || ident.closed().number().map_or(-1, model::Fd::get);
        self.name(ident).map_or_else(|| format!("(fd {})", number()).into(), |name| name.text)
    }

    fn add_files(&self, files: &Keyed<Ident, Figures>, into: &mut BTreeMap<Arc<str>, Figures>) {
        for (ident, figures) in files.iter() {
            into.entry(self.file_name(ident)).or_default().add(*figures);
        }
    }

    fn syscalls(&self, calls: &Calls) -> Vec<Syscall> {
        let mut rows: Vec<Syscall> = calls
            .total
            .iter()
            .map(|(name, total)| {
                let mut files = BTreeMap::new();
                self.add_files(&total.files, &mut files);
                Syscall {
                    name: name.shown(),
                    calls: total.all.calls,
                    ns: total.all.ns,
                    bytes: total.all.bytes,
                    errors: total.all.errors,
                    uncertain: total.uncertain,
                    files: Some(file_rows(files)),
                }
            })
            .collect();
        rows.sort_by_key(|row| (Reverse(row.ns), Arc::clone(&row.name)));
        rows
    }

    fn waited_for(&self, waited_for_ns: &BTreeMap<Tid, u64>) -> Vec<WaitedFor> {
        let mut rows: Vec<WaitedFor> = waited_for_ns
            .iter()
            .map(|(tid, ns)| WaitedFor { comm: self.comm(*tid), tid: tid.get(), ns: *ns })
            .collect();
        rows.sort_by_key(|row| (Reverse(row.ns), row.tid));
        if rows.len() > MAX_ROWS {
            let ns = rows.drain(MAX_ROWS..).map(|row| row.ns).sum();
            rows.push(WaitedFor { comm: OTHER.into(), tid: -1, ns });
        }
        rows
    }

    fn comm(&self, tid: Tid) -> Arc<str> {
        if tid == Tid::IDLE {
            return "idle".into();
        }
        let folded = || {
            let mut names = self.summary.lives.folded.iter();
            names.find(|(_, folded)| folded.numbers.contains(tid)).map(|(name, _)| Arc::clone(name))
        };
        self.comms.get(&tid).cloned().or_else(folded).unwrap_or_else(|| "".into())
    }

    /// The leader's command name, else that of any thread of the process.
    fn process_comm(&self, pid: Pid) -> Arc<str> {
        let leader = self.comm(Tid::new(pid.get()));
        match self.processes.get(&pid) {
            Some(tid) if leader.is_empty() => self.comm(*tid),
            _ => leader,
        }
    }
}

/// What the last life of each number was called of which anything tells.
fn comms(summary: &Summary) -> BTreeMap<Tid, Arc<str>> {
    let mut comms = BTreeMap::new();
    let mut lives: Vec<_> = summary.lives.iter().collect();
    lives.sort_by_key(|life| (life.tid, life.born));
    comms.extend(lives.iter().filter_map(|life| Some((life.tid, life.comm.clone()?))));
    for (tid, thread) in summary.threads.iter() {
        let of_left = || thread.left_life.as_ref().and_then(|life| life.comm.clone());
        let known = comms.get(tid).cloned();
        let comm = thread.comm.clone().or(known).or_else(of_left);
        comms.extend(comm.map(|comm| (*tid, comm)));
    }
    comms
}

impl Split {
    fn add(&mut self, other: &Self) {
        for (mine, more) in [
            (&mut self.wall_ns, other.wall_ns),
            (&mut self.running_ns, other.running_ns),
            (&mut self.waiting_ns, other.waiting_ns),
            (&mut self.unknown_ns, other.unknown_ns),
            (&mut self.blocked_ns.disk, other.blocked_ns.disk),
            (&mut self.blocked_ns.network, other.blocked_ns.network),
            (&mut self.blocked_ns.lock, other.blocked_ns.lock),
            (&mut self.blocked_ns.timer, other.blocked_ns.timer),
            (&mut self.blocked_ns.pipe, other.blocked_ns.pipe),
            (&mut self.blocked_ns.child, other.blocked_ns.child),
            (&mut self.blocked_ns.other, other.blocked_ns.other),
        ] {
            *mine = mine.saturating_add(more);
        }
    }
}

fn file_rows(files: BTreeMap<Arc<str>, Figures>) -> Vec<File> {
    let row = |(name, figures): (Arc<str>, Figures)| File {
        name,
        calls: figures.calls,
        ns: figures.ns,
        bytes: figures.bytes,
        errors: figures.errors,
    };
    let files = connections::by_end(files, Figures::add);
    let mut rows: Vec<File> = files.into_iter().map(row).collect();
    rows.sort_by_key(|row| (Reverse(row.ns), Arc::clone(&row.name)));
    if rows.len() > MAX_ROWS {
        let mut rest = Figures::default();
        for file in rows.drain(MAX_ROWS..) {
            let File { calls, ns, bytes, errors, .. } = file;
            rest.add(Figures { calls, ns, bytes, errors });
        }
        rows.push(row((OTHER.into(), rest)));
    }
    rows
}
