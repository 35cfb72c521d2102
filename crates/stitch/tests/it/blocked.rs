//! What threads wait for, and who ends it.

use std::collections::BTreeMap;

use model::{CpuId, Fd};
use stitch::fact::{CallArgs, Effect, FactKind, LeftAs, Line, Missing};
use stitch::table::{Bound, Cell, Table};
use stitch::{Question, Subject};

use crate::story::{
    Moment, born, enters, enters_on, goes_to, handled, interrupt, leaves, sleeps, summary, switch,
    wakes,
};

const ETH: Line = Line::Hard(5);

fn tables(story: &[Moment]) -> Vec<Table> {
    stitch::tables(&summary(story), Subject::Blocked, &Question::default())
}

fn count(cell: &Cell) -> u64 {
    match cell {
        Cell::Count(Bound { low, .. }) | Cell::Ns(Bound { low, .. }) => *low,
        other => panic!("{other:?}"),
    }
}

/// Waits and nanoseconds by cause.
fn causes(story: &[Moment]) -> BTreeMap<String, (u64, u64)> {
    let by_cause = &tables(story)[0];
    let row = |row: &Vec<Cell>| match &row[0] {
        Cell::Text(cause) => (cause.to_string(), (count(&row[1]), count(&row[2]))),
        other => panic!("{other:?}"),
    };
    by_cause.rows.iter().map(row).collect()
}

/// Nanoseconds by the thread, or interrupt, that ended a wait.
fn wakers(story: &[Moment]) -> Vec<(String, u64)> {
    let by_waker = &tables(story)[3];
    let name = |row: &Vec<Cell>| match (&row[0], &row[1]) {
        (Cell::Process { tid: Some(tid), .. }, Cell::Nothing) => tid.to_string(),
        (Cell::Nothing, Cell::Irq { line, .. }) => format!("{line:?}"),
        (Cell::Unknown, Cell::Unknown) => "?".to_owned(),
        other => panic!("{other:?}"),
    };
    by_waker.rows.iter().map(|row| (name(row), count(&row[3]))).collect()
}

fn only(waker: &str, ns: u64) -> Vec<(String, u64)> {
    vec![(waker.to_owned(), ns)]
}

#[test]
fn the_call_says_what_a_thread_waits_for() {
    for (call, cause) in [
        (enters("futex"), "lock"),
        (enters("clock_nanosleep"), "timer"),
        (enters("epoll_wait"), "network"),
        (enters("fsync"), "disk"),
        (enters("wait4"), "child"),
        (enters("waitid"), "child"),
        (enters("pause"), "other"),
    ] {
        let story = [(0, 1, call), (0, 1, sleeps(1, 0)), (0, 0, wakes(1)), (0, 0, goes_to(0, 1))];
        assert_eq!(causes(&story), BTreeMap::from([(cause.to_owned(), (1, 10))]), "{call:?}");
    }
}

#[test]
fn a_read_from_a_pipe_waits_for_the_pipe_however_the_descriptor_became_known() {
    let pair = Some((Fd::new(3), Fd::new(4)));
    let made = FactKind::CallExit { name: "pipe2", ret: 0, pair, address: None, opened: None };
    let dumped = FactKind::DumpFd {
        pid: Some(model::Pid::new(1)),
        table: None,
        fd: Fd::new(3),
        name: "pipe:[77]",
        kind: stitch::Kind::of_name("pipe:[77]"),
    };
    let read = [
        (0, 1, enters_on("read", 3)),
        (0, 1, sleeps(1, 0)),
        (0, 0, wakes(1)),
        (0, 0, goes_to(0, 1)),
        (0, 1, leaves("read")),
    ];
    let pipe = BTreeMap::from([("pipe".to_owned(), (1, 10))]);
    let before = [(0, 1, enters("pipe2")), (0, 1, made)];
    assert_eq!(causes(&[before.as_slice(), &read].concat()), pipe);
    assert_eq!(causes(&[&read, [(0, 1, dumped)].as_slice()].concat()), pipe);
}

#[test]
fn a_parent_that_lends_its_memory_waits_for_the_child() {
    let story = [
        (0, 1, enters("vfork")),
        (0, 1, switch(1, LeftAs::Uninterruptible, 2)),
        (0, 2, wakes(1)),
        (0, 2, goes_to(2, 1)),
    ];
    assert_eq!(causes(&story), BTreeMap::from([("child".to_owned(), (1, 10))]));
}

#[test]
fn a_wait_ends_with_its_first_wake_up_by_the_thread_on_that_cpu() {
    let story = [(0, 1, sleeps(1, 0)), (1, 2, wakes(1)), (1, 3, wakes(1)), (0, 0, goes_to(0, 1))];
    assert_eq!(wakers(&story), only("2", 10));
}

#[test]
fn a_wake_up_in_a_handler_is_the_interrupts() {
    let story = [
        (0, 1, sleeps(1, 0)),
        (1, 2, interrupt(ETH)),
        (1, 2, wakes(1)),
        (1, 2, handled(ETH)),
        (0, 0, goes_to(0, 1)),
    ];
    assert_eq!(wakers(&story), only("Hard(5)", 20));
}

