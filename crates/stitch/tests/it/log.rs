//! The law for logs, selections and ranges of time: any cut and any grouping gives what the whole gives, and what is taken out
//! from left to right follows in time.

use std::sync::Arc;

use model::{CpuId, Tid, TimeRange, Timestamp};
use proptest::prelude::*;
use stitch::fact::{Fact, FactKind, Line};
use stitch::table::{Cell, Table};
use stitch::{Between, Cover, Logged, Question, Selection, Subject, Summary, Tables, Window};

use crate::compare::same;
use crate::laws::{cases, learnt_at, reduce, steps, windows};
use crate::tables::{devices, with_devices};

fn map(facts: &[Fact<&str>], (begin, end): (Timestamp, Timestamp), of: &Arc<Selection>) -> Summary {
    let entry = Arc::new(learnt_at(facts, begin, &[]));
    let cover = Cover { host: "host".into(), begin, end };
    let mut window = Window::after(cover, entry).selecting(of);
    for fact in facts.iter().filter(|fact| begin <= fact.at && fact.at < end) {
        window.add(fact);
    }
    window.finish()
}

fn lines(tables: &[Table]) -> String {
    let rows = tables.iter().flat_map(|table| &table.rows);
    rows.map(|row| format!("{row:?}\n")).collect()
}

/// Every log of these facts, and every table of what is selected.
fn answers(all: &[Fact<&str>], cuts: &[Timestamp], end: Timestamp, choices: &[u16]) -> String {
    let question = Question::default();
    let mut text = String::new();
    for selection in selections() {
        let selection = Arc::new(selection);
        let parts = windows(cuts.to_vec(), Timestamp::from_nanos(0), end).into_iter();
        let parts: Vec<Summary> = parts.map(|range| map(all, range, &selection)).collect();
        let summary = reduce(parts, choices);
        let subjects = Subject::LOGS.iter().chain(&Subject::ALL);
        for of in [Logged::Turns, Logged::Waits].iter().filter(|of| selection.logs.contains(of)) {
            let log = summary.clone().take_log().unwrap();
            let tables = Tables::new(&summary, &question);
            text += &lines(&[tables.log(*of, &log)]);
            tables.spans(&log, &mut |span| text += &format!("{span:?}\n"));
            tables.open_spans(&selection.logs, &mut |span| text += &format!("{span:?}\n"));
        }
        for subject in subjects {
            if subject.logged().is_none_or(|logged| selection.logs.contains(&logged)) {
                text += &lines(&stitch::tables(&summary, *subject, &question));
            }
        }
    }
    text
}

fn selections() -> [Selection; 8] {
    let log = |logged| Selection { logs: vec![logged], ..Selection::default() };
    [
        log(Logged::Interrupts),
        log(Logged::Latencies),
        log(Logged::Operations),
        log(Logged::Requests),
        log(Logged::Turns),
        Selection {
            tids: Some(vec![Tid::new(1), Tid::new(2)]),
            logs: vec![Logged::Waits, Logged::Calls, Logged::Latencies],
            ..Selection::default()
        },
        Selection {
            ns: Between { least: 200, greatest: 5_000 },
            longest_calls: true,
            ..log(Logged::Calls)
        },
        Selection {
            cpus: Some(vec![CpuId::new(0)]),
            tids: Some(vec![Tid::new(1), Tid::new(2)]),
            lines: Some(vec![Line::Hard(1), Line::Soft(0)]),
            ..log(Logged::Interrupts)
        },
    ]
}

