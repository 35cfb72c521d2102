//! Who is who where records do not say so: the thread on a CPU, the process of a thread, the process of a descriptor table,
//! and which processes share one.
//!
//! A window begins with what the windows before it learnt ([`Identities`]), also which threads may be inside a span, so that of all
//! others nothing is collected for a span that began before; only who had a CPU before its first switch of
//! all may be learnt from what follows ([`LookAhead`]). A window notes which of these values it used. A merge compares them
//! with what the left part ends with, so that a window that was mapped behind another neighbour is refused, never merged
//! quietly.

use std::collections::{BTreeMap, BTreeSet};

use model::{CpuId, Nanos, Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::{Assumption, Error};
use crate::fact::{Fact, FactKind, LeftAs, Missing, TableKey};
use crate::keyed::Keyed;
use crate::numbers::Numbers;
use crate::sharing::{Intent, Sharing};

/// How much later a CPU's first switch may come to say who had the CPU before it.
pub const LOOK_AHEAD: Nanos = Nanos::new(60_000_000_000);

/// Who is who at the begin of a window.
///
/// Bound: CPUs, threads that live of which a word was seen, descriptor tables of a state dump.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identities {
    cpus: BTreeMap<CpuId, OnCpu>,
    /// Whether CPUs that are not listed are lost rather than not yet seen.
    are_lost: bool,
    processes: BTreeMap<Tid, Pid>,
    tables: BTreeMap<TableKey, Pid>,
    spans: Spans,
    sharing: Sharing,
    /// The latest time of a fact.
    now: Option<Timestamp>,
}

/// Which threads may be inside a span.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Spans {
    /// Any.
    #[default]
    Unknown,
    /// None but these.
    Within(BTreeSet<Tid>),
}

impl Spans {
    fn begin<S>(&mut self, fact: &Fact<S>) {
        match (self, fact.tid) {
            (Self::Within(threads), Some(tid)) => {
                threads.insert(tid);
            }
            (spans @ Self::Within(_), None) => *spans = Self::Unknown,
            (Self::Unknown, _) => {}
        }
    }

    /// Whether no thread is inside a span.
    pub(crate) fn are_none(&self) -> bool {
        matches!(self, Self::Within(threads) if threads.is_empty())
    }

    pub(crate) fn may_hold(&self, tid: Tid) -> bool {
        match self {
            Self::Unknown => true,
            Self::Within(threads) => threads.contains(&tid),
        }
    }
}

/// The thread on a CPU, and by what it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum OnCpu {
    /// The last switch before gave it the CPU.
    Got(Tid),
    /// The first switch after takes the CPU from it.
    Leaves(Tid),
    /// Nobody knows.
    Nobody,
}

impl OnCpu {
    fn thread(self) -> Option<Tid> {
        match self {
            Self::Got(tid) | Self::Leaves(tid) => Some(tid),
            Self::Nobody => None,
        }
    }
}

impl Identities {
    /// Of the first window of all: no thread is inside a span that began before. What turns up before it after all is refused by
    /// the merge if that does not hold.
    #[must_use]
    pub fn outside_spans(mut self) -> Self {
        self.spans = Spans::Within(BTreeSet::new());
        self
    }

    /// Takes in what a fact says about what follows it.
    pub fn learn<S>(&mut self, fact: &Fact<S>) {
        self.learn_sharing(fact);
        match &fact.kind {
            FactKind::Switch { prev, left_as, next, .. } => {
                if let Some(cpu) = fact.cpu {
                    self.cpus.insert(cpu, OnCpu::Got(*next));
                    if *left_as == LeftAs::Dead {
                        self.processes.remove(prev);
                    }
                }
                return;
            }
            FactKind::Lost { what, .. } => {
                match what {
                    Missing::Kernel(cpu) => {
                        self.cpus.insert(*cpu, OnCpu::Nobody);
                    }
                    Missing::KernelEverywhere => {
                        self.cpus.clear();
                        self.are_lost = true;
                    }
                    Missing::Spans => self.spans = Spans::Within(BTreeSet::new()),
                }
                return;
            }
            FactKind::SpanBegin(_) => self.spans.begin(fact),
            FactKind::Fork { child, child_pid, .. } => {
                self.processes.insert(*child, *child_pid);
            }
            FactKind::DumpThread { tid, pid: Some(pid), table, .. } => {
                self.processes.insert(*tid, *pid);
                self.tables.extend(table.map(|table| (table, *pid)));
            }
            FactKind::Exec { .. } if fact.taken_over().is_some() => {
                if let (Some(cpu), Some(tid)) = (fact.cpu, fact.tid) {
                    self.cpus.insert(cpu, OnCpu::Got(tid));
                    if let Some(old) = fact.taken_over() {
                        self.processes.remove(&old);
                    }
                }
            }
            _ => {}
        }
        if let (Some(tid), Some(pid)) = (fact.tid.filter(|tid| *tid != Tid::IDLE), fact.pid) {
            self.processes.insert(tid, pid);
        }
    }

