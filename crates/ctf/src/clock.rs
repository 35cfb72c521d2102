//! Clock classes: from the cycles a tracer counted to nanoseconds since the clock's origin.

use std::fmt;

use crate::error::DecodeErrorKind;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A UUID as sixteen bytes; shown in the usual hyphened form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads the form `01234567-89ab-cdef-0123-456789abcdef` in either case; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0_u8; 16];
        let mut groups = text.split('-');
        let mut out = bytes.iter_mut();
        for len in [8, 4, 4, 4, 12] {
            let group = groups.next().filter(|g| g.len() == len)?;
            for pair in group.as_bytes().chunks_exact(2) {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let [high, low] = *pair else { return None };
                *out.next()? = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
            }
        }
        groups.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a clock's zero lies, before its offset is added.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClockOrigin {
    /// Nobody says.
    #[default]
    Unknown,
    /// 1970-01-01T00:00:00Z (CTF 1.8: `absolute = TRUE`).
    UnixEpoch,
    /// A point that has a name (CTF 2): clocks with the same one can be compared.
    Custom {
        /// Whose name it is.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// What tells it from points of the same name.
        uid: String,
    },
}

/// What a clock counts and where its zero lies.
///
/// A value of `cycles` means `offset_s + (offset + cycles) / frequency` seconds after the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockClass {
    /// The name that field classes map to.
    pub name: String,
    /// Clocks with the same UUID can be compared.
    pub uuid: Option<Uuid>,
    /// Free text.
    pub description: Option<String>,
    /// Cycles per second; never 0 in a parsed trace class.
    pub frequency: u64,
    /// Uncertainty in cycles.
    pub precision: u64,
    /// Whole seconds from the origin to cycle 0.
    pub offset_s: i64,
    /// Further cycles from the origin to cycle 0; may be more than a second's worth.
    pub offset: u64,
    /// Where its zero lies, before the offset.
    pub origin: ClockOrigin,
    /// Whose name it is (CTF 2).
    pub namespace: Option<String>,
    /// What tells it from clocks of the same name (CTF 2).
    pub uid: Option<String>,
    /// How far it may be off, in cycles (CTF 2).
    pub accuracy: Option<u64>,
}

impl ClockClass {
    /// A clock of 1 GHz without offset.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uuid: None,
            description: None,
            frequency: NANOS_PER_SECOND,
            precision: 0,
            offset_s: 0,
            offset: 0,
            origin: ClockOrigin::Unknown,
            namespace: None,
            uid: None,
            accuracy: None,
        }
    }

    /// Nanoseconds from the clock's origin (for LTTng the Unix epoch, also where its metadata do not say so).
    ///
    /// The offset's nanoseconds and those of `cycles` are each rounded down, as Babeltrace does, so that times are the
    /// same in both; the sum can be 1 ns below the exact time.
    ///
    /// # Errors
    /// [`DecodeErrorKind::TimestampOverflow`] when the result does not fit in 64 bits (the years 1677 to 2262).
    #[inline]
    pub fn to_ns(&self, cycles: u64) -> Result<i64, DecodeErrorKind> {
        let nanos = i64::try_from(self.to_ns_wide(cycles));
        nanos.map_err(|_wide| DecodeErrorKind::TimestampOverflow { cycles })
    }

    /// As [`Self::to_ns`], where every result fits: each part is below 2⁹⁴.
    pub(crate) fn to_ns_wide(&self, cycles: u64) -> i128 {
        let nanos = match self.frequency {
            NANOS_PER_SECOND => u128::from(self.offset) + u128::from(cycles),
            _ => self.scale(self.offset) + self.scale(cycles),
        };
        nanos.cast_signed() + i128::from(self.offset_s) * i128::from(NANOS_PER_SECOND)
    }

    /// The same clock with every value `nanos` nanoseconds later, to the nearest cycle below; `None` when no
    /// `offset_s` can say so.
    #[must_use]
    pub fn shifted(&self, nanos: i128) -> Option<Self> {
        let second = i128::from(NANOS_PER_SECOND);
        let seconds = i128::from(self.offset_s).checked_add(nanos.div_euclid(second))?;
        let cycles = nanos.rem_euclid(second) * i128::from(self.frequency) / second;
        // The offset may be worth more than a second, and more than one must fit beside what is added.
        let whole = i128::from(self.offset) + cycles;
        let frequency = i128::from(self.frequency.max(1));
        let (carried, offset) = match u64::try_from(whole) {
            Ok(offset) => (0, offset),
            Err(_) => (whole / frequency, u64::try_from(whole % frequency).ok()?),
        };
        let offset_s = i64::try_from(seconds.checked_add(carried)?).ok()?;
        Some(Self { offset_s, offset, ..self.clone() })
    }

    /// `cycles · 10⁹ / frequency`, rounded down.
    fn scale(&self, cycles: u64) -> u128 {
        u128::from(cycles) * u128::from(NANOS_PER_SECOND) / u128::from(self.frequency.max(1))
    }
}

