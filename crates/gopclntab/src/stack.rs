//! How deep a function's stack is at each of its instructions, and values by instruction at all.
//!
//! A table of values is pairs of numbers: by how much the value changes (the lowest bit says whether it falls), and for how many
//! instructions it then holds; seven bits a byte, lowest first. The value begins at -1. A change of 0 ends it, save the first.

use std::ops::Range;

use object::ReadRef;

use crate::elf::Module;
use crate::table::{Function, Table, View};

/// What is read of a table of values at once.
const CHUNK_BYTES: u64 = 512;
/// The most pairs of one table: those of the longest generated functions.
const MAX_PAIRS: usize = 1 << 18;
/// The most pairs of all tables that are read for depths.
const MAX_ALL_PAIRS: usize = 16 << 20;

const TOP_FRAME: u8 = 1;
const WRITES_STACK_POINTER: u8 = 2;

/// What is to be known of a function to come to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackKind {
    /// The stack is as deep as it says.
    Plain,
    /// Nobody called it: a thread's or a goroutine's first function.
    Outermost,
    /// It goes on on another stack: for a part of it the depth says nothing.
    Switching,
}

/// A function's stack.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// The function.
    pub function: Function,
    /// Its name.
    pub name: &'a [u8],
    /// How it ends.
    pub kind: StackKind,
    depths: u32,
}

/// The pairs of a table of values.
#[derive(Debug)]
pub(crate) struct Pairs<'a, R> {
    data: R,
    /// What is not read yet of what was asked for last, and where that ends.
    chunk: &'a [u8],
    end: u64,
    quantum: u64,
    value: i32,
    address: u64,
    left: usize,
    is_first: bool,
}

impl<'a, R: ReadRef<'a>> Pairs<'a, R> {
    /// Of the table that begins there in `data`, of a function that begins at `address`.
    pub(crate) const fn new(data: R, at: u64, address: u64, quantum: u64) -> Self {
        let (chunk, left) = (&[] as &[u8], MAX_PAIRS);
        Self { data, chunk, end: at, quantum, value: -1, address, left, is_first: true }
    }

    fn byte(&mut self) -> Option<u8> {
        if self.chunk.is_empty() {
            let begin = self.end;
            self.end = begin.checked_add(CHUNK_BYTES)?.min(self.data.len().ok()?);
            self.chunk = self.data.read_bytes_at(begin, self.end.checked_sub(begin)?).ok()?;
        }
        let (byte, rest) = self.chunk.split_first()?;
        self.chunk = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// Stretches of code, and the value there.
impl<'a, R: ReadRef<'a>> Iterator for Pairs<'a, R> {
    type Item = (Range<u64>, i32);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let change = self.number()?;
        if change == 0 && !std::mem::take(&mut self.is_first) {
            return None;
        }
        self.is_first = false;
        let change = (change >> 1).cast_signed() ^ -(change & 1).cast_signed();
        self.value = self.value.wrapping_add(change);
        let begin = self.address;
        let bytes = u64::from(self.number()?).checked_mul(self.quantum)?;
        self.address = begin.checked_add(bytes)?;
        Some((begin..self.address, self.value))
    }
}

impl Table {
    /// The stacks of all functions, by address: each, and stretches of its code with how many bytes the stack is deep there, without
    /// where it returns to. Whether all could be told.
    pub fn stacks<'a>(
        &self,
        module: &Module<'a>,
        mut each: impl FnMut(&Stack<'a>, &[(Range<u64>, u32)]),
    ) -> bool {
        let view = View { table: self, data: module.bytes, base: 0 };
        let mut depths = Vec::new();
        let mut left = MAX_ALL_PAIRS;
        for function in self.functions() {
            let Some(stack) = stack(&view, function) else { continue };
            depths.clear();
            let at = self.shape.tables.checked_add(stack.depths.into());
            if let Some(at) = at.filter(|_| stack.depths != 0) {
                let pairs = Pairs::new(module.bytes, at, function.begin, self.shape.quantum);
                for (code, depth) in pairs.take_while(|(code, _)| code.start < function.end) {
                    let Some(fewer) = left.checked_sub(1) else { return false };
                    left = fewer;
                    let Ok(depth) = u32::try_from(depth) else { break };
                    depths.push((code.start..code.end.min(function.end), depth));
                }
            }
            each(&stack, &depths);
        }
        true
    }
}

fn stack<'a, R: ReadRef<'a>>(view: &View<'_, R>, function: Function) -> Option<Stack<'a>> {
    let described = view.described(&function)?;
    let name = view.name(described.name)?;
    let kind = match name {
        // It runs what the scheduler does, on the thread's own stack, and the goroutine that called it is left.
        b"runtime.mcall" => StackKind::Outermost,
        // The kernel calls it, and what it returns to leads to what was interrupted.
        b"runtime.sigtramp" => StackKind::Plain,
        // Before 1.17 no flags tell.
        b"runtime.goexit" | b"runtime.mstart" | b"runtime.rt0_go" => StackKind::Outermost,
        b"runtime.systemstack" | b"runtime.asmcgocall" => StackKind::Switching,
        _ if described.flags & TOP_FRAME != 0 => StackKind::Outermost,
        _ if described.flags & WRITES_STACK_POINTER != 0 => StackKind::Switching,
        _ => StackKind::Plain,
    };
    Some(Stack { function, name, kind, depths: described.depths })
}
