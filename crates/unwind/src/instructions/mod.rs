//! Rows of code that no table describes, worked out from its instructions: x86-64.
//!
//! musl, which every program of Alpine Linux runs, has no call frame information, and neither has much that was written in assembly
//! language. A compiler's code tells as well where its frame is, to whoever follows what each instruction does to the stack pointer:
//! from a function's first instruction, where the return address lies on top of the stack, along all branches.
//!
//! What registers hold that came from the stack pointer is known as their distance from the canonical frame address. Where two ways
//! come together, what both say is kept. A call that does not return leads on into code that something else follows, so that what
//! comes from a call gives way to what comes from a jump. Where a jump goes whose target is computed is not known: code that nothing
//! else leads to is taken to be a target of the last one before it in its function, else a function of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
};

mod follow;
mod state;
mod trial;

use self::follow::Analysis;
use self::state::{SP, State};
use crate::rule::{Cfa, Rule};

/// The most code of a file that is followed: three times musl. What is behind has no rows.
pub(crate) const MAX_CODE_BYTES: u64 = 2 << 20;

/// The longest function: what is behind is taken for another one.
const MAX_FUNCTION_BYTES: usize = 256 << 10;

/// Instructions that are tried, for each byte of code: twice as many as code of all sorts takes.
const TRIALS_PER_BYTE: u64 = 8;

/// What the kernel returns to from a signal's handler finds the registers of what was interrupted here, from the stack pointer on: `uc_mcontext` of
/// `struct ucontext`.
const SIGNAL_REGISTERS: u32 = 40;
/// `mov rax, 15; syscall`, in the two ways to write it: `rt_sigreturn`, which nobody asks the kernel for but a trampoline.
const SIGNAL_RETURNS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// A stretch of code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
}

/// A stretch of code, and its rows.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) code: Range<u64>,
    pub(crate) rows: Vec<(u64, Rule)>,
}

/// What is known of all code that is followed.
struct Program {
    /// Where functions begin.
    begins: BTreeSet<u64>,
    /// Parts of functions that lie behind others, and what is so where they are jumped to.
    parts: BTreeMap<u64, State>,
    /// Nobody calls it.
    outermost: Option<u64>,
    /// Instructions that may still be gone through to find out what is so at others.
    trials_left: u64,
    registers: InstructionInfoFactory,
}

/// The rows of code. `entries` are known to be functions, as others are that are called or pointed to; nobody calls `outermost`.
pub(crate) fn describe(
    code: &[Code<'_>],
    entries: &[u64],
    outermost: Option<u64>,
) -> Vec<Described> {
    let bytes: u64 = code.iter().map(|part| part.bytes.len() as u64).sum();
    let mut program = Program {
        begins: entries.iter().copied().chain(outermost).collect(),
        parts: BTreeMap::new(),
        outermost,
        trials_left: bytes.saturating_mul(TRIALS_PER_BYTE),
        registers: InstructionInfoFactory::new(),
    };
    let mut trampolines = BTreeSet::new();
    for part in code {
        pointed_to(*part, &mut program.begins);
        // A call returns to a trampoline's first byte, so that the byte before belongs to it, too.
        trampolines.extend(signal_returns(*part).map(|begin| begin.saturating_sub(1)));
    }
    program.begins.extend(&trampolines);
    // Where functions jump to beyond themselves: another one that goes on in their place, or a part of their own that is rarely run.
    let mut outside: BTreeMap<u64, State> = BTreeMap::new();
    program.each(code, |function| {
        for (target, state) in function.outside {
            let meant = outside.get(&target).map_or(state, |other| other.and(&state));
            outside.insert(target, meant);
        }
    });
    outside.retain(|at, _| !program.begins.contains(at));
    program.begins.extend(outside.iter().filter(|it| it.1.is_entry()).map(|it| it.0));
    outside.retain(|_, state| !state.is_entry() && state.get(SP).is_some());
    program.parts = outside;
    let signal = Rule::new(Cfa::Signal(SIGNAL_REGISTERS), None, false).unwrap_or(Rule::UNKNOWN);
    let mut described = Vec::new();
    program.each(code, |function| {
        let code = function.code.range();
        let rows = match trampolines.contains(&code.start) {
            true => vec![(code.start, signal)],
            false => function.rows(),
        };
        if !rows.is_empty() {
            described.push(Described { code, rows });
        }
    });
    described
}

impl Program {
    /// Follows each function.
    fn each<'a>(&mut self, code: &[Code<'a>], mut done: impl FnMut(Analysis<'a>)) {
        for part in code {
            for function in split(*part, &self.begins) {
                let begin = function.address;
                let parts = self.parts.range(function.range());
                let parts: Vec<(u64, State)> = parts.map(|(at, state)| (*at, *state)).collect();
                let is_known = self.begins.contains(&begin);
                let entry = (begin, State::at_entry(Some(begin) == self.outermost));
                let mut analysis = Analysis::new(function);
                analysis.follow(self, is_known.then_some(entry), parts);
                done(analysis);
            }
        }
    }
}

