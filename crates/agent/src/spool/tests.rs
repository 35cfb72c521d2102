use std::collections::BTreeSet;
use std::fs;

use profile::{
    Builder, Frame, FrameKind, Line, Names, Process, Sample, SampleKind, Status, Window,
};

use super::*;

const WINDOW_NS: u64 = 5_000_000_000;

/// A packet of the window with this number.
fn packet(number: u64, samples: u64, losses: &BTreeMap<String, u64>) -> Packet {
    let begin_unix_ns = 1_000_000_000_000_000_000 + number * WINDOW_NS;
    let window = Window { begin_unix_ns, duration_ns: WINDOW_NS };
    let mut builder = Builder::new(window, SampleKind::OnCpu { period_ns: 10_000_000 });
    let process = builder.process(&Process {
        pid: 7,
        start_boot_ns: 1,
        executable_name: "app",
        executable_path: "/app",
        attributes: &[],
    });
    let line = Line { function: "main", ..Line::default() };
    let frame = builder.frame(&Frame {
        kind: FrameKind::Native,
        mapping: None,
        address: 0x1000 + number,
        names: Names::Known(&[line]),
    });
    for at in 0..samples {
        let sample = Sample {
            process: process.unwrap(),
            tid: 7,
            thread_name: "app",
            cpu: 0,
            at_unix_ns: begin_unix_ns + at,
            value: 1,
            link: None,
            frames: &[frame.unwrap()],
            status: Status::Root,
        };
        builder.add(&sample).unwrap();
    }
    losses.iter().for_each(|(class, samples)| builder.lost(class, *samples));
    builder.finish()
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn no_losses() -> BTreeMap<String, u64> {
    BTreeMap::new()
}

/// The losses that a next packet is to tell.
fn told(spool: &Spool) -> BTreeMap<String, u64> {
    let mut told = BTreeMap::new();
    spool.tell(|loss, samples| {
        assert_eq!(loss.kind, crate::Kind::Cpu);
        told.insert(loss.class.clone(), samples);
    });
    told
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_restart_goes_on_with_what_waits_and_removes_what_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (target("http://a:1"), target("http://b:1"));
    let first = packet(1, 3, &no_losses());
    let half = packet(2, 3, &no_losses());
    {
        let spool = Spool::open(folder.path(), Bounds::default(), &[&a, &b]).unwrap();
        spool.store(&first);
        let loan = spool.lend(0, None).unwrap();
        spool.delivered(&loan, 0);
        let again = Spool::open(folder.path(), Bounds::default(), &[&a]);
        assert!(matches!(again, Err(crate::Error::Taken { .. })));
    }
    // As left by a kill between the two queues, one while writing, and by somebody else.
    let incoming = folder.path().join("incoming");
    let name = PacketName::of(&half).to_string();
    fs::write(incoming.join(&name), half.gzip()).unwrap();
    fs::hard_link(
        incoming.join(&name),
        folder.path().join("queues").join(a.folder_name()).join(&name),
    )
    .unwrap();
    fs::write(incoming.join(format!("{name}.part")), b"torn").unwrap();
    fs::write(incoming.join("notes.txt"), b"mine").unwrap();

    let spool = Spool::open(folder.path(), Bounds::default(), &[&a, &b]).unwrap();
    assert_eq!(files(&incoming), ["notes.txt"]);
    let counts = spool.levels().counts;
    assert_eq!((counts[0].found, counts[1].found), (1, 2));
    let loan = spool.lend(1, None).unwrap();
    assert_eq!(loan.name, PacketName::of(&first));
    assert_eq!(fs::read(spool.folders.path(1, &loan.name)).unwrap(), first.gzip());
    spool.delivered(&loan, 0);
    assert_eq!(spool.lend(1, None).map(|loan| loan.name), Some(PacketName::of(&half)));
    assert_eq!(spool.lend(1, None).map(|loan| loan.name), None);
}

#[test]
fn the_oldest_goes_first_and_never_what_is_being_sent() {
    let folder = tempfile::tempdir().unwrap();
    let a = target("http://a:1");
    let length = packet(1, 10, &no_losses()).gzip().len() as u64;
    let bounds = Bounds { bytes: 3 * length + length / 2, ..Bounds::default() };
    let spool = Spool::open(folder.path(), bounds, &[&a]).unwrap();
    let names: Vec<_> = (1..=5)
        .map(|number| {
            let packet = packet(number, 10, &no_losses());
            spool.store(&packet);
            if number == 1 {
                assert_eq!(spool.lend(0, None).unwrap().name, PacketName::of(&packet));
            }
            PacketName::of(&packet)
        })
        .collect();
    let left = files(&folder.path().join("queues").join(a.folder_name()));
    let expected: Vec<_> = [0, 3, 4].iter().map(|&at| names[at].to_string()).collect();
    assert_eq!(left, expected);
    assert_eq!(told(&spool), BTreeMap::from([("undelivered.size".to_owned(), 20)]));
    // Told once.
    assert_eq!(told(&spool), no_losses());
    let counts = spool.levels().counts[0].clone();
    assert_eq!(counts.dropped, BTreeMap::from([(Reason::Size, 2)]));
    assert!(counts.adds_up(), "{counts:?}");
}

#[test]
fn what_is_too_old_goes_also_from_a_queue_that_nobody_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (target("http://a:1"), target("http://b:1"));
    let bounds = Bounds { age: Duration::from_secs(12), ..Bounds::default() };
    {
        let spool = Spool::open(folder.path(), bounds, &[&a]).unwrap();
        spool.store(&packet(1, 4, &no_losses()));
        spool.store(&packet(2, 4, &no_losses()));
    }
    let spool = Spool::open(folder.path(), bounds, &[&b]).unwrap();
    assert_eq!(spool.levels().packets, 2);
    spool.store(&packet(4, 4, &no_losses()));
    assert_eq!(spool.levels().packets, 2);
    assert_eq!(files(&folder.path().join("queues").join(a.folder_name())).len(), 1);
    // b has missed nothing.
    assert_eq!(told(&spool), no_losses());
}

