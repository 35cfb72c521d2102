//! What rules make of blocks afterwards.

use std::collections::BTreeMap;
use std::path::Path;

use export::Prefix;
use model::samples::{Batch, Frame, Labels, Sample, Series};
use model::{Nanos, Timestamp};
use objects::Io;
use rules::{BookLimits, Bounds, Draft, Functions, Rule, SeriesLimits, Value, sums};
use store::Error;
use store::backfill::{Filled, MAX_SUMS, Wanted, backfill};
use store::block::Selection;
use store::cells::Grid;
use store::lake::name::Tenant;
use store::lake::{Exporting, Lake, Reader, Settings};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SELF: &str =
    "pyroscope_exported_metrics_functions_self_process_cpu_cpu_nanoseconds_cpu_nanoseconds";
const SECOND_MS: i64 = 1_000;
/// Some day's midnight.
const DAY_MS: i64 = 20_000 * 86_400 * SECOND_MS;

const fn at(ms: i64) -> Timestamp {
    Timestamp::from_nanos((DAY_MS + ms) * 1_000_000)
}

fn tenant() -> Tenant {
    Tenant::new("one").unwrap()
}

fn open(folder: &Path, now: Timestamp) -> Lake {
    let settings = Settings {
        export: Some(Exporting::default()),
        retries: Nanos::new(1_000_000_000),
        ..Settings::default()
    };
    Lake::open(folder.to_str().unwrap(), &Io::start().unwrap(), settings, now).unwrap()
}

fn draft() -> Draft {
    Draft {
        id: "own".to_owned(),
        profile_type: CPU.to_owned(),
        functions: Some(Functions::Prefix("f".to_owned())),
        value: Value::Own,
        ..Draft::default()
    }
}

fn wanted(cells: std::ops::Range<i64>) -> Wanted {
    Wanted {
        tenant: tenant(),
        rules: vec![draft().try_into().unwrap()],
        prefix: Prefix::default(),
        limits: SeriesLimits::default(),
        known: [].into(),
        grid: Grid::default(),
        cells: DAY_MS + cells.start..DAY_MS + cells.end,
        live_ms: None,
        most_sums: MAX_SUMS,
    }
}

fn sample(batch: &mut Batch, function: &str, at: Timestamp, value: i64, profile: u128) {
    let function = batch.text(function);
    let frame = batch.frame(Frame { function, ..Frame::default() });
    let stack = batch.stack(&[frame]);
    let labels = Labels::new([("service_name", "shop")]);
    let series = batch.series(Series { profile_type: CPU.parse().unwrap(), labels });
    batch.add(Sample { series, stack, at, value, profile, span_id: 0, trace_id: 0 });
}

/// Samples by series and time in seconds.
type Said = BTreeMap<(String, i64), f64>;

fn run(place: &Path, wanted: &Wanted) -> Result<(Filled, Said), Error> {
    let reader = Reader::open(place.to_str().unwrap(), None, &Io::start().unwrap()).unwrap();
    let (mut text, folder) = (Vec::new(), tempfile::tempdir().unwrap());
    let filled = backfill(&reader, wanted, folder.path(), &mut text)?;
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut said = Said::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.rsplitn(3, ' ');
        let mut word = || words.next().unwrap();
        let (time, value, series) = (word(), word(), word());
        let key = (series.to_owned(), time.parse().unwrap());
        assert!(said.insert(key, value.parse().unwrap()).is_none(), "twice: {line}");
    }
    assert_eq!(filled.samples, said.len() as u64);
    Ok((filled, said))
}

/// What the deltas should be: of each sample that the lake has, the slow way.
fn expected(lake: &Lake, wanted: &Wanted) -> Said {
    let batch = lake.select(&tenant(), &Selection::all()).unwrap();
    let mut by_cell: BTreeMap<i64, Batch> = BTreeMap::new();
    for one in batch.samples() {
        let cell_ms = wanted.grid.cell_of(one.at);
        if wanted.cells.contains(&cell_ms) {
            let frame = batch.frames_of(one.stack).next().unwrap();
            let function = batch.text_of(batch.frame_of(frame).function).to_owned();
            let of_cell = by_cell.entry(cell_ms).or_default();
            sample(of_cell, &function, one.at, one.value, one.profile);
        }
    }
    let mut said = Said::new();
    for (cell_ms, batch) in by_cell {
        let made = sums(&wanted.rules, &wanted.prefix, &batch, &Bounds::default());
        for (labels, sum) in made.iter() {
            let end_s = wanted.grid.end_of(cell_ms) / 1_000;
            said.insert((labels.to_string(), end_s), rules::value(sum).0);
        }
    }
    said
}

