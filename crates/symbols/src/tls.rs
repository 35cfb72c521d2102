//! Where a file has a variable of which each thread has its own.

use object::elf;
use object::read::elf::{
    FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _,
};
use object::{FileKind, NativeEndian, ReadRef};

type Header = elf::FileHeader64<NativeEndian>;

/// A variable of thread-local storage of a file for x86-64 or aarch64, that others may find by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsVariable {
    /// Bytes from the begin of the module's storage.
    pub offset: u64,
    /// From the thread pointer, if the file is the program itself: its storage is the first one below (x86-64) or above (aarch64).
    pub in_program: i64,
    /// Where the dynamic linker writes the module's number, by the file's own addresses: it is a file that is told by number.
    pub module_slot: Option<u64>,
    /// Where it writes the distance from the thread pointer, if it found room there.
    pub distance_slot: Option<u64>,
    /// Where it writes a function, and behind that the function's argument: the distance, if it found room there.
    pub descriptor_slot: Option<u64>,
}

/// What differs between processors.
struct Machine {
    /// Whether a program's storage lies below the thread pointer, and not above.
    is_below: bool,
    /// Kinds of relocations: the slot is for the module's number, the distance, or a descriptor.
    module: u32,
    distance: u32,
    descriptor: u32,
}

impl Machine {
    const fn of(machine: u16) -> Option<Self> {
        Some(match machine {
            elf::EM_X86_64 => Self {
                is_below: true,
                module: elf::R_X86_64_DTPMOD64,
                distance: elf::R_X86_64_TPOFF64,
                descriptor: elf::R_X86_64_TLSDESC,
            },
            elf::EM_AARCH64 => Self {
                is_below: false,
                module: elf::R_AARCH64_TLS_DTPMOD,
                distance: elf::R_AARCH64_TLS_TPREL,
                descriptor: elf::R_AARCH64_TLSDESC,
            },
            _ => return None,
        })
    }

    /// From the thread pointer to a program's storage, which begins as aligned as it wants to: ELF Handling For Thread-Local Storage,
    /// 3.4.6 (variant II: it ends at the thread pointer), and ELF for the Arm 64-bit Architecture (variant I: behind two words).
    const fn first_storage(&self, begin: u64, bytes: u64, alignment_mask: u64) -> u64 {
        const TWO_WORDS: u64 = 16;
        if self.is_below {
            let filling = begin.wrapping_add(bytes).wrapping_neg() & alignment_mask;
            bytes.wrapping_add(filling).wrapping_neg()
        } else {
            TWO_WORDS.wrapping_add(begin.wrapping_sub(TWO_WORDS) & alignment_mask)
        }
    }
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
        let machine = Machine::of(header.e_machine(endian))?;
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
        let alignment_mask = storage.p_align(endian).max(1).wrapping_sub(1);
        let begin = machine.first_storage(begin, bytes, alignment_mask);
        let offset = symbol.st_value(endian);
        let mut found = Self {
            offset,
            in_program: begin.wrapping_add(offset).cast_signed(),
            module_slot: None,
            distance_slot: None,
            descriptor_slot: None,
        };
        for section in sections.iter() {
            let Ok(Some((relocations, _))) = section.rela(endian, file) else { continue };
            for relocation in relocations {
                let kind = relocation.r_type(endian, false);
                // A file that binds to itself names no symbol: the module is its own, and the place in it is the addend.
                let is_its_own =
                    |addend: i64| kind == machine.module || addend.cast_unsigned() == offset;
                let is_it = match relocation.symbol(endian, false) {
                    Some(of) => of == index,
                    None => is_its_own(relocation.r_addend(endian)),
                };
                if !is_it {
                    continue;
                }
                let slot = match kind {
                    it if it == machine.module => &mut found.module_slot,
                    it if it == machine.distance => &mut found.distance_slot,
                    it if it == machine.descriptor => &mut found.descriptor_slot,
                    _ => continue,
                };
                *slot = Some(relocation.r_offset(endian));
            }
        }
        Some(found)
    }
}
