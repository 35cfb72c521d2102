//! `jit-PID.dump`: records of code that a process makes, with the time (tools/perf/Documentation/jitdump-specification.txt of Linux).
//!
//! All numbers are in the byte order of the process.
//!
//! | header | bytes | | record | bytes | |
//! |---|---|---|---|---|---|
//! | magic | 4 | `JiTD` | id | 4 | 0 load, 1 move, 2 lines, 3 close |
//! | version | 4 | 1 | size | 4 | of the record with this head |
//! | size | 4 | of the header | time | 8 | `CLOCK_MONOTONIC`, nanoseconds |
//! | machine, nothing, process | 12 | | | | |
//! | time, flags | 16 | bit 0: times are of the CPU's own clock | | | |
//!
//! A load is process, thread (4 each), address, address, length, number (8 each), name up to a NUL, code. A move is process, thread,
//! address, old address, new address, length, number. Lines come before their load: address, count (8 each), and for each
//! line address (8), line, column (4 each), file up to a NUL; `ff 00` is the file of the line before.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{JitCode, Line, MAX_NAME_BYTES, V8Name, shortened};

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const CPU_CLOCK: u64 = 1;
const HEADER_BYTES: u64 = 40;
const MAX_HEADER_BYTES: u32 = 4096;

const HEAD_BYTES: u64 = 16;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;
const CLOSE: u32 = 3;

/// As much of a record is looked at: of a load its name, and of lines 1 MiB.
const MAX_LOAD_BYTES: u64 = HEAD_BYTES + 40 + MAX_NAME_BYTES as u64 + 1;
const MAX_LINES_BYTES: u64 = 1 << 20;
/// Lines of one function.
const MAX_LINES: usize = 4096;
/// Records that wait for their time; samples come in the order of time, seldom later than a second.
const MAX_WAITING: usize = 65_536;
/// V8 tells of addresses as they were if the code lay behind the header of an ELF file (`src/diagnostics/perf-jit.cc`).
const V8_OFFSET: u64 = 64;

/// Why a file is no jitdump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JitDumpError {
    /// Its first bytes are not those of one of this machine.
    #[error("no jitdump of this machine's byte order")]
    Magic,
    /// Another version.
    #[error("jitdump version {0}")]
    Version(u32),
    /// Its times are not `CLOCK_MONOTONIC`.
    #[error("times of the CPU's own clock")]
    CpuClock,
    /// A size that is smaller than what it counts.
    #[error("a record of {size} bytes at {offset}")]
    Size {
        /// The size.
        size: u32,
        /// Where in the file.
        offset: u64,
    },
}

/// The reader of a file that grows.
#[derive(Debug, Clone, Default)]
pub struct JitDump {
    /// The next record.
    offset: u64,
    /// What was read, and is of later than the last moment that was asked for.
    waiting: VecDeque<(u64, Change)>,
    /// Those of the code that comes next, and where they say that it begins.
    lines: Option<(u64, Vec<Line>)>,
    malformed: u64,
    left_out: u64,
    is_closed: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Load { begin: u64, len: u64, name: String, lines: Box<[Line]> },
    Move { from: u64, to: u64, len: u64 },
}