fn deltas(said: &Said) -> Said {
    let is_delta = |series: &str| !series.starts_with(&format!("{SELF}_total"));
    said.iter()
        .filter(|((series, _), _)| is_delta(series))
        .map(|(key, it)| (key.clone(), *it))
        .collect()
}

/// Three hours of pushes with late ones among them, in blocks of several levels.
fn fill(lake: &Lake, dice: &mut fastrand::Rng) -> i64 {
    let mut now_ms = 0;
    let mut profile = 0;
    while now_ms < 3 * 3_600 * SECOND_MS {
        now_ms += dice.i64(1..120 * SECOND_MS);
        let mut batch = Batch::new();
        for _ in 0..dice.u8(1..6) {
            profile += 1;
            let taken = at(now_ms - dice.i64(0..3_000 * SECOND_MS));
            let function = format!("{}{}", dice.choice(["f", "g"]).unwrap(), dice.u8(..5));
            sample(&mut batch, &function, taken, dice.i64(1..1_000_000), profile);
        }
        lake.push(&tenant(), &batch).unwrap();
        lake.flush(at(now_ms));
        if dice.u8(..4) == 0 {
            lake.compact(at(now_ms)).unwrap();
        }
    }
    now_ms
}

#[test]
fn sums_are_those_of_the_samples_of_each_cell_in_whatever_blocks_they_are() {
    for seed in 0..2 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let folder = tempfile::tempdir().unwrap();
        let lake = open(folder.path(), at(0));
        let end_ms = fill(&lake, &mut dice);
        let levels: std::collections::BTreeSet<u8> =
            lake.blocks().iter().map(|block| block.level).collect();
        assert!(levels.len() > 2, "{levels:?}");
        let all = wanted(-3_600 * SECOND_MS..7 * 3_600 * SECOND_MS);
        let (filled, said) = run(folder.path(), &all).unwrap();
        assert_eq!(deltas(&said), expected(&lake, &all));
        assert_eq!((filled.series, filled.blocks), (5, lake.blocks().len()));
        // Nor does it matter how much fits into memory.
        let few = Wanted { most_sums: dice.usize(20..200), ..all.clone() };
        assert_eq!(run(folder.path(), &few).unwrap(), (filled, said.clone()));
        // Each counter ends with the sum of its series.
        for ((series, _), last) in
            said.iter().filter(|((series, _), _)| series.starts_with(&format!("{SELF}_total")))
        {
            let delta = series.replace("_total", "");
            let added = |until: i64| -> f64 {
                let own = said.iter().filter(|((it, at), _)| *it == delta && *at <= until);
                own.map(|(_, value)| value).sum()
            };
            let newest = said.iter().rfind(|((it, _), _)| it == series).unwrap();
            assert_eq!(added(newest.0.1).to_bits(), newest.1.to_bits());
            assert!(*last <= *newest.1);
        }
        // Neighbouring stretches share nothing and miss nothing.
        let middle_ms = 15 * SECOND_MS * dice.i64(0..end_ms / 15 / SECOND_MS);
        let halves = [-3_600 * SECOND_MS..middle_ms, middle_ms..7 * 3_600 * SECOND_MS];
        let [first, second] =
            halves.map(|cells| deltas(&run(folder.path(), &wanted(cells)).unwrap().1));
        assert_eq!(first.len() + second.len(), deltas(&said).len());
        assert_eq!(first.into_iter().chain(second).collect::<Said>(), deltas(&said));
        let none = run(folder.path(), &wanted(-7_200_000..-3_600_000)).unwrap();
        assert_eq!((none.0.series, none.1), (0, Said::new()));
    }
}

