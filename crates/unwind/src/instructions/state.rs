//! What is known of registers where an instruction begins, and what it changes.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    OpKind, Register,
};

use crate::rule::{Cfa, Rule};

/// Bytes of a word, and of a return address.
pub(super) const WORD: i32 = 8;

/// Where the caller's frame pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallersFramePointer {
    /// In its register.
    Kept,
    /// So many bytes below the frame address.
    Saved(i32),
    /// Not known.
    Lost,
}

/// What is known where an instruction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// How many bytes below the frame address each general register points, by its number; [`UNKNOWN`]: something else.
    below: [i32; 16],
    pub(super) frame_pointer: CallersFramePointer,
    /// Whether the function has given up its caller's frame pointer, so that it cannot return: the first function of a thread. The
    /// processor supplement of the System V ABI asks it to set the register to zero.
    is_outermost: bool,
}

const UNKNOWN: i32 = i32::MIN;

/// Frames beyond this are none.
const FAR: i32 = 1 << 28;

pub(super) const SP: usize = 4;
pub(super) const FP: usize = 5;

/// The registers that a function may change: rax, rcx, rdx, rsi, rdi and r8 to r11.
const CHANGED_BY_CALLS: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

impl State {
    pub(super) const fn at_entry(is_outermost: bool) -> Self {
        let mut below = [UNKNOWN; 16];
        below[SP] = WORD;
        Self { below, frame_pointer: CallersFramePointer::Kept, is_outermost }
    }

    /// Of a function that has set its frame pointer.
    pub(super) const fn by_frame_pointer() -> Self {
        let mut below = [UNKNOWN; 16];
        below[FP] = 2 * WORD;
        let frame_pointer = CallersFramePointer::Saved(2 * WORD);
        Self { below, frame_pointer, is_outermost: false }
    }

    /// Whether nothing has been done yet.
    pub(super) fn is_entry(&self) -> bool {
        self.get(SP) == Some(WORD) && self.frame_pointer == CallersFramePointer::Kept
    }

    pub(super) fn get(&self, register: usize) -> Option<i32> {
        self.below.get(register).copied().filter(|below| *below != UNKNOWN)
    }

    pub(super) fn set(&mut self, register: usize, below: Option<i32>) {
        let below = below.filter(|below| below.abs() < FAR).unwrap_or(UNKNOWN);
        if let Some(place) = self.below.get_mut(register) {
            *place = below;
        }
        if register == FP && self.frame_pointer == CallersFramePointer::Kept {
            self.frame_pointer = CallersFramePointer::Lost;
        }
    }

