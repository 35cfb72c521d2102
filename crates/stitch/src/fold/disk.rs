//! Requests to block devices: from the issue to the completion of the same sector of the same device.
//!
//! Issues of one sector that wait for their completion form a stack, so that a request which begins and ends inside a
//! window says nothing about what lies to its left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::sieve::{Item, Sieve};
use super::stat::{Histogram, Stat};
use super::top::Top;
use crate::fact::{BlockOp, Dev};
use crate::select::Logged;

/// How many requests may wait for their completion, and how many completions for an issue to the left. More than any
/// queue holds; beyond it, requests are counted as [`Disks::incomplete`].
const MAX_OPEN: usize = 65_536;

/// A request that was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Issue {
    pub(crate) at: Timestamp,
    pub(crate) sectors: u32,
    pub(crate) op: BlockOp,
    pub(crate) tid: Option<Tid>,
}

/// A complete request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) dev: Dev,
    pub(crate) sector: u64,
    pub(crate) issue: Issue,
    pub(crate) end: Timestamp,
}

impl Item for Request {
    fn begin(&self) -> Timestamp {
        self.issue.at
    }

    fn end(&self) -> Timestamp {
        self.end
    }

    fn is_in(&self, log: Logged) -> bool {
        log == Logged::Requests
    }

    fn tid(&self) -> Option<Tid> {
        Some(self.issue.tid.unwrap_or(Tid::IDLE))
    }

    fn bytes(&self) -> Option<u64> {
        Some(u64::from(self.issue.sectors) * 512)
    }
}

/// Requests of one device and kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskRow {
    pub(crate) ns: Stat,
    pub(crate) lengths: Histogram,
    pub(crate) sectors: u64,
}

/// Requests by device, and what a window leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disks {
    /// Bound: devices times kinds of request.
    pub(crate) rows: BTreeMap<(Dev, BlockOp), DiskRow>,
    /// Bytes by thread that issued: read and everything else. Bound: threads.
    pub(crate) threads: BTreeMap<Tid, (u64, u64)>,
    pub(crate) top: Top<Request>,
    pub(crate) sieve: Sieve<Request>,
    /// Which devices are mapped onto which. Bound: devices.
    pub(crate) parts: BTreeMap<Dev, BTreeSet<Dev>>,
    /// Bound: devices.
    pub(crate) names: BTreeMap<Dev, Arc<str>>,
    /// Requests that were dropped because too many were open.
    pub(crate) incomplete: u64,
    /// Completions without an issue in the window, in order.
    heads: BTreeMap<(Dev, u64), Vec<Timestamp>>,
    open: BTreeMap<(Dev, u64), Vec<Issue>>,
    forgotten: bool,
}

impl Disks {
    pub(crate) fn issue(&mut self, dev: Dev, sector: u64, issue: Issue) {
        if self.open.len() >= MAX_OPEN {
            self.incomplete = self.incomplete.saturating_add(1);
            return;
        }
        self.open.entry((dev, sector)).or_default().push(issue);
    }

    pub(crate) fn complete(&mut self, dev: Dev, sector: u64, at: Timestamp) {
        let key = (dev, sector);
        let Some(open) = self.open.get_mut(&key) else {
            if !self.forgotten && self.heads.len() < MAX_OPEN {
                self.heads.entry(key).or_default().push(at);
            } else {
                self.incomplete = self.incomplete.saturating_add(1);
            }
            return;
        };
        let issue = open.pop();
        if open.is_empty() {
            self.open.remove(&key);
        }
        if let Some(issue) = issue {
            self.count(Request { dev, sector, issue, end: at });
        }
    }

    fn count(&mut self, request: Request) {
        if !self.sieve.passes(&request) {
            return;
        }
        let Request { dev, issue, .. } = request;
        let ns = request.ns();
        let row = self.rows.entry((dev, issue.op)).or_default();
        row.ns.take(ns);
        row.lengths.take(ns);
        row.sectors = row.sectors.saturating_add(u64::from(issue.sectors));
        let (read, written) = self.threads.entry(issue.tid.unwrap_or(Tid::IDLE)).or_default();
        let bytes = request.bytes().unwrap_or(0);
        let sum = if issue.op == BlockOp::Read { read } else { written };
        *sum = sum.saturating_add(bytes);
        self.top.push(&request);
    }

    pub(crate) fn map(&mut self, dev: Dev, part: Dev) {
        if !self.parts.get(&dev).is_some_and(|parts| parts.contains(&part)) {
            self.parts.entry(dev).or_default().insert(part);
        }
    }

    /// A dump says what a device is called; the first word counts.
    pub(crate) fn name(&mut self, dev: Dev, name: Arc<str>) {
        self.names.entry(dev).or_insert(name);
    }

    /// Events of every CPU are missing.
    pub(crate) fn forget_all(&mut self) {
        self.open.clear();
        self.forgotten = true;
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (key, more) in &right.rows {
            let row = self.rows.entry(*key).or_default();
            row.ns.append(&more.ns);
            row.lengths.append(&more.lengths);
            row.sectors = row.sectors.saturating_add(more.sectors);
        }
        for (tid, (read, written)) in right.threads {
            let sums = self.threads.entry(tid).or_default();
            *sums = (sums.0.saturating_add(read), sums.1.saturating_add(written));
        }
        for (dev, parts) in right.parts {
            self.parts.entry(dev).or_default().extend(parts);
        }
        for (dev, name) in right.names {
            self.name(dev, name);
        }
        self.incomplete = self.incomplete.saturating_add(right.incomplete);
        for ((dev, sector), ends) in right.heads {
            ends.into_iter().for_each(|end| self.complete(dev, sector, end));
        }
        if right.forgotten {
            self.forget_all();
        }
        for (key, open) in right.open {
            self.open.entry(key).or_default().extend(open);
        }
        // Last: what the merge itself brought to an end must find its place too.
        self.top.append(right.top);
        self.sieve.append(right.sieve);
    }

    /// The same with nothing to the left: nothing was issued.
    pub(crate) fn closed(self) -> Self {
        let sieve = self.sieve.emptied();
        let mut nothing = Self { forgotten: true, sieve, ..Self::default() };
        nothing.append(self);
        nothing
    }

    /// The same, and nothing counted.
    pub(crate) fn emptied(self) -> Self {
        let Self { sieve, parts, names, heads, open, forgotten, .. } = self;
        Self { sieve: sieve.emptied(), parts, names, heads, open, forgotten, ..Self::default() }
    }
}
