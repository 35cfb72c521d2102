//! An interpreter as a file has it: where its runtime and its evaluation function are, and which version it is.

use std::ops::Range;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{FileKind, NativeEndian, ReadRef, StringTable};
use unwind::Image;

use crate::layout::{DEBUG_OFFSETS_BYTES, DebugOffsets, Layout, Runtime};

/// The most symbols of a file that are looked at.
const MAX_SYMBOLS: usize = 4 << 20;

/// The most bytes of their names; those of programs with debug information have some MiB.
const MAX_STRING_BYTES: u64 = 64 << 20;

/// The most stretches of code of the evaluation function; compilers make two of it.
const MAX_PARTS: usize = 16;

const EVALUATION: &[u8] = b"_PyEval_EvalFrameDefault";

/// A version of CPython 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 11 of 3.11.
    pub minor: u8,
    /// 7 of 3.11.7, where it is known.
    pub micro: Option<u8>,
}

/// What told a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToldBy {
    /// `_Py_DebugOffsets`, which 3.13 and later have.
    DebugOffsets,
    /// The data of `Py_Version`, which 3.11 and later have.
    Symbol,
    /// The file's name.
    Name,
}

/// Why frames of an interpreter cannot be walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// Nothing tells its version.
    NoVersion,
    /// Nobody knows this version's structures, or they are not as they should be.
    Version(Version),
    /// It does not tell where its evaluation function is.
    NoEvaluation,
}

/// A CPython interpreter in an executable file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Its version.
    pub version: Version,
    /// What told it.
    pub told_by: ToldBy,
    /// Where members of its structures lie.
    pub layout: Layout,
    /// Address of the pointer to the first interpreter.
    pub interpreters: u64,
    /// Address of the `Py_tss_t` of the thread state; `None` where that is not known.
    pub key: Option<u64>,
    /// Address of the type of code objects.
    pub code_type: u64,
    evaluation: Vec<Range<u64>>,
}

type Header = elf::FileHeader64<NativeEndian>;

impl Interpreter {
    /// The interpreter of a file; `None` when it has none. Addresses are those before the loader moves them.
    ///
    /// `name` is the file's, without folders. A file is looked at when it is called as CPython's are, or has a section as they have.
    pub fn of<'a, R: ReadRef<'a>>(
        file: R,
        image: &Image<'a>,
        name: &str,
    ) -> Option<Result<Self, Unsupported>> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return None;
        }
        let header = Header::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, file).ok()?;
        if !Self::is_file_name(name) && sections.section_by_name(endian, b".PyRuntime").is_none() {
            return None;
        }
        let symbols = Symbols::read(&sections, endian, file);
        let (runtime, code_type) = (symbols.runtime?, symbols.code_type?);
        let bytes_at = |address, len| bytes_at(header, endian, file, address, len);
        let debug = bytes_at(runtime, DEBUG_OFFSETS_BYTES);
        let debug = debug.and_then(DebugOffsets::read);
        let version_data = symbols.version.and_then(|at| bytes_at(at, 4)?.first_chunk().copied());
        let told = match &debug {
            Some(debug) => Some((debug.version, ToldBy::DebugOffsets)),
            None => version_data.map(|data| (u32::from_ne_bytes(data), ToldBy::Symbol)),
        };
        let (version, told_by) = match told {
            Some((hex, told_by)) => {
                let [major, minor, micro, _] = hex.to_be_bytes();
                if major != 3 {
                    return Some(Err(Unsupported::NoVersion));
                }
                (Version { minor, micro: Some(micro) }, told_by)
            }
            None => match version_of_name(name) {
                Some(version) => (version, ToldBy::Name),
                None => return Some(Err(Unsupported::NoVersion)),
            },
        };
        let found = match &debug {
            Some(debug) => debug.layout(),
            None => Layout::of_version(version.minor),
        };
        let Some((layout, Runtime { interpreters, key })) = found else {
            return Some(Err(Unsupported::Version(version)));
        };
        let evaluation = symbols.evaluation(image);
        if evaluation.is_empty() {
            return Some(Err(Unsupported::NoEvaluation));
        }
        Some(Ok(Self {
            version,
            told_by,
            layout,
            interpreters: runtime.wrapping_add(interpreters.into()),
            key: (key != 0).then(|| runtime.wrapping_add(key.into())),
            code_type,
            evaluation,
        }))
    }

    /// Whether a file, named without folders, is called as CPython's are.
    #[must_use]
    pub fn is_file_name(name: &str) -> bool {
        name.starts_with("python3") || name.starts_with("libpython3")
    }

    /// Whether an address is one of the evaluation function.
    #[must_use]
    pub fn is_evaluation(&self, address: u64) -> bool {
        self.evaluation.iter().any(|part| part.contains(&address))
    }
}

