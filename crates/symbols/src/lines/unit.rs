//! A unit of debug information: which line, and which functions, each of its addresses is of.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugInfoOffset, DebugLineOffset, Dwarf, EntriesRaw, Error,
    LineProgramHeader, RangeListsOffset, Reader, Result, Section, Unit as DwarfUnit, UnitOffset,
    UnitRef, constants,
};

use super::cursor::{Cursor, Meter};
use super::index::{Root, bounds, visit_ranges};
use super::names::Name;

/// The largest unit that is read, and the longest line program.
const MAX_UNIT_BYTES: usize = 64 << 20;

/// The longest header of a line program: its names of files are taken apart whatever is asked for.
const MAX_LINE_HEADER_BYTES: usize = 1 << 20;

/// The most rows of a unit's line table, of its functions with those inlined, and of their stretches of code.
const MAX_ROWS: usize = 2 << 20;
const MAX_SCOPES: usize = 1 << 20;
const MAX_RANGES: usize = 1 << 20;

/// How deep functions may be inlined into each other.
const MAX_DEPTH: u32 = 256;

/// The longest path.
const MAX_PATH_BYTES: usize = 4096;

/// No scope, no file.
const NONE: u32 = u32::MAX;

/// What an address of a unit is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    /// The entry of the function, in the unit.
    pub(super) function: Option<UnitOffset>,
    /// The number of the source file in the unit's list.
    pub(super) file: Option<u32>,
    /// 0 when not known.
    pub(super) line: u32,
}

/// Paths of source files by their numbers in a unit.
type Files = HashMap<u32, Arc<str>>;

/// A unit that was read.
#[derive(Debug)]
pub(super) struct Unit {
    rows: Box<[Row]>,
    scopes: Box<[Scope]>,
    /// By depth and begin.
    ranges: Box<[ScopeRange]>,
    /// Those that rows and scopes tell of.
    files: Files,
    pub(super) offset: DebugInfoOffset,
    pub(super) abbreviations: Arc<Abbreviations>,
    abbreviation_bytes: usize,
    /// Of functions by their entries, once they were asked for.
    pub(super) names: HashMap<UnitOffset, Option<Name>>,
    name_bytes: usize,
}

/// From this address up to that of the next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    address: u64,
    /// [`NONE`]: no line is known up to the next row.
    file: u32,
    line: u32,
}

/// A function, or one that was inlined.
#[derive(Debug, Clone, Copy)]
struct Scope {
    entry: u32,
    /// The one that it was inlined into.
    parent: u32,
    /// From where it was called there.
    call_file: u32,
    call_line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ScopeRange {
    /// 0 for functions.
    depth: u32,
    begin: u64,
    end: u64,
    scope: u32,
}

impl Unit {
    /// # Errors
    /// What is wrong with it, or [`Error::Io`] where it is beyond a bound.
    pub(super) fn of(
        dwarf: &Dwarf<Cursor<'_>>,
        offset: DebugInfoOffset,
        meter: &Meter,
    ) -> Result<Self> {
        let header = dwarf.unit_header(offset)?;
        if header.length_including_self() > MAX_UNIT_BYTES {
            return Err(Error::Io);
        }
        let before = meter.left();
        let abbreviations = Arc::new(super::index::abbreviations(dwarf, &header)?);
        let abbreviation_bytes = usize::try_from(before - meter.left()).unwrap_or(usize::MAX);
        let root = Root::of(dwarf, header, Arc::clone(&abbreviations), meter)?;
        let mut scopes = Scopes::default();
        scopes.read(UnitRef::new(dwarf, &root.unit), meter)?;
        scopes.ranges.sort_unstable();
        let (rows, files) = match root.lines {
            Some(at) => line_table(dwarf, &root.unit, at, &scopes.scopes)?,
            None => (Vec::new(), HashMap::new()),
        };
        Ok(Self {
            rows: rows.into_boxed_slice(),
            scopes: scopes.scopes.into_boxed_slice(),
            ranges: scopes.ranges.into_boxed_slice(),
            files,
            offset,
            abbreviations,
            abbreviation_bytes,
            names: HashMap::new(),
            name_bytes: 0,
        })
    }

    /// The functions at an address, innermost first; none where neither function nor line is known.
    pub(super) fn spots(&self, address: u64) -> Vec<Spot> {
        let row = self.row(address);
        let (mut file, mut line) = row.map_or((NONE, 0), |row| (row.file, row.line));
        let known = |file| (file != NONE).then_some(file);
        let chain = self.chain(address);
        if chain.is_empty() {
            let alone = Spot { function: None, file: known(file), line };
            return row.map(|_| alone).into_iter().collect();
        }
        let mut spots = Vec::with_capacity(chain.len());
        for scope in chain.into_iter().rev() {
            let function = Some(UnitOffset(scope.entry as usize));
            spots.push(Spot { function, file: known(file), line });
            (file, line) = (scope.call_file, scope.call_line);
        }
        spots
    }

