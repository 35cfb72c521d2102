//! The map step: the facts of one stretch of time become a summary.

mod files;

use std::collections::HashSet;
use std::sync::Arc;

use model::{CpuId, Pid, Tid, Timestamp};

use crate::call::{Call, HeadExit, Sleep};
use crate::cpu::SwitchLog;
use crate::fact::{Fact, FactKind, LeftAs, Missing};
use crate::fold::Wake;
use crate::ident::{Kind, Name};
use crate::keyed::{Keyed, Mixers, Slot};
use crate::lives::Begin;
use crate::name::{CallName, CallNames};
use crate::path::{Leaves, Paths};
use crate::select::Selection;
use crate::summary::{Cover, LossCount, Owner, Summary};
use crate::taint::{Occupant, Taint};
use crate::who::{Identities, Who, asks, is_in_context};

/// Summarises the facts of one stretch of time. They must come in order; facts outside the stretch are the caller's error.
///
/// ```
/// use model::{CpuId, Timestamp, Tid};
/// use stitch::fact::{Fact, FactKind, Span};
/// use stitch::{Cover, Window};
///
/// let span = Span { name: "request", request: Some(7), is_request: true };
/// let at = |ns, kind| Fact {
///     at: Timestamp::from_nanos(ns),
///     cpu: Some(CpuId::new(0)),
///     tid: Some(Tid::new(5)),
///     pid: None,
///     kind,
/// };
/// let cover =
///     |begin, end| Cover { host: "h".into(), begin: Timestamp::from_nanos(begin), end: Timestamp::from_nanos(end) };
/// let mut left = Window::new(cover(0, 50));
/// left.add(&at(10, FactKind::SpanBegin(span)));
/// let mut right = Window::new(cover(50, 100));
/// right.add(&at(60, FactKind::SpanEnd(span)));
/// let answer = stitch::phases(&left.finish().merge(right.finish())?);
/// assert_eq!(answer.requests.wall_ns, 50);
/// # Ok::<(), stitch::Error>(())
/// ```
#[derive(Debug)]
pub struct Window {
    summary: Summary,
    log: SwitchLog,
    /// Who was who at the begin.
    entry: Arc<Identities>,
    /// Names met in this window, one copy each. Bound: distinct names.
    strings: HashSet<Arc<str>, Mixers>,
    call_names: CallNames,
    ring_enter: CallName,
    /// The memory of a call that has returned, for the next one.
    spare: Option<Box<Call>>,
    /// The context of the last fact on each CPU since its last switch, as long as nothing else says who is who.
    here: Keyed<CpuId, Option<Here>>,
    now: Timestamp,
    /// How many threads ended since those of which nothing else is known were forgotten.
    ended: usize,
    /// How many calls on files that may be gone by now have returned since those were looked for.
    since_look: usize,
    /// How many files of those that might be gone something had then.
    had: usize,
}

/// How many calls on files that may be gone by now return before those are looked for.
const LOOK_EVERY: usize = 1_024;

/// How many threads may end in a window before it forgets them, unless more live.
const MAX_ENDED: usize = 4_096;

/// The thread and process in whose context a fact happened.
#[derive(Debug, Clone, Copy)]
struct Context {
    at: Timestamp,
    cpu: Option<CpuId>,
    tid: Tid,
    pid: Pid,
    owner: Owner,
    /// The thread's record.
    slot: Slot,
    /// Whether the fact or an earlier switch tells the thread, not a later switch.
    is_told: bool,
}

/// What a fact says of its thread and process, and whose it is.
#[derive(Debug, Clone, Copy)]
struct Here {
    said: (Option<Tid>, Option<Pid>),
    context: Context,
}

impl Window {
    /// A window without facts, before which nobody is known, or whose facts say whose they are.
    #[must_use]
    pub fn new(cover: Cover) -> Self {
        Self::after(cover, Arc::default())
    }

