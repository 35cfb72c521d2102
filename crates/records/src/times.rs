//! The clock of records, and the time of day.

use model::Timestamp;
use serde::{Deserialize, Serialize};

/// Two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The clock of the records.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic_ns: u64,
}

/// What ticks mean: a straight line through two pairs, which is right between them and goes on in both directions.
///
/// The kernel steers `CLOCK_MONOTONIC` a little against a counter of the processor. Pairs that an agent takes around what it reads follow that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The earlier one.
    pub early: Pair,
    /// The later one.
    pub late: Pair,
    /// Added to `CLOCK_MONOTONIC` this is nanoseconds since the epoch, as it was at the later one.
    pub epoch_offset_ns: i64,
}

impl Times {
    /// When it was by `CLOCK_MONOTONIC`, in nanoseconds.
    #[must_use]
    pub fn monotonic_ns(&self, ticks: u64) -> i64 {
        let Self { early, late, .. } = self;
        let apart = i128::from(late.ticks) - i128::from(early.ticks);
        let since = i128::from(ticks) - i128::from(early.ticks);
        let ns = i128::from(late.monotonic_ns) - i128::from(early.monotonic_ns);
        // Numbers of a process that lies may be beyond all times.
        let ns = if apart > 0 && ns > 0 { since.saturating_mul(ns) / apart } else { 0 };
        let ns = ns.saturating_add(early.monotonic_ns.into());
        i64::try_from(ns.clamp(i64::MIN.into(), i64::MAX.into())).unwrap_or_default()
    }

    /// When it was.
    #[must_use]
    pub fn timestamp(&self, ticks: u64) -> Timestamp {
        Timestamp::from_nanos(self.monotonic_ns(ticks).saturating_add(self.epoch_offset_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_on_the_line_through_both_pairs() {
        let early = Pair { ticks: 1_000_000, monotonic_ns: 5_000 };
        let late = Pair { ticks: 4_000_000, monotonic_ns: 1_005_000 };
        let times = Times { early, late, epoch_offset_ns: 1_000_000_000 };
        let found = [1_000_000, 2_500_000, 4_000_000, 4_000_003, 999_997, 7_000_000];
        let expected = [5_000, 505_000, 1_005_000, 1_005_001, 4_999, 2_005_000];
        assert_eq!(found.map(|ticks| times.monotonic_ns(ticks)), expected);
        assert_eq!(times.timestamp(4_000_000), Timestamp::from_nanos(1_001_005_000));
    }

    #[test]
    fn pairs_that_make_no_line_give_a_time_all_the_same() {
        let pair = Pair { ticks: 10, monotonic_ns: 70 };
        let back = Pair { ticks: 5, monotonic_ns: 60 };
        for late in [pair, back] {
            let times = Times { early: pair, late, epoch_offset_ns: i64::MAX };
            assert_eq!(times.monotonic_ns(u64::MAX), 70);
            assert_eq!(times.timestamp(0), Timestamp::MAX);
        }
        let far = Pair { ticks: 11, monotonic_ns: u64::MAX };
        let times = Times { early: pair, late: far, epoch_offset_ns: 0 };
        assert_eq!(times.monotonic_ns(u64::MAX), i64::MAX);
    }
}
