//! A `google.v1.Profile` as it stands on the wire, with all ids checked.
//!
//! ```text
//! Profile   1 sample_type 2 sample 3 mapping 4 location 5 function 6 string_table 9 time_nanos 10 duration_nanos 11 period_type
//! ValueType 1 type 2 unit            Sample   1 location_id, leaf first 2 value 3 label        Label 1 key 2 str 3 num
//! Mapping   1 id 2 memory_start 3 memory_limit 4 file_offset 5 filename 6 build_id
//! Location  1 id 2 mapping_id 3 address 4 line, innermost first                               Line  1 function_id 2 line
//! Function  1 id 2 name 3 system_name 4 filename 5 start_line
//! ```
//! Source: `proto/profile.proto` of google/pprof. Strings are numbers in the string table, whose first is empty.
//!
//! Samples are not kept but for where they stand, and texts are borrowed: tables take up to 32 bytes for one of the profile's.

use hashbrown::HashMap;
use wire::proto::{DecodeError, Reader, Value, Wrong, signed};

use crate::error::Error;
use crate::limits::Limits;

/// Sample types that one profile may have.
const MAX_SAMPLE_TYPES: usize = 64;

/// All but the samples themselves.
#[derive(Debug, Default)]
pub(crate) struct Tables<'a> {
    pub(super) strings: Vec<&'a str>,
    types: Vec<ValueType>,
    period_type: ValueType,
    pub(crate) time_ns: i64,
    pub(super) samples: Vec<Reader<'a>>,
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    lines: Vec<Line>,
    functions: Vec<Function>,
    location_ids: HashMap<u64, u32>,
    mapping_ids: HashMap<u64, u32>,
    function_ids: HashMap<u64, u32>,
}

/// Numbers of strings.
#[derive(Debug, Clone, Copy, Default)]
struct ValueType {
    kind: u64,
    unit: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mapping {
    id: u64,
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) offset: u64,
    pub(super) file: u64,
    pub(super) build_id: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Location {
    id: u64,
    mapping: u64,
    pub(super) address: u64,
    /// Where its lines begin and end.
    lines: (u32, u32),
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Line {
    function: u64,
    pub(super) line: i64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Function {
    id: u64,
    pub(super) name: u64,
    pub(super) system_name: u64,
    pub(super) file: u64,
    pub(super) start_line: i64,
}

impl<'a> Tables<'a> {
    /// Of a profile that is unpacked.
    pub(crate) fn decode(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes, "profile");
        if bytes.len() > limits.profile_bytes {
            let wrong = Wrong::TooMany { what: "bytes", limit: limits.profile_bytes };
            return Err(reader.wrong(wrong).into());
        }
        let mut out = Self::default();
        while let Some((field, value)) = reader.field()? {
            match field {
                1 if out.types.len() == MAX_SAMPLE_TYPES => {
                    let (what, limit) = ("sample types", MAX_SAMPLE_TYPES);
                    return Err(Error::TooMany { what, limit });
                }
                1 => out.types.push(ValueType::decode(value.bytes(&reader, "sample_type")?)?),
                2 if out.samples.len() == limits.profile_samples => {
                    let (what, limit) = ("samples", limits.profile_samples);
                    return Err(Error::TooMany { what, limit });
                }
                2 => out.samples.push(value.bytes(&reader, "sample")?),
                3 => out.mappings.push(Mapping::decode(value.bytes(&reader, "mapping")?)?),
                4 => out.location(value.bytes(&reader, "location")?)?,
                5 => out.functions.push(Function::decode(value.bytes(&reader, "function")?)?),
                6 => out.strings.push(value.bytes(&reader, "string_table")?.text()?),
                9 => out.time_ns = signed(value.number(&reader)?),
                11 => out.period_type = ValueType::decode(value.bytes(&reader, "period_type")?)?,
                _ => {}
            }
        }
        out.check()?;
        Ok(out)
    }

    fn location(&mut self, mut reader: Reader<'_>) -> Result<(), DecodeError> {
        let begin = model::intern::number(self.lines.len());
        let mut location = Location::default();
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => location.id = value.number(&reader)?,
                2 => location.mapping = value.number(&reader)?,
                3 => location.address = value.number(&reader)?,
                4 => {
                    let mut inner = value.bytes(&reader, "line")?;
                    let mut line = Line::default();
                    while let Some((field, value)) = inner.field()? {
                        match field {
                            1 => line.function = value.number(&inner)?,
                            2 => line.line = signed(value.number(&inner)?),
                            _ => {}
                        }
                    }
                    self.lines.push(line);
                }
                _ => {}
            }
        }
        location.lines = (begin, model::intern::number(self.lines.len()));
        self.locations.push(location);
        Ok(())
    }

