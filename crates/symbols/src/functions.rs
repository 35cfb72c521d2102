//! Functions of an executable file.

use object::elf;
use object::read::elf::{FileHeader, SectionTable, Sym};
use object::{FileKind, NativeEndian, ReadRef};

/// The most functions that are kept of a file; Chromium has 800,000.
pub const MAX_FUNCTIONS: usize = 4 << 20;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name as the linker knows it.
    pub name: &'a str,
    /// Its first address, before the loader moves it.
    pub address: u64,
}

/// Functions by address, before the loader moves them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    rows: Vec<Row>,
    names: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    address: u64,
    /// 0: up to the next one, as of code that was written by hand.
    bytes: u64,
    name: u32,
    name_bytes: u32,
}

/// A symbol on its way into the table.
struct Found<'a> {
    address: u64,
    bytes: u64,
    /// Of several names of one function, the lowest: global ones before weak and local ones.
    rank: u8,
    name: &'a [u8],
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
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            collect(&sections, kind, endian, file, &mut found)?;
        }
        found.sort_by(|a, b| {
            let key = |it: &Found<'_>| (it.address, it.bytes == 0, it.rank);
            key(a)
                .cmp(&key(b))
                .then_with(|| a.name.len().cmp(&b.name.len()))
                .then_with(|| a.name.cmp(b.name))
        });
        found.dedup_by_key(|it| it.address);
        let mut functions = Self::default();
        for it in found {
            functions.push(&it);
        }
        functions.rows.shrink_to_fit();
        functions.names.shrink_to_fit();
        Ok(functions)
    }

    /// The function that an address is of.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Function<'_>> {
        let behind = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        if row.bytes > 0 && address - row.address >= row.bytes {
            return None;
        }
        let begin = usize::try_from(row.name).ok()?;
        let name = self.names.get(begin..begin + usize::try_from(row.name_bytes).ok()?)?;
        Some(Function { name, address: row.address })
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

    fn push(&mut self, found: &Found<'_>) {
        let name = String::from_utf8_lossy(found.name);
        let (Ok(begin), Ok(name_bytes)) =
            (u32::try_from(self.names.len()), u32::try_from(name.len()))
        else {
            return;
        };
        self.names.push_str(&name);
        let Found { address, bytes, .. } = *found;
        self.rows.push(Row { address, bytes, name: begin, name_bytes });
    }
}

fn collect<'a, R: ReadRef<'a>>(
    sections: &SectionTable<'a, Header, R>,
    kind: u32,
    endian: NativeEndian,
    file: R,
    found: &mut Vec<Found<'a>>,
) -> Result<(), FunctionsError> {
    let part = if kind == elf::SHT_SYMTAB { ".symtab" } else { ".dynsym" };
    let symbols = sections
        .symbols(endian, file, kind)
        .map_err(|error| FunctionsError::Malformed { part, why: error.to_string() })?;
    let strings = symbols.strings();
    for symbol in symbols.iter() {
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        let (address, bytes) = (symbol.st_value(endian), symbol.st_size(endian));
        if !is_function || address == 0 || symbol.is_undefined(endian) {
            continue;
        }
        let Ok(name) = symbol.name(endian, strings) else { continue };
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
        found.push(Found { address, bytes, rank, name });
    }
    Ok(())
}