impl<'a> Code<'a> {
    const fn end(self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }

    const fn range(self) -> Range<u64> {
        self.address..self.end()
    }

    fn from(self, address: u64) -> &'a [u8] {
        let at = address.checked_sub(self.address).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    fn decoder(self, address: u64) -> Decoder<'a> {
        Decoder::with_ip(64, self.from(address), address, DecoderOptions::NONE)
    }
}

/// Where functions begin, as calls and pointers of the code say.
fn pointed_to(code: Code<'_>, begins: &mut BTreeSet<u64>) {
    let mut decoder = code.decoder(code.address);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        match (instruction.flow_control(), instruction.mnemonic()) {
            (FlowControl::Call, _) if instruction.near_branch_target() != instruction.next_ip() => {
                begins.insert(instruction.near_branch_target());
            }
            (_, Mnemonic::Lea) if instruction.is_ip_rel_memory_operand() => {
                begins.insert(instruction.ip_rel_memory_address());
            }
            _ => {}
        }
    }
}

fn signal_returns(code: Code<'_>) -> impl Iterator<Item = u64> {
    let found = move |instructions: &'static [u8]| {
        let windows = code.bytes.windows(instructions.len()).zip(code.address..);
        windows.filter(move |(bytes, _)| *bytes == instructions).map(|(_, address)| address)
    };
    SIGNAL_RETURNS.into_iter().flat_map(found)
}

