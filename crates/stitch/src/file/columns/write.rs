//! From a value to its columns.

use std::collections::HashMap;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::{ColumnError, zigzag};

type Outcome = Result<(), ColumnError>;

pub(super) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, ColumnError> {
    let (mut root, mut texts) = (Place::default(), Texts::default());
    value.serialize(At { place: &mut root, texts: &mut texts })?;
    let mut bytes = Vec::new();
    put(&mut bytes, texts.count);
    bytes.append(&mut texts.bytes);
    root.write(&mut bytes);
    Ok(bytes)
}

/// A place of a type: its own numbers, and the places below it.
#[derive(Default)]
struct Place {
    numbers: Vec<u64>,
    below: Vec<Place>,
}

/// Texts in the order in which they came first.
#[derive(Default)]
struct Texts {
    known: HashMap<String, u64>,
    count: u64,
    bytes: Vec<u8>,
}

impl Place {
    fn below(&mut self, at: usize) -> &mut Self {
        if self.below.len() <= at {
            self.below.resize_with(at + 1, Self::default);
        }
        match self.below.get_mut(at) {
            Some(place) => place,
            None => unreachable!("place {at} was made above"),
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.numbers.len() as u64);
        if !self.numbers.is_empty() {
            let (plain, distances) =
                (encoded(self.numbers.iter().copied()), encoded(self.distances()));
            let is_shorter = distances.len() < plain.len();
            put(bytes, is_shorter.into());
            bytes.extend(if is_shorter { distances } else { plain });
        }
        put(bytes, self.below.len() as u64);
        self.below.iter().for_each(|place| place.write(bytes));
    }

    fn distances(&self) -> impl Iterator<Item = u64> {
        let mut before = 0_u64;
        self.numbers.iter().map(move |number| {
            let distance = number.wrapping_sub(before).cast_signed();
            before = *number;
            zigzag(distance)
        })
    }
}

fn encoded(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbers.for_each(|number| put(&mut bytes, number));
    bytes
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.count;
        self.count += 1;
        self.known.insert(text.to_owned(), number);
        put(&mut self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
        number
    }
}

/// Writes a value at a place.
struct At<'w> {
    place: &'w mut Place,
    texts: &'w mut Texts,
}

/// Writes parts of a value at the places below.
struct Parts<'w> {
    place: &'w mut Place,
    texts: &'w mut Texts,
    next: usize,
}

impl<'w> At<'w> {
    fn put(self, number: u64) -> Outcome {
        self.place.numbers.push(number);
        Ok(())
    }

    fn below(self, at: usize) -> At<'w> {
        At { place: self.place.below(at), texts: self.texts }
    }

    fn parts(self) -> Parts<'w> {
        Parts { place: self.place, texts: self.texts, next: 0 }
    }

    /// The place of a variant.
    fn variant(self, index: u32) -> At<'w> {
        self.place.numbers.push(index.into());
        self.below(index as usize)
    }

    fn length(&mut self, length: Option<usize>) -> Outcome {
        let Some(length) = length else { return none("a sequence of unknown length") };
        self.place.numbers.push(length as u64);
        Ok(())
    }
}

fn none<T>(what: &str) -> Result<T, ColumnError> {
    Err(ColumnError::Value(format!("{what} has no columns")))
}

impl Parts<'_> {
    fn part<T: Serialize + ?Sized>(&mut self, at: usize, value: &T) -> Outcome {
        value.serialize(At { place: self.place.below(at), texts: self.texts })
    }

    fn next<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        let at = self.next;
        self.next += 1;
        self.part(at, value)
    }
}

macro_rules! numbers {
    ($($name:ident($type:ty) as $number:ident => $made:expr;)*) => {
        $(fn $name(self, $number: $type) -> Outcome {
            self.put($made)
        })*
    };
}

impl<'w> Serializer for At<'w> {
    type Ok = ();
    type Error = ColumnError;
    type SerializeSeq = Parts<'w>;
    type SerializeTuple = Parts<'w>;
    type SerializeTupleStruct = Parts<'w>;
    type SerializeTupleVariant = Parts<'w>;
    type SerializeMap = Parts<'w>;
    type SerializeStruct = Parts<'w>;
    type SerializeStructVariant = Parts<'w>;

    numbers! {
        serialize_bool(bool) as it => it.into();
        serialize_u8(u8) as it => it.into();
        serialize_u16(u16) as it => it.into();
        serialize_u32(u32) as it => it.into();
        serialize_u64(u64) as it => it;
        serialize_i8(i8) as it => zigzag(it.into());
        serialize_i16(i16) as it => zigzag(it.into());
        serialize_i32(i32) as it => zigzag(it.into());
        serialize_i64(i64) as it => zigzag(it);
        serialize_char(char) as it => u32::from(it).into();
    }

    fn serialize_u128(self, number: u128) -> Outcome {
        let (low, high) = (number & u128::from(u64::MAX), number >> 64);
        for (at, half) in [low, high].into_iter().enumerate() {
            let half = u64::try_from(half).or(none("more than 128 bits"))?;
            self.place.below(at).numbers.push(half);
        }
        Ok(())
    }

    fn serialize_f32(self, _: f32) -> Outcome {
        none("a fraction")
    }

    fn serialize_f64(self, _: f64) -> Outcome {
        none("a fraction")
    }

    fn serialize_str(self, text: &str) -> Outcome {
        let number = self.texts.number(text);
        self.put(number)
    }

    fn serialize_bytes(self, _: &[u8]) -> Outcome {
        none("a piece of memory")
    }

    fn serialize_none(self) -> Outcome {
        self.put(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        self.place.numbers.push(1);
        value.serialize(self.below(0))
    }

    fn serialize_unit(self) -> Outcome {
        none("nothing")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Outcome {
        none("nothing")
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Outcome {
        self.put(index.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Outcome {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Outcome {
        value.serialize(self.variant(index))
    }

    fn serialize_seq(mut self, length: Option<usize>) -> Result<Parts<'w>, ColumnError> {
        self.length(length)?;
        Ok(self.parts())
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'w>, ColumnError> {
        Ok(self.parts())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'w>, ColumnError> {
        Ok(self.parts())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts<'w>, ColumnError> {
        Ok(self.variant(index).parts())
    }

    fn serialize_map(mut self, length: Option<usize>) -> Result<Parts<'w>, ColumnError> {
        self.length(length)?;
        Ok(self.parts())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'w>, ColumnError> {
        Ok(self.parts())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts<'w>, ColumnError> {
        Ok(self.variant(index).parts())
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl SerializeSeq for Parts<'_> {
    type Ok = ();
    type Error = ColumnError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        self.part(0, value)
    }

    fn end(self) -> Outcome {
        Ok(())
    }
}

impl SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = ColumnError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Outcome {
        self.part(0, key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        self.part(1, value)
    }

    fn end(self) -> Outcome {
        Ok(())
    }
}

macro_rules! parts {
    ($($trait:ident $method:ident($($key:ident)?);)*) => {
        $(impl $trait for Parts<'_> {
            type Ok = ();
            type Error = ColumnError;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Outcome {
                self.next(value)
            }

            fn end(self) -> Outcome {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeTuple serialize_element();
    SerializeTupleStruct serialize_field();
    SerializeTupleVariant serialize_field();
    SerializeStruct serialize_field(_key);
    SerializeStructVariant serialize_field(_key);
}
