//! The name of a function, which may stand at another entry than its code.

use std::sync::Arc;

use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, Reader, Result, UnitOffset, UnitRef, constants,
};

use super::FunctionName;
use super::cursor::{Cursor, Meter};
use super::index::{Index, Root};

/// The longest name that is kept.
const MAX_NAME_BYTES: usize = 16 << 10;

/// How often an entry may refer to another one for its name: from code to the function, from there to its declaration.
const MAX_HOPS: usize = 16;

/// What a function's entries say of it.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) function: Arc<FunctionName>,
    /// Where it is declared: the number of the file in the unit's list, and the line.
    pub(super) declared: Option<(u32, u32)>,
}

impl Name {
    pub(super) fn bytes(&self) -> usize {
        self.function.readable.len() + self.function.linkage.len()
    }
}

/// Debug information of a file, and of the one that it shares with others.
pub(super) struct Files<'d, 'i> {
    pub(super) main: (&'i Dwarf<Cursor<'d>>, &'i Index),
    pub(super) shared: Option<(&'i Dwarf<Cursor<'d>>, &'i Index)>,
    pub(super) meter: &'i Meter,
}

/// The name of the function with this entry.
///
/// # Errors
/// What is wrong with an entry.
pub(super) fn name<'d>(
    files: &Files<'d, '_>,
    home: Root<'d>,
    entry: UnitOffset,
) -> Result<Option<Name>> {
    let (mut dwarf, mut index) = files.main;
    let (mut root, mut entry) = (home, entry);
    let (mut is_home, mut declared) = (true, (None, None));
    for _ in 0..MAX_HOPS {
        let unit = UnitRef::new(dwarf, &root.unit);
        let found = Entry::read(unit, entry, files.meter)?;
        if is_home {
            declared = (declared.0.or(found.file), declared.1.or(found.line));
        }
        if let Some(name) = found.linkage.or(found.name) {
            let declared = declared.0.zip(declared.1);
            return Ok(text(name).map(|linkage| {
                let readable = crate::readable(&linkage);
                Name { function: Arc::new(FunctionName { readable, linkage }), declared }
            }));
        }
        let (elsewhere, at) = match found.origin {
            Some(AttributeValue::UnitRef(at)) => {
                entry = at;
                continue;
            }
            Some(AttributeValue::DebugInfoRef(at)) => ((dwarf, index), at),
            Some(AttributeValue::DebugInfoRefSup(at)) => match files.shared {
                Some(shared) => (shared, at),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        (dwarf, index) = elsewhere;
        let Some((unit, inside)) = unit_of(index, at) else { return Ok(None) };
        root = Root::at(dwarf, unit, files.meter)?;
        (entry, is_home) = (inside, false);
    }
    Ok(None)
}

/// The unit of an entry, and where it is there.
fn unit_of(index: &Index, at: DebugInfoOffset) -> Option<(DebugInfoOffset, UnitOffset)> {
    let unit = index.unit_around(at)?;
    Some((unit, UnitOffset(at.0.checked_sub(unit.0)?)))
}

fn text(name: Cursor<'_>) -> Option<String> {
    let is_short = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    is_short.then(|| name.to_string_lossy().ok().map(std::borrow::Cow::into_owned)).flatten()
}

/// What one entry says of a function.
#[derive(Default)]
struct Entry<'d> {
    linkage: Option<Cursor<'d>>,
    name: Option<Cursor<'d>>,
    origin: Option<AttributeValue<Cursor<'d>>>,
    file: Option<u32>,
    line: Option<u32>,
}

impl<'d> Entry<'d> {
    fn read(unit: UnitRef<'_, Cursor<'d>>, at: UnitOffset, meter: &Meter) -> Result<Self> {
        let mut found = Self::default();
        let mut entries = unit.entries_raw(Some(at))?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(found) };
        meter.charge(abbreviation.attributes().len())?;
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name, value) => {
                    found.linkage = unit.attr_string(value).ok();
                }
                (constants::DW_AT_name, value) => found.name = unit.attr_string(value).ok(),
                (constants::DW_AT_abstract_origin | constants::DW_AT_specification, value) => {
                    found.origin = Some(value);
                }
                (constants::DW_AT_decl_file, AttributeValue::FileIndex(number)) => {
                    found.file = u32::try_from(number).ok();
                }
                (constants::DW_AT_decl_line, value) => {
                    found.line = value.udata_value().and_then(|line| u32::try_from(line).ok());
                }
                _ => {}
            }
        }
        Ok(found)
    }
}
