//! Whole sessions against the laws of the feed: producers, connections that delay, double and lose, a disk that fills up, and
//! viewers, all driven by one seed. The same seed gives the same log.
//!
//! ```text
//! tracer.rs ─▶ packets, entries, beacons ─▶ two connections ─▶ relay.rs: Merge ─▶ Feed ─▶ viewer.rs: merge in time
//!                                                                disk.rs: files ───────────┘
//! ```
//! Checked of every run:
//! - each viewer gets every packet that was released since it began, once and in order, but those counted as missed or
//!   withheld, whether it reads them from memory or from index files;
//! - what it gets is written, and lies where it is said to;
//! - no viewer's time goes back, neither of a stream nor of all streams merged as babeltrace2 does it;
//! - no packet comes before the metadata it needs; the class of a stream never changes;
//! - with producers that keep their promises nothing is withheld, but a packet that took longer to be sent than any before, in
//!   a session without live timer;
//! - when all has come, every viewer has it and is told so, and on the way none waits for a stream of which nothing is
//!   missing;
//! - memory stays within its bounds, whatever viewers do, and all of it is given back.
//!
//! A rule can be broken on purpose ([`Mutant`]); that a law then fails is a test of the laws.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a run ends at the first thing that is not as it should be"
)]

mod disk;
mod relay;
mod tracer;
mod viewer;

use std::collections::VecDeque;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::live::{
    AddStream, CreateSession, Name, PacketIndex, RelativePath, RelaySessionId, StreamHandle,
    ViewedTraceId,
};

use self::disk::Disk;
use self::relay::Sink;
use self::tracer::Source;
use self::viewer::Viewer;
use super::{Catalogue, Feed, lock};
use crate::config::Limits;
use crate::counters::Counters;

/// Cycles of the trace clock, nanoseconds, in a step of the simulation.
const STEP: u64 = 100_000_000;
/// Steps between two looks of the live timer or the switch timer.
const PERIOD: u64 = 20;
/// The longest delay of a connection, in steps.
const MOST_DELAY: u64 = 30;
/// How much later than the packets that need them metadata are sent in sessions without live timer, in steps.
const METADATA_DELAY: u64 = 5;
/// For sessions without live timer: as long as metadata may take.
const GRACE: Duration = Duration::from_millis((MOST_DELAY + METADATA_DELAY) * STEP / 1_000_000);
const CLASS: u64 = 3;
const METADATA: StreamHandle = StreamHandle::new(1000);
const TRACE: ViewedTraceId = ViewedTraceId::new(1);

/// A rule that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Beacons hold although packets that they speak of are on their way.
    HastyBeacons,
    /// Two packets change places.
    OutOfOrder,
    /// A packet is shown before its entry is written.
    ShownUnwritten,
    /// A viewer is given a packet again where memory begins.
    TwiceAtTheSeam,
    /// A viewer is not given a packet where memory begins.
    NoneAtTheSeam,
    /// Nobody is told that packets went to the next chunk.
    SecretMoves,
    /// Nobody is told that a trace file is overwritten.
    SecretOverwriting,
    /// Metadata follow what they describe.
    LateMetadata,
    /// A stream changes its class.
    OtherClass,
    /// No beacon arrives.
    NoBeacons,
    /// A stream is closed while packets are on their way.
    HastyEnd,
}

impl Mutant {
    /// Each of them.
    pub const ALL: [Self; 11] = [
        Self::HastyBeacons,
        Self::OutOfOrder,
        Self::ShownUnwritten,
        Self::TwiceAtTheSeam,
        Self::NoneAtTheSeam,
        Self::SecretMoves,
        Self::SecretOverwriting,
        Self::LateMetadata,
        Self::OtherClass,
        Self::NoBeacons,
        Self::HastyEnd,
    ];
}

/// A law did not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found}")]
pub struct Broken {
    /// What was found.
    pub found: String,
    /// What happened until then.
    pub log: String,
}

