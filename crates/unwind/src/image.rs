//! What an executable file says of where its code lies.

use std::ops::Range;

use gopclntab::Module;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{FileKind, NativeEndian, ReadRef};

use crate::{signal, start, v8};

/// More program or section headers than any linker writes.
const MAX_HEADERS: usize = 65_536;

/// More symbols than that are not read to find functions that nothing describes: 48 MiB of them.
const MAX_SYMBOLS: usize = 2 << 20;

/// The longest build id that is kept; SHA-1, which linkers use, has 20 bytes.
const MAX_BUILD_ID: usize = 64;

/// The longest one of Go that is kept; those of Go 1.27 have 83 bytes.
const MAX_GO_BUILD_ID: usize = 256;
/// `ELF_NOTE_GOBUILDID_TAG` of cmd/link/internal/ld/elf.go.
const NT_GO_BUILD_ID: u32 = 4;

/// The instruction set of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// AMD64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// Why a file tells nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Its first bytes are those of something else.
    #[error("not an ELF file of 64 bits in this machine's byte order")]
    NotElf,
    /// It is for another machine.
    #[error("ELF machine {0} is not supported")]
    Machine(u16),
    /// A part of it does not lie inside the file.
    #[error("ELF {part}: {why}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// A stretch of the file that is loaded to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it lies in the file.
    pub file_offset: u64,
    /// How much of the file it is.
    pub file_bytes: u64,
    /// Its first address, before the loader moves it.
    pub address: u64,
    /// Whether it holds code.
    pub is_executable: bool,
    /// How much is mapped at least: a power of two.
    pub(crate) page_bytes: u64,
}

/// A section, as far as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
}

/// An executable or shared library.
#[derive(Debug, Clone)]
pub struct Image<'a> {
    architecture: Architecture,
    segments: Vec<Segment>,
    entry: Option<u64>,
    build_id: Option<&'a [u8]>,
    go_build_id: Option<&'a str>,
    /// What Go's linker says of its code.
    pub(crate) go: Option<Module<'a>>,
    pub(crate) eh_frame: Option<Section<'a>>,
    pub(crate) debug_frame: Option<Section<'a>>,
    /// Where data and code of pointers in `.eh_frame` that are relative to them begin.
    pub(crate) text: Option<u64>,
    pub(crate) got: Option<u64>,
    /// Code of V8 that keeps frame pointers.
    pub(crate) builtins: Option<Range<u64>>,
    /// Sections of code.
    pub(crate) code: Vec<Range<u64>>,
    /// Of a static program: functions of its C library before `main`.
    pub(crate) starts: Vec<Range<u64>>,
    /// Of the kernel's file for aarch64: where signals' handlers return to.
    pub(crate) signal_return: Option<u64>,
}

type Header = elf::FileHeader64<NativeEndian>;

