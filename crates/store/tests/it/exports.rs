//! What is exported of samples, whenever the process ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use export::{Cursor, KeepCursor as _, Source as _};
use model::samples::{Batch, Frame, Labels, Sample, Series};
use model::{Nanos, Timestamp};
use objects::Io;
use rules::{BookLimits, Draft, Functions, Value};
use store::block::Selection;
use store::cells::Grid;
use store::lake::name::Tenant;
use store::lake::{Exporting, Lake, Settings};
use wire::remote_write::is_stale;

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const DELTA: &str =
    "pyroscope_exported_metrics_functions_self_process_cpu_cpu_nanoseconds_cpu_nanoseconds";
const SECOND_NS: i64 = 1_000_000_000;
/// Some day's midnight.
const DAY_S: i64 = 20_000 * 86_400;

const fn at(ms: i64) -> Timestamp {
    Timestamp::from_nanos(DAY_S * SECOND_NS + ms * 1_000_000)
}

fn open(folder: &Path, now: Timestamp) -> Lake {
    let settings = Settings { export: Some(Exporting::default()), ..Settings::default() };
    Lake::open(folder.to_str().unwrap(), &Io::start().unwrap(), settings, now).unwrap()
}

fn tenant() -> Tenant {
    Tenant::new("one").unwrap()
}

/// A rule for all functions of a name that begins so.
fn make_rule(lake: &Lake, prefix: &str, now: Timestamp) {
    let made = lake.change_rules(&tenant(), now, |book, next_ms| {
        book.upsert(draft(prefix), None, next_ms, &BookLimits::default()).map(|_version| ())
    });
    made.unwrap().unwrap();
}

fn draft(prefix: &str) -> Draft {
    Draft {
        id: prefix.to_owned(),
        profile_type: CPU.to_owned(),
        functions: Some(Functions::Prefix(prefix.to_owned())),
        value: Value::Own,
        ..Draft::default()
    }
}

fn samples(function: &str, at: Timestamp, value: i64, profile: u128) -> Batch {
    let mut batch = Batch::new();
    let function = batch.text(function);
    let frame = batch.frame(Frame { function, ..Frame::default() });
    let stack = batch.stack(&[frame]);
    let labels = Labels::new([("service_name", "shop")]);
    let series = batch.series(Series { profile_type: CPU.parse().unwrap(), labels });
    batch.add(Sample { series, stack, at, value, profile, span_id: 0, trace_id: 0 });
    batch
}

/// A receiver that takes everything, and checks that each series' samples come once and in order.
#[derive(Default)]
struct Receiver {
    newest: BTreeMap<String, i64>,
    deltas: BTreeMap<String, i64>,
    counters: BTreeMap<String, f64>,
    stale: usize,
}

impl Receiver {
    /// Takes what waits, a few at a time. At the end it may be that the store does not know that it was taken.
    fn take(&mut self, lake: &Lake, is_told: bool) {
        let (mut cells, mut cursors) = lake.catalogue().receiver(&tenant(), "it").unwrap();
        let mut cursor: Cursor = cursors.load().unwrap().unwrap();
        loop {
            let found = cells.read(cursor.next, 7).unwrap();
            if found.is_empty() {
                break;
            }
            let again = cells.read(cursor.next, 7).unwrap();
            assert_eq!(found, again, "a cell never changes");
            if !is_told {
                break;
            }
            for cell in found {
                let series = cell.labels.to_string();
                let newest = self.newest.insert(series.clone(), cell.sample.time_ms);
                assert!(newest < Some(cell.sample.time_ms), "{series}: {newest:?}");
                if is_stale(cell.sample.value) {
                    self.stale += 1;
                } else if cell.labels.metric() == DELTA {
                    assert_eq!(cell.sample.value.fract().to_bits(), 0);
                    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
                    let value = cell.sample.value as i64;
                    let function = cell.labels.get("function").unwrap().to_owned();
                    *self.deltas.entry(function).or_default() += value;
                } else {
                    let function = cell.labels.get("function").unwrap().to_owned();
                    self.counters.insert(function, cell.sample.value);
                }
                cursor.next += 1;
                cursor.taken += 1;
            }
            cursors.save(&cursor).unwrap();
        }
        lake.catalogue().trim(&tenant(), &["it".to_owned()]).unwrap();
    }
}

/// The store's own answer, by function.
fn stored(lake: &Lake) -> BTreeMap<String, i64> {
    let batch = lake.select(&tenant(), &Selection::all()).unwrap();
    let mut sums = BTreeMap::new();
    for sample in batch.samples() {
        let frame = batch.frames_of(sample.stack).next().unwrap();
        let function = batch.text_of(batch.frame_of(frame).function).to_owned();
        *sums.entry(function).or_default() += sample.value;
    }
    sums
}

