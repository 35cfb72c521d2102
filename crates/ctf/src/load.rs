//! Quick ways to bytes: fields by one load of eight bytes, and the end of a text.

use crate::class::ByteOrder;

/// Bytes that one load takes: a field is read this way only where so many follow.
const WORD_BYTES: u64 = 8;

/// Bytes looked at one after the other before a text is searched by [`BLOCK`].
const SHORT_TEXT: usize = 64;

/// Bytes that are searched for a NUL at once.
const BLOCK: usize = 32;

/// How to read an unsigned integer at a constant distance from a byte: load a word, shift, mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    byte: usize,
    mask: u64,
    shift: u8,
    order: ByteOrder,
}

impl Load {
    /// `None` when the field lies in nine bytes.
    pub(crate) fn new(offset_bits: u64, bits: u8, order: ByteOrder) -> Option<Self> {
        let (byte, first) = (offset_bits / 8, offset_bits % 8);
        let after = (WORD_BYTES * 8).checked_sub(first + u64::from(bits))?;
        let shift = if order == ByteOrder::Little { first } else { after };
        Some(Self {
            byte: usize::try_from(byte).ok()?,
            mask: u64::MAX >> (64 - u32::from(bits.clamp(1, 64))),
            shift: u8::try_from(shift).ok()?,
            order,
        })
    }

    /// The value in `bytes`, which begin where distances are counted from; `None` when they end before the word does.
    #[inline(always)]
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<u64> {
        let raw = *bytes.get(self.byte..)?.first_chunk()?;
        let word = match self.order {
            ByteOrder::Little => u64::from_le_bytes(raw),
            ByteOrder::Big => u64::from_be_bytes(raw),
        };
        Some(word >> (self.shift & 63) & self.mask)
    }

    /// A value that it read, as the two's complement number that it is.
    #[inline(always)]
    pub(crate) const fn sign_extended(&self, raw: u64) -> u64 {
        let unused = self.mask.leading_zeros();
        ((raw << unused).cast_signed() >> unused).cast_unsigned()
    }
}

/// Where the first NUL is.
#[inline(always)]
pub(crate) fn find_nul(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*chunk);
        // The lowest byte in which borrowing sets the top bit is the first that is 0.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return Some(at + usize::try_from(zeros.trailing_zeros() / 8).unwrap_or(0));
        }
        at += 8;
        if at >= SHORT_TEXT {
            break;
        }
    }
    find_far_nul(bytes, at)
}

/// [`find_nul`] from `at` on, by blocks.
#[inline(never)]
fn find_far_nul(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let (blocks, _) = rest.as_chunks::<BLOCK>();
    let has_nul = |block: &[u8; BLOCK]| block.iter().fold(0xFF, |all: u8, b| all.min(*b)) == 0;
    let whole = blocks.iter().position(has_nul).unwrap_or(blocks.len()) * BLOCK;
    let nul = rest.get(whole..)?.iter().position(|byte| *byte == 0)?;
    Some(at + whole + nul)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits;

    #[test]
    fn a_load_reads_what_the_general_way_reads() {
        let data: Vec<u8> = (0..32_u8).map(|i| i.wrapping_mul(37) ^ 0xA5).collect();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for offset in 0..100 {
                for bits in 1..=64 {
                    let fits = offset % 8 + u64::from(bits) <= 64;
                    let load = Load::new(offset, bits, order);
                    assert_eq!(load.is_some(), fits, "{bits} bits at {offset}");
                    let Some(load) = load else { continue };
                    assert_eq!(load.read(&data), bits::read_uint(&data, offset, bits, order));
                }
            }
        }
        let last = Load::new(8, 8, ByteOrder::Little).unwrap();
        assert_eq!(
            (last.read(&data[..9]), last.read(&data[..8])),
            (Some(u64::from(data[1])), None)
        );
    }

    #[test]
    fn the_first_nul_is_found_wherever_it_is() {
        for len in 0..300 {
            let mut bytes = vec![0x80; len];
            assert_eq!(find_nul(&bytes), None);
            bytes.extend([0, 1, 0]);
            assert_eq!(find_nul(&bytes), Some(len));
        }
        assert_eq!(find_nul(&[1, 1, 0, 1, 1, 1, 0, 1]), Some(2));
    }
}
