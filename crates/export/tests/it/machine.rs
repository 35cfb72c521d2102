//! The state machine against modelled receivers, with every misfortune, and killed between any two steps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use export::{
    Answer, Cell, Cursor, Limits, MAX_PARKED, Machine, Outcome, Parked, Post, Purpose, Reason, Step,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use wire::remote_write::{Labels, Metadata, NAME, Sample, Version, decode};

use crate::receiver::{Fate, Kind, Receiver};

/// The time of the first cells, and of the clock.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// Steps after which something must be wrong.
const MAX_STEPS: usize = 100_000;

const PROMETHEUS: Kind = Kind { speaks_v2: false, says_415: false };
const PROMETHEUS_3: Kind = Kind { speaks_v2: true, says_415: true };

fn labels(series: usize) -> Labels {
    let pairs = [(NAME.to_owned(), "m".to_owned()), ("s".to_owned(), series.to_string())];
    Labels::new(pairs).unwrap()
}

fn cell(series: usize, time_ms: i64, value: f64) -> Cell {
    let metadata = Arc::new(Metadata { help: "h".to_owned(), ..Metadata::default() });
    let sample = Sample { value, time_ms, start_ms: BEGIN_MS };
    Cell { labels: labels(series), sample, metadata: Some(metadata) }
}

/// For each time of a grid of 15 s, the series that have a value then.
fn grid(rows: &[Vec<usize>]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (row, series) in (0..).zip(rows) {
        for &series in series {
            let value = f64::from(u32::try_from(cells.len()).unwrap()) + 0.1;
            cells.push(cell(series, BEGIN_MS + row * 15_000, value));
        }
    }
    cells
}

/// A machine with all that it needs but time.
struct World {
    machine: Machine,
    cells: Vec<Cell>,
    /// Cells that are closed so far.
    closed: usize,
    durable: Option<Cursor>,
    limits: Limits,
    version: Version,
    receiver: Receiver,
    /// Bodies by what was to be sent: they never differ.
    bodies: HashMap<(u64, usize, Version), Vec<u8>>,
    posts: Vec<Post>,
    now_ms: i64,
}

impl World {
    fn new(kind: Kind, cells: Vec<Cell>, limits: Limits, version: Version) -> Self {
        Self {
            machine: Machine::new("http://r/", version, limits.clone(), None),
            closed: cells.len(),
            cells,
            durable: None,
            limits,
            version,
            receiver: Receiver::new(kind),
            bodies: HashMap::new(),
            posts: Vec::new(),
            now_ms: BEGIN_MS,
        }
    }

    /// A kill and a restart.
    fn restart(&mut self) {
        let (version, limits) = (self.version, self.limits.clone());
        self.machine = Machine::new("http://r/", version, limits, self.durable.clone());
    }

    /// Does a step; `false`: there is nothing to do.
    fn step(&mut self, fate: impl FnOnce(&Post) -> Fate) -> bool {
        self.now_ms += 10;
        match self.machine.next(self.now_ms) {
            Step::Read { from, most } => {
                let from = usize::try_from(from).unwrap();
                let end = self.closed.min(from + most);
                self.machine.has_read(self.cells[from..end].to_vec()).unwrap();
            }
            Step::Save => {
                self.durable = Some(self.machine.cursor().clone());
                self.machine.has_saved(self.now_ms);
            }
            Step::Post(post) => {
                if post.purpose == Purpose::Cells {
                    self.check(&post);
                }
                let outcome = self.receiver.take(&post, fate(&post));
                self.posts.push(post);
                self.machine.answered(&outcome, self.now_ms, 0.5);
            }
            Step::Wait(wait) => self.now_ms += i64::try_from(wait.as_millis()).unwrap(),
            Step::Idle => return false,
        }
        true
    }

