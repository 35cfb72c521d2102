//! From bytes that anyone may have sent to tables, with a bound on all that they may take.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::packet::PacketId;
use crate::request::{
    Attribute, AttributeValue, Dictionary, Function, Line, LinkEntry, Location, Mapping, Profile,
    Request, ResourceProfiles, Sample, ValueType,
};
use wire::proto::{DecodeError, Reader, Value as Field, Wrong, signed};

/// What a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, before compression.
    pub bytes: usize,
    /// Messages: entries of all tables, resources, profiles, samples, lines, attributes. Each takes up to 150 bytes of memory.
    pub records: usize,
    /// Indices, values and times in lists. Each takes 4 or 8 bytes of memory.
    pub numbers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: crate::MAX_PACKET_BYTES, records: 1 << 21, numbers: 1 << 24 }
    }
}

/// The bytes of a request that may be compressed with gzip.
///
/// # Errors
///
/// [`Wrong::Gzip`] when they are damaged, [`Wrong::TooMany`] when they stand for more than `limits.bytes`.
pub fn ungzip(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, DecodeError> {
    wire::proto::ungzip(bytes, limits.bytes).map(Cow::into_owned)
}

impl<'a> Request<'a> {
    /// Reads an `ExportProfilesServiceRequest` or `ProfilesData`, which are the same on the wire. Indices are taken as they are:
    /// [`Request::check`] says which lead nowhere. Fields of later versions are passed over.
    ///
    /// # Errors
    ///
    /// Where the bytes are no such message, or pass a limit.
    pub fn decode(bytes: &'a [u8], limits: Limits) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "request");
        if bytes.len() > limits.bytes {
            return Err(reader.wrong(too_many("bytes", limits.bytes)));
        }
        let mut budget = Budget::of(limits);
        let mut request = Self::default();
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => {
                    let inner = value.bytes(&reader, "resource_profiles")?;
                    request.resources.push(resource_profiles(inner, &mut budget)?);
                }
                2 => dictionary(
                    value.bytes(&reader, "dictionary")?,
                    &mut request.dictionary,
                    &mut budget,
                )?,
                _ => {}
            }
        }
        Ok(request)
    }
}

/// What the content of a packet of ours is called, computed anew: the same as the ids that stand in it if no byte changed.
///
/// # Errors
///
/// As [`Request::decode`].
pub fn packet_id(bytes: &[u8]) -> Result<PacketId, DecodeError> {
    let mut blank = bytes.to_vec();
    for place in profile_id_places(bytes)? {
        if let Some(id) = blank.get_mut(place..place + 16) {
            id.fill(0);
        }
    }
    let digest = Sha256::digest(&blank);
    Ok(PacketId(std::array::from_fn(|i| digest.get(i).copied().unwrap_or_default())))
}

/// Where the 16 bytes of each profile id stand.
fn profile_id_places(bytes: &[u8]) -> Result<Vec<usize>, DecodeError> {
    const PROFILE_ID: u32 = 7;
    let mut places = Vec::new();
    let mut request = Reader::new(bytes, "request");
    for_each(&mut request, 1, "resource_profiles", |mut resource| {
        for_each(&mut resource, 2, "scope_profiles", |mut scope| {
            for_each(&mut scope, 2, "profile", |mut profile| {
                for_each(&mut profile, PROFILE_ID, "profile_id", |id| {
                    if id.bytes.len() == 16 {
                        places.push(id.offset);
                    }
                    Ok(())
                })
            })
        })
    })?;
    Ok(places)
}

/// Calls `f` with each field of a number; passes over the others.
pub(crate) fn for_each<'a>(
    reader: &mut Reader<'a>,
    wanted: u32,
    path: &'static str,
    mut f: impl FnMut(Reader<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while let Some((field, value)) = reader.field()? {
        if field == wanted {
            f(value.bytes(reader, path)?)?;
        }
    }
    Ok(())
}

/// What is left of the limits.
pub(crate) struct Budget {
    limits: Limits,
    records: usize,
    numbers: usize,
}

impl Budget {
    pub(crate) const fn of(limits: Limits) -> Self {
        Self { limits, records: limits.records, numbers: limits.numbers }
    }

    fn record(&mut self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let left = self.records.checked_sub(1);
        self.records =
            left.ok_or_else(|| reader.wrong(too_many("records", self.limits.records)))?;
        Ok(())
    }

    fn number(&mut self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let left = self.numbers.checked_sub(1);
        self.numbers =
            left.ok_or_else(|| reader.wrong(too_many("numbers", self.limits.numbers)))?;
        Ok(())
    }
}

fn too_many(what: &'static str, limit: usize) -> Wrong {
    Wrong::TooMany { what, limit }
}

