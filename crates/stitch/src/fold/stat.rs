//! Figures over many values that add up in any order: moments in integers, and a histogram with a stated error.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many values, their sum, sum of squares, least and greatest. Sums saturate, so that adding stays associative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Form", try_from = "Form")]
pub(crate) struct Stat {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) squares: u128,
    /// 0 when there is no value.
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// What a file says of a [`Stat`]: of a single value, only that.
#[derive(Serialize, Deserialize)]
enum Form {
    None,
    One(u64),
    Many { count: u64, sum: u64, squares: u128, min: u64, above_min: u64 },
}

impl From<Stat> for Form {
    fn from(stat: Stat) -> Self {
        let Stat { count, sum, squares, min, max } = stat;
        match count {
            0 => Self::None,
            1 => Self::One(sum),
            _ => Self::Many { count, sum, squares, min, above_min: max.saturating_sub(min) },
        }
    }
}

impl TryFrom<Form> for Stat {
    type Error = &'static str;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        let no_sense = "figures of values that cannot be";
        match form {
            Form::None => Ok(Self::NONE),
            Form::One(value) => Ok(Self::of(value)),
            Form::Many { count: 0 | 1, .. } => Err(no_sense),
            Form::Many { count, sum, squares, min, above_min } => {
                let max = min.checked_add(above_min).ok_or(no_sense)?;
                Ok(Self { count, sum, squares, min, max })
            }
        }
    }
}

impl Stat {
    pub(crate) const NONE: Self = Self { count: 0, sum: 0, squares: 0, min: 0, max: 0 };

    pub(crate) fn of(value: u64) -> Self {
        let wide = u128::from(value);
        Self { count: 1, sum: value, squares: wide * wide, min: value, max: value }
    }

    pub(crate) fn take(&mut self, value: u64) {
        self.append(&Self::of(value));
    }

    pub(crate) fn append(&mut self, more: &Self) {
        if more.count == 0 {
            return;
        }
        self.min = if self.count == 0 { more.min } else { self.min.min(more.min) };
        self.max = self.max.max(more.max);
        self.count = self.count.saturating_add(more.count);
        self.sum = self.sum.saturating_add(more.sum);
        self.squares = self.squares.saturating_add(more.squares);
    }
}

/// How many buckets an octave has.
const PER_OCTAVE: u32 = 32;

/// Counts by logarithmic buckets: values below 32 exactly, above that 32 buckets an octave, so that a bucket is at most
/// 1/32 of its values wide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Histogram(Buckets);

/// Buckets in use.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Buckets {
    /// Each with its count, in ascending order. At most [`FEW`].
    Few(Vec<(u16, u64)>),
    /// The counts from the lowest to the highest in use, side by side. Bound: [`BUCKETS`].
    Many { lowest: u16, counts: Vec<u64> },
}

/// Up to so many buckets are kept one by one: most threads have no more, and there may be many threads.
const FEW: usize = 32;

impl Default for Buckets {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn take(&mut self, value: u64) {
        self.0.add(bucket(value), 1);
    }

    pub(crate) fn append(&mut self, more: &Self) {
        for (bucket, count) in more.used() {
            self.0.add(bucket, count);
        }
    }

    /// Buckets in use and how many values each has, in ascending order.
    fn used(&self) -> impl Iterator<Item = (u16, u64)> + Clone {
        let (few, lowest, counts): (&[_], _, &[_]) = match &self.0 {
            Buckets::Few(few) => (few, 0, &[]),
            Buckets::Many { lowest, counts } => (&[], *lowest, counts),
        };
        let many = (lowest..).zip(counts).filter(|(_, count)| **count > 0);
        few.iter().copied().chain(many.map(|(bucket, count)| (bucket, *count)))
    }

    /// Least and greatest value of each bucket in use, and how many values it has, in ascending order.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.used().map(|(bucket, count)| {
            let (low, high) = values(bucket);
            (low, high, count)
        })
    }

    /// The bucket in which the value lies that `percent` of all values do not exceed; `None` when there is none.
    pub(crate) fn percentile(&self, percent: u64) -> Option<(u64, u64)> {
        percentile(self.used(), percent)
    }
}

/// The bucket in which the value lies that `percent` of all values do not exceed: of buckets and their counts, in ascending
/// order. `None` when there is no value.
pub(crate) fn percentile(
    used: impl Iterator<Item = (u16, u64)> + Clone,
    percent: u64,
) -> Option<(u64, u64)> {
    let all: u64 = used.clone().fold(0, |sum, (_, count)| sum.saturating_add(count));
    let rank = (u128::from(all) * u128::from(percent)).div_ceil(100).max(1);
    let mut seen = 0_u128;
    let mut used = used;
    used.find_map(|(bucket, count)| {
        seen += u128::from(count);
        (seen >= rank).then(|| values(bucket))
    })
}

