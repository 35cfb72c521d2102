//! From frame to frame: what the eBPF program does, for stacks that were copied.

use crate::image::Architecture;
use crate::rule::{Cfa, Rule};

/// The most frames of a stack.
pub const MAX_FRAMES: usize = 1024;

/// Where in the registers that a signal saves (`struct sigcontext`) these lie, in bytes.
struct Saved {
    fp: u64,
    sp: u64,
    pc: u64,
    lr: Option<u64>,
}

impl Saved {
    const fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::X86_64 => Self { fp: 80, sp: 120, pc: 128, lr: None },
            Architecture::Aarch64 => Self { fp: 240, sp: 256, pc: 264, lr: Some(248) },
        }
    }
}

/// Bits of a code address on aarch64; those above may sign it.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// The registers that tell a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// The instruction: the next one, or where the call returns to.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// Where the function returns to while it has not saved that; not used on x86-64.
    pub lr: u64,
}

/// Memory of the thread that is walked.
pub trait Memory {
    /// The eight bytes at an address; `None` when they are not known.
    fn word(&self, address: u64) -> Option<u64>;
}

impl<F: Fn(u64) -> Option<u64>> Memory for F {
    fn word(&self, address: u64) -> Option<u64> {
        self(address)
    }
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The last frame is that of the thread's first function.
    Root,
    /// No file is known that the instruction is of.
    NoMapping,
    /// Its file says nothing about it.
    NoRule,
    /// Memory that the rule asks for is not known.
    NoMemory,
    /// The caller's frame is not above its callee's: the stack or the rule is broken.
    Loop,
    /// It has more frames than asked for.
    TooDeep,
}

/// What is known of an instruction's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// No file is known that it is of.
    Unmapped,
    /// How to come to the caller.
    Rule(Rule),
}

/// A thread's place on its way to the root.
#[derive(Debug, Clone, Copy)]
struct Frame {
    registers: Registers,
    /// Whether the instruction is the next one to run, and not the one behind a call.
    is_exact: bool,
    /// Whether the frame may lie as high as the one below: a function that saves nothing has none.
    may_be_level: bool,
}

/// Gives the instruction of each frame to `visit`, the innermost first, as the address that belongs to the call: one before where it
/// returns to. At most `max_frames`.
pub fn walk(
    architecture: Architecture,
    start: Registers,
    max_frames: usize,
    memory: &impl Memory,
    mut code: impl FnMut(u64) -> Code,
    mut visit: impl FnMut(u64),
) -> End {
    let mut frame = Frame { registers: start, is_exact: true, may_be_level: true };
    for _ in 0..max_frames {
        let at = frame.registers.pc.wrapping_sub(u64::from(!frame.is_exact));
        visit(at);
        let rule = match code(at) {
            Code::Unmapped => return End::NoMapping,
            Code::Rule(rule) => rule,
        };
        match step(architecture, rule, frame, memory) {
            Ok(next) => frame = next,
            Err(end) => return end,
        }
    }
    End::TooDeep
}

