//! Lives of threads: a number that is given away again, threads that run on after their exit, storms.

use std::sync::Arc;

use model::{CpuId, Pid, Tid, Timestamp};
use stitch::fact::{CallArgs, Fact, FactKind, LeftAs};
use stitch::table::Cell;
use stitch::{Cover, Identities, Question, Subject, Summary, Window};

use crate::compare::answers;
use crate::laws::{reduce, windows};

type Kinds = FactKind<&'static str>;

fn birth(child: i32, comm: &'static str) -> Kinds {
    let (child, child_pid) = (Tid::new(child), Pid::new(1));
    FactKind::Fork { child, child_pid, shares_table: None, comm }
}

fn switch(prev: i32, left_as: LeftAs, next: i32) -> Kinds {
    let (prev, next) = (Tid::new(prev), Tid::new(next));
    FactKind::Switch { prev, prev_comm: "", left_as, next, next_comm: "" }
}

/// What a thread does that lives for so many nanoseconds and makes one call; all of it after thread 1 had the CPU for 10.
fn life(tid: i32, comm: &'static str, ns: i64) -> [(i64, i32, Kinds); 5] {
    let (name, args) = ("getpid", CallArgs::NONE);
    let exit = FactKind::CallExit { name, ret: 1, pair: None, address: None, opened: None };
    [
        (5, 1, birth(tid, comm)),
        (5, 1, switch(1, LeftAs::Interruptible, tid)),
        (1, tid, FactKind::CallEntry { name, args }),
        (1, tid, exit),
        (ns - 2, tid, switch(tid, LeftAs::Dead, 1)),
    ]
}

fn facts(
    steps: impl IntoIterator<Item = (i64, i32, Kinds)>,
) -> (Vec<Fact<&'static str>>, Timestamp) {
    let mut at = 0;
    let fact = |(pause, tid, kind)| {
        at += pause;
        let (cpu, tid) = (Some(CpuId::new(0)), Some(Tid::new(tid)));
        Fact { at: Timestamp::from_nanos(at), cpu, tid, pid: Some(Pid::new(1)), kind }
    };
    let facts: Vec<_> = steps.into_iter().map(fact).collect();
    (facts, Timestamp::from_nanos(at + 1))
}

fn map(all: &[Fact<&str>], begin: Timestamp, end: Timestamp, most: usize) -> Summary {
    let cover = Cover { host: "host".into(), begin, end };
    let entry = Arc::new(Identities::default().outside_spans());
    let mut window = Window::after(cover, entry).keeping_lives(most);
    let inside = all.iter().filter(|fact| begin <= fact.at && fact.at < end);
    inside.for_each(|fact| window.add(fact));
    window.finish()
}

/// The summary of these steps, which is the same for a window for each of them.
fn summary(steps: impl IntoIterator<Item = (i64, i32, Kinds)>, most: usize) -> Summary {
    let (all, end) = facts(steps);
    let begin = Timestamp::from_nanos(0);
    let whole = map(&all, begin, end, most);
    let cuts = all.iter().map(|fact| fact.at).collect();
    let parts = windows(cuts, begin, end).into_iter().map(|(from, to)| map(&all, from, to, most));
    for order in [[0, 0, 0], [7, 3, 5]] {
        assert_eq!(answers(&whole), answers(&reduce(parts.clone().collect(), &order)));
    }
    whole
}

/// Thread, name and nanoseconds of CPU time of each row; -1 where it is none of one thread.
fn cpu_time(summary: &Summary) -> Vec<(i32, String, u64)> {
    let tables = stitch::tables(summary, Subject::Cputop, &Question::default());
    let row = |row: &Vec<Cell>| match (&row[0], &row[3]) {
        (Cell::Process { tid, comm, .. }, Cell::Ns(ns)) => {
            (tid.map_or(-1, Tid::get), comm.to_string(), ns.low)
        }
        other => panic!("{other:?}"),
    };
    tables[0].rows.iter().map(row).collect()
}

fn expected(rows: &[(i32, &str, u64)]) -> Vec<(i32, String, u64)> {
    rows.iter().map(|(tid, comm, ns)| (*tid, (*comm).to_owned(), *ns)).collect()
}

