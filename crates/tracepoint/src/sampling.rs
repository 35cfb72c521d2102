//! Which traces are written: decided where a trace begins, before anything of it costs anything.
//!
//! A trace that comes from elsewhere is written if its context says so.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Of a trace id the low 63 bits are compared with this, as OpenTelemetry's `TraceIdRatioBased` does: services of one ratio agree.
static BOUND: AtomicU64 = AtomicU64::new(ALL);
/// All traces.
const ALL: u64 = 1 << 63;

/// Nanoseconds from one trace to the next; 0: as many as come.
static INTERVAL_NS: AtomicU64 = AtomicU64::new(0);
/// When the next trace would come if each came as late as it may (generic cell rate algorithm, ITU-T I.371): `CLOCK_MONOTONIC`.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// What was not used is kept for so long.
const BURST_NS: u64 = 1_000_000_000;

/// Which traces that begin in this process are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// How many of them, from 0 to 1, chosen by their ids.
    pub ratio: f64,
    /// The most in a second, of those that are chosen.
    pub per_second: Option<f64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { ratio: 1.0, per_second: None }
    }
}

/// From now on.
pub fn set_sampling(sampling: Sampling) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
    let bound = (sampling.ratio.clamp(0.0, 1.0) * ALL as f64) as u64;
    BOUND.store(bound, Ordering::Relaxed);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let interval = |per_second: f64| ((1e9 / per_second.max(1e-9)) as u64).max(1);
    INTERVAL_NS.store(sampling.per_second.map_or(0, interval), Ordering::Relaxed);
}

/// Whether a trace that begins is written.
pub(crate) fn samples(trace_id: u128) -> bool {
    let bound = BOUND.load(Ordering::Relaxed);
    #[expect(clippy::cast_possible_truncation, reason = "the low 63 bits are meant")]
    let low = trace_id as u64 & (ALL - 1);
    if bound < ALL && low >= bound {
        return false;
    }
    match INTERVAL_NS.load(Ordering::Relaxed) {
        0 => true,
        interval_ns => takes(interval_ns, now_ns()),
    }
}

fn takes(interval_ns: u64, now_ns: u64) -> bool {
    let latest_ns = now_ns.saturating_add(BURST_NS.max(interval_ns));
    let taken = NEXT_NS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next_ns| {
        let next_ns = next_ns.max(now_ns).saturating_add(interval_ns);
        (next_ns <= latest_ns).then_some(next_ns)
    });
    taken.is_ok()
}

/// `CLOCK_MONOTONIC`, nanoseconds: no system call where the kernel maps its own code for it.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because all of a process go by the same.
    #[test]
    fn traces_are_written_by_ratio_and_rate() {
        let mixed = |number: u64| u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sampled = || (0..10_000).filter(|number| samples(mixed(*number))).count();
        assert_eq!(sampled(), 10_000);
        set_sampling(Sampling { ratio: 0.25, per_second: None });
        assert!((2400..2600).contains(&sampled()), "{}", sampled());
        set_sampling(Sampling { ratio: 0.0, per_second: None });
        assert_eq!(sampled(), 0);
        set_sampling(Sampling { ratio: 1.0, per_second: Some(50.0) });
        // What a second allows at once, and then one every 20 ms.
        let begin_ns = now_ns() + 10 * BURST_NS;
        let at = |ms: u64| takes(20_000_000, begin_ns + ms * 1_000_000);
        assert_eq!((0..1000).filter(|_| at(0)).count(), 50);
        assert_eq!((0..100).filter(|ms| at(*ms)).count(), 4);
        set_sampling(Sampling::default());
    }
}
