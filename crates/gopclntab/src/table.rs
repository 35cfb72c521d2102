//! The table's head, and its functions by address.
//!
//! | head | bytes | |
//! |---|---|---|
//! | magic | 4 | `0xfffffffa` of Go 1.16, `0xfffffff0` of 1.18, `0xfffffff1` of 1.20 |
//! | nothing | 2 | |
//! | quantum | 1 | what instructions are multiples of |
//! | pointer | 1 | 8 |
//! | functions, files | 16 | how many |
//! | text | 8 | from 1.18 on: the address that functions count from; 0 from 1.26 on |
//! | names, units, files, tables, functions | 40 | where they begin, from the head on |
//!
//! Functions: for each its address and where it is described, then the end of the last one; numbers of 8 bytes, from 1.18 on of 4.

use object::ReadRef;

use crate::elf::Module;

/// The most functions that are read of a program. Kubernetes' have 120,000.
pub const MAX_FUNCTIONS: usize = 4 << 20;

/// The longest name that is read.
const MAX_NAME_BYTES: u64 = 4096;

/// Bytes of the longest head.
pub(crate) const HEADER_BYTES: usize = 72;

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It ends before what its head tells of.
    #[error("the table of functions is cut")]
    Cut,
    /// It has more than [`MAX_FUNCTIONS`].
    #[error("more than {MAX_FUNCTIONS} functions")]
    TooMany,
}

/// Which format, in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    Go1_16,
    Go1_18,
    Go1_20,
}

/// What the head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) version: Version,
    pub(crate) quantum: u64,
    pub(crate) functions: u64,
    /// Where functions count from; `None` when it does not say.
    pub(crate) text: Option<u64>,
    /// Where these begin, from the head on.
    pub(crate) names: u64,
    pub(crate) units: u64,
    pub(crate) files: u64,
    pub(crate) tables: u64,
    pub(crate) described: u64,
}

impl Shape {
    /// `None` when it is no head.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let version = match u32::from_ne_bytes(*magic) {
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 => Version::Go1_18,
            0xffff_fff1 => Version::Go1_20,
            _ => return None,
        };
        let ([0, 0, quantum @ (1 | 2 | 4), 8], mut rest) = rest.split_first_chunk()? else {
            return None;
        };
        let mut word = || {
            let (word, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u64::from_ne_bytes(*word))
        };
        let (functions, _files) = (word()?, word()?);
        let text = if version >= Version::Go1_18 { word()? } else { 0 };
        Some(Self {
            version,
            quantum: u64::from(*quantum),
            functions,
            text: Some(text).filter(|text| *text != 0),
            names: word()?,
            units: word()?,
            files: word()?,
            tables: word()?,
            described: word()?,
        })
    }

    pub(crate) fn has_start_lines(&self) -> bool {
        self.version >= Version::Go1_20
    }
}

/// The functions of a program.
#[derive(Debug, Clone)]
pub struct Table {
    pub(crate) shape: Shape,
    /// Where in the file the head lies.
    pub(crate) file_offset: u64,
    /// The address that functions count from, before the loader moves it.
    pub(crate) text: u64,
    /// See [`Module`].
    pub(crate) gofunc: Option<u64>,
    pub(crate) loaded: Vec<(u64, u64, u64)>,
    /// Where each begins, and where it is described; rising.
    rows: Vec<(u32, u32)>,
    /// Where the last one ends.
    end: u32,
}

/// A function, as far as the table itself tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its first address, before the loader moves it.
    pub begin: u64,
    /// The first address of the next one.
    pub end: u64,
    /// Where it is described.
    pub(crate) described: u32,
}

