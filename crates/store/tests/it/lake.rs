//! A place of blocks, whose process may end at any moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use model::samples::{Batch, Frame, Labels, Sample, Series};
use model::{Nanos, Timestamp};
use objects::Io;
use store::Error;
use store::block::{Detail, Selection};
use store::lake::name::Tenant;
use store::lake::plan::Keep;
use store::lake::{Compacted, ENDED_STAY, Lake, Settings, VISITED};

const SECOND_NS: i64 = 1_000_000_000;
/// Some day's midnight.
const DAY_NS: i64 = 20_000 * 86_400 * SECOND_NS;

pub(crate) const fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos(DAY_NS + second * SECOND_NS)
}

fn open(folder: &Path, now: Timestamp) -> Lake {
    let io = Io::start().unwrap();
    Lake::open(folder.to_str().unwrap(), &io, Settings::default(), now).unwrap()
}

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

/// A sample of this function, second and value.
pub(crate) fn samples(function: &str, second: i64, value: i64, profile: u128) -> Batch {
    let mut batch = Batch::new();
    let function = batch.text(function);
    let frame = batch.frame(Frame { function, ..Frame::default() });
    let stack = batch.stack(&[frame]);
    let labels = Labels::new([("service_name", "shop")]);
    let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().unwrap();
    let series = batch.series(Series { profile_type, labels });
    batch.add(Sample { series, stack, at: at(second), value, profile, span_id: 0, trace_id: 0 });
    batch
}

pub(crate) fn blocks_in(folder: &Path) -> BTreeSet<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "parquet")).collect()
}

pub(crate) fn sum(lake: &Lake, tenant: &Tenant) -> i64 {
    let selection = Selection { detail: Detail::Totals, ..Selection::all() };
    let found = lake.select(tenant, &selection).unwrap();
    found.samples().iter().map(|sample| sample.value).sum()
}

#[test]
fn what_is_acknowledged_is_there_at_the_next_start_once_however_often_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (tenant("one"), tenant("other"));
    let lake = open(folder.path(), at(0));
    let first = lake.push(&one, &samples("f", 0, 10, 7)).unwrap();
    let again = lake.push(&one, &samples("f", 0, 10, 7)).unwrap();
    let of_other = lake.push(&other, &samples("f", 0, 3, 7)).unwrap();
    assert!(lake.is_pending());
    lake.flush(at(1));
    [first, again, of_other].iter().for_each(|ticket| ticket.wait().unwrap());
    // Stored, so nothing waits.
    lake.push(&one, &samples("f", 0, 10, 7)).unwrap().wait().unwrap();
    assert!(!lake.is_pending());
    assert_eq!((sum(&lake, &one), sum(&lake, &other)), (10, 3));
    let io = Io::start().unwrap();
    let url = folder.path().to_str().unwrap();
    let taken = Lake::open(url, &io, Settings::default(), at(1)).unwrap_err();
    assert!(matches!(taken, Error::Objects(objects::Error::Taken { .. })), "{taken}");
    // Not acknowledged.
    lake.push(&one, &samples("f", 1, 100, 8)).unwrap();
    drop(lake);

    let lake = open(folder.path(), at(2));
    assert_eq!((sum(&lake, &one), sum(&lake, &other)), (10, 3));
    lake.push(&one, &samples("f", 0, 10, 7)).unwrap().wait().unwrap();
    let ticket = lake.push(&one, &samples("f", 1, 100, 8)).unwrap();
    lake.flush(at(3));
    ticket.wait().unwrap();
    assert_eq!(sum(&lake, &one), 110);
    drop(lake);
    // After the time for retries it is another one.
    let late = at(7_000);
    let lake = open(folder.path(), late);
    lake.push(&one, &samples("f", 6_999, 10, 7)).unwrap();
    lake.flush(late);
    assert_eq!(sum(&lake, &one), 120);
}

/// 30 blocks of one minute, each with a sample.
fn thirty(folder: &Path) -> (Lake, Tenant) {
    let (lake, one) = (open(folder, at(0)), tenant("one"));
    for second in 0..30 {
        let (second, profile) = (2 * second, u128::try_from(second + 1).unwrap());
        lake.push(&one, &samples("f", second, second / 2 + 1, profile)).unwrap();
        lake.flush(at(second));
    }
    assert_eq!(lake.blocks().len(), 30);
    (lake, one)
}