    /// The path of a source file.
    pub(super) fn file(&self, number: u32) -> Option<&Arc<str>> {
        self.files.get(&number)
    }

    /// Keeps a name.
    pub(super) fn keep(&mut self, entry: UnitOffset, name: Option<Name>) {
        self.name_bytes += 96 + name.as_ref().map_or(0, Name::bytes);
        self.names.insert(entry, name);
    }

    /// Bytes of memory that this takes, about: an abbreviation has 5 bytes and takes 130.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.rows)
            + size_of_val(&*self.scopes)
            + size_of_val(&*self.ranges)
            + self.files.values().map(|path| path.len() + 48).sum::<usize>()
            + self.abbreviation_bytes.saturating_mul(26)
            + self.name_bytes
    }

    fn row(&self, address: u64) -> Option<Row> {
        let behind = self.rows.partition_point(|row| row.address <= address);
        self.rows.get(behind.checked_sub(1)?).copied().filter(|row| row.file != NONE)
    }

    /// The function at an address and what was inlined there, outermost first.
    fn chain(&self, address: u64) -> Vec<Scope> {
        let mut chain = Vec::new();
        let mut parent = NONE;
        for depth in 0..MAX_DEPTH {
            let is_before = |it: &ScopeRange| (it.depth, it.begin) <= (depth, address);
            let behind = self.ranges.partition_point(is_before);
            let last = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
            let Some(range) = last.filter(|it| it.depth == depth && address < it.end) else {
                break;
            };
            let scope = self.scopes.get(range.scope as usize).copied();
            let Some(scope) = scope.filter(|scope| scope.parent == parent) else { break };
            chain.push(scope);
            parent = range.scope;
        }
        chain
    }
}

/// The functions of a unit while its entries are read.
#[derive(Default)]
struct Scopes {
    scopes: Vec<Scope>,
    ranges: Vec<ScopeRange>,
    /// Those around the entry that is read: how deep their entries lie, and how deep they are inlined.
    around: Vec<(isize, u32, u32)>,
}