    /// What is so on both ways.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (mine, its) in self.below.iter_mut().zip(other.below) {
            if *mine != its {
                *mine = UNKNOWN;
            }
        }
        if self.frame_pointer != other.frame_pointer {
            self.frame_pointer = CallersFramePointer::Lost;
        }
        self.is_outermost &= other.is_outermost;
        self
    }

    pub(super) fn rule(&self) -> Rule {
        if self.is_outermost {
            return Rule::OUTERMOST;
        }
        let bytes = |below: i32| u32::try_from(below).ok();
        let saved = match self.frame_pointer {
            CallersFramePointer::Saved(below) => bytes(below),
            CallersFramePointer::Kept | CallersFramePointer::Lost => None,
        };
        // Where it points to what it was before, it is a frame pointer, else of some other use.
        let by_frame = self.get(FP).and_then(bytes).filter(|below| saved == Some(*below));
        let by_stack = self.get(SP).filter(|below| *below >= WORD).and_then(bytes);
        let cfa = match (by_frame, by_stack) {
            (Some(below), _) => Cfa::FramePointer(below),
            (None, Some(below)) => Cfa::StackPointer(below),
            (None, None) => match self.get(FP).and_then(bytes).filter(|_| saved.is_some()) {
                Some(below) => Cfa::FramePointer(below),
                None => return Rule::UNKNOWN,
            },
        };
        Rule::new(cfa, saved, false).unwrap_or(Rule::UNKNOWN)
    }

    /// Goes through an instruction.
    pub(super) fn pass(
        &mut self,
        instruction: &Instruction,
        registers: &mut InstructionInfoFactory,
    ) {
        let kind = |operand| instruction.op_kind(operand);
        let register = |operand| match kind(operand) {
            OpKind::Register => general(instruction.op_register(operand)),
            _ => None,
        };
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => {
                let below = self.get(SP).map(|sp| sp - instruction.stack_pointer_increment());
                let is_frame_pointer = instruction.op_count() > 0 && register(0) == Some(FP);
                if let (true, Some(below)) = (is_frame_pointer, below) {
                    self.save(below);
                }
                self.set(SP, below);
            }
            Mnemonic::Pop => {
                let place = self.get(SP);
                self.set(SP, place.map(|sp| sp - instruction.stack_pointer_increment()));
                if let Some(to) = register(0) {
                    self.load(to, place);
                }
            }
            Mnemonic::Popfq => {
                let place = self.get(SP);
                self.set(SP, place.map(|sp| sp - instruction.stack_pointer_increment()));
            }
            Mnemonic::Leave => {
                let place = self.get(FP);
                self.load(FP, place);
                self.set(SP, place.map(|place| place - WORD));
            }
            Mnemonic::Mov if register(0).is_some() && register(1).is_some() => {
                let value = register(1).and_then(|from| self.get(from));
                if let Some(to) = register(0) {
                    self.set(to, value);
                }
            }
            Mnemonic::Mov if kind(0) == OpKind::Memory && register(1) == Some(FP) => {
                if let Some(place) = self.place(instruction) {
                    self.save(place);
                }
            }
            Mnemonic::Mov if kind(1) == OpKind::Memory && register(0).is_some() => {
                let place = self.place(instruction);
                if let Some(to) = register(0) {
                    self.load(to, place);
                }
            }
            Mnemonic::Lea if register(0).is_some() => {
                let place = self.place(instruction);
                if let Some(to) = register(0) {
                    self.set(to, place);
                }
            }
            Mnemonic::Add | Mnemonic::Sub if register(0).is_some() && is_immediate(kind(1)) => {
                let by = i32::try_from(instruction.immediate(1).cast_signed()).ok();
                let by =
                    if instruction.mnemonic() == Mnemonic::Add { by.map(|it| -it) } else { by };
                if let Some(to) = register(0) {
                    let value = self.get(to).zip(by).and_then(|(below, by)| below.checked_add(by));
                    self.set(to, value);
                }
            }
            Mnemonic::Call => {
                // What only asks where it is.
                if instruction.flow_control() == FlowControl::Call
                    && instruction.near_branch_target() == instruction.next_ip()
                {
                    self.set(SP, self.get(SP).map(|below| below + WORD));
                    return;
                }
                CHANGED_BY_CALLS.into_iter().for_each(|register| self.set(register, None));
            }
            _ => {
                let is_zeroed = instruction.mnemonic() == Mnemonic::Xor
                    && instruction.op0_register() == instruction.op1_register()
                    && instruction.op0_register().full_register() == Register::RBP;
                if is_zeroed && self.frame_pointer == CallersFramePointer::Kept {
                    self.is_outermost = true;
                }
                let info =
                    registers.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
                for used in info.used_registers() {
                    let is_written = !matches!(
                        used.access(),
                        OpAccess::None
                            | OpAccess::Read
                            | OpAccess::CondRead
                            | OpAccess::NoMemAccess
                    );
                    let whole = used.register().full_register();
                    if is_written && let Some(register) = general(whole) {
                        self.set(register, None);
                    }
                }
            }
        }
    }

    /// The frame pointer is written to a place.
    fn save(&mut self, below: i32) {
        if self.frame_pointer == CallersFramePointer::Kept {
            self.frame_pointer = CallersFramePointer::Saved(below);
        }
    }

    /// A register is read from a place.
    fn load(&mut self, to: usize, place: Option<i32>) {
        self.set(to, None);
        if let (FP, CallersFramePointer::Saved(saved), Some(place)) =
            (to, self.frame_pointer, place)
            && saved == place
        {
            self.frame_pointer = CallersFramePointer::Kept;
        }
    }

    /// How far below the frame address the operand in memory lies.
    fn place(&self, instruction: &Instruction) -> Option<i32> {
        if instruction.memory_index() != Register::None {
            return None;
        }
        let base = self.get(general(instruction.memory_base())?)?;
        let displacement = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
        base.checked_sub(displacement)
    }
}

/// The number of a general register of 64 bits.
fn general(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| register.number())
}

const fn is_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64)
}
