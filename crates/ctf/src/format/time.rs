//! Times of lines, and differences between them.

use std::fmt;

use super::fields::Style;
use super::number::{decimal, nanos_digits, padded, point_and_nanos};
use super::options::{Names, TextOptions, TimeStyle};
use super::output::{Output, Piece, SHORT};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds east of UTC at a second since the epoch: the zone in which times of day are shown.
pub type ZoneOffset = Box<dyn Fn(i64) -> i32 + Send>;

/// Writes the times of lines and the differences between them, with what stands around; keeps the time of the line
/// before.
pub(crate) struct TimeWriter {
    style: TimeStyle,
    zone: ZoneOffset,
    /// What precedes the time.
    opening: Piece,
    /// The nanosecond with which the second begins whose calendar text is kept.
    second: i64,
    /// What precedes the time, and `hh:mm:ss` or `YYYY-MM-DD hh:mm:ss` of that second.
    calendar: Piece,
    /// What stands between time and difference.
    middle: Piece,
    /// What follows the difference.
    closing: Piece,
    shows_delta: bool,
    /// Times of day and differences are shown, and all pieces are short.
    is_usual: bool,
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
        let style = Style::new(options);
        let named = options.names.contains(Names::HEADER);
        let [mut opening, mut middle, mut closing] = [const { Output::new() }; 3];
        if named {
            style.name(&mut opening, "timestamp");
        } else {
            opening.push(b'[');
        }
        opening.push_bytes(style.palette.time.as_bytes());
        middle.push_bytes(style.palette.reset.as_bytes());
        middle.push_bytes(if named { b"" } else { b"] " });
        if options.delta && named {
            middle.fixed(b", ");
            style.name(&mut middle, "delta");
        } else if options.delta {
            middle.push(b'(');
            closing.fixed(b") ");
        }
        if options.delta {
            middle.push(b'+');
        }
        Self {
            style: options.time,
            zone,
            opening: Piece::new(opening.as_bytes()),
            second: i64::MIN,
            calendar: Piece::default(),
            middle: Piece::new(middle.as_bytes()),
            closing: Piece::new(closing.as_bytes()),
            shows_delta: options.delta,
            is_usual: false,
            delta: Delta::NONE,
        }
    }

    /// The time of a line, in nanoseconds since the clock's origin and in cycles, and the difference to the line
    /// before in the unit that is shown.
    #[inline]
    pub(crate) fn write(&mut self, nanos: i64, cycles: u64, out: &mut Output) {
        const SECOND: u64 = NANOS_PER_SECOND.unsigned_abs();
        let at = if self.style == TimeStyle::Cycles { cycles } else { nanos.cast_unsigned() };
        let delta = self.delta.step(at);
        let since = nanos.wrapping_sub(self.second).cast_unsigned();
        if self.is_usual
            && since < SECOND
            && let Some(delta) = delta.filter(|delta| *delta < SECOND)
        {
            return self.usual(since, delta, out);
        }
        self.time(nanos, cycles, out);
        out.piece(&self.middle);
        if self.shows_delta {
            self.difference(delta, out);
            out.piece(&self.closing);
        }
    }

    /// Of a time in the second that is kept and a difference below a second, all pieces being short.
    #[inline(always)]
    fn usual(&self, since: u64, delta: u64, out: &mut Output) {
        let mut line = out.cursor(3 * SHORT + 32);
        line.put_piece(&self.calendar);
        line.put(&nanos_digits(since), 10);
        line.put_piece(&self.middle);
        line.put(b"0", 1);
        line.put(&nanos_digits(delta), 10);
        line.put_piece(&self.closing);
        let written = line.written();
        out.advance(written);
    }

    fn time(&mut self, nanos: i64, cycles: u64, out: &mut Output) {
        const SECOND: u64 = NANOS_PER_SECOND.unsigned_abs();
        match self.style {
            TimeStyle::TimeOfDay | TimeStyle::DateAndTime if nanos >= 0 => {
                let mut since = nanos.wrapping_sub(self.second).cast_unsigned();
                if since >= SECOND {
                    self.keep(nanos / NANOS_PER_SECOND);
                    since = nanos.wrapping_sub(self.second).cast_unsigned();
                }
                out.piece(&self.calendar);
                point_and_nanos(out, since);
            }
            TimeStyle::Cycles => {
                out.piece(&self.opening);
                padded(out, cycles, 20);
            }
            _ => {
                out.piece(&self.opening);
                if nanos < 0 {
                    out.push(b'-');
                }
                seconds(nanos.unsigned_abs(), out);
            }
        }
    }

    /// The difference without its sign.
    fn difference(&self, delta: Option<u64>, out: &mut Output) {
        match (self.style, delta) {
            (TimeStyle::Cycles, None) => out.fixed(b"????????????"),
            (TimeStyle::Cycles, Some(cycles)) => padded(out, cycles, 12),
            (_, None) => out.fixed(b"?.?????????"),
            (_, Some(nanos)) => seconds(nanos, out),
        }
    }

    #[cold]
    fn keep(&mut self, second: i64) {
        let local = second.saturating_add(i64::from((self.zone)(second)));
        self.second = second * NANOS_PER_SECOND;
        let mut text = Output::new();
        text.piece(&self.opening);
        if self.style == TimeStyle::DateAndTime {
            date(local.div_euclid(SECONDS_PER_DAY), &mut text);
        }
        let of_day = local.rem_euclid(SECONDS_PER_DAY).unsigned_abs();
        padded(&mut text, of_day / 3_600, 2);
        for part in [of_day / 60 % 60, of_day % 60] {
            text.push(b':');
            padded(&mut text, part, 2);
        }
        self.calendar = Piece::new(text.as_bytes());
        self.is_usual = self.shows_delta
            && [&self.calendar, &self.middle, &self.closing].iter().all(|piece| piece.is_short());
    }
}

