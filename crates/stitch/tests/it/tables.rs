//! The law for everything that is counted beside the spans: interrupts, latencies, CPU time, block devices, pages, calls.

use model::{CpuId, Tid, Timestamp};
use proptest::prelude::*;
use stitch::fact::{BlockOp, Dev, Fact, FactKind, LeftAs, Line, Missing};
use stitch::table::{Bound, Cell, Table};
use stitch::{Question, Subject};

use crate::compare::{same, tables};
use crate::kernel_like::facts;
use crate::laws::{cases, map, reduce, steps, tenths, windows};

/// One event of a device: what, how, and after which part of the other facts.
pub(crate) type DeviceStep = (u8, u8, f64);

/// Events of devices in between the facts of a small kernel. Few lines and sectors, so that begins and ends meet; about
/// half of all ends have no begin.
pub(crate) fn with_devices(
    steps: &[crate::kernel_like::Step],
    devices: &[DeviceStep],
) -> (Vec<Fact<&'static str>>, Timestamp) {
    let (mut all, end) = facts(steps);
    for (what, how, part) in devices {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a length"
        )]
        let at = (all.len() as f64 * part) as usize;
        let Some(near) = all.get(at).copied() else { continue };
        let kind = device(*what, *how);
        all.insert(at, Fact { kind, ..near });
    }
    (all, end)
}

fn device(what: u8, how: u8) -> FactKind<&'static str> {
    let hard = Line::Hard(u16::from(how % 3));
    let soft = Line::Soft(how % 2);
    let line = if how & 64 == 0 { hard } else { soft };
    let (dev, sector) = (Dev(u32::from(how / 8 % 2)), u64::from(how % 4));
    match what % 17 {
        0..=2 => FactKind::IrqEntry { line, name: if how & 64 == 0 { "eth0" } else { "" } },
        3..=5 => FactKind::IrqExit { line },
        6 | 7 => FactKind::IrqRaise { line: soft },
        8 | 9 => FactKind::BlockIssue {
            dev,
            sector,
            sectors: 8,
            op: if how & 32 == 0 { BlockOp::Read } else { BlockOp::Write },
            tid: Some(Tid::new(i32::from(how % 5) + 1)),
        },
        10 | 11 => FactKind::BlockDone { dev, sector },
        12 => FactKind::BlockRemap { dev, part: Dev(dev.0 + 7) },
        13 => FactKind::DumpDisk { dev, name: if how & 1 == 0 { "sda" } else { "sdb" } },
        14 if how & 3 == 0 => FactKind::Packet { interface: "eth0", bytes: 64, sent: how & 4 == 0 },
        14 => FactKind::Pages { pages: u64::from(how), freed: how & 1 == 0 },
        15 => FactKind::Offline { cpu: CpuId::new(u32::from(how % 3)) },
        _ => FactKind::Migrate { tid: Tid::new(i32::from(how % 5) + 1) },
    }
}

fn check(all: &[Fact<&str>], cuts: Vec<Timestamp>, end: Timestamp, choices: &[u16]) {
    let begin = Timestamp::from_nanos(0);
    let parts = windows(cuts, begin, end).into_iter().map(|(from, to)| map(all, from, to));
    let stitched = reduce(parts.collect(), choices);
    same(&tables(&map(all, begin, end)), &tables(&stitched));
}

