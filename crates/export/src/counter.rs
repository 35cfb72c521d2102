//! Cumulative counters made of deltas.

/// Integers up to this are exact as values of samples (IEEE 754, 53 bits).
const MAX_EXACT: u64 = 1 << 53;

/// A counter of a series: what has been added up since a time.
///
/// It begins again at zero before its value stops being exact, which readers see as they see a restart: 2^53 ns of CPU time are 104
/// days of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Since when it counts, milliseconds since 1970.
    pub start_ms: i64,
    /// The sum since then.
    pub total: u64,
}

impl Counter {
    /// A counter that begins with a cell.
    #[must_use]
    pub const fn new(start_ms: i64) -> Self {
        Self { start_ms, total: 0 }
    }

    /// The counter after a cell which began at `begin_ms` and adds `delta`.
    #[must_use]
    pub const fn add(self, delta: u64, begin_ms: i64) -> Self {
        match self.total.checked_add(delta) {
            Some(total) if total <= MAX_EXACT => Self { total, ..self },
            _ => Self { start_ms: begin_ms, total: delta },
        }
    }

    /// The value of a sample.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_begins_again_before_it_becomes_inexact() {
        let counter = Counter::new(10).add(5, 10).add(7, 20);
        assert_eq!(counter, Counter { start_ms: 10, total: 12 });
        let full = counter.add(MAX_EXACT - 12, 30);
        assert_eq!(full, Counter { start_ms: 10, total: MAX_EXACT });
        let again = full.add(1, 40);
        assert_eq!(again, Counter { start_ms: 40, total: 1 });
        assert_eq!(Counter { total: u64::MAX, ..full }.add(2, 50).total, 2);
        assert_eq!(full.value().to_bits(), 9_007_199_254_740_992_f64.to_bits());
    }
}
