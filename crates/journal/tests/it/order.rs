//! Each reader is given each entry once and in order, over restarts.

use std::time::Duration;

use journal::{Bounds, Error, Journal};
use proptest::prelude::*;

use crate::{append, at, open, take, take_all};

#[test]
fn readers_go_on_where_they_were_each_at_its_own_place() {
    let folder = tempfile::tempdir().unwrap();
    let small = Bounds { bytes: 1 << 20, ..Bounds::default() };
    let id = {
        let journal = open(folder.path(), small);
        let (mut fast, _slow) = (journal.reader("fast").unwrap(), journal.reader("slow").unwrap());
        (0..3_000).for_each(|number| append(&journal, number, 100, 0));
        assert_eq!(take_all(&mut fast), (0..3_000).collect::<Vec<_>>());
        journal.id()
    };
    let journal = open(folder.path(), small);
    assert_eq!(journal.id(), id);
    let mut slow = journal.reader("slow").unwrap();
    assert_eq!(take(&mut slow, 1), [0]);
    drop((slow, journal));
    let journal = open(folder.path(), small);
    let (mut fast, mut slow) = (journal.reader("fast").unwrap(), journal.reader("slow").unwrap());
    append(&journal, 3_000, 0, 0);
    assert_eq!(take_all(&mut fast), [3_000]);
    assert_eq!(take_all(&mut slow), (1..=3_000).collect::<Vec<_>>());
    let levels = journal.levels();
    assert_eq!(levels.end.entry, 3_001);
    let (seen, counts) = &levels.readers["slow"];
    assert_eq!((*seen, counts.acknowledged, counts.waiting), (3_001, 3_001, 0));
    assert!(counts.dropped.is_empty());
}

#[test]
fn what_is_not_acknowledged_is_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), Bounds::default());
    let mut reader = journal.reader("it").unwrap();
    (0..10).for_each(|number| append(&journal, number, 0, 0));
    let first = reader.next(100).unwrap();
    assert_eq!(first.len(), 3);
    reader.give_back();
    assert_eq!(reader.next(100).unwrap(), first);
    reader.acknowledge(first[1].header.end()).unwrap();
    assert_eq!(take_all(&mut reader), (2..10).collect::<Vec<_>>());
}

#[test]
fn who_comes_later_begins_at_the_end_and_waits_for_what_comes() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), Bounds::default());
    append(&journal, 0, 0, 0);
    let mut reader = journal.reader("late").unwrap();
    assert!(!reader.wait(Duration::from_millis(1)));
    assert!(reader.next(1).unwrap().is_empty());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            assert!(reader.wait(Duration::from_secs(60)));
            take(&mut reader, 1)
        });
        append(&journal, 1, 0, 0);
        assert_eq!(waits.join().unwrap(), [1]);
    });
    assert_eq!(journal.levels().readers["late"].0, 1);
}

#[test]
fn a_journal_and_a_reader_are_one_owners() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), Bounds::default());
    let again = Journal::open(folder.path(), Bounds::default());
    assert!(matches!(again, Err(Error::Taken { .. })), "{again:?}");
    let _reader = journal.reader("it").unwrap();
    for name in ["it", "", "../it", "a/b", &"x".repeat(101)] {
        assert!(matches!(journal.reader(name), Err(Error::Name { .. })), "{name}");
    }
    let long = vec![0; journal::MAX_PAYLOAD + 1];
    assert!(matches!(journal.append(1, 1, &long, at(0)), Err(Error::TooLong { .. })));
    assert_eq!(journal.levels().end.entry, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However it is appended, read, acknowledged in part and opened anew.
    #[test]
    fn nothing_is_given_out_of_order_twice_or_never(
        steps in prop::collection::vec((0_u8..4, 1_usize..4_000), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(folder.path(), Bounds::default());
        let mut reader = journal.reader("it").unwrap();
        let (mut appended, mut taken) = (0, 0);
        for (step, size) in steps {
            match step {
                0 | 1 => {
                    append(&journal, appended, size, 0);
                    appended += 1;
                }
                2 => {
                    let entries = reader.next(size).unwrap();
                    let numbers: Vec<u64> =
                        entries.iter().map(|it| it.header.position.entry).collect();
                    let expected = taken..taken + numbers.len() as u64;
                    prop_assert_eq!(&numbers, &expected.collect::<Vec<_>>());
                    prop_assert!(!numbers.is_empty() || taken == appended);
                    // Half of it is acknowledged.
                    if let Some(entry) = entries.get(entries.len() / 2) {
                        reader.acknowledge(entry.header.end()).unwrap();
                        taken = entry.header.end().entry;
                    }
                }
                _ => {
                    drop((reader, journal));
                    journal = open(folder.path(), Bounds::default());
                    reader = journal.reader("it").unwrap();
                }
            }
        }
        prop_assert_eq!(take_all(&mut reader), (taken..appended).collect::<Vec<_>>());
    }
}
