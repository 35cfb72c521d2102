//! The functions and source lines of an address.
//!
//! Calls that were inlined are a tree: an entry for each, found by the value of a table at the address. Until 1.19 an entry
//! is its parent (2), kind (1), nothing (1), file, line of the call, name, instruction of the call (4 each). From 1.20 on it is kind (1), nothing (3), name,
//! instruction of the call, line of the function's begin (4 each), and file and line of the call are those of that instruction.

use object::ReadRef;

use crate::stack::Pairs;
use crate::table::{Described, Function, Table, Version, View};

/// `PCDATA_InlTreeIndex` and `FUNCDATA_InlTree` of `internal/abi/symtab.go`.
const INLINED_TABLE: u32 = 2;
const INLINED_DATA: u8 = 3;
/// The most calls that were inlined into each other.
const MAX_INLINED: usize = 64;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoFrame {
    /// Its name: package and function.
    pub name: String,
    /// The source file; empty when not known.
    pub file: String,
    /// The line, from 1; 0 when not known.
    pub line: u32,
    /// The line on which it begins; 0 before Go 1.20.
    pub start_line: u32,
}

/// A call that was inlined.
struct Inlined {
    name: u32,
    /// The instruction of the call, from the function's begin on.
    call: u32,
    start_line: u32,
    /// Until 1.19: file and line of the call, and the one that it was inlined into.
    told: Option<(i32, i32, i32)>,
}

impl Table {
    /// The functions of an address, the innermost first: those that were inlined, then the one whose code it is. `file` is what the
    /// table was found in. None when the address is of no function of Go.
    #[must_use]
    pub fn frames<'a, R: ReadRef<'a>>(&self, file: R, address: u64) -> Vec<GoFrame> {
        let Some(function) = self.find(address) else { return Vec::new() };
        let view = View { table: self, data: file, base: self.file_offset };
        view.frames(&function, address).unwrap_or_default()
    }
}

impl<'a, R: ReadRef<'a>> View<'_, R> {
    fn frames(&self, function: &Function, address: u64) -> Option<Vec<GoFrame>> {
        let described = self.described(function)?;
        // Behind its code a function has padding, which is of none.
        if described.depths != 0 {
            self.value(described.depths, function, address)?;
        }
        let mut frames = Vec::new();
        let mut at = address;
        let mut file = self.value(described.files, function, at);
        let mut line = self.value(described.lines, function, at);
        let mut inlined = self.inlined_at(&described, function, at);
        while let Some(call) = inlined.and_then(|index| self.inlined(&described, index)) {
            if frames.len() >= MAX_INLINED {
                break;
            }
            frames.push(self.frame(&described, call.name, file, line, call.start_line)?);
            at = function.begin.checked_add(call.call.into())?;
            (file, line, inlined) = match call.told {
                Some((file, line, parent)) => (Some(file), Some(line), Some(parent)),
                None => (
                    self.value(described.files, function, at),
                    self.value(described.lines, function, at),
                    self.inlined_at(&described, function, at),
                ),
            };
        }
        frames.push(self.frame(&described, described.name, file, line, described.start_line)?);
        Some(frames)
    }

    fn frame(
        &self,
        described: &Described,
        name: u32,
        file: Option<i32>,
        line: Option<i32>,
        start_line: u32,
    ) -> Option<GoFrame> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = self.name(name).filter(|name| !name.is_empty())?;
        let file = file.and_then(|file| self.file(described, file));
        let start_line = if start_line.cast_signed() > 0 { start_line } else { 0 };
        Some(GoFrame {
            name: text(name),
            file: file.map(text).unwrap_or_default(),
            line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
            start_line,
        })
    }

    /// A file by its number in a package.
    fn file(&self, described: &Described, number: i32) -> Option<&'a [u8]> {
        let number = described.unit.checked_add(u32::try_from(number).ok()?)?;
        let offset = self.u32(self.table.shape.units.checked_add(u64::from(number) * 4)?)?;
        let is_known = offset != u32::MAX;
        is_known.then(|| self.text(self.table.shape.files.checked_add(offset.into())?)).flatten()
    }

    /// The value of a table at an address.
    fn value(&self, table: u32, function: &Function, address: u64) -> Option<i32> {
        if table == 0 {
            return None;
        }
        let begin = self.base.checked_add(self.table.shape.tables)?.checked_add(table.into())?;
        let mut pairs = Pairs::new(self.data, begin, function.begin, self.table.shape.quantum);
        pairs.find(|(code, _)| address < code.end).map(|(_, value)| value)
    }

    fn inlined_at(&self, described: &Described, function: &Function, address: u64) -> Option<i32> {
        if described.tables <= INLINED_TABLE {
            return None;
        }
        let table = self.u32(described.behind.checked_add(u64::from(INLINED_TABLE) * 4)?)?;
        self.value(table, function, address)
    }

    fn inlined(&self, described: &Described, index: i32) -> Option<Inlined> {
        let index = u64::try_from(index).ok()?;
        if described.data <= INLINED_DATA {
            return None;
        }
        let version = self.table.shape.version;
        let data = described.behind.checked_add(u64::from(described.tables) * 4)?;
        let tree = if version == Version::Go1_16 {
            let data = data.checked_next_multiple_of(8)? + u64::from(INLINED_DATA) * 8;
            let address = u64::from_ne_bytes(self.bytes(data, 8)?.try_into().ok()?);
            let mut loaded = self.table.loaded.iter();
            let (begin, place, _) =
                loaded.find(|(begin, _, len)| address >= *begin && address - begin < *len)?;
            place.checked_add(address - begin)?
        } else {
            let offset = self.u32(data.checked_add(u64::from(INLINED_DATA) * 4)?)?;
            if offset == u32::MAX {
                return None;
            }
            self.table.gofunc?.checked_add(offset.into())?
        };
        let entry_bytes = if version >= Version::Go1_20 { 16 } else { 20 };
        let at = tree.checked_add(index * entry_bytes)?;
        let entry = self.data.read_bytes_at(at, entry_bytes).ok()?;
        let number = |at: usize| {
            let bytes = entry.get(at * 4..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        Some(if version >= Version::Go1_20 {
            Inlined { name: number(1)?, call: number(2)?, start_line: number(3)?, told: None }
        } else {
            let parent = i16::from_ne_bytes(*entry.first_chunk()?);
            let (file, line) = (number(1)?.cast_signed(), number(2)?.cast_signed());
            let told = Some((file, line, i32::from(parent)));
            Inlined { name: number(3)?, call: number(4)?, start_line: 0, told }
        })
    }
}