/// Simulates the session of a seed; gives its log.
///
/// # Errors
/// [`Broken`] when a law did not hold. It is a panic caught: the process's panic hook is called before.
pub fn run(seed: u64, mutant: Option<Mutant>) -> Result<String, Broken> {
    let mut run = Run::new(seed, mutant);
    match std::panic::catch_unwind(AssertUnwindSafe(|| run.run())) {
        Ok(()) => Ok(run.log),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Broken { found: text.unwrap_or_default(), log: run.log })
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit.max(1)
    }

    fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }

    /// One in so many; 0 = none.
    fn once_in(&mut self, limit: u64) -> bool {
        limit > 0 && self.one_in(limit)
    }
}

/// What a run is like; drawn from its seed. Rates are one in so many, 0 = none.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not")]
struct World {
    is_live: bool,
    /// Halves of packets that are lost.
    loss: u64,
    /// Messages that come twice.
    doubled: u64,
    /// Some packets begin before a time that a beacon named.
    lies: bool,
    rotates: bool,
    clears: bool,
    expires: bool,
    /// The disk is full now and then.
    fills: bool,
    /// Viewers stop asking for good.
    viewers_die: bool,
    /// Packets of a trace file, and how many files there may be.
    ring: Option<(u64, u64)>,
    /// Packets of a stream in memory.
    kept: usize,
    streams: u64,
    viewers: u64,
    steps: u64,
}

impl World {
    fn draw(random: &mut Random) -> Self {
        Self {
            is_live: !random.one_in(3),
            loss: if random.one_in(3) { 5 + random.below(20) } else { 0 },
            doubled: if random.one_in(3) { 5 + random.below(20) } else { 0 },
            lies: random.one_in(6),
            rotates: random.one_in(2),
            clears: random.one_in(4),
            expires: random.one_in(4),
            fills: random.one_in(5),
            viewers_die: random.one_in(4),
            ring: random.one_in(4).then(|| (1 + random.below(4), 1 + random.below(5))),
            kept: if random.one_in(4) { 4096 } else { 1 + to_usize(random.below(8)) },
            streams: 1 + random.below(4),
            viewers: 1 + random.below(4),
            steps: 200 + random.below(800),
        }
    }

    /// Whether packets are gone without a fault of anybody.
    const fn lets_go(&self) -> bool {
        self.clears || self.expires || self.ring.is_some()
    }
}

/// A message on its way on a connection; arrives when it is due and all before it have arrived.
#[derive(Debug, Clone, Copy)]
enum Message {
    Packet(usize, u64),
    Entry(usize, PacketIndex),
    Beacon(usize, PacketIndex),
    Metadata,
    Closed(usize),
}

#[derive(Debug, Default)]
struct Wire(VecDeque<(u64, Message)>);

impl Wire {
    fn send(&mut self, now: u64, random: &mut Random, message: Message) {
        let due = now + if random.one_in(4) { random.below(MOST_DELAY) } else { 0 };
        let due = due.max(self.0.back().map_or(0, |(due, _)| *due));
        self.0.push_back((due, message));
    }

    fn arrived(&mut self, now: u64) -> Option<Message> {
        self.0.pop_front_if(|(due, _)| *due <= now).map(|(_, message)| message)
    }
}

struct Run {
    world: World,
    mutant: Option<Mutant>,
    random: Random,
    start: Instant,
    now: u64,
    feed: Arc<Feed>,
    catalogue: Catalogue,
    counters: Counters,
    file: Arc<File>,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    control: Wire,
    data: Wire,
    viewers: Vec<Viewer>,
    disk: Disk,
    /// The chunk that is written, and those that are archived.
    chunk: u64,
    archived: VecDeque<u64>,
    /// Metadata documents there are; a packet needs as many as its entry's `events_discarded` says.
    documents: u64,
    /// When documents that are late are sent.
    owed: VecDeque<u64>,
    /// The longest that a packet took to be sent.
    span: u64,
    log: String,
}

