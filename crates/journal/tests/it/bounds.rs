//! What does not fit goes, and is counted.

use std::time::Duration;

use journal::{Bounds, Error, Reason};

use crate::{append, at, open, take, take_all};

/// 16 segments.
const MIB: Bounds = Bounds { bytes: 1 << 20, age: Duration::from_secs(3600), read: Duration::ZERO };

#[test]
fn the_oldest_goes_when_there_is_too_much_and_who_had_not_read_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    let (mut fast, mut slow) = (journal.reader("fast").unwrap(), journal.reader("slow").unwrap());
    for number in 0..5_000 {
        append(&journal, number, 1_000, 0);
        assert_eq!(take_all(&mut fast), [number]);
    }
    let levels = journal.levels();
    assert!(levels.bytes <= MIB.bytes, "{levels:?}");
    assert_eq!(levels.readers["fast"].1.acknowledged, 5_000);
    let left = take_all(&mut slow);
    assert_eq!(left.last(), Some(&4_999));
    assert!(left.windows(2).all(|pair| pair[1] == pair[0] + 1));
    let levels = journal.levels();
    let (seen, counts) = &levels.readers["slow"];
    assert_eq!(counts.dropped[&Reason::Size] + counts.acknowledged, *seen);
    assert_eq!(counts.acknowledged, left.len() as u64);
    assert!(left.len() > 900, "{}", left.len());
}

#[test]
fn what_waits_too_long_goes_and_is_counted_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    drop(journal.reader("it").unwrap());
    (0..200).for_each(|number| append(&journal, number, 1_000, 0));
    (200..400).for_each(|number| append(&journal, number, 1_000, 3_000));
    journal.enforce(at(3_500)).unwrap();
    assert_eq!(journal.levels().readers["it"].1.waiting, 400);
    journal.enforce(at(3_700)).unwrap();
    drop(journal);
    let journal = open(folder.path(), MIB);
    let mut reader = journal.reader("it").unwrap();
    let left = take_all(&mut reader);
    assert!(left.len() >= 200 && left.last() == Some(&399), "{left:?}");
    let counts = &journal.levels().readers["it"].1;
    assert_eq!(counts.dropped[&Reason::Age], 400 - left.len() as u64);
}

#[test]
fn what_all_have_read_goes_at_once_or_after_the_time_that_is_asked_for() {
    for (read, is_kept) in [(Duration::ZERO, false), (Duration::from_secs(100), true)] {
        let folder = tempfile::tempdir().unwrap();
        let journal = open(folder.path(), Bounds { read, ..MIB });
        let mut reader = journal.reader("it").unwrap();
        (0..300).for_each(|number| append(&journal, number, 1_000, 0));
        assert_eq!(take_all(&mut reader).len(), 300);
        journal.enforce(at(50)).unwrap();
        let mut kept = 0;
        journal.replay(0, |_, _| kept += 1).unwrap();
        assert_eq!(kept == 300, is_kept, "{kept}");
        journal.enforce(at(200)).unwrap();
        let mut kept = Vec::new();
        journal.replay(290, |header, _| kept.push(header.position.entry)).unwrap();
        // The segment that is written to stays.
        assert_eq!(kept, (290..300).collect::<Vec<_>>());
        assert!(journal.levels().bytes < 70_000);
    }
}

#[test]
fn what_a_reader_has_in_its_hands_stays_and_more_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    let mut reader = journal.reader("it").unwrap();
    append(&journal, 0, 1_000, 0);
    let lent = reader.next(1).unwrap();
    let full = (1..2_000).find_map(|_| journal.append(1, 1, &[0; 1_000], at(0)).err()).unwrap();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    let end = journal.levels().end;
    assert!(end.entry > 1_000);
    reader.acknowledge(lent[0].header.end()).unwrap();
    journal.append(1, 1, b"12345678", at(0)).unwrap();
    assert!(!take(&mut reader, 1).is_empty());
}

#[test]
fn what_is_held_stays_and_more_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    journal.hold(0);
    let full = (0..2_000).find_map(|_| journal.append(1, 1, &[0; 1_000], at(0)).err()).unwrap();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    let (end, mut first) = (journal.levels().end.entry, None);
    journal
        .replay(0, |header, _| {
            first.get_or_insert(header.position.entry);
        })
        .unwrap();
    assert_eq!(first, Some(0));
    journal.hold(end);
    journal.append(1, 1, b"12345678", at(0)).unwrap();
    let mut kept = 0;
    journal.replay(0, |_, _| kept += 1).unwrap();
    assert!(kept < end, "{kept}");
}

#[test]
fn records_that_were_refused_are_not_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    let mut reader = journal.reader("it").unwrap();
    journal.append(1, 10, b"ten", at(0)).unwrap();
    let entries = reader.next(1).unwrap();
    reader.acknowledge(entries[0].header.end()).unwrap();
    reader.reject(Reason::Refused, 3).unwrap();
    let counts = &journal.levels().readers["it"].1;
    assert_eq!((counts.acknowledged, counts.dropped[&Reason::Refused]), (7, 3));
}