#[inline]
fn seconds(nanos: u64, out: &mut Output) {
    const SECOND: u64 = NANOS_PER_SECOND.unsigned_abs();
    if nanos < SECOND {
        out.push(b'0');
    } else {
        decimal(out, nanos / SECOND);
    }
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
            (TimeStyle::TimeOfDay, "[22:14:07.736468450"),
            (TimeStyle::DateAndTime, "[2026-11-20 22:14:07.736468450"),
            (TimeStyle::Seconds, "[1795193047.736468450"),
            (TimeStyle::Cycles, "[00000000000000000042"),
        ] {
            let mut writer = writer(style);
            assert_eq!(text(|out| writer.time(at, 42, out)), expected);
            // The second is the one that is kept, and then one before it.
            assert_eq!(text(|out| writer.time(at, 42, out)), expected);
            assert_ne!(text(|out| writer.time(at - NANOS_PER_SECOND, 43, out)), expected);
        }
        assert_eq!(text(|out| writer(TimeStyle::DateAndTime).time(-1, 0, out)), "[-0.000000001");
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
        let mut writer = writer(TimeStyle::Seconds);
        let mut shown = |at: i64| text(|out| writer.write(at, 0, out));
        assert_eq!(shown(1_000_000_000), "[1.000000000] (+?.?????????) ");
        assert_eq!(shown(2_000_000_001), "[2.000000001] (+1.000000001) ");
        assert_eq!(shown(1_999_999_999), "[1.999999999] (+18446744073.709551614) ");
        // A step of one nanosecond backwards is the number that stands for "unknown".
        assert_eq!(shown(1_999_999_998), "[1.999999998] (+?.?????????) ");
    }

    #[test]
    fn differences_of_cycles_are_padded() {
        let mut writer = writer(TimeStyle::Cycles);
        let mut shown = |cycles: u64| text(|out| writer.write(0, cycles, out));
        assert_eq!(shown(5), "[00000000000000000005] (+????????????) ");
        assert_eq!(shown(4_081), "[00000000000000004081] (+000000004076) ");
    }
}
