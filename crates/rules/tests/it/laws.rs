//! Sums do not depend on how samples come.

use export::Prefix;
use model::Timestamp;
use model::samples::Batch;
use proptest::prelude::*;
use rules::{Bounds, Draft, Functions, Rule, SeriesLimits, Sums, Value, sums, sums_by_cell};

use crate::samples::{ALLOC, CPU, add_at, by, of, rules};

/// A sample: its series, its stack and its value.
type One = ((bool, u8, u8), Vec<u8>, i64);

fn one() -> impl Strategy<Value = One> {
    let stack = proptest::collection::vec(0..6_u8, 0..5);
    ((any::<bool>(), 0..4_u8, 0..3_u8), stack, prop_oneof![-5..50_i64, Just(i64::MAX)])
}

fn batch_of(samples: &[One]) -> Batch {
    batch_at(samples.iter().map(|one| (one, 1)))
}

/// The same with times, nanoseconds.
fn batch_at<'a>(samples: impl IntoIterator<Item = (&'a One, i64)>) -> Batch {
    let mut batch = Batch::new();
    for (((is_cpu, service, pod), stack, value), at) in samples {
        let stack: Vec<String> = stack.iter().map(|at| format!("f{at}@lib{}", at % 2)).collect();
        let (service, pod) = (format!("s{service}"), format!("p{pod}"));
        let labels = [("service_name", service.as_str()), ("a.pod", &pod), ("a_pod", "x")];
        let kind = if *is_cpu { CPU } else { ALLOC };
        add_at(&mut batch, kind, &labels, &stack.join(";"), (*value, at));
    }
    batch
}

fn all_rules() -> Vec<Rule> {
    let service =
        |draft: Draft| Draft { matchers: vec![r#"service_name=~"s[01]""#.to_owned()], ..draft };
    let named = Some("profiles_recorded_x".to_owned());
    let prefix = || Functions::Prefix("f".to_owned());
    rules([
        Draft { group_by: None, ..by(&[]) },
        by(&["service_name", "a_pod"]),
        service(by(&["a_pod"])),
        Draft { profile_type: ALLOC.to_owned(), ..by(&["service_name"]) },
        of(prefix(), service(by(&[]))),
        of(Functions::Regex("f[12]".to_owned()), by(&[])),
        of(Functions::Package("lib1".to_owned()), Draft { value: Value::Own, ..by(&["a_pod"]) }),
        of(prefix(), Draft { metric: named, ..by(&["service_name"]) }),
    ])
}

/// Merges parts in an order that numbers say: each says which of the parts that are left go together.
fn merged(mut parts: Vec<Sums>, order: &[usize], bounds: &Bounds) -> Sums {
    let mut order = order.iter().cycle();
    while parts.len() > 1 {
        let mut next = || parts.len().min(1 + order.next().copied().unwrap_or_default()) - 1;
        let first = next();
        let mut one = parts.swap_remove(first);
        let second = order.next().copied().unwrap_or_default() % parts.len();
        let other = parts.swap_remove(second);
        one.merge(other, bounds);
        parts.push(one);
    }
    parts.pop().unwrap_or_default()
}

fn total(sums: &Sums) -> i128 {
    sums.with_overflow(&Prefix::default()).map(|(_, sum)| sum).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_and_order_gives_the_same(
        samples in proptest::collection::vec((one(), 0..5_usize), 0..60),
        order in proptest::collection::vec(0..7_usize, 8),
        (most, of_metric, known) in (0..12_usize, 0..8_usize, 0..6_usize),
    ) {
        let rules = all_rules();
        let prefix = Prefix::default();
        let of = |part: Option<usize>| {
            let own = samples.iter().filter(|(_, at)| part.is_none_or(|part| part == *at));
            batch_of(&own.map(|(one, _)| one.clone()).collect::<Vec<_>>())
        };
        let unlimited = sums(&rules, &prefix, &of(None), &Bounds::default());
        let series = unlimited.iter().map(|(labels, _)| labels.clone());
        let known: Vec<_> = series.collect::<Vec<_>>().into_iter().rev().take(known).collect();
        let few = Bounds::new(SeriesLimits { all: most, of_metric }, known.clone());
        for bounds in [&Bounds::default(), &few] {
            let whole = sums(&rules, &prefix, &of(None), bounds);
            let parts = (0..5).map(|part| sums(&rules, &prefix, &of(Some(part)), bounds)).collect();
            prop_assert_eq!(&merged(parts, &order, bounds), &whole);
            prop_assert_eq!(total(&whole), total(&unlimited));
        }
        let limited = sums(&rules, &prefix, &of(None), &few);
        prop_assert!(limited.len() <= most);
        for (labels, sum) in limited.iter() {
            prop_assert_eq!(unlimited.get(labels).map(|it| it.sum), Some(sum));
        }
        if known.len() <= most.min(of_metric) {
            for labels in &known {
                prop_assert!(limited.get(labels).is_some());
            }
        }
    }

    #[test]
    fn sums_by_cell_are_those_of_each_cells_samples(
        samples in proptest::collection::vec((one(), -3..5_i64), 0..60),
        (most, of_metric) in (0..12_usize, 0..8_usize),
    ) {
        let (rules, prefix) = (all_rules(), Prefix::default());
        let few = Bounds::new(SeriesLimits { all: most, of_metric }, []);
        let batch = batch_at(samples.iter().map(|(one, at)| (one, *at)));
        for bounds in [&Bounds::default(), &few] {
            let mut found = Vec::new();
            let cell_of = |at: Timestamp| at.nanos().div_euclid(2);
            sums_by_cell(&rules, &prefix, &batch, bounds, cell_of, |cell, sums| found.push((cell, sums)));
            let alone = |cell: i64| {
                let own = samples.iter().filter(|(_, at)| at.div_euclid(2) == cell);
                sums(&rules, &prefix, &batch_at(own.map(|(one, at)| (one, *at))), bounds)
            };
            let expected: Vec<_> =
                (-2..3).map(|cell| (cell, alone(cell))).filter(|(_, sums)| !sums.is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// Against one sample after the other, the slow way.
    #[test]
    fn sums_are_those_of_each_sample_alone(samples in proptest::collection::vec(one(), 0..40)) {
        let rules = all_rules();
        let bounds = Bounds::default();
        let mut alone = Sums::default();
        for sample in &samples {
            alone.merge(sums(&rules, &Prefix::default(), &batch_of(std::slice::from_ref(sample)), &bounds), &bounds);
        }
        prop_assert_eq!(sums(&rules, &Prefix::default(), &batch_of(&samples), &bounds), alone);
    }
}
