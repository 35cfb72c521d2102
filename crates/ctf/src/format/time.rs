//! Times of lines, and differences between them.

use std::fmt;

use super::number::{decimal, padded, point_and_nanos};
use super::options::{TextOptions, TimeStyle};
use super::output::Output;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds east of UTC at a second since the epoch: the zone in which times of day are shown.
pub type ZoneOffset = Box<dyn Fn(i64) -> i32 + Send>;

/// Writes times; keeps that of the line before.
pub(crate) struct TimeWriter {
    style: TimeStyle,
    zone: ZoneOffset,
    /// The second whose calendar text is kept.
    second: Option<i64>,
    /// `hh:mm:ss` or `YYYY-MM-DD hh:mm:ss` of that second.
    calendar: Output,
    delta: Delta,
}

/// Differences between lines, as the reference computes them: one number stands for "unknown", be it computed or not.
#[derive(Debug, Clone, Copy)]
struct Delta {
    before: u64,
    shown: u64,
}

impl Delta {
    const UNKNOWN: u64 = u64::MAX;
    const NONE: Self = Self { before: Self::UNKNOWN, shown: Self::UNKNOWN };

    fn step(&mut self, at: u64) -> Option<u64> {
        if self.before != Self::UNKNOWN {
            self.shown = at.wrapping_sub(self.before);
        }
        self.before = at;
        Some(self.shown).filter(|shown| *shown != Self::UNKNOWN)
    }
}

impl fmt::Debug for TimeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeWriter").field("style", &self.style).finish_non_exhaustive()
    }
}

impl TimeWriter {
    pub(crate) fn new(options: &TextOptions, zone: ZoneOffset) -> Self {
        Self {
            style: options.time,
            zone,
            second: None,
            calendar: Output::new(),
            delta: Delta::NONE,
        }
    }

    /// Takes the time of a line, in nanoseconds since the clock's origin and in cycles: the difference to the line
    /// before, in the unit that is shown; `None` where it is not known.
    #[inline]
    pub(crate) fn step(&mut self, nanos: i64, cycles: u64) -> Option<u64> {
        let at = if self.style == TimeStyle::Cycles { cycles } else { nanos.cast_unsigned() };
        self.delta.step(at)
    }

    #[inline]
    pub(crate) fn time(&mut self, nanos: i64, cycles: u64, out: &mut Output) {
        match self.style {
            TimeStyle::TimeOfDay | TimeStyle::DateAndTime if nanos >= 0 => {
                let second = nanos / NANOS_PER_SECOND;
                if self.second != Some(second) {
                    self.keep(second);
                }
                out.push_bytes(self.calendar.as_bytes());
                point_and_nanos(out, (nanos % NANOS_PER_SECOND).unsigned_abs());
            }
            TimeStyle::Cycles => padded(out, cycles, 20),
            _ => {
                if nanos < 0 {
                    out.push(b'-');
                }
                seconds(nanos.unsigned_abs(), out);
            }
        }
    }

    /// A difference that [`Self::step`] returned.
    #[inline]
    pub(crate) fn delta(&self, delta: Option<u64>, out: &mut Output) {
        match (self.style, delta) {
            (TimeStyle::Cycles, None) => out.fixed(b"+????????????"),
            (TimeStyle::Cycles, Some(cycles)) => {
                out.push(b'+');
                padded(out, cycles, 12);
            }
            (_, None) => out.fixed(b"+?.?????????"),
            (_, Some(nanos)) => {
                out.push(b'+');
                seconds(nanos, out);
            }
        }
    }

    #[cold]
    fn keep(&mut self, second: i64) {
        let local = second.saturating_add(i64::from((self.zone)(second)));
        self.second = Some(second);
        self.calendar.clear();
        if self.style == TimeStyle::DateAndTime {
            date(local.div_euclid(SECONDS_PER_DAY), &mut self.calendar);
        }
        let of_day = local.rem_euclid(SECONDS_PER_DAY).unsigned_abs();
        padded(&mut self.calendar, of_day / 3_600, 2);
        for part in [of_day / 60 % 60, of_day % 60] {
            self.calendar.push(b':');
            padded(&mut self.calendar, part, 2);
        }
    }
}

