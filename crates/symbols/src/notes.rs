//! Notes of ELF files.

use object::NativeEndian;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;

/// The linker's build id in a section or segment of notes with an alignment of 4 bytes, as `/sys/kernel/notes` is one. `None` when there is
/// none, or bytes that are no notes come before it.
#[must_use]
pub fn build_id_of_notes(notes: &[u8]) -> Option<&[u8]> {
    const ALIGNMENT: u64 = 4;
    const GNU: &[u8] = b"GNU";
    let notes =
        NoteIterator::<FileHeader64<NativeEndian>>::new(NativeEndian, ALIGNMENT, notes).ok()?;
    let mut notes = notes.map_while(Result::ok);
    let found =
        notes.find(|note| note.name() == GNU && note.n_type(NativeEndian) == NT_GNU_BUILD_ID);
    found.map(|note| note.desc()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let mut note = [length(name), length(content), kind].map(u32::to_ne_bytes).concat();
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let notes = [
            note(b"Linux\0", 0x101, b"6.18"),
            note(b"GNU\0", 1, &[1; 16]),
            note(b"GNU\0", 3, &[7; 20]),
            note(b"GNU\0", 3, &[8; 20]),
        ]
        .concat();
        assert_eq!(build_id_of_notes(&notes), Some(&[7; 20][..]));
        assert_eq!(build_id_of_notes(&note(b"GNU\0", 3, &[])), None);
    }

    #[test]
    fn notes_that_are_cut_have_none() {
        let note = note(b"GNU\0", 3, &[7; 20]);
        for end in 0..note.len() {
            assert_eq!(build_id_of_notes(&note[..end]), None, "{end}");
        }
    }
}