fn step(
    architecture: Architecture,
    rule: Rule,
    frame: Frame,
    memory: &impl Memory,
) -> Result<Frame, End> {
    let Registers { pc, sp, fp, lr } = frame.registers;
    let word = |address: u64| memory.word(address).ok_or(End::NoMemory);
    let above = |base: u64, bytes: u32| base.wrapping_add(u64::from(bytes));
    let cfa = match rule.cfa() {
        Cfa::Unknown => return Err(End::NoRule),
        Cfa::Outermost => return Err(End::Root),
        Cfa::StackPointer(bytes) => above(sp, bytes),
        Cfa::FramePointer(bytes) => above(fp, bytes),
        Cfa::AtStackPointer(bytes) => word(above(sp, bytes))?.wrapping_add(8),
        Cfa::BelowFramePointer(bytes) => word(fp.wrapping_sub(bytes.into()))?,
        Cfa::LinkageTable => above(sp, if pc & 15 >= 11 { 16 } else { 8 }),
        Cfa::Signal(bytes) => {
            let saved = Saved::of(architecture);
            let register = |at: u64| word(above(sp, bytes).wrapping_add(at));
            let registers = Registers {
                pc: register(saved.pc)?,
                sp: register(saved.sp)?,
                fp: register(saved.fp)?,
                lr: saved.lr.map_or(Ok(lr), register)?,
            };
            // A handler may run on a stack of its own, above or below.
            return Ok(Frame { registers, is_exact: true, may_be_level: true });
        }
    };
    let is_elsewhere = architecture == Architecture::X86_64 && rule.is_elsewhere();
    if !is_elsewhere && (cfa < sp || (cfa == sp && !frame.may_be_level)) {
        return Err(End::Loop);
    }
    let saved = rule.saved().map(|bytes| cfa.wrapping_sub(bytes.into()));
    let (pc, fp) = match architecture {
        Architecture::X86_64 => {
            let fp = match (saved, rule.cfa()) {
                (_, Cfa::BelowFramePointer(_)) => word(fp)?,
                (Some(at), _) => word(at)?,
                (None, _) => fp,
            };
            (word(cfa.wrapping_sub(8))?, fp)
        }
        Architecture::Aarch64 => {
            let pc = match saved {
                Some(at) => word(at)?,
                None if frame.is_exact => lr,
                None => return Err(End::Loop),
            };
            let fp = match saved.filter(|_| rule.is_pair()) {
                Some(at) => word(at.wrapping_sub(8))?,
                None => fp,
            };
            (pc & ADDRESS_BITS, fp)
        }
    };
    // Threads that nobody called begin with an empty word.
    if pc == 0 {
        return Err(End::Root);
    }
    let registers = Registers { pc, sp: cfa, fp, lr };
    Ok(Frame { registers, is_exact: false, may_be_level: false })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const X86: Architecture = Architecture::X86_64;

    /// Walks over these words with one rule for each address.
    fn walked(
        architecture: Architecture,
        start: Registers,
        rules: &[(u64, Rule)],
        words: &[(u64, u64)],
    ) -> (Vec<u64>, End) {
        let (rules, words): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (rules.iter().copied().collect(), words.iter().copied().collect());
        let mut found = Vec::new();
        let memory = |address: u64| words.get(&address).copied();
        let code = |pc: u64| rules.get(&pc).map_or(Code::Unmapped, |rule| Code::Rule(*rule));
        let end = walk(architecture, start, 8, &memory, code, |pc| found.push(pc));
        (found, end)
    }

    fn at(pc: u64, sp: u64, fp: u64) -> Registers {
        Registers { pc, sp, fp, lr: 0 }
    }

    fn rule(cfa: Cfa, saved: Option<u32>) -> Rule {
        Rule::new(cfa, saved, false).unwrap()
    }

    #[test]
    fn a_caller_is_looked_up_by_the_byte_before_where_the_call_returns() {
        let rules = [(100, rule(Cfa::StackPointer(8), None)), (199, Rule::OUTERMOST)];
        let (found, end) = walked(X86, at(100, 1000, 5), &rules, &[(1000, 200)]);
        assert_eq!((found, end), (vec![100, 199], End::Root));
    }

    #[test]
    fn the_frame_pointer_comes_back_with_the_caller() {
        let rules = [
            (100, rule(Cfa::StackPointer(32), Some(16))),
            (199, rule(Cfa::FramePointer(16), Some(16))),
            (299, Rule::OUTERMOST),
        ];
        let words = [(1024, 200), (1016, 2000), (2008, 300), (2000, 1)];
        assert_eq!(walked(X86, at(100, 1000, 5), &rules, &words), (vec![100, 199, 299], End::Root));
    }

    #[test]
    fn a_signal_s_frame_gives_all_registers_and_an_exact_place() {
        let rules = [
            (100, rule(Cfa::StackPointer(8), None)),
            (199, rule(Cfa::Signal(40), None)),
            (300, rule(Cfa::FramePointer(16), Some(16))),
            (399, Rule::OUTERMOST),
        ];
        let saved = Saved::of(X86);
        let words = [
            (9000, 200),
            (9008 + 40 + saved.pc, 300),
            (9008 + 40 + saved.sp, 500),
            (9008 + 40 + saved.fp, 600),
            (608, 400),
            (600, 0),
        ];
        let (found, end) = walked(X86, at(100, 9000, 5), &rules, &words);
        assert_eq!((found, end), (vec![100, 199, 300, 399], End::Root));
    }

    #[test]
    fn an_aligned_stack_s_frame_is_found_through_the_frame_pointer() {
        let rules = [(100, rule(Cfa::BelowFramePointer(8), None)), (199, Rule::OUTERMOST)];
        let words = [(2000 - 8, 3000), (2000, 77), (2992, 200)];
        assert_eq!(walked(X86, at(100, 1000, 2000), &rules, &words), (vec![100, 199], End::Root));
    }

    #[test]
    fn linkage_tables_push_a_word_from_their_eleventh_byte_on() {
        for (pc, word) in [(0x1000, 1000), (0x100b, 1008)] {
            let rules = [(pc, rule(Cfa::LinkageTable, None)), (199, Rule::OUTERMOST)];
            assert_eq!(walked(X86, at(pc, 1000, 5), &rules, &[(word, 200)]).1, End::Root);
        }
    }

    #[test]
    fn an_arm_leaf_returns_to_its_link_register_and_only_a_leaf() {
        let arm = Architecture::Aarch64;
        let leaf = rule(Cfa::StackPointer(0), None);
        let pair = Rule::new(Cfa::StackPointer(32), Some(24), true).unwrap();
        let signed = 0xab00_0000_0000_0000 | 300;
        let rules = [(100, leaf), (199, pair), (299, Rule::OUTERMOST)];
        let words = [(1008, signed), (1000, 77)];
        let start = Registers { pc: 100, sp: 1000, fp: 5, lr: 200 };
        assert_eq!(walked(arm, start, &rules, &words), (vec![100, 199, 299], End::Root));
        let rules = [(100, pair), (299, leaf)];
        assert_eq!(walked(arm, start, &rules, &words).1, End::Loop);
    }

    #[test]
    fn an_arm_leaf_that_a_signal_interrupted_returns_to_its_own_link_register() {
        let arm = Architecture::Aarch64;
        let leaf = rule(Cfa::StackPointer(0), None);
        let rules =
            [(100, leaf), (199, rule(Cfa::Signal(304), None)), (300, leaf), (399, Rule::OUTERMOST)];
        let saved = 1000 + 304;
        let words =
            [(saved + 264, 300), (saved + 256, 500), (saved + 240, 600), (saved + 248, 400)];
        let start = Registers { pc: 100, sp: 1000, fp: 5, lr: 200 };
        assert_eq!(walked(arm, start, &rules, &words), (vec![100, 199, 300, 399], End::Root));
    }

    #[test]
    fn a_stack_that_lies_below_is_gone_on_with_only_where_the_rule_says_so() {
        let words = [(608, 200), (600, 0), (1008, 1)];
        let rules = |rule| [(100, rule), (199, Rule::OUTERMOST)];
        let chain = Rule::frame_pointers(X86);
        assert_eq!(walked(X86, at(100, 1000, 600), &rules(chain), &words).1, End::Loop);
        let (found, end) = walked(X86, at(100, 1000, 600), &rules(Rule::OTHER_STACK), &words);
        assert_eq!((found, end), (vec![100, 199], End::Root));
    }

    #[test]
    fn every_end_has_its_name() {
        let up = rule(Cfa::StackPointer(8), None);
        let end = |rules: &[(u64, Rule)], words: &[(u64, u64)]| {
            walked(X86, at(100, 1000, 5), rules, words).1
        };
        assert_eq!(end(&[], &[]), End::NoMapping);
        assert_eq!(end(&[(100, Rule::UNKNOWN)], &[]), End::NoRule);
        assert_eq!(end(&[(100, up)], &[]), End::NoMemory);
        assert_eq!(end(&[(100, up)], &[(1000, 0)]), End::Root);
        let chain = rule(Cfa::FramePointer(16), Some(16));
        assert_eq!(end(&[(100, chain)], &[]), End::Loop);
        let deep: Vec<_> = (0..20).map(|n| (1000 + n * 8, 101)).collect();
        assert_eq!(end(&[(100, up)], &deep), End::TooDeep);
    }
}