#[test]
fn what_is_beyond_the_limits_is_in_the_overflow_in_each_cell() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    // The first by their labels come last.
    for (number, function) in (0..).zip(["f4", "f3", "f2", "f1"]) {
        let mut batch = Batch::new();
        let taken = at(i64::from(number) * 15 * SECOND_MS);
        sample(&mut batch, function, taken, 1 << number, 1 + number as u128);
        sample(&mut batch, "f4", taken, 100, 10 + number as u128);
        lake.push(&tenant(), &batch).unwrap();
        lake.flush(taken);
    }
    let own = |of_metric, known: &[&str]| {
        let limits = SeriesLimits { all: 100, of_metric };
        let labels = |function: &&str| {
            let made =
                export::series_labels(SELF, [("service_name", "shop")], &[("function", function)]);
            made.unwrap().labels
        };
        let known = known.iter().map(labels).collect();
        let (filled, said) =
            run(folder.path(), &Wanted { limits, known, ..wanted(0..60_000) }).unwrap();
        let sum = |of: &str| {
            let own = said
                .iter()
                .filter(|((series, _), _)| series.contains(of) && !series.contains("_total"));
            own.map(|(_, value)| *value).sum::<f64>()
        };
        let functions = ["\"f1\"", "\"f2\"", "\"f3\"", "\"f4\"", "overflow"].map(sum);
        (functions, filled.overflow.into_values().sum::<i128>())
    };
    assert_eq!(own(4, &[]), ([8.0, 4.0, 2.0, 401.0, 0.0], 0));
    assert_eq!(own(2, &[]), ([8.0, 4.0, 0.0, 0.0, 403.0], 403));
    assert_eq!(own(2, &["f4"]), ([8.0, 0.0, 0.0, 401.0, 6.0], 6));
    assert_eq!(own(0, &[]), ([0.0, 0.0, 0.0, 0.0, 415.0], 415));
}

/// Of what came since the rule is counted, nothing is backfilled, also when it was taken before.
#[test]
fn what_came_in_the_stores_own_cells_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    let push = |taken_ms: i64, now_ms: i64, value: i64| {
        let mut batch = Batch::new();
        sample(&mut batch, "f", at(taken_ms), value, u128::try_from(value).unwrap());
        lake.push(&tenant(), &batch).unwrap();
        lake.flush(at(now_ms));
    };
    push(1_000, 2_000, 1);
    push(20_000, 20_000, 10);
    let made = lake.change_rules(&tenant(), at(20_000), |book, next_ms| {
        book.upsert(draft(), None, next_ms, &BookLimits::default()).map(|made| made.from_ms)
    });
    let first_ms = made.unwrap().unwrap();
    assert_eq!(first_ms, DAY_MS + 30_000);
    push(25_000, 31_000, 100);
    push(32_000, 33_000, 1_000);
    let reader =
        Reader::open(folder.path().to_str().unwrap(), None, &Io::start().unwrap()).unwrap();
    let (book, known) = reader.exported(&tenant()).unwrap().unwrap();
    assert_eq!((book.earliest("own").unwrap().from_ms, known.len()), (first_ms, 0));
    assert_eq!(book.earliest("own").unwrap().rule, Rule::try_from(draft()).unwrap());
    let wanted = Wanted { live_ms: Some(first_ms), ..wanted(0..30_000) };
    let sum = || {
        let (filled, said) = run(folder.path(), &wanted).unwrap();
        (deltas(&said).into_values().sum::<f64>(), filled)
    };
    let (backfilled, filled) = sum();
    assert_eq!((backfilled, filled.live_blocks, filled.mixed_blocks), (11.0, 1, 0));
    // The same when they are merged by cell; the store has the rest.
    lake.compact(at(60_000)).unwrap();
    lake.close(at(60_000)).unwrap();
    let (backfilled, filled) = sum();
    assert_eq!((backfilled, filled.live_blocks, filled.mixed_blocks), (11.0, 1, 0));
    let live: u64 =
        lake.catalogue().known(&tenant()).unwrap().values().map(|it| it.counter.total).sum();
    assert_eq!(live, 1_100);
    // Once they are merged with what came before, nobody knows.
    lake.compact(at(11 * 60_000)).unwrap();
    let (backfilled, filled) = sum();
    assert_eq!((backfilled, filled.live_blocks, filled.mixed_blocks), (111.0, 0, 1));
}

#[test]
fn a_block_that_cannot_be_read_is_named_and_nothing_is_made_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), at(0));
    fill(&lake, &mut fastrand::Rng::with_seed(9));
    let name = lake.blocks().into_iter().next_back().unwrap().to_string();
    drop(lake);
    std::fs::write(folder.path().join(&name), "no block").unwrap();
    let error = run(folder.path(), &wanted(0..7 * 3_600 * SECOND_MS)).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
}
