//! Source files and lines of an address, and the functions that were inlined there.
//!
//! ```text
//! .debug_info  unit │ root: its stretches of code ──▶ Index, once for each file
//!                   │ functions, those inlined, where they were called ─┐
//! .debug_line  rows: address ─▶ file, line ─────────────────────────────┴▶ Unit, when one of its addresses is asked for
//! .debug_str …  names, when one is asked for
//! ```
//!
//! Nothing of a file stays in memory but the index, units that were asked for as long as there is room for them, and sections that are
//! compressed. What is asked for is read again when it was dropped, and an answer depends on file and address alone: a bound is one
//! on a unit, whatever was read before. gimli reads the forms of DWARF; `addr2line`, its companion, keeps all that it has ever read and
//! lets a file of some megabytes make it gigabytes.
//!
//! Left out: split debug information (`.dwo`, `.dwp`), of which lines are told and inlined functions not; `.zdebug_*` sections, the form
//! of compression before 2015; units without any range of addresses.

mod cursor;
mod index;
mod names;
mod sections;
mod unit;

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{Dwarf, UnitOffset};
use object::ReadRef;

pub use sections::MAX_INFLATED_BYTES;

use cursor::{Bytes, Cursor, File, Meter};
use index::{Index, Root};
use names::Name;
use sections::{LONG_PIECE, SHORT_PIECE, Sections};
use unit::Unit;

/// Bytes that may be read for a file's index, and for one unit, whatever else is read: a second's work, or two.
const INDEX_WORK: u64 = 512 << 20;
const UNIT_WORK: u64 = 128 << 20;
const NAME_WORK: u64 = 4 << 20;

/// Memory for units that were read, of one file.
pub const UNITS_ROOM: usize = 32 << 20;

/// Why a file, or one of its units, tells nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinesError {
    /// Its first bytes are those of something else.
    #[error("not an ELF file of 64 bits in this machine's byte order")]
    NotElf,
    /// It has no debug information.
    #[error("no debug information")]
    None,
    /// A part of it does not lie inside the file, or is not what it should be.
    #[error("{part}: {why}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A part of it is beyond what is read.
    #[error("{part} is too large")]
    TooLarge {
        /// Which part.
        part: &'static str,
    },
}

/// A function's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// As it was written: [`readable`](crate::readable) of the other.
    pub readable: String,
    /// As the linker knows it, where the language has such names.
    pub linkage: String,
}

/// A function at an address: the one whose code it is, or one that was inlined into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// `None` where only the line is known, as of code in an assembler's language.
    pub function: Option<Arc<FunctionName>>,
    /// Path of the source file, as the compiler was told it, below the folder that it ran in.
    pub file: Option<Arc<str>>,
    /// The line in it, from 1: of the instruction, or of the call of the function that was inlined. 0 when not known.
    pub line: u32,
    /// The line at which the function begins; 0 when that is not known or in another file.
    pub start_line: u32,
}

/// What the debug information of a file says of its addresses.
#[derive(Debug)]
pub struct Lines {
    sections: Sections,
    /// Of the file whose entries several files share (`.gnu_debugaltlink`).
    shared: Option<(Sections, Index)>,
    index: Index,
    units: HashMap<u32, Known>,
    /// Of all of them.
    unit_bytes: usize,
    /// Counts what was asked for.
    clock: u64,
    room: usize,
}

/// A unit that was read.
#[derive(Debug)]
struct Known {
    unit: Result<Box<Unit>, LinesError>,
    bytes: usize,
    used: u64,
}

impl Lines {
    /// Finds the units of a file with debug information, which need not be the one with the code.
    ///
    /// `shared` is the file that it names as the one that it shares entries with, if it does.
    ///
    /// # Errors
    /// [`LinesError`]
    pub fn of<'a, R: ReadRef<'a>>(file: R, shared: Option<R>) -> Result<Self, LinesError> {
        Self::with_room(file, shared, UNITS_ROOM)
    }

    /// As [`of`](Self::of), with so many bytes of memory for units that were read in place of [`UNITS_ROOM`].
    ///
    /// # Errors
    /// [`LinesError`]
    pub fn with_room<'a, R: ReadRef<'a>>(
        file: R,
        shared: Option<R>,
        room: usize,
    ) -> Result<Self, LinesError> {
        let sections = Sections::of(file)?;
        let index = index_of(&sections, &File::new(file));
        let shared = shared.and_then(|file| {
            let sections = Sections::of(file).ok()?;
            let index = index_of(&sections, &File::new(file));
            Some((sections, index))
        });
        let units = HashMap::new();
        Ok(Self { sections, shared, index, units, unit_bytes: 0, clock: 0, room })
    }

    /// The functions at an address of the file, before the loader moves it: the innermost of those inlined first, the one whose code it
    /// is last. None where the file says nothing of it.
    ///
    /// The files are those that [`of`](Self::of) was given.
    ///
    /// # Errors
    /// [`LinesError`] when the unit with the address is malformed or too large.
    pub fn find<'a, R: ReadRef<'a>>(
        &mut self,
        file: R,
        shared: Option<R>,
        address: u64,
    ) -> Result<Vec<SourceLine>, LinesError> {
        let (file, shared) = (File::new(file), shared.map(File::new));
        let shared = shared.as_ref().map(|file| file as &dyn Bytes);
        let mut failed = None;
        for number in self.index.candidates(address) {
            match self.lines_of(number, &file, shared, address) {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Ok(lines),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Vec::new()), Err)
    }

