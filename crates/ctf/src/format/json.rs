//! Event records as JSON, one object a line.
//!
//! ```text
//! {"timestamp_ns":1795193047736468450,"host":"vm","name":"svc:read","packet":{"cpu_id":1},
//!  "common_context":{"vtid":7},"context":{},"payload":{"path":"/tmp/x","bytes":4096}}
//! ```
//!
//! Numbers are exact, also those of 64 bits: a reader that keeps numbers as 64-bit floats must take care. Enumerations
//! are `{"value":3,"labels":["A"]}`, floats that are not finite are the strings `"NaN"`, `"Infinity"` and
//! `"-Infinity"`. Bytes that are not UTF-8 become U+FFFD. Members appear in the order of the packet.
//! `timestamp_ns` is `null` without a clock, `host` is `null` when the environment names none; absent contexts are left
//! out.

use std::io::Write;

use super::number::{decimal, signed_decimal};
use super::output::{Output, Piece};
use super::quote::{self, escaped, escaped_chars};
use super::stream::StreamText;
use crate::event::EventRecord;
use crate::value::{EnumValue, Field, Scope, Shape, Value, Visitor};

/// Writes event records as JSON.
#[derive(Debug, Default)]
pub struct JsonWriter {
    levels: Vec<Level>,
    /// The context of a packet, while it is written.
    scratch: Output,
}

impl JsonWriter {
    /// A writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a packet that the stream comes to. `visit` shows the fields of the packet's context, which all
    /// lines of the packet show: without what the reader itself uses.
    pub fn enter_packet(&mut self, stream: &mut StreamText, visit: impl FnOnce(&mut Fields<'_>)) {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        self.structure(true, visit, &mut out);
        stream.packet = Piece::new(out.as_bytes());
        self.scratch = out;
    }

    /// Appends the line of one event record of `stream`, with its line feed.
    pub fn write(&mut self, record: &EventRecord<'_>, stream: &StreamText, out: &mut Output) {
        out.fixed(b"{\"timestamp_ns\":");
        match record.timestamp_ns() {
            Some(at) => signed_decimal(out, at),
            None => out.fixed(b"null"),
        }
        out.fixed(b",\"host\":");
        match record.trace_class().env("hostname").and_then(|host| host.as_str()) {
            Some(host) => string(out, host.as_bytes()),
            None => out.fixed(b"null"),
        }
        out.fixed(b",\"name\":");
        string(out, record.name().as_bytes());
        if !stream.packet.is_empty() {
            out.fixed(b",\"packet\":");
            out.piece(&stream.packet);
        }
        for (scope, key) in [
            (Scope::EventCommonContext, "common_context"),
            (Scope::EventSpecificContext, "context"),
            (Scope::Payload, "payload"),
        ] {
            if record.has(scope) {
                out.push(b',');
                string(out, key.as_bytes());
                out.push(b':');
                self.structure(false, |fields| record.visit(scope, fields), out);
            }
        }
        out.fixed(b"}\n");
    }

    fn structure(&mut self, bare: bool, visit: impl FnOnce(&mut Fields<'_>), out: &mut Output) {
        self.levels.clear();
        self.levels.push(Level { shape: Shape::Structure, count: 0 });
        out.push(b'{');
        visit(&mut Fields { out, levels: &mut self.levels, bare });
        out.push(b'}');
    }
}

/// A compound that is being written.
#[derive(Debug, Clone, Copy)]
struct Level {
    shape: Shape,
    /// Members or elements written.
    count: u64,
}

/// Writes the fields of one scope as they are shown to it.
#[derive(Debug)]
pub struct Fields<'o> {
    out: &'o mut Output,
    levels: &'o mut Vec<Level>,
    /// Leaves out what the packet reader itself uses.
    bare: bool,
}

impl Fields<'_> {
    /// The comma and the key before a member.
    fn label(&mut self, field: &Field<'_>) {
        let Some(level) = self.levels.last_mut() else { return };
        if matches!(level.shape, Shape::Variant | Shape::Optional { .. }) {
            return;
        }
        if level.count > 0 {
            self.out.push(b',');
        }
        level.count += 1;
        if level.shape == Shape::Structure {
            string(self.out, field.name().as_bytes());
            self.out.push(b':');
        }
    }
}

