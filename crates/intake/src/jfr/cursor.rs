//! Numbers and texts of a recording.
//!
//! ```text
//! short, char, int, long   packed: 7 bits a byte, lowest first, of a ninth byte all 8; else 2, 2, 4, 8 bytes
//! byte, boolean, float, double    1, 1, 4, 8 bytes; all numbers of a fixed length are big endian
//! text   0 nothing · 1 empty · 2 long, the number of a constant · 3 int, so many bytes of UTF-8
//!        4 int, so many char of UTF-16 · 5 int, so many bytes of Latin-1
//! ```

use std::borrow::Cow;

use wire::proto::{DecodeError, Reader, Wrong, signed};

type Result<T> = std::result::Result<T, DecodeError>;

/// What is left of a chunk or of one of its events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) reader: Reader<'a>,
    /// Whether whole numbers are packed.
    pub(super) is_packed: bool,
}

/// A text, or where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text<'a> {
    Here(Cow<'a, str>),
    Constant(i64),
}

impl<'a> Cursor<'a> {
    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.fixed::<1>()?[0])
    }

    pub(super) fn fixed<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let cut = Wrong::Cut { needed: LENGTH, present: self.reader.bytes.len() };
        let error = self.reader.wrong(cut);
        self.reader.take(LENGTH)?.try_into().map_err(|_other_length| error)
    }

    /// Two's complement, of up to nine bytes.
    fn packed(&mut self) -> Result<i64> {
        let mut value = 0u64;
        for place in 0..8 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(signed(value));
            }
        }
        Ok(signed(value | u64::from(self.byte()?) << 56))
    }

    pub(super) fn short(&mut self) -> Result<i64> {
        if self.is_packed { self.packed() } else { Ok(u16::from_be_bytes(self.fixed()?).into()) }
    }

    /// Of 32 bits: the JDK packs -1 as 2^32 - 1.
    pub(super) fn int(&mut self) -> Result<i64> {
        if !self.is_packed {
            return Ok(i32::from_be_bytes(self.fixed()?).into());
        }
        let [a, b, c, d, ..] = self.packed()?.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]).into())
    }

    pub(super) fn long(&mut self) -> Result<i64> {
        if self.is_packed { self.packed() } else { Ok(i64::from_be_bytes(self.fixed()?)) }
    }

    /// A length or a count: each of what is counted takes a byte or more, so there are no more than bytes.
    pub(super) fn count(&mut self) -> Result<usize> {
        let begin = self.reader;
        let count = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        let present = self.reader.bytes.len();
        if count > present {
            return Err(begin.wrong(Wrong::Cut { needed: count, present }));
        }
        Ok(count)
    }

    pub(super) fn text(&mut self) -> Result<Text<'a>> {
        let begin = self.reader;
        let text = match self.byte()? {
            0 | 1 => Cow::Borrowed(""),
            2 => return Ok(Text::Constant(self.long()?)),
            3 => {
                let length = self.count()?;
                let mut reader = self.reader;
                reader.bytes = self.reader.take(length)?;
                Cow::Borrowed(reader.text()?)
            }
            4 => {
                let mut units = Vec::new();
                for _ in 0..self.count()? {
                    let unit = u16::try_from(self.short()?);
                    units.push(unit.map_err(|_not_16_bits| begin.wrong(Wrong::Text))?);
                }
                let text = String::from_utf16(&units);
                Cow::Owned(text.map_err(|_not_utf16| begin.wrong(Wrong::Text))?)
            }
            5 => {
                let length = self.count()?;
                let bytes = self.reader.take(length)?;
                Cow::Owned(bytes.iter().copied().map(char::from).collect())
            }
            _ => return Err(begin.wrong(Wrong::Type { expected: "a text" })),
        };
        Ok(Text::Here(text))
    }

    pub(super) fn skip_text(&mut self) -> Result<()> {
        match self.byte()? {
            2 => self.long().map(drop),
            3 | 5 => {
                let length = self.count()?;
                self.reader.take(length).map(drop)
            }
            4 => (0..self.count()?).try_for_each(|_| self.short().map(drop)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(bytes: &[u8], is_packed: bool) -> Cursor<'_> {
        Cursor { reader: Reader::new(bytes, "jfr"), is_packed }
    }

    #[test]
    fn numbers_are_packed_or_not() {
        let long = |bytes: &[u8]| cursor(bytes, true).long();
        assert_eq!(long(&[0x7f]), Ok(127));
        assert_eq!(long(&[0x80, 0x80, 0x80, 0]), Ok(0), "padded");
        assert_eq!(long(&[0xff; 9]), Ok(-1));
        assert_eq!(long(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]), Ok(i64::MIN));
        assert!(long(&[0xff; 8]).is_err());
        assert_eq!(cursor(&[0xff, 0xff, 0xff, 0xff, 0x0f], true).int(), Ok(-1));
        let plain = [0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0];
        assert_eq!(cursor(&plain, false).int(), Ok(-2));
        assert_eq!(cursor(&plain, false).short(), Ok(0xffff));
        assert!(cursor(&plain[..7], false).long().is_err());
        // A count that is more than there is.
        assert!(cursor(&[2, 0], true).count().is_err());
        assert!(cursor(&[0xff; 9], true).count().is_err());
    }

    #[test]
    fn texts_have_five_forms() {
        let check = |bytes: &[u8], expected: &str| {
            let mut text = cursor(bytes, true);
            assert_eq!(text.text(), Ok(Text::Here(expected.into())));
            assert!(text.reader.bytes.is_empty());
            let mut skipped = cursor(bytes, true);
            skipped.skip_text().unwrap();
            assert!(skipped.reader.bytes.is_empty());
        };
        check(&[0], "");
        check(&[1], "");
        check(b"\x03\x02\xc3\xbc", "ü");
        check(b"\x04\x02\xfc\x01a", "üa");
        check(b"\x05\x01\xfc", "ü");
        assert_eq!(cursor(&[2, 9], true).text(), Ok(Text::Constant(9)));
        for wrong in
            [b"\x03\x01\xff".as_slice(), b"\x04\x01\x80\xb0\x03", b"\x06", b"\x03\x09a", b""]
        {
            assert!(cursor(wrong, true).text().is_err(), "{wrong:?}");
        }
    }
}
