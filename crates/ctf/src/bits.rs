//! Bit fields of a packet: positions count bits from the packet's first bit.
//!
//! Little-endian fields fill a byte from its least significant bit, big-endian fields from its most significant one
//! (CTF 1.8.3, section 4.1.5).

use crate::class::ByteOrder;

/// Reads `bits` (1 to 64) bits at bit `pos`; `None` when they do not all lie inside `data`.
#[inline]
pub(crate) fn read_uint(data: &[u8], pos: u64, bits: u8, order: ByteOrder) -> Option<u64> {
    if pos & 7 == 0 {
        let tail = data.get(usize::try_from(pos >> 3).ok()?..)?;
        let little = order == ByteOrder::Little;
        match bits {
            8 => return tail.first().copied().map(u64::from),
            16 => {
                let raw = *tail.first_chunk()?;
                let value = if little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) };
                return Some(value.into());
            }
            32 => {
                let raw = *tail.first_chunk()?;
                let value = if little { u32::from_le_bytes(raw) } else { u32::from_be_bytes(raw) };
                return Some(value.into());
            }
            64 => {
                let raw = *tail.first_chunk()?;
                return Some(if little {
                    u64::from_le_bytes(raw)
                } else {
                    u64::from_be_bytes(raw)
                });
            }
            _ => {}
        }
    }
    read_odd(data, pos, bits, order)
}

/// The general case: gathers the up to nine bytes that hold the field.
fn read_odd(data: &[u8], pos: u64, bits: u8, order: ByteOrder) -> Option<u64> {
    let shift = u32::try_from(pos & 7).ok()?;
    let used = shift + u32::from(bits);
    let first = usize::try_from(pos >> 3).ok()?;
    let bytes = data.get(first..)?.get(..usize::try_from(used.div_ceil(8)).ok()?)?;
    let gathered = match order {
        ByteOrder::Little => {
            bytes.iter().rev().fold(0_u128, |all, b| all << 8 | u128::from(*b)) >> shift
        }
        ByteOrder::Big => {
            bytes.iter().fold(0_u128, |all, b| all << 8 | u128::from(*b))
                >> (used.next_multiple_of(8) - used)
        }
    };
    let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
    u64::try_from(gathered & u128::from(mask)).ok()
}

/// The `bits` low bits of `value` in the opposite order.
#[inline]
pub(crate) const fn reverse(value: u64, bits: u8) -> u64 {
    value.reverse_bits() >> (64 - bits as u32)
}

/// The number whose IEEE 754 representation of 16, 32 or 64 bits is `raw`.
pub(crate) fn float(raw: u64, bits: u8) -> f64 {
    match (bits, u32::try_from(raw)) {
        (16, Ok(raw)) => half(raw),
        (32, Ok(raw)) => f32::from_bits(raw).into(),
        _ => f64::from_bits(raw),
    }
}

/// One sign bit, five exponent bits, ten mantissa bits.
fn half(raw: u32) -> f64 {
    let (exponent, mantissa) = (raw >> 10 & 0x1F, raw & 0x3FF);
    let magnitude = match exponent {
        0 => f64::from(mantissa) * 2_f64.powi(-24),
        0x1F if mantissa == 0 => f64::INFINITY,
        0x1F => f64::NAN,
        // The exponent's bias is 15, and the mantissa counts in 1/1024.
        _ => f64::from(mantissa | 0x400) * 2_f64.powi(exponent.cast_signed() - 25),
    };
    if raw >> 15 & 1 == 0 { magnitude } else { -magnitude }
}

/// Extends the sign of a `bits`-bit two's complement number.
#[inline]
pub(crate) fn sign_extend(value: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits.clamp(1, 64));
    (value << unused).cast_signed() >> unused
}

/// The first multiple of `align` (a power of two) at or after `pos`; `None` past the end of all positions.
#[inline]
pub(crate) fn align_up(pos: u64, align: u64) -> Option<u64> {
    let mask = align.saturating_sub(1);
    pos.checked_add(mask).map(|sum| sum & !mask)
}

/// The largest power of two that divides `value`; of 0, the largest there is.
pub(crate) const fn lowest_bit(value: u64) -> u64 {
    if value == 0 { 1 << 63 } else { value & value.wrapping_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_at_any_bit_in_either_order() {
        let data = [0xB4, 0x53, 0x01, 0xFF, 0x80, 0x11, 0x22, 0x33, 0x44, 0x55];
        let le = |pos, bits| read_uint(&data, pos, bits, ByteOrder::Little);
        let be = |pos, bits| read_uint(&data, pos, bits, ByteOrder::Big);
        assert_eq!((le(0, 8), be(0, 8)), (Some(0xB4), Some(0xB4)));
        assert_eq!((le(0, 5), le(5, 27)), (Some(0x14), Some(0xFF01_53B4 >> 5)));
        assert_eq!((be(0, 5), be(5, 27)), (Some(0x16), Some(0xB453_01FF & 0x07FF_FFFF)));
        assert_eq!((le(8, 16), be(8, 16)), (Some(0x0153), Some(0x5301)));
        assert_eq!(
            (le(4, 64), be(4, 64)),
            (Some(0x4332_2118_0FF0_153B), Some(0x4530_1FF8_0112_2334))
        );
        assert_eq!((le(79, 1), le(79, 2), be(80, 1)), (Some(0), None, None));
    }

    #[test]
    fn signs_are_extended_from_the_fields_own_width() {
        assert_eq!(sign_extend(0b1_0000, 5), -16);
        assert_eq!(sign_extend(0b0_1111, 5), 15);
        assert_eq!(sign_extend(u64::MAX, 64), -1);
        assert_eq!(sign_extend(1, 1), -1);
    }

    #[test]
    fn floats_of_three_widths_are_read() {
        let half = |raw| float(raw, 16);
        assert_eq!([half(0x3C00), half(0xC000), half(0x7BFF)], [1.0, -2.0, 65504.0]);
        assert_eq!([half(0x3555), half(0x0001)], [0.333_251_953_125, 2_f64.powi(-24)]);
        assert_eq!([half(0x7C00), half(0xFC00)], [f64::INFINITY, f64::NEG_INFINITY]);
        assert!(half(0x7E00).is_nan() && half(0x8000).is_sign_negative());
        assert_eq!(float(0x3FC0_0000, 32), 1.5);
        assert_eq!(float(0xBFF8_0000_0000_0000, 64), -1.5);
    }

    #[test]
    fn alignment_past_the_last_position_is_none() {
        assert_eq!(align_up(9, 8), Some(16));
        assert_eq!(align_up(16, 8), Some(16));
        assert_eq!(align_up(u64::MAX - 2, 8), None);
    }
}
