//! Interrupts: how long their handlers ran, and how long soft ones waited after they were raised.
//!
//! Handlers of one CPU nest; each is counted from its own entry to its own exit. An exit ends what was entered above its
//! own entry, without counting it; an exit that nobody entered shows that the whole stack is wrong. An entry of a line
//! that is already being handled shows that an exit is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{CpuId, Timestamp};
use serde::{Deserialize, Serialize};

use super::sieve::{Item, Sieve};
use super::stat::{Histogram, Stat};
use crate::fact::Line;
use crate::select::Logged;

/// How many names a line keeps: the first in the order of the alphabet.
const MAX_NAMES: usize = 16;

/// One run of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Handler {
    pub(crate) line: Line,
    pub(crate) cpu: CpuId,
    pub(crate) entry: Entry,
    pub(crate) end: Timestamp,
}

/// A handler begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) at: Timestamp,
    /// When a soft line was raised first, as far as the window knows.
    pub(crate) raised: Option<Timestamp>,
    /// Whether the left may know an earlier raise: of each CPU and line at most the first entry.
    asks_left: bool,
}

impl Item for Handler {
    fn begin(&self) -> Timestamp {
        self.entry.at
    }

    fn end(&self) -> Timestamp {
        self.end
    }

    fn is_in(&self, log: Logged) -> bool {
        log == Logged::Interrupts
    }

    fn cpu(&self) -> Option<CpuId> {
        Some(self.cpu)
    }

    fn line(&self) -> Option<Line> {
        Some(self.line)
    }
}

/// Handlers of one line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IrqRow {
    pub(crate) ns: Stat,
    pub(crate) lengths: Histogram,
    /// From the first raise to the entry; soft interrupts only.
    pub(crate) raised: Stat,
}

/// Interrupts by line, and what a window leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Irqs {
    /// Bound: lines.
    pub(crate) rows: BTreeMap<Line, IrqRow>,
    /// Names of hard lines, at most [`MAX_NAMES`] each.
    pub(crate) names: BTreeMap<Line, BTreeSet<Arc<str>>>,
    /// Handlers whose exit or entry nobody saw.
    pub(crate) incomplete: u64,
    pub(crate) sieve: Sieve<Handler>,
    cpus: BTreeMap<CpuId, Stack>,
    /// Whether nothing before the window counts any more, for CPUs that the window does not mention either.
    forgotten: bool,
}

/// The handlers of one CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stack {
    /// What happens to the stack at the left boundary, in order. Bound: each line at most once.
    head: Vec<Step>,
    /// Whether nothing of the left boundary's stack is left.
    rooted: bool,
    /// Whether nothing that was raised at the left boundary counts any more.
    forgotten: bool,
    /// Bound: each line at most once.
    open: Vec<(Line, Entry)>,
    /// Bound: lines.
    raises: BTreeMap<Line, Raise>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    Exit(Line, Timestamp),
    /// A line is entered: if it is being handled, its exit is missing.
    Drop(Line),
    Clear,
}

/// One soft line of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Raise {
    head: Head,
    /// The first raise since the last entry; while the head is open, what was raised at the left comes first.
    pending: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Head {
    Open,
    Entered { raised: Option<Timestamp>, at: Timestamp },
    Over,
}

/// What a step brings to an end.
enum Done {
    Handler(Line, Entry, Timestamp),
    Raised(Line, u64),
    Incomplete(u64),
}

impl Irqs {
    fn stack(&mut self, cpu: CpuId) -> &mut Stack {
        let forgotten = self.forgotten;
        self.cpus.entry(cpu).or_insert_with(|| Stack {
            head: if forgotten { vec![Step::Clear] } else { Vec::new() },
            rooted: forgotten,
            forgotten,
            ..Stack::default()
        })
    }

    fn count(&mut self, cpu: CpuId, done: Done) {
        match done {
            Done::Handler(line, entry, end) => {
                let handler = Handler { line, cpu, entry, end };
                if self.sieve.passes(&handler) {
                    let row = self.rows.entry(line).or_default();
                    row.ns.take(handler.ns());
                    row.lengths.take(handler.ns());
                }
            }
            Done::Raised(line, ns) => {
                let selection = self.sieve.selection();
                if selection.is_none_or(|selection| selection.takes_line(cpu, line)) {
                    self.rows.entry(line).or_default().raised.take(ns);
                }
            }
            Done::Incomplete(handlers) => {
                self.incomplete = self.incomplete.saturating_add(handlers);
            }
        }
    }

