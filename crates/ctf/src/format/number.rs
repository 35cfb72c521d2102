//! Numbers and strings as C's `printf` writes them, into a byte buffer and without taking memory of their own.

use std::io::Write;

/// Longest number this module writes: a 64-bit one in binary.
const SCRATCH: usize = 64;

/// Unsigned decimal.
pub(crate) fn decimal(out: &mut Vec<u8>, value: u64) {
    padded(out, value, 1);
}

/// Signed decimal.
pub(crate) fn signed_decimal(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    decimal(out, value.unsigned_abs());
}

/// Unsigned decimal with leading zeros up to `width` digits (at most 64).
pub(crate) fn padded(out: &mut Vec<u8>, value: u64, width: usize) {
    digits(out, value, 10, width);
}

/// `value` in `base` (2 to 16) with upper-case digits and leading zeros up to `width` digits (at most 64).
pub(crate) fn digits(out: &mut Vec<u8>, value: u64, base: u64, width: usize) {
    let mut scratch = [b'0'; SCRATCH];
    let mut rest = value;
    let mut used = 0;
    for place in scratch.iter_mut().rev() {
        if rest == 0 && used >= width {
            break;
        }
        let digit = usize::try_from(rest % base).unwrap_or(usize::MAX);
        *place = b"0123456789ABCDEF".get(digit).copied().unwrap_or(b'?');
        rest /= base;
        used += 1;
    }
    out.extend_from_slice(scratch.get(SCRATCH - used..).unwrap_or_default());
}

/// `%g`: six significant digits, trailing zeros removed, an exponent below -4 or from 6 on.
pub(crate) fn general(out: &mut Vec<u8>, value: f64) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let value = value.abs();
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(b"inf");
    } else if value == 0.0 {
        out.push(b'0');
    } else {
        finite(out, value);
    }
}

fn finite(out: &mut Vec<u8>, value: f64) {
    let mut scratch = [0_u8; 32];
    let mut free = scratch.as_mut_slice();
    // `d.ddddde-xxx`: at most 13 bytes.
    if write!(free, "{value:.5e}").is_err() {
        return;
    }
    let unused = free.len();
    let text = scratch.get(..32 - unused).unwrap_or_default();
    let mut halves = text.splitn(2, |byte| *byte == b'e');
    let mantissa = halves.next().unwrap_or_default();
    let exponent: i32 = halves
        .next()
        .and_then(|half| std::str::from_utf8(half).ok())
        .and_then(|half| half.parse().ok())
        .unwrap_or(0);
    let mut significant = [b'0'; 6];
    for (place, digit) in significant.iter_mut().zip(mantissa.iter().filter(|byte| **byte != b'.'))
    {
        *place = *digit;
    }
    let zeros = significant.iter().rev().take_while(|digit| **digit == b'0').count();
    let significant = significant.get(..6 - zeros).unwrap_or_default();
    match usize::try_from(exponent) {
        Ok(exponent @ 0..6) => fixed(out, significant, exponent + 1),
        Err(_) if exponent >= -4 => {
            out.extend_from_slice(b"0.");
            (1..exponent.unsigned_abs()).for_each(|_| out.push(b'0'));
            out.extend_from_slice(significant);
        }
        _ => {
            fixed(out, significant, 1);
            out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
            padded(out, exponent.unsigned_abs().into(), 2);
        }
    }
}

/// `significant` with a point after `whole` digits.
fn fixed(out: &mut Vec<u8>, significant: &[u8], whole: usize) {
    let (before, after) = significant.split_at(whole.min(significant.len()));
    out.extend_from_slice(before);
    (before.len()..whole).for_each(|_| out.push(b'0'));
    if !after.is_empty() {
        out.push(b'.');
        out.extend_from_slice(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
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
            (999_999.4, "999999"),
            (999_999.5, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
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
    fn integers_are_written_in_any_base() {
        assert_eq!(written(|out| decimal(out, u64::MAX)), "18446744073709551615");
        assert_eq!(written(|out| decimal(out, 0)), "0");
        assert_eq!(written(|out| signed_decimal(out, i64::MIN)), "-9223372036854775808");
        assert_eq!(written(|out| padded(out, 7, 9)), "000000007");
        assert_eq!(written(|out| digits(out, 0xDEAD_BEEF, 16, 1)), "DEADBEEF");
        assert_eq!(written(|out| digits(out, 5, 2, 8)), "00000101");
        assert_eq!(written(|out| digits(out, u64::MAX, 2, 64)), "1".repeat(64));
    }
}
