//! Numbers as C's `printf` writes them.
//!
//! Eight decimal digits come out of one 64-bit word without a loop: the number is halved into groups of four, two and
//! one digits, all groups of a word at once (as in Daniel Lemire's and Paul Khuong's notes on integer printing).

use std::io::Write;

use super::output::Output;

const ZEROS: u64 = 0x3030_3030_3030_3030;
const EIGHT_DIGITS: u64 = 100_000_000;

/// Numbers below have at most eight digits.
pub(crate) const SHORT_LIMIT: u64 = EIGHT_DIGITS;

/// The eight decimal digits of a number below 10⁸ as the bytes of a word, the first digit in the lowest byte.
#[inline]
const fn eight_digits(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let twos = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((twos * 103) >> 10) & 0x000F_000F_000F_000F;
    tens | ((twos - 10 * tens) << 8)
}

/// How many of the eight digits are leading zeros, the last digit not counted.
#[inline]
const fn leading_zeros(digits: u64) -> u32 {
    (digits | (1 << 63)).trailing_zeros() / 8
}

/// Unsigned decimal.
#[inline]
pub(crate) fn decimal(out: &mut Output, value: u64) {
    if value < EIGHT_DIGITS {
        return short_decimal(out, value);
    }
    long_decimal(out, value);
}

/// Of a number below 10⁸.
#[inline]
fn short_decimal(out: &mut Output, value: u64) {
    let (digits, count) = short_digits(value);
    out.with_room::<8>(|room| {
        *room = digits;
        count
    });
}

/// The digits of a number below [`SHORT_LIMIT`] and how many there are.
#[inline(always)]
pub(crate) const fn short_digits(value: u64) -> ([u8; 8], usize) {
    let digits = eight_digits(value);
    let zeros = leading_zeros(digits);
    (((digits + ZEROS) >> (8 * zeros)).to_le_bytes(), to_usize(8 - zeros))
}

fn long_decimal(out: &mut Output, value: u64) {
    let (digits, count) = long_digits(value);
    out.with_room::<LONGEST>(|room| {
        *room = digits;
        count
    });
}

/// Room for the digits of any number, three words of them.
const LONGEST: usize = 24;

/// The digits of a number from [`SHORT_LIMIT`] on and how many there are.
#[inline(never)]
pub(crate) fn long_digits(value: u64) -> ([u8; LONGEST], usize) {
    let lower = value % (EIGHT_DIGITS * EIGHT_DIGITS);
    let upper = value / (EIGHT_DIGITS * EIGHT_DIGITS);
    let word = |value: u64| eight_digits(value) + ZEROS;
    let sixteen =
        u128::from(word(lower / EIGHT_DIGITS)) | (u128::from(word(lower % EIGHT_DIGITS)) << 64);
    let (first, mut count) = if upper == 0 { ([0; 8], 0) } else { short_digits(upper) };
    // Without an upper part, the zeros before the first digit are left out.
    let zeros = if upper == 0 { leading_zeros(eight_digits(lower / EIGHT_DIGITS)) } else { 0 };
    let rest = (sixteen >> (8 * zeros)).to_le_bytes();
    let mut digits = [0; LONGEST];
    digits.iter_mut().zip(first).for_each(|(place, digit)| *place = digit);
    digits.iter_mut().skip(count).zip(rest).for_each(|(place, digit)| *place = digit);
    count += to_usize(16 - zeros);
    (digits, count)
}

/// Signed decimal.
#[inline]
pub(crate) fn signed_decimal(out: &mut Output, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    decimal(out, value.unsigned_abs());
}

/// Nine digits of a number of nanoseconds below a second, after a point.
#[inline]
pub(crate) fn point_and_nanos(out: &mut Output, nanos: u64) {
    out.fixed(&nanos_digits(nanos));
}