impl JitDump {
    /// From where in the file on [`read`](Self::read) is to be given bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Records that end inside a field.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Records that found no room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether the process says that nothing follows.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Reads the whole records of what the file has from [`offset`](Self::offset) on; a megabyte is enough for any.
    ///
    /// # Errors
    /// [`JitDumpError`]: nothing behind it can be read.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), JitDumpError> {
        let begin = self.offset;
        while !self.is_closed {
            let inside = usize::try_from(self.offset - begin).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(inside..) else { break };
            let step = if self.offset == 0 { self.header(rest)? } else { self.record(rest)? };
            if step == 0 {
                break;
            }
            self.offset = self.offset.saturating_add(step);
        }
        Ok(())
    }

    /// What was made until a moment: `CLOCK_MONOTONIC`, nanoseconds. Moments that are asked for do not go back.
    pub fn advance(&mut self, until_ns: u64, into: &mut JitCode) {
        while let Some((_, change)) = self.waiting.pop_front_if(|(at_ns, _)| *at_ns <= until_ns) {
            match change {
                Change::Load { begin, len, name, lines } => {
                    into.insert(begin, len, name.as_bytes(), lines);
                }
                Change::Move { from, to, len } => into.move_to(from, to, len),
            }
        }
    }

    /// Bytes of it; 0 when it is not whole.
    fn header(&self, bytes: &[u8]) -> Result<u64, JitDumpError> {
        let mut from = Fields(bytes);
        let Some((magic, version)) = from.u32().zip(from.u32()) else { return Ok(0) };
        if magic != MAGIC {
            return Err(JitDumpError::Magic);
        }
        if version != VERSION {
            return Err(JitDumpError::Version(version));
        }
        let Some(size) = from.u32() else { return Ok(0) };
        let (_, flags) = (from.bytes(20), from.u64());
        let Some(flags) = flags else { return Ok(0) };
        if u64::from(size) < HEADER_BYTES || size > MAX_HEADER_BYTES {
            return Err(JitDumpError::Size { size, offset: self.offset });
        }
        if flags & CPU_CLOCK != 0 {
            return Err(JitDumpError::CpuClock);
        }
        Ok(size.into())
    }

    /// Bytes of it; 0 when too little of it is there.
    fn record(&mut self, bytes: &[u8]) -> Result<u64, JitDumpError> {
        let mut from = Fields(bytes);
        let head = (from.u32(), from.u32(), from.u64());
        let (Some(id), Some(size), Some(at_ns)) = head else { return Ok(0) };
        let whole = u64::from(size);
        if whole < HEAD_BYTES {
            return Err(JitDumpError::Size { size, offset: self.offset });
        }
        let looked_at = match id {
            LOAD => MAX_LOAD_BYTES,
            MOVE => HEAD_BYTES + 48,
            LINES => MAX_LINES_BYTES,
            _ => HEAD_BYTES,
        };
        let len = usize::try_from(whole.min(looked_at) - HEAD_BYTES).unwrap_or(usize::MAX);
        let Some(body) = from.bytes(len) else { return Ok(0) };
        let body = Fields(body);
        match id {
            LOAD => match self.load(body) {
                Some(change) => self.wait(at_ns, change),
                None => self.malformed += 1,
            },
            MOVE => match moved(body) {
                Some(change) => self.wait(at_ns, change),
                None => self.malformed += 1,
            },
            LINES => self.lines = lines(body),
            CLOSE => self.is_closed = true,
            _ => {}
        }
        Ok(whole)
    }

    fn load(&mut self, mut from: Fields<'_>) -> Option<Change> {
        let (_, _, begin) = (from.u64()?, from.u64()?, from.u64()?);
        let (len, _) = (from.u64()?, from.u64()?);
        let name = from.text();
        let name = shortened(name);
        let of_it = self.lines.take().filter(|(at, _)| *at == begin);
        let mut lines = of_it.map(|(_, lines)| lines.into_boxed_slice()).unwrap_or_default();
        if V8Name::of(&name).is_some() {
            lines.iter_mut().for_each(|line| line.at = line.at.saturating_sub(V8_OFFSET));
        }
        Some(Change::Load { begin, len, name, lines })
    }

    fn wait(&mut self, at_ns: u64, change: Change) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back((at_ns, change));
        } else {
            self.left_out += 1;
        }
    }
}

fn moved(mut from: Fields<'_>) -> Option<Change> {
    let _threads_and_address = (from.u64()?, from.u64()?);
    let (old, to, len) = (from.u64()?, from.u64()?, from.u64()?);
    Some(Change::Move { from: old, to, len })
}

/// Where their code begins, and the lines; those that are not whole are left out.
fn lines(mut from: Fields<'_>) -> Option<(u64, Vec<Line>)> {
    let (begin, count) = (from.u64()?, from.u64()?);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_LINES);
    let mut all: Vec<Line> = Vec::new();
    for _ in 0..count {
        let Some((address, number)) = from.u64().zip(from.u32()) else { break };
        let (Some(_column), file) = (from.u32(), from.text()) else { break };
        let file = match (file, all.last()) {
            ([0xff], Some(before)) => Arc::clone(&before.file),
            _ => shortened(file).into(),
        };
        let Some(at) = address.checked_sub(begin) else { continue };
        all.push(Line { at, file, number });
    }
    all.sort_by_key(|line| line.at);
    Some((begin, all))
}