impl Buckets {
    #[inline]
    fn add(&mut self, bucket: u16, more: u64) {
        match self {
            Self::Few(few) => match few.binary_search_by_key(&bucket, |(known, _)| *known) {
                Ok(found) => {
                    if let Some((_, count)) = few.get_mut(found) {
                        *count = count.saturating_add(more);
                    }
                }
                Err(place) if few.len() < FEW => few.insert(place, (bucket, more)),
                Err(_) => self.spread(bucket, more),
            },
            Self::Many { lowest, counts } => {
                let place = bucket.wrapping_sub(*lowest);
                match counts.get_mut(usize::from(place)) {
                    Some(count) => *count = count.saturating_add(more),
                    None => self.spread(bucket, more),
                }
            }
        }
    }

    /// Adds a bucket outside those that there is room for.
    #[cold]
    fn spread(&mut self, bucket: u16, more: u64) {
        let used: Vec<(u16, u64)> = Histogram(std::mem::take(self)).used().collect();
        let ends = used.iter().map(|(bucket, _)| *bucket).chain([bucket]);
        let (lowest, highest) =
            ends.fold((bucket, bucket), |(low, high), end| (low.min(end), high.max(end)));
        let mut counts = vec![0; usize::from(highest - lowest) + 1];
        for (bucket, count) in used.into_iter().chain([(bucket, more)]) {
            if let Some(place) = counts.get_mut(usize::from(bucket - lowest)) {
                *place = count;
            }
        }
        *self = Self::Many { lowest, counts };
    }
}

/// As the distances between buckets in use and their counts.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut before = 0;
        let steps = self.used().map(|(bucket, count)| {
            let distance = bucket - before;
            before = bucket;
            (distance, count)
        });
        steps.collect::<Vec<_>>().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let steps = Vec::<(u16, u64)>::deserialize(deserializer)?;
        let mut histogram = Self::default();
        let mut bucket = 0_u16;
        for (distance, count) in steps {
            bucket = bucket.saturating_add(distance);
            if bucket >= BUCKETS || count == 0 {
                return Err(D::Error::custom("a histogram has no such bucket"));
            }
            histogram.0.add(bucket, count);
        }
        Ok(histogram)
    }
}

/// How many buckets there are.
const BUCKETS: u16 = 1_920;

/// The bucket of a value.
pub(crate) fn bucket(value: u64) -> u16 {
    let bits = u64::BITS - value.leading_zeros();
    let octave = bits.saturating_sub(PER_OCTAVE.trailing_zeros() + 1);
    let bucket = u64::from(octave * PER_OCTAVE) + (value >> octave);
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

/// The least and the greatest value of a bucket.
pub(crate) fn values(bucket: u16) -> (u64, u64) {
    let bucket = u32::from(bucket);
    let octave = (bucket / PER_OCTAVE).saturating_sub(1);
    let step = u64::from(bucket - octave * PER_OCTAVE);
    let low = step.checked_shl(octave).unwrap_or(u64::MAX);
    let width = 1_u64.checked_shl(octave).unwrap_or(u64::MAX);
    (low, low.saturating_add(width - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_no_bucket_is_wider_than_a_32nd_of_its_values() {
        let edges = (0..64).flat_map(|bit| {
            let value = 1_u64 << bit;
            [value - 1, value, value + 1, value + value / 3]
        });
        for value in (0..5_000).chain(edges).chain([u64::MAX, u64::MAX - 1]) {
            let (low, high) = values(bucket(value));
            assert!(low <= value && value <= high, "{value} not in {low}..={high}");
            assert!(high - low <= low / 32, "{value}: {low}..={high}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn buckets_follow_each_other_without_a_hole() {
        for n in 0..bucket(u64::MAX) {
            assert_eq!(values(n).1 + 1, values(n + 1).0, "bucket {n}");
        }
    }

    #[test]
    fn a_percentile_holds_the_value_of_that_rank() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|value| histogram.take(value));
        for (percent, value) in [(50, 500), (95, 950), (99, 990), (100, 1_000)] {
            let (low, high) = histogram.percentile(percent).unwrap();
            assert!(low <= value && value <= high, "{percent}: {low}..={high}");
        }
        assert_eq!(Histogram::default().percentile(50), None);
    }

    #[test]
    fn no_value_changes_no_figure() {
        let mut some = Stat::of(7);
        some.append(&Stat::default());
        assert_eq!(some, Stat::of(7));
        let mut none = Stat::default();
        none.append(&Stat::of(7));
        assert_eq!(none, Stat::of(7));
    }
}
