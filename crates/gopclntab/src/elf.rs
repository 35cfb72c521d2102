//! Where in an executable file the table lies, and what else it takes to read it.

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{FileKind, NativeEndian, ReadRef};

use crate::table::{HEADER_BYTES, Shape};

/// The largest table that is read: those of the largest programs have 100 MiB.
const MAX_TABLE_BYTES: u64 = 512 << 20;
/// What is looked through for the runtime's own description of the program.
const MAX_DATA_BYTES: u64 = 64 << 20;
/// More program or section headers than any linker writes.
const MAX_HEADERS: usize = 65_536;

/// Where in `runtime.moduledata` these lie, in words (`runtime/symtab.go`).
const TEXT_WORD: usize = 22;
const GOFUNC_WORD_1_18: usize = 38;
const GOFUNC_WORD_1_20: usize = 40;
/// From 1.26 on somewhere here, and the end of all tables behind it.
const GOFUNC_WORDS_1_26: std::ops::Range<usize> = 38..47;
const MODULE_WORDS: usize = 48;

type Header = elf::FileHeader64<NativeEndian>;

/// A program of Go.
#[derive(Debug, Clone)]
pub struct Module<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where in the file `bytes` begin.
    pub(crate) file_offset: u64,
    /// The address that functions count from, before the loader moves it.
    pub(crate) text: u64,
    /// Where in the file that begins what inlined calls are found by.
    pub(crate) gofunc: Option<u64>,
    /// What is loaded: address, place in the file, bytes.
    pub(crate) loaded: Vec<(u64, u64, u64)>,
}

/// A stretch of a file that is loaded.
#[derive(Clone, Copy)]
struct Area<'a> {
    address: u64,
    file_offset: u64,
    bytes: &'a [u8],
}

impl<'a> Module<'a> {
    /// Finds it in an ELF file; `None` when it is no program of Go.
    pub fn find<R: ReadRef<'a>>(file: R) -> Option<Self> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return None;
        }
        let header = Header::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let programs = header.program_headers(endian, file).ok()?;
        let sections = header.sections(endian, file).ok().filter(|it| !it.is_empty());
        let loaded: Vec<_> = programs
            .iter()
            .take(MAX_HEADERS)
            .filter(|it| it.p_type(endian) == elf::PT_LOAD)
            .map(|it| (it.p_vaddr(endian), it.p_offset(endian), it.p_filesz(endian)))
            .collect();
        let table = match &sections {
            Some(sections) => named(sections, endian, file)?,
            // Without section headers: a note says that Go has linked it.
            None if is_of_go(programs, endian, file) => {
                loaded.iter().find_map(|area| scanned(file, *area))?
            }
            None => return None,
        };
        let shape = Shape::of(table.bytes)?;
        let mut module = Self {
            bytes: table.bytes,
            file_offset: table.file_offset,
            text: 0,
            gofunc: None,
            loaded,
        };
        let words = match &sections {
            Some(sections) => moved_words(sections, endian, file, &table, &shape)
                .or_else(|| module.words(&areas(sections, endian, file), &table, &shape)),
            None => {
                let all: Vec<_> = module.loaded.iter().filter_map(|it| area(file, *it)).collect();
                module.words(&all, &table, &shape)
            }
        };
        let text = words.as_ref().and_then(|words| words.get(TEXT_WORD).copied()?);
        let section = sections.as_ref().and_then(|sections| {
            let (_, text) = sections.section_by_name(endian, b".text")?;
            Some(text.sh_addr(endian))
        });
        module.text = text.or(shape.text).or(section)?;
        module.gofunc = words.and_then(|words| module.gofunc(&words, &table, &shape));
        Some(module)
    }

    /// The runtime's description of the program, as the file has it.
    fn words(
        &self,
        areas: &[Area<'a>],
        table: &Area<'a>,
        shape: &Shape,
    ) -> Option<Vec<Option<u64>>> {
        let begin = [table.address, table.address.checked_add(shape.names)?];
        let begin = begin.map(u64::to_ne_bytes).concat();
        areas.iter().find_map(|area| {
            let mut words = area.bytes.chunks_exact(8).enumerate();
            let at = words.position(|(at, word)| {
                let both = || area.bytes.get(at * 8..at * 8 + 16);
                begin.starts_with(word) && both() == Some(begin.as_slice())
            })?;
            let words = area.bytes.get(at * 8..)?.chunks_exact(8).take(MODULE_WORDS);
            Some(words.map(|word| word.try_into().ok().map(u64::from_ne_bytes)).collect())
        })
    }

    /// Where in the file it begins.
    fn gofunc(&self, words: &[Option<u64>], table: &Area<'a>, shape: &Shape) -> Option<u64> {
        let word = |at: usize| words.get(at).copied().flatten();
        let end = table.address.checked_add(table.bytes.len() as u64)?;
        let mut inside = GOFUNC_WORDS_1_26.filter_map(|at| {
            let (begin, behind) = (word(at)?, word(at + 1)?);
            (table.address < begin && begin < behind && behind <= end).then_some(begin)
        });
        let address = match shape.text {
            None => inside.next().or_else(|| word(GOFUNC_WORD_1_20)),
            Some(_) if shape.has_start_lines() => word(GOFUNC_WORD_1_20),
            Some(_) => word(GOFUNC_WORD_1_18),
        };
        self.place(address?)
    }

    /// Where in the file an address lies.
    pub(crate) fn place(&self, address: u64) -> Option<u64> {
        let (begin, file_offset, _) = self
            .loaded
            .iter()
            .find(|(begin, _, bytes)| address >= *begin && address - begin < *bytes)?;
        file_offset.checked_add(address - begin)
    }
}

