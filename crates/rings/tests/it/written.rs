//! What applications write is what is read.

use rings::Door;
use tracepoint::DropReason;
use tracepoint::layout::{Mode, RingState};

use crate::app::{RECORDS, THREADS};
use crate::peer::{App, KeptValue, Language, comes, drain, drain_all, wait_for};

fn door() -> (tempfile::TempDir, Door, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    (folder, door, path)
}

#[test]
fn each_thread_has_a_ring_that_holds_its_records_in_their_order() {
    Language::ALL.into_iter().for_each(check_threads);
}

fn check_threads(language: Language) {
    let (_folder, door, path) = door();
    let large = [("TRACEPOINTS_RING_BYTES", "2000000"), ("TRACEPOINTS_SERVICE", "shop")];
    let mut app = language.start("threads", &path, &large);
    let (connection, rings) = comes(&door);
    assert_eq!(connection.pid, app.child.id());
    assert_eq!((rings.about().pid, &*rings.about().service), (app.child.id(), "shop"));
    app.hears("written");
    let mut read = drain_all(&rings);
    read.sort_by(|a, b| a.thread.cmp(&b.thread));
    assert_eq!(read.len() as u64, THREADS);
    for (thread, read) in (0u64..).zip(&read) {
        assert_eq!(read.thread, format!("writer-{thread}"));
        assert!(read.is_last, "the thread has ended");
        assert_eq!((read.records.len() as u64, read.dropped), (RECORDS, [0; 8]));
        for (number, record) in (0..).zip(&read.records) {
            assert_eq!((record.unsigned(0), record.tick()), (thread, number));
        }
        assert!(read.records.is_sorted_by_key(|record| record.time));
    }
    app.ends();
}

#[test]
fn small_pieces_and_readers_that_come_one_after_the_other_give_the_same() {
    Language::ALL.into_iter().for_each(check_pieces);
}

fn check_pieces(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("threads", &path, &[("TRACEPOINTS_RING_BYTES", "2000000")]);
    let (_connection, rings) = comes(&door);
    app.hears("written");
    for place in 0..rings.touched() {
        let mut numbers = Vec::new();
        loop {
            // Each knows only what the one before it has left in the memory file.
            let mut ring = rings.ring(place).unwrap().unwrap();
            let batch = rings.read(&mut ring, 1000).unwrap();
            let mut items = batch.items();
            // Half of the blocks are read to their middle only.
            for _ in 0..3_000 {
                match items.next_item().unwrap() {
                    Some(rings::Item::Record(record)) => numbers.push(record.number),
                    Some(item) => panic!("{item:?}"),
                    None => break,
                }
            }
            if batch.is_empty() {
                break;
            }
            let cursor = items.cursor();
            rings.release(&mut ring, cursor);
        }
        assert_eq!(numbers, (0..RECORDS).collect::<Vec<_>>());
    }
    app.ends();
}

#[test]
fn fields_of_all_types_come_through_and_long_ones_are_cut() {
    let (_folder, door, path) = door();
    let mut app = App::start("types", &path, &[("TRACEPOINTS_RING_BYTES", "1000000")]);
    let (_connection, rings) = comes(&door);
    app.hears("written");
    let read = drain_all(&rings).remove(0);
    assert_eq!((&*read.records[0].name, read.records[0].values.len()), ("none", 0));
    let text = |text: &str| KeptValue::Text(text.into(), text.len() as u32);
    let whole = [255, 65_535, u64::from(u32::MAX), u64::MAX, 7].map(KeptValue::Unsigned);
    let signed = [-1, -2, i64::from(i32::MIN), i64::MIN, -5].map(KeptValue::Signed);
    let mut expected: Vec<KeptValue> = whole.into_iter().chain(signed).collect();
    expected.extend([KeptValue::Float(0.5), KeptValue::Float(-1e300), KeptValue::Bool(true)]);
    expected.extend([text("ä\0b"), text("owned"), KeptValue::Bytes(vec![1, 2, 255], 3), text("")]);
    expected.push(KeptValue::Text("ä".repeat(4096).into(), 10_000));
    expected.push(text("12345678"));
    assert_eq!(read.records[1].values, expected);
    app.ends();
}

