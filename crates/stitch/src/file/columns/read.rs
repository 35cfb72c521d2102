//! From columns back to the value.

use serde::de::{
    DeserializeOwned, DeserializeSeed, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};

use super::{ColumnError, MAX_DEPTH, unzigzag};

pub(super) fn from_bytes<T: DeserializeOwned>(
    bytes: &[u8],
    max_text: usize,
) -> Result<T, ColumnError> {
    let mut rest = bytes;
    let mut texts = Texts { all: Vec::new(), max: max_text, left: max_text };
    for _ in 0..number(&mut rest)? {
        texts.all.push(text(&mut rest)?);
    }
    let mut root = Place::read(&mut rest, 0)?;
    if !rest.is_empty() {
        return Err(ColumnError::More(rest.len()));
    }
    let value = T::deserialize(At { place: &mut root, texts: &mut texts })?;
    root.is_used_up().then_some(value).ok_or(ColumnError::Rows)
}

/// The column of a place, as far as it was not given yet, and the places below it.
struct Place<'b> {
    count: u64,
    are_distances: bool,
    before: u64,
    bytes: &'b [u8],
    below: Vec<Place<'b>>,
}

struct Texts<'b> {
    all: Vec<&'b str>,
    max: usize,
    /// Bytes that may still be given.
    left: usize,
}

fn number(bytes: &mut &[u8]) -> Result<u64, ColumnError> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(ColumnError::End)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(ColumnError::Range(bits));
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ColumnError::Range(number))
}

fn text<'b>(bytes: &mut &'b [u8]) -> Result<&'b str, ColumnError> {
    let length = number(bytes)?;
    let length = usize::try_from(length).or(Err(ColumnError::Range(length)))?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(ColumnError::End)?;
    *bytes = rest;
    std::str::from_utf8(text).or(Err(ColumnError::Text))
}

impl<'b> Place<'b> {
    fn read(bytes: &mut &'b [u8], depth: usize) -> Result<Self, ColumnError> {
        if depth > MAX_DEPTH {
            return Err(ColumnError::Range(depth as u64));
        }
        let count = number(bytes)?;
        let mut are_distances = false;
        let numbers = if count > 0 {
            are_distances = match number(bytes)? {
                0 => false,
                1 => true,
                other => return Err(ColumnError::Range(other)),
            };
            skip(bytes, count)?
        } else {
            &[]
        };
        let mut below = Vec::new();
        for _ in 0..number(bytes)? {
            below.push(Self::read(bytes, depth + 1)?);
        }
        Ok(Self { count, are_distances, before: 0, bytes: numbers, below })
    }

    fn next(&mut self) -> Result<u64, ColumnError> {
        self.count = self.count.checked_sub(1).ok_or(ColumnError::Rows)?;
        let number = number(&mut self.bytes)?;
        if !self.are_distances {
            return Ok(number);
        }
        self.before = self.before.wrapping_add(unzigzag(number).cast_unsigned());
        Ok(self.before)
    }

    fn below(&mut self, at: usize) -> Result<&mut Self, ColumnError> {
        self.below.get_mut(at).ok_or(ColumnError::Rows)
    }

    fn is_used_up(&self) -> bool {
        self.count == 0 && self.below.iter().all(Self::is_used_up)
    }
}

/// The bytes of so many numbers.
fn skip<'b>(bytes: &mut &'b [u8], count: u64) -> Result<&'b [u8], ColumnError> {
    let mut left = count;
    let mut end = 0;
    let mut rest = bytes.iter();
    while left > 0 {
        let byte = rest.next().ok_or(ColumnError::End)?;
        end += 1;
        left -= u64::from(byte & 0x80 == 0);
    }
    let (numbers, rest) = bytes.split_at(end);
    *bytes = rest;
    Ok(numbers)
}

/// Reads the next value of a place.
struct At<'r, 'b> {
    place: &'r mut Place<'b>,
    texts: &'r mut Texts<'b>,
}

impl<'r, 'b> At<'r, 'b> {
    fn below(self, at: usize) -> Result<Self, ColumnError> {
        Ok(Self { place: self.place.below(at)?, texts: self.texts })
    }

    fn unsigned<T: TryFrom<u64>>(&mut self) -> Result<T, ColumnError> {
        let number = self.place.next()?;
        T::try_from(number).or(Err(ColumnError::Range(number)))
    }

    fn signed<T: TryFrom<i64>>(&mut self) -> Result<T, ColumnError> {
        let number = self.place.next()?;
        T::try_from(unzigzag(number)).or(Err(ColumnError::Range(number)))
    }

    fn text(self) -> Result<&'b str, ColumnError> {
        let number = self.place.next()?;
        let place = usize::try_from(number).or(Err(ColumnError::Range(number)))?;
        let text = self.texts.all.get(place).copied().ok_or(ColumnError::Range(number))?;
        let left = self.texts.left.checked_sub(text.len());
        self.texts.left = left.ok_or(ColumnError::TooMuch(self.texts.max))?;
        Ok(text)
    }

    fn parts(self, left: usize) -> Parts<'r, 'b> {
        Parts { place: self.place, texts: self.texts, next: 0, left }
    }
}

/// Reads parts of a value from the places below: each from the next one, or all elements from one.
struct Parts<'r, 'b> {
    place: &'r mut Place<'b>,
    texts: &'r mut Texts<'b>,
    next: usize,
    left: usize,
}

struct Elements<'r, 'b>(Parts<'r, 'b>);

impl<'b> Parts<'_, 'b> {
    fn part(&mut self, at: usize) -> Result<At<'_, 'b>, ColumnError> {
        Ok(At { place: self.place.below(at)?, texts: self.texts })
    }
}