    /// What is being sent is what was made durable, and the same as ever.
    fn check(&mut self, post: &Post) {
        let durable = self.durable.as_ref().unwrap();
        let intent = durable.intent.unwrap();
        assert_eq!((durable.next, intent.version), (self.machine.cursor().next, post.version));
        let key = (durable.next, intent.cells, intent.version);
        let before = self.bodies.entry(key).or_insert_with(|| post.body.to_vec());
        assert_eq!(*before, post.body, "other bytes for {key:?}");
    }

    fn run(&mut self, mut fate: impl FnMut(&Post) -> Fate) {
        for _ in 0..MAX_STEPS {
            if !self.step(&mut fate) {
                return;
            }
        }
        panic!("no end: {:?}", self.machine);
    }

    /// The law: each cell is stored with its value, or lost and counted; nothing else is stored.
    fn check_law(&self, lost: &BTreeMap<Reason, u64>) {
        let mut expected: BTreeMap<String, BTreeMap<i64, u64>> = BTreeMap::new();
        for Cell { labels, sample, .. } in &self.cells {
            let name = labels.to_string();
            if !self.receiver.refuses.contains(&name) && !self.receiver.fails_at.contains(&name) {
                let bits = sample.value.to_bits();
                expected.entry(name).or_default().insert(sample.time_ms, bits);
            }
        }
        let mut stored = self.receiver.stored.clone();
        stored.retain(|name, _| name != "throughline_remote_write_probe");
        assert_eq!(stored, expected);
        assert_eq!(self.receiver.surprises, Vec::<String>::new());
        let cursor = self.durable.clone().unwrap_or_default();
        assert_eq!(cursor, *self.machine.cursor(), "all is durable at the end");
        assert_eq!(cursor.lost, *lost);
        assert_eq!(cursor.next, self.cells.len() as u64);
        assert_eq!(cursor.taken + cursor.all_lost(), cursor.next);
    }

    fn count(&self, series: &[usize]) -> u64 {
        let names = series.iter().map(|it| labels(*it)).collect::<Vec<_>>();
        self.cells.iter().filter(|cell| names.contains(&cell.labels)).count() as u64
    }
}

fn limits(series: usize) -> Limits {
    Limits { series, ..Limits::default() }
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::CutBefore),
        2 => Just(Fate::CutAfter),
        1 => Just(Fate::Status(429)),
        1 => Just(Fate::Status(500)),
        1 => Just(Fate::Status(503)),
        1 => Just(Fate::Status(401)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn each_cell_is_stored_once_or_parked_with_words(
        rows in vec(btree_set(0_usize..12, 0..12), 1..8),
        refused in btree_set(0_usize..12, 0..3),
        failing in btree_set(0_usize..12, 0..2),
        kind in prop_oneof![
            Just(PROMETHEUS),
            Just(PROMETHEUS_3),
            Just(Kind { says_415: true, ..PROMETHEUS })
        ],
        first in prop_oneof![Just(Version::V1), Just(Version::V2)],
        most in 1_usize..30,
        fates in vec(any_fate(), 0..200),
        kills in btree_set(0_usize..400, 0..20),
        pieces in vec(1_usize..40, 0..10),
    ) {
        let rows: Vec<Vec<usize>> = rows.into_iter().map(|row| row.into_iter().collect()).collect();
        let mut world = World::new(kind, grid(&rows), limits(most), first);
        let name = |it: &usize| labels(*it).to_string();
        world.receiver.fails_at = failing.iter().map(name).collect();
        world.receiver.refuses = refused.difference(&failing).map(name).collect();
        let mut fates = fates.into_iter();
        let mut pieces = pieces.into_iter();
        world.closed = 0;
        // Of something that fails twice in a row and then works, it is not said that it works.
        let mut before = Fate::Answered;
        let mut fate = |_: &Post| {
            let next = match fates.next().unwrap_or(Fate::Answered) {
                Fate::Status(500) if before == Fate::Status(500) => Fate::Status(503),
                other => other,
            };
            before = next;
            next
        };
        for step in 0.. {
            prop_assert!(step < MAX_STEPS, "no end: {:?}", world.machine);
            if kills.contains(&step) {
                world.restart();
            }
            if !world.step(&mut fate) {
                if world.closed == world.cells.len() {
                    break;
                }
                let more = pieces.next().unwrap_or(usize::MAX);
                world.closed = world.closed.saturating_add(more).min(world.cells.len());
            }
        }
        let failing: Vec<usize> = failing.into_iter().collect();
        let refused: Vec<usize> = refused.into_iter().filter(|it| !failing.contains(it)).collect();
        let lost = [(Reason::Refused, world.count(&refused)), (Reason::Failed, world.count(&failing))];
        world.check_law(&lost.into_iter().filter(|(_, count)| *count > 0).collect());
        let cursor = world.machine.cursor();
        for series in refused.iter().chain(&failing).filter(|it| world.count(&[**it]) > 0) {
            let parked = cursor.parked.iter().find(|it| it.series == name(series)).unwrap();
            prop_assert_eq!(parked.cells, world.count(&[*series]));
            prop_assert!(parked.words.contains("status") && parked.is_alone);
        }
    }
}