fn index(value: u64, reader: &Reader<'_>) -> Result<u32, DecodeError> {
    let fits = u32::try_from(value).ok().filter(|&index| i32::try_from(index).is_ok());
    fits.ok_or_else(|| reader.wrong(Wrong::Range { value }))
}

/// A repeated number: packed, or one of a field of its own.
fn numbers<T>(
    value: Field<'_>,
    reader: &Reader<'_>,
    budget: &mut Budget,
    list: &mut Vec<T>,
    convert: impl Fn(u64, &Reader<'_>) -> Result<T, DecodeError>,
) -> Result<(), DecodeError> {
    match value {
        Field::Bytes(mut packed) => {
            while !packed.bytes.is_empty() {
                budget.number(reader)?;
                list.push(convert(packed.varint()?, reader)?);
            }
        }
        other => {
            budget.number(reader)?;
            list.push(convert(other.number(reader)?, reader)?);
        }
    }
    Ok(())
}

fn times(
    value: Field<'_>,
    reader: &Reader<'_>,
    budget: &mut Budget,
    list: &mut Vec<u64>,
) -> Result<(), DecodeError> {
    match value {
        Field::Bytes(mut packed) => {
            while !packed.bytes.is_empty() {
                budget.number(reader)?;
                list.push(packed.fixed64()?);
            }
        }
        other => {
            budget.number(reader)?;
            list.push(other.fixed(reader)?);
        }
    }
    Ok(())
}

fn resource_profiles<'a>(
    mut reader: Reader<'a>,
    budget: &mut Budget,
) -> Result<ResourceProfiles<'a>, DecodeError> {
    budget.record(&reader)?;
    let mut out = ResourceProfiles::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => {
                let mut resource = value.bytes(&reader, "resource")?;
                for_each(&mut resource, 1, "resource.attributes", |attribute| {
                    out.attributes.push(key_value(attribute, budget)?);
                    Ok(())
                })?;
            }
            2 => {
                budget.record(&reader)?;
                out.scopes += 1;
                let mut scope = value.bytes(&reader, "scope_profiles")?;
                for_each(&mut scope, 2, "profile", |inner| {
                    out.profiles.push(profile(inner, budget)?);
                    Ok(())
                })?;
            }
            _ => {}
        }
    }
    Ok(out)
}

/// A resource's attribute: key as text, or as number in the string table.
pub(crate) fn key_value<'a>(
    mut reader: Reader<'a>,
    budget: &mut Budget,
) -> Result<Attribute<'a>, DecodeError> {
    budget.record(&reader)?;
    let mut out = Attribute::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.key = value.bytes(&reader, "key")?.text()?,
            2 => out.value = any_value(value.bytes(&reader, "value")?)?,
            3 => out.key_index = index(value.number(&reader)?, &reader)?,
            _ => {}
        }
    }
    Ok(out)
}

fn any_value(mut reader: Reader<'_>) -> Result<AttributeValue<'_>, DecodeError> {
    let mut out = AttributeValue::None;
    while let Some((field, value)) = reader.field()? {
        out = match field {
            1 => AttributeValue::Text(value.bytes(&reader, "string_value")?.text()?),
            2 => AttributeValue::Bool(value.number(&reader)? != 0),
            3 => AttributeValue::Int(signed(value.number(&reader)?)),
            4 => AttributeValue::DoubleBits(value.fixed(&reader)?),
            5 | 6 => AttributeValue::Nested(value.bytes(&reader, "nested value")?.bytes),
            7 => AttributeValue::Bytes(value.bytes(&reader, "bytes_value")?.bytes),
            8 => AttributeValue::TextIndex(index(value.number(&reader)?, &reader)?),
            _ => out,
        };
    }
    Ok(out)
}

fn profile<'a>(mut reader: Reader<'a>, budget: &mut Budget) -> Result<Profile<'a>, DecodeError> {
    budget.record(&reader)?;
    let mut out = Profile::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.sample_type = value_type(value.bytes(&reader, "sample_type")?)?,
            2 => out.samples.push(sample(value.bytes(&reader, "sample")?, budget)?),
            3 => out.time_unix_ns = value.fixed(&reader)?,
            4 => out.duration_ns = value.number(&reader)?,
            5 => out.period_type = value_type(value.bytes(&reader, "period_type")?)?,
            6 => out.period = signed(value.number(&reader)?),
            7 => out.profile_id = value.bytes(&reader, "profile_id")?.bytes,
            9 => {
                out.original_payload_format =
                    value.bytes(&reader, "original_payload_format")?.text()?
            }
            11 => numbers(value, &reader, budget, &mut out.attributes, index)?,
            _ => {}
        }
    }
    Ok(out)
}