    fn step(&mut self, cpu: CpuId, step: impl FnOnce(&mut Stack, &mut dyn FnMut(Done))) {
        let mut stack = std::mem::take(self.stack(cpu));
        step(&mut stack, &mut |done| self.count(cpu, done));
        *self.stack(cpu) = stack;
    }

    pub(crate) fn enter(&mut self, cpu: CpuId, line: Line, at: Timestamp) {
        self.step(cpu, |stack, done| stack.enter(line, at, done));
    }

    pub(crate) fn exit(&mut self, cpu: CpuId, line: Line, at: Timestamp) {
        self.step(cpu, |stack, done| stack.exit(line, at, done));
    }

    pub(crate) fn raise(&mut self, cpu: CpuId, line: Line, at: Timestamp) {
        self.stack(cpu).raise_of(line).pending.get_or_insert(at);
    }

    pub(crate) fn knows_name(&self, line: Line, name: &str) -> bool {
        self.names.get(&line).is_some_and(|names| names.contains(name))
    }

    pub(crate) fn name(&mut self, line: Line, name: Arc<str>) {
        let names = self.names.entry(line).or_default();
        names.insert(name);
        while names.len() > MAX_NAMES {
            names.pop_last();
        }
    }

    /// Events of a CPU are missing.
    pub(crate) fn forget(&mut self, cpu: CpuId) {
        self.step(cpu, Stack::forget);
    }

    /// Events of all CPUs are missing.
    pub(crate) fn forget_all(&mut self) {
        let cpus: Vec<CpuId> = self.cpus.keys().copied().collect();
        cpus.into_iter().for_each(|cpu| self.forget(cpu));
        self.forgotten = true;
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (line, more) in &right.rows {
            let row = self.rows.entry(*line).or_default();
            row.ns.append(&more.ns);
            row.lengths.append(&more.lengths);
            row.raised.append(&more.raised);
        }
        for (line, names) in right.names {
            names.into_iter().for_each(|name| self.name(line, name));
        }
        self.incomplete = self.incomplete.saturating_add(right.incomplete);
        if right.forgotten {
            let mine = self.cpus.keys().filter(|cpu| !right.cpus.contains_key(cpu));
            let unseen: Vec<CpuId> = mine.copied().collect();
            unseen.into_iter().for_each(|cpu| self.forget(cpu));
        }
        let mut sieve = right.sieve;
        for (cpu, more) in right.cpus {
            let mut entries = BTreeMap::new();
            self.step(cpu, |stack, done| entries = stack.append(more, done));
            let asking = sieve.logged_mut().iter_mut().filter(|handler| handler.entry.asks_left);
            for handler in asking.filter(|handler| handler.cpu == cpu) {
                if let Some(entry) = entries.get(&handler.line) {
                    handler.entry = *entry;
                }
            }
        }
        self.sieve.append(sieve);
        self.forgotten |= right.forgotten;
    }

    /// The same with nothing to the left: no handler ran, nothing was raised.
    pub(crate) fn closed(self) -> Self {
        let sieve = self.sieve.emptied();
        let mut nothing = Self { forgotten: true, sieve, ..Self::default() };
        nothing.append(self);
        nothing
    }

    /// The same, and nothing counted.
    pub(crate) fn emptied(self) -> Self {
        let Self { names, sieve, cpus, forgotten, .. } = self;
        Self { names, sieve: sieve.emptied(), cpus, forgotten, ..Self::default() }
    }
}

impl Stack {
    fn enter(&mut self, line: Line, at: Timestamp, done: &mut dyn FnMut(Done)) {
        self.drop_line(line, done);
        let mut entry = Entry { at, raised: None, asks_left: false };
        if let Line::Soft(_) = line {
            let raise = self.raise_of(line);
            (entry.raised, entry.asks_left) = (raise.pending, raise.head == Head::Open);
            if let Some(ns) = raise.enter(at) {
                done(Done::Raised(line, ns));
            }
        }
        self.open.push((line, entry));
    }

