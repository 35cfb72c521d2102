//! Complete system calls by thread and name.

use std::collections::BTreeMap;

use model::Tid;
use serde::{Deserialize, Serialize};

use super::stat::{Histogram, Stat};
use crate::call::{HeadExit, InFlight, is_transfer};
use crate::keyed::Keyed;
use crate::name::CallName;

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

/// Calls of one thread; its first return may wait for its begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadCalls {
    /// Bound: names of calls it makes.
    pub(crate) rows: Keyed<CallName, CallRow>,
    head: Option<HeadExit>,
}

/// Calls of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallStats {
    /// How long calls of each name took. Bound: names of calls.
    pub(crate) lengths: Keyed<CallName, Histogram>,
    /// First returns of calls that another thread had in flight at the left boundary. Bound: execs by threads that are not
    /// the first of their process.
    taken_over: BTreeMap<Tid, HeadExit>,
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

    fn take(&mut self, name: &CallName, ns: u64, ret: i64) {
        self.ns.take(ns);
        if ret > 0 {
            if is_transfer(name.text()) {
                self.bytes = self.bytes.saturating_add(ret.unsigned_abs());
            }
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
                let (own, exit) = (left.of.unwrap_or(own), exit.clone().after(*left));
                if own == exit.tid {
                    thread.head = Some(exit);
                } else {
                    self.taken_over.insert(own, exit);
                }
            }
            InFlight::Call(call) if call.ends_with(&exit.name) => {
                let row = thread.rows.or_default(&call.name);
                if call.is_uncertain || exit.is_uncertain {
                    row.uncertain = row.uncertain.saturating_add(1);
                    return;
                }
                let ns = exit.at.since(call.at).get();
                row.take(&call.name, ns, exit.ret);
                self.lengths.or_default(&call.name).take(ns);
            }
            InFlight::Birth | InFlight::Nothing | InFlight::Call(_) => {}
        }
    }

    /// Puts in the call that a thread had in flight at the left boundary.
    pub(crate) fn resolve(&mut self, own: Tid, thread: &mut ThreadCalls, in_flight: &InFlight) {
        if let Some(exit) = thread.head.take() {
            self.count(own, thread, &exit, in_flight);
        }
    }

    /// The returns of calls that other threads had in flight at the left boundary, whose numbers they took.
    pub(crate) fn taken_over(&mut self) -> BTreeMap<Tid, HeadExit> {
        std::mem::take(&mut self.taken_over)
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (name, lengths) in right.lengths.into_entries() {
            self.lengths.or_default(&name).append(&lengths);
        }
        self.taken_over.extend(right.taken_over);
    }
}

impl ThreadCalls {
    pub(crate) fn append(&mut self, right: Self) {
        for (name, row) in right.rows.into_entries() {
            self.rows.or_default(&name).append(&row);
        }
        self.head = right.head.or(self.head.take());
    }
}
