//! Rows of code that Go has compiled, which is described by Go's own table and not by call frame information: a linker that leaves out
//! debug information leaves that out, too, and else compresses it.
//!
//! The table says how deep the stack is. On x86-64 a function that has a frame saves the frame pointer in its uppermost word and
//! lets it point there, as one that goes on on another stack does before: from there it leads back.

use std::ops::Range;

use gopclntab::{Module, Stack, StackKind, Table};

use crate::image::Architecture;
use crate::rule::{Cfa, Rule};

/// What the kernel returns to from a signal's handler lies behind the registers of what was interrupted (`struct ucontext`), of
/// which general ones begin here (`uc_mcontext`).
const SIGNAL_REGISTERS: u32 = 40;

/// `push rbp` is the first instruction of a function with a frame, and `mov rbp, rsp` the second: of so many bytes.
const SET_FRAME_POINTER_BYTES: u64 = 3;

/// Bytes of a word.
const WORD: u32 = 8;

const FRAME_POINTERS: Rule = Rule::frame_pointers(Architecture::X86_64);

/// A function's rows.
pub(crate) struct GoFunction {
    pub(crate) code: Range<u64>,
    pub(crate) rows: Vec<(u64, Rule)>,
}

/// Gives the rows of each function; whether all could be told.
pub(crate) fn functions(module: &Module<'_>, mut each: impl FnMut(GoFunction)) -> bool {
    let Ok(table) = Table::of(module) else { return false };
    table.stacks(module, |stack, depths| each(function(stack, depths)))
}

fn function(stack: &Stack<'_>, depths: &[(Range<u64>, u32)]) -> GoFunction {
    let code = stack.function.begin..stack.function.end;
    if stack.name.starts_with(b"runtime.sigreturn") {
        // Nothing calls it, so that the byte before it belongs to it, too.
        let begin = code.start.saturating_sub(1);
        let rule = Rule::new(Cfa::Signal(SIGNAL_REGISTERS), None, false);
        return GoFunction {
            code: begin..code.end,
            rows: vec![(begin, rule.unwrap_or(Rule::UNKNOWN))],
        };
    }
    let has_frame = depths.iter().any(|(_, depth)| *depth >= WORD);
    let rows = match stack.kind {
        StackKind::Outermost => vec![(code.start, Rule::OUTERMOST)],
        StackKind::Switching if !has_frame => vec![(code.start, Rule::UNKNOWN)],
        StackKind::Switching => depths.iter().flat_map(switching).collect(),
        // It saves all registers in an order of its own.
        StackKind::Plain if stack.name == b"crosscall2" => rows(depths, |_| None),
        StackKind::Plain => rows(depths, |depth| (depth >= WORD).then_some(2 * WORD)),
    };
    let is_empty = rows.is_empty();
    let rows = if is_empty { vec![(code.start, Rule::UNKNOWN)] } else { rows };
    GoFunction { code, rows }
}

fn rows(depths: &[(Range<u64>, u32)], saved: impl Fn(u32) -> Option<u32>) -> Vec<(u64, Rule)> {
    let row = |(code, depth): &(Range<u64>, u32)| (code.start, plain(*depth, saved(*depth)));
    depths.iter().map(row).collect()
}

fn plain(depth: u32, saved: Option<u32>) -> Rule {
    let cfa = depth.checked_add(WORD).map(Cfa::StackPointer);
    // One that is too deep for a row has set its frame pointer, but for an instruction or two.
    let too_deep = if saved.is_some() { FRAME_POINTERS } else { Rule::UNKNOWN };
    cfa.and_then(|cfa| Rule::new(cfa, saved, false)).unwrap_or(too_deep)
}

/// While it has a frame it may be on another stack.
fn switching((code, depth): &(Range<u64>, u32)) -> [(u64, Rule); 2] {
    if *depth < WORD {
        return [(code.start, plain(*depth, None)); 2];
    }
    let is_set = code.start.saturating_add(SET_FRAME_POINTER_BYTES);
    [(code.start, plain(*depth, Some(2 * WORD))), (is_set, Rule::OTHER_STACK)]
}