#[test]
fn what_is_exported_is_what_is_stored_whenever_the_process_ends() {
    for seed in 0..8 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut now_ms = 0_i64;
        let mut lake = open(folder.path(), at(now_ms));
        make_rule(&lake, "f", at(now_ms));
        let (mut receiver, mut profile) = (Receiver::default(), 0_u128);
        let mut unheard = Vec::new();
        // Nothing comes before the rule holds.
        now_ms += 15_000;
        lake.catalogue().receiver(&tenant(), "it").unwrap();
        for _ in 0..150 {
            // Clocks are set back at times.
            now_ms += dice.i64(-2_000..9_000);
            let now = at(now_ms);
            match dice.u8(..8) {
                0..=2 => {
                    profile += 1;
                    let taken = at(now_ms - dice.i64(0..3_000_000));
                    let function = format!("f{}", dice.u8(..5));
                    let pushed = samples(&function, taken, dice.i64(1..1_000_000), profile);
                    lake.push(&tenant(), &pushed).unwrap();
                    unheard.push(pushed);
                }
                3 => {
                    lake.flush(now);
                    // A client that did not hear that it was taken sends it again.
                    unheard.retain(|_| dice.bool());
                }
                4 => drop(lake.compact(now).unwrap()),
                5 => drop(lake.close(now).unwrap()),
                6 => receiver.take(&lake, dice.bool()),
                _ => {
                    drop(lake);
                    lake = open(folder.path(), now);
                    for pushed in unheard.drain(..) {
                        lake.push(&tenant(), &pushed).unwrap();
                    }
                }
            }
        }
        lake.flush(at(now_ms));
        // The store's clock is not behind the latest that was told.
        let end = at(now_ms + 3_600_000);
        lake.compact(end).unwrap();
        lake.close(end).unwrap();
        receiver.take(&lake, true);
        assert_eq!(receiver.deltas, stored(&lake), "seed {seed}");
        let counters: BTreeMap<String, i64> = receiver
            .counters
            .iter()
            .map(|(function, total)| (function.clone(), total.to_string().parse().unwrap()))
            .collect();
        assert_eq!(counters, receiver.deltas, "seed {seed}");
        assert!(receiver.stale >= 2 * counters.len(), "all are idle at the end");
    }
}

#[test]
fn a_cell_waits_for_what_came_in_it_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    make_rule(&lake, "f", at(0));
    lake.push(&tenant(), &samples("f", at(0), 5, 1)).unwrap();
    lake.flush(at(15_500));
    lake.close(at(29_000)).unwrap();
    assert_eq!(lake.catalogue().exporting().unwrap(), [], "it is not counted");
    lake.compact(at(29_999)).unwrap();
    assert_eq!(lake.catalogue().exporting().unwrap(), [], "its cell goes on");
    lake.compact(at(30_000)).unwrap();
    let (mut cells, _) = lake.catalogue().receiver(&tenant(), "it").unwrap();
    assert_eq!(lake.close(at(30_000)).unwrap().cells, 2);
    let found = cells.read(0, 10).unwrap();
    let sample = found[0].sample;
    assert_eq!(
        (sample.value.to_bits(), sample.time_ms),
        (5_f64.to_bits(), at(30_000).nanos() / 1_000_000)
    );
    // A sample from an hour ago counts where it comes.
    lake.push(&tenant(), &samples("f", at(-3_000_000), 7, 2)).unwrap();
    lake.flush(at(31_000));
    lake.compact(at(45_000)).unwrap();
    lake.close(at(45_000)).unwrap();
    let sample = cells.read(2, 10).unwrap()[0].sample;
    assert_eq!(
        (sample.value.to_bits(), sample.time_ms),
        (7_f64.to_bits(), at(45_000).nanos() / 1_000_000)
    );
    assert_eq!(
        lake.expire(
            &store::lake::plan::Keep { age: Some(Nanos::new(0)), bytes: None }.into(),
            at(50_000)
        )
        .unwrap()
        .len(),
        2
    );
}

#[test]
fn what_waits_is_counted_by_the_rules_of_its_cell_however_often_they_changed_since() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    make_rule(&lake, "f", at(0));
    lake.push(&tenant(), &samples("f", at(0), 5, 1)).unwrap();
    lake.flush(at(16_000));
    // Nothing is merged for three hours.
    let hours = |hours: i64| at(hours * 3_600_000);
    let deleted =
        lake.change_rules(&tenant(), hours(1), |book, next_ms| book.delete("f", None, next_ms));
    deleted.unwrap().unwrap();
    make_rule(&lake, "g", hours(2));
    make_rule(&lake, "h", hours(3));
    let (mut cells, _) = lake.catalogue().receiver(&tenant(), "it").unwrap();
    lake.compact(hours(3)).unwrap();
    lake.close(hours(3)).unwrap();
    let found = cells.read(0, 10).unwrap();
    let delta = found.iter().find(|cell| cell.labels.metric() == DELTA).unwrap();
    assert_eq!(delta.labels.get("function"), Some("f"));
    // Once all is counted the version is forgotten.
    make_rule(&lake, "i", hours(4));
    let book = lake.catalogue().rules(&tenant()).unwrap();
    let cell_ms = at(15_000).nanos() / 1_000_000;
    assert_eq!(book.at(cell_ms).len(), 0);
    assert_eq!(book.at(hours(5).nanos() / 1_000_000).len(), 3);
}

