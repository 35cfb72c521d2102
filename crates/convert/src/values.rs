//! From the values of an event record that is read to those that are written, in one walk.

use ctf::writer::{Record, WriteError};
use ctf::{CtfVersion, Field, Shape, Value, Visitor};

use crate::classes::Extra;

/// Gives every value of a scope to a record.
pub(crate) struct Feeder<'f, 'r> {
    pub(crate) record: &'f mut Record<'r>,
    pub(crate) version: CtfVersion,
    /// Of the scope, by position.
    pub(crate) extras: &'f [Extra],
    /// Whether it is the packet context, whose own members the writer writes itself.
    pub(crate) is_packet: bool,
    /// The first refusal; what follows it is not given.
    pub(crate) result: Result<(), WriteError>,
}

impl Feeder<'_, '_> {
    /// What comes before a field and is not in the source.
    fn before(&mut self, field: Field<'_>, length: u64) -> Result<(), WriteError> {
        let position = usize::try_from(field.position()).unwrap_or(usize::MAX);
        match self.extras.get(position).copied().unwrap_or_default() {
            Extra::Nothing => Ok(()),
            Extra::Length | Extra::Presence => self.record.unsigned(length),
            Extra::Option(number) => self.record.unsigned(number),
            Extra::OptionAndLength(number) => {
                self.record.unsigned(number)?;
                self.record.unsigned(length)
            }
        }
    }

    fn value(&mut self, field: Field<'_>, value: Value<'_>) -> Result<(), WriteError> {
        let length = value.as_bytes().map_or(0, <[u8]>::len);
        self.before(field, u64::try_from(length).unwrap_or(u64::MAX))?;
        let is_old = self.version == CtfVersion::V1_8;
        match value {
            Value::Unsigned(number) => self.record.unsigned(number),
            Value::Signed(number) => self.record.signed(number),
            Value::Enum(number) if number.is_signed() => {
                self.record.signed(value.as_i64().unwrap_or_default())
            }
            Value::Enum(_) => self.record.unsigned(value.as_u64().unwrap_or_default()),
            Value::Bool(truth) if is_old => self.record.unsigned(truth.into()),
            Value::Bool(truth) => self.record.boolean(truth),
            Value::Bits(bits) => self.record.unsigned(bits.raw()),
            Value::Float(number) => self.record.float(number),
            Value::Str(text) => self.record.string(text),
            Value::WideStr(text) if is_old => {
                self.record.string(text.chars().collect::<String>().as_bytes())
            }
            Value::WideStr(text) => self.record.string(text.bytes()),
            Value::Blob(bytes) => self.record.bytes(bytes),
            // Compounds are entered, and other kinds there are none.
            _ => Ok(()),
        }
    }
}

impl<'a> Visitor<'a> for Feeder<'_, '_> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if self.result.is_ok() && !(self.is_packet && field.is_structural()) {
            self.result = self.value(field, value);
        }
    }

    fn enter(&mut self, field: Field<'a>, shape: Shape) {
        if self.result.is_ok() {
            let length = match shape {
                Shape::Array { length } => length,
                Shape::Optional { present } => present.into(),
                Shape::Structure | Shape::Variant => 0,
            };
            self.result = self.before(field, length);
        }
    }

    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}