#[test]
fn merged_blocks_take_the_place_of_others_whenever_the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, one) = thirty(folder.path());
    assert_eq!(lake.compact(at(58)).unwrap(), Compacted { made: 3, replaced: 23 });
    let names = || -> BTreeSet<_> { blocks_in(folder.path()) };
    let pushed = names();
    assert_eq!(lake.compact(at(75)).unwrap(), Compacted { made: 1, replaced: 7 });
    // Those who read by the catalogue may be in the middle of it.
    assert_eq!((names().len(), lake.blocks().len(), sum(&lake, &one)), (34, 4, 465));
    let swept = at(75).nanos() + i64::try_from(ENDED_STAY.get()).unwrap();
    drop(lake);
    // Ended before it had removed some of the blocks that were merged.
    fs::remove_file(pushed.first().unwrap()).unwrap();
    let lake = open(folder.path(), at(76));
    assert_eq!((lake.blocks().len(), sum(&lake, &one)), (4, 465));
    // These make one for ten minutes at that time, so that they stay a while longer.
    lake.compact(Timestamp::from_nanos(swept)).unwrap();
    assert_eq!((names().len(), lake.blocks().len(), sum(&lake, &one)), (5, 1, 465));
}

#[test]
fn a_merge_that_was_not_committed_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, one) = thirty(folder.path());
    drop(lake);
    let catalogue = fs::read(folder.path().join("catalogue.sqlite")).unwrap();
    let lake = open(folder.path(), at(74));
    lake.compact(at(75)).unwrap();
    let merged: BTreeSet<_> = lake.blocks().into_iter().collect();
    drop(lake);
    fs::write(folder.path().join("catalogue.sqlite"), catalogue).unwrap();
    let lake = open(folder.path(), at(76));
    assert_eq!((lake.blocks().len(), sum(&lake, &one)), (30, 465));
    assert_eq!(lake.compact(at(76)).unwrap(), Compacted { made: 4, replaced: 30 });
    assert_eq!((lake.blocks().into_iter().collect(), sum(&lake, &one)), (merged, 465));
}

#[test]
fn a_catalogue_that_is_lost_or_older_is_made_anew_of_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, one) = thirty(folder.path());
    drop(lake);
    let catalogue = folder.path().join("catalogue.sqlite");
    let older = fs::read(&catalogue).unwrap();
    let lake = open(folder.path(), at(74));
    lake.compact(at(75)).unwrap();
    lake.push(&one, &samples("g", 80, 1_000, 99)).unwrap();
    lake.flush(at(80));
    drop(lake);
    // Lost, while the files of merged blocks are there, too.
    fs::remove_file(&catalogue).unwrap();
    let lake = open(folder.path(), at(81));
    assert_eq!((lake.blocks().len(), sum(&lake, &one)), (5, 1_465));
    assert_eq!(blocks_in(folder.path()).len(), 5);
    // A client that did not hear an answer.
    lake.push(&one, &samples("g", 80, 1_000, 99)).unwrap();
    lake.push(&one, &samples("f", 0, 1, 1)).unwrap();
    assert!(!lake.is_pending());
    drop(lake);
    // From before the merges, when the files of what was merged are gone.
    fs::write(&catalogue, older).unwrap();
    let lake = open(folder.path(), at(82));
    assert_eq!((lake.blocks().len(), sum(&lake, &one)), (5, 1_465));
    drop(lake);
    fs::remove_file(blocks_in(folder.path()).first().unwrap()).unwrap();
    let io = Io::start().unwrap();
    let url = folder.path().to_str().unwrap();
    let missing = Lake::open(url, &io, Settings::default(), at(83)).unwrap_err();
    assert!(matches!(missing, Error::Missing { count: 1, .. }), "{missing}");
    let settings = Settings { forgets_missing: true, ..Settings::default() };
    let lake = Lake::open(url, &io, settings, at(83)).unwrap();
    assert_eq!(lake.blocks().len(), 4);
}