#[test]
fn a_poisoned_series_is_found_in_few_requests_and_then_sent_alone() {
    let rows = vec![(0..1_000).collect::<Vec<_>>(); 2];
    let mut world = World::new(PROMETHEUS, grid(&rows), limits(2_000), Version::V1);
    world.receiver.refuses = [labels(617).to_string()].into();
    world.run(|_| Fate::Answered);
    world.check_law(&[(Reason::Refused, 2)].into());
    let cells = world.posts.iter().filter(|it| it.purpose == Purpose::Cells);
    let sizes: Vec<usize> =
        cells.map(|it| decode(it.version, &it.body).unwrap().series.len()).collect();
    assert!(sizes.len() <= 2 + 10 + 4, "{sizes:?}");
    assert_eq!(sizes[sizes.len() - 3..], [999, 1, 382], "{sizes:?}");
    let parked = Parked {
        series: "m{s=\"617\"}".to_owned(),
        time_ms: BEGIN_MS + 15_000,
        reason: Reason::Refused,
        words: "status 400: model".to_owned(),
        cells: 2,
        is_alone: true,
    };
    assert_eq!(world.machine.cursor().parked, [parked]);
}

#[test]
fn a_series_that_is_taken_again_goes_with_the_others_again() {
    let rows = vec![(0..4).collect::<Vec<_>>(); 3];
    let mut world = World::new(PROMETHEUS, grid(&rows), limits(100), Version::V1);
    world.receiver.refuses = [labels(1).to_string()].into();
    world.closed = 4;
    world.run(|_| Fate::Answered);
    world.receiver.refuses.clear();
    world.closed = 12;
    let before = world.posts.len();
    world.run(|_| Fate::Answered);
    let sizes = world.posts[before..].iter().map(|it| decode(it.version, &it.body).unwrap());
    assert_eq!(sizes.map(|it| it.series.len()).collect::<Vec<_>>(), [1, 1, 4, 2]);
    assert_eq!(world.machine.cursor().taken, 11);
    assert!(!world.machine.cursor().parked[0].is_alone);
}

#[test]
fn a_receiver_that_fails_at_everything_costs_no_cell() {
    let rows = vec![(0..4).collect::<Vec<_>>(); 2];
    let mut world = World::new(PROMETHEUS, grid(&rows), limits(100), Version::V1);
    let mut left = 50;
    let mut has_probed = false;
    world.run(|post| {
        has_probed |= post.purpose == Purpose::Probe;
        left -= i32::from(left > 0);
        if left > 0 { Fate::Status(500) } else { Fate::Answered }
    });
    assert!(has_probed);
    world.check_law(&BTreeMap::new());
}