impl Run {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut random = Random(seed);
        let world = World::draw(&mut random);
        let limits = Limits {
            viewed_packets_per_stream: world.kept,
            untimed_grace: GRACE,
            ..Limits::default()
        };
        let catalogue = Catalogue::new(&limits);
        let request = CreateSession {
            session_name: Some(Name::new("s").unwrap()),
            hostname: Some(Name::new("h").unwrap()),
            live_timer_us: if world.is_live { 20_000 } else { 0 },
            snapshot: false,
            identity: None,
        };
        let owner = RelaySessionId::new(1);
        let feed = catalogue.open(owner, &request, Vec::new(), &limits);
        let file = Arc::new(File::open("/dev/null").unwrap());
        let stream = |channel: String| AddStream {
            channel: Name::new(channel).unwrap(),
            path: RelativePath::new("ust").unwrap(),
            tracefile: None,
            chunk: None,
        };
        feed.add(owner, METADATA, &stream("metadata".to_owned()), || TRACE);
        feed.metadata_begins(METADATA, &file);
        let handles = (0..world.streams).map(StreamHandle::new);
        let sinks: Vec<Sink> = handles.map(Sink::new).collect();
        for sink in &sinks {
            feed.add(owner, sink.handle, &stream(format!("ch_{}", sink.handle)), || TRACE);
        }
        feed.publish(owner);
        feed.chunk_is_at(disk::chunk_id(0), &disk::folder(0));
        let sources = (0..world.streams).map(|_| Source::new(&mut random)).collect();
        let viewers = (0..world.viewers).map(|_| Viewer::new(&world, &mut random)).collect();
        Self {
            world,
            mutant,
            random,
            start: Instant::now(),
            now: 1,
            feed,
            catalogue,
            counters: Counters::default(),
            file,
            sources,
            sinks,
            control: Wire::default(),
            data: Wire::default(),
            viewers,
            disk: Disk::default(),
            chunk: 0,
            archived: VecDeque::new(),
            documents: 0,
            owed: VecDeque::new(),
            span: 0,
            log: format!("{world:?}\n"),
        }
    }

    fn time(&self) -> Instant {
        self.start + Duration::from_nanos(self.now * STEP)
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn run(&mut self) {
        self.grow_metadata();
        while self.now < self.world.steps {
            self.trace();
            self.arrive();
            self.change_chunks();
            self.view();
            self.check_memory();
            self.now += 1;
        }
        self.end_of_tracing();
        for _ in 0..4 * MOST_DELAY {
            self.send_metadata();
            self.arrive();
            self.view();
            self.now += 1;
        }
        self.end_of_session();
        for _ in 0..self.world.steps {
            self.view();
            self.now += 1;
        }
        self.check_end();
        self.check_given_back();
    }

    /// Whatever viewers do.
    fn check_memory(&self) {
        let state = lock(&self.feed.state);
        for sink in &self.sinks {
            let (packets, _) = state.packets(sink.handle).unwrap().len();
            assert!(packets <= self.world.kept, "{packets} packets in memory");
        }
    }

    /// Once nobody has the feed any more.
    fn check_given_back(&mut self) {
        let other = Catalogue::new(&Limits::default());
        let request = CreateSession {
            session_name: None,
            hostname: None,
            live_timer_us: 0,
            snapshot: false,
            identity: None,
        };
        let none = other.open(RelaySessionId::new(2), &request, Vec::new(), &Limits::default());
        drop(std::mem::replace(&mut self.feed, none));
        assert_eq!(self.catalogue.kept(), (0, 0), "memory is given back");
    }

    fn check_end(&self) {
        for (number, viewer) in self.viewers.iter().enumerate() {
            viewer.check_end(number, self);
        }
        if !self.world.lies {
            assert_eq!(self.counters.totals().promises_broken, 0, "promises broken");
        }
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_hold_for_every_seed() {
        for seed in 0..300 {
            if let Err(Broken { found, log }) = run(seed, None) {
                panic!("seed {seed}: {found}\n{log}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..20 {
            let (once, again) = (run(seed, None).unwrap(), run(seed, None).unwrap());
            assert!(once == again, "seed {seed}");
            assert!(once.lines().count() > 50, "something happens");
        }
    }

    #[test]
    fn a_rule_that_is_broken_breaks_a_law() {
        for mutant in Mutant::ALL {
            let broken = (0..400).find_map(|seed| run(seed, Some(mutant)).err());
            assert!(broken.is_some(), "{mutant:?} is not noticed");
        }
    }
}
