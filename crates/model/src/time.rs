//! Time as a trace clock gives it: signed nanoseconds since the Unix epoch.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since 1970-01-01T00:00:00Z; negative before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest point that can be expressed.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest point that can be expressed.
    pub const MAX: Self = Self(i64::MAX);

    /// A point given as nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0))
    }
}

/// A length of time in nanoseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A length given in nanoseconds.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The length in nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits and the largest unit that keeps them: `1.25 ms`, `980 ns`, `12.0 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
        let text = UNITS.iter().find(|(unit_ns, _)| self.0 >= *unit_ns).map_or_else(
            || format!("{} ns", self.0),
            |(unit_ns, name)| {
                let whole = self.0 / unit_ns;
                let thousandths = self.0 % unit_ns / (unit_ns / 1_000);
                match whole {
                    0..=9 => format!("{whole}.{:02} {name}", thousandths / 10),
                    10..=99 => format!("{whole}.{} {name}", thousandths / 100),
                    _ => format!("{whole} {name}"),
                }
            },
        );
        f.pad(&text)
    }
}

/// A half-open interval of time, `begin` included and `end` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimeRange {
    /// The first point inside.
    pub begin: Timestamp,
    /// The first point after.
    pub end: Timestamp,
}

impl TimeRange {
    /// All of time but its very last nanosecond.
    pub const ALL: Self = Self { begin: Timestamp::MIN, end: Timestamp::MAX };

    /// Whether `at` lies inside.
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        self.begin <= at && at < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_shown_with_three_digits_in_its_largest_unit() {
        let shown = |nanos| Nanos::new(nanos).to_string();
        assert_eq!(shown(0), "0 ns");
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(1_256), "1.25 µs");
        assert_eq!(shown(12_345_678), "12.3 ms");
        assert_eq!(shown(345_000_000_000), "345 s");
    }

    #[test]
    fn time_since_a_later_point_is_zero() {
        let (early, late) = (Timestamp::from_nanos(-5), Timestamp::from_nanos(7));
        assert_eq!(late.since(early), Nanos::new(12));
        assert_eq!(early.since(late), Nanos::ZERO);
        assert_eq!(Timestamp::MAX.since(Timestamp::MIN), Nanos::new(u64::MAX));
    }

    #[test]
    fn a_range_holds_its_begin_and_not_its_end() {
        let range = TimeRange { begin: Timestamp::from_nanos(1), end: Timestamp::from_nanos(3) };
        let inside: Vec<i64> =
            (0..5).filter(|n| range.contains(Timestamp::from_nanos(*n))).collect();
        assert_eq!(inside, [1, 2]);
    }
}