impl<'a> Visitor<'a> for Fields<'_> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if self.bare && self.levels.len() == 1 && field.is_structural() {
            return;
        }
        self.label(&field);
        match value {
            Value::Unsigned(number) => decimal(self.out, number),
            Value::Signed(number) => signed_decimal(self.out, number),
            Value::Float(number) => float(self.out, number),
            Value::Str(text) => string(self.out, text),
            Value::WideStr(text) => {
                self.out.push(b'"');
                escaped_chars::<quote::Json>(self.out, text.chars());
                self.out.push(b'"');
            }
            Value::Enum(value) => enumeration(self.out, &value),
            Value::Bool(truth) => self.out.push_bytes(if truth { b"true" } else { b"false" }),
            Value::Bits(bits) => decimal(self.out, bits.raw()),
            Value::Blob(bytes) => byte_array(self.out, bytes),
            Value::Compound(_) => self.out.push_bytes(b"null"),
        }
    }

    fn enter(&mut self, field: Field<'a>, shape: Shape) {
        self.label(&field);
        match shape {
            Shape::Structure => self.out.push(b'{'),
            Shape::Array { .. } => self.out.push(b'['),
            Shape::Variant | Shape::Optional { present: true } => {}
            Shape::Optional { present: false } => self.out.push_bytes(b"null"),
        }
        self.levels.push(Level { shape, count: 0 });
    }

    fn leave(&mut self, _: Field<'a>, shape: Shape) {
        self.levels.pop();
        match shape {
            Shape::Structure => self.out.push(b'}'),
            Shape::Array { .. } => self.out.push(b']'),
            Shape::Variant | Shape::Optional { .. } => {}
        }
    }
}

fn enumeration(out: &mut Output, value: &EnumValue<'_>) {
    out.push_bytes(b"{\"value\":");
    if value.signed {
        signed_decimal(out, value.raw.cast_signed());
    } else {
        decimal(out, value.raw);
    }
    out.push_bytes(b",\"labels\":[");
    for (at, label) in value.labels().enumerate() {
        out.push_bytes(if at > 0 { b"," } else { b"" });
        string(out, label.as_bytes());
    }
    out.push_bytes(b"]}");
}

fn byte_array(out: &mut Output, bytes: &[u8]) {
    out.push(b'[');
    for (at, byte) in bytes.iter().enumerate() {
        out.push_bytes(if at > 0 { b"," } else { b"" });
        decimal(out, (*byte).into());
    }
    out.push(b']');
}

fn float(out: &mut Output, number: f64) {
    if number.is_finite() {
        // The shortest decimal that reads back as the same number: 25 bytes at most.
        out.with_room::<32>(|room| {
            let mut free = room.as_mut_slice();
            let written = write!(free, "{number:?}");
            debug_assert!(written.is_ok());
            32 - free.len()
        });
    } else if number.is_nan() {
        out.push_bytes(b"\"NaN\"");
    } else {
        out.push_bytes(if number > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
    }
}

/// A string with JSON's escapes; what is not UTF-8 becomes U+FFFD.
fn string(out: &mut Output, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        escaped::<quote::Json>(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.push_bytes("\u{FFFD}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_to_utf8_and_escape_control_bytes() {
        let mut out = Output::new();
        string(&mut out, b"a\"b\\c\n\x01\x7f\xc3\xa9\xff\xfe!");
        assert_eq!(
            out.as_bytes(),
            "\"a\\\"b\\\\c\\n\\u0001\u{7f}\u{e9}\u{FFFD}\u{FFFD}!\"".as_bytes()
        );
    }

    #[test]
    fn floats_read_back_as_the_same_number() {
        for number in [0.1, -2.5e-300, 1e21, 0.0, f64::MAX] {
            let mut out = Output::new();
            float(&mut out, number);
            assert_eq!(std::str::from_utf8(out.as_bytes()).expect("ASCII").parse(), Ok(number));
        }
        let mut out = Output::new();
        float(&mut out, f64::NEG_INFINITY);
        assert_eq!(out.as_bytes(), b"\"-Infinity\"");
    }
}