    /// A window without facts that begins with these known.
    #[must_use]
    pub fn after(cover: Cover, entry: Arc<Identities>) -> Self {
        let now = cover.begin;
        let who = Who::new(&entry);
        let log = SwitchLog::new(who.spans());
        let paths = match who.spans().are_none() {
            true => Paths::outside_requests(now),
            false => Paths::new(now),
        };
        Self {
            summary: Summary { cover: Some(cover), who, paths, ..Summary::default() },
            entry,
            log,
            strings: HashSet::default(),
            call_names: CallNames::default(),
            ring_enter: CallName::new("io_uring_enter"),
            spare: None,
            here: Keyed::new(),
            now,
            ended: 0,
            since_look: 0,
            had: 0,
        }
    }

    /// Keeps only so many of the lives that end one by one, those with the most CPU time, as all windows that will be merged
    /// with this one must; else [`MAX_LIVES`](crate::MAX_LIVES).
    #[must_use]
    pub fn keeping_lives(mut self, most: usize) -> Self {
        self.summary.lives.keep(most);
        self
    }

    /// Counts only what this selects, as all windows that will be merged with this one must.
    #[must_use]
    pub fn selecting(mut self, selection: &Arc<Selection>) -> Self {
        self.summary.folds.select(selection);
        self.summary.paths.waits.sieve.select(selection);
        self.summary.paths.ask(selection.paths);
        self
    }

    #[cfg(feature = "law")]
    pub(crate) fn summary_mut(&mut self) -> &mut Summary {
        &mut self.summary
    }

    /// How many items it has logged.
    #[must_use]
    pub fn logged(&self) -> usize {
        self.summary.folds.logged() + self.summary.paths.waits.sieve.len()
    }

