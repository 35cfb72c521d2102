//! Where the members of CPython's structures lie, on 64-bit machines.
//!
//! Up to 3.12 as the headers of each version lay them out (`Include/cpython/*.h`, `Include/internal/*.h`); they are the same in all its
//! patch levels. From 3.13 on the interpreter tells itself, in `_Py_DebugOffsets`, at the begin of `_PyRuntime`.

/// How frames hang together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FrameKind {
    /// Up to 3.10: objects, and each is run by a call of the evaluation function of its own.
    Objects = 0,
    /// 3.11: a frame says whether the evaluation function was called for it.
    Entries = 1,
    /// From 3.12 on: below the frames of one call of the evaluation function lies one that is of no code.
    Shims = 2,
}

/// Offsets in bytes. The order is that of `struct python_layout` of the sampling program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "members of CPython's structures: structure, then member")]
#[repr(C)]
pub struct Layout {
    pub kind: FrameKind,
    pub interpreter_next: u16,
    pub interpreter_threads: u16,
    pub thread_next: u16,
    pub thread_id: u16,
    /// Pointer to the innermost frame, or to what has it.
    pub thread_frame: u16,
    /// One more than where in that the pointer to the innermost frame is; 0: there is nothing between.
    pub between_frame: u16,
    pub frame_code: u16,
    pub frame_previous: u16,
    /// A pointer to the instruction; with [`FrameKind::Objects`] its number, of four bytes.
    pub frame_instruction: u16,
    /// Who owns it; with [`FrameKind::Entries`] whether it is an entry.
    pub frame_owner: u16,
    /// How much of a frame is to be read for these.
    pub frame_bytes: u16,
    /// The qualified name where there is one.
    pub code_name: u16,
    pub code_file: u16,
    pub code_first_line: u16,
    pub code_lines: u16,
    /// Where its instructions begin.
    pub code_instructions: u16,
    /// How much of a code object is to be read for these.
    pub code_bytes: u16,
    pub object_type: u16,
    pub text_length: u16,
    pub text_state: u16,
    /// The lowest bit of the width of characters in the state; `compact` and `ascii` follow.
    pub text_width_shift: u16,
    /// Where the characters of a compact string begin, when they are ASCII.
    pub text_ascii_bytes: u16,
    /// And when they are not.
    pub text_compact_bytes: u16,
    pub bytes_length: u16,
    pub bytes_data: u16,
    /// Of the version: how line tables are written.
    pub minor: u16,
}

/// How much of a frame and of a code object the sampling program can read at most, and of the head of a string.
pub(crate) const MAX_FRAME_BYTES: u16 = 128;
pub(crate) const MAX_CODE_BYTES: u16 = 256;
pub(crate) const MAX_TEXT_BYTES: u16 = 80;

const V3_8: Layout = Layout {
    kind: FrameKind::Objects,
    interpreter_next: 0,
    interpreter_threads: 8,
    thread_next: 8,
    thread_id: 176,
    thread_frame: 24,
    between_frame: 0,
    frame_code: 32,
    frame_previous: 24,
    frame_instruction: 104,
    frame_owner: 0,
    frame_bytes: 112,
    code_name: 112,
    code_file: 104,
    code_first_line: 40,
    code_lines: 120,
    code_instructions: 0,
    code_bytes: 128,
    object_type: 8,
    text_length: 16,
    text_state: 32,
    text_width_shift: 2,
    text_ascii_bytes: 48,
    text_compact_bytes: 72,
    bytes_length: 16,
    bytes_data: 32,
    minor: 8,
};

const V3_9: Layout = Layout { minor: 9, ..V3_8 };

const V3_10: Layout = Layout { frame_instruction: 96, frame_bytes: 104, minor: 10, ..V3_8 };

const V3_11: Layout = Layout {
    kind: FrameKind::Entries,
    interpreter_threads: 16,
    thread_id: 152,
    thread_frame: 56,
    between_frame: 9,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_owner: 68,
    frame_bytes: 72,
    code_name: 128,
    code_file: 112,
    code_first_line: 72,
    code_lines: 136,
    code_instructions: 184,
    code_bytes: 144,
    minor: 11,
    ..V3_8
};