macro_rules! numbers {
    ($($deserialize:ident $read:ident $visit:ident;)*) => {
        $(fn $deserialize<V: Visitor<'b>>(mut self, visitor: V) -> Result<V::Value, ColumnError> {
            visitor.$visit(self.$read()?)
        })*
    };
}

impl<'b> Deserializer<'b> for At<'_, 'b> {
    type Error = ColumnError;

    numbers! {
        deserialize_u8 unsigned visit_u8;
        deserialize_u16 unsigned visit_u16;
        deserialize_u32 unsigned visit_u32;
        deserialize_u64 unsigned visit_u64;
        deserialize_i8 signed visit_i8;
        deserialize_i16 signed visit_i16;
        deserialize_i32 signed visit_i32;
        deserialize_i64 signed visit_i64;
    }

    fn deserialize_any<V: Visitor<'b>>(self, _: V) -> Result<V::Value, ColumnError> {
        Err(ColumnError::custom("a column does not say of what type it is"))
    }

    fn deserialize_bool<V: Visitor<'b>>(self, visitor: V) -> Result<V::Value, ColumnError> {
        match self.place.next()? {
            0 => visitor.visit_bool(false),
            1 => visitor.visit_bool(true),
            other => Err(ColumnError::Range(other)),
        }
    }

    fn deserialize_u128<V: Visitor<'b>>(self, visitor: V) -> Result<V::Value, ColumnError> {
        let low = self.place.below(0)?.next()?;
        let high = self.place.below(1)?.next()?;
        visitor.visit_u128(u128::from(high) << 64 | u128::from(low))
    }

    fn deserialize_char<V: Visitor<'b>>(mut self, visitor: V) -> Result<V::Value, ColumnError> {
        let number: u32 = self.unsigned()?;
        visitor.visit_char(char::from_u32(number).ok_or(ColumnError::Range(number.into()))?)
    }

    fn deserialize_str<V: Visitor<'b>>(self, visitor: V) -> Result<V::Value, ColumnError> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'b>>(self, visitor: V) -> Result<V::Value, ColumnError> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_option<V: Visitor<'b>>(self, visitor: V) -> Result<V::Value, ColumnError> {
        match self.place.next()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self.below(0)?),
            other => Err(ColumnError::Range(other)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'b>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'b>>(mut self, visitor: V) -> Result<V::Value, ColumnError> {
        let length = self.unsigned()?;
        visitor.visit_seq(Elements(self.parts(length)))
    }

    fn deserialize_tuple<V: Visitor<'b>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_seq(self.parts(length))
    }

    fn deserialize_tuple_struct<V: Visitor<'b>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_seq(self.parts(length))
    }

    fn deserialize_map<V: Visitor<'b>>(mut self, visitor: V) -> Result<V::Value, ColumnError> {
        let length = self.unsigned()?;
        visitor.visit_map(Elements(self.parts(length)))
    }

    fn deserialize_struct<V: Visitor<'b>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_seq(self.parts(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'b>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        <V: Visitor<'b>>
        i128 f32 f64 bytes byte_buf unit unit_struct identifier ignored_any
    }
}

impl<'b> SeqAccess<'b> for Parts<'_, 'b> {
    type Error = ColumnError;

    fn next_element_seed<T: DeserializeSeed<'b>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ColumnError> {
        if self.left == 0 {
            return Ok(None);
        }
        let at = self.next;
        (self.next, self.left) = (self.next + 1, self.left - 1);
        seed.deserialize(self.part(at)?).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'b> SeqAccess<'b> for Elements<'_, 'b> {
    type Error = ColumnError;

    fn next_element_seed<T: DeserializeSeed<'b>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ColumnError> {
        if self.0.left == 0 {
            return Ok(None);
        }
        self.0.left -= 1;
        seed.deserialize(self.0.part(0)?).map(Some)
    }
}

impl<'b> MapAccess<'b> for Elements<'_, 'b> {
    type Error = ColumnError;

    fn next_key_seed<K: DeserializeSeed<'b>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ColumnError> {
        if self.0.left == 0 {
            return Ok(None);
        }
        self.0.left -= 1;
        seed.deserialize(self.0.part(0)?).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'b>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, ColumnError> {
        seed.deserialize(self.0.part(1)?)
    }
}

impl<'r, 'b> EnumAccess<'b> for At<'r, 'b> {
    type Error = ColumnError;
    type Variant = Variant<'r, 'b>;

    fn variant_seed<V: DeserializeSeed<'b>>(
        mut self,
        seed: V,
    ) -> Result<(V::Value, Variant<'r, 'b>), ColumnError> {
        let index: u32 = self.unsigned()?;
        let value = seed.deserialize(IntoDeserializer::<ColumnError>::into_deserializer(index))?;
        Ok((value, Variant { at: self, index: index as usize }))
    }
}

/// The payload of a variant.
struct Variant<'r, 'b> {
    at: At<'r, 'b>,
    index: usize,
}

impl<'b> VariantAccess<'b> for Variant<'_, 'b> {
    type Error = ColumnError;

    fn unit_variant(self) -> Result<(), ColumnError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'b>>(
        self,
        seed: T,
    ) -> Result<T::Value, ColumnError> {
        seed.deserialize(self.at.below(self.index)?)
    }

    fn tuple_variant<V: Visitor<'b>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_seq(self.at.below(self.index)?.parts(length))
    }

    fn struct_variant<V: Visitor<'b>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ColumnError> {
        visitor.visit_seq(self.at.below(self.index)?.parts(fields.len()))
    }
}