impl<'a> Image<'a> {
    /// Reads the headers of an ELF file: bytes, or [`object::ReadCache`], which reads of a file what is asked for.
    ///
    /// # Errors
    /// [`ImageError`]
    pub fn parse<R: ReadRef<'a>>(file: R) -> Result<Self, ImageError> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return Err(ImageError::NotElf);
        }
        let malformed = |part| {
            move |error: object::Error| ImageError::Malformed { part, why: error.to_string() }
        };
        let header = Header::parse(file).map_err(malformed("header"))?;
        let endian = header.endian().map_err(|_other_order| ImageError::NotElf)?;
        let architecture = match header.e_machine(endian) {
            elf::EM_X86_64 => Architecture::X86_64,
            elf::EM_AARCH64 => Architecture::Aarch64,
            other => return Err(ImageError::Machine(other)),
        };
        let programs =
            header.program_headers(endian, file).map_err(malformed("program headers"))?;
        let loaded =
            programs.iter().take(MAX_HEADERS).filter(|it| it.p_type(endian) == elf::PT_LOAD);
        let mut segments: Vec<Segment> = loaded
            .map(|segment| Segment {
                file_offset: segment.p_offset(endian),
                file_bytes: segment.p_filesz(endian),
                address: segment.p_vaddr(endian),
                is_executable: segment.p_flags(endian) & elf::PF_X != 0,
                page_bytes: page_bytes(segment.p_align(endian)),
            })
            .collect();
        segments.sort_by_key(|segment| segment.file_offset);
        let mut image = Self {
            architecture,
            segments,
            entry: Some(header.e_entry(endian)).filter(|entry| *entry != 0),
            build_id: None,
            go_build_id: None,
            go: Module::find(file),
            eh_frame: None,
            debug_frame: None,
            text: None,
            got: None,
            builtins: None,
            code: Vec::new(),
            starts: Vec::new(),
            signal_return: None,
        };
        if architecture == Architecture::Aarch64 {
            image.signal_return = signal::find_return(&image.segments, file);
        }
        image.find_build_id(programs, endian, file);
        // A file without section headers, or with broken ones, still runs.
        if let Ok(sections) = header.sections(endian, file) {
            image.find_sections(&sections, endian, file);
            let is_static = !programs.iter().any(|it| it.p_type(endian) == elf::PT_INTERP);
            // On x86-64 its instructions tell.
            let has_starts = is_static && architecture == Architecture::Aarch64;
            if has_starts && image.entry.is_some() && image.go.is_none() {
                image.starts = start::functions(&sections, endian, file);
            }
            let mut indexes =
                programs.iter().filter(|it| it.p_type(endian) == elf::PT_GNU_EH_FRAME);
            let gaps = indexes.next().map_or_else(Vec::new, |index| {
                let bytes = index.data(endian, file).unwrap_or_default();
                v8::gaps(bytes, index.p_vaddr(endian))
            });
            if !gaps.is_empty() {
                image.builtins = v8::builtins(&sections, endian, file, &gaps);
            }
        }
        if image.code.is_empty() {
            let code = image.segments.iter().filter(|it| it.is_executable);
            image.code =
                code.map(|it| it.address..it.address.saturating_add(it.file_bytes)).collect();
        }
        if image.eh_frame.is_none() {
            image.eh_frame = image.frames_behind_index(programs, endian, file);
        }
        Ok(image)
    }

    /// For which machine.
    #[must_use]
    pub const fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// What is loaded, by place in the file.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The linker's name for the contents.
    #[must_use]
    pub const fn build_id(&self) -> Option<&'a [u8]> {
        self.build_id
    }

    /// The name that Go's linker gave the contents.
    #[must_use]
    pub const fn go_build_id(&self) -> Option<&'a str> {
        self.go_build_id
    }

    /// [`code_address`] in this file.
    #[must_use]
    pub fn code_address(&self, file_offset: u64) -> Option<u64> {
        code_address(&self.segments, file_offset)
    }

    /// Where a program begins.
    pub(crate) const fn entry(&self) -> Option<u64> {
        self.entry
    }

    /// Whether code lies at an address.
    #[must_use]
    pub(crate) fn is_code(&self, address: u64) -> bool {
        let mut code = self.segments.iter().filter(|segment| segment.is_executable);
        code.any(|it| address >= it.address && address - it.address < it.file_bytes)
    }

    /// Bytes that are loaded to these addresses.
    pub(crate) fn bytes_at<R: ReadRef<'a>>(
        &self,
        file: R,
        addresses: &Range<u64>,
    ) -> Option<&'a [u8]> {
        let bytes = addresses.end.checked_sub(addresses.start)?;
        let segment = self.segments.iter().find(|it| {
            let inside = addresses.start.checked_sub(it.address);
            inside.is_some_and(|inside| it.file_bytes.checked_sub(inside) >= Some(bytes))
        })?;
        let inside = addresses.start - segment.address;
        file.read_bytes_at(segment.file_offset.checked_add(inside)?, bytes).ok()
    }

    fn find_build_id<R: ReadRef<'a>>(
        &mut self,
        programs: &[elf::ProgramHeader64<NativeEndian>],
        endian: NativeEndian,
        file: R,
    ) {
        each_note(programs, endian, file, |name, kind, id| {
            if self.build_id.is_none() {
                self.build_id = gnu_build_id(name, kind, id);
            }
            if name == b"Go" && kind == NT_GO_BUILD_ID {
                let id = std::str::from_utf8(id).ok();
                self.go_build_id = id.filter(|it| (1..=MAX_GO_BUILD_ID).contains(&it.len()));
            }
        });
    }

    fn find_sections<R: ReadRef<'a>>(
        &mut self,
        sections: &SectionTable<'a, Header, R>,
        endian: NativeEndian,
        file: R,
    ) {
        for section in sections.iter().take(MAX_HEADERS) {
            let Ok(name) = sections.section_name(endian, section) else { continue };
            let address = section.sh_addr(endian);
            let flags = u64::from(elf::SHF_ALLOC | elf::SHF_EXECINSTR);
            if section.sh_flags(endian) & flags == flags {
                self.code.push(address..address.saturating_add(section.sh_size(endian)));
            }
            let is_plain = section.sh_flags(endian) & u64::from(elf::SHF_COMPRESSED) == 0;
            let contents = || {
                let bytes = section.data(endian, file).ok().filter(|bytes| !bytes.is_empty())?;
                Some(Section { address, bytes })
            };
            match name {
                b".eh_frame" if is_plain => self.eh_frame = contents(),
                b".debug_frame" if is_plain => self.debug_frame = contents(),
                b".text" => self.text = Some(address),
                b".got" => self.got = Some(address),
                _ => {}
            }
        }
    }

    /// `.eh_frame` of a file without section headers: `.eh_frame_hdr`, which the loader needs, begins with a pointer to it.
    fn frames_behind_index<R: ReadRef<'a>>(
        &self,
        programs: &[elf::ProgramHeader64<NativeEndian>],
        endian: NativeEndian,
        file: R,
    ) -> Option<Section<'a>> {
        let index = programs.iter().find(|it| it.p_type(endian) == elf::PT_GNU_EH_FRAME)?;
        let header = index.data(endian, file).ok()?;
        let parsed = gimli::EhFrameHdr::new(header, gimli::NativeEndian);
        let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(index.p_vaddr(endian));
        let gimli::Pointer::Direct(address) = parsed.parse(&bases, 8).ok()?.eh_frame_ptr() else {
            return None;
        };
        let segment = self.segments.iter().find(|segment| {
            address >= segment.address && address - segment.address < segment.file_bytes
        })?;
        let inside = address - segment.address;
        let bytes =
            file.read_bytes_at(segment.file_offset + inside, segment.file_bytes - inside).ok()?;
        Some(Section { address, bytes })
    }
}