const V3_12: Layout = Layout {
    kind: FrameKind::Shims,
    interpreter_threads: 72,
    thread_id: 136,
    between_frame: 1,
    frame_code: 0,
    frame_previous: 8,
    frame_owner: 70,
    code_first_line: 68,
    code_instructions: 192,
    text_ascii_bytes: 40,
    text_compact_bytes: 56,
    minor: 12,
    ..V3_11
};

/// Offsets in `_PyRuntime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runtime {
    /// The pointer to the first interpreter.
    pub(crate) interpreters: u16,
    /// `Py_tss_t` of the thread state: whether it is there, and the number of its key, four bytes each.
    pub(crate) key: u16,
}

impl Layout {
    /// Up to 3.12, by the minor version.
    pub(crate) const fn of_version(minor: u8) -> Option<(Self, Runtime)> {
        Some(match minor {
            8 => (V3_8, Runtime { interpreters: 32, key: 1392 }),
            9 => (V3_9, Runtime { interpreters: 32, key: 584 }),
            10 => (V3_10, Runtime { interpreters: 32, key: 584 }),
            11 => (V3_11, Runtime { interpreters: 40, key: 592 }),
            12 => (V3_12, Runtime { interpreters: 40, key: 1544 }),
            _ => return None,
        })
    }

    /// As `struct python_layout` of the sampling program: 16-bit numbers in host byte order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 54] {
        let words: [u16; 27] = [
            self.kind as u16,
            self.interpreter_next,
            self.interpreter_threads,
            self.thread_next,
            self.thread_id,
            self.thread_frame,
            self.between_frame,
            self.frame_code,
            self.frame_previous,
            self.frame_instruction,
            self.frame_owner,
            self.frame_bytes,
            self.code_name,
            self.code_file,
            self.code_first_line,
            self.code_lines,
            self.code_instructions,
            self.code_bytes,
            self.object_type,
            self.text_length,
            self.text_state,
            self.text_width_shift,
            self.text_ascii_bytes,
            self.text_compact_bytes,
            self.bytes_length,
            self.bytes_data,
            self.minor,
        ];
        let mut bytes = [0; 54];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        bytes
    }

    /// Whether all that is read lies in what is read, and aligned as the sampling program takes for granted.
    fn is_readable(&self) -> bool {
        let fits = |offset: u16, bytes: u16, all: u16| {
            offset.is_multiple_of(bytes) && offset.checked_add(bytes).is_some_and(|end| end <= all)
        };
        let in_frame = [self.frame_code, self.frame_previous, self.frame_instruction];
        let in_code = [self.code_name, self.code_file, self.code_lines, self.object_type];
        self.frame_bytes <= MAX_FRAME_BYTES
            && self.code_bytes <= MAX_CODE_BYTES
            && self.text_ascii_bytes <= MAX_TEXT_BYTES
            && in_frame.iter().all(|offset| fits(*offset, 8, self.frame_bytes))
            && self.frame_owner < self.frame_bytes
            && in_code.iter().all(|offset| fits(*offset, 8, self.code_bytes))
            && fits(self.code_first_line, 4, self.code_bytes)
            && fits(self.text_length, 8, self.text_ascii_bytes)
            && fits(self.text_state, 4, self.text_ascii_bytes)
    }
}

/// `_Py_DebugOffsets`: what stands before everything else in `_PyRuntime`.
pub(crate) struct DebugOffsets<'a> {
    words: &'a [[u8; 8]],
    /// `PY_VERSION_HEX`.
    pub(crate) version: u32,
    is_free_threaded: bool,
}

/// The longest `_Py_DebugOffsets` that is read; 3.14's has 760 bytes.
pub(crate) const DEBUG_OFFSETS_BYTES: u64 = 1024;

