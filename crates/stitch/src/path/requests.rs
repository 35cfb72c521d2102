//! The paths of requests: summed by name, and step by step for the slowest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::trail::{Costs, Id, Walked, What, add};
use crate::call::resolve_keys;

/// How many requests keep their path to be drawn: the slowest.
pub const MAX_PATHS: usize = 50;

/// A request that has ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) tid: Tid,
    pub(crate) name: Arc<str>,
    pub(crate) request: Option<u64>,
}

impl Ended {
    pub(crate) fn wall_ns(&self) -> u64 {
        self.end.since(self.begin).get()
    }
}

/// All requests of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfName {
    pub(crate) requests: u64,
    pub(crate) wall_ns: u64,
    /// Bound: threads times what they do.
    pub(crate) costs: Costs,
}

/// The paths of requests that have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// Bound: names of requests.
    pub(crate) names: BTreeMap<Arc<str>, OfName>,
    /// Unsorted while a window is read; at most twice [`MAX_PATHS`].
    pub(crate) slowest: Vec<(Ended, Walked)>,
    /// Requests whose path leads to the left boundary before they began. Bound: requests that were open at one time.
    pub(super) pending: Vec<(Ended, Id)>,
}

impl Requests {
    pub(super) fn push(&mut self, ended: Ended, walked: Walked) {
        let of_name = match self.names.get_mut(&ended.name) {
            Some(of_name) => of_name,
            None => self.names.entry(Arc::clone(&ended.name)).or_default(),
        };
        of_name.requests = of_name.requests.saturating_add(1);
        of_name.wall_ns = of_name.wall_ns.saturating_add(ended.wall_ns());
        for (key, ns) in &walked.costs {
            add(&mut of_name.costs, key.clone(), *ns);
        }
        self.slowest.push((ended, walked));
        if self.slowest.len() >= 2 * MAX_PATHS {
            self.keep_slowest();
        }
    }

    /// The slowest first; equally slow ones by begin and thread.
    pub(super) fn keep_slowest(&mut self) {
        self.slowest.sort_by(|(one, _), (other, _)| {
            (Reverse(one.wall_ns()), one).cmp(&(Reverse(other.wall_ns()), other))
        });
        self.slowest.truncate(MAX_PATHS);
    }

    /// Changes what was done, wherever it is noted.
    pub(super) fn change(&mut self, change: &impl Fn(&mut What)) {
        let sums = self.names.values_mut().map(|of_name| &mut of_name.costs);
        let walked = self.slowest.iter_mut().map(|(_, walked)| walked);
        let (costs, hops): (Vec<_>, Vec<_>) =
            walked.map(|walked| (&mut walked.costs, &mut walked.hops)).unzip();
        sums.chain(costs).for_each(|costs| change_costs(costs, change));
        hops.into_iter().flatten().for_each(|hop| change(&mut hop.what));
    }

    pub(super) fn append(&mut self, right: Self) {
        for (name, more) in right.names {
            let of_name = self.names.entry(name).or_default();
            of_name.requests = of_name.requests.saturating_add(more.requests);
            of_name.wall_ns = of_name.wall_ns.saturating_add(more.wall_ns);
            more.costs.into_iter().for_each(|(key, ns)| add(&mut of_name.costs, key, ns));
        }
        self.slowest.extend(right.slowest);
        self.keep_slowest();
    }
}

/// Changes what was done in sums; equal ones are added.
pub(super) fn change_costs(costs: &mut Costs, change: &impl Fn(&mut What)) {
    resolve_keys(costs, |(_, what)| change(what), |sum, ns| *sum = sum.saturating_add(ns));
}
