//! What one stretch of time says, in a form that merges.
//!
//! `a.merge(b)` puts the state at the end of `a` into the terms of `b`, then appends `b` to `a`. Putting in is
//! substitution, appending is addition, and the two commute: merging is associative. It is not commutative, and the same
//! time twice is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{Calls, InFlight};
use crate::cpu::CpuSwitches;
use crate::descriptors::{Table, TableId};
use crate::error::{Assumption, Error};
use crate::fold::{Counted, CpuTime, Folds, Share};
use crate::ident::{Entry, Ident, Left, Name};
use crate::keyed::{Keyed, Slot};
use crate::lives::{Begin, LeftLife, Life, Lives};
use crate::numbers::Numbers;
use crate::path::{Paths, WaitsOf};
use crate::requests::{Request, Requests};
use crate::spent::Phase;
use crate::stack::{Outcome, Stack};
use crate::taint::{Occupant, Taint};
use crate::thread::{LostOn, Neighbours, Thread};
use crate::who::{Identities, Spans, Who};

/// The phase that stands for time of a request outside all its phases.
pub(crate) const BETWEEN: &str = "(between)";

/// Everything the analyses need to know about one host and one stretch of time.
///
/// Its size is bounded by what is alive at its ends (threads, descriptors touched), by the groups its totals have
/// (process, call, file; phase, call, file), by [`MAX_LIVES`](crate::MAX_LIVES) and by [`crate::MAX_LISTED_REQUESTS`], not by
/// the number of events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub(crate) cover: Option<Cover>,
    /// Threads that lived at one of the ends, by number; of others only that they have ended is known ([`Paths::ended`]).
    pub(crate) threads: Keyed<Tid, Thread>,
    /// Threads that began and ended in between.
    pub(crate) lives: Lives,
    pub(crate) cpus: BTreeMap<CpuId, CpuSwitches>,
    /// The thread last seen on each CPU.
    pub(crate) on_cpu: Keyed<CpuId, Occupant>,
    /// CPUs that lost events while the left part's thread was on them, and when.
    pub(crate) lost_on: LostOn,
    pub(crate) forgotten: Forgotten,
    pub(crate) tables: Keyed<TableId, Table>,
    /// The first name that became known for what had none.
    pub(crate) names: BTreeMap<Ident, (Timestamp, Name)>,
    pub(crate) who: Who,
    pub(crate) processes: Keyed<Owner, Calls>,
    pub(crate) phases: BTreeMap<Arc<str>, Phase>,
    pub(crate) requests: Requests,
    pub(crate) folds: Folds,
    pub(crate) paths: Paths,
    pub(crate) loss: LossCount,
}

/// Whose calls are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Owner {
    Process(Pid),
    /// Before anything was said about the thread's process.
    Thread(Tid),
}

/// The host and the stretch of time that a summary is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// The host's name.
    pub host: Arc<str>,
    /// The first moment inside.
    pub begin: Timestamp,
    /// The first moment after.
    pub end: Timestamp,
}

/// Since when nobody knows what lay before, by subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forgotten {
    pub(crate) spans: Option<Timestamp>,
    pub(crate) kernel: Option<Timestamp>,
    pub(crate) files: Option<Timestamp>,
}

/// What is missing or made no sense.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossCount {
    pub(crate) events_discarded: u64,
    pub(crate) packets_lost: u64,
    pub(crate) gaps: u64,
    pub(crate) unmatched_ends: u64,
    pub(crate) ends_without_request: u64,
    pub(crate) abandoned_phases: u64,
    pub(crate) outside_requests: u64,
    /// Calls and spans of which nobody knows the thread.
    pub(crate) without_thread: u64,
    /// Events whose time went back inside their stream.
    pub(crate) backward: u64,
    /// Operations that calls gave to io_uring rings.
    pub(crate) ring_operations: u64,
}

