//! Sums as values of samples, and what counters make of them.

use export::Counter;

/// Integers up to this are exact as values of samples (IEEE 754, 53 bits).
const MAX_EXACT: u128 = 1 << 53;

/// The value of a delta's sample, and whether it is the sum exactly: it is up to 2^53. A larger one is the nearest that there is.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "it is said")]
pub const fn value(sum: i128) -> (f64, bool) {
    (sum as f64, sum.unsigned_abs() <= MAX_EXACT)
}

/// A counter after a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Increase {
    /// What it is then.
    pub counter: Counter,
    /// What it does not have of the cell's sum: all of a negative one, what is beyond 64 bits of a large one. The delta has it.
    pub left_out: i128,
}

/// A counter after a cell which began at `begin_ms` and whose sum this is.
///
/// Counters only grow: readers take a smaller value for a restart, and would count what is left as new. So a negative sum is left out, and said.
#[must_use]
pub fn increase(counter: Counter, sum: i128, begin_ms: i64) -> Increase {
    let delta = u64::try_from(sum.max(0)).unwrap_or(u64::MAX);
    Increase { counter: counter.add(delta, begin_ms), left_out: sum - i128::from(delta) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_carry_the_sign_and_counters_only_grow() {
        assert_eq!(value(-5), (-5.0, true));
        assert_eq!(value(1 << 53), (9_007_199_254_740_992.0, true));
        assert!(!value((1 << 53) + 1).1);
        let counter = Counter { start_ms: 10, total: 7 };
        let grown = Counter { start_ms: 10, total: 12 };
        assert_eq!(increase(counter, 5, 20), Increase { counter: grown, left_out: 0 });
        assert_eq!(increase(counter, -5, 20), Increase { counter, left_out: -5 });
        let large = increase(counter, i128::from(u64::MAX) + 3, 20);
        assert_eq!((large.counter.start_ms, large.left_out), (20, 3));
    }
}
