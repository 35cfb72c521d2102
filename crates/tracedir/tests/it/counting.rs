//! Counting finds what reading finds.

use std::fs;

use model::{TimeRange, Timestamp};
use tracedir::{Item, LossKind, Recording};

use crate::made::{Packet, Trace, open, packet};

type Lost = (bool, u64, i64, i64);

/// Event records, backward steps, losses and unreadable places.
type Found = (u64, u64, Vec<Lost>, usize);

fn read(recording: &Recording, range: TimeRange) -> Found {
    let mut merged = recording.merged(range);
    let (mut events, mut losses) = (0, Vec::new());
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(_) => events += 1,
            Item::Loss(loss) => losses.push((
                loss.kind == LossKind::Packets,
                loss.count,
                loss.begin.nanos(),
                loss.end.nanos(),
            )),
        }
    }
    losses.sort_unstable();
    (events, merged.backward(), losses, merged.findings().kept().len())
}

fn count(recording: &Recording, range: TimeRange) -> Found {
    let mut losses = Vec::new();
    let counted = recording.count(range, |loss| {
        losses.push((
            loss.kind == LossKind::Packets,
            loss.count,
            loss.begin.nanos(),
            loss.end.nanos(),
        ));
    });
    losses.sort_unstable();
    (counted.events, counted.backward, losses, counted.findings.kept().len())
}

fn check(recording: &Recording, times: impl IntoIterator<Item = i64> + Clone) {
    for begin in times.clone() {
        for end in times.clone() {
            let range = TimeRange {
                begin: Timestamp::from_nanos(begin),
                end: Timestamp::from_nanos(end.max(begin)),
            };
            assert_eq!(count(recording, range), read(recording, range), "from {begin} to {end}");
        }
    }
    assert_eq!(count(recording, TimeRange::ALL), read(recording, TimeRange::ALL));
}

#[test]
fn every_range_of_packets_with_losses_and_backward_steps_is_counted() {
    let late = Packet { begin: 28, ..packet(3, &[31, 30, 29, 40]) };
    let early = Packet { begin: 52, discarded: 9, ..packet(6, &[50, 55]) };
    let packets = [packet(0, &[1, 5, 9]), packet(1, &[10, 10, 20]), late, early];
    for clock in [Some("name = monotonic;"), Some("name = monotonic; freq = 2000000000;"), None] {
        let folder = tempfile::tempdir().unwrap();
        let trace = Trace { clock, ..Trace::default() };
        trace.write(folder.path(), "stream", &packets);
        let other = Packet { stream: 1, ..packet(0, &[2, 3, 33]) };
        fs::write(folder.path().join("other"), trace.bytes(&other)).unwrap();
        let recording = open(folder.path());
        let (events, backward, losses, _) = read(&recording, TimeRange::ALL);
        assert_eq!((events, losses.len()), (15, 3), "{clock:?}");
        assert_eq!(backward > 0, clock.is_some());
        check(&recording, (-1..60).step_by(3));
    }
}

#[test]
fn packets_of_a_tracer_that_stamps_their_begin_too_late_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let env = "tracer_name = \"barectf\"; tracer_major = 2; tracer_minor = 2;";
    let trace = Trace { env, ..Trace::default() };
    let packets =
        [Packet { begin: 7, ..packet(0, &[5, 8]) }, Packet { begin: 25, ..packet(1, &[20, 30]) }];
    trace.write(folder.path(), "stream", &packets);
    check(&open(folder.path()), 0..35);
}

#[test]
fn damaged_packets_are_counted_up_to_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::default();
    let unknown = Packet { event: 3, ..packet(1, &[10]) };
    let path =
        trace.write(folder.path(), "stream", &[packet(0, &[1, 5]), unknown, packet(2, &[20, 21])]);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 5);
    fs::write(&path, bytes).unwrap();
    let recording = open(folder.path());
    let (events, _, _, findings) = count(&recording, TimeRange::ALL);
    assert_eq!((events, findings), (3, 2));
    check(&recording, 0..25);
}