    /// Bytes of memory that this takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |(it, index)| it.bytes() + index.bytes());
        self.sections.bytes() + self.index.bytes() + shared + self.unit_bytes
    }

    fn lines_of(
        &mut self,
        number: u32,
        file: &dyn Bytes,
        shared: Option<&dyn Bytes>,
        address: u64,
    ) -> Result<Vec<SourceLine>, LinesError> {
        self.clock += 1;
        let mut known = match self.units.remove(&number) {
            Some(known) => {
                self.unit_bytes -= known.bytes;
                known
            }
            None => {
                let unit = self.read(number, file).map(Box::new);
                Known { unit, bytes: 0, used: 0 }
            }
        };
        let answer = match &mut known.unit {
            Ok(unit) => Ok(self.answer(unit, file, shared, address)),
            Err(error) => Err(error.clone()),
        };
        known.used = self.clock;
        known.bytes = 64 + known.unit.as_ref().map_or(0, |unit| unit.bytes());
        self.unit_bytes += known.bytes;
        self.units.insert(number, known);
        self.make_room(number);
        answer
    }

    fn read(&self, number: u32, file: &dyn Bytes) -> Result<Unit, LinesError> {
        let meter = Meter::new(UNIT_WORK);
        let dwarf = self.sections.dwarf(file, LONG_PIECE, &meter);
        let malformed = |why| LinesError::Malformed { part: "unit", why };
        let offset = self.index.unit(number).ok_or_else(|| malformed("no such".to_owned()))?;
        Unit::of(&dwarf, offset, &meter).map_err(|error| match error {
            gimli::Error::Io => LinesError::TooLarge { part: "unit" },
            other => malformed(other.to_string()),
        })
    }

    fn answer(
        &self,
        unit: &mut Unit,
        file: &dyn Bytes,
        shared: Option<&dyn Bytes>,
        address: u64,
    ) -> Vec<SourceLine> {
        let spots = unit.spots(address);
        spots
            .into_iter()
            .map(|spot| {
                let name = spot.function.and_then(|entry| self.name(unit, file, shared, entry));
                let declared = name.as_ref().and_then(|name| name.declared);
                let (_, start_line) =
                    declared.filter(|(file, _)| spot.file == Some(*file)).unwrap_or_default();
                SourceLine {
                    function: name.map(|name| name.function),
                    file: spot.file.and_then(|number| unit.file(number)).map(Arc::clone),
                    line: spot.line,
                    start_line,
                }
            })
            .collect()
    }

    #[expect(clippy::arc_with_non_send_sync, reason = "gimli asks for one")]
    fn name(
        &self,
        unit: &mut Unit,
        file: &dyn Bytes,
        shared: Option<&dyn Bytes>,
        entry: UnitOffset,
    ) -> Option<Name> {
        if let Some(known) = unit.names.get(&entry) {
            return known.clone();
        }
        let meter = Meter::new(NAME_WORK);
        let mut dwarf = self.sections.dwarf(file, SHORT_PIECE, &meter);
        let of_shared = self.shared.as_ref().zip(shared);
        let index_of_shared = of_shared.map(|((_, index), _)| index);
        let of_shared =
            of_shared.map(|((it, _), file)| Arc::new(it.dwarf(file, SHORT_PIECE, &meter)));
        dwarf.sup.clone_from(&of_shared);
        let files = names::Files {
            main: (&dwarf, &self.index),
            shared: of_shared.as_deref().zip(index_of_shared),
            meter: &meter,
        };
        let found = home(&dwarf, unit, &meter).and_then(|home| names::name(&files, home, entry));
        // A broken name is none: the function is told by its line.
        let name = found.ok().flatten();
        unit.keep(entry, name.clone());
        name
    }

    /// Drops units, those that were not asked for the longest first, until there is room; not the one that was asked for last.
    fn make_room(&mut self, last: u32) {
        while self.unit_bytes > self.room {
            let others = self.units.iter().filter(|(number, _)| **number != last);
            let oldest = others.min_by_key(|(_, known)| known.used).map(|(number, _)| *number);
            let Some(dropped) = oldest.and_then(|number| self.units.remove(&number)) else { break };
            self.unit_bytes -= dropped.bytes;
        }
    }
}

fn index_of(sections: &Sections, file: &dyn Bytes) -> Index {
    let meter = Meter::new(INDEX_WORK);
    Index::of(&sections.dwarf(file, SHORT_PIECE, &meter), &meter)
}

/// The first entry of a unit that was read.
fn home<'d>(dwarf: &Dwarf<Cursor<'d>>, unit: &Unit, meter: &Meter) -> gimli::Result<Root<'d>> {
    let header = dwarf.unit_header(unit.offset)?;
    Root::of(dwarf, header, Arc::clone(&unit.abbreviations), meter)
}
