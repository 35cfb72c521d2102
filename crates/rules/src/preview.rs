//! What a rule would make, before it is one.

use std::cmp::Reverse;

use export::Prefix;
use model::samples::Batch;
use serde::Serialize;

use crate::rule::Rule;
use crate::sums::{Bounds, Reason, SeriesLimits, sums};

/// Series that a preview counts; when there are more, it says so.
pub const MAX_SHOWN: usize = 100_000;

/// Series that a preview shows.
pub const EXAMPLES: usize = 20;

/// What a rule would make of some samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// How many series, of deltas; there are as many counters.
    pub series: usize,
    /// Whether there are more than were counted.
    pub is_more: bool,
    /// Those with the largest sums.
    pub examples: Vec<Example>,
    /// Samples of which a label would be missing, as another gets its name.
    pub clashes: u64,
    /// Samples that would be in no series of their own, as receivers take no such labels.
    pub lost: u64,
}

/// A series of a preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Example {
    /// As Prometheus shows it.
    pub series: String,
    /// Of all samples, in the unit of the profile type; digits.
    pub sum: String,
    /// How many samples.
    pub samples: u64,
}

/// What a rule alone would make of these samples.
#[must_use]
pub fn preview(rule: &Rule, prefix: &Prefix, batch: &Batch) -> Preview {
    let limits = SeriesLimits { all: MAX_SHOWN, of_metric: MAX_SHOWN };
    let found = sums([rule], prefix, batch, &Bounds::new(limits, []));
    let of = |wanted: fn(Reason) -> bool| {
        let amounts = found.overflows().filter(|(reason, _)| wanted(*reason));
        amounts.map(|(_, amount)| amount.samples).sum::<u64>()
    };
    let mut all: Vec<_> = found.iter().collect();
    all.sort_by_key(|(labels, sum)| (Reverse(sum.unsigned_abs()), *labels));
    let example = |(labels, sum): (&wire::remote_write::Labels, i128)| Example {
        series: labels.to_string(),
        sum: sum.to_string(),
        samples: found.get(labels).unwrap_or_default().samples,
    };
    Preview {
        series: found.len(),
        is_more: of(|reason| reason == Reason::TooManySeries) > 0,
        examples: all.into_iter().take(EXAMPLES).map(example).collect(),
        clashes: found.clashes(),
        lost: of(|reason| reason != Reason::TooManySeries),
    }
}
