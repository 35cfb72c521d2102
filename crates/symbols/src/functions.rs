//! Functions of an executable file.

use std::borrow::Cow;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{FileKind, NativeEndian, ReadRef, StringTable};

/// The most functions that are kept of a file; Chromium has 800,000.
pub const MAX_FUNCTIONS: usize = 4 << 20;

/// The largest table of symbols that is read, 24 bytes for each: files may claim more than they have.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// The longest name that is kept.
const MAX_NAME_BYTES: usize = 16 << 10;

/// Why a file tells nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionsError {
    /// Its first bytes are those of something else.
    #[error("not an ELF file of 64 bits in this machine's byte order")]
    NotElf,
    /// A part of it does not lie inside the file.
    #[error("ELF {part}: {why}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// It has more than [`MAX_FUNCTIONS`].
    #[error("more than {MAX_FUNCTIONS} functions")]
    TooMany,
}

/// A function of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name as the linker knows it.
    pub name: Cow<'a, str>,
    /// Its first address, before the loader moves it.
    pub address: u64,
}

/// Functions by address, before the loader moves them: 16 bytes for each. Their names stay in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    rows: Vec<Row>,
    /// Where in the file the names of [`TABLES`] begin, and how many bytes they have.
    strings: [(u64, u64); 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    address: u64,
    /// 0: up to the next one, as of code that was written by hand.
    bytes: u32,
    /// Where among the names of its table it begins; the highest bit says which of [`TABLES`] that is.
    name: u32,
}

/// What is read: the first is there where it was not stripped, the second is for what a file exports.
const TABLES: [u32; 2] = [elf::SHT_SYMTAB, elf::SHT_DYNSYM];

/// Of [`Row::name`].
const SECOND_TABLE: u32 = 1 << 31;

/// A symbol on its way into the table.
struct Found<'a> {
    address: u64,
    bytes: u64,
    /// Of several names of one function, the lowest: global ones before weak and local ones.
    rank: u8,
    name: &'a [u8],
    /// As in [`Row`].
    name_at: u32,
}

type Header = elf::FileHeader64<NativeEndian>;

impl Functions {
    /// Those that a file's symbol tables name: `.symtab` where it was not stripped, `.dynsym` for what it exports.
    ///
    /// # Errors
    /// [`FunctionsError`]
    pub fn of<'a, R: ReadRef<'a>>(file: R) -> Result<Self, FunctionsError> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return Err(FunctionsError::NotElf);
        }
        let malformed = |part| {
            move |error: object::Error| FunctionsError::Malformed { part, why: error.to_string() }
        };
        let header = Header::parse(file).map_err(malformed("header"))?;
        let endian = header.endian().map_err(|_other_order| FunctionsError::NotElf)?;
        let sections = header.sections(endian, file).map_err(malformed("section headers"))?;
        let mut found = Vec::new();
        let mut functions = Self::default();
        let bits = [0, SECOND_TABLE];
        for ((kind, bit), strings) in TABLES.into_iter().zip(bits).zip(&mut functions.strings) {
            *strings = collect(&sections, (kind, bit), endian, file, &mut found)?;
        }
        found.sort_by(|a, b| {
            let key = |it: &Found<'_>| (it.address, it.bytes == 0, it.rank);
            key(a)
                .cmp(&key(b))
                .then_with(|| a.name.len().cmp(&b.name.len()))
                .then_with(|| a.name.cmp(b.name))
        });
        found.dedup_by_key(|it| it.address);
        let row = |it: Found<'_>| Row {
            address: it.address,
            bytes: u32::try_from(it.bytes).unwrap_or(u32::MAX),
            name: it.name_at,
        };
        functions.rows = found.into_iter().map(row).collect();
        Ok(functions)
    }

    /// The function that an address is of. The file must be the one that they are of.
    pub fn find<'a, R: ReadRef<'a>>(&self, file: R, address: u64) -> Option<Function<'a>> {
        let behind = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        if row.bytes > 0 && address - row.address >= row.bytes.into() {
            return None;
        }
        let [first, second] = self.strings;
        let (begin, bytes) = if row.name & SECOND_TABLE == 0 { first } else { second };
        let at = u64::from(row.name & !SECOND_TABLE);
        let most = bytes.checked_sub(at)?.min(MAX_NAME_BYTES as u64 + 1);
        let begin = begin.checked_add(at)?;
        let name = file.read_bytes_at_until(begin..begin.checked_add(most)?, 0).ok()?;
        Some(Function { name: String::from_utf8_lossy(name), address: row.address })
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Puts functions of a table behind those that were found; where in the file their names are.
fn collect<'a, R: ReadRef<'a>>(
    sections: &SectionTable<'a, Header, R>,
    (kind, table_bit): (u32, u32),
    endian: NativeEndian,
    file: R,
    found: &mut Vec<Found<'a>>,
) -> Result<(u64, u64), FunctionsError> {
    let part = if kind == elf::SHT_SYMTAB { ".symtab" } else { ".dynsym" };
    let is_huge = |section: &&elf::SectionHeader64<NativeEndian>| {
        section.sh_type(endian) == kind && section.sh_size(endian) > MAX_TABLE_BYTES
    };
    if sections.iter().any(|section| is_huge(&section)) {
        return Err(FunctionsError::TooMany);
    }
    let symbols = sections
        .symbols(endian, file, kind)
        .map_err(|error| FunctionsError::Malformed { part, why: error.to_string() })?;
    let section = sections.section(symbols.string_section()).ok();
    let is_kept = |it: &&elf::SectionHeader64<NativeEndian>| it.sh_size(endian) <= MAX_TABLE_BYTES;
    // All names at once: to read them one by one takes some microseconds each.
    let names = section.filter(is_kept).and_then(|it| it.data(endian, file).ok());
    let names = names.map(|it| StringTable::new(it, 0, it.len() as u64));
    let name_of = |symbol: &elf::Sym64<NativeEndian>| match names {
        Some(names) => symbol.name(endian, names).ok(),
        None => symbol.name(endian, symbols.strings()).ok(),
    };
    for symbol in symbols.iter() {
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        let (address, bytes) = (symbol.st_value(endian), symbol.st_size(endian));
        if !is_function || address == 0 || symbol.is_undefined(endian) {
            continue;
        }
        let Some(name) = name_of(symbol) else { continue };
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            continue;
        }
        if found.len() >= MAX_FUNCTIONS {
            return Err(FunctionsError::TooMany);
        }
        let rank = match symbol.st_bind() {
            elf::STB_GLOBAL => 0,
            elf::STB_WEAK => 1,
            _ => 2,
        };
        let name_at = symbol.st_name(endian);
        if name_at >= SECOND_TABLE {
            continue;
        }
        found.push(Found { address, bytes, rank, name, name_at: name_at | table_bit });
    }
    Ok(section.and_then(|it| it.file_range(endian)).unwrap_or_default())
}
