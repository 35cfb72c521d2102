//! A function's instructions, one after the other and along all branches.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use super::state::{SP, State};
use super::trial::solve;
use super::{Code, Program};
use crate::rule::Rule;

/// How often an instruction is gone through because something new is known of the way to it.
const MAX_VISITS: u8 = 4;

/// Why a state is taken to be so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// Nothing is known to lead there.
    Guessed,
    /// The instructions on the way from the function's begin say so.
    Followed,
    /// Of ways that contradict each other, this one is right: with it the function returns as functions do.
    Returns,
}

/// What is known where a way begins.
#[derive(Debug, Clone, Copy)]
struct Known {
    state: State,
    trust: Trust,
    /// Whether it begins behind a call that may not return.
    is_weak: bool,
    /// Calls before on the way: each may not return, and so lead into what something else leads to.
    calls: u32,
}

/// Ways that are still to be gone: with the fewest calls first, by where they begin, and then as they came.
#[derive(Debug, Default)]
struct Ways {
    ways: BTreeMap<(u32, u64, u64), Known>,
    came: u64,
}

impl Ways {
    fn push(&mut self, begin: u64, known: Known) {
        self.came += 1;
        self.ways.insert((known.calls, begin, self.came), known);
    }

    fn pop(&mut self) -> Option<(u64, Known)> {
        self.ways.pop_first().map(|((_, begin, _), known)| (begin, known))
    }
}

/// An instruction that was gone through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visited {
    pub(super) state: State,
    /// Whether this is from a call that may not return.
    pub(super) is_weak: bool,
    trust: Trust,
    bytes: u8,
    times: u8,
}

/// A function that is followed.
pub(super) struct Analysis<'a> {
    pub(super) code: Code<'a>,
    /// Its first instruction, of which it is known what is so.
    begin: Option<u64>,
    pub(super) visited: BTreeMap<u64, Visited>,
    /// Where it jumps to beyond itself, and what is so then.
    pub(super) outside: Vec<(u64, State)>,
    /// What is known where it jumps to what it has computed.
    computed: BTreeMap<u64, State>,
}

impl<'a> Analysis<'a> {
    pub(super) const fn new(code: Code<'a>) -> Self {
        Self {
            code,
            begin: None,
            visited: BTreeMap::new(),
            outside: Vec::new(),
            computed: BTreeMap::new(),
        }
    }

    /// Follows the function from its begin, if that is known, and where else it is known what is so.
    pub(super) fn follow(
        &mut self,
        program: &mut Program,
        entry: Option<(u64, State)>,
        parts: Vec<(u64, State)>,
    ) {
        let mut ways = Ways::default();
        self.begin = entry.map(|(at, _)| at);
        for (at, state) in entry.into_iter().chain(parts) {
            ways.push(at, Known { state, trust: Trust::Followed, is_weak: false, calls: 0 });
        }
        let mut cursor = self.code.address;
        loop {
            while let Some((at, known)) = ways.pop() {
                self.run(at, known, program, &mut ways);
            }
            let Some(unvisited) = self.unvisited(cursor) else { break };
            cursor = unvisited;
            let state = self.guess(unvisited, program);
            ways.push(unvisited, Known { state, trust: Trust::Guessed, is_weak: false, calls: 0 });
        }
    }

