//! Complete system calls by thread and name.

use std::collections::BTreeMap;

use model::{CpuId, Fd, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::sieve::{Item, Sieve};
use super::stat::{Histogram, Stat};
use super::top::Top;
use crate::call::{Call, HeadExit, InFlight, Makes};
use crate::ident::{Ident, Left};
use crate::keyed::Keyed;
use crate::name::CallName;
use crate::operation::Operation;
use crate::select::Logged;

/// Calls of one name by one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallRow {
    pub(crate) ns: Stat,
    pub(crate) bytes: u64,
    /// Calls that the kernel begins again by itself: neither a success nor an error that anyone sees.
    pub(crate) restarted: u64,
    /// Returns that a loss of events lies before; counted nowhere else.
    pub(crate) uncertain: u64,
    /// Failures by error number. Bound: 4,095 numbers.
    pub(crate) errors: BTreeMap<u16, u64>,
}

/// How sure it is that a call ran from its begin to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sure {
    #[default]
    Certain,
    /// Events were lost before its return, which may be that of a later call of its name.
    Uncertain,
    /// Nobody saw it begin.
    Unbegun,
}

/// One call that returned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DoneCall {
    pub(crate) tid: Tid,
    pub(crate) name: CallName,
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    /// Where it returned.
    pub(crate) cpu: Option<CpuId>,
    pub(crate) ret: i64,
    fd: Option<Fd>,
    pub(crate) file: Option<Ident>,
    /// Whether its return value stands for a file.
    makes: bool,
    /// Only logs have any that is not certain, and what is logged is given away before a summary is written.
    #[serde(skip)]
    pub(crate) sure: Sure,
}

/// Calls of one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadCalls {
    /// Bound: names of calls it makes.
    pub(crate) rows: Keyed<CallName, CallRow>,
    /// Returns of calls that this thread, or one whose number it took, had in flight at the left boundary. Bound: one, and
    /// one for each exec by a thread that is not the first of its process.
    pub(crate) heads: Vec<(Tid, HeadExit)>,
}

/// How long calls took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lengths {
    pub(crate) ns: Stat,
    pub(crate) lengths: Histogram,
}

/// The longest calls that work on files. Bound: kinds of operation times what a [`Top`] keeps.
pub(crate) type Longest = BTreeMap<Operation, Top<DoneCall>>;

impl Item for DoneCall {
    fn begin(&self) -> Timestamp {
        self.begin
    }

    fn end(&self) -> Timestamp {
        self.end
    }

    fn is_in(&self, log: Logged) -> bool {
        match log {
            Logged::Calls => true,
            Logged::Operations => self.operation().is_some(),
            _ => false,
        }
    }

    fn tid(&self) -> Option<Tid> {
        Some(self.tid)
    }

    fn cpu(&self) -> Option<CpuId> {
        self.cpu
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.moved())
    }
}

impl DoneCall {
    fn of(call: &Call, exit: &HeadExit) -> Self {
        let opened = || exit.opened.clone().map(Ident::named);
        let file = || opened().or_else(|| call.file.clone());
        Self {
            tid: exit.tid,
            name: call.name.clone(),
            begin: call.at,
            end: exit.at,
            cpu: exit.cpu,
            ret: exit.ret,
            fd: call.fd,
            file: file(),
            makes: matches!(call.makes, Makes::One(_)),
            sure: Sure::Certain,
        }
    }

    /// One whose begin nobody saw.
    fn unbegun(exit: &HeadExit) -> Self {
        Self {
            tid: exit.tid,
            name: exit.name.clone(),
            begin: exit.at,
            end: exit.at,
            cpu: exit.cpu,
            ret: exit.ret,
            fd: None,
            file: exit.opened.clone().map(Ident::named),
            makes: false,
            sure: Sure::Unbegun,
        }
    }

    /// The descriptor that it made, or worked on.
    pub(crate) fn descriptor(&self) -> Option<Fd> {
        if !self.makes && self.operation() != Some(Operation::Open) {
            return self.fd;
        }
        i32::try_from(self.ret).ok().filter(|fd| *fd >= 0).map(Fd::new)
    }

    /// What it does to its file. `fcntl` opens one where it duplicates a descriptor.
    pub(crate) fn operation(&self) -> Option<Operation> {
        Operation::of(self.name.text()).or(self.duplicates().then_some(Operation::Open))
    }

    fn duplicates(&self) -> bool {
        self.makes && self.name.text() == "fcntl"
    }

    /// How many bytes it moved.
    pub(crate) fn moved(&self) -> u64 {
        moved(&self.name, self.ret)
    }
}

/// Calls of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallStats {
    /// How long calls of each name took. Bound: names of calls.
    pub(crate) lengths: Keyed<CallName, Histogram>,
    /// Those of `fcntl` that open a descriptor, which others of the name do not.
    pub(crate) duplicates: Lengths,
    pub(crate) longest: Longest,
    pub(crate) sieve: Sieve<DoneCall>,
}

impl CallRow {
    pub(crate) fn append(&mut self, more: &Self) {
        self.ns.append(&more.ns);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.restarted = self.restarted.saturating_add(more.restarted);
        self.uncertain = self.uncertain.saturating_add(more.uncertain);
        for (number, more) in &more.errors {
            let count = self.errors.entry(*number).or_default();
            *count = count.saturating_add(*more);
        }
    }

