//! Which unit of debug information tells of an address.
//!
//! Compilers of GNU list the stretches of code of all units in one place (`.debug_aranges`). Of a unit that has none there its first entry is
//! read, as LLVM's readers do, whose compilers write no such list.

use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfoOffset,
    DebugLineOffset, Dwarf, Error, NativeEndian, RangeListsOffset, Reader, Result, Section, Unit,
    UnitHeader, UnitRef, UnitType, constants,
};

use super::cursor::{Cursor, Meter};

/// The most units that are known of a file. Chromium has 30,000.
const MAX_UNITS: usize = 1 << 20;

/// The most stretches of code of all units of a file.
const MAX_RANGES: usize = 2 << 20;

/// The longest table of abbreviations; compilers write some thousand bytes, or some ten thousand for what is optimised as a whole.
const MAX_ABBREVIATION_BYTES: usize = 1 << 20;

/// Compilers fill what is between two functions, up to the next line of a processor's cache.
const MAX_PADDING_BYTES: u64 = 64;

/// How many units that have code around an address are looked at.
const MAX_CANDIDATES: usize = 8;

/// The units of a file.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Where each begins, ascending.
    units: Vec<usize>,
    /// By begin.
    ranges: Vec<UnitRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UnitRange {
    begin: u64,
    end: u64,
    unit: u32,
}

impl Index {
    /// Of all units up to the first one that cannot be read, or to the end of what may be read.
    pub(super) fn of(dwarf: &Dwarf<Cursor<'_>>, meter: &Meter) -> Self {
        let mut index = Self::default();
        let mut known: Option<Known> = None;
        let listed = listed(dwarf);
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(DebugInfoOffset(offset)) = header.debug_info_offset() else { continue };
            if index.units.len() >= MAX_UNITS {
                break;
            }
            let number = u32::try_from(index.units.len()).unwrap_or(u32::MAX);
            index.units.push(offset);
            // Others have no code.
            if !matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
                continue;
            }
            let first = listed.partition_point(|(unit, ..)| *unit < offset);
            let own = listed.get(first..).unwrap_or_default();
            let own = own.split(|(unit, ..)| *unit != offset).next().unwrap_or_default();
            if !own.is_empty() {
                let mut own = own.iter();
                if own.try_for_each(|(_, begin, end)| index.push(*begin, *end, number)).is_err() {
                    break;
                }
                continue;
            }
            let at = header.debug_abbrev_offset().0;
            let Some(table) = Known::of(known.take(), dwarf, &header) else { continue };
            let mut root = Root::of(dwarf, header, Arc::clone(&table.abbreviations), meter);
            known = Some(table);
            if root.is_err()
                && known.as_ref().is_some_and(|known| !known.is_whole)
                && let Ok(abbreviations) = abbreviations(dwarf, &header).map(Arc::new)
            {
                root = Root::of(dwarf, header, Arc::clone(&abbreviations), meter);
                known = Some(Known { at, abbreviations, is_whole: true });
            }
            if let Ok(root) = root
                && root.visit_ranges(dwarf, |begin, end| index.push(begin, end, number)).is_err()
            {
                break;
            }
        }
        index.ranges.sort_unstable();
        // A unit's functions mostly follow each other, and each may be a stretch of its own.
        index.ranges.dedup_by(|next, last| {
            let is_next =
                next.unit == last.unit && next.begin <= last.end.saturating_add(MAX_PADDING_BYTES);
            if is_next {
                last.end = last.end.max(next.end);
            }
            is_next
        });
        index.ranges.shrink_to_fit();
        index.units.shrink_to_fit();
        index
    }

    fn push(&mut self, begin: u64, end: u64, unit: u32) -> Result<()> {
        if self.ranges.len() >= MAX_RANGES {
            return Err(Error::Io);
        }
        self.ranges.push(UnitRange { begin, end, unit });
        Ok(())
    }

    /// The units that say that they have code at an address: the ones whose stretch begins last before it first.
    pub(super) fn candidates(&self, address: u64) -> impl Iterator<Item = u32> + use<> {
        let behind = self.ranges.partition_point(|range| range.begin <= address);
        let before = self.ranges.get(..behind).unwrap_or_default().iter().rev();
        let near = before.take(MAX_CANDIDATES).filter(|range| address < range.end);
        let mut units: Vec<u32> = near.map(|range| range.unit).collect();
        units.dedup();
        units.into_iter()
    }

    /// Where a unit begins.
    pub(super) fn unit(&self, number: u32) -> Option<DebugInfoOffset> {
        self.units.get(number as usize).map(|at| DebugInfoOffset(*at))
    }

    /// Where the unit begins that an entry is in.
    pub(super) fn unit_around(&self, entry: DebugInfoOffset) -> Option<DebugInfoOffset> {
        let behind = self.units.partition_point(|at| *at <= entry.0);
        self.units.get(behind.checked_sub(1)?).map(|at| DebugInfoOffset(*at))
    }

    /// Bytes of memory that this takes.
    pub(super) fn bytes(&self) -> usize {
        self.units.len() * size_of::<usize>() + self.ranges.len() * size_of::<UnitRange>()
    }
}