    /// Takes in what a fact says about who shares descriptor tables. A thread that only a later switch tells takes no part.
    fn learn_sharing<S>(&mut self, fact: &Fact<S>) {
        let at = self.now.map_or(fact.at, |now| now.max(fact.at));
        self.now = Some(at);
        match &fact.kind {
            FactKind::CallEntry { args, .. } => {
                let intent = Intent::of(&args.effect);
                if (intent.is_some() || !self.sharing.is_idle())
                    && let Some((tid, _)) = self.told(fact)
                {
                    self.sharing.enter(tid, intent);
                }
            }
            FactKind::CallExit { ret, .. } => {
                if !self.sharing.is_idle()
                    && let Some((tid, pid)) = self.told(fact)
                    && self.sharing.exit(tid, *ret).is_some_and(Intent::leaves)
                {
                    self.sharing.leave(at, pid);
                }
            }
            FactKind::Fork { child, child_pid, shares_table, .. } => {
                let parent = self.told(fact);
                self.sharing.fork(at, parent, (*child, *child_pid), *shares_table);
            }
            FactKind::Exec { .. } => {
                if let Some((_, pid)) = self.told(fact) {
                    self.sharing.leave(at, pid);
                }
            }
            FactKind::Exit { tid, is_last } => {
                let context = self.told_thread(fact);
                let known = |tid| fact.pid.or_else(|| self.processes.get(&tid).copied());
                if let Some(pid) = context.and_then(known)
                    && is_last.unwrap_or(pid.get() == tid.get())
                {
                    self.sharing.end(pid);
                }
            }
            FactKind::Lost { what: Missing::Kernel(_) | Missing::KernelEverywhere, .. } => {
                self.sharing.forget_calls();
            }
            _ => {}
        }
    }

    /// The thread of a fact, when the fact or an earlier switch tells.
    fn told_thread<S>(&self, fact: &Fact<S>) -> Option<Tid> {
        let by_cpu = || match self.cpus.get(&fact.cpu?)? {
            OnCpu::Got(tid) => Some(*tid),
            OnCpu::Leaves(_) | OnCpu::Nobody => None,
        };
        fact.tid.or_else(by_cpu).filter(|tid| *tid != Tid::IDLE)
    }

    /// That thread and its process.
    fn told<S>(&self, fact: &Fact<S>) -> Option<(Tid, Pid)> {
        let tid = self.told_thread(fact)?;
        let known = fact.pid.or_else(|| self.processes.get(&tid).copied());
        Some((tid, known.unwrap_or(Pid::new(tid.get()))))
    }

    /// A stretch that nobody recorded ends here: who has the CPUs now is told by their next switches, and no span goes on.
    pub fn forget_cpus(&mut self) {
        self.cpus.clear();
        self.are_lost = false;
        self.spans = Spans::Within(BTreeSet::new());
        self.sharing.forget_calls();
    }
}

/// Finds out who had each CPU before its first switch, from the begin of a recording or the end of a gap on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookAhead {
    begin: Timestamp,
    /// The thread that the first switch takes away; `None` when a loss came first.
    found: BTreeMap<CpuId, Option<Tid>>,
    /// CPUs with facts before their first switch whose thread nobody knows, and since when.
    asked: BTreeMap<CpuId, Timestamp>,
    is_over: bool,
}

impl LookAhead {
    /// Begins at a time; facts come in order.
    #[must_use]
    pub fn new(begin: Timestamp) -> Self {
        Self { begin, found: BTreeMap::new(), asked: BTreeMap::new(), is_over: false }
    }

