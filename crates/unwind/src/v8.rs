//! Code that V8 has compiled into a program: its builtins, between Node.js and each function of JavaScript.
//!
//! The file does not describe how to unwind them. They keep frame pointers, and so does all code that V8 makes while it runs.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrameHdr, Pointer};
use object::elf;
use object::read::elf::{FileHeader, SectionTable, Sym};
use object::{NativeEndian, ReadRef};

/// What names of builtins begin with (`src/snapshot/embedded/embedded-file-writer.h` of V8).
const PREFIX: &[u8] = b"Builtins_";

/// The least code that builtins are: V8 10 has 1.6 MiB of them. Symbols of files that describe all of their code are not read.
const MIN_BYTES: u64 = 256 << 10;

/// More than there ever were.
const MAX_BYTES: u64 = 64 << 20;

/// Where builtins lie, as symbols that were not stripped tell.
pub(crate) fn builtins<'a, H, R>(
    sections: &SectionTable<'a, H, R>,
    endian: NativeEndian,
    file: R,
) -> Option<Range<u64>>
where
    H: FileHeader<Endian = NativeEndian>,
    R: ReadRef<'a>,
{
    let symbols = sections.symbols(endian, file, elf::SHT_SYMTAB).ok()?;
    let strings = symbols.strings();
    let mut all: Option<Range<u64>> = None;
    for symbol in symbols.iter() {
        let is_builtin = symbol.name(endian, strings).is_ok_and(|it| it.starts_with(PREFIX));
        if !is_builtin || symbol.is_undefined(endian) {
            continue;
        }
        let begin: u64 = symbol.st_value(endian).into();
        let end = begin.saturating_add(symbol.st_size(endian).into());
        all = Some(match all {
            Some(all) => all.start.min(begin)..all.end.max(end),
            None => begin..end,
        });
    }
    all.filter(|all| (MIN_BYTES..=MAX_BYTES).contains(&all.end.saturating_sub(all.start)))
}

/// Whether the index of what the file describes (`.eh_frame_hdr`) leaves out as much code in one place as builtins are.
pub(crate) fn has_gap(index: &[u8], address: u64) -> bool {
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let Ok(index) = EhFrameHdr::new(index, gimli::NativeEndian).parse(&bases, 8) else {
        return false;
    };
    let Some(table) = index.table() else { return false };
    let mut before = None;
    let mut entries = table.iter(&bases);
    while let Ok(Some((Pointer::Direct(begin), _))) = entries.next() {
        if before.replace(begin).is_some_and(|before| begin.saturating_sub(before) >= MIN_BYTES) {
            return true;
        }
    }
    false
}
