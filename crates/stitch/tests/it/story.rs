//! Short stories of a few threads: who does what on which CPU, 10 ns apart.

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use stitch::Summary;
use stitch::fact::{CallArgs, Effect, Fact, FactKind, LeftAs, Line, Span};

use crate::compare::{answers, same};
use crate::laws::{map, reduce, windows};

/// The CPU, the thread that has it, and what happens.
pub(crate) type Moment = (u32, i32, FactKind<&'static str>);

pub(crate) fn switch(prev: i32, left_as: LeftAs, next: i32) -> FactKind<&'static str> {
    let (prev, next) = (Tid::new(prev), Tid::new(next));
    FactKind::Switch { prev, prev_comm: "", left_as, next, next_comm: "" }
}

/// A thread falls asleep, and another one gets its CPU.
pub(crate) fn sleeps(tid: i32, next: i32) -> FactKind<&'static str> {
    switch(tid, LeftAs::Interruptible, next)
}

/// A thread that could go on is followed by another.
pub(crate) fn goes_to(prev: i32, next: i32) -> FactKind<&'static str> {
    switch(prev, LeftAs::Preempted, next)
}

pub(crate) fn wakes(tid: i32) -> FactKind<&'static str> {
    FactKind::Wakeup { tid: Tid::new(tid), comm: "" }
}

pub(crate) fn born(tid: i32) -> FactKind<&'static str> {
    FactKind::Fork { child: Tid::new(tid), child_pid: Pid::new(tid), comm: "", shares_table: None }
}

pub(crate) fn enters(name: &'static str) -> FactKind<&'static str> {
    FactKind::CallEntry { name, args: CallArgs::NONE }
}

pub(crate) fn enters_on(name: &'static str, fd: i32) -> FactKind<&'static str> {
    let args = CallArgs { fd: Some(Fd::new(fd)), path: None, effect: Effect::Nothing };
    FactKind::CallEntry { name, args }
}

pub(crate) fn leaves(name: &'static str) -> FactKind<&'static str> {
    FactKind::CallExit { name, ret: 0, pair: None, address: None, opened: None }
}

pub(crate) fn interrupt(line: Line) -> FactKind<&'static str> {
    FactKind::IrqEntry { line, name: "" }
}

pub(crate) fn handled(line: Line) -> FactKind<&'static str> {
    FactKind::IrqExit { line }
}

fn span(name: &'static str) -> Span<&'static str> {
    Span { name, request: Some(7), is_request: name == "request" }
}

pub(crate) fn begin(name: &'static str) -> FactKind<&'static str> {
    FactKind::SpanBegin(span(name))
}

pub(crate) fn end(name: &'static str) -> FactKind<&'static str> {
    FactKind::SpanEnd(span(name))
}

/// The facts of a story at 10, 20, 30...
pub(crate) fn facts(story: &[Moment]) -> Vec<Fact<&'static str>> {
    (10_i64..)
        .step_by(10)
        .zip(story)
        .map(|(at, (cpu, tid, kind))| Fact {
            at: Timestamp::from_nanos(at),
            cpu: Some(CpuId::new(*cpu)),
            tid: Some(Tid::new(*tid)),
            pid: Some(Pid::new(*tid)),
            kind: *kind,
        })
        .collect()
}

/// The summary of a story; checked to give the same answers for every single cut and for a window for each fact.
pub(crate) fn summary(story: &[Moment]) -> Summary {
    let facts = facts(story);
    let begin = Timestamp::from_nanos(0);
    let end = Timestamp::from_nanos(10 * i64::try_from(story.len() + 1).unwrap());
    let whole = map(&facts, begin, end);
    let cuts = |cuts: Vec<Timestamp>| -> Vec<Summary> {
        windows(cuts, begin, end).into_iter().map(|(from, to)| map(&facts, from, to)).collect()
    };
    let expected = answers(&whole);
    let agrees = |parts: Vec<Summary>, choices: &[u16]| {
        let found = answers(&reduce(parts, choices));
        same(&expected.0, &found.0);
        same(&expected.1, &found.1);
    };
    let all: Vec<Timestamp> = facts.iter().map(|fact| fact.at).collect();
    all.iter().for_each(|cut| agrees(cuts(vec![*cut]), &[0]));
    agrees(cuts(all.clone()), &[3, 1, 4, 1, 5]);
    agrees(cuts(all), &[0]);
    whole
}
