//! An agent that is killed at any moment.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent::{Agent, PacketName};
use profile::{Limits, Packet, ungzip};
use testkit::{Running, wait_for};

use crate::http::settings;
use crate::packets::packet;

/// Says to the feeder which folder is its own.
const FOLDER: &str = "THROUGHLINE_TEST_FEEDER";

/// Packets of one round.
const ROUND: u64 = 1_000;

fn packet_of(number: u64) -> Packet {
    packet(number, &["a", "b", "c"])
}

fn agent(folder: &Path) -> Agent {
    let targets = ["kept", "also"].map(|name| format!("file:{}", folder.join(name).display()));
    Agent::start(settings(&folder.join("spool"), &targets)).unwrap()
}

/// Feeds an agent, and says which packets are written, until it is killed. Does nothing when it is run as a test.
#[test]
fn feeder() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (folder, first) = folder.split_once('=').unwrap();
    let first: u64 = first.parse().unwrap();
    let agent = agent(Path::new(folder));
    for sealed in 1..ROUND {
        agent.offer(packet_of(first + sealed));
        wait_for("the writer", || (agent.status().targets[0].1.sealed >= sealed).then_some(()));
        println!("written {}", first + sealed);
    }
}

#[test]
fn what_was_written_arrives_whatever_is_killed_when() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = fastrand::Rng::with_seed(7);
    let mut written = BTreeSet::new();
    for round in 0..12 {
        let mut feeder = Command::new(std::env::current_exe().unwrap());
        feeder.args(["--exact", "kill::feeder", "--nocapture"]).stdout(Stdio::piped());
        feeder.env(FOLDER, format!("{}={}", folder.path().display(), round * ROUND));
        let mut feeder = Running::start(&mut feeder, "the feeder", &folder.path().join("log"));
        let lines = BufReader::new(feeder.child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let numbers = lines.by_ref().filter_map(|line| {
            line.split_once("written ").and_then(|(_, number)| number.parse::<u64>().ok())
        });
        written.extend(numbers.take(chance.usize(1..12)));
        // Some time later, in the middle of something.
        for _ in 0..chance.u32(0..40_000) {
            std::hint::black_box(&folder);
        }
        assert!(!feeder.end("KILL").success(), "{}", feeder.said());
    }
    let status = agent(folder.path()).stop(Duration::from_secs(60));
    assert!(status.targets.iter().all(|(_, counts)| counts.adds_up() && counts.waiting == 0));
    assert_eq!(fs::read_dir(folder.path().join("spool/incoming")).unwrap().count(), 0);
    assert!(written.len() >= 12, "{written:?}");
    for target in ["kept", "also"] {
        let mut arrived = BTreeSet::new();
        for file in fs::read_dir(folder.path().join(target)).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // One that was being written is written again.
            let name: PacketName = name.parse().unwrap_or_else(|_| panic!("torn: {name}"));
            let bytes = ungzip(&fs::read(&path).unwrap(), Limits::default()).unwrap();
            assert_eq!(profile::packet_id(&bytes).unwrap(), name.id);
            arrived.insert(name);
        }
        let lost: Vec<_> = written
            .iter()
            .filter(|number| !arrived.contains(&PacketName::of(&packet_of(**number))))
            .collect();
        assert!(lost.is_empty(), "{target}: {lost:?}");
    }
}