impl Table {
    /// The functions of a program.
    ///
    /// # Errors
    /// [`TableError`]
    pub fn of(module: &Module<'_>) -> Result<Self, TableError> {
        let shape = Shape::of(module.bytes).ok_or(TableError::Cut)?;
        let count = usize::try_from(shape.functions).map_err(|_huge| TableError::TooMany)?;
        if count > MAX_FUNCTIONS {
            return Err(TableError::TooMany);
        }
        let begin = usize::try_from(shape.described).map_err(|_huge| TableError::Cut)?;
        let list = module.bytes.get(begin..).ok_or(TableError::Cut)?;
        let number_bytes = if shape.version == Version::Go1_16 { 8 } else { 4 };
        let list = list.get(..(2 * count + 1) * number_bytes).ok_or(TableError::Cut)?;
        let mut text = module.text;
        let mut numbers = list.chunks_exact(number_bytes).map(|bytes| match *bytes {
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        });
        let is_absolute = shape.version == Version::Go1_16;
        if is_absolute {
            text = numbers.clone().next().unwrap_or(0);
        }
        let from_text = |number: u64| {
            let number = if is_absolute { number.checked_sub(text)? } else { number };
            u32::try_from(number).ok()
        };
        let mut rows: Vec<(u32, u32)> = Vec::with_capacity(count);
        while let Some(first) = numbers.next() {
            let Some(described) = numbers.next() else {
                let end = from_text(first).ok_or(TableError::Cut)?;
                rows.sort_by_key(|row| row.0);
                rows.dedup_by_key(|row| row.0);
                let Module { file_offset, gofunc, .. } = *module;
                let loaded = module.loaded.clone();
                return Ok(Self { shape, file_offset, text, gofunc, loaded, rows, end });
            };
            if let (Some(begin), Ok(described)) = (from_text(first), u32::try_from(described)) {
                rows.push((begin, described));
            }
        }
        Err(TableError::Cut)
    }

    /// The function that an address is of.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Function> {
        let at = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let behind = self.rows.partition_point(|row| row.0 <= at);
        self.function(behind.checked_sub(1)?).filter(|it| address < it.end)
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function> {
        (0..self.rows.len()).filter_map(|at| self.function(at))
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn function(&self, at: usize) -> Option<Function> {
        let (begin, described) = *self.rows.get(at)?;
        let end = self.rows.get(at + 1).map_or(self.end, |next| next.0);
        let address = |at: u32| self.text.checked_add(u64::from(at));
        Some(Function { begin: address(begin)?, end: address(end)?, described })
    }
}

/// The table's bytes: those of the file, or of its section alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'t, R> {
    pub(crate) table: &'t Table,
    pub(crate) data: R,
    /// Where in `data` the head lies.
    pub(crate) base: u64,
}

/// What a function's description says. Numbers are of 4 bytes, in this order; before 1.18 its address takes 8.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described {
    pub(crate) name: u32,
    pub(crate) depths: u32,
    pub(crate) files: u32,
    pub(crate) lines: u32,
    pub(crate) unit: u32,
    pub(crate) start_line: u32,
    pub(crate) flags: u8,
    /// How many offsets of tables follow, and of data behind them.
    pub(crate) tables: u32,
    pub(crate) data: u8,
    /// Where they begin, from the head on.
    pub(crate) behind: u64,
}

impl<'a, R: ReadRef<'a>> View<'_, R> {
    pub(crate) fn bytes(&self, begin: u64, len: u64) -> Option<&'a [u8]> {
        self.data.read_bytes_at(self.base.checked_add(begin)?, len).ok()
    }

    pub(crate) fn u32(&self, begin: u64) -> Option<u32> {
        self.bytes(begin, 4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    /// Text up to a NUL, that begins so far behind the head.
    pub(crate) fn text(&self, begin: u64) -> Option<&'a [u8]> {
        let begin = self.base.checked_add(begin)?;
        let range = begin..begin.checked_add(MAX_NAME_BYTES)?.min(self.data.len().ok()?);
        self.data.read_bytes_at_until(range, 0).ok()
    }

    pub(crate) fn name(&self, name: u32) -> Option<&'a [u8]> {
        self.text(self.table.shape.names.checked_add(name.into())?)
    }

    pub(crate) fn described(&self, function: &Function) -> Option<Described> {
        let version = self.table.shape.version;
        let begin = self.table.shape.described.checked_add(function.described.into())?;
        let behind_address = if version == Version::Go1_16 { 8 } else { 4 };
        let len = behind_address + if version >= Version::Go1_20 { 40 } else { 36 };
        let bytes = self.bytes(begin, len)?;
        let mut rest = bytes.get(usize::try_from(behind_address).ok()?..)?;
        let mut number = || {
            let (number, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u32::from_ne_bytes(*number))
        };
        let (name, _arguments, _deferred) = (number()?, number()?, number()?);
        let (depths, files, lines) = (number()?, number()?, number()?);
        let (tables, unit) = (number()?, number()?);
        let start_line = if version >= Version::Go1_20 { number()? } else { 0 };
        let [_kind, flags, _nothing, data] = number()?.to_ne_bytes();
        let behind = begin.checked_add(len)?;
        Some(Described {
            name,
            depths,
            files,
            lines,
            unit,
            start_line,
            flags,
            tables,
            data,
            behind,
        })
    }
}
