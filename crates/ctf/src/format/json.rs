//! Event records as JSON, one object a line.
//!
//! ```text
//! {"timestamp_ns":1795193047736468450,"host":"vm","name":"svc:read","packet":{"cpu_id":1},
//!  "common_context":{"vtid":7},"context":{},"payload":{"path":"/tmp/x","bytes":4096}}
//! ```
//!
//! Members appear in the order of the packet, and those of a line in the order above. `timestamp_ns` is `null` without a
//! clock, `host` is `null` when the environment names none; `packet` is left out when the packet's context has nothing
//! but what the reader itself uses, contexts and payload when the event record has none. Two members of a structure may
//! have one name: CTF 1.8 leaves out an underscore.
//!
//! | value | JSON |
//! |---|---|
//! | integer, bit array | a number, exact also with 64 bits: a reader that keeps numbers as 64-bit floats must take care |
//! | floating point number | the shortest number that reads back as the same; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | enumeration, integer with mappings | `{"value":3,"labels":["A"]}`, with all labels of the value |
//! | bit map | `{"value":5,"flags":["A"]}`, with the flags of which a bit is set |
//! | boolean | `true` or `false` |
//! | text of any encoding | a string; what is not of that encoding becomes U+FFFD |
//! | BLOB | an array of its bytes |
//! | structure, array | an object, an array |
//! | variant | the chosen option |
//! | optional | its field, or `null` |

use std::io::Write;

use super::cache::Programs;
use super::number::{decimal, signed_decimal};
use super::output::{Output, Piece};
use super::program::{self, Builder, Compound, Form, Load, Op, What};
use super::quote::{self, escaped, escaped_chars};
use super::stream::StreamText;
use crate::event::EventRecord;
use crate::layout::Integer;
use crate::value::{BitsValue, EnumValue, Field, Scope, Shape, Value, Visitor};

/// Writes event records as JSON.
#[derive(Debug, Default)]
pub struct JsonWriter {
    form: JsonForm,
    programs: Programs,
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
        const LABEL: &[u8; 10] = b",\"packet\":";
        let out = &mut self.scratch;
        out.clear();
        out.fixed(LABEL);
        self.form.structure(out, Scope::PacketContext, visit);
        if out.as_bytes().get(LABEL.len()..) == Some(b"{}") {
            out.clear();
        }
        stream.packet = Piece::new(out.as_bytes());
    }

    /// Appends the line of one event record of `stream`, with its line feed.
    pub fn write(&mut self, record: &EventRecord<'_>, stream: &StreamText, out: &mut Output) {
        out.fixed(b"{\"timestamp_ns\":");
        match record.timestamp_ns() {
            Some(at) => signed_decimal(out, at),
            None => out.fixed(b"null"),
        }
        let Self { form, programs, .. } = self;
        let ops = programs.get(record, stream, || compile(form, record));
        program::run(ops, form, record, stream, out);
    }
}

impl JsonWriter {
    /// Appends the fields of one scope of an event record as an object: `{}` when the scope is not declared.
    pub fn write_scope(&mut self, record: &EventRecord<'_>, scope: Scope, out: &mut Output) {
        self.form.structure(out, scope, |fields| record.visit(scope, fields));
    }

    /// Appends one value, compounds with all they contain.
    pub fn write_value(&mut self, value: Value<'_>, out: &mut Output) {
        let Value::Compound(compound) = value else { return scalar(out, value) };
        let shape = compound.shape();
        let (open, close): (&[u8], &[u8]) = match shape {
            Shape::Structure => (b"{", b"}"),
            Shape::Array { .. } => (b"[", b"]"),
            Shape::Variant | Shape::Optional { .. } => (b"", b""),
        };
        out.push_bytes(open);
        compound.visit(&mut self.form.fields(out, Scope::Payload, shape));
        out.push_bytes(close);
    }
}

/// All of a line behind the time.
fn compile(form: &JsonForm, record: &EventRecord<'_>) -> Box<[Op]> {
    const SCOPES: [(Scope, &str); 3] = [
        (Scope::EventCommonContext, "common_context"),
        (Scope::EventSpecificContext, "context"),
        (Scope::Payload, "payload"),
    ];
    let mut builder = Builder::default();
    let out = &mut builder.literal;
    out.fixed(b",\"host\":");
    match record.trace_class().env("hostname").and_then(|host| host.as_str()) {
        Some(host) => string(out, host.as_bytes()),
        None => out.fixed(b"null"),
    }
    out.fixed(b",\"name\":");
    string(out, record.name().as_bytes());
    builder.emit_bare(What::Packet { more: false });
    for (scope, key) in SCOPES {
        let Some(part) = record.part(scope) else { continue };
        form.label(&mut builder.literal, scope, 1, Some(key));
        builder.scope(form, scope, part.layout);
    }
    builder.literal.fixed(b"}\n");
    builder.finish()
}

