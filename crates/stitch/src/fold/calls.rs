//! Complete system calls by thread and name.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Tid;
use serde::{Deserialize, Serialize};

use super::stat::{Histogram, Stat};
use crate::call::{HeadExit, InFlight, is_transfer};
use crate::ident::Left;

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

/// Calls by thread and name; the first return of each thread may wait for its begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallStats {
    /// Bound: threads times the names of calls they make.
    pub(crate) rows: BTreeMap<Tid, BTreeMap<Arc<str>, CallRow>>,
    /// How long calls of each name took. Bound: names of calls.
    pub(crate) lengths: BTreeMap<Arc<str>, Histogram>,
    /// At most one for each thread.
    heads: BTreeMap<Tid, HeadExit>,
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

    fn take(&mut self, name: &str, ns: u64, ret: i64) {
        self.ns.take(ns);
        match u16::try_from(ret.unsigned_abs()) {
            Ok(512..=516) if ret < 0 => self.restarted = self.restarted.saturating_add(1),
            Ok(number @ 1..=4095) if ret < 0 => {
                let count = self.errors.entry(number).or_default();
                *count = count.saturating_add(1);
            }
            _ if ret > 0 && is_transfer(name) => {
                self.bytes = self.bytes.saturating_add(ret.unsigned_abs());
            }
            _ => {}
        }
    }
}

impl CallStats {
    /// Counts a return: with its begin, as one that waits for the left, or not at all.
    pub(crate) fn count(&mut self, tid: Tid, exit: &HeadExit, in_flight: &InFlight) {
        match in_flight {
            InFlight::AsLeft => {
                self.heads.insert(tid, exit.clone());
            }
            InFlight::Call(call) if call.name == exit.name => {
                let ns = exit.at.since(call.at).get();
                let names = self.rows.entry(tid).or_default();
                let row = match names.get_mut(&call.name) {
                    Some(row) => row,
                    None => names.entry(Arc::clone(&call.name)).or_default(),
                };
                row.take(&call.name, ns, exit.ret);
                match self.lengths.get_mut(&call.name) {
                    Some(lengths) => lengths.take(ns),
                    None => self.lengths.entry(Arc::clone(&call.name)).or_default().take(ns),
                }
            }
            InFlight::Birth | InFlight::Nothing | InFlight::Call(_) => {}
        }
    }

    /// Puts in the calls that were in flight at the left boundary.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        for (tid, exit) in std::mem::take(&mut self.heads) {
            self.count(tid, &exit, left.in_flight(tid));
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (tid, names) in right.rows {
            let mine = self.rows.entry(tid).or_default();
            for (name, row) in names {
                mine.entry(name).or_default().append(&row);
            }
        }
        for (name, lengths) in right.lengths {
            self.lengths.entry(name).or_default().append(&lengths);
        }
        self.heads.extend(right.heads);
    }
}