/// A point and nine digits.
#[inline(always)]
pub(crate) fn nanos_digits(nanos: u64) -> [u8; 10] {
    let [first, ..] = (nanos / EIGHT_DIGITS).to_le_bytes();
    let rest = eight_digits(nanos % EIGHT_DIGITS) + ZEROS;
    let all = u128::from(b'.') | (u128::from(b'0' + first.min(9)) << 8) | (u128::from(rest) << 16);
    let mut digits = [0; 10];
    digits.iter_mut().zip(all.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    digits
}

/// Unsigned decimal with leading zeros up to `width` digits.
pub(crate) fn padded(out: &mut Output, value: u64, width: usize) {
    let digits = usize::try_from(value.checked_ilog10().unwrap_or(0)).unwrap_or(0) + 1;
    (digits..width).for_each(|_| out.push(b'0'));
    decimal(out, value);
}

/// Hexadecimal with upper-case digits and without leading zeros.
#[inline]
pub(crate) fn hexadecimal(out: &mut Output, value: u64) {
    let (digits, count) = hexadecimal_digits(value);
    out.with_room::<16>(|room| {
        *room = digits;
        count
    });
}

/// The digits of [`hexadecimal`] and how many there are.
#[inline(always)]
pub(crate) fn hexadecimal_digits(value: u64) -> ([u8; 16], usize) {
    let unused = value.leading_zeros().min(60) / 4;
    let left = value << (4 * unused);
    let (upper, lower) = (hex_digits(left >> 32), hex_digits(left & 0xFFFF_FFFF));
    (((u128::from(upper) << 64) | u128::from(lower)).to_be_bytes(), to_usize(16 - unused))
}

/// The eight hexadecimal digits of a number below 2³², the first digit in the highest byte.
#[inline]
const fn hex_digits(value: u64) -> u64 {
    let words = ((value & 0xFFFF_0000) << 16) | (value & 0xFFFF);
    let bytes = ((words & 0x0000_FF00_0000_FF00) << 8) | (words & 0x0000_00FF_0000_00FF);
    let nibbles = ((bytes & 0x00F0_00F0_00F0_00F0) << 4) | (bytes & 0x000F_000F_000F_000F);
    let letters = ((nibbles + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    nibbles + ZEROS + letters * 7
}

/// Two hexadecimal digits; `ten` is `a` or `A`.
pub(crate) fn hex_byte(out: &mut Output, byte: u8, ten: u8) {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { ten - 10 + nibble };
    out.fixed(&[digit(byte >> 4), digit(byte & 0xF)]);
}

/// Octal without leading zeros.
pub(crate) fn octal(out: &mut Output, value: u64) {
    bits_by(out, value, 3, 1);
}

/// Binary with leading zeros up to `width` digits.
pub(crate) fn binary(out: &mut Output, value: u64, width: u32) {
    bits_by(out, value, 1, width.min(u64::BITS));
}

/// Digits of `group` bits each.
fn bits_by(out: &mut Output, value: u64, group: u32, width: u32) {
    let needed = (u64::BITS - value.leading_zeros()).div_ceil(group);
    for place in (0..needed.max(width)).rev() {
        let [digit, ..] = ((value >> (place * group)) & ((1 << group) - 1)).to_le_bytes();
        out.push(b'0' + digit);
    }
}

const fn to_usize(value: u32) -> usize {
    value as usize
}

/// `%g`: six significant digits, trailing zeros removed, an exponent below -4 or from 6 on.
pub(crate) fn general(out: &mut Output, value: f64) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let value = value.abs();
    if value.is_nan() {
        out.fixed(b"nan");
    } else if value.is_infinite() {
        out.fixed(b"inf");
    } else if let Some(whole) = small_whole(value) {
        short_decimal(out, whole);
    } else {
        finite(out, value);
    }
}

/// The text of [`general`] and its length, for finite numbers other than 0 that it shows without an exponent.
#[inline]
pub(crate) fn general_digits(value: f64) -> Option<([u8; 16], usize)> {
    let (digits, exponent) = six_digits(value.abs())?;
    // Six digits in six bytes, the first one in the lowest.
    let six = eight_digits(digits.into()) >> 16;
    let significant = 6 - (six << 16).leading_zeros() / 8;
    let ascii = u128::from(six | (ZEROS >> 16));
    let (text, count) = match u32::try_from(exponent) {
        Ok(exponent @ 0..6) => {
            let whole = exponent + 1;
            let before = ascii & ((1 << (8 * whole)) - 1);
            let after = (ascii ^ before) << 8;
            let point = u128::from(b'.') << (8 * whole);
            (before | point | after, if significant > whole { significant + 1 } else { whole })
        }
        Err(_) if exponent >= -4 => {
            let begin = 1 + exponent.unsigned_abs();
            let zeros = u128::from_le_bytes(*b"0.000\0\0\0\0\0\0\0\0\0\0\0");
            let zeros = zeros & ((1 << (8 * begin)) - 1);
            (zeros | (ascii << (8 * begin)), begin + significant)
        }
        _ => return None,
    };
    let (text, count) = if value.is_sign_negative() {
        ((text << 8) | u128::from(b'-'), count + 1)
    } else {
        (text, count)
    };
    Some((text.to_le_bytes(), to_usize(count)))
}

/// A whole number of up to six digits, which is shown as it is.
fn small_whole(value: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is cut off is found"
    )]
    let whole = value as u32;
    (f64::from(whole) == value && whole < 1_000_000).then_some(whole.into())
}