/// By the name of its section, which programs that are loaded anywhere have in another place.
fn named<'a, R: ReadRef<'a>>(
    sections: &SectionTable<'a, Header, R>,
    endian: NativeEndian,
    file: R,
) -> Option<Area<'a>> {
    let names: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
    let section = names.iter().find_map(|name| Some(sections.section_by_name(endian, name)?.1))?;
    if section.sh_size(endian) > MAX_TABLE_BYTES {
        return None;
    }
    let bytes = section.data(endian, file).ok()?;
    let (address, file_offset) = (section.sh_addr(endian), section.sh_offset(endian));
    Some(Area { address, file_offset, bytes })
}

/// Sections that hold what is known at the start.
fn areas<'a, R: ReadRef<'a>>(
    sections: &SectionTable<'a, Header, R>,
    endian: NativeEndian,
    file: R,
) -> Vec<Area<'a>> {
    let names: [&[u8]; 4] = [b".go.module", b".noptrdata", b".data", b".data.rel.ro"];
    let found = names.iter().filter_map(|name| {
        let (_, section) = sections.section_by_name(endian, name)?;
        if section.sh_size(endian) > MAX_DATA_BYTES {
            return None;
        }
        let bytes = section.data(endian, file).ok()?;
        let (address, file_offset) = (section.sh_addr(endian), section.sh_offset(endian));
        Some(Area { address, file_offset, bytes })
    });
    found.collect()
}

/// The runtime's description of a program that the loader completes: what it is told to write there.
fn moved_words<'a, R: ReadRef<'a>>(
    sections: &SectionTable<'a, Header, R>,
    endian: NativeEndian,
    file: R,
    table: &Area<'a>,
    shape: &Shape,
) -> Option<Vec<Option<u64>>> {
    let names = table.address.checked_add(shape.names)?;
    let relocations = || {
        let all = sections.iter().take(MAX_HEADERS);
        let lists = all.filter(|it| it.sh_size(endian) <= MAX_DATA_BYTES);
        let lists = lists.filter_map(move |it| Some(it.rela(endian, file).ok()??.0));
        lists.flatten().map(move |it| (it.r_offset.get(endian), it.r_addend.get(endian)))
    };
    let is_to = |address: u64| move |&(_, to): &(u64, i64)| to.cast_unsigned() == address;
    let begins: Vec<u64> =
        relocations().filter(is_to(table.address)).map(|it| it.0).take(64).collect();
    let second = |begin: &&u64| {
        relocations().any(|(at, to)| at.wrapping_sub(**begin) == 8 && to.cast_unsigned() == names)
    };
    let begin = *begins.iter().find(second)?;
    let mut words = vec![None; MODULE_WORDS];
    for (at, to) in relocations() {
        let word = at.checked_sub(begin).and_then(|at| usize::try_from(at / 8).ok());
        if let Some(word) = word.and_then(|word| words.get_mut(word)) {
            *word = Some(to.cast_unsigned());
        }
    }
    Some(words)
}

fn is_of_go<'a, R: ReadRef<'a>>(
    programs: &[elf::ProgramHeader64<NativeEndian>],
    endian: NativeEndian,
    file: R,
) -> bool {
    programs.iter().take(MAX_HEADERS).any(|program| {
        let Ok(Some(mut notes)) = program.notes(endian, file) else { return false };
        std::iter::from_fn(|| notes.next().ok().flatten()).any(|note| note.name() == b"Go")
    })
}

fn area<'a, R: ReadRef<'a>>(
    file: R,
    (address, file_offset, len): (u64, u64, u64),
) -> Option<Area<'a>> {
    let bytes = file.read_bytes_at(file_offset, len.min(MAX_TABLE_BYTES)).ok()?;
    Some(Area { address, file_offset, bytes })
}

/// Looks for its first bytes.
fn scanned<'a, R: ReadRef<'a>>(file: R, loaded: (u64, u64, u64)) -> Option<Area<'a>> {
    let Area { address, file_offset, bytes } = area(file, loaded)?;
    let is_begin = |at: &usize| {
        let rest = bytes.get(*at..).unwrap_or_default();
        rest.len() >= HEADER_BYTES && Shape::of(rest).is_some()
    };
    let at = (0..bytes.len()).step_by(8).find(is_begin)?;
    let behind = at as u64;
    let bytes = bytes.get(at..)?;
    Some(Area { address: address + behind, file_offset: file_offset + behind, bytes })
}
