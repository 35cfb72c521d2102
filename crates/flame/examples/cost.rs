//! What answers cost: CPU time for each sample, each frame of a distinct stack and each node.
//!
//! `cargo run --release -p flame --example cost -- [SAMPLES] [STACKS]`: so many samples (two million) of 1,000 series and of so many distinct
//! stacks (20,000) of 10 to 50 frames of 5,000 functions. A few stacks have most of the samples, as in real profiles.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement")]

use std::time::Duration;

use fastrand::Rng;
use flame::{
    Aggregation, CallTree, Millis, Of, PlaceTree, Selection, Selector, SeriesQuestion, SeriesSums,
    Steps, Sums, Walk,
};
use model::Timestamp;
use model::samples::{Batch, Frame, Labels, Sample, Series};
use rustix::time::{ClockId, clock_gettime};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SERIES: usize = 1_000;
const FUNCTIONS: usize = 5_000;
const HOUR_MS: i64 = 3_600_000;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let samples = arguments.next().unwrap_or(2_000_000);
    let stacks = arguments.next().unwrap_or(20_000);
    let (batch, frames) = made(samples, stacks);
    println!("{samples} samples of {SERIES} series, {stacks} stacks of {frames} frames in all");
    let time = Millis { start: 0, end: HOUR_MS };
    let selector = Selector::parse(r#"{service_name=~"shop-.*"}"#).expect("a selector");
    let selection = Selection::new(selector.clone(), time);

    let (sums, took) = measured(|| Sums::of(&batch, selection.samples(&batch)));
    each("sum by stack", took, samples, "sample");
    let (tree, took) = measured(|| {
        let mut tree = CallTree::new();
        tree.add(&batch, &sums, Walk::default());
        tree
    });
    each("call tree", took, frames, "frame");
    let (graph, took) = measured(|| tree.flame_graph(8_192));
    each("flame graph of 8,192 nodes", took, tree.len(), "node of the tree");
    assert_eq!(graph.total, tree.total());
    let (merged, took) = measured(|| {
        let mut merged = CallTree::new();
        merged.merge(&tree);
        merged
    });
    each("merge", took, merged.len(), "node");
    let (bytes, took) = measured(|| tree.encode());
    each("tree bytes", took, tree.len(), "node");
    let (read, took) = measured(|| CallTree::decode(&bytes).expect("a tree"));
    each("and back", took, read.len(), "node");
    let (places, took) = measured(|| {
        let mut places = PlaceTree::new();
        places.add(&batch, &sums, Walk::default());
        places.profile(&CPU.parse().expect("a type"), time, 1 << 20)
    });
    each("pprof", took, frames, "frame");
    assert!(!places.sample.is_empty());

    let question = SeriesQuestion {
        steps: Steps { start: 0, end: HOUR_MS, step: 15_000 },
        group_by: vec!["service_name".to_owned()],
        aggregation: Aggregation::Sum,
        exemplars: None,
        limit: None,
    };
    for (what, exemplars) in [("series by service", None), ("with exemplars", Some(Of::Profiles))] {
        let selection = Selection::new(selector.clone(), time);
        let (answer, took) = measured(|| {
            let mut sums = SeriesSums::new(SeriesQuestion { exemplars, ..question.clone() });
            sums.add(&batch, selection.samples(&batch));
            sums.finish()
        });
        assert_eq!(answer.series.len(), 20);
        each(what, took, samples, "sample");
    }
}

/// A batch, and how many frames its stacks have.
fn made(samples: usize, stacks: usize) -> (Batch, usize) {
    let mut rng = Rng::with_seed(7);
    let mut batch = Batch::new();
    let frames: Vec<_> = (0..FUNCTIONS)
        .map(|number| {
            let function =
                batch.text(&format!("company::service::module_{}::function_{number}", number % 97));
            batch.frame(Frame { function, line: 7, ..Frame::default() })
        })
        .collect();
    // Each stack goes on from the beginning of one before.
    let mut roots_first: Vec<Vec<usize>> = vec![vec![0]];
    let mut total = 0;
    let ids: Vec<_> = (0..stacks)
        .map(|_| {
            let before = rng.choice(&roots_first).expect("one");
            let mut stack = before.get(..rng.usize(1..=before.len())).unwrap_or_default().to_vec();
            let length = rng.usize(10..=50).max(stack.len() + 1).min(50);
            while stack.len() < length {
                stack.push(rng.usize(..FUNCTIONS));
            }
            total += stack.len();
            let leaf_first: Vec<_> =
                stack.iter().rev().filter_map(|at| frames.get(*at)).copied().collect();
            roots_first.push(stack);
            batch.stack(&leaf_first)
        })
        .collect();
    let series: Vec<_> = (0..SERIES)
        .map(|number| {
            let (service, pod) = (format!("shop-{}", number % 20), format!("pod-{number}"));
            let labels = Labels::new([("service_name", service), ("pod", pod)]);
            batch.series(Series { profile_type: CPU.parse().expect("a type"), labels })
        })
        .collect();
    for number in 0..samples {
        let at_ms =
            i64::try_from(number).expect("few") * HOUR_MS / i64::try_from(samples).expect("few");
        // The square has most samples among the first stacks.
        let place = rng.usize(..stacks) * rng.usize(..stacks) / stacks;
        let of = rng.usize(..SERIES);
        batch.add(Sample {
            series: *series.get(of).expect("one"),
            stack: *ids.get(place).expect("one"),
            at: Timestamp::from_nanos(at_ms * 1_000_000),
            value: 10_000_000,
            profile: u128::try_from(of).expect("small") << 64
                | u128::from(at_ms.unsigned_abs() / 15_000),
            span_id: 0,
            trace_id: 0,
        });
    }
    (batch, total)
}

fn measured<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let before = cpu();
    let made = what();
    (made, cpu() - before)
}

fn each(what: &str, took: Duration, count: usize, unit: &str) {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let nanos = took.as_nanos() as f64 / count as f64;
    println!("{what:<28} {:>8.1} ms  {nanos:>7.1} ns for each {unit}", took.as_secs_f64() * 1e3);
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).expect("less than a second"),
    )
}