impl LossCount {
    pub(crate) fn add(&mut self, other: Self) {
        let Self {
            events_discarded,
            packets_lost,
            gaps,
            unmatched_ends,
            ends_without_request,
            abandoned_phases,
            outside_requests,
            without_thread,
            backward,
            ring_operations,
        } = other;
        for (mine, more) in [
            (&mut self.events_discarded, events_discarded),
            (&mut self.packets_lost, packets_lost),
            (&mut self.gaps, gaps),
            (&mut self.unmatched_ends, unmatched_ends),
            (&mut self.ends_without_request, ends_without_request),
            (&mut self.abandoned_phases, abandoned_phases),
            (&mut self.outside_requests, outside_requests),
            (&mut self.without_thread, without_thread),
            (&mut self.backward, backward),
            (&mut self.ring_operations, ring_operations),
        ] {
            *mine = mine.saturating_add(more);
        }
    }
}

impl Summary {
    /// The summary of no time at all: merging with it changes nothing.
    #[must_use]
    pub fn identity() -> Self {
        Self::default()
    }

    /// The summary of a stretch of time that nobody recorded, or whose recording is missing. Nothing is stitched across it.
    #[must_use]
    pub fn gap(cover: Cover) -> Self {
        let at = Some(cover.begin);
        let forgotten = Forgotten { spans: at, kernel: at, files: at };
        let loss = LossCount { gaps: 1, ..LossCount::default() };
        let (folds, paths) = (Folds::gap(cover.begin), Paths::gap(cover.begin));
        Self {
            cover: Some(cover),
            forgotten,
            folds,
            paths,
            loss,
            who: Who::gap(),
            ..Self::default()
        }
    }

    /// The host and time this is about; `None` for the identity.
    #[must_use]
    pub fn cover(&self) -> Option<&Cover> {
        self.cover.as_ref()
    }

    /// Appends the summary of the time right after this one's.
    ///
    /// # Errors
    ///
    /// [`Error::CoveredTwice`], [`Error::NotAdjacent`] and [`Error::OtherHost`] when `right` is not the neighbour;
    /// [`Error::StaleAssumption`] when it was mapped behind another one.
    pub fn merge(mut self, right: Self) -> Result<Self, Error> {
        let Some(right_cover) = &right.cover else { return Ok(self) };
        let Some(cover) = &mut self.cover else { return Ok(right) };
        cover.extend(right_cover)?;
        self.precedes(&right)?;
        let mut right = right;
        self.lose_before(&right);
        right.resolve(&self);
        right.lives.resolve_wakers(self.paths.told_by());
        self.append(right);
        Ok(self)
    }

    /// Whether `right` was mapped behind this: who was who when it began is what this ends with.
    ///
    /// # Errors
    ///
    /// [`Error::StaleAssumption`] when it was not: mapped again behind [`Self::identities`] it will be.
    pub fn precedes(&self, right: &Self) -> Result<(), Error> {
        if self.cover.is_none() || right.cover.is_none() {
            return Ok(());
        }
        self.who.check(&right.who, &self.paths.ended)?;
        self.check_spans(right)
    }

    /// Who is who after this, for the window that follows. Of the windows from the first on it is all that is known.
    #[must_use]
    pub fn identities(&self) -> Identities {
        let spans = match self.spans_of_unseen() {
            Spans::Unknown => Spans::Unknown,
            Spans::Within(mut within) => {
                within.retain(|tid| !self.paths.ended.contains(*tid));
                for (tid, thread) in self.threads.iter() {
                    match thread.stack.collects() {
                        true => within.insert(*tid),
                        false => within.remove(tid),
                    };
                }
                Spans::Within(within)
            }
        };
        self.who.after(spans)
    }

    /// Which threads without an event here may be inside a span.
    fn spans_of_unseen(&self) -> Spans {
        match self.forgotten.spans {
            Some(_) => Spans::Within(BTreeSet::new()),
            None => self.who.spans().clone(),
        }
    }