/// Begin of a unit, begin and end of some of its code.
type Listed = (usize, u64, u64);

/// What `.debug_aranges` says up to its first fault, ascending.
fn listed(dwarf: &Dwarf<Cursor<'_>>) -> Vec<Listed> {
    let mut listed = Vec::new();
    let mut sets = *dwarf.debug_aranges.reader();
    while !sets.is_empty() && listed.len() < MAX_RANGES {
        let before = listed.len();
        if list_set(&mut sets, &mut listed).is_err() {
            listed.truncate(before);
            break;
        }
    }
    listed.sort_unstable();
    listed
}

/// The list of one unit: its length, the version 2, where the unit begins, the sizes of addresses and segments; from the next multiple
/// of 16 bytes on, begin and length of each stretch (DWARF 5, 6.1.2). gimli's own reader calls itself for each pair of zeros. What the linker dropped
/// lies at address 0 and is left out; a list of another form, too.
fn list_set(sets: &mut Cursor<'_>, listed: &mut Vec<Listed>) -> Result<()> {
    const PAIR_BYTES: usize = 16;
    let begin_of_set = *sets;
    let (len, format) = sets.read_initial_length()?;
    let mut set = sets.split(len)?;
    let (version, unit) = (set.read_u16()?, set.read_offset(format)?);
    if (version, set.read_u8()?, set.read_u8()?) != (2, 8, 0) {
        return Ok(());
    }
    let head_bytes = set.offset_from(&begin_of_set);
    set.skip(head_bytes.next_multiple_of(PAIR_BYTES) - head_bytes)?;
    while set.len() >= PAIR_BYTES && listed.len() < MAX_RANGES {
        let (begin, len) = (set.read_u64()?, set.read_u64()?);
        let end = begin.saturating_add(len);
        if begin != 0 && begin < end {
            listed.push((unit, begin, end));
        }
    }
    Ok(())
}

/// The abbreviations of the unit before, which the next one may share.
struct Known {
    at: usize,
    abbreviations: Arc<Abbreviations>,
    /// Whether these are all of the table, or its first one.
    is_whole: bool,
}

impl Known {
    /// Those of a unit; `None` when they cannot be read.
    fn of(
        known: Option<Self>,
        dwarf: &Dwarf<Cursor<'_>>,
        header: &UnitHeader<Cursor<'_>>,
    ) -> Option<Self> {
        let at = header.debug_abbrev_offset().0;
        known.filter(|known| known.at == at).or_else(|| {
            let abbreviations = Arc::new(first_abbreviation(dwarf, header).ok()?);
            Some(Self { at, abbreviations, is_whole: false })
        })
    }
}

/// The first abbreviation of a unit alone, which is mostly that of its first entry: a table has a hundred, and each is an allocation or two.
fn first_abbreviation(
    dwarf: &Dwarf<Cursor<'_>>,
    header: &UnitHeader<Cursor<'_>>,
) -> Result<Abbreviations> {
    let mut table = *dwarf.debug_abbrev.reader();
    table.skip(header.debug_abbrev_offset().0)?;
    table.truncate(table.len().min(MAX_ABBREVIATION_BYTES))?;
    let mut rest = table;
    let (_code, _tag, _has_children) =
        (rest.read_uleb128()?, rest.read_uleb128()?, rest.read_u8()?);
    loop {
        let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
        if form == u64::from(constants::DW_FORM_implicit_const.0) {
            rest.read_sleb128()?;
        }
        if (name, form) == (0, 0) {
            break;
        }
    }
    let len = table.len() - rest.len();
    // A table ends with a zero.
    let mut alone = vec![0; len + 1];
    table.read_slice(alone.get_mut(..len).unwrap_or_default())?;
    DebugAbbrev::new(&alone, NativeEndian).abbreviations(DebugAbbrevOffset(0))
}

/// The abbreviations of a unit.
pub(super) fn abbreviations(
    dwarf: &Dwarf<Cursor<'_>>,
    header: &UnitHeader<Cursor<'_>>,
) -> Result<Abbreviations> {
    let mut table = *dwarf.debug_abbrev.reader();
    table.skip(header.debug_abbrev_offset().0)?;
    table.truncate(table.len().min(MAX_ABBREVIATION_BYTES))?;
    DebugAbbrev::from(table).abbreviations(DebugAbbrevOffset(0))
}

