//! What must be so at an instruction, so that the return address is on top of the stack when it comes to a return.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use super::follow::Visited;
use super::state::{CallersFramePointer, FP, SP, State, WORD};
use super::{Code, Program};

/// How many instructions are gone through on the way to a return.
const MAX_INSTRUCTIONS: usize = 512;

/// A way that is tried, beginning as a function does.
#[derive(Debug, Clone, Copy)]
struct Way {
    at: u64,
    state: State,
    /// Where the stack pointer was when the caller's frame pointer was taken from there, if it was.
    restored: Option<i32>,
}

/// What must be so at an instruction of a function, by returns and by what is known of instructions on the way (`known`); `None` when no
/// way from there tells.
pub(super) fn solve(
    code: Code<'_>,
    known: &BTreeMap<u64, Visited>,
    at: u64,
    program: &mut Program,
) -> Option<State> {
    let mut left = MAX_INSTRUCTIONS;
    let mut tried = BTreeSet::new();
    let mut ways = vec![Way { at, state: State::at_entry(false), restored: None }];
    while let Some(way) = ways.pop() {
        if !tried.insert(way.at) {
            continue;
        }
        let found = go(code, known, way, program, &mut left, &mut ways);
        // A way that takes more from the stack than there is has gone on behind a call that does not return.
        if let Some(found) = found.filter(|it| it.get(SP).is_none_or(|depth| depth >= WORD)) {
            return Some(found);
        }
    }
    None
}

/// Goes one way to its end, and notes those that branch off.
fn go(
    code: Code<'_>,
    known: &BTreeMap<u64, Visited>,
    mut way: Way,
    program: &mut Program,
    left: &mut usize,
    ways: &mut Vec<Way>,
) -> Option<State> {
    let mut decoder = code.decoder(way.at);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        *left = left.checked_sub(1)?;
        program.trials_left = program.trials_left.checked_sub(1)?;
        decoder.decode_out(&mut instruction);
        if let Some(known) = known.get(&instruction.ip()).filter(|it| !it.is_weak) {
            let depth = known.state.get(SP)?.checked_sub(way.state.get(SP)?)?;
            return Some(meant(depth, known.state.frame_pointer));
        }
        let before = way;
        way.state.pass(&instruction, &mut program.registers);
        let is_stack_lost = before.state.get(SP).is_some() && way.state.get(SP).is_none();
        match instruction.flow_control() {
            FlowControl::Return => return before.at_return(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = instruction.near_branch_target();
                if program.begins.contains(&target) {
                    return before.at_return();
                }
                if code.range().contains(&target) {
                    ways.push(Way { at: target, ..way });
                }
                if instruction.flow_control() == FlowControl::UnconditionalBranch {
                    return None;
                }
            }
            FlowControl::IndirectBranch | FlowControl::Exception => return None,
            _ if instruction.is_invalid() || instruction.mnemonic() == Mnemonic::Hlt => {
                return None;
            }
            // The frame pointer brings the stack pointer back.
            _ if is_stack_lost && before.state.get(FP).is_none() => {
                let is_from_frame = match instruction.mnemonic() {
                    Mnemonic::Leave => true,
                    Mnemonic::Lea => instruction.memory_base() == Register::RBP,
                    Mnemonic::Mov => instruction.op1_register() == Register::RBP,
                    _ => false,
                };
                return is_from_frame.then(State::by_frame_pointer);
            }
            _ => {}
        }
        let is_restored = instruction.mnemonic() == Mnemonic::Pop
            && instruction.op0_register() == Register::RBP
            && before.state.frame_pointer == CallersFramePointer::Kept;
        if is_restored {
            way.restored = way.restored.or(before.state.get(SP));
        }
    }
    None
}

impl Way {
    /// What was so where it began, because it has come to a return.
    fn at_return(&self) -> Option<State> {
        let depth = WORD.checked_sub(self.state.get(SP)?)?;
        let saved = self.restored.and_then(|restored| restored.checked_add(depth));
        Some(meant(depth, saved.map_or(CallersFramePointer::Kept, CallersFramePointer::Saved)))
    }
}

/// As at a function's begin, but that so many bytes more are on the stack.
fn meant(depth: i32, frame_pointer: CallersFramePointer) -> State {
    let mut state = State::at_entry(false);
    state.set(SP, WORD.checked_add(depth));
    state.frame_pointer = frame_pointer;
    state
}