fn at(part: f64, end: Timestamp) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "the sequences last microseconds")]
    Timestamp::from_nanos((part * end.nanos() as f64) as i64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 3, ..ProptestConfig::default() })]

    #[test]
    fn logs_and_selections_are_those_of_the_whole_for_every_cut(
        steps in steps(),
        devices in devices(),
        cuts in prop::collection::vec(0.0..1.0_f64, 0..12),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = with_devices(&steps, &devices);
        let cuts: Vec<Timestamp> = cuts.into_iter().map(|part| at(part, end)).collect();
        same(&answers(&all, &[], end, &choices), &answers(&all, &cuts, end, &choices));
        let each: Vec<Timestamp> = all.iter().map(|fact| fact.at).take(100).collect();
        same(&answers(&all, &[], end, &choices), &answers(&all, &each, end, &choices));
    }

    #[test]
    fn parts_of_a_log_taken_out_from_left_to_right_are_the_whole_log(
        steps in steps(),
        devices in devices(),
        cuts in prop::collection::vec(0.0..1.0_f64, 0..12),
    ) {
        let (all, end) = with_devices(&steps, &devices);
        let cuts: Vec<Timestamp> = cuts.into_iter().map(|part| at(part, end)).collect();
        let begin = Timestamp::from_nanos(0);
        let question = Question::default();
        for subject in Subject::LOGS {
            let selection = Arc::new(Selection { logs: subject.logged().into_iter().collect(), ..Selection::default() });
            let whole = map(&all, (begin, end), &selection);
            let tables = Tables::new(&whole, &question);
            let mut parts = String::new();
            let mut left = Summary::identity();
            for range in windows(cuts.clone(), begin, end) {
                left = left.merge(map(&all, range, &selection)).unwrap();
                let log = left.take_log().unwrap();
                parts += &lines(&[tables.log(subject.logged().unwrap(), &log)]);
            }
            same(&lines(&tables.of(subject)), &parts);
        }
    }

    #[test]
    fn counting_from_a_time_on_counts_what_ends_then_for_every_cut(
        steps in steps(),
        devices in devices(),
        from in 0.0..1.0_f64,
        cuts in prop::collection::vec(0.0..1.0_f64, 0..8),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = with_devices(&steps, &devices);
        let (begin, from) = (Timestamp::from_nanos(0), at(from, end));
        let cuts: Vec<Timestamp> = cuts.into_iter().map(|part| at(part, end)).collect();
        let question = Question::default();
        for subject in Subject::LOGS {
            let selection = Arc::new(Selection { logs: subject.logged().into_iter().collect(), ..Selection::default() });
            let part = |cuts: &[Timestamp], from, to| {
                let ranges = windows(cuts.to_vec(), from, to).into_iter().filter(|(a, b)| a < b);
                reduce(ranges.map(|range| map(&all, range, &selection)).collect(), &choices)
            };
            let count = |cuts: &[Timestamp]| {
                let before = part(cuts, begin, from).counting_from_its_end();
                before.merge(part(cuts, from, end)).unwrap()
            };
            if begin == from || from == end {
                continue;
            }
            let (whole, cut) = (count(&[]), count(&cuts));
            for of in Subject::ALL.iter().chain([&subject]) {
                let tables = |summary| lines(&stitch::tables(summary, *of, &question));
                same(&tables(&whole), &tables(&cut));
            }
            same(
                &serde_json::to_string_pretty(&stitch::phases(&whole)).unwrap(),
                &serde_json::to_string_pretty(&stitch::phases(&cut)).unwrap(),
            );
            // Of everything, what ends in the range: the second column is the end.
            let all = stitch::tables(&part(&[], begin, end), subject, &question);
            let ends_in = |row: &&Vec<Cell>| matches!(row[1], Cell::At(at) if from <= at);
            let found = stitch::tables(&whole, subject, &question);
            let expected = all[0].rows.iter().filter(ends_in).count();
            prop_assert_eq!(found[0].rows.len(), expected, "{:?}", subject);
        }
    }
}

#[test]
fn what_a_selection_leaves_out_is_in_no_figure() {
    let raise = |line| FactKind::IrqRaise { line };
    let entry = |line| FactKind::IrqEntry { line, name: "" };
    let exit = |line| FactKind::IrqExit { line };
    let (timer, net) = (Line::Soft(1), Line::Soft(3));
    let kinds = [raise(timer), entry(timer), exit(timer), entry(net), raise(timer), exit(net)];
    let facts = (1_i64..).zip(kinds).map(|(n, kind)| Fact {
        at: Timestamp::from_nanos(10 * n),
        cpu: Some(CpuId::new(0)),
        tid: None,
        pid: None,
        kind,
    });
    let facts: Vec<Fact<&str>> = facts.collect();
    let stats = |selection: Selection| {
        let range = TimeRange { begin: Timestamp::from_nanos(0), end: Timestamp::from_nanos(99) };
        let summary = map(&facts, (range.begin, range.end), &Arc::new(selection));
        let soft = stitch::tables(&summary, Subject::Irqstats, &Question::default()).remove(1);
        soft.rows.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect::<Vec<_>>()
    };
    let irq = |line, name: &str| Cell::Irq { line, name: name.into() };
    let (timer, net) = (irq(timer, "TIMER"), irq(net, "NET_RX"));
    let once = Cell::count(1);
    let both = vec![(timer.clone(), once.clone()), (net.clone(), once.clone())];
    assert_eq!(stats(Selection::default()), both);
    let only = Selection { lines: Some(vec![Line::Soft(3)]), ..Selection::default() };
    assert_eq!(stats(only), [(net.clone(), once.clone())]);
    let long =
        Selection { ns: Between { least: 11, ..Between::default() }, ..Selection::default() };
    assert_eq!(stats(long), [(timer, Cell::count(0)), (net, once)]);
    let nowhere = Selection { cpus: Some(vec![CpuId::new(1)]), ..Selection::default() };
    assert_eq!(stats(nowhere), []);
}