#[test]
fn memory_holds_for_a_while_when_the_disk_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (target("http://a:1"), target("http://b:1"));
    let length = packet(1, 10, &no_losses()).gzip().len() as u64;
    let bounds = Bounds { memory: 2 * length + length / 2, ..Bounds::default() };
    let spool = Spool::open(folder.path(), bounds, &[&a, &b]).unwrap();
    let incoming = folder.path().join("incoming");
    fs::remove_dir(&incoming).unwrap();
    fs::write(&incoming, b"no folder").unwrap();
    for number in 1..=4 {
        spool.store(&packet(number, 10, &no_losses()));
    }
    let levels = spool.levels();
    assert_eq!((levels.packets, levels.bytes), (2, 0));
    assert!((1..=bounds.memory).contains(&levels.memory), "{levels:?}");
    let losses = ["undelivered.memory.a:1", "undelivered.memory.b:1"];
    assert_eq!(told(&spool), losses.map(|class| (class.to_owned(), 20)).into());
    let loan = spool.lend(0, None).unwrap();
    assert!(loan.memory.is_some());

    // The disk is back: what was in memory is written with the next packet.
    fs::remove_file(&incoming).unwrap();
    fs::create_dir(&incoming).unwrap();
    spool.store(&packet(5, 10, &no_losses()));
    assert_eq!((spool.levels().packets, spool.levels().memory), (3, 0));
    spool.delivered(&loan, 0);
    for (queue, left) in [(a, 2), (b, 3)] {
        assert_eq!(files(&folder.path().join("queues").join(queue.folder_name())).len(), left);
    }
    assert!(spool.levels().counts.iter().all(Counts::adds_up));
}

#[test]
fn a_packet_of_the_future_does_not_make_others_old() {
    let folder = tempfile::tempdir().unwrap();
    let a = target("http://a:1");
    let bounds = Bounds { age: Duration::from_secs(60), ..Bounds::default() };
    {
        let spool = Spool::open(folder.path(), bounds, &[&a]).unwrap();
        spool.store(&packet(1_000_000, 1, &no_losses()));
    }
    let spool = Spool::open(folder.path(), bounds, &[&a]).unwrap();
    spool.store(&packet(1, 1, &no_losses()));
    spool.store(&packet(2, 1, &no_losses()));
    assert_eq!(spool.levels().packets, 3);
    spool.store(&packet(30, 1, &no_losses()));
    assert_eq!(spool.levels().counts[0].dropped, BTreeMap::from([(Reason::Age, 2)]));
}

/// A target that takes, refuses and fails by chance, a spool that is too small and is opened anew: each sample of the sampler is
/// delivered, told to be lost, or still there; once.
#[test]
fn the_ledger_adds_up_to_the_sample() {
    let mut chance = fastrand::Rng::with_seed(20);
    let folder = tempfile::tempdir().unwrap();
    let a = target("http://a:1");
    let bounds = Bounds { bytes: 4_000, age: Duration::from_secs(60), ..Bounds::default() };
    let mut spool = Spool::open(folder.path(), bounds, &[&a]).unwrap();
    let (mut emitted, mut delivered, mut told_lost) = (0, 0, 0);
    let mut ids = BTreeSet::new();
    let take = |spool: &Spool, loan: &Loan| {
        let bytes = fs::read(spool.folders.path(0, &loan.name)).unwrap();
        (loan.name.samples, told_in_gzip(&bytes).values().sum::<u64>())
    };
    let mut after = None;
    for number in 0..200 {
        let samples = chance.u64(1..30);
        emitted += samples;
        spool.store(&packet(number, samples, &told(&spool)));
        for _ in 0..chance.u32(0..3) {
            let Some(loan) = spool.lend(0, after.as_ref()) else { break };
            let (samples, lost) = take(&spool, &loan);
            after = None;
            match chance.u32(0..4) {
                0 => {
                    spool.give_back(&loan, true);
                    after = Some(loan.name);
                }
                1 => {
                    let bytes = fs::read(spool.folders.path(0, &loan.name)).unwrap();
                    spool.dropped(&loan, Reason::Refused, &bytes);
                }
                _ => {
                    delivered += samples;
                    told_lost += lost;
                    assert!(ids.insert(loan.name.id), "twice: {}", loan.name);
                    spool.delivered(&loan, 0);
                }
            }
        }
        assert!(spool.levels().bytes <= bounds.bytes);
        assert!(spool.levels().counts[0].adds_up(), "{:?}", spool.levels());
        if chance.u32(0..20) == 0 {
            // Also in the middle of telling losses, in a packet that never comes.
            told(&spool);
            drop(spool);
            spool = Spool::open(folder.path(), bounds, &[&a]).unwrap();
        }
    }
    let dropped = spool.levels().counts[0].dropped.clone();
    assert!(dropped.contains_key(&Reason::Size) && dropped.contains_key(&Reason::Refused));
    let (mut waiting, mut untold) = (0, told(&spool).values().sum::<u64>());
    while let Some(loan) = spool.lend(0, None) {
        let (samples, lost) = take(&spool, &loan);
        waiting += samples;
        untold += lost;
    }
    assert!(told_lost > 0 && waiting > 0);
    assert_eq!(emitted, delivered + told_lost + waiting + untold);
}
