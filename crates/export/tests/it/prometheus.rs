//! A real Prometheus and a sender, killed in turn.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use export::{
    Cell, Clock, Counter, CursorFile, KeepCursor, Limits, Metric, Next, Prefix, Reason, Remote,
    Sender, Source, series_labels,
};
use serde_json::Value;
use testkit::prometheus::Prometheus;
use wire::remote_write::{
    Labels, Metadata, MetricKind, STALE, Sample, Series, Version, encode, is_stale,
};

const SERIES: u64 = 60;
const TIMES: i64 = 36;
const STEP_S: i64 = 15;

/// The series which somebody else has written to.
const FOREIGN: u64 = 17;

/// The series that ends with the last time.
const ENDED: u64 = 5;

/// Tells the test that it is the sender: URL, folder, time of the first cells in seconds, steps until it kills itself.
const SENDER: &str = "THROUGHLINE_TEST_SENDER";

/// The time now; only for the time of cells, which Prometheus compares with its own.
fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the other side has the same clock")]
    let now = SystemTime::now();
    i64::try_from(now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

struct RealClock;

impl Clock for RealClock {
    fn now_ms(&mut self) -> i64 {
        now_ms()
    }

    fn chance(&mut self) -> f64 {
        fastrand::f64()
    }
}

fn labels(metric: Metric, series: u64) -> Labels {
    let name = Prefix::default().metric(metric, "process_cpu:cpu:nanoseconds:cpu:nanoseconds");
    let (pod, function) = (format!("pod-{series}"), format!("main.f{series}"));
    let own = [("function", function.as_str())];
    let own = if metric == Metric::Function { &own[..] } else { &[] };
    series_labels(&name, [("k8s.pod", pod.as_str())], own).unwrap().labels
}

/// What a series adds at a time: numbers that a sum shows to be there once.
fn delta(series: u64, time: i64) -> u64 {
    series * 1_000_003 + u64::try_from(time).unwrap() * 7_919 + 1
}

fn has_ended(series: u64, time: i64) -> bool {
    (series, time) == (ENDED, TIMES - 1)
}

/// For each time: what each series adds, and what it has added up, as a counter.
fn cells(begin_s: i64) -> Vec<Cell> {
    let kind = |kind| Some(Arc::new(Metadata { kind, ..Metadata::default() }));
    let (gauge, counter) = (kind(MetricKind::Gauge), kind(MetricKind::Counter));
    let begin_ms = (begin_s - STEP_S) * 1_000;
    let mut counters: Vec<_> = (0..SERIES).map(|_| Counter::new(begin_ms)).collect();
    let mut cells = Vec::new();
    for time in 0..TIMES {
        let time_ms = (begin_s + time * STEP_S) * 1_000;
        for (series, total) in (0..SERIES).zip(&mut counters) {
            let delta = delta(series, time);
            *total = total.add(delta, time_ms - STEP_S * 1_000);
            let cell = |metric, value, start_ms, metadata: &Option<Arc<Metadata>>| Cell {
                labels: labels(metric, series),
                sample: Sample { value, time_ms, start_ms },
                metadata: metadata.clone(),
            };
            let value = if has_ended(series, time) { STALE } else { delta as f64 };
            cells.push(cell(Metric::Function, value, 0, &gauge));
            cells.push(cell(Metric::ProfileTotal, total.value(), total.start_ms, &counter));
        }
    }
    cells
}

struct Cells(Vec<Cell>);

impl Source for Cells {
    fn read(&mut self, from: u64, most: usize) -> io::Result<Vec<Cell>> {
        let from = usize::try_from(from).unwrap();
        Ok(self.0.iter().skip(from).take(most).cloned().collect())
    }
}

/// Not a test but what the test below runs as a process of its own.
#[test]
fn sender_process() {
    let Ok(told) = std::env::var(SENDER) else { return };
    let told: Vec<&str> = told.split('|').collect();
    let [url, folder, begin_s, steps] = told.as_slice() else { panic!("{told:?}") };
    let mut remote = Remote::new(url.parse().unwrap());
    remote.limits = Limits { series: 20, ..Limits::default() };
    remote.timeout = Duration::from_secs(5);
    let source = Box::new(Cells(cells(begin_s.parse().unwrap())));
    let cursor = Box::new(CursorFile::new(Path::new(folder).join("cursor")));
    let mut sender = Sender::new(remote, source, cursor, Box::new(RealClock)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..steps.parse::<u64>().unwrap() {
            match sender.step().await.unwrap() {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::WhenMore => std::process::exit(0),
            }
        }
    });
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
}

