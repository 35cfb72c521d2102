//! What a process says of itself: the payload of OpenTelemetry's process context (OTEP 4719).
//!
//! ```text
//! ProcessContext  1 Resource { 1 KeyValue.. }   2 KeyValue..
//! ```
//! The second list is for readers like this one alone and no part of the resource.

use crate::decode::{Budget, Limits, for_each, key_value};
use crate::request::AttributeValue;
use wire::proto::{DecodeError, Reader};

/// Attributes of a resource; what is beyond is left out.
pub const MAX_CONTEXT_ATTRIBUTES: usize = 128;
/// Bytes of a key and of a value; an attribute that is longer is left out.
pub const MAX_CONTEXT_TEXT_BYTES: usize = 4096;

/// The attributes of a process's resource, as it published them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessContext {
    /// Key and value. Numbers and truth values are written as text.
    pub attributes: Vec<(String, String)>,
    /// Attributes that are lists, maps, bytes or nothing, too long or too many.
    pub left_out: u64,
}

impl ProcessContext {
    /// Reads the payload.
    ///
    /// # Errors
    /// It is no such message, with the place in it.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let limits = Limits { bytes: payload.len(), records: 1 << 14, numbers: 0 };
        let mut budget = Budget::of(limits);
        let mut reader = Reader::new(payload, "process_context");
        let mut out = Self::default();
        while let Some((field, value)) = reader.field()? {
            if field != 1 {
                continue;
            }
            let mut resource = value.bytes(&reader, "resource")?;
            for_each(&mut resource, 1, "resource.attributes", |attribute| {
                let attribute = key_value(attribute, &mut budget)?;
                out.take(attribute.key, attribute.value);
                Ok(())
            })?;
        }
        Ok(out)
    }

    fn take(&mut self, key: &str, value: AttributeValue<'_>) {
        let value = match value {
            AttributeValue::Text(text) => text.to_owned(),
            AttributeValue::Bool(is) => is.to_string(),
            AttributeValue::Int(number) => number.to_string(),
            AttributeValue::DoubleBits(bits) => f64::from_bits(bits).to_string(),
            AttributeValue::None
            | AttributeValue::TextIndex(_)
            | AttributeValue::Bytes(_)
            | AttributeValue::Nested(_) => String::new(),
        };
        let fits = |text: &str| !text.is_empty() && text.len() <= MAX_CONTEXT_TEXT_BYTES;
        if fits(key) && fits(&value) && self.attributes.len() < MAX_CONTEXT_ATTRIBUTES {
            self.attributes.push((key.to_owned(), value));
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::proto::Writer;

    fn attribute(out: &mut Writer, key: &str, value: impl Fn(&mut Writer)) {
        out.message(1, |out| {
            out.text(1, key);
            out.message(2, &value);
        });
    }

    fn payload() -> Vec<u8> {
        let mut out = Writer::default();
        out.message(1, |out| {
            attribute(out, "service.name", |out| out.text(1, "shop"));
            attribute(out, "canary", |out| out.uint_always(2, 1));
            attribute(out, "shard", |out| out.uint_always(3, (-7_i64).cast_unsigned()));
            attribute(out, "weight", |out| out.fixed64(4, 0.5_f64.to_bits()));
            attribute(out, "list", |out| out.message(5, |out| out.text(1, "x")));
            attribute(out, "empty", |_| {});
            attribute(out, &"k".repeat(MAX_CONTEXT_TEXT_BYTES + 1), |out| out.text(1, "v"));
        });
        out.message(2, |out| out.text(1, "threadlocal.schema_version"));
        out.bytes
    }

    #[test]
    fn attributes_of_the_resource_are_text_and_those_that_cannot_be_are_counted() {
        let context = ProcessContext::decode(&payload()).unwrap();
        let expected =
            [("service.name", "shop"), ("canary", "true"), ("shard", "-7"), ("weight", "0.5")];
        assert_eq!(
            context.attributes,
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
        assert_eq!(context.left_out, 3);
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let mut out = Writer::default();
        out.message(1, |out| {
            for number in 0..MAX_CONTEXT_ATTRIBUTES + 5 {
                attribute(out, &format!("k{number}"), |out| out.text(1, "v"));
            }
        });
        let context = ProcessContext::decode(&out.bytes).unwrap();
        assert_eq!((context.attributes.len(), context.left_out), (MAX_CONTEXT_ATTRIBUTES, 5));
    }

    #[test]
    fn a_payload_that_is_cut_is_an_error_or_says_less() {
        let payload = payload();
        let whole = ProcessContext::decode(&payload).unwrap();
        for end in 0..payload.len() {
            match ProcessContext::decode(&payload[..end]) {
                Ok(context) => assert!(context.attributes.len() <= whole.attributes.len()),
                Err(error) => assert!(error.offset <= end, "{end}: {error}"),
            }
        }
    }
}
