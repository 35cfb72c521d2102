//! Periods between marks: which ends close which begins, and what is inside of what.

use model::{TimeRange, Timestamp};
use stitch::Between;
use stitch::periods::{Definition, MAX_OPEN, Mark, Periods};
use stitch::table::Cell;

fn definitions() -> Vec<Definition> {
    let request = Definition { name: "request".into(), parent: None };
    let query = Definition { name: "query".into(), parent: Some(0) };
    vec![request, query]
}

fn begin(key: &str, parent: &str) -> Mark {
    let (captured, group) = (format!("begins {key}").into(), "".into());
    Mark::Begin { key: key.into(), parent: parent.into(), captured, group }
}

fn end(key: &str) -> Mark {
    Mark::End { key: key.into(), captured: format!("ends {key}").into() }
}

/// Marks at 10, 20, 30...: the begin, the end and the parent's begin of each period that ended, and how many did not.
fn periods(marks: Vec<(usize, Mark)>) -> (Vec<(i64, i64, Option<i64>)>, u64) {
    let mut periods = Periods::new(definitions(), Between::default());
    for (at, (definition, mark)) in (1_i64..).zip(marks) {
        periods.take(Timestamp::from_nanos(10 * at), definition, mark);
    }
    let log = periods.take_log(TimeRange::ALL);
    let time = |cell: &Cell| match cell {
        Cell::At(at) => Some(at.nanos()),
        _ => None,
    };
    let rows = log.rows.iter();
    let rows = rows.map(|row| (time(&row[0]).unwrap(), time(&row[1]).unwrap(), time(&row[4])));
    (rows.collect(), periods.incomplete())
}

#[test]
fn an_end_closes_all_that_are_open_for_its_key_and_nothing_else() {
    let marks = vec![(0, begin("a", "")), (0, begin("b", "")), (0, begin("a", "")), (0, end("a"))];
    assert_eq!(periods(marks), (vec![(10, 40, None), (30, 40, None)], 1));
    assert_eq!(periods(vec![(0, end("a")), (0, begin("a", ""))]), (vec![], 1));
}

#[test]
fn a_child_begins_only_inside_of_a_parent_of_the_key_that_it_asks_for() {
    let marks = vec![
        (1, begin("q", "a")),
        (0, begin("a", "")),
        (1, begin("q", "b")),
        (1, begin("r", "a")),
        (1, end("q")),
        (1, end("r")),
        (0, end("a")),
    ];
    assert_eq!(periods(marks), (vec![(40, 60, Some(20)), (20, 70, None)], 0));
}

#[test]
fn a_child_that_outlives_its_parent_is_incomplete() {
    let marks = vec![(0, begin("a", "")), (1, begin("q", "a")), (0, end("a")), (1, end("q"))];
    assert_eq!(periods(marks), (vec![(10, 30, None)], 1));
}

#[test]
fn what_is_open_where_events_are_lost_is_forgotten_and_counted() {
    let mut periods = Periods::new(definitions(), Between::default());
    let at = Timestamp::from_nanos;
    periods.take(at(1), 0, begin("a", ""));
    periods.forget();
    periods.take(at(2), 0, end("a"));
    assert_eq!((periods.logged(), periods.incomplete()), (0, 1));
    for n in 0..=MAX_OPEN {
        periods.take(at(3), 0, begin(&n.to_string(), ""));
    }
    assert_eq!(periods.incomplete(), MAX_OPEN as u64 + 2);
    periods.take(at(9), 0, end(&MAX_OPEN.to_string()));
    assert_eq!((periods.logged(), periods.incomplete()), (1, MAX_OPEN as u64 + 1));
}

#[test]
fn only_periods_of_the_wanted_length_count() {
    let mut periods = Periods::new(definitions(), Between { least: 5, greatest: 10 });
    for (n, length) in [(0, 4), (100, 5), (200, 10), (300, 11)] {
        periods.take(Timestamp::from_nanos(n), 0, begin("a", ""));
        periods.take(Timestamp::from_nanos(n + length), 0, end("a"));
    }
    let stats = periods.stats(TimeRange::ALL);
    assert_eq!(stats.rows.len(), 1);
    let row = &stats.rows[0];
    assert_eq!((&row[2], &row[3], &row[5]), (&Cell::count(2), &Cell::ns(5), &Cell::ns(10)));
    assert_eq!(periods.longest(TimeRange::ALL).rows[0][2], Cell::ns(10));
}