#[test]
fn whoever_opened_the_catalogue_last_has_it() {
    let [folder, catalogue] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let url = store::catalogue::url_of_file(&catalogue.path().join("c.sqlite"));
    let settings = || Settings { catalogue: Some(url.clone()), ..Settings::default() };
    let io = Io::start().unwrap();
    // A bucket is not locked: two processes can have it.
    let place = folder.path().join("blocks");
    let lake = Lake::open(place.to_str().unwrap(), &io, settings(), at(0)).unwrap();
    let one = tenant("one");
    fs::remove_file(place.join(".lock")).unwrap();
    let later = Lake::open(place.to_str().unwrap(), &io, settings(), at(1)).unwrap();
    let ticket = lake.push(&one, &samples("f", 0, 10, 7)).unwrap();
    lake.flush(at(2));
    let refused = ticket.wait().unwrap_err();
    assert_eq!(refused.to_string(), "another process took the catalogue over");
    assert_eq!(blocks_in(&place).len(), 1, "whoever has the catalogue may have taken it in");
    let ticket = later.push(&one, &samples("f", 0, 10, 7)).unwrap();
    later.flush(at(2));
    ticket.wait().unwrap();
    assert_eq!(sum(&later, &one), 10);
    // What was refused came again, so that its file is nobody's.
    drop((lake, later));
    let again = Lake::open(place.to_str().unwrap(), &io, settings(), at(3)).unwrap();
    assert_eq!((sum(&again, &one), blocks_in(&place).len()), (10, 1));
}

#[test]
fn questions_are_answered_the_same_while_blocks_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let one = tenant("one");
    let lake = Arc::new(open(folder.path(), at(0)));
    for second in 0..120 {
        lake.push(&one, &samples("f", 10 * second, 1, 0)).unwrap();
        lake.flush(at(10 * second));
    }
    let asking = {
        let (lake, one) = (Arc::clone(&lake), one.clone());
        thread::spawn(move || (0..60).map(|_| sum(&lake, &one)).collect::<BTreeSet<_>>())
    };
    let compacted = lake.compact(at(100_000)).unwrap();
    assert_eq!(asking.join().unwrap(), BTreeSet::from([120]));
    assert_eq!((compacted.made, compacted.replaced), (80, 120));
    // Up to one block for each day.
    while lake.compact(at(100_000)).unwrap() != Compacted::default() {}
    assert_eq!((lake.blocks().len(), sum(&lake, &one)), (1, 120));
    let keep = Keep { age: Some(Nanos::new(10_000 * 1_000_000_000)), bytes: None };
    assert_eq!(lake.expire(&keep.into(), at(5_000)).unwrap(), []);
    assert_eq!(lake.expire(&keep.into(), at(100_000)).unwrap().len(), 1);
    assert_eq!(sum(&lake, &one), 0);
    lake.compact(at(101_000)).unwrap();
    assert_eq!(blocks_in(folder.path()).len(), 0);
}

#[test]
fn what_cannot_be_written_is_refused_and_may_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("blocks");
    let one = tenant("one");
    let catalogue = Some(store::catalogue::url_of_file(&folder.path().join("c.sqlite")));
    let settings = Settings { catalogue, ..Settings::default() };
    let io = Io::start().unwrap();
    let lake = Lake::open(place.to_str().unwrap(), &io, settings, at(0)).unwrap();
    fs::remove_dir_all(&place).unwrap();
    fs::write(&place, b"in the way").unwrap();
    let ticket = lake.push(&one, &samples("f", 0, 10, 7)).unwrap();
    lake.flush(at(0));
    let refused = ticket.wait().unwrap_err();
    assert!(matches!(*refused, Error::Objects(_)), "{refused}");
    fs::remove_file(&place).unwrap();
    let ticket = lake.push(&one, &samples("f", 0, 10, 7)).unwrap();
    lake.flush(at(0));
    ticket.wait().unwrap();
    assert_eq!(sum(&lake, &one), 10);
}

#[test]
fn more_than_may_wait_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let io = Io::start().unwrap();
    let settings = Settings { pending_bytes: 1_000, ..Settings::default() };
    let lake = Lake::open(folder.path().to_str().unwrap(), &io, settings, at(0)).unwrap();
    let one = tenant("one");
    let pushed = |profile| lake.push(&one, &samples("f", 0, 1, profile));
    let taken = (1..100).take_while(|profile| pushed(*profile).is_ok()).count();
    assert!(matches!(pushed(200), Err(Error::Busy { .. })));
    assert!((1..50).contains(&taken), "{taken}");
    lake.flush(at(0));
    pushed(200).unwrap();
}

