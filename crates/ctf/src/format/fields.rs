//! Values of fields as text, and a visitor that writes those of a whole scope.

use super::number::{binary, decimal, general, hex_byte, hexadecimal, octal, signed_decimal};
use super::options::{Palette, TextOptions};
use super::output::Output;
use super::quote::{self, escaped_chars, quoted};
use crate::class::Base;
use crate::value::{BitsValue, EnumValue, Field, Shape, Value, Visitor};

/// How values look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) palette: Palette,
    pub(crate) enum_flags: bool,
}

impl Style {
    pub(crate) const fn new(options: &TextOptions) -> Self {
        Self { palette: options.color.palette(), enum_flags: options.enum_flags }
    }

    /// Something in the colour of values.
    fn value(&self, out: &mut Output, write: impl FnOnce(&mut Output)) {
        out.push_bytes(self.palette.value.as_bytes());
        write(out);
        out.push_bytes(self.palette.reset.as_bytes());
    }

    /// Text in quotes.
    pub(crate) fn text(&self, out: &mut Output, text: &[u8]) {
        self.value(out, |out| quoted::<quote::C>(out, text));
    }

    /// `name = ` in the colour of scopes.
    pub(crate) fn name(&self, out: &mut Output, name: &str) {
        for piece in [self.palette.name, name, self.palette.reset, " = "] {
            out.push_bytes(piece.as_bytes());
        }
    }

    /// `name = ` in the colour of fields.
    pub(crate) fn field_name(&self, out: &mut Output, name: &str) {
        for piece in [self.palette.field_name, name, self.palette.reset, " = "] {
            out.push_bytes(piece.as_bytes());
        }
    }

    /// The separator and, with names, what is before the `number`th member of a structure or, without a name, element
    /// of an array.
    pub(crate) fn label(&self, out: &mut Output, names: bool, number: u64, name: Option<&str>) {
        out.push_bytes(if number == 0 { b" " } else { b", " });
        match name {
            _ if !names => {}
            Some(name) => self.field_name(out, name),
            None => {
                out.push(b'[');
                decimal(out, number);
                out.fixed(b"] = ");
            }
        }
    }

    /// Any value but a compound's.
    pub(crate) fn scalar(&self, out: &mut Output, field: &Field<'_>, value: Value<'_>) {
        match value {
            Value::Unsigned(number) => self.value(out, |out| integer(out, field, number, false)),
            Value::Signed(number) => {
                self.value(out, |out| integer(out, field, number.cast_unsigned(), true));
            }
            Value::Float(number) => self.value(out, |out| general(out, number)),
            Value::Str(text) => self.text(out, text),
            Value::WideStr(text) => self.value(out, |out| {
                out.push(b'"');
                escaped_chars::<quote::C>(out, text.chars());
                out.push(b'"');
            }),
            Value::Enum(value) => self.enumeration(out, field, &value),
            Value::Bool(truth) => {
                self.value(out, |out| out.push_bytes(if truth { b"true" } else { b"false" }));
            }
            Value::Bits(bits) => self.bits(out, &bits),
            Value::Blob(bytes) => blob(out, bytes),
            Value::Compound(_) => {}
        }
    }

    /// `0x5 { "one", "other" }`: the bits and the names of those that are set.
    fn bits(&self, out: &mut Output, bits: &BitsValue<'_>) {
        self.value(out, |out| {
            out.fixed(b"0x");
            hexadecimal(out, bits.raw());
        });
        for (at, name) in bits.flags().enumerate() {
            out.push_bytes(if at == 0 { b" { " } else { b", " });
            self.text(out, name.as_bytes());
        }
        if bits.flags().next().is_some() {
            out.fixed(b" }");
        }
    }

    /// `( "LABEL" : container = 3 )`.
    pub(crate) fn enumeration(&self, out: &mut Output, field: &Field<'_>, value: &EnumValue<'_>) {
        out.fixed(b"( ");
        let begin = out.len();
        self.labels(out, value.labels());
        if out.len() == begin && !(self.enum_flags && self.flags(out, value)) {
            out.truncate(begin);
            for piece in [self.palette.unknown, "<unknown>", self.palette.reset] {
                out.push_bytes(piece.as_bytes());
            }
        }
        out.fixed(b" : container = ");
        self.value(out, |out| integer(out, field, value.raw, value.signed));
        out.fixed(b" )");
    }

