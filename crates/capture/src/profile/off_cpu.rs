//! How many times off the CPU have samples.
//!
//! A time of at least the period has a sample that stands for its length; of shorter ones, each has one with a chance of its length in
//! periods, which stands for a period. So what samples stand for is right on the average, whatever the period is, and it may be changed
//! at any moment to keep their number near that of the samples of the clock.

use super::programs::Counts;

/// The longest period: the program multiplies it with numbers of 32 bits.
const MAX_PERIOD_NS: u64 = 1 << 38;

/// What the program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// How many samples may be made until the next time that it is told.
    pub(super) quota: i64,
    /// Nanoseconds off the CPU that one stands for at least.
    pub(super) period_ns: u64,
}

/// Keeps the pace.
#[derive(Debug)]
pub(super) struct Pacer {
    shortest_ns: u64,
    period_ns: u64,
    /// Samples in a second, of all CPUs.
    wanted: u64,
    /// What was made until the last time, and when that was.
    before: (u64, u64),
}

impl Pacer {
    /// As many samples a second as clocks of this frequency on so many CPUs would give.
    pub(super) fn new(frequency_hz: u64, cpus: usize) -> Self {
        let frequency_hz = frequency_hz.max(1);
        let shortest_ns = 1_000_000_000 / frequency_hz;
        let wanted = frequency_hz.saturating_mul(cpus.max(1) as u64);
        Self { shortest_ns, period_ns: shortest_ns, wanted, before: (0, 0) }
    }

    /// The pace from now (`CLOCK_MONOTONIC`) on.
    pub(super) fn next(&mut self, now_ns: u64, counts: &Counts) -> Pace {
        const SECOND_NS: u128 = 1_000_000_000;
        let made = counts.waits - counts.waits_passed;
        let (made_before, before_ns) = std::mem::replace(&mut self.before, (made, now_ns));
        let length_ns = u128::from(now_ns.saturating_sub(before_ns).max(1));
        let rate = u128::from(made.saturating_sub(made_before)) * SECOND_NS / length_ns;
        let wanted = u128::from(self.wanted);
        if rate > wanted {
            self.period_ns = self.period_ns.saturating_mul(2).min(MAX_PERIOD_NS);
        } else if rate < wanted / 4 {
            self.period_ns = (self.period_ns / 2).max(self.shortest_ns);
        }
        // Twice a second's: bursts pass, and storms are over at the next turn.
        let quota = i64::try_from(self.wanted.saturating_mul(2)).unwrap_or(i64::MAX);
        Pace { quota, period_ns: self.period_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of `waits` of one length in each tenth of a second.
    fn settled(waits: u64, length_ns: u64) -> (Pace, u64) {
        let mut pacer = Pacer::new(100, 2);
        let mut counts = Counts::default();
        let (mut pace, mut last) = (pacer.next(0, &counts), 0);
        for turn in 1..200 {
            let chosen = u128::from(waits) * u128::from(length_ns.min(pace.period_ns));
            last = u64::try_from(chosen / u128::from(pace.period_ns)).unwrap();
            counts.waits += last;
            pace = pacer.next(turn * 100_000_000, &counts);
        }
        (pace, last * 10)
    }

    #[test]
    fn few_waits_all_have_samples_and_many_have_some() {
        assert_eq!(settled(5, 1_000_000).0.period_ns, 10_000_000);
        for (waits, length_ns) in [(5_000, 100_000), (100_000, 1_000), (1_000, 50_000_000)] {
            let (_, rate) = settled(waits, length_ns);
            assert!((50..=400).contains(&rate), "{waits} of {length_ns}: {rate} a second");
        }
    }

    #[test]
    fn a_period_stays_in_its_bounds() {
        let (pace, _) = settled(u64::from(u32::MAX), 1 << 40);
        assert_eq!(pace.period_ns, MAX_PERIOD_NS);
        assert_eq!(settled(0, 1).0, Pace { quota: 400, period_ns: 10_000_000 });
    }
}