fn finite(out: &mut Output, value: f64) {
    let (digits, exponent) = six_digits(value).unwrap_or_else(|| six_digits_of_any(value));
    let mut significant = [b'0'; 6];
    let mut rest = digits;
    for place in significant.iter_mut().rev() {
        *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    let zeros = significant.iter().rev().take_while(|digit| **digit == b'0').count();
    let significant = significant.get(..6 - zeros).unwrap_or_default();
    match usize::try_from(exponent) {
        Ok(exponent @ 0..6) => fixed(out, significant, exponent + 1),
        Err(_) if exponent >= -4 => {
            out.fixed(b"0.");
            (1..exponent.unsigned_abs()).for_each(|_| out.push(b'0'));
            out.push_bytes(significant);
        }
        _ => {
            fixed(out, significant, 1);
            out.fixed(if exponent < 0 { b"e-" } else { b"e+" });
            padded(out, exponent.unsigned_abs().into(), 2);
        }
    }
}

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The six significant digits of a positive number, from 100,000 to 999,999, and the exponent of the first of them.
///
/// The number is scaled by one power of ten that a double holds exactly, so that the product is off by at most half a
/// unit in its last place: less than 10⁻¹⁰ below 10⁶. `None` where that could change how it is rounded, or
/// where no such power is at hand.
fn six_digits(value: f64) -> Option<(u32, i32)> {
    const UNSURE: f64 = 1e-9;
    // The position of the highest bit, times log10(2), is the exponent or one above it.
    let binary = i32::try_from(value.to_bits() >> 52).ok()? - 1023;
    let above = ((binary * 1233) >> 12) + 1;
    for exponent in [above, above - 1] {
        let power = |by: i32| POWERS.get(usize::try_from(by).ok()?);
        let scaled = match 5 - exponent {
            by @ 0.. => value * power(by)?,
            by => value / power(-by)?,
        };
        if scaled < 100_000.0 - UNSURE {
            continue;
        }
        let whole = scaled.floor();
        let part = scaled - whole;
        let is_inside = (100_000.0 + UNSURE..=999_999.0).contains(&scaled);
        if (part - 0.5).abs() < UNSURE || !is_inside {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number of six digits"
        )]
        let digits = whole as u32 + u32::from(part > 0.5);
        return Some((digits, exponent));
    }
    None
}

/// The same for any positive number, by way of text.
fn six_digits_of_any(value: f64) -> (u32, i32) {
    let mut scratch = [0_u8; 32];
    let mut free = scratch.as_mut_slice();
    // `d.ddddde-xxx`: at most 13 bytes.
    if write!(free, "{value:.5e}").is_err() {
        return (0, 0);
    }
    let unused = free.len();
    let text = scratch.get(..32 - unused).unwrap_or_default();
    let mut halves = text.splitn(2, |byte| *byte == b'e');
    let mantissa = halves.next().unwrap_or_default();
    let exponent = halves
        .next()
        .and_then(|half| std::str::from_utf8(half).ok())
        .and_then(|half| half.parse().ok())
        .unwrap_or(0);
    let digits = mantissa.iter().filter(|byte| **byte != b'.');
    (digits.fold(0, |all, digit| all * 10 + u32::from(digit - b'0')), exponent)
}

