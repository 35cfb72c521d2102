//! What sums cost: CPU time for each sample.
//!
//! `cargo run --release -p rules --example cost -- [SAMPLES] [STACKS]`: so many samples (a million) of 1,000 series and of so many distinct
//! stacks (100,000) of 10 to 50 frames of 5,000 functions, under 1, 5 and 20 rules of all kinds.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement")]

use std::time::Duration;

use export::Prefix;
use fastrand::Rng;
use model::Timestamp;
use model::samples::{Batch, Frame, Labels, Sample, Series};
use rules::{Bounds, Config, Rule, sums};
use rustix::time::{ClockId, clock_gettime};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SERIES: usize = 1_000;
const FUNCTIONS: usize = 5_000;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let samples = arguments.next().unwrap_or(1_000_000);
    let stacks = arguments.next().unwrap_or(100_000);
    let rules = twenty();
    println!("{samples} samples of {SERIES} series, {stacks} stacks");
    for (order, is_sorted) in [("as they come", false), ("by series and stack", true)] {
        let batch = made(samples, stacks, is_sorted);
        for count in [1, 5, 20] {
            let rules: Vec<&Rule> = rules.iter().take(count).collect();
            let before = cpu();
            let found = sums(rules, &Prefix::default(), &batch, &Bounds::default());
            let took = cpu() - before;
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let nanos = took.as_nanos() as f64 / samples as f64;
            println!(
                "{order:<20} {count:>2} rules {:>6} series {:>8.1} ms {nanos:>7.1} ns for each sample",
                found.len(),
                took.as_secs_f64() * 1e3,
            );
        }
    }
}

/// Of each kind some: totals, one function, prefixes, regular expressions, packages, files, self.
fn twenty() -> Vec<Rule> {
    let mut text = String::new();
    let mut rule = |more: &str| {
        text += &format!("[[rule]]\nprofile_type = \"{CPU}\"\n{more}\n");
    };
    rule(r#"group_by = ["service_name"]"#);
    rule("functions = { exact = 'company::module_7::function_104' }");
    rule(
        r#"group_by = ["service_name"]
        functions = { prefix = 'company::module_1::' }"#,
    );
    rule(
        r#"group_by = []
        functions = { regex = '.*::function_12\d\d' }"#,
    );
    rule("");
    for number in 0..5 {
        rule(&format!(
            "matchers = ['service_name=\"shop-{number}\"']\ngroup_by = ['pod']\nfunctions = {{ exact = 'company::module_{number}::function_{number}' }}"
        ));
        rule(&format!(
            "group_by = []\nvalue = 'self'\nfunctions = {{ package = 'company::module_{number}' }}"
        ));
        rule(&format!(
            "matchers = ['service_name=~\"shop-1.*\"']\ngroup_by = []\nfunctions = {{ file = 'module_{number}.rs' }}"
        ));
    }
    let config: Config = text.parse().expect("rules");
    config.of("anyone").cloned().collect()
}

fn made(samples: usize, stacks: usize, is_sorted: bool) -> Batch {
    let mut rng = Rng::with_seed(7);
    let mut batch = Batch::new();
    let frames: Vec<_> = (0..FUNCTIONS)
        .map(|number| {
            let module = number % 97;
            let function = batch.text(&format!("company::module_{module}::function_{number}"));
            let file = batch.text(&format!("src/module_{module}.rs"));
            batch.frame(Frame { function, file, line: 7, ..Frame::default() })
        })
        .collect();
    let ids: Vec<_> = (0..stacks)
        .map(|_| {
            let stack: Vec<_> =
                (0..rng.usize(10..=50)).filter_map(|_| rng.choice(&frames)).copied().collect();
            batch.stack(&stack)
        })
        .collect();
    let series: Vec<_> = (0..SERIES)
        .map(|number| {
            let (service, pod) = (format!("shop-{}", number % 20), format!("pod-{number}"));
            let labels = Labels::new([("service_name", service), ("pod", pod)]);
            batch.series(Series { profile_type: CPU.parse().expect("a type"), labels })
        })
        .collect();
    let mut all: Vec<(usize, usize)> = (0..samples)
        // The square has most samples among the first stacks.
        .map(|_| (rng.usize(..SERIES), rng.usize(..stacks) * rng.usize(..stacks) / stacks))
        .collect();
    if is_sorted {
        all.sort_unstable();
    }
    for (of, stack) in all {
        batch.add(Sample {
            series: *series.get(of).expect("one"),
            stack: *ids.get(stack).expect("one"),
            at: Timestamp::from_nanos(1),
            value: 10_000_000,
            profile: 1,
            span_id: 0,
            trace_id: 0,
        });
    }
    batch
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}