/// A cursor over a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*bytes))
    }

    /// Up to a NUL, which is passed.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u64) -> Vec<u8> {
        let words = [MAGIC, VERSION, 40, 62, 0, 7].map(u32::to_ne_bytes).concat();
        [words, [1_u64, flags].map(u64::to_ne_bytes).concat()].concat()
    }

    fn record(id: u32, at_ns: u64, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(16 + body.len()).unwrap();
        [&id.to_ne_bytes()[..], &size.to_ne_bytes(), &at_ns.to_ne_bytes(), body].concat()
    }

    fn load(at_ns: u64, begin: u64, len: usize, name: &str) -> Vec<u8> {
        let mut body = [0, begin, begin, len as u64, 1].map(u64::to_ne_bytes).concat();
        body.extend(name.as_bytes());
        body.push(0);
        body.resize(body.len() + len, 0xcc);
        record(LOAD, at_ns, &body)
    }

    fn debug_info(begin: u64, all: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut body = [begin, all.len() as u64].map(u64::to_ne_bytes).concat();
        for (address, line, file) in all {
            body.extend(address.to_ne_bytes());
            body.extend([*line, 0].map(u32::to_ne_bytes).concat());
            body.extend(*file);
            body.push(0);
        }
        record(LINES, 1, &body)
    }

    fn example() -> Vec<u8> {
        let moved = [0, 0x9000, 0x1000, 0x9000, 0x100, 1].map(u64::to_ne_bytes).concat();
        [
            header(0),
            debug_info(0x1000, &[(0x1000, 5, b"a.js"), (0x1010, 6, &[0xff])]),
            load(10, 0x1000, 0x100, "one"),
            debug_info(0x3000, &[(0x3040, 7, b"a.js"), (0x3050, 8, &[0xff])]),
            load(10, 0x3000, 0x100, "JS:*f a.js:1:1"),
            record(4, 11, &[0; 24]),
            load(20, 0x2000, 0x10_0000, "two"),
            record(MOVE, 30, &moved),
            load(40, 0x1000, 0x100, "three"),
            record(CLOSE, 50, &[]),
        ]
        .concat()
    }

    /// Reads a file as it grows by so many bytes.
    fn read_by(file: &[u8], step: usize) -> JitDump {
        let mut dump = JitDump::default();
        for len in (0..file.len()).step_by(step).chain([file.len()]) {
            let from = usize::try_from(dump.offset()).unwrap();
            dump.read(file.get(from..len).unwrap_or_default()).unwrap();
        }
        dump
    }

    #[test]
    fn names_are_those_of_the_moment() {
        let file = example();
        for step in [1 << 20, 4096, 1013] {
            let mut dump = read_by(&file, step);
            assert!(dump.is_closed());
            assert_eq!((dump.malformed(), dump.left_out()), (0, 0));
            let mut code = JitCode::default();
            let mut at = |moment, address| {
                dump.advance(moment, &mut code);
                let found = code.find(address)?;
                let line = found.line.map(|(file, line)| (file.to_owned(), line));
                Some((found.name.to_owned(), line))
            };
            let line = |line| Some(("a.js".to_owned(), line));
            assert_eq!(at(9, 0x1000), None);
            assert_eq!(at(10, 0x100f), Some(("one".into(), line(5))));
            assert_eq!(at(10, 0x1010), Some(("one".into(), line(6))));
            assert_eq!(at(10, 0x300f), Some(("JS:*f a.js:1:1".into(), line(7))));
            assert_eq!(at(10, 0x3010), Some(("JS:*f a.js:1:1".into(), line(8))));
            assert_eq!(at(10, 0x2000), None);
            assert_eq!(at(20, 0x2000), Some(("two".into(), None)));
            assert_eq!(at(35, 0x1000), None);
            assert_eq!(at(35, 0x9010), Some(("one".into(), line(6))));
            assert_eq!(at(50, 0x1000), Some(("three".into(), None)));
        }
    }

    #[test]
    fn what_is_no_jitdump_is_refused_with_the_reason() {
        let read = |bytes: &[u8]| JitDump::default().read(bytes);
        assert_eq!(read(b"nonsense"), Err(JitDumpError::Magic));
        assert_eq!(read(&header(CPU_CLOCK)), Err(JitDumpError::CpuClock));
        let mut other = header(0);
        other[4] = 2;
        assert_eq!(read(&other), Err(JitDumpError::Version(2)));
        let small = [header(0), record(LOAD, 1, &[])].concat();
        let mut dump = JitDump::default();
        dump.read(&small).unwrap();
        assert_eq!(dump.malformed(), 1);
        let mut endless = small;
        endless[44] = 3;
        let expected = Err(JitDumpError::Size { size: 3, offset: 40 });
        assert_eq!(read(&endless), expected);
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_is_whole() {
        let file = example();
        for len in (0..2000).chain([file.len() - 1]) {
            let mut dump = JitDump::default();
            dump.read(&file[..len.min(file.len())]).unwrap();
            assert!(!dump.is_closed());
            assert_eq!(dump.malformed(), 0);
        }
    }
}