    /// Ids are there once, and all that refer to one find it.
    fn check(&mut self) -> Result<(), Error> {
        match self.strings.first() {
            None if self.samples.is_empty() => {}
            Some(&"") => {}
            None => return Err(dangling("profile", 0, "string", 0)),
            Some(text) => {
                let text = text.chars().take(64).collect();
                return Err(Error::FirstString { text });
            }
        }
        self.function_ids = ids("function", self.functions.iter().map(|it| it.id))?;
        self.location_ids = ids("location", self.locations.iter().map(|it| it.id))?;
        // Nothing can refer to mapping 0, which some writers add.
        self.mappings.retain(|mapping| mapping.id != 0);
        self.mapping_ids = ids("mapping", self.mappings.iter().map(|it| it.id))?;
        for function in &self.functions {
            for text in [function.name, function.system_name, function.file] {
                self.string_of("function", function.id, text)?;
            }
        }
        for mapping in &self.mappings {
            self.string_of("mapping", mapping.id, mapping.file)?;
            self.string_of("mapping", mapping.id, mapping.build_id)?;
        }
        for location in &self.locations {
            if location.mapping != 0 && !self.mapping_ids.contains_key(&location.mapping) {
                return Err(dangling("location", location.id, "mapping", location.mapping));
            }
            for line in self.lines(location) {
                if !self.function_ids.contains_key(&line.function) {
                    return Err(dangling("location", location.id, "function", line.function));
                }
            }
        }
        Ok(())
    }

    /// A string that something refers to.
    pub(super) fn string_of(
        &self,
        from: &'static str,
        id: u64,
        string: u64,
    ) -> Result<&'a str, Error> {
        let found = usize::try_from(string).ok().and_then(|at| self.strings.get(at)).copied();
        found.ok_or_else(|| dangling(from, id, "string", string))
    }

    /// A string that was checked.
    pub(super) fn string(&self, string: u64) -> &'a str {
        let found = usize::try_from(string).ok().and_then(|at| self.strings.get(at)).copied();
        found.unwrap_or_default()
    }

    /// Whether there is no sample.
    pub(crate) const fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Where a location stands.
    pub(super) fn location_at(&self, id: u64) -> Option<u32> {
        // Most writers count from 1.
        let at = u32::try_from(id.wrapping_sub(1)).ok();
        let at = at.filter(|at| self.locations.get(*at as usize).is_some_and(|it| it.id == id));
        at.or_else(|| self.location_ids.get(&id).copied())
    }

    pub(super) const fn location_count(&self) -> usize {
        self.locations.len()
    }

    pub(super) fn location_of(&self, at: u32) -> Location {
        self.locations.get(at as usize).copied().unwrap_or_default()
    }

    pub(super) fn mapping(&self, location: &Location) -> Option<Mapping> {
        let at = *self.mapping_ids.get(&location.mapping)?;
        self.mappings.get(at as usize).copied()
    }

    /// Of a location, the innermost first.
    pub(super) fn lines(&self, location: &Location) -> &[Line] {
        let (begin, end) = location.lines;
        self.lines.get(begin as usize..end as usize).unwrap_or_default()
    }

    pub(super) fn function(&self, line: &Line) -> Function {
        let at = self.function_ids.get(&line.function);
        at.and_then(|&at| self.functions.get(at as usize)).copied().unwrap_or_default()
    }

    /// Type and unit of each value of a sample.
    pub(crate) fn sample_types(&self) -> Result<Vec<(&'a str, &'a str)>, Error> {
        let text = |string| self.string_of("sample type", 0, string);
        self.types.iter().map(|it| Ok((text(it.kind)?, text(it.unit)?))).collect()
    }

    /// Type and unit of the period.
    pub(crate) fn period_type(&self) -> Result<(&'a str, &'a str), Error> {
        if self.strings.is_empty() {
            return Ok(("", ""));
        }
        let text = |string| self.string_of("period type", 0, string);
        Ok((text(self.period_type.kind)?, text(self.period_type.unit)?))
    }
}

