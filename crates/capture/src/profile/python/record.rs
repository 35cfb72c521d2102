//! Reads what the program wrote of CPython's frames: `struct python_frame` and `struct python_code` of `bpf/sample.h`.

use std::sync::Arc;

use super::{PythonCode, PythonFrame};
use crate::profile::sample::RawPython;

const HAS_CODE: u8 = 1;
const IS_ENTRY: u8 = 2;
const IS_SHIM: u8 = 4;

/// Of a width: the text is longer.
const IS_CUT: u8 = 0x80;

/// How `__init__` looks that calls of classes push between the caller and the class's own, in 3.12 and later: no function of a file.
const CLEANUP: &str = "__init__";

/// A code object as it was copied.
struct Copied<'a> {
    code: Arc<PythonCode>,
    lines: &'a [u8],
    is_cleanup: bool,
}

/// The frames, the innermost first, by the call of the evaluation function that runs them, and how many are of a function that could
/// not be read. What does not belong to the format ends them.
pub(in crate::profile) fn runs(raw: &RawPython<'_>) -> (Vec<Vec<PythonFrame>>, u64) {
    let mut reader = Reader { all: raw.bytes, at: 0 };
    let mut codes: Vec<Copied<'_>> = Vec::new();
    let (mut runs, mut run, mut unnamed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..raw.records {
        let Some(record) = reader.frame() else { break };
        if record.what & IS_SHIM != 0 {
            runs.push(std::mem::take(&mut run));
            continue;
        }
        if record.what & HAS_CODE != 0 {
            let Some(code) = reader.code() else { break };
            codes.push(code);
        }
        let Some(copied) = codes.get(usize::from(record.code)) else { break };
        if !copied.is_cleanup {
            let first_line = copied.code.first_line;
            let line = cpython::line(raw.minor, copied.lines, first_line, record.instruction);
            unnamed += u64::from(copied.code.function.is_none());
            run.push(PythonFrame { code: Arc::clone(&copied.code), line: line.unwrap_or(0) });
        }
        if record.what & IS_ENTRY != 0 {
            runs.push(std::mem::take(&mut run));
        }
    }
    if !run.is_empty() {
        runs.push(run);
    }
    (runs, unnamed)
}

/// A frame as it was written.
struct Record {
    instruction: u32,
    code: u16,
    what: u8,
}

struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.all.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.first_chunk().copied()
    }

    fn frame(&mut self) -> Option<Record> {
        let instruction = u32::from_ne_bytes(self.array()?);
        let code = u16::from_ne_bytes(self.array()?);
        let [what, _] = self.array()?;
        Some(Record { instruction, code, what })
    }

    fn code(&mut self) -> Option<Copied<'a>> {
        let first_line = u32::from_ne_bytes(self.array()?);
        let mut length = || Some(usize::from(u16::from_ne_bytes(self.array()?)));
        let (name_bytes, file_bytes, line_bytes) = (length()?, length()?, length()?);
        let [name_width, file_width] = self.array()?;
        let _unused: [u8; 4] = self.array()?;
        let function = text(self.bytes(name_bytes)?, name_width);
        let file = text(self.bytes(file_bytes)?, file_width).unwrap_or_default();
        let lines = self.bytes(line_bytes)?;
        self.at = self.at.next_multiple_of(8);
        let is_cleanup = file == CLEANUP && function.as_deref() == Some(CLEANUP);
        let code = Arc::new(PythonCode { function, file, first_line });
        Some(Copied { code, lines, is_cleanup })
    }
}

fn text(bytes: &[u8], width: u8) -> Option<String> {
    let mut text = cpython::text(bytes, width & !IS_CUT)?;
    if width & IS_CUT != 0 {
        text.push('…');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PythonEnd;

    fn frame(code: u16, what: u8, instruction: u32) -> Vec<u8> {
        let mut bytes = instruction.to_ne_bytes().to_vec();
        bytes.extend(code.to_ne_bytes());
        bytes.extend([what, 0]);
        bytes
    }

    fn code(name: &[u8], width: u8, file: &[u8], first_line: u32, lines: &[u8]) -> Vec<u8> {
        let mut bytes = first_line.to_ne_bytes().to_vec();
        for length in [name.len(), file.len(), lines.len()] {
            bytes.extend(u16::try_from(length).unwrap().to_ne_bytes());
        }
        bytes.extend([width, 1, 0, 0, 0, 0]);
        bytes.extend([name, file, lines].concat());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn named(minor: u8, records: u16, bytes: &[u8]) -> Vec<Vec<String>> {
        let name = |frame: PythonFrame| {
            format!("{}:{}", frame.code.function.as_deref().unwrap_or("?"), frame.line)
        };
        let (runs, _) = runs(&RawPython { end: PythonEnd::Root, records, bytes, minor });
        runs.into_iter().map(|run| run.into_iter().map(name).collect()).collect()
    }

    #[test]
    fn an_entry_ends_a_run_with_itself_and_a_shim_before_itself() {
        let lnotab = [2, 1, 2, 1];
        let inner = [frame(0, HAS_CODE, 2), code(b"inner", 1, b"f.py", 5, &lnotab)].concat();
        let outer =
            [frame(1, HAS_CODE | IS_ENTRY, 0), code(b"outer", 1, b"f.py", 9, &lnotab)].concat();
        let again = frame(0, IS_ENTRY, 4);
        let bytes = [inner.clone(), outer, again].concat();
        assert_eq!(named(8, 3, &bytes), [vec!["inner:6", "outer:9"], vec!["inner:7"]]);
        let bytes = [frame(0, IS_SHIM, 0), inner, frame(0, IS_SHIM, 0)].concat();
        assert_eq!(named(8, 3, &bytes), [vec![], vec!["inner:6"]]);
    }

    #[test]
    fn names_may_be_cut_wide_or_missing() {
        let wide: Vec<u8> = "Ω𝓯".chars().flat_map(|it| u32::from(it).to_ne_bytes()).collect();
        let bytes = [
            [frame(0, HAS_CODE, u32::MAX), code(&wide, 4, b"f.py", 1, &[])].concat(),
            [frame(1, HAS_CODE, u32::MAX), code(b"long", 1 | IS_CUT, b"f.py", 1, &[])].concat(),
            [frame(2, HAS_CODE, u32::MAX), code(b"", 0, b"", 0, &[])].concat(),
        ];
        assert_eq!(named(12, 3, &bytes.concat()), [vec!["Ω𝓯:0", "long…:0", "?:0"]]);
        let bytes = bytes.concat();
        let raw = RawPython { end: PythonEnd::Root, records: 3, bytes: &bytes, minor: 12 };
        assert_eq!(runs(&raw).1, 1);
    }

    #[test]
    fn what_calls_of_classes_push_is_no_frame() {
        let bytes = [frame(0, HAS_CODE, 2), code(b"__init__", 1, b"__init__", 0, &[])].concat();
        assert_eq!(named(12, 1, &bytes), [] as [Vec<String>; 0]);
    }

    #[test]
    fn bytes_that_are_cut_anywhere_give_the_frames_before() {
        let bytes = [frame(0, HAS_CODE | IS_ENTRY, 2), code(b"f", 1, b"f.py", 5, &[])].concat();
        for end in 0..bytes.len() - 3 {
            let found = named(8, 9, &bytes[..end]);
            assert!(found.is_empty(), "{end}: {found:?}");
        }
        assert_eq!(named(8, 9, &bytes), [vec!["f:5"]]);
        assert_eq!(named(8, 9, &frame(3, 0, 2)), [] as [Vec<String>; 0]);
    }
}