#[test]
fn a_full_ring_drops_and_says_how_many_and_goes_on_when_it_was_read() {
    Language::ALL.into_iter().for_each(check_full);
}

fn check_full(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("full", &path, &[("TRACEPOINTS_RING_BYTES", "1")]);
    let (_connection, rings) = comes(&door);
    app.hears("written");
    let mut ring = rings.ring(0).unwrap().unwrap();
    let first = drain(&rings, &mut ring, 1 << 20);
    let kept = first.records.len() as u64;
    assert_eq!(kept, 8 * (2048 / 40), "of 40 bytes, in eight blocks");
    assert!((0..).zip(&first.records).all(|(number, record)| record.tick() == number));
    let mut counts = [0; 8];
    counts[DropReason::Full as usize] = 2_000 - kept;
    counts[DropReason::TooLong as usize] = 1;
    assert_eq!(rings.dropped_in(&ring), counts, "counted at once");
    assert_eq!(first.dropped, [0; 8], "told before the next record");
    app.go_on();
    app.hears("written");
    let second = drain(&rings, &mut ring, 1 << 20);
    let numbers: Vec<u64> = second.records.iter().map(|record| record.tick()).collect();
    assert_eq!(numbers, (2_000..2_010).collect::<Vec<_>>());
    assert_eq!((second.dropped, rings.dropped_in(&ring)), (counts, counts));
    app.ends();
}

#[test]
fn the_longest_record_is_whole_and_a_longer_one_is_counted_where_a_block_would_take_it() {
    let (_folder, door, path) = door();
    for language in Language::ALL {
        let mut app = language.start("longest", &path, &[("TRACEPOINTS_RING_BYTES", "16777216")]);
        let (_connection, rings) = comes(&door);
        app.hears("written");
        let mut ring = rings.ring(0).unwrap().unwrap();
        let records = drain(&rings, &mut ring, 1 << 30).records;
        let lens: Vec<_> = records.iter().map(|it| (&*it.name, it.values.len())).collect();
        let (longest, too_long) = match language {
            Language::Rust => (&[("longest", 64), ("longest", 64)][..], 2),
            Language::C | Language::Cxx => (&[("longest", 1 + (65_533 - 3) / 2)][..], 1),
        };
        assert_eq!(lens, [&[("tick", 3)], longest, &[("tick", 3)]].concat());
        assert_eq!(rings.dropped_in(&ring)[DropReason::TooLong as usize], too_long);
        app.ends();
    }
}

#[test]
fn a_process_that_ends_at_once_leaves_its_records_to_who_comes_to_the_door_later() {
    let (_folder, door, path) = door();
    for language in Language::ALL {
        let apps: Vec<_> = (0..20).map(|_| language.start("brief", &path, &[])).collect();
        apps.into_iter().for_each(crate::peer::App::ends_by_itself);
        for _ in 0..20 {
            let connection = door.accept().unwrap().unwrap();
            let rings = rings::Rings::open(connection.memory_file().unwrap().unwrap()).unwrap();
            assert!(connection.is_over());
            let [read] = &drain_all(&rings)[..] else { panic!() };
            assert_eq!((&*read.records[0].name, read.records[0].unsigned(0)), ("brief", 7));
        }
    }
}

#[test]
fn a_flight_recorder_keeps_the_newest_records_and_the_others_are_counted() {
    Language::ALL.into_iter().for_each(check_flight_recorder);
}

