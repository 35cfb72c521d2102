//! A span of time in the cycles of a clock.

use ctf::ClockClass;
use model::{TimeRange, Timestamp};

/// The cycles of a clock that lie in a range: first and last; `None` when there are none.
pub(crate) fn cycles_in(clock: &ClockClass, range: &TimeRange) -> Option<(u64, u64)> {
    let first = first_at_or_after(clock, range.begin)?;
    let last = match range.end {
        Timestamp::MAX => u64::MAX,
        end => {
            first_at_or_after(clock, end).map_or(Some(u64::MAX), |after| after.checked_sub(1))?
        }
    };
    (first <= last).then_some((first, last))
}

/// The first cycle whose time is not before `at`; `None` when all are.
fn first_at_or_after(clock: &ClockClass, at: Timestamp) -> Option<u64> {
    // Times rise with cycles, and those beyond 64 bits are later than any: a search by halves.
    let is_before = |cycles: u64| match clock.to_ns(cycles) {
        Ok(ns) => ns < at.nanos(),
        Err(_) => is_below_all_times(clock, cycles),
    };
    let (mut low, mut high) = (0_u64, u64::MAX);
    if is_before(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    Some(low)
}

/// Whether a time that has no place in 64 bits is too early, not too late.
fn is_below_all_times(clock: &ClockClass, cycles: u64) -> bool {
    let seconds = (i128::from(clock.offset) + i128::from(cycles)) / i128::from(clock.frequency);
    i128::from(clock.offset_s) + seconds < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_time_is_a_range_of_cycles() {
        let range = |begin, end| TimeRange {
            begin: Timestamp::from_nanos(begin),
            end: Timestamp::from_nanos(end),
        };
        let clock = ClockClass { offset_s: 5, ..ClockClass::new("c") };
        assert_eq!(cycles_in(&clock, &range(5_000_000_010, 5_000_000_020)), Some((10, 19)));
        assert_eq!(cycles_in(&clock, &range(0, 5_000_000_001)), Some((0, 0)));
        assert_eq!(cycles_in(&clock, &range(0, 5)), None);
        assert_eq!(cycles_in(&clock, &TimeRange::ALL), Some((0, u64::MAX)));
        let slow = ClockClass { frequency: 3, ..ClockClass::new("c") };
        assert_eq!(cycles_in(&slow, &range(333_333_333, 666_666_667)), Some((1, 2)));
        assert_eq!(cycles_in(&slow, &range(333_333_334, 666_666_666)), None);
    }
}
