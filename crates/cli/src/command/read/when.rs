//! Points in time on the command line.
//!
//! A time of day, and a date and time without an offset, mean something only once the zone is known, and a time of day
//! only once the day is: what is parsed becomes a point in time when the recording is open.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use model::Timestamp;
use thiserror::Error;

/// Whole numbers from so many digits on are nanoseconds: as seconds they would lie millions of years ahead.
const NANOSECOND_DIGITS: usize = 15;

/// What was written for a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// It is known.
    At(Timestamp),
    /// A date and time of some zone.
    Civil(DateTime),
    /// A time of the recording's first day in some zone.
    OfDay(Time),
}

/// A text that is no point in time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NotATime {
    #[error(
        "not nanoseconds (1795193047736468450), seconds (1795193047.5), a time of day (16:44:07.5) or a date and time \
         (2026-11-20T16:44:07Z)"
    )]
    Form,
    #[error("outside of the years 1677 to 2262")]
    Range,
}

/// Two texts that are no range of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NotARange {
    #[error("not BEGIN,END or [BEGIN,END]")]
    Form,
    #[error("{0}: {1}")]
    Part(String, NotATime),
}

/// Reads nanoseconds or seconds since the epoch, a time of day, or a date and time with or without an offset.
pub(crate) fn parse(text: &str) -> Result<When, NotATime> {
    if let Some(number) = text.strip_suffix("ns") {
        return number.parse().ok().map(at).ok_or(NotATime::Form);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: i64 = text.parse().ok().ok_or(NotATime::Range)?;
        let nanos = if digits.len() >= NANOSECOND_DIGITS {
            Some(number)
        } else {
            number.checked_mul(1_000_000_000)
        };
        return nanos.map(at).ok_or(NotATime::Range);
    }
    match decimal_seconds(text) {
        Some(nanos) => nanos.map(at),
        None => calendar(text),
    }
}

/// Reads `BEGIN,END`, with or without brackets around it.
pub(crate) fn parse_range(text: &str) -> Result<(When, When), NotARange> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let (begin, end) = bare.split_once(',').ok_or(NotARange::Form)?;
    let part = |text: &str| {
        let text = text.trim();
        parse(text).map_err(|problem| NotARange::Part(text.to_owned(), problem))
    };
    Ok((part(begin)?, part(end)?))
}

impl When {
    /// The point in time in `zone`; `first` gives the recording's first point in time.
    pub(crate) fn resolve(
        self,
        zone: &TimeZone,
        first: impl FnOnce() -> Option<Timestamp>,
    ) -> Result<Timestamp, NotATime> {
        let civil = match self {
            Self::At(at) => return Ok(at),
            Self::Civil(civil) => civil,
            Self::OfDay(time) => {
                let first = first().map_or(0, Timestamp::nanos);
                let first = jiff::Timestamp::from_nanosecond(first.into()).ok();
                let day: Date = zone.to_datetime(first.ok_or(NotATime::Range)?).date();
                day.to_datetime(time)
            }
        };
        civil
            .to_zoned(zone.clone())
            .ok()
            .map_or(Err(NotATime::Range), |zoned| from_instant(zoned.timestamp()))
    }
}

const fn at(nanos: i64) -> When {
    When::At(Timestamp::from_nanos(nanos))
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

fn calendar(text: &str) -> Result<When, NotATime> {
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return from_instant(instant).map(When::At);
    }
    if !text.contains('-')
        && text.contains(':')
        && let Ok(time) = text.parse()
    {
        return Ok(When::OfDay(time));
    }
    text.parse().ok().map(When::Civil).ok_or(NotATime::Form)
}

fn from_instant(instant: jiff::Timestamp) -> Result<Timestamp, NotATime> {
    let nanos = i64::try_from(instant.as_nanosecond()).ok();
    nanos.map(Timestamp::from_nanos).ok_or(NotATime::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<i64, NotATime> {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let first = || Some(Timestamp::from_nanos(1_795_193_047_736_468_450));
        parse(text)?.resolve(&zone, first).map(Timestamp::nanos)
    }

    #[test]
    fn a_point_in_time_has_many_forms() {
        for (text, nanos) in [
            ("1795193047736468450", 1_795_193_047_736_468_450),
            ("12ns", 12),
            ("1795193047", 1_795_193_047_000_000_000),
            ("1795193047.5", 1_795_193_047_500_000_000),
            ("-0.25", -250_000_000),
            ("2026-11-20T16:44:07.000000001Z", 1_795_193_047_000_000_001),
            ("2026-11-20T16:44:07+00:00", 1_795_193_047_000_000_000),
            ("2026-11-20 17:44:07", 1_795_193_047_000_000_000),
            ("2026-11-20 17:44:07.5", 1_795_193_047_500_000_000),
            ("2026-11-20 17:44", 1_795_193_040_000_000_000),
            ("2026-11-20", 1_795_129_200_000_000_000),
            ("17:44:07.000000001", 1_795_193_047_000_000_001),
            ("17:44:07", 1_795_193_047_000_000_000),
            ("17:44", 1_795_193_040_000_000_000),
            ("00:00", 1_795_129_200_000_000_000),
        ] {
            assert_eq!(resolved(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "-", "now", "1.", ".5", "1.0000000001", "x12ns", "25:00", "7:00"] {
            assert_eq!(resolved(text), Err(NotATime::Form), "{text}");
        }
        for text in
            ["99999999999999999999", "99999999999999", "99999999999.0", "9999-01-01T00:00:00Z"]
        {
            assert_eq!(resolved(text), Err(NotATime::Range), "{text}");
        }
    }

    #[test]
    fn a_range_is_two_points_with_or_without_brackets() {
        let expected = Ok((at(1_500_000_000), at(2)));
        for text in ["1.5,2ns", "[1.5,2ns]", "1.5, 2ns"] {
            assert_eq!(parse_range(text), expected, "{text}");
        }
        assert_eq!(parse_range("1.5"), Err(NotARange::Form));
        assert_eq!(parse_range("1,x"), Err(NotARange::Part("x".to_owned(), NotATime::Form)));
    }
}