fn value_type(mut reader: Reader<'_>) -> Result<ValueType, DecodeError> {
    let mut out = ValueType::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.kind = index(value.number(&reader)?, &reader)?,
            2 => out.unit = index(value.number(&reader)?, &reader)?,
            _ => {}
        }
    }
    Ok(out)
}

fn sample(mut reader: Reader<'_>, budget: &mut Budget) -> Result<Sample, DecodeError> {
    budget.record(&reader)?;
    let mut out = Sample::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.stack = index(value.number(&reader)?, &reader)?,
            2 => numbers(value, &reader, budget, &mut out.attributes, index)?,
            3 => out.link = index(value.number(&reader)?, &reader)?,
            4 => numbers(value, &reader, budget, &mut out.values, |value, _| Ok(signed(value)))?,
            5 => times(value, &reader, budget, &mut out.times_unix_ns)?,
            _ => {}
        }
    }
    Ok(out)
}

fn dictionary<'a>(
    mut reader: Reader<'a>,
    out: &mut Dictionary<'a>,
    budget: &mut Budget,
) -> Result<(), DecodeError> {
    while let Some((field, value)) = reader.field()? {
        if (1..=7).contains(&field) {
            budget.record(&reader)?;
        }
        match field {
            1 => out.mappings.push(mapping(value.bytes(&reader, "mapping_table")?, budget)?),
            2 => out.locations.push(location(value.bytes(&reader, "location_table")?, budget)?),
            3 => out.functions.push(function(value.bytes(&reader, "function_table")?)?),
            4 => out.links.push(link(value.bytes(&reader, "link_table")?)?),
            5 => out.strings.push(value.bytes(&reader, "string_table")?.text()?),
            6 => out.attributes.push(key_value_and_unit(value.bytes(&reader, "attribute_table")?)?),
            7 => {
                let mut inner = value.bytes(&reader, "stack_table")?;
                let mut locations = Vec::new();
                while let Some((field, value)) = inner.field()? {
                    if field == 1 {
                        numbers(value, &inner, budget, &mut locations, index)?;
                    }
                }
                out.stacks.push(locations);
            }
            _ => {}
        }
    }
    Ok(())
}

fn mapping(mut reader: Reader<'_>, budget: &mut Budget) -> Result<Mapping, DecodeError> {
    let mut out = Mapping::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.memory_start = value.number(&reader)?,
            2 => out.memory_limit = value.number(&reader)?,
            3 => out.file_offset = value.number(&reader)?,
            4 => out.path = index(value.number(&reader)?, &reader)?,
            5 => numbers(value, &reader, budget, &mut out.attributes, index)?,
            _ => {}
        }
    }
    Ok(out)
}

fn location(mut reader: Reader<'_>, budget: &mut Budget) -> Result<Location, DecodeError> {
    let mut out = Location::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.mapping = index(value.number(&reader)?, &reader)?,
            2 => out.address = value.number(&reader)?,
            3 => {
                budget.record(&reader)?;
                let mut inner = value.bytes(&reader, "line")?;
                let mut line = Line::default();
                while let Some((field, value)) = inner.field()? {
                    match field {
                        1 => line.function = index(value.number(&inner)?, &inner)?,
                        2 => line.line = signed(value.number(&inner)?),
                        3 => line.column = signed(value.number(&inner)?),
                        _ => {}
                    }
                }
                out.lines.push(line);
            }
            4 => numbers(value, &reader, budget, &mut out.attributes, index)?,
            _ => {}
        }
    }
    Ok(out)
}

fn function(mut reader: Reader<'_>) -> Result<Function, DecodeError> {
    let mut out = Function::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.name = index(value.number(&reader)?, &reader)?,
            2 => out.system_name = index(value.number(&reader)?, &reader)?,
            3 => out.file = index(value.number(&reader)?, &reader)?,
            4 => out.start_line = signed(value.number(&reader)?),
            _ => {}
        }
    }
    Ok(out)
}

fn link(mut reader: Reader<'_>) -> Result<LinkEntry<'_>, DecodeError> {
    let mut out = LinkEntry::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.trace_id = value.bytes(&reader, "trace_id")?.bytes,
            2 => out.span_id = value.bytes(&reader, "span_id")?.bytes,
            _ => {}
        }
    }
    Ok(out)
}

fn key_value_and_unit(mut reader: Reader<'_>) -> Result<Attribute<'_>, DecodeError> {
    let mut out = Attribute::default();
    while let Some((field, value)) = reader.field()? {
        match field {
            1 => out.key_index = index(value.number(&reader)?, &reader)?,
            2 => out.value = any_value(value.bytes(&reader, "value")?)?,
            3 => out.unit = index(value.number(&reader)?, &reader)?,
            _ => {}
        }
    }
    Ok(out)
}