#[test]
fn a_cell_is_not_lost_for_failures_of_those_beside_it() {
    let mut world = World::new(PROMETHEUS, grid(&[vec![0, 1]]), limits(100), Version::V1);
    world.receiver.fails_at = [labels(1).to_string()].into();
    let mut has_failed = false;
    world.run(|post| {
        let is_alone = decode(post.version, &post.body).unwrap().series.len() == 1;
        if post.purpose == Purpose::Cells && is_alone && !has_failed {
            has_failed = true;
            return Fate::Status(500);
        }
        Fate::Answered
    });
    assert!(has_failed);
    world.check_law(&[(Reason::Failed, 1)].into());
}

#[test]
fn what_was_being_sent_is_sent_as_it_was_whatever_has_changed_meanwhile() {
    let mut world = World::new(PROMETHEUS_3, grid(&[vec![0, 1, 2]]), limits(100), Version::V2);
    while !matches!(world.machine.next(BEGIN_MS), Step::Post(_)) {
        world.step(|_| Fate::Answered);
    }
    let before = world.machine.next(BEGIN_MS);
    world.limits = limits(1);
    world.version = Version::V1;
    world.restart();
    // The clock was set back, so that the cells are far ahead.
    world.now_ms = BEGIN_MS - 60 * 60_000;
    assert!(world.step(|_| Fate::Answered), "cells are read");
    assert_eq!(world.machine.next(world.now_ms), before);
    world.run(|_| Fate::Answered);
    world.check_law(&BTreeMap::new());
}

#[test]
fn what_a_receiver_speaks_is_remembered_for_it_alone() {
    let rows = vec![vec![0, 1]; 2];
    let mut world = World::new(PROMETHEUS, grid(&rows), limits(100), Version::V2);
    world.run(|_| Fate::Answered);
    world.check_law(&BTreeMap::new());
    let told: Vec<_> = world.posts.iter().map(|it| (it.version, it.purpose)).collect();
    let (v1, cells) = (Version::V1, Purpose::Cells);
    assert_eq!(told, [(Version::V2, cells), (v1, Purpose::Metadata), (v1, cells), (v1, cells)]);
    let cursor = world.durable.clone();
    let version = |url| Machine::new(url, Version::V2, Limits::default(), cursor.clone()).version();
    assert_eq!((version("http://r/"), version("http://other/")), (Version::V1, Version::V2));
}

#[test]
fn a_receiver_that_says_yes_and_writes_nothing_is_not_believed() {
    let mut world = World::new(PROMETHEUS_3, grid(&[vec![0]]), limits(100), Version::V2);
    let lie = Answer { status: 204, samples_written: Some(0), ..Answer::default() };
    while !matches!(world.machine.next(BEGIN_MS), Step::Post(_)) {
        world.step(|_| Fate::Answered);
    }
    world.machine.answered(&Outcome::Answered(lie), BEGIN_MS, 0.0);
    assert_eq!(world.machine.cursor().lost, [(Reason::Unwritten, 1)].into());
}

#[test]
fn cells_far_ahead_are_waited_for_and_old_ones_are_counted() {
    let minute = 60_000;
    let cells = vec![
        cell(0, BEGIN_MS, 1.0),
        cell(1, BEGIN_MS - 60 * minute, 2.0),
        cell(2, BEGIN_MS - 60 * minute - 1, 3.0),
        cell(3, BEGIN_MS + 20 * minute, 4.0),
        cell(4, BEGIN_MS + 365 * 24 * 60 * minute, 5.0),
    ];
    let mut world = World::new(PROMETHEUS, cells.clone(), limits(100), Version::V1);
    let mut sent_ms = 0;
    while world.step(|_| Fate::Answered) {
        if world.machine.cursor().taken == 3 && sent_ms == 0 {
            sent_ms = world.now_ms;
        }
    }
    assert!((10 * minute..11 * minute).contains(&(sent_ms - BEGIN_MS)), "{sent_ms}");
    let cursor = world.machine.cursor();
    assert_eq!(cursor.lost, [(Reason::Old, 1), (Reason::Ahead, 1)].into());
    assert_eq!((cursor.next, cursor.taken), (5, 3));

    let limits = Limits { is_backfill: true, ..limits(100) };
    let mut world = World::new(PROMETHEUS, cells[..3].to_vec(), limits, Version::V1);
    world.run(|_| Fate::Answered);
    world.check_law(&BTreeMap::new());
}