/// `significant` with a point after `whole` digits.
fn fixed(out: &mut Output, significant: &[u8], whole: usize) {
    let (before, after) = significant.split_at(whole.min(significant.len()));
    out.push_bytes(before);
    (before.len()..whole).for_each(|_| out.push(b'0'));
    if !after.is_empty() {
        out.push(b'.');
        out.push_bytes(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Output)) -> String {
        let mut out = Output::new();
        write(&mut out);
        String::from_utf8(out.as_bytes().to_vec()).expect("ASCII")
    }

    #[test]
    fn general_form_is_that_of_printf() {
        // The right-hand sides were printed by C's printf("%g").
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (100_000.0, "100000"),
            (100_000.5, "100000"),
            (100_001.5, "100002"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (999_999.4, "999999"),
            (999_999.5, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (1_000_005.0, "1e+06"),
            (1_000_015.0, "1.00002e+06"),
            (0.0001, "0.0001"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_01, "1e-05"),
            (0.1, "0.1"),
            (2.236_067_977_499_79, "2.23607"),
            (1e300, "1e+300"),
            (5e-324, "4.94066e-324"),
            (123_456.0, "123456"),
            (120.0, "120"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(written(|out| general(out, value)), expected, "{value:e}");
        }
    }

    #[test]
    fn numbers_without_an_exponent_have_a_way_of_their_own() {
        let mut quick = 0;
        let usual = samples().map(|number| (number >> 11) as f64 / 1024.0);
        let small = samples().map(|number| (number >> 11) as f64 * 1e-18);
        let round = (0..2_000_u32).flat_map(|number| {
            let number = f64::from(number);
            [number, number / 10.0, number / 1e3, number / 1e5, number * 1e3, -number / 1e2]
        });
        let any = samples().map(f64::from_bits);
        for value in usual.chain(small).chain(round).chain(any) {
            let Some((text, count)) = general_digits(value) else { continue };
            quick += 1;
            let text = String::from_utf8(text[..count].to_vec()).unwrap();
            assert_eq!(text, written(|out| general(out, value)), "{value:e}");
        }
        assert!(quick > 20_000, "the quick way was taken {quick} times");
    }

    #[test]
    fn the_quick_way_to_six_digits_is_the_exact_one() {
        let mut quick = 0;
        let random = samples().map(f64::from_bits).filter(|value| value.is_finite());
        let usual = samples().map(|number| (number >> 11) as f64 / 1024.0);
        let small = samples().map(|number| (number >> 11) as f64 * 1e-18);
        // Halfway between two texts of six digits, and the doubles next to it.
        let halfway = (100_000..110_000_u32).flat_map(|digits| {
            let half = (f64::from(digits) + 0.5) / 1e3;
            [half.next_down(), half, half.next_up()]
        });
        for value in random.chain(usual).chain(small).chain(halfway).map(f64::abs) {
            let Some(found) = six_digits(value).filter(|_| value > 0.0) else { continue };
            quick += 1;
            assert_eq!(found, six_digits_of_any(value), "{value:e}");
        }
        assert!(quick > 20_000, "the quick way was taken {quick} times");
    }

    /// Numbers of every length, and those around powers of the bases.
    fn samples() -> impl Iterator<Item = u64> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let random = (0..20_000).map(move |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> (state % 64)
        });
        let near = |power: u64| [power - 1, power, power.saturating_add(1)];
        let tens = (0..20).map(|n| 10_u64.pow(n)).flat_map(near);
        random.chain(tens).chain((0..64).map(|n| 1 << n).flat_map(near)).chain([u64::MAX])
    }

    #[test]
    fn integers_are_written_as_the_standard_library_writes_them() {
        for value in samples() {
            assert_eq!(written(|out| decimal(out, value)), value.to_string());
            let signed = value.cast_signed();
            assert_eq!(written(|out| signed_decimal(out, signed)), signed.to_string());
            assert_eq!(written(|out| hexadecimal(out, value)), format!("{value:X}"));
            assert_eq!(written(|out| octal(out, value)), format!("{value:o}"));
            assert_eq!(written(|out| binary(out, value, 11)), format!("{value:011b}"));
            assert_eq!(written(|out| padded(out, value, 12)), format!("{value:012}"));
            let nanos = value % 1_000_000_000;
            assert_eq!(written(|out| point_and_nanos(out, nanos)), format!(".{nanos:09}"));
        }
        assert_eq!(written(|out| hex_byte(out, 0xA0, b'A')), "A0");
        assert_eq!(written(|out| hex_byte(out, 0x5F, b'a')), "5f");
    }
}