    fn take(&mut self, ns: u64, moved: u64, ret: i64) {
        self.ns.take(ns);
        self.bytes = self.bytes.saturating_add(moved);
        if ret >= 0 {
            return;
        }
        match u16::try_from(ret.unsigned_abs()) {
            Ok(512..=516) => self.restarted = self.restarted.saturating_add(1),
            Ok(number @ 1..=4095) => {
                let count = self.errors.entry(number).or_default();
                *count = count.saturating_add(1);
            }
            _ => {}
        }
    }
}

/// How many bytes a call of that name moved that returned this.
fn moved(name: &CallName, ret: i64) -> u64 {
    u64::try_from(ret).ok().filter(|_| name.traits().is_transfer()).unwrap_or(0)
}

impl Lengths {
    pub(crate) fn append(&mut self, more: &Self) {
        self.ns.append(&more.ns);
        self.lengths.append(&more.lengths);
    }
}

impl CallStats {
    /// Counts a return of a thread: with its begin, as one that waits for the left, or not at all. `own` is the thread that
    /// this call is in flight of.
    pub(crate) fn count(
        &mut self,
        own: Tid,
        thread: &mut ThreadCalls,
        exit: &HeadExit,
        in_flight: &InFlight,
    ) {
        match in_flight {
            InFlight::AsLeft(left) => {
                thread.heads.push((left.of.unwrap_or(own), exit.clone().after(*left)));
            }
            InFlight::Call(call) if call.ends_with(&exit.name) => {
                if call.is_uncertain || exit.taint.is_certain() {
                    let row = thread.rows.or_default(&call.name);
                    row.uncertain = row.uncertain.saturating_add(1);
                    self.sieve.note(Logged::Calls, || DoneCall {
                        sure: Sure::Uncertain,
                        ..DoneCall::of(call, exit)
                    });
                    return;
                }
                if self.selects(call, exit) {
                    self.take(thread, call, exit);
                }
            }
            InFlight::Birth if exit.name.is_empty() && exit.ret == 0 => {}
            InFlight::Birth | InFlight::Nothing | InFlight::Call(_) => self.note_unbegun(exit),
        }
    }

    /// Logs a return of a call that nobody saw begin.
    fn note_unbegun(&mut self, exit: &HeadExit) {
        if !exit.is_birth() {
            self.sieve.note(Logged::Calls, || DoneCall::unbegun(exit));
        }
    }

    /// Whether a call counts; it is kept by itself where that is asked for.
    fn selects(&mut self, call: &Call, exit: &HeadExit) -> bool {
        let Some(selection) = self.sieve.selection() else { return true };
        let wants_longest = selection.longest_calls;
        let done = DoneCall::of(call, exit);
        let passes = self.sieve.passes(&done);
        if let Some(operation) = done.operation().filter(|_| passes && wants_longest) {
            self.longest.entry(operation).or_default().push(&done);
        }
        passes
    }

    fn take(&mut self, thread: &mut ThreadCalls, call: &Call, exit: &HeadExit) {
        let ns = exit.at.since(call.at).get();
        thread.rows.or_default(&call.name).take(ns, moved(&call.name, exit.ret), exit.ret);
        self.lengths.or_default(&call.name).take(ns);
        if matches!(call.makes, Makes::One(_)) && call.name.text() == "fcntl" {
            self.duplicates.ns.take(ns);
            self.duplicates.lengths.take(ns);
        }
    }

    /// Puts in the calls that threads had in flight at the left boundary.
    pub(crate) fn resolve(&mut self, thread: &mut ThreadCalls, left: &impl Left) {
        for (own, exit) in std::mem::take(&mut thread.heads) {
            self.count(own, thread, &exit.resolved(own, left), left.in_flight(own));
        }
    }

    /// Puts in the files of the left boundary.
    pub(crate) fn resolve_files(&mut self, left: &impl Left) {
        let files = |call: &mut DoneCall| {
            if let Some(file) = &mut call.file {
                file.resolve(left);
            }
        };
        self.longest.values_mut().for_each(|longest| longest.change(files));
        self.sieve.logged_mut().iter_mut().for_each(files);
    }

    /// The window is complete.
    pub(crate) fn settle(&mut self) {
        self.longest.values_mut().for_each(Top::keep_longest);
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (name, lengths) in right.lengths.into_entries() {
            self.lengths.or_default(&name).append(&lengths);
        }
        self.duplicates.append(&right.duplicates);
        for (operation, longest) in right.longest {
            self.longest.entry(operation).or_default().append(longest);
        }
        self.sieve.append(right.sieve);
    }

    /// Nothing lies to the left of a thread: no call had begun there.
    pub(crate) fn close_thread(&mut self, thread: &mut ThreadCalls) {
        for (_, exit) in std::mem::take(&mut thread.heads) {
            self.note_unbegun(&exit);
        }
    }

    /// The same, and nothing counted.
    pub(crate) fn emptied(self) -> Self {
        Self { sieve: self.sieve.emptied(), ..Self::default() }
    }
}

impl ThreadCalls {
    pub(crate) fn append(&mut self, right: Self) {
        self.rows.add_all(right.rows, |row, more| row.append(&more));
        self.heads.extend(right.heads);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.heads.is_empty()
    }

    /// Adds what another life counted.
    pub(crate) fn add(&mut self, more: &Self) {
        for (name, row) in more.rows.iter_unordered() {
            self.rows.or_default(name).append(row);
        }
    }

    /// Takes no more room than it needs.
    pub(crate) fn shrink(&mut self) {
        self.rows.shrink();
    }

    pub(crate) fn empty(&mut self) {
        self.rows.clear();
    }
}