#[test]
fn a_number_that_fork_gives_away_again_has_a_row_for_each_life() {
    let steps = [life(5, "first", 30), life(5, "second", 20)].concat();
    let all = summary(steps, 10);
    let rows = [(5, "first", 30), (5, "second", 20), (1, "", 15)];
    assert_eq!(cpu_time(&all), expected(&rows));
    let calls = stitch::tables(&all, Subject::Syscallstats, &Question::default());
    assert_eq!(calls[0].rows.len(), 2);
}

#[test]
fn a_thread_that_runs_on_after_its_exit_lives_until_it_leaves_its_last_cpu() {
    let exit = FactKind::Exit { tid: Tid::new(5), is_last: None };
    let mut steps = life(5, "gone", 30).to_vec();
    steps.insert(4, (0, 5, exit));
    steps.push((5, 1, birth(5, "next")));
    assert_eq!(cpu_time(&summary(steps, 10)), expected(&[(5, "gone", 30), (1, "", 10)]));
}

#[test]
fn an_older_life_whose_end_nobody_saw_ends_with_the_next_birth() {
    let mut steps = life(5, "old", 30).to_vec();
    steps[4].2 = switch(5, LeftAs::Interruptible, 1);
    steps.extend(life(5, "young", 20));
    let rows = [(5, "old", 30), (5, "young", 20), (1, "", 15)];
    assert_eq!(cpu_time(&summary(steps, 10)), expected(&rows));
}

#[test]
fn lives_with_the_least_cpu_time_are_added_up_by_name_and_nothing_is_lost() {
    let lives = [(5, "sh", 30), (6, "cc", 50), (7, "sh", 20), (8, "cc", 10), (9, "sh", 40)];
    let steps = lives.map(|(tid, comm, ns)| life(tid, comm, ns)).concat();
    let all = summary(steps.clone(), 2);
    let rows =
        [(6, "cc", 50), (-1, "(ended) sh", 50), (1, "", 45), (9, "sh", 40), (-1, "(ended) cc", 10)];
    let mut found = cpu_time(&all);
    found.sort_by_key(|(tid, name, ns)| (std::cmp::Reverse(*ns), *tid < 0, name.clone()));
    let mut rows = expected(&rows);
    rows.sort_by_key(|(tid, name, ns)| (std::cmp::Reverse(*ns), *tid < 0, name.clone()));
    assert_eq!(found, rows);
    let total = |summary: &Summary| cpu_time(summary).iter().map(|row| row.2).sum::<u64>();
    assert_eq!(total(&all), total(&summary(steps, 10)));
    let named = stitch::threads_named(&all, &["sh".to_owned()]);
    assert_eq!(named, [5, 7, 9].map(Tid::new));
}

/// Threads begin and end all the time, each with a number of its own: what is kept of them does not grow.
#[test]
fn a_storm_of_threads_takes_no_more_room_however_long_it_lasts() {
    let storm = |from: i32, lives: i32| {
        let steps =
            (from..from + lives).flat_map(|n| life(1_000 + n, "storm", 10 + i64::from(n % 7)));
        facts(steps)
    };
    let size = |summary: &Summary| summary.to_bytes().unwrap().len();
    // In one window, and merged from many.
    let one = |lives| {
        let (all, end) = storm(0, lives);
        map(&all, Timestamp::from_nanos(0), end, 100)
    };
    let (short, long) = (one(6_000), one(24_000));
    assert!(size(&long) < size(&short) + 100, "{} and {} bytes", size(&short), size(&long));
    let (all, end) = storm(0, 24_000);
    let cuts: Vec<_> = all.iter().step_by(5_000).map(|fact| fact.at).collect();
    let parts = windows(cuts, Timestamp::from_nanos(0), end);
    let parts = parts.into_iter().map(|(from, to)| map(&all, from, to, 100));
    let merged = reduce(parts.collect(), &[0, 3, 1]);
    assert!(size(&merged) < size(&short) + 100, "{} and {} bytes", size(&short), size(&merged));
    assert_eq!(cpu_time(&merged), cpu_time(&long));
    assert_eq!(cpu_time(&merged).len(), 102);
}