    /// Follows instructions one after the other up to a call, and notes where else they lead.
    fn run(&mut self, begin: u64, mut known: Known, program: &mut Program, ways: &mut Ways) {
        let mut decoder = self.code.decoder(begin);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let Some((state, trust)) = self.arrive(&instruction, known, program) else { return };
            known = Known { state, trust, is_weak: false, ..known };
            if instruction.is_invalid() {
                return;
            }
            known.state.pass(&instruction, &mut program.registers);
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                    if instruction.mnemonic() == Mnemonic::Hlt {
                        return;
                    }
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let next = instruction.next_ip();
                    // Behind a call that does not return another function may begin, at a multiple of 16 as functions do.
                    let may_be_another =
                        next.is_multiple_of(16) || self.behind_padding(next) != Some(next);
                    if !may_be_another || self.goes_on(next, &known.state, program) {
                        let calls = known.calls + 1;
                        ways.push(next, Known { is_weak: true, calls, ..known });
                    }
                    return;
                }
                FlowControl::ConditionalBranch => self.jump(&instruction, known, ways),
                FlowControl::UnconditionalBranch => {
                    self.jump(&instruction, known, ways);
                    return;
                }
                FlowControl::IndirectBranch => {
                    self.computed.insert(instruction.ip(), known.state);
                    return;
                }
                FlowControl::Return | FlowControl::Exception => return,
            }
        }
    }

    /// What holds at an instruction that is reached, and why; `None` when nothing new is known of it.
    fn arrive(
        &mut self,
        instruction: &Instruction,
        arriving: Known,
        program: &mut Program,
    ) -> Option<(State, Trust)> {
        let at = instruction.ip();
        let Known { state, trust, is_weak, .. } = arriving;
        let Some(known) = self.visited.get_mut(&at) else {
            let bytes = u8::try_from(instruction.len().max(1)).unwrap_or(u8::MAX);
            self.visited.insert(at, Visited { state, is_weak, trust, bytes, times: 1 });
            return Some((state, trust));
        };
        if self.begin == Some(at) || known.times >= MAX_VISITS || known.trust > trust {
            return None;
        }
        let mut meant = match (known.is_weak, is_weak) {
            _ if known.trust < trust => state,
            (true, false) => state,
            (false, true) => known.state,
            (true, true) | (false, false) => known.state.and(&state),
        };
        let mut why = trust;
        if meant.get(SP).is_none() && known.state.get(SP).is_some() && state.get(SP).is_some() {
            // One of the two is wrong; the way with fewer calls came first.
            let solved = solve(self.code, &BTreeMap::new(), at, program)?;
            why = Trust::Returns;
            meant = if solved.get(SP) == state.get(SP) { state } else { known.state };
        }
        let is_new = meant != known.state;
        *known = Visited {
            state: meant,
            is_weak: known.is_weak && is_weak,
            trust: why,
            bytes: known.bytes,
            times: known.times + u8::from(is_new),
        };
        is_new.then_some((meant, why))
    }

    fn jump(&mut self, instruction: &Instruction, known: Known, ways: &mut Ways) {
        let target = instruction.near_branch_target();
        if self.code.range().contains(&target) {
            ways.push(target, known);
        } else if known.trust != Trust::Guessed {
            self.outside.push((target, known.state));
        }
    }

    /// The first instruction from an address on that nothing led to, behind what fills up to the next multiple of some number.
    fn unvisited(&self, mut from: u64) -> Option<u64> {
        let before = self.visited.range(..=from).next_back();
        let end_of = |(at, it): (&u64, &Visited)| at.saturating_add(it.bytes.into());
        from = from.max(before.map_or(0, end_of));
        for visited in self.visited.range(from..) {
            if *visited.0 > from
                && let Some(found) = self.behind_padding(from).filter(|it| it < visited.0)
            {
                return Some(found);
            }
            from = end_of(visited);
        }
        self.behind_padding(from).filter(|it| *it < self.code.end())
    }

    fn behind_padding(&self, from: u64) -> Option<u64> {
        let mut decoder = self.code.decoder(from);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let at = decoder.ip();
            decoder.decode_out(&mut instruction);
            let is_zeros = self.code.from(at).starts_with(&[0, 0]);
            if !is_zeros && !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
                return Some(at);
            }
        }
        None
    }

    /// What is taken to be so where nothing leads to: what makes it return as functions do.
    fn guess(&self, at: u64, program: &mut Program) -> State {
        let before = || self.computed.range(..at).next_back().map(|(_, state)| *state);
        let solved = solve(self.code, &self.visited, at, program);
        solved.or_else(before).unwrap_or(State::at_entry(false))
    }

    /// Whether what is known behind a call fits what comes there.
    fn goes_on(&self, next: u64, state: &State, program: &mut Program) -> bool {
        match solve(self.code, &self.visited, next, program) {
            Some(solved) => solved.get(SP) == state.get(SP),
            None => !self.begins_function(next),
        }
    }

    /// Whether there is what functions begin with.
    fn begins_function(&self, at: u64) -> bool {
        let at = self.behind_padding(at).unwrap_or(at);
        let mut instruction = Instruction::default();
        self.code.decoder(at).decode_out(&mut instruction);
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Endbr64 => true,
            Mnemonic::Sub => instruction.op0_register() == Register::RSP,
            _ => false,
        }
    }

    pub(super) fn rows(&self) -> Vec<(u64, Rule)> {
        let mut rows: Vec<(u64, Rule)> = Vec::new();
        for (at, visited) in &self.visited {
            let rule = visited.state.rule();
            if rows.last().is_none_or(|(_, last)| *last != rule) {
                rows.push((*at, rule));
            }
        }
        rows
    }
}
