//! The sections of a file that hold debug information.

use gimli::{Dwarf, SectionId};
use libdeflater::Decompressor;
use object::read::elf::{FileHeader, SectionHeader};
use object::{FileKind, NativeEndian, ReadRef, elf};

use super::LinesError;
use super::cursor::{Bytes, Cursor, Meter, Place};

/// More section headers than any linker writes.
const MAX_HEADERS: usize = 65_536;

/// Most bytes that a file's compressed sections may have when they are not, in all.
pub const MAX_INFLATED_BYTES: u64 = 256 << 20;

/// What is read; the sections of types, variables and macros are not.
const READ: [SectionId; 10] = [
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugAddr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
];

/// How much is read at once where one thing follows the other.
pub(super) const LONG_PIECE: u64 = 64 << 10;

/// And where it does not.
pub(super) const SHORT_PIECE: u64 = 4 << 10;

/// Where a section is.
#[derive(Debug)]
enum Section {
    InFile { offset: u64, len: u64 },
    Inflated(Box<[u8]>),
}

/// Sections of debug information.
#[derive(Debug, Default)]
pub(super) struct Sections {
    found: Vec<(SectionId, Section)>,
}

type Header = elf::FileHeader64<NativeEndian>;

impl Sections {
    /// # Errors
    /// [`LinesError`]; [`LinesError::None`] where there is nothing to read.
    pub(super) fn of<'a, R: ReadRef<'a>>(file: R) -> Result<Self, LinesError> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return Err(LinesError::NotElf);
        }
        let malformed = |part| {
            move |error: object::Error| LinesError::Malformed { part, why: error.to_string() }
        };
        let header = Header::parse(file).map_err(malformed("header"))?;
        let endian = header.endian().map_err(|_other_order| LinesError::NotElf)?;
        let count = header.shnum(endian, file).map_err(malformed("section headers"))?;
        if count > MAX_HEADERS {
            return Err(LinesError::TooLarge { part: "section headers" });
        }
        let sections = header.sections(endian, file).map_err(malformed("section headers"))?;
        let mut found: Vec<(SectionId, Section)> = Vec::new();
        let mut room = MAX_INFLATED_BYTES;
        for section in sections.iter() {
            let name = sections.section_name(endian, section).unwrap_or_default();
            let Some(id) = READ.iter().find(|id| id.name().as_bytes() == name) else { continue };
            if found.iter().any(|(known, _)| known == id) {
                continue;
            }
            let malformed = malformed(id.name());
            let contents = match section.compression(endian, file).map_err(malformed)? {
                Some((head, offset, len)) => {
                    let inflated = head.ch_size.get(endian);
                    let too_large = LinesError::TooLarge { part: id.name() };
                    room = room.checked_sub(inflated).ok_or(too_large)?;
                    let compressed = if len <= MAX_INFLATED_BYTES { len } else { 0 };
                    let bytes = file.read_bytes_at(offset, compressed).unwrap_or_default();
                    let kind = head.ch_type.get(endian);
                    let bytes = inflate(kind, bytes, inflated).ok_or_else(|| {
                        let why = "cannot be decompressed".to_owned();
                        LinesError::Malformed { part: id.name(), why }
                    })?;
                    Section::Inflated(bytes)
                }
                None => match section.file_range(endian) {
                    Some((offset, len)) => Section::InFile { offset, len },
                    None => continue,
                },
            };
            found.push((*id, contents));
        }
        let is_there = |id| found.iter().any(|(known, _)| *known == id);
        if is_there(SectionId::DebugInfo) { Ok(Self { found }) } else { Err(LinesError::None) }
    }

    /// Bytes of memory that these take.
    pub(super) fn bytes(&self) -> usize {
        let of = |(_, section): &(SectionId, Section)| match section {
            Section::Inflated(bytes) => bytes.len(),
            Section::InFile { .. } => 0,
        };
        self.found.iter().map(of).sum()
    }

    /// These sections of that file, of which `.debug_info` is read in pieces of so many bytes.
    pub(super) fn dwarf<'d>(
        &'d self,
        file: &'d dyn Bytes,
        info_piece_bytes: u64,
        meter: &'d Meter,
    ) -> Dwarf<Cursor<'d>> {
        let load = |id| {
            let section = self.found.iter().find(|(known, _)| *known == id);
            let (place, len) = match section.map(|(_, section)| section) {
                Some(Section::Inflated(bytes)) => (Place::Memory(bytes), bytes.len()),
                Some(Section::InFile { offset, len }) => {
                    let piece_bytes = match id {
                        SectionId::DebugInfo => info_piece_bytes,
                        SectionId::DebugLine => LONG_PIECE,
                        _ => SHORT_PIECE,
                    };
                    let place = Place::InFile { file, offset: *offset, piece_bytes };
                    (place, usize::try_from(*len).unwrap_or(usize::MAX))
                }
                None => (Place::Memory(&[]), 0),
            };
            Ok::<_, std::convert::Infallible>(Cursor::new(place, len, meter))
        };
        let Ok(dwarf) = Dwarf::load(load);
        dwarf
    }
}

/// `None` unless it is that long.
fn inflate(kind: u32, bytes: &[u8], len: u64) -> Option<Box<[u8]>> {
    let len = usize::try_from(len).ok()?;
    // Of at most `MAX_INFLATED_BYTES`.
    let mut inflated = vec![0; len];
    let written = match kind {
        elf::ELFCOMPRESS_ZLIB => Decompressor::new().zlib_decompress(bytes, &mut inflated).ok()?,
        elf::ELFCOMPRESS_ZSTD => {
            let zstd = zstd::bulk::Decompressor::new();
            zstd.and_then(|mut zstd| zstd.decompress_to_buffer(bytes, inflated.as_mut_slice()))
                .ok()?
        }
        _ => return None,
    };
    (written == len).then(|| inflated.into_boxed_slice())
}