/// A unit's first entry, which tells of the unit.
pub(super) struct Root<'d> {
    /// Without its line program.
    pub(super) unit: Unit<Cursor<'d>>,
    pub(super) lines: Option<DebugLineOffset>,
    ranges: Option<RangeListsOffset>,
    /// Of code in one piece.
    end: Option<u64>,
}

impl<'d> Root<'d> {
    pub(super) fn of(
        dwarf: &Dwarf<Cursor<'d>>,
        header: UnitHeader<Cursor<'d>>,
        abbreviations: Arc<Abbreviations>,
        meter: &Meter,
    ) -> Result<Self> {
        let encoding = header.encoding();
        let mut unit = Unit {
            header,
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(
                encoding,
                dwarf.file_type,
            ),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(
                encoding,
                dwarf.file_type,
            ),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(
                encoding,
                dwarf.file_type,
            ),
            line_program: None,
            dwo_id: None,
        };
        let mut lines = None;
        let (mut folder, mut low, mut high, mut ranges) = (None, None, None, None);
        let table = Arc::clone(&unit.abbreviations);
        let mut entries = unit.header.entries_raw(&table, None)?;
        let abbreviation = entries.read_abbreviation()?.ok_or(Error::MissingUnitDie)?;
        meter.charge(abbreviation.attributes().len())?;
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_comp_dir, value) => folder = Some(value),
                (constants::DW_AT_low_pc, value) => low = Some(value),
                (constants::DW_AT_high_pc, value) => high = Some(value),
                (constants::DW_AT_ranges, value) => ranges = Some(value),
                (constants::DW_AT_stmt_list, AttributeValue::DebugLineRef(at)) => lines = Some(at),
                (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
                _ => {}
            }
        }
        // What these mean hangs on the bases, which may come behind them.
        unit.comp_dir = folder.and_then(|value| dwarf.attr_string(&unit, value).ok());
        let (begin, end) = bounds(UnitRef::new(dwarf, &unit), low, high)?;
        unit.low_pc = begin.unwrap_or(0);
        let ranges = match ranges {
            Some(value) => dwarf.attr_ranges_offset(&unit, value)?,
            None => None,
        };
        Ok(Self { unit, lines, ranges, end })
    }

    /// The unit that begins there.
    pub(super) fn at(
        dwarf: &Dwarf<Cursor<'d>>,
        offset: DebugInfoOffset,
        meter: &Meter,
    ) -> Result<Self> {
        let header = dwarf.unit_header(offset)?;
        let abbreviations = abbreviations(dwarf, &header)?;
        Self::of(dwarf, header, Arc::new(abbreviations), meter)
    }

    /// # Errors
    /// That of `visit`.
    fn visit_ranges(
        &self,
        dwarf: &Dwarf<Cursor<'d>>,
        visit: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let unit = UnitRef::new(dwarf, &self.unit);
        visit_ranges(unit, (Some(self.unit.low_pc), self.end), self.ranges, visit)
    }
}

/// Begin and end of an entry's code as its attributes tell them.
pub(super) fn bounds<'d>(
    unit: UnitRef<'_, Cursor<'d>>,
    low: Option<AttributeValue<Cursor<'d>>>,
    high: Option<AttributeValue<Cursor<'d>>>,
) -> Result<(Option<u64>, Option<u64>)> {
    let address = |value: Option<AttributeValue<Cursor<'d>>>| match value {
        Some(value) => unit.attr_address(value),
        None => Ok(None),
    };
    let begin = address(low)?;
    let end = match high {
        Some(AttributeValue::Udata(bytes)) => begin.and_then(|begin| begin.checked_add(bytes)),
        other => address(other)?,
    };
    Ok((begin, end))
}

/// The stretches of code of an entry. What the linker dropped lies at address 0 and is left out.
///
/// # Errors
/// That of `visit`; a list that cannot be read ends there.
pub(super) fn visit_ranges(
    unit: UnitRef<'_, Cursor<'_>>,
    bounds: (Option<u64>, Option<u64>),
    list: Option<RangeListsOffset>,
    mut visit: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let mut push = |begin, end| if begin != 0 && begin < end { visit(begin, end) } else { Ok(()) };
    if let Some(list) = list {
        let Ok(mut ranges) = unit.ranges(list) else { return Ok(()) };
        while let Ok(Some(range)) = ranges.next() {
            push(range.begin, range.end)?;
        }
        return Ok(());
    }
    match bounds {
        (Some(begin), Some(end)) => push(begin, end),
        _ => Ok(()),
    }
}