pub(crate) fn devices() -> impl Strategy<Value = Vec<DeviceStep>> {
    prop::collection::vec((any::<u8>(), any::<u8>(), 0.0..1.0_f64), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn random_cuts_and_groupings_give_the_tables_of_the_whole(
        steps in steps(),
        devices in devices(),
        cuts in prop::collection::vec(0.0..1.0_f64, 0..12),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = with_devices(&steps, &devices);
        #[expect(clippy::cast_possible_truncation, reason = "the sequences last microseconds")]
        let at = |part: f64| Timestamp::from_nanos((part * end.nanos() as f64) as i64);
        check(&all, cuts.into_iter().map(at).collect(), end, &choices);
    }

    #[test]
    fn a_window_for_every_event_gives_the_tables_of_the_whole(
        steps in prop::collection::vec(any::<crate::kernel_like::Step>(), 0..150),
        devices in devices(),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = with_devices(&steps, &devices);
        check(&all, all.iter().map(|fact| fact.at).collect(), end, &choices);
    }

    #[test]
    fn missing_windows_give_one_set_of_tables_for_every_grouping(
        steps in steps(),
        devices in devices(),
        missing in prop::collection::vec(any::<bool>(), 10),
        one in prop::collection::vec(any::<u16>(), 1..8),
        other in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = with_devices(&steps, &devices);
        let parts = tenths(&all, end, &missing);
        same(&tables(&reduce(parts.clone(), &one)), &tables(&reduce(parts, &other)));
    }
}

/// Facts of one CPU and thread at 10, 20, 30...; the tables of a subject for the whole and for a window for each fact.
fn tables_of(kinds: &[FactKind<&str>], subject: Subject) -> Vec<Table> {
    let all: Vec<Fact<&str>> = kinds
        .iter()
        .enumerate()
        .map(|(n, kind)| Fact {
            at: Timestamp::from_nanos(10 * (i64::try_from(n).unwrap() + 1)),
            cpu: Some(CpuId::new(0)),
            tid: Some(Tid::new(1)),
            pid: None,
            kind: *kind,
        })
        .collect();
    let end = Timestamp::from_nanos(10 * (i64::try_from(kinds.len()).unwrap() + 1));
    check(&all, all.iter().map(|fact| fact.at).collect(), end, &[1, 0, 2]);
    let whole = map(&all, Timestamp::from_nanos(0), end);
    stitch::tables(&whole, subject, &Question::default())
}

fn switch(prev: i32, left_as: LeftAs, next: i32) -> FactKind<&'static str> {
    FactKind::Switch {
        prev: Tid::new(prev),
        prev_comm: "a",
        left_as,
        next: Tid::new(next),
        next_comm: "b",
    }
}

fn woken(tid: i32) -> FactKind<&'static str> {
    FactKind::Wakeup { tid: Tid::new(tid), comm: "b" }
}

fn entry(line: Line) -> FactKind<&'static str> {
    FactKind::IrqEntry { line, name: "" }
}

/// Count, least and greatest of the row that begins as asked.
fn figures(table: &Table, is_row: impl Fn(&Cell) -> bool) -> Option<(Cell, Cell, Cell)> {
    let row = table.rows.iter().find(|row| is_row(&row[0]))?;
    Some((row[1].clone(), row[2].clone(), row[4].clone()))
}

fn is_line(line: Line) -> impl Fn(&Cell) -> bool {
    move |cell| matches!(cell, Cell::Irq { line: found, .. } if *found == line)
}

fn is_thread(tid: i32) -> impl Fn(&Cell) -> bool {
    move |cell| matches!(cell, Cell::Process { tid: Some(found), .. } if found.get() == tid)
}

fn once(ns: u64) -> Option<(Cell, Cell, Cell)> {
    Some((Cell::count(1), Cell::ns(ns), Cell::ns(ns)))
}

#[test]
fn nested_interrupts_both_count_from_their_own_entries() {
    let (outer, inner) = (Line::Hard(1), Line::Hard(2));
    let kinds = [
        entry(outer),
        entry(inner),
        FactKind::IrqExit { line: inner },
        FactKind::IrqExit { line: outer },
    ];
    let hard = &tables_of(&kinds, Subject::Irqstats)[0];
    assert_eq!(figures(hard, is_line(outer)), once(30));
    assert_eq!(figures(hard, is_line(inner)), once(10));
}

#[test]
fn an_interrupt_whose_entry_is_lost_does_not_count() {
    let line = Line::Hard(1);
    let lost = FactKind::Lost { what: Missing::Kernel(CpuId::new(0)), events: 1, packets: 0 };
    let kinds = [entry(line), lost, FactKind::IrqExit { line }];
    assert!(tables_of(&kinds, Subject::Irqstats)[0].rows.is_empty());
}

#[test]
fn the_first_raise_counts_and_one_while_the_handler_runs_belongs_to_the_next_entry() {
    let line = Line::Soft(3);
    let raise = FactKind::IrqRaise { line };
    let exit = FactKind::IrqExit { line };
    let kinds = [raise, raise, entry(line), raise, exit, entry(line), exit];
    let soft = &tables_of(&kinds, Subject::Irqstats)[1];
    assert_eq!(soft.rows[0][1], Cell::count(2));
    assert_eq!((&soft.rows[0][6], &soft.rows[0][7]), (&Cell::count(2), &Cell::ns(20)));
}