/// A loader maps whole pages; no machine's are larger than 64 KiB.
fn page_bytes(alignment: u64) -> u64 {
    const LARGEST: u64 = 64 << 10;
    if alignment.is_power_of_two() { alignment.min(LARGEST) } else { 1 }
}

/// The address, before the loader moves it, of a byte of a file in a mapping of code. A mapping begins with a whole page, so that also
/// bytes before the segment are in it.
#[must_use]
pub fn code_address(segments: &[Segment], file_offset: u64) -> Option<u64> {
    let mut code = segments.iter().filter(|segment| segment.is_executable);
    let found = code.find(|segment| {
        let begin = segment.file_offset & !(segment.page_bytes - 1);
        file_offset >= begin && file_offset < segment.file_offset.saturating_add(segment.file_bytes)
    })?;
    Some(found.address.wrapping_sub(found.file_offset).wrapping_add(file_offset))
}

/// The linker's build id of a file, when nothing else of it is asked for.
#[must_use]
pub fn build_id<'a, R: ReadRef<'a>>(file: R) -> Option<&'a [u8]> {
    let header = Header::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let mut found = None;
    each_note(header.program_headers(endian, file).ok()?, endian, file, |name, kind, id| {
        found = found.or_else(|| gnu_build_id(name, kind, id));
    });
    found
}

/// Where functions begin, as symbols say; without them when there are more than a table has room for.
pub(crate) fn function_symbols<'a, R: ReadRef<'a>>(file: R) -> Vec<u64> {
    let sections = Header::parse(file).and_then(|header| header.sections(NativeEndian, file));
    let Ok(sections) = sections else { return Vec::new() };
    let mut functions = Vec::new();
    for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let Ok(symbols) = sections.symbols(NativeEndian, file, kind) else { continue };
        if symbols.len() <= MAX_SYMBOLS {
            let code = symbols
                .iter()
                .filter(|it| it.st_type() == elf::STT_FUNC && !it.is_undefined(NativeEndian));
            functions.extend(code.map(|it| it.st_value(NativeEndian)));
        }
    }
    functions
}

fn gnu_build_id<'a>(name: &[u8], kind: u32, id: &'a [u8]) -> Option<&'a [u8]> {
    let is_one = name == elf::ELF_NOTE_GNU && kind == elf::NT_GNU_BUILD_ID;
    (is_one && (1..=MAX_BUILD_ID).contains(&id.len())).then_some(id)
}

/// Name, kind and content of each note.
fn each_note<'a, R: ReadRef<'a>>(
    programs: &[elf::ProgramHeader64<NativeEndian>],
    endian: NativeEndian,
    file: R,
    mut each: impl FnMut(&'a [u8], u32, &'a [u8]),
) {
    for program in programs.iter().take(MAX_HEADERS) {
        let Ok(Some(mut notes)) = program.notes(endian, file) else { continue };
        while let Ok(Some(note)) = notes.next() {
            each(note.name(), note.n_type(endian), note.desc());
        }
    }
}
