//! Points in time as Graphite writes them.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use model::Timestamp;

const SECOND: i64 = 1_000_000_000;

/// A point in time, as Graphite writes it.
///
/// Digits: 8 a day (`20260131`), 13 milliseconds, 16 microseconds, 19 nanoseconds, else seconds since the epoch. Otherwise `now` with or
/// without lengths of time added or subtracted: `now-1h`, `now-1d12h`, `now+5min`. Underscores, commas and blanks are passed over.
#[must_use]
pub fn parse(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text: String = text.chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits(&text);
    }
    let (reference, offset) = text.split_at(text.find(['+', '-']).unwrap_or(text.len()));
    if !matches!(reference, "now" | "") {
        return None;
    }
    let (sign, lengths) = match offset.strip_prefix('-') {
        Some(lengths) => (-1, lengths),
        None => (1, offset.strip_prefix('+').unwrap_or(offset)),
    };
    let seconds = sum(lengths)?.checked_mul(sign)?;
    Some(Timestamp::from_nanos(now.nanos().checked_add(seconds.checked_mul(SECOND)?)?))
}

fn digits(text: &str) -> Option<Timestamp> {
    let number: i64 = text.parse().ok()?;
    if text.len() == 8
        && let Some(day) = day(number)
    {
        return Some(day);
    }
    let unit = match text.len() {
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => SECOND,
    };
    Some(Timestamp::from_nanos(number.checked_mul(unit)?))
}

/// `20260131`, if there is such a day after 1900.
fn day(number: i64) -> Option<Timestamp> {
    let part = |value: i64| i8::try_from(value % 100).ok();
    let year = i16::try_from(number / 10_000).ok().filter(|year| *year > 1_900)?;
    let date = Date::new(year, part(number / 100)?, part(number)?).ok()?;
    let at = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond();
    Some(Timestamp::from_nanos(i64::try_from(at).ok()?))
}

/// Seconds of lengths of time, one behind the other: `1d12h`.
fn sum(mut text: &str) -> Option<i64> {
    let mut sum = 0i64;
    while !text.is_empty() {
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let (unit, rest) =
            rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let length = number.parse::<i64>().ok()?.checked_mul(seconds(unit)?)?;
        sum = sum.checked_add(length)?;
        text = rest;
    }
    Some(sum)
}

fn seconds(unit: &str) -> Option<i64> {
    const DAY: i64 = 86_400;
    let begins = |begin| unit.starts_with(begin);
    Some(match () {
        () if begins("s") => 1,
        () if begins("mon") || begins("M") => 30 * DAY,
        () if begins("m") => 60,
        () if begins("h") => 3_600,
        () if begins("d") => DAY,
        () if begins("w") => 7 * DAY,
        () if begins("y") => 365 * DAY,
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_all_their_forms() {
        let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse(text, now).map(Timestamp::nanos), expected, "{text}");
        };
        let (now, s) = (now.nanos(), SECOND);
        check("20260131", Some(1_769_817_600 * s));
        check("20261331", Some(20_261_331 * s));
        check("1795191872", Some(1_795_191_872 * s));
        check("1795191872123", Some(1_795_191_872_123_000_000));
        check("1795191872123456", Some(1_795_191_872_123_456_000));
        check("1795191872123456789", Some(1_795_191_872_123_456_789));
        check("now", Some(now));
        check("now-1h", Some(now - 3_600 * s));
        check("-1h", Some(now - 3_600 * s));
        check("now - 1d12h", Some(now - 129_600 * s));
        check("now+5min", Some(now + 300 * s));
        check("now-2M", Some(now - 60 * 86_400 * s));
        check("now-1mon", Some(now - 30 * 86_400 * s));
        check("now-1w", Some(now - 7 * 86_400 * s));
        check("now-1y", Some(now - 365 * 86_400 * s));
        for wrong in
            ["now-1", "now-h", "now-1x", "then", "now-99999999999999y", "99999999999999999999"]
        {
            check(wrong, None);
        }
    }
}