    /// One label, or several in braces.
    fn labels<'a>(&self, out: &mut Output, mut labels: impl Iterator<Item = &'a str>) {
        let Some(first) = labels.next() else { return };
        let Some(second) = labels.next() else { return self.text(out, first.as_bytes()) };
        out.fixed(b"{ ");
        self.text(out, first.as_bytes());
        for label in std::iter::once(second).chain(labels) {
            out.fixed(b", ");
            self.text(out, label.as_bytes());
        }
        out.fixed(b" }");
    }

    /// The labels of each set bit, when each has one of its own; else what was written is of no use.
    fn flags(&self, out: &mut Output, value: &EnumValue<'_>) -> bool {
        let set = (0..u64::BITS).map(|bit| 1_u64 << bit).filter(|bit| value.raw & bit != 0);
        let negative = value.signed && value.raw.cast_signed() < 0;
        for (at, bit) in set.enumerate() {
            if at > 0 {
                out.fixed(b" | ");
            }
            let begin = out.len();
            self.labels(out, labels_of_bit(value, bit));
            if out.len() == begin {
                return false;
            }
        }
        value.raw != 0 && !negative
    }
}

/// The labels of which this very bit is all.
fn labels_of_bit<'a>(value: &EnumValue<'a>, bit: u64) -> impl Iterator<Item = &'a str> + use<'a> {
    let bit = i128::from(bit);
    let of_bit = value.mappings.entries.iter().filter(move |e| e.first == bit && e.last == bit);
    of_bit.map(|entry| &*entry.label)
}

/// An integer by its base; `raw` is sign-extended when `signed`.
fn integer(out: &mut Output, field: &Field<'_>, raw: u64, signed: bool) {
    let bits = u32::from(field.bits()).clamp(1, 64);
    number(out, raw, bits, field.base(), signed);
}

/// As [`integer`], of a field of so many bits, 1 to 64.
pub(crate) fn number(out: &mut Output, raw: u64, bits: u32, base: Base, signed: bool) {
    let low = |bits: u32| raw & (u64::MAX >> (64 - bits.clamp(1, 64)));
    match base {
        Base::Decimal if signed => signed_decimal(out, raw.cast_signed()),
        Base::Decimal => decimal(out, raw),
        Base::Hexadecimal => {
            out.fixed(b"0x");
            hexadecimal(out, low(bits.next_multiple_of(4)));
        }
        Base::Octal => {
            out.push(b'0');
            octal(out, low(bits.next_multiple_of(3)));
        }
        Base::Binary => {
            out.fixed(b"0b");
            binary(out, low(bits), bits);
        }
    }
}

fn blob(out: &mut Output, bytes: &[u8]) {
    out.fixed(b"{ ");
    for byte in bytes {
        hex_byte(out, *byte, b'a');
        out.push(b' ');
    }
    out.push(b'}');
}

/// A compound that is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    shape: Shape,
    /// Members or elements written.
    count: u64,
}

/// Which members of a scope's root are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    Nothing,
    /// Those that the packet reader itself uses.
    Structural,
}

/// Writes the fields of one scope as they are shown to it.
#[derive(Debug)]
pub struct Fields<'o> {
    pub(crate) out: &'o mut Output,
    pub(crate) levels: &'o mut Vec<Level>,
    pub(crate) style: &'o Style,
    /// Whether names and element numbers are shown.
    pub(crate) names: bool,
    pub(crate) hidden: Hidden,
}

impl Fields<'_> {
    /// For one value whose label stands already.
    pub(crate) fn unlabelled(self) -> Self {
        self.levels.clear();
        self.levels.push(Level { shape: Shape::Variant, count: 0 });
        self
    }

    /// The root structure of a scope, whose members `visit` shows.
    pub(crate) fn structure(mut self, visit: impl FnOnce(&mut Self)) {
        self.levels.clear();
        self.levels.push(Level { shape: Shape::Structure, count: 0 });
        self.out.push(b'{');
        visit(&mut self);
        self.out.fixed(b" }");
    }

    fn is_hidden(&self, field: &Field<'_>) -> bool {
        self.hidden == Hidden::Structural && self.levels.len() == 1 && field.is_structural()
    }

    /// The separator and the name or number before a member.
    fn label(&mut self, field: &Field<'_>) {
        let Some(level) = self.levels.last_mut() else { return };
        if matches!(level.shape, Shape::Variant | Shape::Optional { .. }) {
            return;
        }
        let number = level.count;
        level.count += 1;
        let name = (level.shape == Shape::Structure).then(|| field.name());
        self.style.label(self.out, self.names, number, name);
    }
}

impl<'a> Visitor<'a> for Fields<'_> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if self.is_hidden(&field) {
            return;
        }
        self.label(&field);
        self.style.scalar(self.out, &field, value);
    }

    fn enter(&mut self, field: Field<'a>, shape: Shape) {
        self.label(&field);
        self.out.push_bytes(match shape {
            Shape::Structure => b"{",
            Shape::Array { .. } => b"[",
            Shape::Variant | Shape::Optional { present: true } => b"{ ",
            Shape::Optional { present: false } => b"<none>",
        });
        self.levels.push(Level { shape, count: 0 });
    }

    fn leave(&mut self, _: Field<'a>, shape: Shape) {
        self.levels.pop();
        self.out.push_bytes(match shape {
            Shape::Array { .. } => b" ]",
            Shape::Optional { present: false } => b"",
            _ => b" }",
        });
    }
}