/// The clock's next value when a field of `bits` bits reads `value`: the first one at or after `clock` that ends in it.
///
/// Only one wrap can be seen; a tracer writes a wider field before a second one (specification 1.8.3, section 8).
#[inline]
pub(crate) fn update(clock: u64, value: u64, bits: u8) -> u64 {
    let mask = 1_u64.checked_shl(bits.into()).map_or(u64::MAX, |span| span - 1);
    continued(clock, value, mask)
}

/// [`update`] by a field of the bits of `mask`; none of them is no field, which leaves the clock alone.
#[inline(always)]
pub(crate) const fn continued(clock: u64, value: u64, mask: u64) -> u64 {
    let wrapped = if value < clock & mask { mask.wrapping_add(1) } else { 0 };
    clock.wrapping_add(wrapped) & !mask | value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(frequency: u64, offset_s: i64, offset: u64) -> ClockClass {
        ClockClass { frequency, offset_s, offset, ..ClockClass::new("test") }
    }

    #[test]
    fn cycles_become_nanoseconds_rounded_down() {
        let check = |frequency, offset_s, offset, cycles, ns| {
            assert_eq!(
                clock(frequency, offset_s, offset).to_ns(cycles),
                Ok(ns),
                "{frequency} Hz, {cycles} cycles"
            );
        };
        check(1_000_000_000, 0, 1_457_111_225_177_515_989, 11, 1_457_111_225_177_516_000);
        check(3, 0, 0, 1, 333_333_333);
        check(3, 0, 0, 2, 666_666_666);
        check(3, 0, 1, 2, 999_999_999);
        check(32_768, 5, 0, 1, 5_000_030_517);
        check(1_000, -2, 500, 250, -1_250_000_000);
        check(3, -1, 0, 1, -666_666_667);
        check(u64::MAX, 0, u64::MAX, 0, 1_000_000_000);
        check(19_200_000, 0, 38_400_000, 0, 2_000_000_000);
    }

    #[test]
    fn a_time_that_needs_more_than_64_bits_is_an_error() {
        let overflow = |cycles| Err(DecodeErrorKind::TimestampOverflow { cycles });
        assert_eq!(clock(1, 0, 0).to_ns(u64::MAX), overflow(u64::MAX));
        assert_eq!(clock(1_000_000_000, i64::MAX, 0).to_ns(0), overflow(0));
        assert_eq!(clock(1_000_000_000, i64::MIN, 0).to_ns(7), overflow(7));
        assert_eq!(clock(1_000_000_000, 0, 0).to_ns(i64::MAX.unsigned_abs()), Ok(i64::MAX));
    }

    #[test]
    fn a_shifted_clock_tells_times_that_much_later() {
        let check = |clock: ClockClass, nanos: i128, cycles, expected| {
            let shifted = clock.shifted(nanos).map(|clock| clock.to_ns(cycles));
            assert_eq!(shifted, Some(Ok(expected)), "{clock:?} by {nanos}");
        };
        check(clock(1_000_000_000, 5, 7), 3_000_000_001, 1, 8_000_000_009);
        check(clock(1_000_000_000, 5, 7), -6_000_000_001, 0, -999_999_994);
        check(clock(1_000, 0, 0), 1_999_999, 1, 2_000_000);
        check(clock(4_000_000_000, 0, 3), 1, 1, 1);
        let nearly = clock(1_000_000_000, -18_446_744_073, u64::MAX);
        check(nearly, 2_000_000_000, 0, 2_709_551_615);
        check(clock(1_000_000_000, -18_446_744_073, u64::MAX), 999_999_999, 0, 1_709_551_614);
        assert_eq!(clock(1, i64::MAX, 0).shifted(1_000_000_000), None);
    }

    #[test]
    fn a_narrow_field_moves_the_clock_forward_over_one_wrap() {
        assert_eq!(update(0x1_00, 0xFF, 8), 0x1_FF);
        assert_eq!(update(0x1_FF, 0x02, 8), 0x2_02);
        assert_eq!(update(0x1_FF, 0xFF, 8), 0x1_FF);
        assert_eq!(update(u64::MAX, 3, 64), 3);
        assert_eq!(update(u64::MAX, 0, 8), 0);
    }

    #[test]
    fn a_uuid_is_read_in_its_one_form() {
        let text = "69861fba-fe44-2b41-b75b-39acaf6930ec";
        assert_eq!(Uuid::parse(text).map(|u| u.to_string()).as_deref(), Some(text));
        for wrong in [
            "",
            "69861fba",
            "69861fba-fe44-2b41-b75b-39acaf6930e",
            "69861fba-fe44-2b41-b75b-39acaf6930eg",
            "69861fba-fe44-2b41-b75b-39acaf6930ec-",
        ] {
            assert_eq!(Uuid::parse(wrong), None, "{wrong}");
        }
    }
}