    /// The time of the last fact; the begin while there is none.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Takes in the next fact. A time that goes back counts as the latest time so far.
    pub fn add(&mut self, fact: &Fact<&str>) {
        if fact.at < self.now {
            self.summary.loss.backward += 1;
        }
        self.now = self.now.max(fact.at);
        self.bound_gone();
        let (thread, context) = self.arrive(fact);
        self.summary.folds.take(self.now, fact, context.map(|context| context.tid));
        self.summary.paths.take(self.now, fact, thread);
        match (fact.kind, context) {
            (
                FactKind::Seen
                | FactKind::IrqEntry { .. }
                | FactKind::IrqExit { .. }
                | FactKind::IrqRaise { .. }
                | FactKind::BlockIssue { .. }
                | FactKind::BlockDone { .. }
                | FactKind::BlockRemap { .. }
                | FactKind::DumpDisk { .. }
                | FactKind::Packet { .. },
                _,
            ) => {}
            (FactKind::Offline { cpu }, _) => self.summary.folds.cpu.offline(cpu, self.now),
            (FactKind::Pages { pages, freed }, context) => {
                if let Some(Context { slot, .. }) = context {
                    let counted = &mut self.summary.threads.at(slot).counted;
                    counted.pages.get_or_insert_default().take(pages, freed);
                }
            }
            (FactKind::Migrate { tid }, _) => {
                let slot = self.summary.slot(tid);
                self.summary.threads.at(slot).counted.cpu.get_or_insert_default().migrate();
            }
            (FactKind::Switch { prev, prev_comm, left_as, next, next_comm }, _) => {
                if let Some(cpu) = fact.cpu {
                    self.switch(cpu, (prev, prev_comm), left_as, (next, next_comm));
                }
            }
            (FactKind::Wakeup { tid, comm }, _) => {
                let slot = self.name_thread(tid, comm);
                let thread = self.summary.threads.at(slot);
                thread.woken(self.now);
                let by = context.map(|context| context.tid);
                thread.counted.latencies.woken(Wake { at: self.now, by });
            }
            (FactKind::Fork { child, child_pid, shares_table, comm }, _) => {
                let slot = self.summary.slot(child);
                self.born(child, slot);
                self.name_thread(child, comm);
                self.fork(context, (child, child_pid), shares_table);
                self.forget_ended();
            }
            (FactKind::Exit { tid, is_last }, Some(context)) => self.exit(context, tid, is_last),
            (FactKind::DumpThread { tid, pid, table, comm }, _) => {
                if !comm.is_empty() {
                    self.name_thread(tid, comm);
                }
                if let Some(pid) = pid {
                    self.summary.who.says(tid, pid);
                    self.here.clear();
                    if let Some(table) = table {
                        self.summary.who.has_table(table, pid);
                    }
                }
            }
            (FactKind::DumpFd { pid, table, fd, name, kind }, _) => {
                self.dump_descriptor((pid, table), fd, name, kind);
            }
            (FactKind::Lost { what, events, packets }, _) => self.lose(what, events, packets),
            (FactKind::Exec { comm, .. }, Some(context)) => {
                self.name_thread(context.tid, comm);
                self.exec(context, fact.taken_over());
            }
            (FactKind::CallEntry { name, args }, Some(context)) => {
                self.call_entry(context, name, &args);
            }
            (FactKind::CallExit { name, ret, pair, address, opened }, Some(context)) => {
                let opened = opened.filter(|path| ret >= 0 && !path.is_empty());
                let opened =
                    opened.map(|path| Name { text: self.intern(path), kind: Kind::of_name(path) });
                let Context { at, tid, .. } = context;
                let name = self.call_names.of(name);
                let cpu = context.cpu;
                let exit = HeadExit { tid, cpu, name, at, ret, opened, taint: Taint::None };
                self.call_exit(context, &exit, address, pair);
            }
            (FactKind::SpanBegin(span), Some(context)) => {
                let name = self.intern(span.name);
                let thread = self.summary.threads.at(context.slot);
                let outcome = thread.stack.begin(&span, name, context.at);
                self.summary.absorb(context.tid, outcome);
            }
            (FactKind::SpanEnd(span), Some(context)) => {
                let name = self.intern(span.name);
                let thread = self.summary.threads.at(context.slot);
                let outcome = thread.stack.end(&span, &name, context.at);
                self.summary.absorb(context.tid, outcome);
            }
            (FactKind::Exit { .. }, None) => {}
            (_, None) => self.summary.loss.without_thread += 1,
        }
    }

    /// Adds up files that are gone, now and then; between two facts, when all calls in flight stand with their threads.
    #[inline]
    fn bound_gone(&mut self) {
        if self.since_look >= LOOK_EVERY {
            self.since_look = 0;
            self.had = self.summary.bound_gone(self.had);
        }
    }

    /// The summary of all facts taken in, where those that follow belong to another window, from `end` on.
    #[must_use]
    pub fn finish_before(mut self, end: Timestamp) -> Summary {
        if let Some(cover) = &mut self.summary.cover {
            cover.end = end;
        }
        self.finish()
    }

    /// The summary of all facts taken in.
    #[must_use]
    pub fn finish(mut self) -> Summary {
        for thread in self.summary.threads.values_mut() {
            thread.note_cpus(&self.log);
        }
        self.summary.cpus = self.log.finish();
        self.summary.threads.sort();
        self.summary.requests.keep_slowest();
        self.summary.folds.settle();
        self.summary.settle();
        self.summary.bound_gone(0);
        self.summary
    }

    /// The thread of a fact, also the idle one, and its context, in which it was seen.
    #[inline]
    fn arrive(&mut self, fact: &Fact<&str>) -> (Option<Tid>, Option<Context>) {
        if let Some(context) = self.same_context(fact) {
            let Context { at, cpu, tid, slot, .. } = context;
            self.summary.threads.at(slot).see(at, cpu, &self.summary.lost_on);
            return (Some(tid), Some(context));
        }
        let thread = self.thread_of(fact);
        let context = self.context(fact, thread);
        if let Some(context) = context {
            self.enter(context, fact);
        }
        (thread, context)
    }

