//! Applications and recorders that are killed at any moment.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::process::{Process, WITNESS, WRITERS};
use crate::{ctf, lines, start, ticks};

/// How often a recorder is killed; `RECORDER_KILLS` says otherwise. An application is for every fourth of them.
const KILLS: u64 = 24;

#[test]
fn what_was_published_is_there_once_whoever_is_killed() {
    let kills = std::env::var("RECORDER_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = kills.unwrap_or(KILLS);
    let mut random = fastrand::Rng::with_seed(kills);
    for round in 0..kills.div_ceil(4) {
        let folder = tempfile::tempdir().unwrap();
        let witness = folder.path().join(WITNESS);
        std::fs::write(&witness, vec![0; usize::try_from(8 * WRITERS).unwrap()]).unwrap();
        let mut recorder = Process::start("recorder", folder.path());
        let app = Process::start("forever", folder.path());
        for _ in 0..4 {
            std::thread::park_timeout(Duration::from_micros(random.u64(0..150_000)));
            recorder.kill();
            recorder = Process::start("recorder", folder.path());
        }
        // It has the application's memory file, or none of it is left.
        let journal = folder.path().join("journal");
        let stored = || recorder::Ledger::read(&journal).map_or(0, |ledger| ledger.stored);
        let before = stored();
        while stored() <= before {
            std::thread::yield_now();
        }
        app.kill();
        recorder.ends();
        let ledger = recorder::Ledger::read(&journal).unwrap();
        assert!(ledger.adds_up(), "{ledger:?}");
        let [service] = ledger.services.values().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((service.processes, service.ended), (1, 1), "round {round}");
        let ticks = ticks(&lines(folder.path()));
        let told = std::fs::File::open(&witness).unwrap();
        let mut emitted = 0;
        for (writer, numbers) in &ticks {
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "twice, or out of order");
            let mut word = [0; 8];
            told.read_exact_at(&mut word, writer * 8).unwrap();
            let told = u64::from_ne_bytes(word);
            assert!(numbers.last().is_none_or(|last| *last <= told));
            emitted += told;
        }
        let written: usize = ticks.values().map(Vec::len).sum();
        assert_eq!(written as u64, service.stored, "round {round}");
        assert_eq!(ledger.drivers.len(), 2);
        assert!(ledger.drivers.values().all(|driver| driver.delivered == service.stored));
        let chunks = ctf::read(&folder.path().join("chunks"));
        assert_eq!(chunks.ticks(), ticks, "round {round}");
        assert_eq!(chunks.lost, service.dropped.values().sum::<u64>(), "round {round}");
        // A record that was published may not have been told, and never the other way round.
        let missing = service.emitted().checked_sub(emitted);
        assert!(missing.is_some_and(|it| it <= WRITERS), "round {round}: {missing:?} {ledger:?}");
    }
}

#[test]
fn the_ledger_of_a_folder_goes_on_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=3 {
        let recorder = start(folder.path());
        Process::start("spans", folder.path()).ends();
        let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
        let [service] = ledger.services.values().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((service.stored, service.ended), (round * 8, round));
        assert!(ledger.adds_up());
    }
    assert_eq!(lines(folder.path()).len(), 24);
}