#[test]
fn a_receiver_that_refuses_everything_is_asked_a_bounded_number_of_times() {
    let rows = vec![(0..300).collect::<Vec<_>>(); 2];
    let mut world = World::new(PROMETHEUS_3, grid(&rows), limits(2_000), Version::V2);
    world.receiver.refuses = (0..300).map(|it| labels(it).to_string()).collect();
    world.run(|_| Fate::Answered);
    world.check_law(&[(Reason::Refused, 600)].into());
    assert_eq!(world.machine.cursor().parked.len(), MAX_PARKED);
    // At the most each cell alone, and the halves of which it was one.
    assert!(world.posts.len() < 600 * 10, "{}", world.posts.len());
}

#[test]
fn a_receiver_that_asks_for_time_gets_it() {
    let mut world = World::new(PROMETHEUS, grid(&[vec![0]]), limits(100), Version::V1);
    let said = |status, seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        Outcome::Answered(Answer { status, retry_after, ..Answer::default() })
    };
    let mut bodies = Vec::new();
    for (status, seconds) in [(429, 70), (503, 80), (500, 90)] {
        while !matches!(
            world.machine.next(BEGIN_MS),
            Step::Post(Post { purpose: Purpose::Cells, .. })
        ) {
            world.step(|_| Fate::Answered);
        }
        bodies.push(world.machine.next(BEGIN_MS));
        world.machine.answered(&said(status, seconds), BEGIN_MS, 1.0);
        assert_eq!(world.machine.next(BEGIN_MS), Step::Wait(Duration::from_secs(seconds)));
        assert_eq!(Some(&world.machine.next(BEGIN_MS)), bodies.last(), "the same again");
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
}

#[test]
fn what_metrics_are_is_told_again_after_a_while_to_receivers_of_1_0() {
    let row = vec![0, 1];
    let mut world = World::new(PROMETHEUS, grid(&vec![row; 41]), limits(2), Version::V1);
    world.closed = 0;
    for time in 0..41 {
        world.now_ms = BEGIN_MS + time * 15_000;
        world.closed += 2;
        world.run(|_| Fate::Answered);
    }
    world.check_law(&BTreeMap::new());
    let told = world.posts.iter().filter(|it| it.purpose == Purpose::Metadata);
    let told: Vec<_> = told.map(|it| decode(it.version, &it.body).unwrap().metadata).collect();
    assert_eq!(told.len(), 3, "at the begin, after 5 and after 10 minutes");
    assert!(told.iter().all(|it| it.len() == 1 && it[0].0 == "m" && it[0].1.help == "h"));
}

#[test]
fn requests_are_as_small_as_they_have_to_be() {
    let rows = vec![(0..500).collect::<Vec<_>>()];
    let limits = Limits { bytes: 1_000, ..limits(2_000) };
    let mut world = World::new(PROMETHEUS_3, grid(&rows), limits, Version::V2);
    world.run(|_| Fate::Answered);
    world.check_law(&BTreeMap::new());
    assert!(world.posts.len() > 3);
    assert!(world.posts.iter().all(|post| post.body.len() <= 1_000));
}

#[test]
fn a_source_that_lost_what_was_being_sent_is_told() {
    let mut world = World::new(PROMETHEUS, grid(&[vec![0, 1, 2]]), limits(100), Version::V1);
    while !matches!(world.machine.next(BEGIN_MS), Step::Post(_)) {
        world.step(|_| Fate::Answered);
    }
    world.restart();
    assert_eq!(world.machine.next(BEGIN_MS), Step::Read { from: 0, most: 3 });
    let error = world.machine.has_read(world.cells[..2].to_vec()).unwrap_err();
    assert!(matches!(error, export::Error::Shrunk { from: 0, intended: 3, found: 2 }), "{error}");
}
