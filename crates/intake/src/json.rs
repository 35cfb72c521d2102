//! Messages of Protocol Buffers that come as JSON: they are written as bytes and read as those, so that there is one reader.
//!
//! The mapping is ProtoJSON's: names in lowerCamelCase or as the message has them, bytes in base64. Names that are not known are passed
//! over.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use wire::proto::Writer;

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
        match value {
            Value::Null => {}
            Value::Array(all) => {
                for value in all {
                    write_field(value, number, kind, out, name)?;
                }
            }
            value => write_field(value, number, kind, out, name)?,
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
        Kind::Message(message) => {
            let mut inner = Ok(());
            out.message(number, |out| inner = write_message(value, message, out, name));
            inner?;
        }
    }
    Ok(())
}

fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).or_else(|_| BASE64_URL.decode(text)).ok()
}
