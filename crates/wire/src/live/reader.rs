//! A reader that knows where it is and never reads past its end.

use super::error::{Error, Result};

/// Reads big-endian fields from a payload.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    whole: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(payload: &'a [u8]) -> Self {
        Self { whole: payload, offset: 0 }
    }

    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn bytes(&mut self, field: &'static str, len: usize) -> Result<&'a [u8]> {
        let rest = self.whole.get(self.offset..).unwrap_or(&[]);
        let taken = rest.get(..len).ok_or(Error::Truncated {
            field,
            offset: self.offset,
            needed: len,
            left: rest.len(),
        })?;
        self.offset = self.offset.saturating_add(len);
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8> {
        let [byte] = self.array(field)?;
        Ok(byte)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// A flag in one byte, 0 or 1.
    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool> {
        let offset = self.offset;
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::BadValue { field, offset, value: u64::from(other) }),
        }
    }

    /// A 32-bit length of a part of this payload, checked against a maximum.
    pub(super) fn len_u32(&mut self, field: &'static str, max: usize) -> Result<usize> {
        let offset = self.offset;
        let len = u64::from(self.u32(field)?);
        match usize::try_from(len) {
            Ok(len) if len <= max => Ok(len),
            _ => Err(Error::LengthTooLarge { field, offset, len, max: max as u64 }),
        }
    }

    /// What follows, without bound: the caller's payload was bounded when it was read.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        let rest = self.whole.get(self.offset..).unwrap_or(&[]);
        self.offset = self.whole.len();
        rest
    }

    /// Bytes that were not read.
    pub(super) fn left(&self) -> usize {
        self.whole.len().saturating_sub(self.offset)
    }
}
