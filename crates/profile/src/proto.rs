//! Protocol Buffers' wire format: as much of it as profiles need.
//!
//! ```text
//! field   = key value;  key = varint (number << 3 | type)
//! type 0  varint: 7 bits a byte, lowest first, at most 10 bytes
//! type 1  8 bytes, little endian          type 5  4 bytes, little endian
//! type 2  varint length, then so many bytes: text, message, packed numbers
//! ```

use crate::error::{DecodeError, Wrong};

/// Writes fields into one buffer. Values that are zero or empty are left out, as proto3 does; elements of repeated fields are not.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.push(value.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    pub(crate) fn uint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.key(field, 0);
            self.varint(value);
        }
    }

    /// A number that is there also when it is 0: a member of a oneof.
    pub(crate) fn uint_always(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.key(field, 1);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn text(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.blob(field, value.as_bytes());
        }
    }

    /// Bytes or text, also when empty.
    pub(crate) fn blob(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.message(field, |w| values.for_each(|value| w.varint(value)));
        }
    }

    pub(crate) fn packed_fixed64(
        &mut self,
        field: u32,
        values: impl ExactSizeIterator<Item = u64>,
    ) {
        if values.len() != 0 {
            self.key(field, 2);
            self.varint(8 * values.len() as u64);
            values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
        }
    }

    /// A message, also when empty. Its length stands before it and is known after it: a short one costs no move.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, 2);
        let at = self.bytes.len();
        self.bytes.push(0);
        write(self);
        let length = self.bytes.len() - at - 1;
        if let (Ok(short @ 0..0x80), Some(place)) = (u8::try_from(length), self.bytes.get_mut(at)) {
            *place = short;
            return;
        }
        let groups = length.max(1).ilog2() / 7 + 1;
        let head = (0..groups).map(|group| {
            let more = if group + 1 < groups { 0x80 } else { 0 };
            (length >> (7 * group)).to_le_bytes()[0] & 0x7f | more
        });
        self.bytes.splice(at..=at, head);
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(Reader<'a>),
}

/// Reads the fields of one message, and knows where in the request it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where `bytes` begins in the request.
    pub(crate) offset: usize,
    /// What is read, for errors.
    pub(crate) path: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn wrong(&self, wrong: Wrong) -> DecodeError {
        DecodeError { offset: self.offset, path: self.path, wrong }
    }

    /// The same bytes as a message or field of this name.
    pub(crate) fn named(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.wrong(Wrong::Cut { needed: length, present: self.bytes.len() }));
        };
        self.bytes = rest;
        self.offset += length;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (place, &byte) in self.bytes.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return Err(self.wrong(Wrong::LongVarint));
            }
            value |= bits << (7 * place);
            if byte < 0x80 {
                self.take(place + 1)?;
                return Ok(value);
            }
        }
        Err(self.wrong(if self.bytes.len() < 10 {
            Wrong::Cut { needed: self.bytes.len() + 1, present: self.bytes.len() }
        } else {
            Wrong::LongVarint
        }))
    }

    pub(crate) fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// The next field, or `None` at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, DecodeError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let begin = *self;
        let key = self.varint()?;
        let wrong_key = || begin.wrong(Wrong::Key { key });
        let field = u32::try_from(key >> 3)
            .ok()
            .filter(|&f| f != 0 && f < 1 << 29)
            .ok_or_else(wrong_key)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.fixed64()?),
            2 => {
                let length = self.varint()?;
                let present = self.bytes.len();
                let cut = || self.wrong(Wrong::Cut { needed: usize::MAX, present });
                let length = usize::try_from(length).ok().ok_or_else(cut)?;
                let offset = self.offset;
                Value::Bytes(Reader { bytes: self.take(length)?, offset, path: self.path })
            }
            5 => {
                self.take(4)?;
                Value::Fixed32
            }
            _ => return Err(wrong_key()),
        };
        Ok(Some((field, value)))
    }
}

impl<'a> Value<'a> {
    /// As a number; `of` is for the error.
    pub(crate) fn number(self, of: &Reader<'_>) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(of.wrong(Wrong::Type { expected: "varint" })),
        }
    }

    pub(crate) fn fixed(self, of: &Reader<'_>) -> Result<u64, DecodeError> {
        match self {
            Self::Fixed64(value) => Ok(value),
            _ => Err(of.wrong(Wrong::Type { expected: "8 bytes" })),
        }
    }

    pub(crate) fn bytes(
        self,
        of: &Reader<'_>,
        path: &'static str,
    ) -> Result<Reader<'a>, DecodeError> {
        match self {
            Self::Bytes(reader) => Ok(reader.named(path)),
            _ => Err(of.wrong(Wrong::Type { expected: "length and bytes" })),
        }
    }
}
