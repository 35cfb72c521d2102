//! From cycles to nanoseconds by what of it is the same for all event records of a packet.

use crate::clock::ClockClass;
use crate::error::DecodeErrorKind;

/// [`ClockClass::to_ns`] with the constant part computed once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    frequency: u64,
    /// Nanoseconds of cycle 0, when they fit; without them every value goes the general way.
    base_ns: Option<i64>,
    /// Cycles of the last whole second that was met, and its nanoseconds without the base.
    second: (u64, i64),
    /// Of a clock of 1 GHz: every value up to this one has a time.
    safe_nanos: Option<u64>,
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

impl Ticks {
    pub(crate) fn new(clock: &ClockClass) -> Self {
        // Of a fraction of a second, the nanoseconds before the division must fit in 64 bits.
        let usable = (1..=u64::MAX / NANOS_PER_SECOND).contains(&clock.frequency);
        let base_ns = clock.to_ns(0).ok().filter(|_| usable);
        let mut ticks =
            Self { frequency: clock.frequency, base_ns, second: (0, 0), safe_nanos: None };
        ticks.safe_nanos =
            Some(ticks.safe_cycles()).filter(|_| clock.frequency == NANOS_PER_SECOND);
        ticks
    }

    /// [`Self::nanos`] of a clock of 1 GHz where that is an addition.
    #[inline(always)]
    pub(crate) fn plain(&self, cycles: u64) -> Option<i64> {
        let is_safe = cycles <= self.safe_nanos?;
        Some(self.base_ns?.wrapping_add_unsigned(cycles)).filter(|_| is_safe)
    }

    /// As `clock.to_ns(cycles)`, where `clock` is the clock that this was made of.
    #[inline]
    pub(crate) fn nanos(
        &mut self,
        clock: &ClockClass,
        cycles: u64,
    ) -> Result<i64, DecodeErrorKind> {
        match self.quick(cycles) {
            Some(nanos) => Ok(nanos),
            None => clock.to_ns(cycles),
        }
    }

    #[inline]
    fn quick(&mut self, cycles: u64) -> Option<i64> {
        let base_ns = self.base_ns?;
        let nanos = match self.frequency {
            NANOS_PER_SECOND => i64::try_from(cycles).ok()?,
            _ => self.scale(cycles)?,
        };
        base_ns.checked_add(nanos)
    }

    /// Every value up to this one has a time.
    pub(crate) fn safe_cycles(&self) -> u64 {
        let Some(base_ns) = self.base_ns else { return 0 };
        let room = u128::from((i64::MAX - base_ns.max(0)).unsigned_abs());
        let cycles = room * u128::from(self.frequency) / u128::from(NANOS_PER_SECOND);
        u64::try_from(cycles).unwrap_or(u64::MAX)
    }

    /// `cycles · 10⁹ / frequency`, rounded down; `None` when it does not fit.
    #[inline]
    fn scale(&mut self, cycles: u64) -> Option<i64> {
        let within =
            |second: u64| cycles.checked_sub(second).filter(|fraction| *fraction < self.frequency);
        if within(self.second.0).is_none() {
            let seconds = cycles.checked_div(self.frequency)?;
            let nanos = i64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?;
            self.second = (seconds * self.frequency, nanos);
        }
        let fraction = within(self.second.0)? * NANOS_PER_SECOND / self.frequency;
        self.second.1.checked_add(i64::try_from(fraction).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clock() -> impl Strategy<Value = ClockClass> {
        let frequency = prop_oneof![
            Just(1_000_000_000),
            1..20_000_000_000_u64,
            18_446_744_073..18_446_744_076_u64,
            1..=u64::MAX,
        ];
        let offset_s = prop_oneof![-10..10_i64, 1_700_000_000..1_900_000_000_i64, any::<i64>()];
        let offset = prop_oneof![0..2_000_000_000_u64, any::<u64>()];
        (frequency, offset_s, offset).prop_map(|(frequency, offset_s, offset)| ClockClass {
            frequency,
            offset_s,
            offset,
            ..ClockClass::new("any")
        })
    }

    proptest! {
        #[test]
        fn times_are_those_of_the_clock_class(
            clock in clock(),
            cycles in prop::collection::vec(
                prop_oneof![0..10_000_u64, 0..u64::MAX / 2, any::<u64>()], 1..20),
            steps in prop::collection::vec(0..5_000_000_000_u64, 0..20),
        ) {
            let mut ticks = Ticks::new(&clock);
            let mut at = 0_u64;
            let rising = steps.iter().map(|step| { at += step; at }).collect::<Vec<_>>();
            for cycles in cycles.into_iter().chain(rising) {
                prop_assert_eq!(ticks.nanos(&clock, cycles), clock.to_ns(cycles));
                if cycles <= ticks.safe_cycles() && ticks.base_ns.is_some() {
                    prop_assert!(clock.to_ns(cycles).is_ok());
                }
            }
        }
    }
}
