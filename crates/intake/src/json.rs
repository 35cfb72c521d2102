//! Messages of Protocol Buffers that come as JSON: they are written as bytes and read as those, so that there is one reader.
//!
//! The mapping is ProtoJSON's: names in lowerCamelCase or as the message has them, 64-bit numbers as numbers or text, bytes in base64;
//! OTLP's ids in hexadecimal digits. Names that are not known are passed over.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use wire::proto::{Writer, bits};

use crate::error::Error;
use crate::limits::Limits;

const PADDED_OR_NOT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDED_OR_NOT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDED_OR_NOT);

/// The fields of a message: name, number, type.
pub(crate) struct Message(pub(crate) &'static [(&'static str, u32, Kind)]);

/// The type of a field, which may be repeated.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// In base64.
    Bytes,
    /// In hexadecimal digits or base64.
    Id,
    Bool,
    /// A varint of any sign.
    Number,
    Fixed64,
    Double,
    Message(&'static Message),
}

/// The bytes of a message. Nothing of the text is kept: the bytes are written as it is read.
pub(crate) fn encode(
    text: &[u8],
    message: &'static Message,
    limits: &Limits,
) -> Result<Vec<u8>, Error> {
    if text.len() > limits.text_bytes {
        return Err(Error::TooMany { what: "bytes of JSON", limit: limits.text_bytes });
    }
    let mut out = Writer::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let whole = Fields { message, out: &mut out };
    whole.deserialize(&mut reader).map_err(|error| Error::json(&error))?;
    reader.end().map_err(|error| Error::json(&error))?;
    Ok(out.bytes)
}

/// An object, whose fields are a message's.
struct Fields<'w> {
    message: &'static Message,
    out: &'w mut Writer,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { message, out } = self;
        while let Some(key) = map.next_key::<String>()? {
            match message.0.iter().find(|(name, ..)| is_same(name, &key)) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(&(name, number, kind)) => {
                    let is_repeated = false;
                    map.next_value_seed(Field { name, number, kind, is_repeated, out })?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a key is a field's name: `timeUnixNano` is `time_unix_nano`.
fn is_same(name: &str, key: &str) -> bool {
    let letters = |text| str::bytes(text).filter(|byte| *byte != b'_');
    letters(name).eq(letters(key).map(|byte| byte.to_ascii_lowercase()))
}

/// The value of a field, or all values of one that is repeated.
struct Field<'w> {
    name: &'static str,
    number: u32,
    kind: Kind,
    is_repeated: bool,
    out: &'w mut Writer,
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl Field<'_> {
    fn wrong<E: de::Error>(&self) -> E {
        E::custom(format_args!("the field {} is not {}", self.name, self.kind.as_str()))
    }

    /// A whole number, as its bits.
    fn integer<E: de::Error>(self, value: Option<u64>) -> Result<(), E> {
        let Some(value) = value else { return Err(self.wrong()) };
        match self.kind {
            Kind::Number => self.out.uint_always(self.number, value),
            // A repeated one may be 0, which alone is left out.
            Kind::Fixed64 if self.is_repeated => {
                self.out.packed_fixed64(self.number, std::iter::once(value));
            }
            Kind::Fixed64 => self.out.fixed64(self.number, value),
            _ => return Err(self.wrong()),
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field {} to be {}", self.name, self.kind.as_str())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { name, number, kind, is_repeated, out } = self;
        if is_repeated {
            return Err(Field { name, number, kind, is_repeated, out }.wrong());
        }
        let mut next = || {
            seq.next_element_seed(Field { name, number, kind, is_repeated: true, out: &mut *out })
        };
        while next()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Kind::Message(message) = self.kind else { return Err(self.wrong()) };
        let mut inner = Ok(());
        self.out.message(self.number, |out| inner = Fields { message, out }.visit_map(map));
        inner
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        match self.kind {
            Kind::Bool => self.out.uint_always(self.number, value.into()),
            _ => return Err(self.wrong()),
        }
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        match self.kind {
            #[expect(clippy::cast_precision_loss, reason = "JSON has one kind of numbers")]
            Kind::Double => self.visit_f64(value as f64),
            _ => self.integer(Some(value)),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        match self.kind {
            #[expect(clippy::cast_precision_loss, reason = "JSON has one kind of numbers")]
            Kind::Double => self.visit_f64(value as f64),
            Kind::Number => self.integer(Some(bits(value))),
            _ => Err(self.wrong()),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        match self.kind {
            Kind::Double => self.out.fixed64(self.number, value.to_bits()),
            _ => return Err(self.wrong()),
        }
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let bytes = match self.kind {
            Kind::Text => {
                self.out.blob(self.number, text.as_bytes());
                return Ok(());
            }
            Kind::Bytes => base64(text),
            Kind::Id => hex(text).or_else(|| base64(text)),
            Kind::Number => {
                let number = text.parse().ok().or_else(|| text.parse().ok().map(bits));
                return self.integer(number);
            }
            Kind::Fixed64 => return self.integer(text.parse().ok()),
            Kind::Double => {
                let number: f64 = text.parse().map_err(|_no_number| self.wrong())?;
                return self.visit_f64(number);
            }
            Kind::Bool | Kind::Message(_) => None,
        };
        let Some(bytes) = bytes else { return Err(self.wrong()) };
        self.out.blob(self.number, &bytes);
        Ok(())
    }
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bytes => "base64",
            Self::Id => "hexadecimal digits",
            Self::Bool => "true or false",
            Self::Number => "a whole number",
            Self::Fixed64 => "a whole number of no sign",
            Self::Double => "a number",
            Self::Message(_) => "an object",
        }
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).or_else(|_| BASE64_URL.decode(text)).ok()
}

/// The bytes of an id of 8 or 16 bytes.
fn hex(text: &str) -> Option<Vec<u8>> {
    if !matches!(text.len(), 16 | 32) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let bytes = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    bytes.map(|digits| u8::from_str_radix(digits?, 16).ok()).collect()
}
