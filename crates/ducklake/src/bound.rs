//! Smallest and largest values of a column, and their texts, as DuckDB casts them.

use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Unit};

/// The longest text that is a bound: what DuckDB writes at most.
pub const MAX_BOUND_BYTES: usize = 256;

/// A value that no value of a column is below, or none above. Bounds of one column have one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Written as 0 or 1.
    Boolean(bool),
    /// Of any width.
    Integer(i128),
    /// Days since 1970-01-01.
    Date(i32),
    /// A time of years 0 to 9999.
    Time {
        /// Nanoseconds since 1970-01-01T00:00:00.
        nanos: i128,
        /// Whether that is the time of UTC, and not of any clock.
        is_utc: bool,
    },
    /// Compared by its bytes; at most [`MAX_BOUND_BYTES`] of them, none zero.
    Text(String),
}

impl Bound {
    /// Itself, when it has a text.
    pub(crate) fn written(self) -> Option<Self> {
        let is_writable = match &self {
            Self::Boolean(_) | Self::Integer(_) => true,
            Self::Date(days) => date(*days).is_some(),
            Self::Time { nanos, .. } => time(*nanos).is_some(),
            // PostgreSQL has no texts with a zero.
            Self::Text(text) => text.len() <= MAX_BOUND_BYTES && !text.contains('\0'),
        };
        is_writable.then_some(self)
    }

    /// The bound of the same kind that a text is of; `None` when it is not.
    pub(crate) fn read_like(&self, text: &str) -> Option<Self> {
        match self {
            Self::Boolean(_) => match text {
                "0" | "false" => Some(Self::Boolean(false)),
                "1" | "true" => Some(Self::Boolean(true)),
                _ => None,
            },
            Self::Integer(_) => text.parse().ok().map(Self::Integer),
            Self::Date(_) => {
                let date: Date = text.parse().ok()?;
                let span = Date::constant(1970, 1, 1).until((Unit::Day, date)).ok()?;
                Some(Self::Date(span.get_days()))
            }
            Self::Time { is_utc, .. } => {
                let clock = if *is_utc { text.strip_suffix("+00")? } else { text };
                let clock: DateTime = clock.parse().ok()?;
                let nanos = clock.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond();
                Some(Self::Time { nanos, is_utc: *is_utc })
            }
            Self::Text(_) => Some(Self::Text(text.to_owned())),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(f, "{}", u8::from(*value)),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Date(days) => match date(*days) {
                Some(date) => write!(f, "{date}"),
                None => write!(f, "day {days}"),
            },
            Self::Time { nanos, is_utc } => match time(*nanos) {
                Some(time) => {
                    write!(f, "{} {}", time.date(), time.time())?;
                    f.write_str(if *is_utc { "+00" } else { "" })
                }
                None => write!(f, "{nanos} ns"),
            },
            Self::Text(text) => f.write_str(text),
        }
    }
}

fn date(days: i32) -> Option<Date> {
    let span = 0.days().try_days(days).ok()?;
    let date = Date::constant(1970, 1, 1).checked_add(span).ok()?;
    (date.year() >= 0).then_some(date)
}

fn time(nanos: i128) -> Option<DateTime> {
    let time = jiff::Timestamp::from_nanosecond(nanos).ok()?;
    let time = TimeZone::UTC.to_datetime(time);
    (time.year() >= 0).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bound: &Bound, text: &str) {
        assert_eq!(bound.to_string(), text);
        assert_eq!(bound.read_like(text).as_ref(), Some(bound));
    }

    /// Texts as DuckDB 1.5.5 wrote them for these values.
    #[test]
    fn bounds_are_written_as_duckdb_writes_them() {
        let utc = |nanos| Bound::Time { nanos, is_utc: true };
        let clock = |nanos| Bound::Time { nanos, is_utc: false };
        check(&Bound::Boolean(true), "1");
        check(&Bound::Integer(-7), "-7");
        check(&Bound::Integer(u64::MAX.into()), "18446744073709551615");
        check(&Bound::Date(19_756), "2024-02-03");
        check(&clock(1_704_164_645_123_456_789), "2024-01-02 03:04:05.123456789");
        check(&clock(1_704_164_645_120_000_000), "2024-01-02 03:04:05.12");
        check(&clock(1_704_164_645_000_000_000), "2024-01-02 03:04:05");
        check(&utc(1_704_164_645_123_456_000), "2024-01-02 03:04:05.123456+00");
        check(&clock(-1), "1969-12-31 23:59:59.999999999");
        check(&Bound::Text("b'é\nq".to_owned()), "b'é\nq");
    }

    #[test]
    fn texts_of_another_kind_are_no_bounds() {
        assert_eq!(Bound::Integer(0).read_like("x"), None);
        assert_eq!(Bound::Date(0).read_like("2024-02-31"), None);
        assert_eq!(Bound::Time { nanos: 0, is_utc: true }.read_like("2024-01-02 03:04:05"), None);
        assert_eq!(Bound::Boolean(true).read_like("2"), None);
    }

    #[test]
    fn what_no_database_takes_is_no_bound() {
        assert_eq!(Bound::Text("a\0".to_owned()).written(), None);
        assert_eq!(Bound::Text("a".repeat(MAX_BOUND_BYTES + 1)).written(), None);
        assert_eq!(Bound::Time { nanos: i128::MAX, is_utc: false }.written(), None);
        assert_eq!(Bound::Date(i32::MIN).written(), None);
    }
}