/// The symbols that are looked for.
#[derive(Debug, Default)]
struct Symbols {
    runtime: Option<u64>,
    code_type: Option<u64>,
    version: Option<u64>,
    evaluation: Vec<Range<u64>>,
    /// Where the evaluation function begins.
    evaluation_begin: Option<u64>,
}

impl Symbols {
    fn read<'a, R: ReadRef<'a>>(
        sections: &SectionTable<'a, Header, R>,
        endian: NativeEndian,
        file: R,
    ) -> Self {
        let mut found = Self::default();
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(symbols) = sections.symbols(endian, file, kind) else { continue };
            // All names at once: to read them one by one takes as long as all else that is done with the file.
            let strings = sections.section(symbols.string_section());
            let Some(strings) = strings.ok().filter(|it| it.sh_size(endian) <= MAX_STRING_BYTES)
            else {
                continue;
            };
            let Ok(strings) = strings.data(endian, file) else { continue };
            let strings = StringTable::new(strings, 0, strings.len() as u64);
            for symbol in symbols.iter().take(MAX_SYMBOLS) {
                if symbol.is_undefined(endian) {
                    continue;
                }
                let address = symbol.st_value(endian);
                let Ok(name) = symbol.name(endian, strings) else { continue };
                match name {
                    b"_PyRuntime" => found.runtime = Some(address),
                    b"PyCode_Type" => found.code_type = Some(address),
                    b"Py_Version" => found.version = Some(address),
                    _ if name.starts_with(EVALUATION) => {
                        found.part(name, address, symbol.st_size(endian));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The function, or what the compiler put elsewhere of it: `NAME.cold`, `NAME.cold.0`, `NAME.warm`.
    fn part(&mut self, name: &[u8], address: u64, bytes: u64) {
        let part = address..address.saturating_add(bytes);
        match name.get(EVALUATION.len()) {
            None => self.evaluation_begin = Some(address),
            Some(b'.') => {}
            Some(_) => return,
        }
        if bytes > 0 && self.evaluation.len() < MAX_PARTS && !self.evaluation.contains(&part) {
            self.evaluation.push(part);
        }
    }

    /// With what call frame information tells of it, which a file without local symbols has too.
    fn evaluation(self, image: &Image<'_>) -> Vec<Range<u64>> {
        let mut all = self.evaluation;
        if let Some(begin) = self.evaluation_begin {
            all.extend(unwind::parts(image, begin, MAX_PARTS));
        }
        all
    }
}

/// So many bytes at most of what the file has for an address.
fn bytes_at<'a, R: ReadRef<'a>>(
    header: &Header,
    endian: NativeEndian,
    file: R,
    address: u64,
    len: u64,
) -> Option<&'a [u8]> {
    let programs = header.program_headers(endian, file).ok()?;
    let (inside, segment) =
        programs.iter().filter(|it| it.p_type(endian) == elf::PT_LOAD).find_map(|segment| {
            let inside = address.checked_sub(segment.p_vaddr(endian))?;
            (inside < segment.p_filesz(endian)).then_some((inside, segment))
        })?;
    let len = len.min(segment.p_filesz(endian) - inside);
    file.read_bytes_at(segment.p_offset(endian).checked_add(inside)?, len).ok()
}

/// `python3.11`, `python3.11d`, `libpython3.11.so.1.0`.
fn version_of_name(name: &str) -> Option<Version> {
    let behind = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python3.")?;
    let digits = behind.find(|it: char| !it.is_ascii_digit()).unwrap_or(behind.len());
    let minor = behind.get(..digits)?.parse().ok()?;
    Some(Version { minor, micro: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_the_minor_version() {
        let minor = |name| version_of_name(name).map(|it| it.minor);
        assert_eq!(minor("python3.8"), Some(8));
        assert_eq!(minor("libpython3.10.so.1.0"), Some(10));
        assert_eq!(minor("python3.13t"), Some(13));
        assert_eq!(minor("python3"), None);
        assert_eq!(minor("libpython3.so"), None);
        assert_eq!(minor("python3.999"), None);
        assert_eq!(minor("ipython3.8"), None);
    }
}