#[inline]
fn seconds(nanos: u64, out: &mut Output) {
    const SECOND: u64 = NANOS_PER_SECOND.unsigned_abs();
    decimal(out, nanos / SECOND);
    point_and_nanos(out, nanos % SECOND);
}

/// `YYYY-MM-DD ` of a day since 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the day that leap years add is their last; 400 years have 146,097 days.
fn date(day: i64, out: &mut Output) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    // Days since 0000-03-01.
    let since = day + 719_468;
    let (era, of_era) = (since.div_euclid(DAYS_OF_400_YEARS), since.rem_euclid(DAYS_OF_400_YEARS));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, and again.
    let from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    for (value, width, after) in [(year, 4, b'-'), (month, 2, b'-'), (of_month, 2, b' ')] {
        padded(out, value.unsigned_abs(), width);
        out.push(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(time: TimeStyle) -> TimeWriter {
        let options = TextOptions { time, ..TextOptions::default() };
        TimeWriter::new(&options, Box::new(|_| 5 * 3_600 + 1_800))
    }

    fn text(write: impl FnOnce(&mut Output)) -> String {
        let mut out = Output::new();
        write(&mut out);
        String::from_utf8(out.as_bytes().to_vec()).expect("ASCII")
    }

    #[test]
    fn times_are_shown_in_the_zone() {
        let at = 1_795_193_047_736_468_450;
        for (style, expected) in [
            (TimeStyle::TimeOfDay, "22:14:07.736468450"),
            (TimeStyle::DateAndTime, "2026-11-20 22:14:07.736468450"),
            (TimeStyle::Seconds, "1795193047.736468450"),
            (TimeStyle::Cycles, "00000000000000000042"),
        ] {
            let mut writer = writer(style);
            assert_eq!(text(|out| writer.time(at, 42, out)), expected);
            // The second is the one that is kept.
            assert_eq!(text(|out| writer.time(at, 42, out)), expected);
            assert_ne!(text(|out| writer.time(at + NANOS_PER_SECOND, 43, out)), expected);
        }
        assert_eq!(text(|out| writer(TimeStyle::DateAndTime).time(-1, 0, out)), "-0.000000001");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // The right-hand sides were printed by `date -u -d @SECONDS +%F`.
        for (seconds, expected) in [
            (0, "1970-01-01 "),
            (951_782_400, "2000-02-29 "),
            (951_868_800, "2000-03-01 "),
            (978_220_800, "2000-12-31 "),
            (4_107_456_000, "2100-02-28 "),
            (4_107_542_400, "2100-03-01 "),
            (9_223_372_036, "2262-04-11 "),
        ] {
            assert_eq!(text(|out| date(seconds / SECONDS_PER_DAY, out)), expected);
        }
    }

    #[test]
    fn differences_are_to_the_line_before_and_wrap() {
        let mut writer = writer(TimeStyle::TimeOfDay);
        let mut shown = |at: i64| {
            let delta = writer.step(at, 0);
            text(|out| writer.delta(delta, out))
        };
        assert_eq!(shown(1_000_000_000), "+?.?????????");
        assert_eq!(shown(2_000_000_001), "+1.000000001");
        assert_eq!(shown(1_999_999_999), "+18446744073.709551614");
        // A step of one nanosecond backwards is the number that stands for "unknown".
        assert_eq!(shown(1_999_999_998), "+?.?????????");
    }

    #[test]
    fn differences_of_cycles_are_padded() {
        let mut writer = writer(TimeStyle::Cycles);
        let mut shown = |cycles: u64| {
            let delta = writer.step(0, cycles);
            text(|out| writer.delta(delta, out))
        };
        assert_eq!(shown(5), "+????????????");
        assert_eq!(shown(4_081), "+000000004076");
    }
}