impl Scopes {
    fn read(&mut self, unit: UnitRef<'_, Cursor<'_>>, meter: &Meter) -> Result<()> {
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (entry, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let specs = abbreviation.attributes();
            meter.charge(specs.len())?;
            self.around.truncate(self.around.partition_point(|(around, ..)| *around < depth));
            let (parent, inlined) = match (abbreviation.tag(), self.around.last()) {
                (constants::DW_TAG_subprogram, _) => (NONE, 0),
                (constants::DW_TAG_inlined_subroutine, Some((_, scope, depth))) => {
                    (*scope, depth + 1)
                }
                _ => {
                    entries.skip_attributes(specs)?;
                    continue;
                }
            };
            if self.scopes.len() >= MAX_SCOPES {
                return Err(Error::Io);
            }
            let number = u32::try_from(self.scopes.len()).unwrap_or(NONE);
            let code = Code::read(unit, &mut entries, specs)?;
            let entry = u32::try_from(entry.0).map_err(|_too_large| Error::Io)?;
            let Code { call_file, call_line, .. } = code;
            self.scopes.push(Scope { entry, parent, call_file, call_line });
            self.around.push((depth, number, inlined));
            if inlined < MAX_DEPTH {
                visit_ranges(unit, code.bounds, code.ranges, |begin, end| {
                    if self.ranges.len() >= MAX_RANGES {
                        return Err(Error::Io);
                    }
                    self.ranges.push(ScopeRange { depth: inlined, begin, end, scope: number });
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

/// What an entry says of its code.
struct Code {
    bounds: (Option<u64>, Option<u64>),
    ranges: Option<RangeListsOffset>,
    call_file: u32,
    call_line: u32,
}

impl Code {
    fn read<'d>(
        unit: UnitRef<'_, Cursor<'d>>,
        entries: &mut EntriesRaw<'_, Cursor<'d>>,
        specs: &[gimli::AttributeSpecification],
    ) -> Result<Self> {
        let (mut low, mut high, mut ranges) = (None, None, None);
        let (mut call_file, mut call_line) = (NONE, 0);
        for spec in specs {
            let attribute = entries.read_attribute(*spec)?;
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_low_pc, value) => low = Some(value),
                (constants::DW_AT_high_pc, value) => high = Some(value),
                (constants::DW_AT_ranges, value) => ranges = Some(value),
                (constants::DW_AT_call_file, AttributeValue::FileIndex(number)) => {
                    call_file = u32::try_from(number).unwrap_or(NONE);
                }
                (constants::DW_AT_call_line, value) => {
                    let line = value.udata_value().and_then(|line| u32::try_from(line).ok());
                    call_line = line.unwrap_or(0);
                }
                _ => {}
            }
        }
        let ranges = ranges.and_then(|value| unit.attr_ranges_offset(value).ok().flatten());
        let bounds = bounds(unit, low, high).unwrap_or_default();
        Ok(Self { bounds, ranges, call_file, call_line })
    }
}

/// The rows of a unit, by address, and the paths of the files that they and the scopes tell of.
fn line_table(
    dwarf: &Dwarf<Cursor<'_>>,
    unit: &DwarfUnit<Cursor<'_>>,
    at: DebugLineOffset,
    scopes: &[Scope],
) -> Result<(Vec<Row>, Files)> {
    let section = dwarf.debug_line.reader();
    if !has_plain_header(section, at).unwrap_or(false) {
        return Err(Error::Io);
    }
    let address_size = unit.header.address_size();
    let program = dwarf.debug_line.program(at, address_size, unit.comp_dir, None)?;
    // What begins there, with where its rows are.
    let (mut rows, mut sequences) = (Vec::<Row>::new(), Vec::new());
    let mut first = 0;
    let mut table = program.rows();
    while let Ok(Some((_, row))) = table.next_row() {
        let address = row.address();
        if row.end_sequence() {
            let begin = rows.get(first).map_or(address, |row| row.address);
            rows.push(Row { address, file: NONE, line: 0 });
            // The linker leaves those of functions that it dropped, at address 0.
            if begin != 0 && begin < address {
                sequences.push((begin, address, first..rows.len()));
            } else {
                rows.truncate(first);
            }
            first = rows.len();
            continue;
        }
        if rows.len() >= MAX_ROWS {
            return Err(Error::Io);
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
        let file = u32::try_from(row.file_index()).unwrap_or(NONE);
        let row = Row { address, file, line };
        let inside = rows.get_mut(first..).unwrap_or_default();
        match inside.last_mut().filter(|last| last.address == address) {
            Some(last) => *last = row,
            None => rows.push(row),
        }
    }
    sequences.sort_unstable_by_key(|(begin, end, rows)| (*begin, *end, rows.start));
    let mut sorted: Vec<Row> = Vec::with_capacity(rows.len());
    for (begin, _, range) in sequences {
        let is_behind = sorted.last().is_none_or(|last| last.address <= begin);
        let sequence = rows.get(range).unwrap_or_default();
        // Compilers write addresses in order, and no two lines for one address.
        if is_behind && sequence.is_sorted_by_key(|row| row.address) {
            sorted.extend(sequence);
        }
    }
    let called = scopes.iter().map(|scope| scope.call_file);
    let mut numbers: Vec<u32> = sorted.iter().map(|row| row.file).chain(called).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let unit = UnitRef::new(dwarf, unit);
    let named = numbers
        .into_iter()
        .filter(|number| *number != NONE)
        .filter_map(|number| Some((number, path(unit, table.header(), number)?.into())));
    let files = named.collect();
    Ok((sorted, files))
}

/// Whether the head of a line program is one whose names of files have room. Says where it is: length, version, sizes of
/// addresses and segments (from version 5), length of the head.
fn has_plain_header(section: &Cursor<'_>, at: DebugLineOffset) -> Result<bool> {
    let mut head = *section;
    head.skip(at.0)?;
    let (len, format) = head.read_initial_length()?;
    if head.read_u16()? >= 5 {
        head.read_u16()?;
    }
    let head_bytes = head.read_word(format)?;
    Ok(len <= MAX_UNIT_BYTES && head_bytes <= MAX_LINE_HEADER_BYTES)
}

/// The whole path of a source file, as the compiler was told it.
fn path<'d>(
    unit: UnitRef<'_, Cursor<'d>>,
    header: &LineProgramHeader<Cursor<'d>>,
    number: u32,
) -> Option<String> {
    let text = |value: AttributeValue<Cursor<'d>>| {
        let text = unit.attr_string(value).ok().filter(|text| text.len() <= MAX_PATH_BYTES)?;
        text.to_string_lossy().ok().map(std::borrow::Cow::into_owned)
    };
    let file = header.file(u64::from(number))?;
    let mut path = text(file.path_name()).filter(|name| !name.is_empty())?;
    // Before version 5 the folder of the compilation is the number 0 and stands nowhere; since then it stands there.
    let folder = header.directory(file.directory_index()).and_then(text);
    let compiled_in = unit.comp_dir.map(AttributeValue::String).and_then(text);
    for folder in [folder, compiled_in].into_iter().flatten() {
        if path.starts_with('/') {
            break;
        }
        if !folder.is_empty() && folder != path {
            path = format!("{}/{path}", folder.trim_end_matches('/'));
        }
    }
    (path.len() <= MAX_PATH_BYTES).then_some(path)
}