/// What stands between values, and how values look.
#[derive(Debug, Default)]
struct JsonForm {
    levels: Vec<Level>,
}

impl JsonForm {
    fn fields<'o>(&'o mut self, out: &'o mut Output, scope: Scope, shape: Shape) -> Fields<'o> {
        self.levels.clear();
        self.levels.push(Level { shape, count: 0 });
        Fields { out, levels: &mut self.levels, bare: scope == Scope::PacketContext }
    }
}

impl Form for JsonForm {
    type Fields<'o> = Fields<'o>;
    type Escapes = quote::JsonAscii;

    fn label(&self, out: &mut Output, _: Scope, number: u64, name: Option<&str>) {
        label(out, number, name);
    }

    fn open(&self, out: &mut Output, compound: Compound) {
        out.push(if compound == Compound::Array { b'[' } else { b'{' });
    }

    fn close(&self, out: &mut Output, compound: Compound) {
        out.push(if compound == Compound::Array { b']' } else { b'}' });
    }

    fn number(&self, _: &mut Output, int: &Integer, load: Load) -> Option<What> {
        Some(if int.signed { What::Signed(load) } else { What::Unsigned(load) })
    }

    fn float(&self, _: &mut Output, _: Load) -> Option<What> {
        None
    }

    fn after_number(&self, _: &mut Output) {}

    fn before_text(&self, out: &mut Output) {
        out.push(b'"');
    }

    fn after_text(&self, out: &mut Output) {
        out.push(b'"');
    }

    fn text(&self, out: &mut Output, text: &[u8]) {
        utf8(out, text);
    }

    fn scalar(&self, out: &mut Output, _: &Field<'_>, value: Value<'_>) {
        scalar(out, value);
    }

    fn value<'o>(&'o mut self, out: &'o mut Output, scope: Scope) -> Fields<'o> {
        self.fields(out, scope, Shape::Variant)
    }

    fn structure(&mut self, out: &mut Output, scope: Scope, visit: impl FnOnce(&mut Fields<'_>)) {
        out.push(b'{');
        visit(&mut self.fields(out, scope, Shape::Structure));
        out.push(b'}');
    }
}

/// The comma and the key before the `number`th member of an object or, without a name, element of an array.
fn label(out: &mut Output, number: u64, name: Option<&str>) {
    out.push_bytes(if number > 0 { b"," } else { b"" });
    if let Some(name) = name {
        string(out, name.as_bytes());
        out.push(b':');
    }
}

/// Any value but a compound's.
fn scalar(out: &mut Output, value: Value<'_>) {
    match value {
        Value::Unsigned(number) => decimal(out, number),
        Value::Signed(number) => signed_decimal(out, number),
        Value::Float(number) => float(out, number),
        Value::Str(text) => string(out, text),
        Value::WideStr(text) => {
            out.push(b'"');
            escaped_chars::<quote::Json>(out, text.chars());
            out.push(b'"');
        }
        Value::Enum(value) => enumeration(out, &value),
        Value::Bool(truth) => out.push_bytes(if truth { b"true" } else { b"false" }),
        Value::Bits(bits) => bit_map(out, &bits),
        Value::Blob(bytes) => byte_array(out, bytes),
        Value::Compound(_) => out.fixed(b"null"),
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
        let number = level.count;
        level.count += 1;
        let name = (level.shape == Shape::Structure).then(|| field.name());
        label(self.out, number, name);
    }
}

impl<'a> Visitor<'a> for Fields<'_> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if self.bare && self.levels.len() == 1 && field.is_structural() {
            return;
        }
        self.label(&field);
        scalar(self.out, value);
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
    out.fixed(b"{\"value\":");
    if value.signed {
        signed_decimal(out, value.raw.cast_signed());
    } else {
        decimal(out, value.raw);
    }
    out.fixed(b",\"labels\":");
    strings(out, value.labels());
    out.push(b'}');
}

/// Without flags, bits are a number.
fn bit_map(out: &mut Output, bits: &BitsValue<'_>) {
    if bits.flags.is_none() {
        return decimal(out, bits.raw());
    }
    out.fixed(b"{\"value\":");
    decimal(out, bits.raw());
    out.fixed(b",\"flags\":");
    strings(out, bits.flags());
    out.push(b'}');
}

fn strings<'a>(out: &mut Output, texts: impl Iterator<Item = &'a str>) {
    out.push(b'[');
    for (at, text) in texts.enumerate() {
        out.push_bytes(if at > 0 { b"," } else { b"" });
        string(out, text.as_bytes());
    }
    out.push(b']');
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
    utf8(out, text);
    out.push(b'"');
}

/// As [`string`], without the quotes.
fn utf8(out: &mut Output, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        escaped::<quote::Json>(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.push_bytes("\u{FFFD}".as_bytes());
        }
    }
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
