//! Times and sizes as people write and read them: `2s`, `500ms`, `8MiB`.

use std::time::Duration;

use model::Timestamp;

/// Why a text is no time or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnitError {
    /// No number in front.
    #[error("expected a whole number and a unit, such as {0}")]
    Number(&'static str),
    /// A unit that does not exist, or none.
    #[error("unknown unit {unit:?}; one of {known}")]
    Unit {
        /// What was given.
        unit: String,
        /// What can be given.
        known: &'static str,
    },
    /// Zero, or more than can be counted.
    #[error("out of range")]
    Range,
}

/// A length of time, at least a millisecond: `500ms`, `2s`, `5m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text, "2s")?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(UnitError::Unit { unit: unit.to_owned(), known: "ms, s, m, h" }),
    };
    let ms = number.checked_mul(unit_ms).filter(|ms| *ms > 0).ok_or(UnitError::Range)?;
    Ok(Duration::from_millis(ms))
}

/// A length of time, also a short one: `250ns`, `10us`, `1ms`, `2s`.
pub(crate) fn parse_nanos(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, "10us")?;
    let unit_ns = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(UnitError::Unit { unit: unit.to_owned(), known: "ns, us, ms, s" }),
    };
    number.checked_mul(unit_ns).ok_or(UnitError::Range)
}

/// A number of bytes, at least one: `4096B`, `64KiB`, `8MiB`, `1GiB`, and `kB`, `MB`, `GB` by thousands.
pub(crate) fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, "8MiB")?;
    let unit_bytes = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => {
            return Err(UnitError::Unit {
                unit: unit.to_owned(),
                known: "B, KiB, MiB, GiB, kB, MB, GB",
            });
        }
    };
    number.checked_mul(unit_bytes).filter(|bytes| *bytes > 0).ok_or(UnitError::Range)
}

/// A point in time as RFC 3339 in UTC, to the nanosecond.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let instant = jiff::Timestamp::from_nanosecond(at.nanos().into());
    // Any 64 bits of nanoseconds are within the calendar.
    instant.map_or_else(|_| format!("{} ns", at.nanos()), |instant| format!("{instant:.9}"))
}

/// A number of bytes with the largest binary unit of which there is at least one: `496 B`, `7.73 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.iter().find(|(shift, _)| bytes >> shift > 0) {
        None => format!("{bytes} B"),
        Some((shift, unit)) => {
            let hundredths = (u128::from(bytes) * 100) >> shift;
            format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
        }
    }
}

fn split<'a>(text: &'a str, example: &'static str) -> Result<(u64, &'a str), UnitError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    match number.parse() {
        Ok(number) => Ok((number, unit.trim_start())),
        Err(_) if number.is_empty() => Err(UnitError::Number(example)),
        Err(_) => Err(UnitError::Range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("250 ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("s"), Err(UnitError::Number("2s")));
        assert_eq!(parse_duration("0s"), Err(UnitError::Range));
        assert!(matches!(parse_duration("2"), Err(UnitError::Unit { .. })));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.00 KiB"),
            (8_105_984, "7.73 MiB"),
            (u64::MAX, "16777215.99 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn points_in_time_are_shown_in_utc() {
        let at = |nanos| rfc3339(Timestamp::from_nanos(nanos));
        assert_eq!(at(1_795_193_047_000_000_001), "2026-11-20T16:44:07.000000001Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(at(i64::MIN), "1677-09-21T00:12:43.145224192Z");
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(parse_size("8MiB"), Ok(8 << 20));
        assert_eq!(parse_size("64kB"), Ok(64_000));
        assert_eq!(parse_size("99999999999999999999B"), Err(UnitError::Range));
        assert_eq!(parse_size("99999999999GiB"), Err(UnitError::Range));
        assert!(matches!(parse_size("8M"), Err(UnitError::Unit { .. })));
    }
}