pub(super) const fn dangling(from: &'static str, id: u64, to: &'static str, target: u64) -> Error {
    Error::Dangling { from, id, to, target }
}

/// Places by id.
fn ids(
    what: &'static str,
    all: impl ExactSizeIterator<Item = u64>,
) -> Result<HashMap<u64, u32>, Error> {
    let mut ids = HashMap::with_capacity(all.len());
    for (place, id) in all.enumerate() {
        if id == 0 {
            return Err(Error::ZeroId { what, place });
        }
        if ids.insert(id, model::intern::number(place)).is_some() {
            return Err(Error::Duplicate { what, id });
        }
    }
    Ok(ids)
}

impl ValueType {
    fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let mut out = Self::default();
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => out.kind = value.number(&reader)?,
                2 => out.unit = value.number(&reader)?,
                _ => {}
            }
        }
        Ok(out)
    }
}

impl Mapping {
    fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let mut out = Self::default();
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => out.id = value.number(&reader)?,
                2 => out.start = value.number(&reader)?,
                3 => out.limit = value.number(&reader)?,
                4 => out.offset = value.number(&reader)?,
                5 => out.file = value.number(&reader)?,
                6 => out.build_id = value.number(&reader)?,
                _ => {}
            }
        }
        Ok(out)
    }
}

impl Function {
    fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let mut out = Self::default();
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => out.id = value.number(&reader)?,
                2 => out.name = value.number(&reader)?,
                3 => out.system_name = value.number(&reader)?,
                4 => out.file = value.number(&reader)?,
                5 => out.start_line = signed(value.number(&reader)?),
                _ => {}
            }
        }
        Ok(out)
    }
}

/// A sample's numbers, in memory that is used again for the next.
#[derive(Debug, Default)]
pub(super) struct SampleFields {
    /// Ids, leaf first.
    pub(super) locations: Vec<u64>,
    pub(super) values: Vec<i64>,
    /// Numbers of the strings of key and value.
    pub(super) labels: Vec<(u64, u64)>,
}

impl SampleFields {
    /// Labels that are numbers are passed over.
    pub(super) fn read(&mut self, mut reader: Reader<'_>, limits: &Limits) -> Result<(), Error> {
        self.locations.clear();
        self.values.clear();
        self.labels.clear();
        let mut labels = 0;
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => numbers(value, &reader, |id| self.locations.push(id))?,
                2 => numbers(value, &reader, |value| self.values.push(signed(value)))?,
                3 => {
                    labels += 1;
                    if labels > limits.sample_labels {
                        let (what, limit) = ("labels of a sample", limits.sample_labels);
                        return Err(Error::TooMany { what, limit });
                    }
                    let mut inner = value.bytes(&reader, "label")?;
                    let (mut key, mut text) = (0, 0);
                    while let Some((field, value)) = inner.field()? {
                        match field {
                            1 => key = value.number(&inner)?,
                            2 => text = value.number(&inner)?,
                            _ => {}
                        }
                    }
                    if text != 0 {
                        self.labels.push((key, text));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A repeated number: packed, or one of a field of its own.
fn numbers(
    value: Value<'_>,
    reader: &Reader<'_>,
    mut each: impl FnMut(u64),
) -> Result<(), DecodeError> {
    match value {
        Value::Bytes(mut packed) => {
            while !packed.bytes.is_empty() {
                each(packed.varint()?);
            }
        }
        other => each(other.number(reader)?),
    }
    Ok(())
}