#[test]
fn the_innermost_handler_that_has_not_ended_wakes() {
    let soft = Line::Soft(3);
    let story = |ends: bool| {
        let mut story = vec![(0, 1, sleeps(1, 0)), (1, 2, interrupt(soft)), (1, 2, interrupt(ETH))];
        if ends {
            story.push((1, 2, handled(ETH)));
        }
        story.push((1, 2, wakes(1)));
        story
    };
    assert_eq!(wakers(&story(false)), only("Hard(5)", 30));
    assert_eq!(wakers(&story(true)), only("Soft(3)", 40));
}

#[test]
fn a_handler_without_an_exit_ends_where_its_cpu_switches_or_enters_a_call() {
    for other in [enters("write"), goes_to(9, 2)] {
        let story = [(0, 1, sleeps(1, 0)), (1, 9, interrupt(ETH)), (1, 9, other), (1, 2, wakes(1))];
        assert_eq!(wakers(&story), only("2", 30), "{other:?}");
    }
}

/// The small kernel's sequences last microseconds, so this limit has a story of its own.
#[test]
fn a_handler_without_an_exit_ends_after_a_tenth_of_a_second() {
    let second = |tenths: i64| model::Timestamp::from_nanos(tenths * 100_000_000);
    let mut facts = crate::story::facts(&[
        (0, 1, sleeps(1, 0)),
        (1, 2, interrupt(ETH)),
        (1, 2, wakes(1)),
        (0, 0, goes_to(0, 1)),
    ]);
    for (wake_at, is_handler) in [(2, true), (3, false)] {
        for (fact, at) in facts.iter_mut().zip([0, 1, wake_at, 4]) {
            fact.at = second(at);
        }
        let parts = |cuts| {
            let windows = crate::laws::windows(cuts, second(0), second(5));
            windows.into_iter().map(|(from, to)| crate::laws::map(&facts, from, to)).collect()
        };
        for cuts in
            [vec![], vec![second(1)], vec![second(2)], vec![second(1), second(2), second(3)]]
        {
            let summary = crate::laws::reduce(parts(cuts), &[0]);
            let tables = stitch::tables(&summary, Subject::Blocked, &Question::default());
            let by_interrupt = matches!(tables[3].rows[0][1], Cell::Irq { .. });
            assert_eq!(by_interrupt, is_handler, "{:?}", tables[3]);
        }
    }
}

#[test]
fn a_wait_whose_end_nobody_saw_ends_where_the_thread_gets_a_cpu() {
    let story = [(0, 1, sleeps(1, 0)), (0, 0, goes_to(0, 1))];
    assert_eq!(wakers(&story), only("?", 10));
}

#[test]
fn a_cpu_without_a_thread_or_a_known_handler_is_idle() {
    let story = [(0, 1, sleeps(1, 0)), (0, 0, wakes(1)), (0, 0, goes_to(0, 1))];
    assert_eq!(wakers(&story), only("0", 10));
}

#[test]
fn being_preempted_born_or_dead_is_no_wait() {
    let story = [
        (0, 1, goes_to(1, 2)),
        (0, 2, born(3)),
        (0, 2, wakes(3)),
        (0, 2, switch(2, LeftAs::Dead, 3)),
        (0, 3, wakes(1)),
        (0, 3, wakes(2)),
        (0, 3, goes_to(3, 1)),
    ];
    assert_eq!(causes(&story), BTreeMap::new());
}

#[test]
fn a_wait_in_which_events_are_lost_is_not_counted() {
    for what in [Missing::Kernel(CpuId::new(1)), Missing::KernelEverywhere] {
        let lost = FactKind::Lost { what, events: 1, packets: 0 };
        let story = [
            (0, 1, sleeps(1, 0)),
            (1, 0, lost),
            (1, 2, wakes(1)),
            (0, 0, goes_to(0, 1)),
            (0, 1, sleeps(1, 0)),
            (1, 2, wakes(1)),
        ];
        assert_eq!(wakers(&story), only("2", 10));
    }
}

#[test]
fn a_process_and_its_threads_share_a_row_and_a_filter_keeps_threads() {
    let args = CallArgs { effect: Effect::Nothing, ..CallArgs::NONE };
    let story = [
        (0, 1, FactKind::CallEntry { name: "futex", args }),
        (0, 1, sleeps(1, 2)),
        (0, 2, enters("futex")),
        (0, 2, sleeps(2, 0)),
        (1, 3, wakes(1)),
        (1, 3, wakes(2)),
    ];
    let summary = summary(&story);
    let rows = |question: &Question| {
        let tables = stitch::tables(&summary, Subject::Blocked, question);
        (count(&tables[0].rows[0][2]), tables[2].rows.len())
    };
    assert_eq!(rows(&Question::default()), (30 + 20, 2));
    let of_two = Question { tids: vec![model::Tid::new(2)], ..Question::default() };
    assert_eq!(rows(&of_two), (20, 1));
}