#[test]
fn no_cell_is_counted_while_rules_for_it_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    let (begun, is_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let lake = &lake;
        scope.spawn(move || {
            let made = lake.change_rules(&tenant(), at(1_000), |book, next_ms| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                book.upsert(draft("f"), None, next_ms, &BookLimits::default()).map(|_version| ())
            });
            made.unwrap().unwrap();
        });
        is_begun.recv().unwrap();
        lake.push(&tenant(), &samples("f", at(15_000), 5, 1)).unwrap();
        lake.flush(at(16_000));
        let merging = scope.spawn(|| lake.compact(at(30_000)).unwrap());
        // It would be done by then.
        std::thread::park_timeout(Duration::from_millis(300));
        let waits = !merging.is_finished();
        // Before anything may fail: the other thread waits for it.
        go_on.send(()).unwrap();
        assert_eq!(merging.join().unwrap().made, 1);
        assert!(waits, "it was merged by rules that were about to change");
    });
    assert_eq!(lake.catalogue().exporting().unwrap(), [tenant()]);
}

#[test]
fn rules_that_are_refused_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    let refused = lake.change_rules(&tenant(), at(0), |book, next_ms| {
        book.upsert(draft("f"), None, next_ms, &BookLimits::default()).unwrap();
        Err::<(), _>("no")
    });
    assert_eq!(refused.unwrap(), Err("no"));
    let mut book = lake.catalogue().rules(&tenant()).unwrap();
    assert_eq!(book.generation(), 0);
    // Whoever writes by generation is refused when it is another one.
    make_rule(&lake, "f", at(0));
    book.upsert(draft("g"), None, 0, &BookLimits::default()).unwrap();
    let refused = lake.catalogue().put_rules(&tenant(), &book, 0).unwrap_err().to_string();
    assert!(refused.contains("generation"), "{refused}");
}

#[test]
fn a_receiver_begins_with_what_is_closed_after_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    make_rule(&lake, "f", at(0));
    let cell = |from_ms: i64, profile| {
        lake.push(&tenant(), &samples("f", at(from_ms), 5, profile)).unwrap();
        lake.flush(at(from_ms));
        lake.compact(at(from_ms + 15_000)).unwrap();
        lake.close(at(from_ms + 15_000)).unwrap();
    };
    let (mut first, _) = lake.catalogue().receiver(&tenant(), "first").unwrap();
    cell(15_000, 1);
    let (mut second, _) = lake.catalogue().receiver(&tenant(), "second").unwrap();
    cell(30_000, 2);
    assert_eq!((first.read(0, 10).unwrap().len(), second.read(0, 10).unwrap().len()), (4, 2));
    assert_eq!(first.read(2, 10).unwrap(), second.read(0, 10).unwrap());
    // One that is not asked any more keeps nothing.
    lake.catalogue().trim(&tenant(), &["second".to_owned()]).unwrap();
    let (mut again, _) = lake.catalogue().receiver(&tenant(), "first").unwrap();
    assert_eq!(again.read(0, 10).unwrap(), []);
    assert_eq!(second.read(0, 10).unwrap().len(), 2);
}

#[test]
fn the_largest_sums_and_longest_names_keep_nothing_from_going_on() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    make_rule(&lake, "f", at(0));
    let long = format!("f{}", "<u8, core::option::Option<".repeat(300));
    for (profile, function) in (1..).zip(["f", "f", long.as_str()]) {
        lake.push(&tenant(), &samples(function, at(15_000), i64::MAX, profile)).unwrap();
    }
    lake.flush(at(15_000));
    lake.compact(at(30_000)).unwrap();
    lake.catalogue().receiver(&tenant(), "it").unwrap();
    lake.close(at(30_000)).unwrap();
    lake.push(&tenant(), &samples("f", at(31_000), 7, 9)).unwrap();
    lake.flush(at(31_000));
    lake.compact(at(45_000)).unwrap();
    assert!(lake.close(at(45_000)).unwrap().cells > 0);
    let counter = lake.catalogue().known(&tenant()).unwrap().len();
    assert_eq!(counter, 2);
}

#[test]
fn sums_that_wait_in_cells_of_another_length_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    make_rule(&lake, "f", at(0));
    lake.catalogue().receiver(&tenant(), "it").unwrap();
    for (profile, ms) in (1..).zip([75_000, 90_000, 135_000]) {
        lake.push(&tenant(), &samples("f", at(ms), 5, profile)).unwrap();
        lake.flush(at(ms));
    }
    lake.compact(at(150_000)).unwrap();
    drop(lake);
    let settings = Settings {
        grid: Grid::new(60_000),
        export: Some(Exporting::default()),
        ..Settings::default()
    };
    let io = Io::start().unwrap();
    let lake = Lake::open(folder.path().to_str().unwrap(), &io, settings, at(151_000)).unwrap();
    lake.close(at(180_000)).unwrap();
    let mut receiver = Receiver::default();
    receiver.take(&lake, true);
    assert_eq!(receiver.deltas, BTreeMap::from([("f".to_owned(), 15)]));
}
