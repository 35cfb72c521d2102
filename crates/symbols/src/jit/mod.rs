//! Code that a process made while it ran: which name its addresses have at a moment.
//!
//! ```text
//! /tmp/perf-PID.map  ─▶ PerfMap  ─▶┐
//!                                   ├─▶ JitCode: address ─▶ name, and where its source is known, line
//! jit-PID.dump       ─▶ JitDump  ─▶┘
//! ```
//! Both readers are given a file's bytes from [`PerfMap::offset`] or [`JitDump::offset`] on as it grows, and go as far as what is
//! whole. The processes that write these files are not trusted: names, lines and entries have bounds, and what finds no
//! room is counted.

mod dump;
mod perf_map;
mod v8;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use dump::{JitDump, JitDumpError};
pub use perf_map::PerfMap;
pub use v8::V8Name;

/// Memory that the names of one process may take. A server of Node.js has some 5 MiB of them, a large one in Java 10.
pub const MAX_JIT_BYTES: usize = 32 << 20;

/// The longest name that is kept; of a longer one, as much.
const MAX_NAME_BYTES: usize = 1024;

/// What an entry takes beside its name, and a line.
const ENTRY_BYTES: usize = 96;
const LINE_BYTES: usize = 32;

/// Code by address; of two at one address the later one.
#[derive(Debug, Clone, Default)]
pub struct JitCode {
    by_begin: BTreeMap<u64, Entry>,
    bytes: usize,
    left_out: u64,
}

/// A function that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitFunction<'a> {
    /// Its name, as who made it writes it.
    pub name: &'a str,
    /// The source file and the line of the address.
    pub line: Option<(&'a str, u32)>,
}

#[derive(Debug, Clone)]
struct Entry {
    end: u64,
    made: Arc<Made>,
}

/// Code as it was made.
#[derive(Debug, Default)]
struct Made {
    name: Box<str>,
    /// Where lines begin, bytes from the code's begin on, rising.
    lines: Box<[Line]>,
    /// Where the code lay first.
    begin: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    at: u64,
    file: Arc<str>,
    number: u32,
}

impl Made {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name.len() + self.lines.len() * LINE_BYTES
    }
}

impl JitCode {
    /// The function that an address is of.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<JitFunction<'_>> {
        let (_, entry) = self.by_begin.range(..=address).next_back()?;
        if address >= entry.end {
            return None;
        }
        let made = &*entry.made;
        // What is left of code that was written over in part does not begin where it began.
        let inside = address.saturating_sub(made.begin);
        let behind = made.lines.partition_point(|line| line.at <= inside);
        let line = behind.checked_sub(1).and_then(|at| made.lines.get(at));
        Some(JitFunction { name: &made.name, line: line.map(|it| (&*it.file, it.number)) })
    }

    /// How many stretches of code.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_begin.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_begin.is_empty()
    }

    /// Memory that it takes, about.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Functions that found no room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Nothing is there any more; what was left out stays counted.
    pub fn clear(&mut self) {
        self.by_begin.clear();
        self.bytes = 0;
    }

    fn insert(&mut self, begin: u64, len: u64, name: &[u8], lines: Box<[Line]>) {
        let name = shortened(name);
        let made = Made { name: name.into(), lines, begin };
        self.place(begin, len, Arc::new(made));
    }

    /// The code that begins there lies elsewhere from now on.
    fn move_to(&mut self, from: u64, to: u64, len: u64) {
        let Some(entry) = self.by_begin.remove(&from) else { return };
        self.bytes = self.bytes.saturating_sub(entry.made.bytes());
        let lines = entry.made.lines.clone();
        let made = Made { name: entry.made.name.clone(), lines, begin: to };
        self.place(to, len, Arc::new(made));
    }

    fn place(&mut self, begin: u64, len: u64, made: Arc<Made>) {
        let Some(end) = begin.checked_add(len).filter(|end| *end > begin) else { return };
        self.make_room(begin, end);
        if self.bytes.saturating_add(made.bytes()) > MAX_JIT_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += made.bytes();
        self.by_begin.insert(begin, Entry { end, made });
    }

    /// What lay there gives way; what of it lies beside stays.
    fn make_room(&mut self, begin: u64, end: u64) {
        let mut behind = None;
        if let Some((_, before)) = self.by_begin.range_mut(..begin).next_back()
            && before.end > begin
        {
            if before.end > end {
                behind = Some(before.clone());
            }
            before.end = begin;
        }
        while let Some((at, _)) = self.by_begin.range(begin..end).next()
            && let Some(entry) = self.by_begin.remove(&{ *at })
        {
            self.bytes = self.bytes.saturating_sub(entry.made.bytes());
            if entry.end > end {
                behind = Some(entry);
            }
        }
        if let Some(entry) = behind {
            self.bytes += entry.made.bytes();
            self.by_begin.insert(end, entry);
        }
    }
}

/// As much of a name as is kept, as text.
fn shortened(name: &[u8]) -> String {
    let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(entries: &[(u64, u64, &str)]) -> JitCode {
        let mut code = JitCode::default();
        for (begin, len, name) in entries {
            code.insert(*begin, *len, name.as_bytes(), Box::default());
        }
        code
    }

    fn names(code: &JitCode, addresses: &[u64]) -> Vec<Option<String>> {
        let name = |at: &u64| code.find(*at).map(|it| it.name.to_owned());
        addresses.iter().map(name).collect()
    }

    #[test]
    fn later_code_takes_the_place_of_what_lay_there() {
        let code = filled(&[(100, 100, "a"), (120, 20, "b"), (190, 20, "c"), (90, 5, "d")]);
        let some = |name: &str| Some(name.to_owned());
        let expected = [None, some("d"), None, some("a"), some("b"), some("a"), some("c"), None];
        assert_eq!(names(&code, &[89, 94, 95, 100, 120, 140, 209, 210]), expected);
        let code = filled(&[(100, 10, "a"), (110, 10, "b"), (90, 100, "c")]);
        assert_eq!(code.len(), 1);
        assert_eq!(names(&code, &[105, 115]), [some("c"), some("c")]);
    }

    #[test]
    fn what_it_takes_is_counted_and_bounded() {
        let mut code = filled(&[(100, 100, "a"), (120, 20, "b"), (0, 1000, "c")]);
        assert_eq!(code.bytes(), ENTRY_BYTES + 1);
        let long = [b'x'; 4 * MAX_NAME_BYTES];
        for n in 0..40_000 {
            code.insert(10_000 + n * 10, 10, &long, Box::default());
        }
        assert!(code.bytes() <= MAX_JIT_BYTES);
        assert_eq!(code.len() as u64 + code.left_out(), 40_001);
        assert!(code.left_out() > 5_000);
        assert_eq!(code.find(10_000).unwrap().name.len(), MAX_NAME_BYTES);
    }

    #[test]
    fn lengths_that_reach_beyond_memory_or_nowhere_are_nothing() {
        let code = filled(&[(u64::MAX, 1, "a"), (u64::MAX - 5, 6, "b"), (5, 0, "c")]);
        assert!(code.is_empty());
    }
}
