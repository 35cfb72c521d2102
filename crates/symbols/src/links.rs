//! What a file says of the files that its debug information is in.

use std::io::{self, Read};

use flate2::Crc;
use object::read::elf::{FileHeader, SectionHeader};
use object::{FileKind, NativeEndian, ReadRef, elf};

use crate::notes::build_id_of_notes;

/// More section headers than any linker writes.
const MAX_HEADERS: usize = 65_536;

/// The longest build id, and the longest path to another file.
const MAX_BUILD_ID_BYTES: usize = 64;
const MAX_PATH_BYTES: usize = 4096;

/// Where the debug information of a file is, as the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DebugLinks {
    /// Whether it has debug information itself.
    pub has_own: bool,
    /// The linker's name for the contents; that of a file with debug information alone is the same.
    pub build_id: Option<Vec<u8>>,
    /// The file that has it (`.gnu_debuglink`): a name without folders, and [`link_checksum`] of its contents.
    pub separate: Option<(Vec<u8>, u32)>,
    /// The file that it shares entries of its own with others in (`.gnu_debugaltlink`): a path, and its build id.
    pub shared: Option<(Vec<u8>, Vec<u8>)>,
}

type Header = elf::FileHeader64<NativeEndian>;

impl DebugLinks {
    /// Of an ELF file of 64 bits; `None` of any other.
    #[must_use]
    pub fn of<'a, R: ReadRef<'a>>(file: R) -> Option<Self> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return None;
        }
        let header = Header::parse(file).ok()?;
        let endian = header.endian().ok()?;
        if header.shnum(endian, file).ok()? > MAX_HEADERS {
            return None;
        }
        let sections = header.sections(endian, file).ok()?;
        let mut links = Self::default();
        for section in sections.iter() {
            let contents = |most: usize| {
                let (offset, len) = section.file_range(endian)?;
                file.read_bytes_at(offset, len.min(most as u64)).ok()
            };
            match sections.section_name(endian, section).unwrap_or_default() {
                b".debug_info" => links.has_own |= section.sh_type(endian) != elf::SHT_NOBITS,
                b".gnu_debuglink" => {
                    links.separate = contents(MAX_PATH_BYTES + 8).and_then(separate);
                }
                b".gnu_debugaltlink" => {
                    let most = MAX_PATH_BYTES + 1 + MAX_BUILD_ID_BYTES;
                    links.shared = contents(most).and_then(shared);
                }
                b".note.gnu.build-id" => {
                    let id = contents(4096).and_then(build_id_of_notes);
                    let id = id.filter(|id| id.len() <= MAX_BUILD_ID_BYTES);
                    links.build_id = id.map(<[u8]>::to_vec);
                }
                _ => {}
            }
        }
        Some(links)
    }
}

/// A name, its NUL, as many as bring it to four bytes, the checksum.
fn separate(bytes: &[u8]) -> Option<(Vec<u8>, u32)> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let name = bytes.get(..end)?;
    let (checksum, _) = bytes.get((end / 4 + 1) * 4..)?.split_first_chunk()?;
    let is_name = !name.is_empty() && !name.contains(&b'/') && name != b"..";
    is_name.then(|| (name.to_vec(), u32::from_ne_bytes(*checksum)))
}

/// A path, its NUL, the build id up to the end.
fn shared(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (path, id) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    let is_plain = !path.is_empty() && !id.is_empty() && id.len() <= MAX_BUILD_ID_BYTES;
    is_plain.then(|| (path.to_vec(), id.to_vec()))
}

/// The checksum by which a file names the one with its debug information: CRC-32 as zlib has it, over all of it.
///
/// # Errors
/// That of reading.
pub fn link_checksum(mut file: impl Read) -> io::Result<u32> {
    let mut checksum = Crc::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = file.read(&mut bytes)?;
        if count == 0 {
            return Ok(checksum.sum());
        }
        checksum.update(bytes.get(..count).unwrap_or_default());
    }
}
