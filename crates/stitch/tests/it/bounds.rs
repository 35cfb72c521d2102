//! Figures that a neighbour may still change are intervals, and a merge only narrows them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stitch::table::{Bound, Cell};
use stitch::{Question, Subject, Summary};

use crate::kernel_like::{Step, facts};
use crate::laws::{cases, tenths};

/// How many calls of each name there are, and how long they took together.
fn intervals(summary: &Summary) -> BTreeMap<String, [Bound; 2]> {
    let tables = stitch::tables(summary, Subject::Syscallstats, &Question::default());
    let table = tables.iter().find(|table| table.class.name == "syscalls-per-call").unwrap();
    let column = |name| table.class.columns.iter().position(|column| column.name == name).unwrap();
    let (count, total) = (column("count"), column("total"));
    let rows = table.rows.iter().map(|row| match (&row[0], &row[count], &row[total]) {
        (Cell::Syscall(name), Cell::Count(count), Cell::Ns(ns)) => {
            (name.to_string(), [*count, *ns])
        }
        other => panic!("{other:?}"),
    });
    rows.collect()
}

/// What two stretches of time may have together, while nobody looked across the cut between them.
fn together(left: Bound, right: Bound) -> Bound {
    let high = left.high.zip(right.high).map(|(left, right)| left + right);
    Bound { low: left.low + right.low, high }
}

fn lies_inside(inner: Bound, outer: Bound) -> bool {
    let below = outer.high.is_none_or(|outer| inner.high.is_some_and(|inner| inner <= outer));
    outer.low <= inner.low && below
}

/// Checks that a merge of neighbours widens nothing; gives the merged one.
fn merged(left: Summary, right: Summary) -> Summary {
    const NOTHING: [Bound; 2] = [Bound::exactly(0), Bound::exactly(0)];
    let (before, after) = (intervals(&left), intervals(&right));
    let whole = left.merge(right).unwrap();
    let found = intervals(&whole);
    for name in before.keys().chain(after.keys()) {
        let of = |all: &BTreeMap<String, [Bound; 2]>| all.get(name).copied().unwrap_or(NOTHING);
        for ((left, right), found) in of(&before).into_iter().zip(of(&after)).zip(of(&found)) {
            let outer = together(left, right);
            assert!(lies_inside(found, outer), "{name}: {found:?}, before the merge {outer:?}");
        }
    }
    whole
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_merge_with_a_neighbour_widens_no_interval(
        steps in prop::collection::vec(any::<Step>(), 0..400),
        missing in prop::collection::vec(prop::bool::weighted(0.2), 10),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        let mut parts = tenths(&all, end, &missing);
        let mut choices = choices.iter().cycle();
        while parts.len() > 1 {
            let at = usize::from(*choices.next().unwrap()) % (parts.len() - 1);
            let right = parts.remove(at + 1);
            let left = std::mem::replace(&mut parts[at], Summary::identity());
            parts[at] = merged(left, right);
        }
    }
}