    /// The context of a fact that is like the one before on its CPU.
    #[inline]
    fn same_context(&self, fact: &Fact<&str>) -> Option<Context> {
        let here = self.here.get(&fact.cpu?)?.filter(|_| is_in_context(fact))?;
        (here.said == (fact.tid, fact.pid)).then_some(Context { at: self.now, ..here.context })
    }

    /// The thread of a fact, also the idle one: as the record says, else as is known of the CPU.
    fn thread_of(&mut self, fact: &Fact<&str>) -> Option<Tid> {
        match fact.tid {
            Some(tid) => Some(tid),
            None if asks(fact) => self.summary.who.on_cpu(fact.cpu?, &self.entry),
            None => None,
        }
    }

    /// The thread and process of a fact: of the thread, the process that the record says, else what is known of it.
    fn context(&mut self, fact: &Fact<&str>, thread: Option<Tid>) -> Option<Context> {
        let tid = thread.filter(|tid| *tid != Tid::IDLE)?;
        let is_known = |kind| matches!(kind, FactKind::Switch { .. } | FactKind::Lost { .. });
        let slot = self.summary.slot(tid);
        let known = match fact.pid {
            None if !is_known(fact.kind) => self.summary.who.process_in(tid, &self.entry),
            said => said,
        };
        let own = Pid::new(tid.get());
        let (pid, owner) = match known {
            Some(pid) => (pid, Owner::Process(pid)),
            None => (own, Owner::Thread(tid)),
        };
        let told = |cpu| self.summary.who.got_cpu(cpu, &self.entry);
        let is_told = fact.tid.is_some() || fact.cpu.is_some_and(told);
        Some(Context { at: self.now, cpu: fact.cpu, tid, pid, owner, slot, is_told })
    }

    /// An event in the context of a thread: it runs, there.
    fn enter(&mut self, context: Context, fact: &Fact<&str>) {
        if matches!(fact.kind, FactKind::Switch { .. } | FactKind::Lost { .. }) {
            return;
        }
        let Context { at, cpu, tid, pid, slot, .. } = context;
        self.summary.threads.at(slot).see(at, cpu, &self.summary.lost_on);
        if fact.pid.is_some() && self.summary.who.says(tid, pid) {
            self.here.clear();
        }
        if let Some(cpu) = cpu {
            self.summary.on_cpu.insert(cpu, Occupant::Thread(tid));
            let said = (fact.tid, fact.pid);
            let here = Here { said, context };
            self.here.insert(cpu, Some(here).filter(|_| is_in_context(fact)));
        }
    }

    fn switch(
        &mut self,
        cpu: CpuId,
        (prev, prev_comm): (Tid, &str),
        left_as: LeftAs,
        (next, next_comm): (Tid, &str),
    ) {
        let at = self.now;
        self.summary.who.switch(cpu, prev, next);
        *self.here.or_default(&cpu) = None;
        if self.log.is_full() {
            self.summary.threads.values_mut().for_each(|thread| thread.note_cpus(&self.log));
            self.log.drop_kept();
        }
        self.log.switch(cpu, at, prev);
        let slot = (prev != Tid::IDLE).then(|| self.name_thread(prev, prev_comm));
        let begin = slot.map_or(Begin::AsLeft, |slot| self.summary.threads.at(slot).begin);
        let share = self.summary.folds.cpu.switch(cpu, at, (prev, begin), next);
        if let Some(slot) = slot {
            let before = self.summary.occupant(cpu);
            let thread = self.summary.threads.at(slot);
            let taint = Taint::of(before, thread.seen(), cpu);
            thread.left_cpu((prev, taint), at, left_as, &self.summary.lost_on);
            thread.counted.latencies.off();
            if let Some(share) = share {
                thread.counted.cpu.get_or_insert_default().had(share.ns);
            }
            let leaves = Leaves::of(left_as, || thread.call.class(prev, Sleep::of(left_as)));
            self.summary.paths.leave(prev, at, leaves);
            if left_as == LeftAs::Dead {
                self.end(prev, slot);
            }
        }
        if next != Tid::IDLE {
            let slot = self.name_thread(next, next_comm);
            let thread = self.summary.threads.at(slot);
            thread.got_cpu(at, cpu, &self.log, &self.summary.lost_on);
            self.summary.folds.got_cpu(&mut thread.counted, next, at, cpu);
        }
        self.summary.paths.switch(cpu, at, next);
        self.summary.on_cpu.insert(cpu, Occupant::Thread(next));
    }

