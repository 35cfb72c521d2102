//! The bytes of a packet as they grow, bit by bit where needed.

use crate::bits;
use crate::class::ByteOrder;

/// A byte order change inside of a byte: no reader could tell which bits belong to which field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OrderChange;

/// Bits in front of a position. Beyond the limit only the position moves on: nothing is stored.
#[derive(Debug)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    pos: u64,
    limit: u64,
    /// Byte order of the last number, which may only change at a byte boundary.
    order: Option<ByteOrder>,
}

/// A position to go back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pos: u64,
    last_byte: u8,
    order: Option<ByteOrder>,
}

impl Bits {
    /// None yet, and never more than `limit_bytes` bytes of them.
    pub(super) fn new(capacity_bytes: usize, limit_bytes: usize) -> Self {
        let limit = u64::try_from(limit_bytes).unwrap_or(u64::MAX).saturating_mul(8);
        let capacity_bytes = capacity_bytes.min(limit_bytes);
        Self { bytes: Vec::with_capacity(capacity_bytes), pos: 0, limit, order: None }
    }

    #[inline]
    pub(super) const fn pos(&self) -> u64 {
        self.pos
    }

    /// Whether more was written than there is room for.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.pos > self.limit
    }

    pub(super) fn mark(&self) -> Mark {
        let last_byte = self.bytes.last().copied().unwrap_or(0);
        Mark { pos: self.pos, last_byte, order: self.order }
    }

    /// Forgets what was written since.
    pub(super) fn back_to(&mut self, mark: Mark) {
        (self.pos, self.order) = (mark.pos, mark.order);
        self.bytes.truncate(bytes_of(mark.pos));
        if let Some(last) = self.bytes.last_mut().filter(|_| !mark.pos.is_multiple_of(8)) {
            *last = mark.last_byte;
        }
    }

    /// Zeros up to a multiple of `align`, a power of two.
    #[inline]
    pub(super) fn align(&mut self, align: u64) {
        let pos = bits::align_up(self.pos, align).unwrap_or(u64::MAX);
        if pos != self.pos {
            self.move_to(pos);
        }
    }

    /// Zeros for as many bits.
    pub(super) fn skip(&mut self, bits: u64) {
        self.move_to(self.pos.saturating_add(bits));
    }

    fn move_to(&mut self, pos: u64) {
        self.pos = pos;
        if pos <= self.limit {
            self.bytes.resize(bytes_of(pos), 0);
        }
    }

    /// Whole bytes, from a byte boundary on.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        debug_assert!(self.pos.is_multiple_of(8));
        self.pos = self.pos.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX) * 8);
        if self.pos <= self.limit {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The `width` (1 to 64) low bits of `value`; higher ones are 0.
    #[inline]
    pub(super) fn put(
        &mut self,
        value: u64,
        width: u8,
        order: ByteOrder,
    ) -> Result<(), OrderChange> {
        if self.pos.is_multiple_of(8) && width.is_multiple_of(8) {
            self.put_bytes(value, width, order);
        } else {
            if !self.pos.is_multiple_of(8) && self.order.is_some_and(|before| before != order) {
                return Err(OrderChange);
            }
            let pos = self.pos;
            self.skip(width.into());
            if !self.is_over() {
                self.set(pos, value, width, order);
            }
        }
        self.order = Some(order);
        Ok(())
    }

    #[inline]
    fn put_bytes(&mut self, value: u64, width: u8, order: ByteOrder) {
        let len = usize::from(width / 8);
        match order {
            ByteOrder::Little => {
                let bytes = value.to_le_bytes();
                self.bytes(bytes.get(..len).unwrap_or(&bytes));
            }
            ByteOrder::Big => {
                let bytes = value.to_be_bytes();
                self.bytes(bytes.get(8 - len..).unwrap_or(&bytes));
            }
        }
    }

    /// Sets bits that are zeros so far.
    pub(super) fn set(&mut self, pos: u64, value: u64, width: u8, order: ByteOrder) {
        let shift = u32::try_from(pos % 8).unwrap_or(0);
        let used = shift + u32::from(width);
        let len = usize::try_from(used.div_ceil(8)).unwrap_or(0);
        let first = usize::try_from(pos / 8).unwrap_or(usize::MAX);
        let gathered = match order {
            ByteOrder::Little => (u128::from(value) << shift).to_le_bytes(),
            ByteOrder::Big => {
                let unused = used.next_multiple_of(8) - used;
                // The bytes that are used come first.
                (u128::from(value) << unused << (128 - used.next_multiple_of(8))).to_be_bytes()
            }
        };
        for (byte, bits) in self.bytes.iter_mut().skip(first).zip(gathered.iter().take(len)) {
            *byte |= bits;
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes; a last one that is begun is whole.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn bytes_of(bits: u64) -> usize {
    usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_at_any_bit_in_either_order_is_read_back() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for shift in 0..9_u8 {
                for width in 1..=64_u8 {
                    let value = 0xA5C3_9F01_7E62_D84B_u64 >> (64 - width);
                    let mut written = Bits::new(0, 1 << 10);
                    for _ in 0..shift {
                        written.put(1, 1, order).unwrap();
                    }
                    written.put(value, width, order).unwrap();
                    written.put(1, 1, order).unwrap();
                    let bytes = written.into_bytes();
                    let read = |pos, width| bits::read_uint(&bytes, pos, width, order);
                    assert_eq!(read(shift.into(), width), Some(value), "{order:?} {shift} {width}");
                    assert_eq!(read(u64::from(shift + width), 1), Some(1));
                    assert!((0..shift).all(|bit| read(bit.into(), 1) == Some(1)));
                }
            }
        }
    }

    #[test]
    fn going_back_restores_a_byte_that_was_begun() {
        let mut bits = Bits::new(0, 100);
        bits.put(0b101, 3, ByteOrder::Little).unwrap();
        let mark = bits.mark();
        bits.put(u64::MAX >> 4, 60, ByteOrder::Little).unwrap();
        bits.back_to(mark);
        bits.put(0, 5, ByteOrder::Little).unwrap();
        assert_eq!(bits.into_bytes(), [0b101]);
    }

    #[test]
    fn nothing_is_stored_beyond_the_limit() {
        let mut bits = Bits::new(1 << 40, 4);
        bits.bytes(&[1, 2, 3]);
        bits.bytes(&[0; 1000]);
        assert!(bits.is_over());
        assert_eq!((bits.pos(), bits.bytes.as_slice()), (8024, [1, 2, 3].as_slice()));
        bits.skip(u64::MAX);
        assert_eq!(bits.bytes.len(), 3);
    }

    #[test]
    fn the_byte_order_changes_at_byte_boundaries_only() {
        let mut bits = Bits::new(0, 100);
        bits.put(1, 4, ByteOrder::Little).unwrap();
        assert_eq!(bits.put(1, 4, ByteOrder::Big), Err(OrderChange));
        bits.put(1, 4, ByteOrder::Little).unwrap();
        assert_eq!(bits.put(1, 4, ByteOrder::Big), Ok(()));
    }
}
