//! Points in time on the command line.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use model::Timestamp;
use thiserror::Error;

/// Whole numbers from so many digits on are nanoseconds: as seconds they would lie millions of years ahead.
const NANOSECOND_DIGITS: usize = 15;

/// A text that is no point in time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NotATime {
    #[error(
        "not nanoseconds (1795193047736468450), seconds (1795193047.5) or a date and time (2026-11-20T16:44:07Z)"
    )]
    Form,
    #[error("outside of the years 1677 to 2262")]
    Range,
}

/// Reads nanoseconds or seconds since the epoch, or a date and time; one without an offset is of the local zone.
pub(crate) fn parse(text: &str) -> Result<Timestamp, NotATime> {
    parse_in(text, TimeZone::system)
}

fn parse_in(text: &str, local: impl FnOnce() -> TimeZone) -> Result<Timestamp, NotATime> {
    if let Some(number) = text.strip_suffix("ns") {
        return number.parse().ok().map(Timestamp::from_nanos).ok_or(NotATime::Form);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: i64 = text.parse().ok().ok_or(NotATime::Range)?;
        let nanos = if digits.len() >= NANOSECOND_DIGITS {
            Some(number)
        } else {
            number.checked_mul(1_000_000_000)
        };
        return nanos.map(Timestamp::from_nanos).ok_or(NotATime::Range);
    }
    match decimal_seconds(text) {
        Some(nanos) => nanos.map(Timestamp::from_nanos),
        None => date_time(text, local),
    }
}

/// `SECONDS.FRACTION` with up to nine digits of fraction; `None` for any other form.
fn decimal_seconds(text: &str) -> Option<Result<i64, NotATime>> {
    let (whole, fraction) = text.split_once('.')?;
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(unsigned) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos = format!("{unsigned}{fraction:0<9}").parse::<i64>().ok().ok_or(NotATime::Range);
    Some(nanos.map(|nanos| if whole.starts_with('-') { -nanos } else { nanos }))
}

fn date_time(text: &str, local: impl FnOnce() -> TimeZone) -> Result<Timestamp, NotATime> {
    let instant = match text.parse::<jiff::Timestamp>() {
        Ok(instant) => instant,
        Err(_) => {
            let civil: DateTime = text.parse().ok().ok_or(NotATime::Form)?;
            civil.to_zoned(local()).ok().ok_or(NotATime::Range)?.timestamp()
        }
    };
    let nanos = i64::try_from(instant.as_nanosecond()).ok();
    nanos.map(Timestamp::from_nanos).ok_or(NotATime::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_has_many_forms() {
        let zone = || TimeZone::fixed(jiff::tz::offset(1));
        for (text, nanos) in [
            ("1795193047736468450", 1_795_193_047_736_468_450),
            ("12ns", 12),
            ("1795193047", 1_795_193_047_000_000_000),
            ("1795193047.5", 1_795_193_047_500_000_000),
            ("-0.25", -250_000_000),
            ("2026-11-20T16:44:07.000000001Z", 1_795_193_047_000_000_001),
            ("2026-11-20T16:44:07+00:00", 1_795_193_047_000_000_000),
            ("2026-11-20 17:44:07", 1_795_193_047_000_000_000),
            ("2026-11-20", 1_795_129_200_000_000_000),
        ] {
            assert_eq!(parse_in(text, zone), Ok(Timestamp::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "-", "now", "1.", ".5", "1.0000000001", "12:00", "x12ns"] {
            assert_eq!(parse_in(text, || TimeZone::UTC), Err(NotATime::Form), "{text}");
        }
        for text in
            ["99999999999999999999", "99999999999999", "99999999999.0", "9999-01-01T00:00:00Z"]
        {
            assert_eq!(parse_in(text, || TimeZone::UTC), Err(NotATime::Range), "{text}");
        }
    }
}
