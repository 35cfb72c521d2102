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

/// The least code that builtins are: V8 10 has 1.6 MiB of them. Names of symbols elsewhere are not read: there may be many megabytes.
const MIN_BYTES: u64 = 256 << 10;

/// More than there ever were.
const MAX_BYTES: u64 = 64 << 20;

/// Where builtins lie, as symbols in these [`gaps`] that were not stripped tell.
pub(crate) fn builtins<'a, H, R>(
    sections: &SectionTable<'a, H, R>,
    endian: NativeEndian,
    file: R,
    gaps: &[Range<u64>],
) -> Option<Range<u64>>
where
    H: FileHeader<Endian = NativeEndian>,
    R: ReadRef<'a>,
{
    let symbols = sections.symbols(endian, file, elf::SHT_SYMTAB).ok()?;
    let strings = symbols.strings();
    let mut all: Option<Range<u64>> = None;
    for symbol in symbols.iter().filter(|it| !it.is_undefined(endian)) {
        let begin: u64 = symbol.st_value(endian).into();
        let behind = gaps.partition_point(|gap| gap.start <= begin);
        let gap = behind.checked_sub(1).and_then(|it| gaps.get(it));
        let is_in_gap = gap.is_some_and(|gap| gap.contains(&begin));
        if !is_in_gap || !symbol.name(endian, strings).is_ok_and(|it| it.starts_with(PREFIX)) {
            continue;
        }
        let end = begin.saturating_add(symbol.st_size(endian).into());
        all = Some(match all {
            Some(all) => all.start.min(begin)..all.end.max(end),
            None => begin..end,
        });
    }
    all.filter(|all| (MIN_BYTES..=MAX_BYTES).contains(&all.end.saturating_sub(all.start)))
}

/// Where the index of what the file describes (`.eh_frame_hdr`), which is in the order of addresses, leaves out as much code as builtins
/// are: each from where the function before begins to the one behind.
pub(crate) fn gaps(index: &[u8], address: u64) -> Vec<Range<u64>> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let Ok(index) = EhFrameHdr::new(index, gimli::NativeEndian).parse(&bases, 8) else {
        return Vec::new();
    };
    let Some(table) = index.table() else { return Vec::new() };
    let (mut gaps, mut before) = (Vec::new(), None);
    let mut entries = table.iter(&bases);
    while let Ok(Some((Pointer::Direct(begin), _))) = entries.next() {
        let gap = before.replace(begin).map(|before| before..begin);
        gaps.extend(gap.filter(|gap| gap.end.saturating_sub(gap.start) >= MIN_BYTES));
    }
    gaps
}
