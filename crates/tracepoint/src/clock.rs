//! The clock of records: a counter of the processor where it can be trusted, or else the kernel's.
#![expect(unsafe_code, reason = "counters of processors are read by instructions of theirs")]

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::layout::ClockKind;

#[cfg(target_arch = "x86_64")]
/// Where the kernel says which clock it goes by.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// A [`ClockKind`]; 0 until [`choose`] was called.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Finds out which clock this process reads, and keeps to it.
pub(crate) fn choose() -> ClockKind {
    if let Some(chosen) = ClockKind::from_code(CHOSEN.load(Ordering::Relaxed)) {
        return chosen;
    }
    let kind = trusted();
    CHOSEN.store(kind as u32, Ordering::Relaxed);
    kind
}

/// The kernel goes by the counter itself when it found it to be the same on all processors and steady.
#[cfg(target_arch = "x86_64")]
fn trusted() -> ClockKind {
    let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    if source.trim() == "tsc" { ClockKind::Tsc } else { ClockKind::Monotonic }
}

/// The architecture promises one counter for all processors.
#[cfg(target_arch = "aarch64")]
fn trusted() -> ClockKind {
    ClockKind::Counter
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn trusted() -> ClockKind {
    ClockKind::Monotonic
}

/// The time, after [`choose`]: see [`ClockKind`] for what it counts.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn now() -> u64 {
    if CHOSEN.load(Ordering::Relaxed) == ClockKind::Tsc as u32 {
        // SAFETY: every x86-64 has the instruction, and a kernel that goes by the counter lets processes read it.
        return unsafe { core::arch::x86_64::_rdtsc() };
    }
    monotonic()
}

/// The time, after [`choose`]: see [`ClockKind`] for what it counts.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn now() -> u64 {
    let count: u64;
    // SAFETY: Linux lets processes read this register, which has no side effects.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    count
}

/// The time, after [`choose`]: see [`ClockKind`] for what it counts.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn now() -> u64 {
    monotonic()
}

/// The same moment by the clock of records and by `CLOCK_MONOTONIC`, nanoseconds, as near as a few readings come.
pub(crate) fn both() -> (u64, u64) {
    near(now)
}

/// The same moment by a clock of records and by `CLOCK_MONOTONIC`, in nanoseconds, for who reads what others wrote; `None` when this machine has no such clock.
#[must_use]
pub fn clock_pair(kind: ClockKind) -> Option<(u64, u64)> {
    match kind {
        ClockKind::Monotonic => Some(near(monotonic)),
        // SAFETY: every x86-64 has the instruction; a process that may not use it has none of its records' times either.
        #[cfg(target_arch = "x86_64")]
        ClockKind::Tsc => Some(near(|| unsafe { core::arch::x86_64::_rdtsc() })),
        #[cfg(target_arch = "aarch64")]
        ClockKind::Counter => Some(near(|| {
            choose();
            now()
        })),
        #[allow(unreachable_patterns, reason = "which clocks there are depends on the machine")]
        _ => None,
    }
}

/// The reading of several that took the shortest time.
fn near(now: impl Fn() -> u64) -> (u64, u64) {
    let readings = (0..8).map(|_| {
        let (before, monotonic_ns, after) = (now(), monotonic(), now());
        let between = after.wrapping_sub(before);
        (between, before.wrapping_add(between / 2), monotonic_ns)
    });
    readings.min().map_or((0, 0), |(_, count, monotonic_ns)| (count, monotonic_ns))
}

/// `CLOCK_MONOTONIC`, nanoseconds: no system call where the kernel maps its own code for it.
#[cold]
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}
