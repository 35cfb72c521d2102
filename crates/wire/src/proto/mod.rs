//! Protocol Buffers' wire format: as much of it as profiles need, and bodies in gzip.
//!
//! ```text
//! field   = key value;  key = varint (number << 3 | type)
//! type 0  varint: 7 bits a byte, lowest first, at most 10 bytes
//! type 1  8 bytes, little endian          type 5  4 bytes, little endian
//! type 2  varint length, then so many bytes: text, message, packed numbers
//! ```

mod error;
mod gzip;

pub use error::{DecodeError, Wrong};
pub use gzip::{is_gzip, ungzip};

/// Writes fields into one buffer. Values that are zero or empty are left out, as proto3 does; elements of repeated fields are not.
#[derive(Debug, Default)]
pub struct Writer {
    /// What was written.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// A bare number.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.push(value.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// A number.
    pub fn uint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.key(field, 0);
            self.varint(value);
        }
    }

    /// A number that is there also when it is 0: a member of a oneof.
    pub fn uint_always(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    /// A number of eight bytes.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.key(field, 1);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Text.
    pub fn text(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.blob(field, value.as_bytes());
        }
    }

    /// Bytes or text, also when empty.
    pub fn blob(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// A repeated number.
    pub fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.message(field, |w| values.for_each(|value| w.varint(value)));
        }
    }

    /// A repeated number of eight bytes.
    pub fn packed_fixed64(&mut self, field: u32, values: impl ExactSizeIterator<Item = u64>) {
        if values.len() != 0 {
            self.key(field, 2);
            self.varint(8 * values.len() as u64);
            values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
        }
    }

    /// A message, also when empty. Its length stands before it and is known after it: a short one costs no move.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
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
pub enum Value<'a> {
    /// Type 0.
    Varint(u64),
    /// Type 1.
    Fixed64(u64),
    /// Type 5, which no field that is read has.
    Fixed32,
    /// Type 2.
    Bytes(Reader<'a>),
}

/// Reads the fields of one message, and knows where in the whole message it is. Takes no memory.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// What is left to read.
    pub bytes: &'a [u8],
    /// Where `bytes` begins in the whole message.
    pub offset: usize,
    /// What is read, for errors.
    pub path: &'static str,
}

/// Bits of a varint as protobuf's signed numbers have them.
#[must_use]
pub const fn signed(value: u64) -> i64 {
    i64::from_le_bytes(value.to_le_bytes())
}

/// A signed number as it stands in a varint.
#[must_use]
pub const fn bits(value: i64) -> u64 {
    u64::from_le_bytes(value.to_le_bytes())
}

impl<'a> Reader<'a> {
    /// Of a whole message of this name.
    #[must_use]
    pub const fn new(bytes: &'a [u8], path: &'static str) -> Self {
        Self { bytes, offset: 0, path }
    }

    /// All that is left, as text.
    ///
    /// # Errors
    ///
    /// Where it is not UTF-8.
    pub fn text(self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes).map_err(|error| DecodeError {
            offset: self.offset + error.valid_up_to(),
            path: self.path,
            wrong: Wrong::Text,
        })
    }

    /// An error at this place.
    pub fn wrong(&self, wrong: Wrong) -> DecodeError {
        DecodeError { offset: self.offset, path: self.path, wrong }
    }

    /// The same bytes as a message or field of this name.
    #[must_use]
    pub fn named(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    /// The next bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.wrong(Wrong::Cut { needed: length, present: self.bytes.len() }));
        };
        self.bytes = rest;
        self.offset += length;
        Ok(taken)
    }

    /// A bare number.
    ///
    /// # Errors
    ///
    /// When the bytes end in it, or it has more than 64 bits.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
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

    /// A bare number of eight bytes.
    ///
    /// # Errors
    ///
    /// When the bytes end in it.
    pub fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// Number and value of the next field, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Where the bytes are no field.
    pub fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, DecodeError> {
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
    ///
    /// # Errors
    ///
    /// When it is something else.
    pub fn number(self, of: &Reader<'_>) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(of.wrong(Wrong::Type { expected: "varint" })),
        }
    }

    /// As a number of eight bytes; `of` is for the error.
    ///
    /// # Errors
    ///
    /// When it is something else.
    pub fn fixed(self, of: &Reader<'_>) -> Result<u64, DecodeError> {
        match self {
            Self::Fixed64(value) => Ok(value),
            _ => Err(of.wrong(Wrong::Type { expected: "8 bytes" })),
        }
    }

    /// As text or a message of this name; `of` is for the error.
    ///
    /// # Errors
    ///
    /// When it is something else.
    pub fn bytes(self, of: &Reader<'_>, path: &'static str) -> Result<Reader<'a>, DecodeError> {
        match self {
            Self::Bytes(reader) => Ok(reader.named(path)),
            _ => Err(of.wrong(Wrong::Type { expected: "length and bytes" })),
        }
    }
}
