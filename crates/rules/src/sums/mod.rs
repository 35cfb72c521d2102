//! Sums by series, which merge.

mod bounds;
mod collect;
mod groups;
mod stacks;
mod value;

use std::collections::BTreeMap;

use export::Prefix;
use serde::{Deserialize, Serialize};
use wire::remote_write::{Labels, NAME};

pub use self::bounds::{Bounds, SeriesLimits};
pub use self::collect::{sums, sums_by_cell};
pub use self::value::{Increase, increase, value};

/// What the name of a counter has behind that of the metric which it adds up.
pub(crate) const COUNTER: &str = "_total";

/// Sums of the samples of a cell, or of a part of it, by series.
///
/// A series is here under the labels of its delta; [`counter`] gives those of the counter that adds the deltas up. A sample counts once in each series that a rule
/// puts it in: rules of the default form that write the same series write it together, and a sample that several of them take counts once.
///
/// What is in no series because there are too many, or because no receiver would take its labels, is in [`Self::overflow`]: the sum
/// over all series and the overflow is the same with and without limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Flat", into = "Flat")]
pub struct Sums {
    series: BTreeMap<Labels, Amount>,
    overflow: BTreeMap<Reason, Amount>,
    clashes: u64,
}

/// What was added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// The sum of the values, exact: 2^64 samples of any values fit.
    #[serde(with = "text")]
    pub sum: i128,
    /// How many samples.
    pub samples: u64,
}

/// Why a sample is in no series of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// There are as many series as there may be.
    TooManySeries,
    /// Its series would have more labels than receivers take.
    TooManyLabels,
    /// Its series would have longer labels than receivers take.
    LabelsTooLong,
}

impl Amount {
    pub(crate) const fn of(value: i64) -> Self {
        Self { sum: value as i128, samples: 1 }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.samples += other.samples;
    }
}

impl Sums {
    /// Adds what another has: of other samples of the same cell, by the same rules and bounds.
    pub fn merge(&mut self, other: Self, bounds: &Bounds) {
        for (labels, amount) in other.series {
            *self.series.entry(labels).or_default() += amount;
        }
        for (reason, amount) in other.overflow {
            *self.overflow.entry(reason).or_default() += amount;
        }
        self.clashes += other.clashes;
        self.limit(bounds);
    }

    /// Each series, by the labels of its delta, and its sum.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Labels, i128)> {
        self.series.iter().map(|(labels, amount)| (labels, amount.sum))
    }

    /// The same, and at the end the series that takes the rest, when there is a rest.
    pub fn with_overflow(&self, prefix: &Prefix) -> impl Iterator<Item = (Labels, i128)> {
        let rest = self.overflow();
        let rest = (rest.samples > 0).then(|| (overflow(prefix), rest.sum));
        self.iter().map(|(labels, sum)| (labels.clone(), sum)).chain(rest)
    }

    /// How many series there are, but for the overflow.
    #[must_use]
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether no sample was summed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty() && self.overflow.is_empty()
    }

    /// The sum of a series, by the labels of its delta.
    #[must_use]
    pub fn get(&self, labels: &Labels) -> Option<Amount> {
        self.series.get(labels).copied()
    }

    /// What is in no series of its own.
    #[must_use]
    pub fn overflow(&self) -> Amount {
        let mut all = Amount::default();
        self.overflow.values().for_each(|amount| all += *amount);
        all
    }

    /// The same by why it is not. A sample counts for each series that it would be in.
    pub fn overflows(&self) -> impl Iterator<Item = (Reason, Amount)> {
        self.overflow.iter().map(|(reason, amount)| (*reason, *amount))
    }

    /// How many samples are in a series that lacks a label, because another has the same name once both are as receivers take them. A
    /// sample counts for each such label of each rule that takes it.
    #[must_use]
    pub const fn clashes(&self) -> u64 {
        self.clashes
    }

    pub(crate) fn add(&mut self, labels: Labels, amount: Amount) {
        *self.series.entry(labels).or_default() += amount;
    }

    pub(crate) fn add_overflow(&mut self, reason: Reason, amount: Amount) {
        *self.overflow.entry(reason).or_default() += amount;
    }

    pub(crate) const fn add_clashes(&mut self, count: u64) {
        self.clashes += count;
    }

    /// Puts what is too much into the overflow.
    ///
    /// Series are in one order that does not depend on their sums, and the first stay. In a part of the samples no series is further behind than
    /// in all of them, so that one which stays in the end was never put away before, in whatever order the parts are merged.
    pub(crate) fn limit(&mut self, bounds: &Bounds) {
        let mut admits = bounds.admits(self.series.len());
        let Some(admits) = &mut admits else { return };
        let mut rest = Amount::default();
        self.series.retain(|labels, amount| {
            let stays = admits.next(labels);
            if !stays {
                rest += *amount;
            }
            stays
        });
        if rest.samples > 0 {
            self.add_overflow(Reason::TooManySeries, rest);
        }
    }
}

/// The labels of the counter that adds up a delta: its metric's name with `_total` behind it.
///
/// # Panics
///
/// Never for labels of [`Sums`], which leave room for it.
#[must_use]
pub fn counter(delta: &Labels) -> Labels {
    let renamed = |(name, value): (&str, &str)| {
        let end = if name == NAME { COUNTER } else { "" };
        (name.to_owned(), format!("{value}{end}"))
    };
    Labels::new(delta.iter().map(renamed)).expect("labels of sums leave room for a counter's name")
}

/// The labels of the series that takes what is in no series of its own, of whatever type and unit.
///
/// # Panics
///
/// Never: a prefix is a metric's name, and so is this.
#[must_use]
pub fn overflow(prefix: &Prefix) -> Labels {
    let name = format!("{}_overflow", prefix.as_str());
    Labels::new([(NAME.to_owned(), name)]).expect("a prefix is a metric's name")
}

/// [`Sums`] as they are kept.
#[derive(Serialize, Deserialize)]
struct Flat {
    series: Vec<(Labels, Amount)>,
    overflow: Vec<(Reason, Amount)>,
    clashes: u64,
}

impl From<Sums> for Flat {
    fn from(sums: Sums) -> Self {
        let Sums { series, overflow, clashes } = sums;
        Self {
            series: series.into_iter().collect(),
            overflow: overflow.into_iter().collect(),
            clashes,
        }
    }
}

impl From<Flat> for Sums {
    fn from(flat: Flat) -> Self {
        let mut sums = Self { clashes: flat.clashes, ..Self::default() };
        flat.series.into_iter().for_each(|(labels, amount)| sums.add(labels, amount));
        flat.overflow.into_iter().for_each(|(reason, amount)| sums.add_overflow(reason, amount));
        sums
    }
}

/// Sums as texts: JSON's numbers are read as 64 bits at most.
mod text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(sum: &i128, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(sum)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i128, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}