impl<'a> DebugOffsets<'a> {
    /// `None` when they do not begin as such.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let words = bytes.strip_prefix(b"xdebugpy")?.as_chunks().0;
        let number = |at: usize| words.get(at).map(|word| u64::from_ne_bytes(*word));
        Some(Self {
            words,
            version: u32::try_from(number(0)?).ok()?,
            is_free_threaded: number(1)? != 0,
        })
    }

    /// `None` for versions that lay them out in another way, and for numbers that cannot be.
    ///
    /// Their order is that of `Include/internal/pycore_runtime.h` (3.13), `pycore_debug_offsets.h` (3.14). Counted here from the version on.
    pub(crate) fn layout(&self) -> Option<(Layout, Runtime)> {
        let minor = self.version >> 16;
        // Where each part begins; the size of the structure is its first word.
        let (interpreter, thread, frame, code, object, bytes, text) = match minor {
            0x030d => (5, 18, 27, 33, 43, 63, 66),
            0x030e => (5, 21, 30, 38, 49, 73, 76),
            _ => return None,
        };
        let key = match (minor, self.is_free_threaded) {
            (0x030d, false) => 2160,
            (0x030e, false) => 2336,
            // Not told, and never looked at: the thread is found in the interpreter's list.
            _ => 0,
        };
        let at = |part: usize, member: usize| {
            self.words.get(part + member).and_then(|it| u16::try_from(u64::from_ne_bytes(*it)).ok())
        };
        let [code_file, code_name, code_lines, code_first_line] =
            [at(code, 1)?, at(code, 3)?, at(code, 4)?, at(code, 5)?];
        let object_type = at(object, 1)?;
        let text_ascii_bytes = at(text, 3)?;
        let pointers = [code_name, code_file, code_lines, object_type];
        let frame_owner = at(frame, 5)?;
        let layout = Layout {
            kind: FrameKind::Shims,
            interpreter_next: at(interpreter, 2)?,
            interpreter_threads: at(interpreter, 3)?,
            thread_next: at(thread, 2)?,
            thread_id: at(thread, 5)?,
            thread_frame: at(thread, 4)?,
            between_frame: 0,
            frame_code: at(frame, 2)?,
            frame_previous: at(frame, 1)?,
            frame_instruction: at(frame, 3)?,
            frame_owner,
            frame_bytes: (frame_owner & !7).checked_add(8)?,
            code_name,
            code_file,
            code_first_line,
            code_lines,
            code_instructions: at(code, 9)?,
            code_bytes: pointers.into_iter().max()?.checked_add(8)?,
            object_type,
            text_length: at(text, 2)?,
            text_state: at(text, 1)?,
            // A build without the lock has a byte of its own before the width, from 3.14 on.
            text_width_shift: if self.is_free_threaded && minor >= 0x030e { 8 } else { 2 },
            text_ascii_bytes,
            // `PyCompactUnicodeObject` adds the UTF-8 form and its length.
            text_compact_bytes: text_ascii_bytes.checked_add(16)?,
            bytes_length: at(bytes, 1)?,
            bytes_data: at(bytes, 2)?,
            minor: u16::try_from(minor & 0xff).ok()?,
        };
        let runtime = Runtime { interpreters: at(0, 4)?, key };
        layout.is_readable().then_some((layout, runtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tables_say_can_be_read() {
        for minor in 8..=12 {
            let (layout, runtime) = Layout::of_version(minor).unwrap();
            assert!(layout.is_readable(), "3.{minor}");
            assert!(runtime.interpreters > 0 && runtime.key.is_multiple_of(4));
        }
        assert_eq!(Layout::of_version(7), None);
        assert_eq!(Layout::of_version(13), None);
    }

    #[test]
    fn a_layout_s_bytes_are_its_members_in_order() {
        let (layout, _) = Layout::of_version(12).unwrap();
        let bytes = layout.to_bytes();
        assert_eq!(size_of::<Layout>(), bytes.len());
        assert_eq!(&bytes[..6], [2, 0, 0, 0, 72, 0]);
        assert_eq!(&bytes[48..], [16, 0, 32, 0, 12, 0]);
    }

    #[test]
    fn offsets_that_cannot_be_are_refused() {
        let mut bytes = b"xdebugpy".to_vec();
        let mut push = |number: u64| bytes.extend(number.to_ne_bytes());
        push(0x030d_00f0);
        for _ in 0..100 {
            push(9);
        }
        let offsets = DebugOffsets::read(&bytes).unwrap();
        assert_eq!(offsets.version, 0x030d_00f0);
        assert_eq!(offsets.layout(), None, "no pointer lies at an odd place");
        assert!(DebugOffsets::read(&bytes[..200]).unwrap().layout().is_none());
        assert!(DebugOffsets::read(&bytes[1..]).is_none());
    }
}