    /// Whether threads are inside spans at the end only where the right part knows that they may be.
    fn check_spans(&self, right: &Self) -> Result<(), Error> {
        let Spans::Within(within) = right.who.spans() else { return Ok(()) };
        let stale = |tid| Err(Error::StaleAssumption { who: Assumption::OutsideSpans { tid } });
        for (tid, thread) in self.threads.iter() {
            if thread.stack.collects() && !within.contains(tid) {
                return stale(Some(*tid));
            }
        }
        match self.spans_of_unseen() {
            Spans::Unknown => stale(None),
            Spans::Within(unseen) => {
                let mut unseen = unseen.difference(within);
                let is_seen =
                    |tid| self.threads.contains_key(tid) || self.paths.ended.contains(*tid);
                match unseen.find(|tid| !is_seen(tid)) {
                    Some(tid) => stale(Some(*tid)),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether what follows begins as a recording does, with nobody known on any CPU.
    #[must_use]
    pub fn ends_in_gap(&self) -> bool {
        self.who.ends_in_gap()
    }

    /// What a thread without an event here is: as at the left boundary, unless that is forgotten.
    pub(crate) fn unseen_thread(&self, tid: Tid) -> Thread {
        let may_be_inside = self.who.spans().may_hold(tid);
        let stack = if may_be_inside { Stack::default() } else { Stack::rooted() };
        if self.paths.ended.contains(tid) {
            let at = self.paths.ended_by.unwrap_or(Timestamp::MIN);
            return Thread::ended(stack, self.folds.unseen(), at);
        }
        let mut thread = Thread::as_left(stack, self.folds.unseen());
        if let Some(at) = self.forgotten.kernel {
            thread.lose(at, &LostOn::new());
        }
        if self.forgotten.files.is_some() {
            thread.call = InFlight::Nothing;
        }
        if self.forgotten.spans.is_some() {
            thread.stack.abandon();
        }
        thread
    }

    /// The record of a thread.
    #[inline]
    pub(crate) fn slot(&mut self, tid: Tid) -> Slot {
        match self.threads.find(&tid) {
            Some(slot) => slot,
            None => {
                let unseen = self.unseen_thread(tid);
                if self.paths.ended.contains(tid) {
                    self.paths.ended.remove(tid);
                    self.who.ends(tid);
                }
                self.threads.slot(&tid, || unseen)
            }
        }
    }

    /// Who was last known to have a CPU; `None` when the left part knows.
    pub(crate) fn occupant(&self, cpu: CpuId) -> Option<Occupant> {
        let forgotten = self.forgotten.kernel.map(Occupant::Lost);
        self.on_cpu.get(&cpu).copied().or(forgotten)
    }

    /// A table, to change it.
    pub(crate) fn table_mut(&mut self, id: TableId) -> &mut Table {
        let forgotten = self.forgotten.files;
        self.tables.or_insert_with(&id, || Table::unseen(id, forgotten))
    }

    /// Notes what a step on a thread's spans left to count.
    pub(crate) fn absorb(&mut self, tid: Tid, outcome: Outcome) {
        self.requests.abandoned =
            self.requests.abandoned.saturating_add(outcome.abandoned_requests);
        self.loss.add(LossCount {
            unmatched_ends: outcome.unmatched_ends,
            ends_without_request: outcome.ends_without_request,
            abandoned_phases: outcome.abandoned_phases,
            outside_requests: outcome.outside_requests,
            ..LossCount::default()
        });
        if outcome.ends_at_left {
            self.paths.end_at_left(tid);
        }
        for finished in outcome.finished {
            let mut request = Request {
                name: finished.name,
                request: finished.request,
                tid,
                begin: finished.begin,
                end: finished.end,
                body: finished.body.clone(),
            };
            request.body.strip();
            self.paths.end_request(request.ended());
            self.requests.push(request);
            let between = Phase { spans: 1, spent: finished.body.own };
            self.phases.entry(BETWEEN.into()).or_default().add(between);
            for (path, phase) in finished.body.phases {
                self.phases.entry(path).or_default().add(phase);
            }
        }
    }

    fn resolve(&mut self, left: &Self) {
        // First: calls that began in the left part come with its own terms.
        self.folds.resolve_files(left);
        for (tid, thread) in self.threads.iter_mut() {
            thread.resolve(*tid, left);
            self.folds.resolve(&mut thread.counted, left);
            if let Some(life) = &mut thread.left_life {
                self.folds.resolve(&mut life.counted, left);
            }
        }
        self.lives.resolve(&mut self.folds.calls, left);
        let named = self.named_by_heads(left);
        for table in self.tables.values_mut() {
            table.resolve(left);
        }
        for calls in self.processes.values_mut() {
            calls.resolve(left);
        }
        for phase in self.phases.values_mut() {
            phase.spent.resolve(left);
        }
        self.requests.resolve(left);
        self.paths.resolve(left);
        for (mut ident, (at, name)) in std::mem::take(&mut self.names) {
            ident.resolve(left);
            self.learn(ident, at, name);
        }
        for (ident, at, name) in named {
            self.learn(ident, at, name);
        }
    }

    /// The files of the left part that got a name because a call succeeded that is in flight there.
    fn named_by_heads(&self, left: &Self) -> Vec<(Ident, Timestamp, Name)> {
        let heads = self.processes.values().flat_map(|calls| &calls.heads);
        let named = heads.filter_map(|(tid, exit)| match left.in_flight(*tid) {
            InFlight::Call(call) => {
                let exit = exit.clone().resolved(*tid, left);
                call.names(&exit).map(|(file, name)| (file, exit.at, name))
            }
            _ => None,
        });
        named.collect()
    }

    /// Notes a name that a dump gives; it never overrules what an event said.
    pub(crate) fn learn(&mut self, ident: Ident, at: Timestamp, name: Name) {
        if ident.name().is_some() {
            return;
        }
        let found = (at, name);
        let first = self.names.entry(ident).or_insert_with(|| found.clone());
        if found < *first {
            *first = found;
        }
    }

    /// Losses of the right part that meet a thread of this one before the right part saw it do anything.
    fn lose_before(&mut self, right: &Self) {
        for (cpu, at) in &right.lost_on {
            let Some(Occupant::Thread(tid)) = self.on_cpu.get(cpu) else { continue };
            let seen = right.threads.get(tid);
            let before_first = seen.is_none_or(|thread| thread.first_is_after_loss_on(*cpu));
            let thread = self.threads.get_mut(tid).filter(|thread| thread.runs_on(*cpu));
            if let Some(thread) = thread.filter(|_| before_first) {
                thread.lose(*at, &self.lost_on);
            }
        }
    }

    /// The last life of a number ends; what is seen of it from then on is another one, which was born if `begin` says so.
    pub(crate) fn end_life(&mut self, tid: Tid, begin: Begin) {
        self.end_life_in(self.who.process(tid), tid, begin);
    }

    /// The same of a thread of this process.
    fn end_life_in(&mut self, pid: Option<Pid>, tid: Tid, begin: Begin) {
        let waits = self.paths.waits.take_life(tid);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let (comm, counted) = (thread.comm.take(), thread.counted.take_life());
        let born = match std::mem::replace(&mut thread.begin, begin) {
            Begin::AsLeft => {
                thread.left_life = Some(Box::new(LeftLife { comm, pid, counted }));
                if !waits.is_empty() {
                    self.paths.waits.of_left.insert(tid, waits);
                }
                return;
            }
            Begin::Seen(_) => None,
            Begin::Born(at) => Some(at),
        };
        self.lives.push(Life { tid, pid, comm, born, counted, waits });
    }

    /// Forgets threads of which nothing is known but that they have ended.
    pub(crate) fn forget_ended(&mut self) {
        let has_ended = |tid: &Tid, thread: &Thread| {
            thread.is_ended() && self.paths.is_ended(*tid) && self.who.is_ended(*tid)
        };
        let ended: Vec<Tid> = (self.threads.iter_unordered())
            .filter(|(tid, thread)| has_ended(tid, thread))
            .map(|(tid, _)| *tid)
            .collect();
        self.paths.forget_ended(&ended);
        let Self { threads, who, paths, .. } = self;
        if !ended.is_empty() {
            threads.retain(|tid, _| !paths.ended.contains(*tid));
            who.forget_ended(&paths.ended);
        }
    }

    /// The window, or the merge, is complete: keeps what somebody may still need.
    pub(crate) fn settle(&mut self) {
        self.forget_ended();
        self.lives.settle();
        self.paths.settle(!self.who.spans().are_none());
    }

    fn append(&mut self, right: Self) {
        self.append_cpu_time(right.folds.cpu.clone());
        let ended = right.paths.ended.clone();
        let had_another = |tid| {
            let thread = right.threads.get(&tid);
            thread.map_or(ended.contains(tid), |thread| thread.begin != Begin::AsLeft)
        };
        let later = self.paths.append(right.paths, had_another);
        let begin = right.cover.as_ref().map_or(Timestamp::MIN, |cover| cover.begin);
        self.paths.ended_by = Some(begin);
        self.end_threads(&ended, begin);
        let more = (right.threads, later);
        self.append_threads(more, &ended, &right.folds, &right.cpus, right.forgotten);
        self.lives.append(right.lives);
        self.append_cpus(right.cpus, right.on_cpu, right.lost_on, right.forgotten);
        if right.forgotten.files.is_some() {
            self.tables.clear();
        }
        self.tables.extend(right.tables);
        self.forgotten = Forgotten {
            spans: right.forgotten.spans.or(self.forgotten.spans),
            kernel: right.forgotten.kernel.or(self.forgotten.kernel),
            files: right.forgotten.files.or(self.forgotten.files),
        };
        for (ident, (at, name)) in right.names {
            self.learn(ident, at, name);
        }
        self.who.append(right.who);
        self.processes.add_all(right.processes, Calls::add);
        for (path, phase) in right.phases {
            self.phases.entry(path).or_default().add(phase);
        }
        self.requests.append(right.requests);
        self.folds.append(right.folds);
        self.loss.add(right.loss);
        self.settle();
        self.bound_gone(0);
    }

    /// Time of CPUs across the boundary is that of the threads that had them at the end of this part.
    fn append_cpu_time(&mut self, right: CpuTime) {
        let Self { threads, paths, .. } = self;
        let begin_of = |tid: Tid| match threads.get(&tid) {
            Some(thread) => thread.begin,
            None if paths.ended.contains(tid) => Begin::Seen(Timestamp::MAX),
            None => Begin::AsLeft,
        };
        for Share { tid, ns, .. } in self.folds.cpu.append(right, begin_of) {
            // Whoever got a CPU here and has not ended has a record.
            if let Some(thread) = threads.get_mut(&tid) {
                thread.counted.cpu.get_or_insert_default().had(ns);
            }
        }
    }

    /// Threads of which the right part, which begins at `begin`, knows nothing but that they have ended.
    fn end_threads(&mut self, ended: &Numbers, begin: Timestamp) {
        for tid in ended.iter() {
            if !self.threads.contains_key(&tid) {
                self.paths.ended.insert(tid);
                continue;
            }
            self.end_life(tid, Begin::Seen(begin));
            self.who.ends(tid);
            if let Some(thread) = self.threads.get_mut(&tid) {
                let outcome = thread.end(begin);
                self.absorb(tid, outcome);
            }
        }
    }

    fn append_threads(
        &mut self,
        (mut right, mut later): (Keyed<Tid, Thread>, Keyed<Tid, WaitsOf>),
        ended: &Numbers,
        right_folds: &Folds,
        right_cpus: &BTreeMap<CpuId, CpuSwitches>,
        forgotten: Forgotten,
    ) {
        let left_cpus = std::mem::take(&mut self.cpus);
        let lost = std::mem::take(&mut self.lost_on);
        let cpus = Neighbours { left: &left_cpus, right: right_cpus, lost_in_left: &lost };
        let mut outcomes = Vec::new();
        for (tid, thread) in self.threads.iter_mut() {
            if right.contains_key(tid) || ended.contains(*tid) {
                continue;
            }
            thread.append_absence(&cpus);
            right_folds.append_absence(&mut thread.counted);
            if let Some(at) = forgotten.kernel {
                thread.lose(at, &lost);
            }
            if forgotten.files.is_some() {
                thread.call = InFlight::Nothing;
            }
            if forgotten.spans.is_some() {
                outcomes.push((*tid, thread.stack.abandon()));
            }
        }
        right.sort();
        for (tid, mut more) in right.into_entries() {
            let slot = self.slot(tid);
            let last = Last {
                begin: more.begin,
                comm: more.comm.take(),
                counted: more.counted.take_life(),
                waits: later.get_mut(&tid).map(std::mem::take).unwrap_or_default(),
            };
            let of_left = more.left_life.take().map(|life| *life);
            let state = std::mem::take(&mut more.counted);
            let thread = self.threads.at(slot);
            outcomes.push((tid, thread.append(more, &cpus)));
            self.append_lives(tid, slot, (of_left, last), state);
        }
        self.cpus = left_cpus;
        self.lost_on = lost;
        for (tid, outcome) in outcomes {
            self.absorb(tid, outcome);
        }
    }

    /// Appends what the right part counted of a number: of the life that it had at the boundary, which goes on here, and of
    /// its last one, if that is another. `state` is what the number's latencies end with.
    fn append_lives(
        &mut self,
        tid: Tid,
        slot: Slot,
        (of_left, last): (Option<LeftLife>, Last),
        state: Counted,
    ) {
        let thread = self.threads.at(slot);
        let goes_on = last.begin == Begin::AsLeft;
        let none = || LeftLife { comm: None, pid: None, counted: Counted::default() };
        let (continued, last) = match goes_on {
            true => (LeftLife { comm: last.comm, pid: None, counted: last.counted }, None),
            false => (of_left.unwrap_or_else(none), Some(last)),
        };
        let LeftLife { comm, pid, mut counted } = continued;
        counted.latencies = counted.latencies.in_state_of(&state.latencies);
        self.folds.append_thread(tid, &mut thread.counted, counted);
        if comm.is_some() {
            thread.comm = comm;
        }
        let Some(Last { begin, comm, counted, waits }) = last else { return };
        self.end_life_in(pid.or(self.who.process(tid)), tid, begin);
        let thread = self.threads.at(slot);
        thread.comm = comm;
        thread.counted.take_up(counted);
        if !waits.is_empty() {
            self.paths.waits.now.insert(tid, waits);
        }
    }

    fn append_cpus(
        &mut self,
        cpus: BTreeMap<CpuId, CpuSwitches>,
        on_cpu: Keyed<CpuId, Occupant>,
        lost_on: LostOn,
        forgotten: Forgotten,
    ) {
        for (cpu, at) in lost_on {
            if self.occupant(cpu).is_none() {
                self.lost_on.insert(cpu, at);
            }
        }
        if forgotten.kernel.is_some() {
            self.on_cpu.clear();
        }
        self.on_cpu.extend(on_cpu);
        for (cpu, more) in cpus {
            match self.cpus.get_mut(&cpu) {
                Some(switches) => switches.append(more),
                None => {
                    self.cpus.insert(cpu, more);
                }
            }
        }
    }
}

/// What a part counted of the last life of a number.
struct Last {
    begin: Begin,
    comm: Option<Arc<str>>,
    counted: Counted,
    waits: WaitsOf,
}

impl Left for Summary {
    fn table(&self, id: TableId) -> Table {
        let unseen = || Table::unseen(id, self.forgotten.files);
        self.tables.get(&id).cloned().unwrap_or_else(unseen)
    }

    fn entry(&self, id: TableId, fd: Fd) -> Entry {
        match self.tables.get(&id) {
            Some(table) => table.entry(fd),
            None => self.table(id).entry(fd),
        }
    }

    fn in_flight(&self, tid: Tid) -> &InFlight {
        match self.threads.get(&tid) {
            Some(thread) => &thread.call,
            None if self.paths.ended.contains(tid) => &InFlight::Nothing,
            None if self.forgotten.files.is_some() => &InFlight::Nothing,
            None if self.forgotten.kernel.is_some() => &InFlight::UNCERTAIN,
            None => &InFlight::AS_LEFT,
        }
    }

    fn taint_of(&self, tid: Tid, cpu: CpuId) -> Taint {
        let ended = || self.paths.ended.contains(tid).then_some(Timestamp::MIN);
        let seen = self.threads.get(&tid).map_or_else(ended, Thread::seen);
        Taint::of(self.occupant(cpu), seen, cpu)
    }
}

impl Cover {
    fn extend(&mut self, right: &Self) -> Result<(), Error> {
        if self.host != right.host {
            return Err(Error::OtherHost {
                left: self.host.to_string(),
                right: right.host.to_string(),
            });
        }
        let (left_end, right_begin) = (self.end, right.begin);
        if right_begin < left_end {
            return Err(Error::CoveredTwice { left_end, right_begin });
        }
        if left_end < right_begin {
            return Err(Error::NotAdjacent { left_end, right_begin });
        }
        self.end = right.end;
        Ok(())
    }
}