    /// Takes in the next fact.
    pub fn take<S>(&mut self, fact: &Fact<S>) {
        if fact.at.since(self.begin) > LOOK_AHEAD {
            self.is_over = true;
        }
        if self.is_over {
            return;
        }
        match (&fact.kind, fact.cpu) {
            (FactKind::Switch { prev, .. }, Some(cpu)) => {
                self.found.entry(cpu).or_insert(Some(*prev));
            }
            (FactKind::Exec { .. }, Some(cpu)) if fact.taken_over().is_some() => {
                self.found.entry(cpu).or_insert(fact.taken_over());
            }
            (FactKind::Lost { what: Missing::Kernel(cpu), .. }, _) => {
                self.found.entry(*cpu).or_insert(None);
            }
            (FactKind::Lost { what: Missing::KernelEverywhere, .. }, _) => self.is_over = true,
            (_, Some(cpu)) if asks(fact) && !self.found.contains_key(&cpu) => {
                self.asked.entry(cpu).or_insert(fact.at);
            }
            _ => {}
        }
    }

    /// Whether nothing that follows can say more, when these are all CPUs.
    #[must_use]
    pub fn is_over(&self, cpus: &BTreeSet<CpuId>) -> bool {
        self.is_over || cpus.iter().all(|cpu| self.found.contains_key(cpu))
    }

    /// Whether a fact before `end` waits for a switch that may still come.
    #[must_use]
    pub fn waits(&self, end: Timestamp) -> bool {
        let open = |(cpu, at): (&CpuId, &Timestamp)| *at < end && !self.found.contains_key(cpu);
        !self.is_over && self.asked.iter().any(open)
    }

    /// Adds what was found to who is who at the begin, or later, of CPUs that are not told by anything before.
    pub fn complete(&self, identities: &mut Identities) {
        if identities.are_lost {
            return;
        }
        for (cpu, prev) in self.found.iter().filter_map(|(cpu, prev)| Some((cpu, (*prev)?))) {
            identities.cpus.entry(*cpu).or_insert(OnCpu::Leaves(prev));
        }
    }
}

/// Whether a fact's thread is whoever has its CPU.
pub(crate) fn asks<S>(fact: &Fact<S>) -> bool {
    fact.tid.is_none() && is_in_context(fact)
}

/// Whether a fact happened in the context of a thread that runs.
pub(crate) fn is_in_context<S>(fact: &Fact<S>) -> bool {
    !matches!(
        fact.kind,
        FactKind::Switch { .. }
            | FactKind::Lost { .. }
            | FactKind::DumpThread { .. }
            | FactKind::DumpFd { .. }
    )
}

fn stale(who: Assumption) -> Result<(), Error> {
    Err(Error::StaleAssumption { who })
}

/// What a window used of its begin and knows at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    assumed: Assumed,
    /// The thread that the first switch of each CPU takes away; `None` when a loss came first.
    first: Keyed<CpuId, Option<Tid>>,
    /// The thread that the last switch of each CPU gave it to; `None` when a loss came after.
    last: Keyed<CpuId, Option<Tid>>,
    /// Whether nobody knows who had the CPUs that have no last switch here.
    forgotten: Forgotten,
    /// What windows after the last gap used of CPUs that no switch was seen of since.
    after_gap: BTreeMap<CpuId, OnCpu>,
    tables: BTreeMap<TableKey, Pid>,
    /// The last word on the process of each number; `None` when that was that its thread has ended.
    processes: Keyed<Tid, Option<Pid>>,
    /// The first word where it is another than the last; `None` when the first word was a birth or an end, which say nothing
    /// about the number's process before.
    first_processes: BTreeMap<Tid, Option<Pid>>,
    sharing: SharingUse,
}

/// Who shares descriptor tables, as far as a window used it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SharingUse {
    /// Whether the calls that threads were in were forgotten before the first use.
    forgot_calls: bool,
    used: Option<Used>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    assumed: Sharing,
    now: Sharing,
}

impl SharingUse {
    fn now(&mut self, entry: &Identities) -> &mut Sharing {
        let used = self.used.get_or_insert_with(|| {
            let mut assumed = entry.sharing.clone();
            if self.forgot_calls {
                assumed.forget_calls();
            }
            Used { now: assumed.clone(), assumed }
        });
        &mut used.now
    }

