//! Where a file has a variable of which each thread has its own.

use object::elf;
use object::read::elf::{
    FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _,
};
use object::{FileKind, NativeEndian, ReadRef};

type Header = elf::FileHeader64<NativeEndian>;

/// A variable of thread-local storage of a file for x86-64, that others may find by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsVariable {
    /// Bytes from the begin of the module's storage.
    pub offset: u64,
    /// From the thread pointer, if the file is the program itself: its storage is the first one below.
    pub in_program: i64,
    /// Where the dynamic linker writes the module's number, by the file's own addresses: it is a file that is told by number.
    pub module_slot: Option<u64>,
    /// Where it writes the distance from the thread pointer, if it found room there.
    pub distance_slot: Option<u64>,
    /// Where it writes a function, and behind that the function's argument: the distance, if it found room there.
    pub descriptor_slot: Option<u64>,
}

impl TlsVariable {
    /// Looks a name up among what a file exports. `None` when it is not there, or the file is another thing.
    #[must_use]
    pub fn of<'a, R: ReadRef<'a>>(file: R, name: &[u8]) -> Option<Self> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return None;
        }
        let header = Header::parse(file).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != elf::EM_X86_64 {
            return None;
        }
        let sections = header.sections(endian, file).ok()?;
        let symbols = sections.symbols(endian, file, elf::SHT_DYNSYM).ok()?;
        let is_it = |symbol: &elf::Sym64<NativeEndian>| {
            symbol.st_type() == elf::STT_TLS
                && !symbol.is_undefined(endian)
                && symbol.name(endian, symbols.strings()).is_ok_and(|it| it == name)
        };
        let (index, symbol) = symbols.enumerate().find(|(_, symbol)| is_it(symbol))?;
        let segments = header.program_headers(endian, file).ok()?;
        let storage = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_TLS)?;
        let (begin, bytes) = (storage.p_vaddr(endian), storage.p_memsz(endian));
        // The storage ends at the thread pointer, and begins as aligned as it wants to: ELF Handling For Thread-Local Storage, 3.4.6.
        let alignment_mask = storage.p_align(endian).max(1).wrapping_sub(1);
        let filling = begin.wrapping_add(bytes).wrapping_neg() & alignment_mask;
        let offset = symbol.st_value(endian);
        let mut found = Self {
            offset,
            in_program: offset.wrapping_sub(bytes).wrapping_sub(filling).cast_signed(),
            module_slot: None,
            distance_slot: None,
            descriptor_slot: None,
        };
        for section in sections.iter() {
            let Ok(Some((relocations, _))) = section.rela(endian, file) else { continue };
            for relocation in relocations {
                let kind = relocation.r_type(endian, false);
                // A file that binds to itself names no symbol: the module is its own, and the place in it is the addend.
                let is_its_own = |addend: i64| {
                    kind == elf::R_X86_64_DTPMOD64 || addend.cast_unsigned() == offset
                };
                let is_it = match relocation.symbol(endian, false) {
                    Some(of) => of == index,
                    None => is_its_own(relocation.r_addend(endian)),
                };
                if !is_it {
                    continue;
                }
                let slot = match kind {
                    elf::R_X86_64_DTPMOD64 => &mut found.module_slot,
                    elf::R_X86_64_TPOFF64 => &mut found.distance_slot,
                    elf::R_X86_64_TLSDESC => &mut found.descriptor_slot,
                    _ => continue,
                };
                *slot = Some(relocation.r_offset(endian));
            }
        }
        Some(found)
    }
}
