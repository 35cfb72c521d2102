//! The trace clock: `CLOCK_MONOTONIC`, which LTTng-UST and `bpf_ktime_get_ns` read too.

use std::fs;

use ctf::{ClockClass, ClockOrigin, Uuid};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};

/// Clock readings tried; the one with the least time between its two ends is taken.
const OFFSET_SAMPLES: usize = 64;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// CPU time of this process, nanoseconds.
pub(crate) fn own_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// What to add to a time of `CLOCK_MONOTONIC` for nanoseconds since the Unix epoch, as both clocks stand now.
pub(crate) fn monotonic_to_unix_ns() -> u64 {
    let before = monotonic_ns();
    let now = nanoseconds(ClockId::Realtime);
    let between = before + monotonic_ns().saturating_sub(before) / 2;
    now.saturating_sub(between)
}

/// Seconds since the Unix epoch.
pub(super) fn unix_seconds() -> u64 {
    nanoseconds(ClockId::Realtime) / 1_000_000_000
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// LTTng's `monotonic` clock of this boot: same name and UUID, so that traces of both can be merged.
///
/// # Errors
/// [`Error::Os`] when the boot id cannot be read.
pub(super) fn clock_class() -> Result<ClockClass> {
    let boot_id = read_uuid("/proc/sys/kernel/random/boot_id", "read the boot id")?;
    // Without the origin babeltrace2 merges it only with traces of other tracers than LTTng.
    Ok(ClockClass {
        uuid: Some(boot_id),
        description: Some("Monotonic Clock".to_owned()),
        offset: epoch_offset_ns(),
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    })
}

/// A random UUID.
///
/// # Errors
/// [`Error::Os`] when the kernel does not give one.
pub(super) fn new_uuid() -> Result<Uuid> {
    read_uuid("/proc/sys/kernel/random/uuid", "get a random UUID")
}

/// From the epoch to the zero of `CLOCK_MONOTONIC`.
fn epoch_offset_ns() -> u64 {
    let sample = |_| {
        let before = monotonic_ns();
        let epoch = nanoseconds(ClockId::Realtime);
        let after = monotonic_ns();
        (after - before, epoch - u64::midpoint(before, after))
    };
    (0..OFFSET_SAMPLES).map(sample).min().map_or(0, |(_, offset)| offset)
}

fn read_uuid(path: &str, step: &'static str) -> Result<Uuid> {
    let text = fs::read_to_string(path).map_err(Error::os(step))?;
    parse_uuid(text.trim()).ok_or_else(|| Error::Os {
        step,
        source: std::io::Error::from(std::io::ErrorKind::InvalidData),
    })
}

fn parse_uuid(text: &str) -> Option<Uuid> {
    let digits: String = text.chars().filter(|character| *character != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(|number| Uuid(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_digit_by_digit() {
        let uuid = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!((uuid.0[0], uuid.0[1], uuid.0[15]), (0, 0x11, 0xff));
        assert_eq!(parse_uuid("0011"), None);
    }

    #[test]
    fn the_offset_leads_from_the_monotonic_clock_to_the_epoch() {
        let by_offset = epoch_offset_ns() + monotonic_ns();
        let now = nanoseconds(ClockId::Realtime);
        assert!(now.abs_diff(by_offset) < 1_000_000_000);
    }
}
