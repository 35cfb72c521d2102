//! Which series stay when there are too many.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use wire::remote_write::Labels;

use crate::rule::RULE_ID;

/// How many series there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Of a tenant.
    pub all: usize,
    /// Of one metric of one rule; rules of the default form share their metrics.
    pub of_metric: usize,
}

impl Default for SeriesLimits {
    /// A Prometheus takes some millions of all its tenants together.
    fn default() -> Self {
        Self { all: 50_000, of_metric: 10_000 }
    }
}

/// Limits, and the series that were there before.
///
/// Known series keep their places, whether a cell has something of them or not; the first of the others by their labels get what is left.
/// All parts of one cell must be summed and merged under the same bounds.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    limits: SeriesLimits,
    /// Known series with a place; the first by their labels, when they are too many themselves.
    known: BTreeSet<Labels>,
    /// How many of these each metric has.
    taken: HashMap<Metric, usize>,
}

/// A metric's name and the rule of it, if it has a name of its own.
type Metric = (String, Option<String>);

fn metric(labels: &Labels) -> Metric {
    (labels.metric().to_owned(), labels.get(RULE_ID).map(str::to_owned))
}

impl Bounds {
    /// With the series that are exported already, by the labels of their deltas.
    #[must_use]
    pub fn new(limits: SeriesLimits, known: impl IntoIterator<Item = Labels>) -> Self {
        let mut bounds = Self { limits, ..Self::default() };
        let known: BTreeSet<Labels> = known.into_iter().collect();
        for labels in known {
            let of_metric = bounds.taken.entry(metric(&labels)).or_default();
            if *of_metric < limits.of_metric && bounds.known.len() < limits.all {
                *of_metric += 1;
                bounds.known.insert(labels);
            }
        }
        bounds
    }

    /// What decides about so many series; none when all may stay.
    pub(super) fn admits(&self, series: usize) -> Option<Admits<'_>> {
        // Known ones may have nothing in this cell and a place all the same.
        let most = series.saturating_add(self.known.len());
        let is_much = most > self.limits.all.min(self.limits.of_metric);
        is_much.then(|| Admits { bounds: self, of_metric: HashMap::new(), all: self.known.len() })
    }

    /// How many series there may be.
    pub(super) const fn most(&self) -> usize {
        self.limits.all
    }
}

/// Decides about series in their order.
pub(super) struct Admits<'a> {
    bounds: &'a Bounds,
    of_metric: HashMap<Metric, usize>,
    all: usize,
}

impl Admits<'_> {
    pub(super) fn next(&mut self, labels: &Labels) -> bool {
        let Self { bounds, of_metric, all } = self;
        if bounds.known.contains(labels) {
            return true;
        }
        let metric = metric(labels);
        let taken = bounds.taken.get(&metric).copied().unwrap_or_default();
        let of_metric = of_metric.entry(metric).or_insert(taken);
        // A series without a place in its metric has none anywhere, so that the others' places do not depend on it.
        if *of_metric >= bounds.limits.of_metric {
            return false;
        }
        *of_metric += 1;
        if *all >= bounds.limits.all {
            return false;
        }
        *all += 1;
        true
    }
}