    fn forget_calls(&mut self) {
        match &mut self.used {
            Some(used) => used.now.forget_calls(),
            None => self.forgot_calls = true,
        }
    }

    /// Whether the right part began with what this one ends with.
    fn agrees(&self, right: &Self) -> bool {
        let (Some(mine), Some(other)) = (&self.used, &right.used) else { return true };
        let mut now = mine.now.clone();
        if right.forgot_calls {
            now.forget_calls();
        }
        now == other.assumed
    }

    fn append(&mut self, right: Self) {
        if right.forgot_calls {
            self.forget_calls();
        }
        match (&mut self.used, right.used) {
            (Some(mine), Some(right)) => mine.now = right.now,
            (None, right) => self.used = right,
            (Some(_), None) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Forgotten {
    #[default]
    No,
    /// Events were lost.
    Lost,
    /// Nothing was recorded: what follows is as a recording that begins.
    Gap,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Assumed {
    spans: Spans,
    cpus: BTreeMap<CpuId, OnCpu>,
    processes: BTreeMap<Tid, Option<Pid>>,
    tables: BTreeMap<TableKey, Option<Pid>>,
}

impl Who {
    #[cfg(feature = "law")]
    pub(crate) fn leave_out(&mut self, part: crate::Part) {
        use crate::Part;
        match part {
            Part::Switched => self.last.clear(),
            Part::Ahead => self.assumed.cpus.retain(|_, on| !matches!(on, OnCpu::Leaves(_))),
            Part::Processes => self.processes.clear(),
            Part::FirstProcesses => self.first_processes.clear(),
            Part::TableKeys => self.tables.clear(),
            Part::Sharing => {
                if let Some(used) = &mut self.sharing.used {
                    used.now = used.assumed.clone();
                }
            }
            _ => {}
        }
    }

    /// Of a stretch that begins so. What was found by looking ahead holds for what follows as well.
    pub(crate) fn new(entry: &Identities) -> Self {
        let ahead = entry.cpus.iter().filter(|(_, on)| matches!(on, OnCpu::Leaves(_)));
        let cpus = ahead.map(|(cpu, on)| (*cpu, *on)).collect();
        let spans = entry.spans.clone();
        Self { assumed: Assumed { spans, cpus, ..Assumed::default() }, ..Self::default() }
    }

    pub(crate) fn gap() -> Self {
        let sharing = SharingUse { forgot_calls: true, used: None };
        Self { forgotten: Forgotten::Gap, sharing, ..Self::default() }
    }

    pub(crate) fn switch(&mut self, cpu: CpuId, prev: Tid, next: Tid) {
        if self.forgotten == Forgotten::No {
            self.first.or_insert_with(&cpu, || Some(prev));
        }
        self.last.insert(cpu, Some(next));
    }

    pub(crate) fn lose(&mut self, cpu: CpuId) {
        if self.forgotten == Forgotten::No {
            self.first.or_insert_with(&cpu, || None);
        }
        self.last.insert(cpu, None);
        self.sharing.forget_calls();
    }

    pub(crate) fn lose_all(&mut self) {
        self.sharing.forget_calls();
        self.last.clear();
        self.forgotten = Forgotten::Lost;
        self.after_gap.clear();
    }

    /// The process of a thread, by the last word.
    pub(crate) fn process(&self, tid: Tid) -> Option<Pid> {
        self.processes.get(&tid).copied().flatten()
    }

    /// Which threads may have been inside a span at the begin.
    pub(crate) fn spans(&self) -> &Spans {
        &self.assumed.spans
    }

    /// The last word on the process of every thread that lives.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (Tid, Pid)> {
        self.processes.iter().filter_map(|(tid, pid)| Some((*tid, (*pid)?)))
    }

    /// The process of a thread before any word on it: what the first word says.
    pub(crate) fn process_before_words(&self, tid: Tid) -> Option<Pid> {
        self.first_word(tid).flatten()
    }

    fn first_word(&self, tid: Tid) -> Option<Option<Pid>> {
        let only = || self.processes.get(&tid).copied();
        self.first_processes.get(&tid).copied().or_else(only)
    }

    /// Gives whether that is news.
    pub(crate) fn says(&mut self, tid: Tid, pid: Pid) -> bool {
        if self.processes.get(&tid) == Some(&Some(pid)) {
            return false;
        }
        self.set_words(tid, self.first_word(tid).unwrap_or(Some(pid)), Some(pid));
        true
    }

    pub(crate) fn born(&mut self, tid: Tid, pid: Pid) {
        self.set_words(tid, self.first_word(tid).unwrap_or(None), Some(pid));
    }

    /// The thread has ended: its number is nobody's.
    pub(crate) fn ends(&mut self, tid: Tid) {
        self.set_words(tid, self.first_word(tid).unwrap_or(None), None);
    }

    /// Whether nothing was said about a number but that its thread has ended.
    pub(crate) fn is_ended(&self, tid: Tid) -> bool {
        self.processes.get(&tid) == Some(&None) && !self.first_processes.contains_key(&tid)
    }

    /// Forgets numbers of which nothing else is known; `has_ended` says so.
    pub(crate) fn forget_ended(&mut self, has_ended: &Numbers) {
        self.processes.retain(|tid, _| !has_ended.contains(*tid));
    }

    fn set_words(&mut self, tid: Tid, first: Option<Pid>, last: Option<Pid>) {
        self.processes.insert(tid, last);
        if first == last {
            self.first_processes.remove(&tid);
        } else {
            self.first_processes.insert(tid, first);
        }
    }

    pub(crate) fn has_table(&mut self, table: TableKey, pid: Pid) {
        self.tables.insert(table, pid);
    }

    /// Who shares descriptor tables.
    pub(crate) fn sharing(&mut self, entry: &Identities) -> &mut Sharing {
        self.sharing.now(entry)
    }

    /// Whether an earlier switch tells who has a CPU, not a later one.
    pub(crate) fn got_cpu(&self, cpu: CpuId, entry: &Identities) -> bool {
        let by_entry = || {
            let before_loss = self.forgotten == Forgotten::No;
            before_loss && matches!(entry.cpus.get(&cpu), Some(OnCpu::Got(_)))
        };
        self.last.get(&cpu).map_or_else(by_entry, Option::is_some)
    }

    /// The thread that has a CPU.
    pub(crate) fn on_cpu(&mut self, cpu: CpuId, entry: &Identities) -> Option<Tid> {
        if let Some(known) = self.last.get(&cpu) {
            return *known;
        }
        if self.forgotten != Forgotten::No {
            return None;
        }
        let on = entry.cpus.get(&cpu).copied().unwrap_or(OnCpu::Nobody);
        self.assumed.cpus.insert(cpu, on);
        on.thread()
    }

    /// The process of a thread by what was said before.
    pub(crate) fn process_in(&mut self, tid: Tid, entry: &Identities) -> Option<Pid> {
        if let Some(known) = self.processes.get(&tid) {
            return *known;
        }
        let assumed = self.assumed.processes.entry(tid);
        *assumed.or_insert_with(|| entry.processes.get(&tid).copied())
    }

    /// The process that a descriptor table was dumped with.
    pub(crate) fn process_of_table(&mut self, table: TableKey, entry: &Identities) -> Option<Pid> {
        if let Some(known) = self.tables.get(&table) {
            return Some(*known);
        }
        let assumed = self.assumed.tables.entry(table);
        *assumed.or_insert_with(|| entry.tables.get(&table).copied())
    }

    /// Who is who after this, when it began with nothing known but what it used.
    pub(crate) fn after(&self, spans: Spans) -> Identities {
        let mut cpus = self.open_assumptions().cloned().unwrap_or_default();
        let last = self.last.iter();
        cpus.extend(last.map(|(cpu, tid)| (*cpu, tid.map_or(OnCpu::Nobody, OnCpu::Got))));
        Identities {
            cpus,
            are_lost: self.forgotten == Forgotten::Lost,
            processes: self.processes().collect(),
            tables: self.tables.clone(),
            spans,
            sharing: self.sharing.used.as_ref().map(|used| used.now.clone()).unwrap_or_default(),
            now: None,
        }
    }

    /// Whether what follows begins like a recording.
    pub(crate) fn ends_in_gap(&self) -> bool {
        self.forgotten == Forgotten::Gap && self.last.is_empty()
    }

    /// Whether the right part was mapped behind this one. Nothing is changed.
    /// Numbers that have `ended` are nobody's.
    pub(crate) fn check(&self, right: &Self, ended: &Numbers) -> Result<(), Error> {
        if !self.sharing.agrees(&right.sharing) {
            return stale(Assumption::Sharing);
        }
        for (cpu, assumed) in &right.assumed.cpus {
            if !self.ends_with(*cpu, *assumed) {
                return stale(Assumption::OnCpu { cpu: *cpu, tid: assumed.thread() });
            }
        }
        for (cpu, first) in right.first.iter() {
            if let Some(OnCpu::Leaves(tid)) = self.open_assumption(*cpu)
                && *first != Some(tid)
            {
                return stale(Assumption::OnCpu { cpu: *cpu, tid: Some(tid) });
            }
        }
        for (tid, assumed) in &right.assumed.processes {
            let known = self.processes.get(tid).copied();
            let known = known.or_else(|| ended.contains(*tid).then_some(None));
            let known = known.or_else(|| self.assumed.processes.get(tid).copied());
            if known.is_some_and(|known| known != *assumed) {
                return stale(Assumption::ProcessOf { tid: *tid, pid: *assumed });
            }
        }
        for (table, assumed) in &right.assumed.tables {
            let known = self.tables.get(table).map(|pid| Some(*pid));
            let known = known.or_else(|| self.assumed.tables.get(table).copied());
            if known.is_some_and(|known| known != *assumed) {
                return stale(Assumption::TableOf { table: *table, pid: *assumed });
            }
        }
        Ok(())
    }

    /// What of the CPUs was assumed since the begin or the last gap.
    fn open_assumptions(&self) -> Option<&BTreeMap<CpuId, OnCpu>> {
        match self.forgotten {
            Forgotten::No => Some(&self.assumed.cpus),
            Forgotten::Gap => Some(&self.after_gap),
            Forgotten::Lost => None,
        }
    }

    /// What was assumed about a CPU of which no switch was seen since.
    fn open_assumption(&self, cpu: CpuId) -> Option<OnCpu> {
        let assumed = self.open_assumptions()?.get(&cpu).copied();
        assumed.filter(|_| !self.last.contains_key(&cpu))
    }

    fn ends_with(&self, cpu: CpuId, assumed: OnCpu) -> bool {
        match (self.last.get(&cpu), self.forgotten) {
            (Some(Some(tid)), _) => assumed == OnCpu::Got(*tid),
            (Some(None), _) | (None, Forgotten::Lost) => assumed == OnCpu::Nobody,
            (None, Forgotten::Gap) => match self.open_assumption(cpu) {
                Some(mine) => mine == assumed,
                None => !matches!(assumed, OnCpu::Got(_)),
            },
            (None, Forgotten::No) => self.open_assumption(cpu).is_none_or(|mine| mine == assumed),
        }
    }

    /// Appends the right part, which passed [`Self::check`].
    pub(crate) fn append(&mut self, right: Self) {
        let unseen = |(cpu, _): &(CpuId, OnCpu)| !self.last.contains_key(cpu);
        let assumed = right.assumed.cpus.into_iter().filter(unseen);
        match self.forgotten {
            Forgotten::No => self.assumed.cpus.extend(assumed),
            Forgotten::Gap => self.after_gap.extend(assumed),
            Forgotten::Lost => {}
        }
        if self.forgotten == Forgotten::No {
            for (cpu, first) in right.first.into_entries() {
                self.first.or_insert_with(&cpu, || first);
            }
        }
        for (tid, assumed) in right.assumed.processes {
            if !self.processes.contains_key(&tid) {
                self.assumed.processes.insert(tid, assumed);
            }
        }
        for (table, assumed) in right.assumed.tables {
            if !self.tables.contains_key(&table) {
                self.assumed.tables.insert(table, assumed);
            }
        }
        if right.forgotten != Forgotten::No {
            self.last.clear();
            self.forgotten = right.forgotten;
            self.after_gap = right.after_gap;
        }
        self.last.extend(right.last);
        self.sharing.append(right.sharing);
        self.tables.extend(right.tables);
        for (tid, last) in right.processes.into_entries() {
            let first = right.first_processes.get(&tid).copied().unwrap_or(last);
            self.set_words(tid, self.first_word(tid).unwrap_or(first), last);
        }
    }
}