    /// Forgets threads that have ended, now and then; records may have another place after that.
    fn forget_ended(&mut self) {
        if self.ended > MAX_ENDED.max(self.summary.threads.len() / 2) {
            self.ended = 0;
            self.here.clear();
            self.summary.paths.ended_by = Some(self.now);
            self.summary.forget_ended();
        }
    }

    /// A thread has left its last CPU.
    fn end(&mut self, tid: Tid, slot: Slot) {
        let at = self.now;
        self.summary.end_life(tid, Begin::Seen(at));
        self.summary.who.ends(tid);
        // Where it is seen nevertheless, what is said of it is news.
        self.here.clear();
        let outcome = self.summary.threads.at(slot).end(at);
        self.summary.absorb(tid, outcome);
        self.ended += 1;
    }

    fn born(&mut self, child: Tid, slot: Slot) {
        self.summary.end_life(child, Begin::Born(self.now));
        let thread = self.summary.threads.at(slot);
        let outcome = thread.born(self.now, &self.summary.lost_on);
        thread.counted.latencies.off();
        self.summary.absorb(child, outcome);
    }

    fn lose(&mut self, what: Missing, events: u64, packets: u64) {
        let at = self.now;
        self.here.clear();
        let summary = &mut self.summary;
        summary.loss.add(LossCount {
            events_discarded: events,
            packets_lost: packets,
            ..LossCount::default()
        });
        let counted = summary.threads.values_mut().map(|thread| &mut thread.counted);
        summary.folds.lose(what, at, counted);
        match what {
            Missing::Kernel(cpu) => {
                summary.who.lose(cpu);
                match summary.occupant(cpu) {
                    None => {
                        summary.lost_on.insert(cpu, at);
                    }
                    Some(Occupant::Lost(_)) => {}
                    Some(Occupant::Thread(tid)) => {
                        let thread = summary.threads.get_mut(&tid);
                        if let Some(thread) = thread.filter(|thread| thread.runs_on(cpu)) {
                            thread.lose(at, &summary.lost_on);
                        }
                    }
                }
                summary.on_cpu.insert(cpu, Occupant::Lost(at));
            }
            Missing::KernelEverywhere => {
                for thread in summary.threads.values_mut() {
                    thread.lose(at, &summary.lost_on);
                }
                summary.on_cpu.clear();
                summary.who.lose_all();
                summary.forgotten.kernel = Some(at);
            }
            Missing::Spans => {
                let outcomes: Vec<_> = summary
                    .threads
                    .iter_mut()
                    .map(|(tid, thread)| (*tid, thread.stack.abandon()))
                    .collect();
                for (tid, outcome) in outcomes {
                    summary.absorb(tid, outcome);
                }
                summary.forgotten.spans = Some(at);
            }
        }
    }

    /// The record of a thread, which has this command name.
    #[inline]
    fn name_thread(&mut self, tid: Tid, comm: &str) -> Slot {
        let slot = self.summary.slot(tid);
        let known = self.summary.threads.at(slot).comm.as_deref();
        if tid != Tid::IDLE && !comm.is_empty() && known != Some(comm) {
            self.summary.threads.at(slot).comm = Some(self.intern(comm));
        }
        slot
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.strings.insert(Arc::clone(&new));
        new
    }
}