#[test]
fn a_block_that_was_changed_is_named_and_answers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let one = tenant("one");
    let lake = open(folder.path(), at(0));
    lake.push(&one, &samples("f", 0, 10, 7)).unwrap();
    lake.flush(at(0));
    drop(lake);
    let path = blocks_in(folder.path()).pop_first().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    fs::write(&path, bytes).unwrap();
    let io = Io::start().unwrap();
    let lake =
        Lake::open(folder.path().to_str().unwrap(), &io, Settings::default(), at(9_999)).unwrap();
    let refused = lake.select(&one, &Selection::all()).unwrap_err().to_string();
    assert!(refused.contains(path.file_name().unwrap().to_str().unwrap()), "{refused}");
}

#[test]
fn a_block_that_was_changed_keeps_no_other_from_being_merged() {
    let folder = tempfile::tempdir().unwrap();
    let one = tenant("one");
    let lake = open(folder.path(), at(0));
    for second in [0, 1, 600, 601] {
        lake.push(&one, &samples("f", second, 10, 0)).unwrap();
        lake.flush(at(second));
    }
    drop(lake);
    let path = blocks_in(folder.path()).pop_first().unwrap();
    fs::write(&path, b"something else").unwrap();
    // Too late for any profile to come again, so that no block is read at the start.
    let now = at(50_000);
    let lake = open(folder.path(), now);
    assert!(matches!(lake.compact(now), Err(Error::Changed { .. })));
    assert_eq!(lake.damaged().len(), 1);
    lake.compact(now).unwrap();
    let levels: Vec<u8> = lake.blocks().iter().map(|name| name.level).collect();
    assert_eq!(levels, [0, 1, 1]);
    let keep = Keep { age: Some(Nanos::new(1_000_000_000)), bytes: None };
    assert_eq!(lake.expire(&keep.into(), now).unwrap().len(), 3);
}

/// A million and a half samples come in batches of which none has much more than a million, each sample once.
#[test]
fn questions_see_each_sample_once_in_batches_of_some_size() {
    let folder = tempfile::tempdir().unwrap();
    let one = tenant("one");
    let lake = open(folder.path(), at(0));
    let mut batch = Batch::new();
    let function = batch.text("f");
    let frame = batch.frame(Frame { function, ..Frame::default() });
    let stack = batch.stack(&[frame]);
    let services = 15;
    for service in 0..services {
        let labels = Labels::new([("service_name", format!("s{service:02}"))]);
        let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().unwrap();
        let series = batch.series(Series { profile_type, labels });
        for value in 1..=100_000 {
            let at = Timestamp::from_nanos(at(0).nanos() + value);
            let (profile, span_id, trace_id) = (u128::try_from(service).unwrap() + 1, 0, 0);
            batch.add(Sample { series, stack, at, value, profile, span_id, trace_id });
        }
    }
    lake.push(&one, &batch).unwrap();
    drop(batch);
    lake.flush(at(1));
    lake.push(&one, &samples("g", 0, 7, 99)).unwrap();
    lake.flush(at(2));
    let (mut sizes, mut sum, mut seen) = (Vec::new(), 0, BTreeSet::new());
    let visited = lake.visit(&one, &Selection::all(), |batch| {
        sizes.push(batch.samples().len());
        for sample in batch.samples() {
            sum += sample.value;
            seen.insert((batch.series_of(sample.series).clone(), sample.at, sample.value));
        }
    });
    visited.unwrap();
    assert_eq!(sum, services * 100_000 * 100_001 / 2 + 7);
    assert_eq!(seen.len(), sizes.iter().sum::<usize>());
    assert_eq!(seen.len(), 1_500_001);
    assert!(sizes.len() == 2 && sizes[0] < VISITED + 200_000, "{sizes:?}");
    // Sums of rows.
    let totals = Selection { detail: Detail::Totals, ..Selection::all() };
    let mut sum = 0;
    lake.visit(&one, &totals, |batch| {
        sum += batch.samples().iter().map(|it| it.value).sum::<i64>()
    })
    .unwrap();
    assert_eq!(sum, services * 100_000 * 100_001 / 2 + 7);
}
