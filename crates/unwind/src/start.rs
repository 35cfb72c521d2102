//! What runs before `main` in a static program.
//!
//! musl says nothing of how to unwind its own code, so a stack would end above `main` without being at its root. The functions from
//! which `main` is called are known by name, and nobody is above them who matters.

use std::ops::Range;

use object::elf;
use object::read::elf::{FileHeader, SectionTable, Sym};
use object::{NativeEndian, ReadRef};

/// `crt/crt1.c` and `src/env/__libc_start_main.c` of musl.
const NAMES: [&[u8]; 3] = [b"_start_c", b"__libc_start_main", b"libc_start_main_stage2"];

/// Where they lie, as symbols that were not stripped tell.
pub(crate) fn functions<'a, H, R>(
    sections: &SectionTable<'a, H, R>,
    endian: NativeEndian,
    file: R,
) -> Vec<Range<u64>>
where
    H: FileHeader<Endian = NativeEndian>,
    R: ReadRef<'a>,
{
    let Ok(symbols) = sections.symbols(endian, file, elf::SHT_SYMTAB) else { return Vec::new() };
    let strings = symbols.strings();
    let named = symbols.iter().filter(|symbol| {
        symbol.st_type() == elf::STT_FUNC
            && symbol.name(endian, strings).is_ok_and(|name| NAMES.contains(&name))
    });
    let range = |symbol: &H::Sym| {
        let begin: u64 = symbol.st_value(endian).into();
        begin..begin.saturating_add(symbol.st_size(endian).into())
    };
    // Files that were made to have many are none of a linker's.
    named.take(NAMES.len()).map(range).filter(|code| !code.is_empty()).collect()
}