    fn raise_of(&mut self, line: Line) -> &mut Raise {
        let head = if self.forgotten { Head::Over } else { Head::Open };
        self.raises.entry(line).or_insert(Raise { head, pending: None })
    }

    fn drop_line(&mut self, line: Line, done: &mut dyn FnMut(Done)) {
        if let Some(found) = self.open.iter().rposition(|(open, _)| *open == line) {
            self.open.remove(found);
            done(Done::Incomplete(1));
        } else if !self.rooted && !self.mentions(line) {
            self.head.push(Step::Drop(line));
        }
    }

    fn exit(&mut self, line: Line, at: Timestamp, done: &mut dyn FnMut(Done)) {
        if let Some(found) = self.open.iter().rposition(|(open, _)| *open == line) {
            let above = self.open.len() - found - 1;
            self.open.truncate(found + 1);
            if let Some((_, entry)) = self.open.pop() {
                done(Done::Handler(line, entry, at));
            }
            done(Done::Incomplete(above as u64));
            return;
        }
        done(Done::Incomplete(self.open.len() as u64));
        self.open.clear();
        if self.rooted || self.mentions(line) {
            done(Done::Incomplete(1));
            self.clear(done);
        } else {
            self.head.push(Step::Exit(line, at));
        }
    }

    /// Whether the left boundary's stack cannot hold this line any more.
    fn mentions(&self, line: Line) -> bool {
        self.head.iter().any(|step| match step {
            Step::Exit(other, _) | Step::Drop(other) => *other == line,
            Step::Clear => true,
        })
    }

    fn clear(&mut self, done: &mut dyn FnMut(Done)) {
        done(Done::Incomplete(self.open.len() as u64));
        self.open.clear();
        if !self.rooted {
            self.head.push(Step::Clear);
            self.rooted = true;
        }
    }

    fn forget(&mut self, done: &mut dyn FnMut(Done)) {
        self.clear(done);
        self.forgotten = true;
        self.raises.values_mut().for_each(Raise::forget);
    }

    /// Appends what happened to the right. Gives the entries that asked when they had been raised.
    fn append(&mut self, right: Self, done: &mut dyn FnMut(Done)) -> BTreeMap<Line, Entry> {
        for step in right.head {
            match step {
                Step::Exit(line, at) => self.exit(line, at, done),
                Step::Drop(line) => self.drop_line(line, done),
                Step::Clear => self.clear(done),
            }
        }
        let mine = self.open.len();
        self.open.extend(right.open);
        if right.forgotten {
            for (line, raise) in &mut self.raises {
                if !right.raises.contains_key(line) {
                    raise.forget();
                }
            }
        }
        let mut entries = BTreeMap::new();
        for (line, more) in right.raises {
            let raise = self.raise_of(line);
            if let Head::Entered { raised, at } = more.head {
                let asks_left = raise.head == Head::Open;
                let entry = Entry { at, raised: raise.pending.or(raised), asks_left };
                entries.insert(line, entry);
            }
            if let Some(ns) = self.raise_of(line).append(more) {
                done(Done::Raised(line, ns));
            }
        }
        self.forgotten |= right.forgotten;
        for (line, open) in self.open.iter_mut().skip(mine).filter(|(_, open)| open.asks_left) {
            if let Some(entry) = entries.get(line) {
                *open = *entry;
            }
        }
        entries
    }
}

impl Raise {
    /// How long it was raised before it is entered here.
    fn enter(&mut self, at: Timestamp) -> Option<u64> {
        let raised = self.pending.take();
        if self.head == Head::Open {
            self.head = Head::Entered { raised, at };
            return None;
        }
        raised.map(|raised| at.since(raised).get())
    }

    fn forget(&mut self) {
        if self.head == Head::Open {
            self.head = Head::Over;
        }
        self.pending = None;
    }

    fn append(&mut self, right: Self) -> Option<u64> {
        match right.head {
            Head::Open => {
                self.pending = self.pending.or(right.pending);
                None
            }
            Head::Over => {
                self.forget();
                self.pending = right.pending;
                None
            }
            Head::Entered { raised, at } => {
                self.pending = self.pending.or(raised);
                let waited = self.enter(at);
                self.pending = right.pending;
                waited
            }
        }
    }
}
