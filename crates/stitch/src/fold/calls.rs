//! Complete system calls by thread and name.

use std::collections::BTreeMap;

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
}

impl CallRow {
    pub(crate) fn append(&mut self, more: &Self) {
        self.ns.append(&more.ns);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.restarted = self.restarted.saturating_add(more.restarted);
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
    /// Counts a return of a thread: with its begin, as one that waits for the left, or not at all.
    pub(crate) fn count(
        &mut self,
        thread: &mut ThreadCalls,
        exit: &HeadExit,
        in_flight: &InFlight,
    ) {
        match in_flight {
            InFlight::AsLeft => thread.head = Some(exit.clone()),
            InFlight::Call(call) if call.name == exit.name => {
                let ns = exit.at.since(call.at).get();
                thread.rows.or_default(&call.name).take(&call.name, ns, exit.ret);
                self.lengths.or_default(&call.name).take(ns);
            }
            InFlight::Birth | InFlight::Nothing | InFlight::Call(_) => {}
        }
    }

    /// Puts in the call that a thread had in flight at the left boundary.
    pub(crate) fn resolve(&mut self, thread: &mut ThreadCalls, in_flight: &InFlight) {
        if let Some(exit) = thread.head.take() {
            self.count(thread, &exit, in_flight);
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (name, lengths) in right.lengths.into_entries() {
            self.lengths.or_default(&name).append(&lengths);
        }
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