#[test]
fn of_several_wake_ups_the_first_one_counts() {
    let kinds =
        [switch(7, LeftAs::Interruptible, 0), woken(7), woken(7), switch(0, LeftAs::Preempted, 7)];
    assert_eq!(figures(&tables_of(&kinds, Subject::Schedstats)[1], is_thread(7)), once(20));
}

#[test]
fn a_wake_up_of_a_thread_that_is_later_seen_to_have_run_does_not_count() {
    let kinds = [woken(7), switch(7, LeftAs::Interruptible, 0), switch(0, LeftAs::Preempted, 7)];
    assert_eq!(figures(&tables_of(&kinds, Subject::Schedstats)[1], is_thread(7)), None);
}

#[test]
fn a_wake_up_does_not_survive_the_birth_of_another_thread_under_its_number() {
    let born = FactKind::Fork {
        child: Tid::new(7),
        child_pid: model::Pid::new(7),
        shares_table: None,
        comm: "c",
    };
    let kinds = [woken(7), born, switch(0, LeftAs::Preempted, 7)];
    assert_eq!(figures(&tables_of(&kinds, Subject::Schedstats)[1], is_thread(7)), None);
}

#[test]
fn the_time_before_the_first_switch_belongs_to_the_thread_that_it_takes_away() {
    let kinds = [FactKind::Seen, FactKind::Seen, switch(7, LeftAs::Preempted, 0), FactKind::Seen];
    let tables = tables_of(&kinds, Subject::Cputop);
    assert_eq!(tables[0].rows[0][3], Cell::ns(20));
    assert_eq!((&tables[1].rows[0][2], &tables[1].rows[0][3]), (&Cell::ns(20), &Cell::ns(10)));
}

#[test]
fn where_events_are_lost_nobody_knows_who_had_the_cpu() {
    let lost = FactKind::Lost { what: Missing::Kernel(CpuId::new(0)), events: 1, packets: 0 };
    let kinds =
        [switch(0, LeftAs::Preempted, 7), lost, switch(8, LeftAs::Preempted, 0), FactKind::Seen];
    let cpu = &tables_of(&kinds, Subject::Cputop)[1].rows[0];
    assert_eq!((&cpu[2], &cpu[3], &cpu[4]), (&Cell::ns(0), &Cell::ns(10), &Cell::ns(20)));
}

#[test]
fn a_request_counts_for_its_device_from_issue_to_completion() {
    let issue = |sector| FactKind::BlockIssue {
        dev: Dev(1),
        sector,
        sectors: 8,
        op: BlockOp::Write,
        tid: Some(Tid::new(7)),
    };
    let done = |sector| FactKind::BlockDone { dev: Dev(1), sector };
    let kinds = [done(5), issue(5), issue(9), done(9), done(5)];
    let disk = &tables_of(&kinds, Subject::Iolatencystats)[1].rows[0];
    assert_eq!((&disk[1], &disk[2], &disk[4]), (&Cell::count(2), &Cell::ns(10), &Cell::ns(30)));
    assert_eq!(disk[8], Cell::count(16));
}

#[test]
fn a_call_that_has_not_returned_may_count_and_take_any_time() {
    let args = stitch::fact::CallArgs::NONE;
    let exit =
        FactKind::CallExit { name: "poll", ret: -4, pair: None, address: None, opened: None };
    let entry = FactKind::CallEntry { name: "poll", args };
    let row = &tables_of(&[entry, exit, entry], Subject::Syscallstats)[0].rows[0];
    assert_eq!(row[2], Cell::Count(Bound { low: 1, high: Some(2) }));
    assert_eq!(row[7], Cell::Text("EINTR 1".into()));
    assert_eq!(row[8], Cell::Ns(Bound { low: 10, high: None }));
}

#[test]
fn filters_keep_the_rows_of_the_threads_asked_for() {
    let (all, end) = with_devices(&[(3, 7, 1); 200], &[]);
    let whole = map(&all, Timestamp::from_nanos(0), end);
    let question = Question { tids: vec![Tid::new(1)], ..Question::default() };
    for subject in [Subject::Cputop, Subject::Schedstats, Subject::Syscallstats] {
        for table in stitch::tables(&whole, subject, &question) {
            let threads = table.rows.iter().filter_map(|row| match &row[0] {
                Cell::Process { tid, .. } => *tid,
                _ => None,
            });
            assert!(threads.into_iter().all(|tid| tid == Tid::new(1)), "{}", table.class.name);
        }
    }
}
