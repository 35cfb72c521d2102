//! CPUs that come and go, and what their threads are called.

use model::{CpuId, Tid};
use stitch::fact::{FactKind, LeftAs};
use stitch::table::Cell;
use stitch::{Question, Subject, Summary};

use super::{Kinds, summary, switch};

fn offline() -> Kinds {
    FactKind::Offline { cpu: CpuId::new(0) }
}

/// Part and whole of the one CPU's share, and its busy, idle and unknown time.
fn cpu(summary: &Summary) -> [u64; 5] {
    let tables = stitch::tables(summary, Subject::Cputop, &Question::default());
    let [row] = &tables[1].rows[..] else { panic!("{:?}", tables[1].rows) };
    let ns = |cell: &Cell| match cell {
        Cell::Ns(ns) => ns.low,
        other => panic!("{other:?}"),
    };
    let Cell::Ratio { part, whole } = row[1] else { panic!("{:?}", row[1]) };
    [part, whole, ns(&row[2]), ns(&row[3]), ns(&row[4])]
}

#[test]
fn shares_of_a_cpu_that_is_switched_off_are_of_the_time_that_it_was_there() {
    let all = [
        (0, switch(0, LeftAs::Preempted, 1)),
        (1, switch(1, LeftAs::Interruptible, 0)),
        (10, offline()),
        (10, offline()),
        (10, offline()),
        (0, switch(0, LeftAs::Preempted, 1)),
        (1, switch(1, LeftAs::Interruptible, 0)),
    ];
    // 60 ns, of which from the first time that it is said to be off to the next switch 30.
    assert_eq!(cpu(&summary(&all)), [20, 30, 20, 10, 0]);
}

#[test]
fn a_cpu_that_comes_later_was_not_there_before() {
    let all = [
        (10, FactKind::Seen),
        (10, FactKind::Seen),
        (10, offline()),
        (0, switch(0, LeftAs::Preempted, 1)),
        (1, switch(1, LeftAs::Interruptible, 0)),
    ];
    assert_eq!(cpu(&summary(&all)), [10, 10, 10, 0, 0]);
}

#[test]
fn a_program_that_is_started_gives_its_thread_another_name_from_then_on() {
    let exec = FactKind::Exec { comm: "tool", old: None };
    let names = |all: &[(i32, Kinds)]| -> Vec<String> {
        let tables = stitch::tables(&summary(all), Subject::Cputop, &Question::default());
        let name = |row: &Vec<Cell>| match &row[0] {
            Cell::Process { comm, .. } => comm.to_string(),
            other => panic!("{other:?}"),
        };
        tables[0].rows.iter().map(name).collect()
    };
    let before = [(0, switch(0, LeftAs::Preempted, 1)), (1, switch(1, LeftAs::Preempted, 0))];
    assert_eq!(names(&before), ["prev"]);
    let mut after = before.to_vec();
    after.insert(1, (1, exec));
    after[2].1 = FactKind::Switch {
        prev: Tid::new(1),
        prev_comm: "",
        left_as: LeftAs::Preempted,
        next: Tid::IDLE,
        next_comm: "",
    };
    assert_eq!(names(&after), ["tool"]);
}
