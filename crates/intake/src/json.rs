//! Messages of Protocol Buffers that come as JSON: they are written as bytes and read as those, so that there is one reader.
//!
//! The mapping is ProtoJSON's: names in lowerCamelCase or as the message has them, 64-bit numbers as numbers or text, bytes in base64;
//! OTLP's ids in hexadecimal digits. Names that are not known are passed over.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
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

/// The bytes of a message.
pub(crate) fn encode(
    text: &[u8],
    message: &'static Message,
    limits: &Limits,
) -> Result<Vec<u8>, Error> {
    if text.len() > limits.text_bytes {
        return Err(Error::TooMany { what: "bytes of JSON", limit: limits.text_bytes });
    }
    let value: Value = serde_json::from_slice(text).map_err(|error| Error::json(&error))?;
    let mut out = Writer::default();
    write_message(&value, message, &mut out, "request")?;
    Ok(out.bytes)
}

fn write_message(
    value: &Value,
    message: &'static Message,
    out: &mut Writer,
    name: &'static str,
) -> Result<(), Error> {
    let Value::Object(fields) = value else {
        return Err(Error::JsonField { name, expected: "an object" });
    };
    for (key, value) in fields {
        let known = message.0.iter().find(|(name, ..)| is_same(name, key));
        let Some(&(name, number, kind)) = known else { continue };
        match (value, kind) {
            (Value::Null, _) => {}
            (Value::Array(all), Kind::Fixed64) => {
                let all = all.iter().map(|value| unsigned(value, name));
                let all: Vec<u64> = all.collect::<Result<_, _>>()?;
                out.packed_fixed64(number, all.into_iter());
            }
            (Value::Array(all), _) => {
                for value in all {
                    write_field(value, number, kind, out, name)?;
                }
            }
            (value, _) => write_field(value, number, kind, out, name)?,
        }
    }
    Ok(())
}

/// Whether a key is a field's name: `timeUnixNano` is `time_unix_nano`.
fn is_same(name: &str, key: &str) -> bool {
    let letters = |text| str::bytes(text).filter(|byte| *byte != b'_');
    letters(name).eq(letters(key).map(|byte| byte.to_ascii_lowercase()))
}

fn write_field(
    value: &Value,
    number: u32,
    kind: Kind,
    out: &mut Writer,
    name: &'static str,
) -> Result<(), Error> {
    let wrong = |expected| Error::JsonField { name, expected };
    let text = || value.as_str().ok_or_else(|| wrong("text"));
    match kind {
        Kind::Text => out.blob(number, text()?.as_bytes()),
        Kind::Bytes => out.blob(number, &base64(text()?).ok_or_else(|| wrong("base64"))?),
        Kind::Id => {
            let text = text()?;
            let id = hex(text).or_else(|| base64(text));
            out.blob(number, &id.ok_or_else(|| wrong("hexadecimal digits"))?);
        }
        Kind::Bool => {
            let truth = value.as_bool().ok_or_else(|| wrong("true or false"))?;
            out.uint_always(number, truth.into());
        }
        Kind::Number => out.uint_always(number, integer(value, name)?),
        Kind::Fixed64 => out.fixed64(number, unsigned(value, name)?),
        Kind::Double => {
            let parsed = value.as_f64().or_else(|| value.as_str()?.parse().ok());
            let bits = parsed.map(f64::to_bits).ok_or_else(|| wrong("a number"))?;
            out.fixed64(number, bits);
        }
        Kind::Message(message) => {
            let mut inner = Ok(());
            out.message(number, |out| inner = write_message(value, message, out, name));
            inner?;
        }
    }
    Ok(())
}

/// A whole number of any sign, as a varint has it.
fn integer(value: &Value, name: &'static str) -> Result<u64, Error> {
    let of_text = |text: &str| text.parse().ok().or_else(|| text.parse().ok().map(bits));
    let number = value.as_u64().or_else(|| value.as_i64().map(bits));
    let number = number.or_else(|| of_text(value.as_str()?));
    number.ok_or(Error::JsonField { name, expected: "a whole number" })
}

fn unsigned(value: &Value, name: &'static str) -> Result<u64, Error> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or(Error::JsonField { name, expected: "a whole number of no sign" })
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