fn start_sender(url: &str, folder: &Path, begin_s: i64, steps: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "prometheus::sender_process", "--nocapture"])
        .env(SENDER, format!("{url}|{}|{begin_s}|{steps}", folder.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A stretch of time that decides when something is killed; nothing is waited for.
fn a_moment(chance: &mut fastrand::Rng) {
    std::thread::park_timeout(Duration::from_micros(chance.u64(..40_000)));
}

#[test]
fn each_cell_is_there_once_although_sender_and_prometheus_are_killed() {
    let Some(mut prometheus) = Prometheus::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let begin_s = now_ms() / 1_000 / STEP_S * STEP_S - TIMES * STEP_S;
    let end_s = begin_s + (TIMES - 1) * STEP_S;
    // Somebody else has gone ahead with one series.
    let later = Sample { value: 1.0, time_ms: (end_s + STEP_S) * 1_000, start_ms: 0 };
    let foreign = Series::new(labels(Metric::Function, FOREIGN), vec![later], None);
    assert_eq!(prometheus.write(&encode(Version::V1, &[foreign]).unwrap()), 204);

    let url = prometheus.write_url();
    let mut chance = fastrand::Rng::with_seed(7);
    let (mut own_kills, mut killed) = (0, 0);
    for round in 0.. {
        assert!(round < 200, "no end");
        let steps = if round % 3 == 0 { u64::MAX } else { chance.u64(1..24) };
        let mut sender = start_sender(&url, folder.path(), begin_s, steps);
        if round % 3 == 0 && round < 25 {
            a_moment(&mut chance);
            prometheus.kill();
            a_moment(&mut chance);
            prometheus.resume();
            a_moment(&mut chance);
            sender.kill().unwrap();
            killed += 1;
        }
        let status = sender.wait().unwrap();
        own_kills += u32::from(steps < u64::MAX && !status.success());
        if status.success() {
            break;
        }
    }
    assert!(own_kills > 5 && killed > 2, "too few kills: {own_kills}, {killed}");

    let cursor = CursorFile::new(folder.path().join("cursor")).load().unwrap().unwrap();
    let all = cells(begin_s);
    assert_eq!(cursor.lost, [(Reason::Refused, TIMES.unsigned_abs())].into());
    assert_eq!(cursor.taken + cursor.all_lost(), all.len() as u64);
    // One before 2.54 says yes to 2.0 and stores nothing.
    assert!(cursor.learned.is_none_or(|it| it.version == Version::V1));
    assert_eq!(cursor.parked.len(), 1);
    let parked = &cursor.parked[0];
    assert_eq!(parked.series, labels(Metric::Function, FOREIGN).to_string());
    assert!(parked.words.contains("out of order sample"), "{}", parked.words);

    check_samples(&prometheus, &all, end_s);
    check_sums(&prometheus, begin_s, end_s);
}

/// Time in milliseconds and bits of what Prometheus says as `[seconds, "value"]`.
fn sample(value: &Value) -> (i64, u64) {
    let time_ms = value[0].as_f64().unwrap() * 1_000.0;
    let bits = value[1].as_str().unwrap().parse::<f64>().unwrap().to_bits();
    (format!("{time_ms:.0}").parse().unwrap(), bits)
}

/// All samples that are stored, by series and time, are those that were sent.
fn check_samples(prometheus: &Prometheus, all: &[Cell], end_s: i64) {
    let foreign = labels(Metric::Function, FOREIGN).to_string();
    let mut expected: BTreeMap<String, Vec<(i64, u64)>> = BTreeMap::new();
    let is_shown = |it: &&Cell| it.labels.to_string() != foreign && !is_stale(it.sample.value);
    for Cell { labels, sample, .. } in all.iter().filter(is_shown) {
        let samples = expected.entry(labels.to_string()).or_default();
        samples.push((sample.time_ms, sample.value.to_bits()));
    }
    let found = prometheus.query("{__name__=~\"pyroscope_.*\"}[1h]", end_s);
    let series = found.iter().map(|series| {
        let labels = series["metric"].as_object().unwrap();
        let labels =
            labels.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().into()));
        let samples = series["values"].as_array().unwrap().iter().map(sample);
        (Labels::new(labels).unwrap().to_string(), samples.collect())
    });
    assert_eq!(series.collect::<BTreeMap<_, Vec<_>>>(), expected);
}

/// What a dashboard asks gives the sums of what was sent, at each time.
fn check_sums(prometheus: &Prometheus, begin_s: i64, end_s: i64) {
    let prefix = Prefix::default();
    let name = prefix.metric(Metric::Function, "process_cpu:cpu:nanoseconds:cpu:nanoseconds");
    // The range includes both its ends: shorter than a step it has one sample.
    let query = format!("sum(sum_over_time({name}[{}s]))", STEP_S - 1);
    let found = prometheus.query_range(&query, begin_s, end_s, STEP_S);
    assert_eq!(found.len(), 1);
    let found: Vec<_> = found[0]["values"].as_array().unwrap().iter().map(sample).collect();
    let expected = (0..TIMES).map(|time| {
        let is_there = |it: &u64| *it != FOREIGN && !has_ended(*it, time);
        let sum: u64 = (0..SERIES).filter(is_there).map(|it| delta(it, time)).sum();
        ((begin_s + time * STEP_S) * 1_000, (sum as f64).to_bits())
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
    let there = |series| prometheus.query(&format!("{name}{{function=\"main.f{series}\"}}"), end_s);
    assert_eq!((there(ENDED).len(), there(ENDED + 1).len()), (0, 1), "a series that has ended");
}