fn check_flight_recorder(language: Language) {
    let (_folder, door, path) = door();
    let variables = [("TRACEPOINTS_RING_BYTES", "1"), ("TRACEPOINTS_MODE", "overwrite")];
    let mut app = language.start("full", &path, &variables);
    let (_connection, rings) = comes(&door);
    assert_eq!(rings.about().mode, Mode::Overwrite);
    app.hears("written");
    let mut ring = rings.ring(0).unwrap().unwrap();
    let read = drain(&rings, &mut ring, 1 << 20);
    let numbers: Vec<u64> = read.records.iter().map(|record| record.tick()).collect();
    assert_eq!(numbers, (read.overwritten..2_000).collect::<Vec<_>>());
    assert!(numbers.len() * 40 > 14 << 10, "{}", numbers.len());
    app.go_on();
    app.hears("written");
    let read = drain(&rings, &mut ring, 1 << 20);
    assert_eq!((read.records.len(), read.overwritten), (10, 0));
    assert_eq!(read.dropped[DropReason::TooLong as usize], 1);
    app.ends();
}

#[test]
fn places_of_threads_that_ended_are_given_to_others_once_they_were_read() {
    Language::ALL.into_iter().for_each(check_many);
}

fn check_many(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("many", &path, &[("TRACEPOINTS_RINGS", "4")]);
    let (_connection, rings) = comes(&door);
    app.hears("half");
    app.go_on();
    app.hears("written");
    // Nobody gave a place back: four threads had one.
    let read = drain_all(&rings);
    let threads: Vec<u64> = read.iter().map(|read| read.records[0].unsigned(0)).collect();
    assert_eq!(threads, [0, 1, 2, 3]);
    assert_eq!(rings.dropped()[DropReason::NoRing as usize], 46);
    app.ends();

    let mut app = language.start("many", &path, &[("TRACEPOINTS_RINGS", "4")]);
    let (_connection, rings) = comes(&door);
    let mut threads = Vec::new();
    let mut generations = 0;
    let (mut is_half, mut is_done) = (false, false);
    wait_for("the end", || {
        for place in 0..rings.touched() {
            let Some(mut ring) = rings.ring(place).unwrap() else { continue };
            let read = drain(&rings, &mut ring, 1 << 20);
            threads.extend(read.records.iter().map(|record| record.unsigned(0)));
            if read.is_last {
                assert!(rings.free(&ring));
                generations = generations.max(ring.generation);
            }
        }
        let dropped = rings.dropped()[DropReason::NoRing as usize];
        if !is_half && threads.len() as u64 + dropped == 25 {
            is_half = true;
            app.hears("half");
            app.go_on();
        }
        is_done |= threads.len() as u64 + dropped == 50;
        is_done.then_some(())
    });
    app.hears("written");
    // Places are looked at in their own order.
    threads.sort_unstable();
    assert!(threads.is_sorted_by(|a, b| a < b) && generations > 1, "{threads:?} {generations}");
    app.ends();
}

#[test]
fn a_forked_child_has_rings_of_its_own() {
    Language::ALL.into_iter().for_each(check_fork);
}

fn check_fork(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("fork", &path, &[]);
    let (first, parent) = comes(&door);
    let (second, child) = comes(&door);
    app.hears("child");
    let (parent, child) = match first.pid == app.child.id() {
        true => (parent, child),
        false => (child, parent),
    };
    assert_ne!(first.pid, second.pid);
    let numbers = |rings: &rings::Rings, name: &str| {
        let read = drain_all(rings);
        assert_eq!(read.len(), 1);
        assert!(read[0].records.iter().all(|record| record.name == name));
        read[0].records.iter().map(|record| record.unsigned(0)).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&child, "child"), (0..10).collect::<Vec<_>>());
    let mut seen = Vec::new();
    wait_for("what the parent wrote after the fork", || {
        seen.extend(numbers(&parent, "parent"));
        (seen == [1, 2]).then_some(())
    });
    app.ends();
}

/// A lock that its holder left behind would have a child wait for ever.
#[test]
fn children_that_are_forked_while_rules_are_told_are_told_rules_too() {
    Language::ALL.into_iter().for_each(check_fork_storm);
}