/// The parts from one begin to the next; the first one may have none.
fn split<'a>(code: Code<'a>, begins: &BTreeSet<u64>) -> Vec<Code<'a>> {
    let mut parts = Vec::new();
    let mut rest = code;
    for begin in begins.range(code.range()) {
        let bytes = begin.checked_sub(rest.address).and_then(|it| usize::try_from(it).ok());
        let Some((bytes, behind)) = bytes.and_then(|it| rest.bytes.split_at_checked(it)) else {
            continue;
        };
        parts.push(Code { address: rest.address, bytes });
        rest = Code { address: *begin, bytes: behind };
    }
    parts.push(rest);
    let short = parts.into_iter().flat_map(|part| {
        let addresses = (part.address..).step_by(MAX_FUNCTION_BYTES);
        let parts = addresses.zip(part.bytes.chunks(MAX_FUNCTION_BYTES));
        parts.map(|(address, bytes)| Code { address, bytes })
    });
    short.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::{Image, Table};

    /// Instructions whose rule is the one that the file tells, those of which nothing was found out, and those with another one.
    #[derive(Debug, Default)]
    struct Found {
        same: u64,
        unknown: u64,
        other: u64,
    }

    /// Follows all code of a file as if it told nothing of it, not even where functions begin, and compares that with what it tells.
    fn compared(path: &Path) -> Found {
        let bytes = fs::read(path).unwrap();
        let image = Image::parse(&*bytes).unwrap();
        let (table, _) = Table::of(&image).unwrap();
        let code: Vec<Code<'_>> = image
            .code
            .iter()
            .filter_map(|it| Some(Code { address: it.start, bytes: image.bytes_at(&*bytes, it)? }))
            .collect();
        let mut found = Found::default();
        for function in describe(&code, &[], image.entry()) {
            let part = code.iter().find(|it| it.range().contains(&function.code.start)).unwrap();
            let mut rows = function.rows.into_iter().peekable();
            let mut rule = Rule::UNKNOWN;
            let mut decoder = part.decoder(function.code.start);
            while decoder.can_decode() && decoder.ip() < function.code.end {
                let instruction = decoder.decode();
                while let Some((_, next)) = rows.next_if(|row| row.0 <= instruction.ip()) {
                    rule = next;
                }
                let told = table.find(instruction.ip());
                let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
                if is_padding || matches!(told.cfa(), Cfa::Unknown | Cfa::LinkageTable) {
                    continue;
                }
                // Compilers do not tell that the frame pointer is back when the function is about to return.
                let is_same = rule == told || rule.cfa() == told.cfa() && rule.saved().is_none();
                *match (is_same, rule.cfa()) {
                    (true, _) => &mut found.same,
                    (false, Cfa::Unknown) => &mut found.unknown,
                    (false, _) => &mut found.other,
                } += 1;
            }
        }
        found
    }

    #[test]
    fn instructions_tell_what_files_tell() {
        // The C library has much assembly language, and code that only exceptions lead to.
        let files =
            [("/bin/bash", 99), ("/usr/bin/perl", 97), ("/lib/x86_64-linux-gnu/libc.so.6", 92)];
        for (path, percent) in files {
            let path = Path::new(path);
            if !path.exists() {
                testkit::skip(&format!("there is no {}", path.display()));
                continue;
            }
            let found = compared(path);
            let all = found.same + found.unknown + found.other;

            assert!(all > 50_000, "{}: {found:?}", path.display());
            assert!(found.same * 100 >= all * percent, "{}: {found:?}", path.display());
        }
    }

    const BASE: u64 = 0x1000;

    /// The rules of these bytes, by address from their begin.
    fn rules(bytes: &[u8], outermost: Option<u64>) -> Vec<(u64, Cfa, Option<u32>)> {
        let described = describe(&[Code { address: BASE, bytes }], &[], outermost);
        let rows = described.into_iter().flat_map(|function| function.rows);
        rows.map(|(at, rule)| (at - BASE, rule.cfa(), rule.saved())).collect()
    }

    #[test]
    fn a_function_s_frame_grows_and_shrinks() {
        // push rbp; push rbx; sub rsp, 0x28; xor ebp, ebp; add rsp, 0x28; pop rbx; pop rbp; ret
        let bytes = [
            0x55, 0x53, 0x48, 0x83, 0xec, 0x28, 0x31, 0xed, 0x48, 0x83, 0xc4, 0x28, 0x5b, 0x5d,
            0xc3,
        ];
        let expected = [
            (0, Cfa::StackPointer(8), None),
            (1, Cfa::StackPointer(16), Some(16)),
            (2, Cfa::StackPointer(24), Some(16)),
            (6, Cfa::StackPointer(64), Some(16)),
            (12, Cfa::StackPointer(24), Some(16)),
            (13, Cfa::StackPointer(16), Some(16)),
            (14, Cfa::StackPointer(8), None),
        ];
        assert_eq!(rules(&bytes, None), expected);
    }

    #[test]
    fn a_frame_pointer_tells_where_the_stack_pointer_does_not() {
        // push rbp; mov rbp, rsp; and rsp, -64; sub rsp, rax; leave; ret
        let bytes = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xc0, 0x48, 0x29, 0xc4, 0xc9, 0xc3];
        let expected = [
            (0, Cfa::StackPointer(8), None),
            (1, Cfa::StackPointer(16), Some(16)),
            (4, Cfa::FramePointer(16), Some(16)),
            (12, Cfa::StackPointer(8), None),
        ];
        assert_eq!(rules(&bytes, None), expected);
    }

    #[test]
    fn who_gives_up_the_frame_pointer_was_called_by_nobody() {
        // xor ebp, ebp; mov rdi, rsp; and rsp, -16; call r9; hlt
        let bytes = [0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x83, 0xe4, 0xf0, 0x41, 0xff, 0xd1, 0xf4];
        let by_itself = [(0, Cfa::StackPointer(8), None), (2, Cfa::Outermost, None)];
        assert_eq!(rules(&bytes, None), by_itself);
        assert_eq!(rules(&bytes, Some(BASE)), [(0, Cfa::Outermost, None)]);
    }

    #[test]
    fn a_trampoline_of_signals_is_known_by_its_system_call() {
        // nop; mov rax, 15; syscall
        let bytes = [0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(rules(&bytes, None), [(0, Cfa::Signal(40), None)]);
    }

    #[test]
    fn a_function_behind_a_call_that_does_not_return_is_another_one() {
        // sub rsp, 0x18; call …; nop, to a multiple of 16; push rbx; mov ebx, edi; pop rbx; ret
        let mut bytes = vec![0x48, 0x83, 0xec, 0x18, 0xe8, 0, 1, 0, 0];
        bytes.resize(16, 0x90);
        bytes.extend([0x53, 0x89, 0xfb, 0x5b, 0xc3]);
        let expected = [
            (0, Cfa::StackPointer(8), None),
            (4, Cfa::StackPointer(32), None),
            (16, Cfa::StackPointer(8), None),
            (17, Cfa::StackPointer(16), None),
            (20, Cfa::StackPointer(8), None),
        ];
        assert_eq!(rules(&bytes, None), expected);
    }

    #[test]
    fn a_target_that_is_computed_is_known_by_its_return() {
        // push rbx; sub rsp, 0x20; jmp rax; add rsp, 0x20; pop rbx; ret
        let bytes = [0x53, 0x48, 0x83, 0xec, 0x20, 0xff, 0xe0, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3];
        let expected = [
            (0, Cfa::StackPointer(8), None),
            (1, Cfa::StackPointer(16), None),
            (5, Cfa::StackPointer(48), None),
            (11, Cfa::StackPointer(16), None),
            (12, Cfa::StackPointer(8), None),
        ];
        assert_eq!(rules(&bytes, None), expected);
    }

    #[test]
    fn bytes_that_are_no_code_have_some_rows() {
        let mut seed = 1_u64;
        for len in [1, 2, 15, 4096, 70_000] {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    seed.to_be_bytes()[0]
                })
                .collect();
            let described = describe(&[Code { address: BASE, bytes: &bytes }], &[BASE + 3], None);
            let end = BASE + bytes.len() as u64;
            let rows = || described.iter().flat_map(|function| &function.rows);
            assert!(rows().all(|row| (BASE..end).contains(&row.0)));
            assert!(rows().zip(rows().skip(1)).all(|(row, next)| row.0 < next.0));
        }
    }
}
