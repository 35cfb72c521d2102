//! The parts of protobuf's JSON mapping that serde does not have: 64-bit integers as strings, bytes as base64, enums by name.
//!
//! Reading is wider than writing: integers may be numbers, enums too, base64 may be of either alphabet and without padding, and
//! fields may go by their names in the protocol.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::{STANDARD as PLUS_AND_SLASH, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Whether a field is left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a message is read from: names of fields as JSON has them, and no nulls, which say "not set".
pub(super) fn normal(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (json_name(&name), normal(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(normal).collect(),
        other => other,
    }
}

/// `profile_typeID` is `profileTypeID`; names without underscores stay.
fn json_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for letter in name.chars() {
        if letter == '_' {
            upper = true;
        } else {
            out.push(if upper { letter.to_ascii_uppercase() } else { letter });
            upper = false;
        }
    }
    out
}

/// A value with a form of its own in JSON. `#[serde(with = "json")]` uses it.
pub(super) trait Form: Sized {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error>;
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

pub(super) fn serialize<T: Form, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
    value.write(out)
}

pub(super) fn deserialize<'de, T: Form, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::read(from)
}

impl Form for i64 {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Number::<Self>::deserialize(from)?.0)
    }
}

impl Form for u64 {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Number::<Self>::deserialize(from)?.0)
    }
}

impl Form for Option<i64> {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.write(out),
            None => out.serialize_none(),
        }
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        i64::read(from).map(Some)
    }
}

impl<N: Display + FromJson> Form for Vec<N> {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.iter().map(Text))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Number<N>>::deserialize(from)?.into_iter().map(|number| number.0).collect())
    }
}

impl Form for f64 {
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        if self.is_nan() {
            out.serialize_str("NaN")
        } else if self.is_infinite() {
            out.serialize_str(if *self > 0.0 { "Infinity" } else { "-Infinity" })
        } else {
            out.serialize_f64(*self)
        }
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Number::<Self>::deserialize(from)?.0)
    }
}

struct Text<'a, N>(&'a N);

impl<N: Display> Serialize for Text<'_, N> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self.0)
    }
}

/// A number that stands as one or as a string.
pub(super) struct Number<N>(N);

/// What of JSON's numbers fits.
trait FromJson: FromStr {
    fn of_unsigned(value: u64) -> Option<Self>;
    fn of_signed(value: i64) -> Option<Self>;
    fn of_float(value: f64) -> Option<Self>;
}

/// The integer that a float is, which is exact up to 2⁵³.
#[expect(clippy::cast_possible_truncation, reason = "whole and small, as was looked")]
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

impl FromJson for i64 {
    fn of_unsigned(value: u64) -> Option<Self> {
        value.try_into().ok()
    }
    fn of_signed(value: i64) -> Option<Self> {
        Some(value)
    }
    fn of_float(value: f64) -> Option<Self> {
        whole(value)
    }
}

impl FromJson for u64 {
    fn of_unsigned(value: u64) -> Option<Self> {
        Some(value)
    }
    fn of_signed(value: i64) -> Option<Self> {
        value.try_into().ok()
    }
    fn of_float(value: f64) -> Option<Self> {
        whole(value)?.try_into().ok()
    }
}

impl FromJson for f64 {
    #[expect(clippy::cast_precision_loss, reason = "JSON's numbers are floats")]
    fn of_unsigned(value: u64) -> Option<Self> {
        Some(value as Self)
    }
    #[expect(clippy::cast_precision_loss, reason = "JSON's numbers are floats")]
    fn of_signed(value: i64) -> Option<Self> {
        Some(value as Self)
    }
    fn of_float(value: f64) -> Option<Self> {
        Some(value)
    }
}

impl<'de, N: FromJson> Deserialize<'de> for Number<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either<N>(PhantomData<N>);

        impl<N: FromJson> Visitor<'_> for Either<N> {
            type Value = N;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number in its range, or a string of one")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<N, E> {
                N::of_unsigned(value)
                    .ok_or_else(|| E::custom(format_args!("{value} is out of range")))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<N, E> {
                N::of_signed(value)
                    .ok_or_else(|| E::custom(format_args!("{value} is out of range")))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<N, E> {
                N::of_float(value)
                    .ok_or_else(|| E::custom(format_args!("{value} is no whole number")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<N, E> {
                let number = text.parse().ok();
                number.ok_or_else(|| E::custom(format_args!("{text:?} is no number in its range")))
            }
        }

        from.deserialize_any(Either(PhantomData)).map(Self)
    }
}

/// Bytes as base64.
pub(super) mod base64_bytes {
    use super::*;

    /// Padding may be left out.
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const EITHER: [GeneralPurpose; 2] =
        [GeneralPurpose::new(&PLUS_AND_SLASH, LENIENT), GeneralPurpose::new(&URL_SAFE, LENIENT)];

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(&STANDARD.encode(bytes))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let [plus, dash] = &EITHER;
        let alphabet = if text.contains(['-', '_']) { dash } else { plus };
        alphabet.decode(text).map_err(D::Error::custom)
    }
}

/// Names of an enum's values.
pub(super) trait Names {
    const NAMES: &'static [(&'static str, i32)];
}

/// An enum's number by its name. Numbers without one stay numbers.
pub(super) struct Name<E>(PhantomData<E>);

impl<E: Names> Name<E> {
    pub(super) fn serialize<S: Serializer>(value: &i32, out: S) -> Result<S::Ok, S::Error> {
        match E::NAMES.iter().find(|(_, number)| number == value) {
            Some((name, _)) => out.serialize_str(name),
            None => out.serialize_i32(*value),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
        let value = Value::deserialize(from)?;
        let number = match &value {
            Value::String(text) => {
                E::NAMES.iter().find(|(name, _)| name == text).map(|(_, number)| *number)
            }
            Value::Number(number) => number.as_i64().and_then(|number| number.try_into().ok()),
            _ => None,
        };
        number.ok_or_else(|| {
            let names: Vec<&str> = E::NAMES.iter().map(|(name, _)| *name).collect();
            D::Error::custom(format_args!("{value} is none of {}", names.join(", ")))
        })
    }
}

/// The same for a field that may be absent.
pub(super) struct OptionalName<E>(PhantomData<E>);

impl<E: Names> OptionalName<E> {
    pub(super) fn serialize<S: Serializer>(value: &Option<i32>, out: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => Name::<E>::serialize(value, out),
            None => out.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
        Name::<E>::deserialize(from).map(Some)
    }
}

/// Doubles, each a number.
pub(super) mod doubles {
    use super::*;

    struct Double(f64);

    impl Serialize for Double {
        fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
            self.0.write(out)
        }
    }

    pub(in super::super) fn serialize<S: Serializer>(
        values: &[f64],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(values.iter().map(|value| Double(*value)))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<f64>, D::Error> {
        Ok(Vec::<Number<f64>>::deserialize(from)?.into_iter().map(|number| number.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::json_name;

    #[test]
    fn names_lose_their_underscores() {
        let names = ["profile_typeID", "label_selector", "ID", "leftTicks", "max_self"];
        let expected = ["profileTypeID", "labelSelector", "ID", "leftTicks", "maxSelf"];
        assert_eq!(names.map(json_name), expected);
    }
}