fn check_fork_storm(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("fork_storm", &path, &[("TRACEPOINTS_RINGS", "4")]);
    let parents_pid = app.child.id();
    std::thread::scope(|scope| {
        let has_ended = scope.spawn(|| app.hears("all have left"));
        // Long to compare, and of no call site.
        let none: String = (0..256).map(|number| format!("-storm.site.{number}\n")).collect();
        let mut parent = None;
        let mut children = Vec::new();
        while !has_ended.is_finished() {
            if let Some(connection) = door.accept().unwrap() {
                wait_for("its file", || connection.memory_file().unwrap());
                match connection.pid == parents_pid {
                    true => parent = Some(connection),
                    false => children.push((connection, false)),
                }
            }
            // Who does not take them now is told when all have come round.
            if let Some(parent) = &parent {
                parent.tell_rules(&none).ok();
            }
            for (child, is_told) in children.iter_mut().filter(|(_, is_told)| !is_told) {
                *is_told = child.tell_rules("-storm.off\n").is_ok();
            }
            children.retain(|(child, _)| !child.is_over());
        }
        assert!(parent.is_some());
    });
    app.ends();
}

#[test]
fn records_of_signal_handlers_are_whole_or_counted() {
    Language::ALL.into_iter().for_each(check_signals);
}

fn check_signals(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("signals", &path, &[("TRACEPOINTS_RING_BYTES", "67108864")]);
    let (_connection, rings) = comes(&door);
    let said = app.hears("wrote ");
    let written: u64 = said.split(' ').map(|word| word.parse::<u64>().unwrap()).sum();
    let read = drain_all(&rings).remove(0);
    let (mut ticks, mut signals) = (Vec::new(), Vec::new());
    for record in &read.records {
        if record.name == "signal" {
            assert_eq!(record.unsigned(1), crate::app::mixed(record.unsigned(0)));
            signals.push(record.unsigned(0));
        } else {
            ticks.push(record.tick());
        }
    }
    assert!(ticks.is_sorted_by(|a, b| a < b) && signals.is_sorted_by(|a, b| a < b));
    let ring = rings.ring(0).unwrap().unwrap();
    let in_ring = rings.dropped_in(&ring);
    // Those that came while the ring was made are the process's.
    let dropped: u64 = in_ring.iter().chain(&rings.dropped()).sum();
    assert_eq!(ticks.len() as u64 + signals.len() as u64 + dropped, written);
    assert!(!signals.is_empty() && in_ring[DropReason::Reentrant as usize] > 0, "{in_ring:?}");
    app.ends();
}

#[test]
fn call_sites_are_turned_off_and_on_while_the_application_runs() {
    Language::ALL.into_iter().for_each(check_rules);
}

fn check_rules(language: Language) {
    let (_folder, door, path) = door();
    let mut app = language.start("rules", &path, &[]);
    let (connection, rings) = comes(&door);
    app.hears("written");
    connection.tell_rules("-sql.*\n+sql.begin\n").unwrap();
    app.go_on();
    app.hears("written");
    let read = drain_all(&rings).remove(0);
    let names: Vec<&str> = read.records.iter().map(|record| &*record.name).collect();
    assert_eq!(names, ["sql.first", "sql.query", "http", "http", "sql.begin"]);
    app.ends();
}

#[test]
fn a_door_takes_the_place_of_one_that_was_left_and_not_of_one_that_stands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    let taken = Door::bind(&path, false).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    std::mem::forget(door.accept().unwrap());
    drop(door);
    assert!(!path.exists());
    std::os::unix::net::UnixListener::bind(&path).map(drop).unwrap();
    assert!(path.exists(), "left by somebody");
    let door = Door::bind(&path, false);
    assert!(door.is_ok(), "{door:?}");
    assert_eq!(RingState::from_code(9), None);
}
