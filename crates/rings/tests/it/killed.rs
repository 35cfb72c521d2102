//! Applications that are killed at any moment, and readers that end before they have told how far they came.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use rings::{Door, Item, Rings};
use tracepoint::DropReason;

use crate::app::{THREADS, WITNESS};
use crate::peer::{Language, comes};

/// How often an application is killed; `RINGS_KILLS` says otherwise.
const KILLS: u64 = 60;

/// What was read of one thread's records.
#[derive(Debug, Default)]
struct Thread {
    /// As its records say.
    thread: Option<u64>,
    /// The number after the last record's.
    next: u64,
    records: u64,
    dropped: u64,
}

/// Reads what is there and checks it; a reader that `forgets` does not release it, and finds it again.
fn read(rings: &Rings, threads: &mut BTreeMap<u32, Thread>, forgets: bool) {
    for place in 0..rings.touched() {
        let Some(mut ring) = rings.ring(place).unwrap() else { continue };
        let batch = rings.read(&mut ring, 1 << 20).unwrap();
        let mut items = batch.items();
        let mut seen = Thread::default();
        let known = threads.entry(place).or_default();
        let mut next = known.next;
        let mut untold = 0;
        while let Some(item) = items.next_item().unwrap() {
            match item {
                Item::Record(record) => {
                    let values: Vec<_> = record.values().collect();
                    let unsigned = |at: usize| match values[at] {
                        rings::Value::Unsigned(value) => value,
                        other => panic!("{other:?}"),
                    };
                    let (thread, number, mixed) = (unsigned(0), unsigned(1), unsigned(2));
                    assert_eq!(*known.thread.get_or_insert(thread), thread);
                    assert_eq!(mixed, crate::app::mixed(number), "torn");
                    assert_eq!(number, next + untold, "lost, and not told");
                    (next, untold) = (number + 1, 0);
                    seen.records += 1;
                }
                Item::Dropped { counts, .. } => {
                    assert_eq!(counts.iter().sum::<u64>(), counts[DropReason::Full as usize]);
                    untold += counts.iter().sum::<u64>();
                    seen.dropped += untold;
                }
            }
        }
        assert_eq!(untold, 0, "a loss is told in front of a record");
        let cursor = items.cursor();
        if !forgets {
            known.next = next;
            known.records += seen.records;
            known.dropped += seen.dropped;
            rings.release(&mut ring, cursor);
        }
    }
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_it_published() {
    let kills = std::env::var("RINGS_KILLS").ok().and_then(|kills| kills.parse().ok());
    kill(Language::Rust, kills.unwrap_or(KILLS));
    kill(Language::C, kills.unwrap_or(KILLS / 2));
}

fn kill(language: Language, kills: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let witness = folder.path().join("witness");
    let door = Door::bind(&path, false).unwrap();
    let mut records = 0;
    for kill in 0..kills {
        std::fs::write(&witness, [0; 8 * THREADS as usize]).unwrap();
        let variables = [(WITNESS, witness.to_str().unwrap())];
        let mut app = language.start("killed", &path, &variables);
        let (_connection, rings) = comes(&door);
        let mut threads = BTreeMap::new();
        app.hears("begun");
        // Some are read while they write, some not at all; readers forget every third time.
        for round in 0..kill % 40 {
            read(&rings, &mut threads, round % 3 == 2);
        }
        app.kill();
        read(&rings, &mut threads, true);
        read(&rings, &mut threads, false);
        let told = std::fs::File::open(&witness).unwrap();
        for place in 0..rings.touched() {
            // Nothing was published in one that was being prepared.
            let Some(ring) = rings.ring(place).unwrap() else { continue };
            let thread = &threads[&place];
            let dropped = rings.dropped_in(&ring).iter().sum::<u64>();
            // Emitted is what was read and what was dropped; the last drops are in the counters only.
            let trailing = dropped - thread.dropped;
            assert_eq!(thread.next, thread.records + thread.dropped);
            records += thread.records;
            let emitted = thread.next + trailing;
            let Some(number) = thread.thread else { continue };
            let mut word = [0; 8];
            told.read_exact_at(&mut word, number * 8).unwrap();
            let told = u64::from_ne_bytes(word);
            // One that was published may not have been told, and never the other way round.
            assert!(told == emitted || told + 1 == emitted, "kill {kill}: {told}, {emitted}");
        }
    }
    assert!(records > kills * 100, "{records}");
}
