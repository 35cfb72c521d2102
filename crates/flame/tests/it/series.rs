//! Series and heat maps, point by point.

use flame::{
    Aggregation, HeatmapQuestion, HeatmapSums, Millis, Of, Selection, Selector, SeriesAnswer,
    SeriesQuestion, SeriesSums, Steps, uuid,
};
use model::samples::Batch;
use proptest::prelude::*;
use wire::pyroscope::{Exemplar, LabelPair};

use super::samples::{Row, batch};

const SHOP: &[(&str, &str)] = &[("service_name", "shop"), ("pod", "a")];
const SHOP_B: &[(&str, &str)] = &[("service_name", "shop"), ("pod", "b")];
const CART: &[(&str, &str)] = &[("service_name", "cart")];

const ROWS: &[Row<'_>] = &[
    // Steps of 100 from 1000: the first point covers 901 to 1000.
    (SHOP, "main;a", 900, 1_000, 1, 0),
    (SHOP, "main;a", 901, 1, 1, 0),
    (SHOP, "main;b", 1000, 2, 1, 7),
    (SHOP, "main;a", 1001, 4, 2, 7),
    (SHOP_B, "main;a", 1100, 8, 2, 7),
    (SHOP_B, "main;a", 1100, 16, 3, 8),
    (CART, "main;a", 1101, 40, 4, 0),
    // Behind 1200, the last point that is not behind the end.
    (CART, "main;a", 1201, 5_000, 4, 0),
];

fn question() -> SeriesQuestion {
    SeriesQuestion {
        steps: Steps { start: 1000, end: 1250, step: 100 },
        group_by: vec!["service_name".to_owned()],
        aggregation: Aggregation::Sum,
        exemplars: None,
        limit: None,
    }
}

fn answer(question: SeriesQuestion, batches: &[&Batch]) -> SeriesAnswer {
    let selection = Selection::new(Selector::default(), question.time());
    let mut sums = SeriesSums::new(question);
    for batch in batches {
        sums.add(batch, selection.samples(batch));
    }
    sums.finish()
}

fn points(answer: &SeriesAnswer) -> Vec<(String, Vec<(i64, f64)>)> {
    let series = answer.series.iter().map(|series| {
        let labels: Vec<&str> = series.labels.iter().map(|pair| pair.value.as_str()).collect();
        let points = series.points.iter().map(|point| (point.timestamp, point.value));
        (labels.join(","), points.collect())
    });
    series.collect()
}

#[test]
fn points_cover_the_step_before_them() {
    let batch = batch(ROWS);
    assert_eq!(question().time(), Millis { start: 901, end: 1200 });
    let summed = answer(question(), &[&batch]);
    assert_eq!(
        points(&summed),
        [
            ("cart".to_owned(), vec![(1200, 40.0)]),
            ("shop".to_owned(), vec![(1000, 3.0), (1100, 28.0)]),
        ]
    );
    // All in one, without labels.
    let one = answer(SeriesQuestion { group_by: Vec::new(), ..question() }, &[&batch]);
    assert_eq!(points(&one), [(String::new(), vec![(1000, 3.0), (1100, 28.0), (1200, 40.0)])]);
}

#[test]
fn averages_are_by_profile() {
    let average = SeriesQuestion { aggregation: Aggregation::Average, ..question() };
    // At 1100: profile 2 in two series, profile 3 in one.
    assert_eq!(
        points(&answer(average, &[&batch(ROWS)])),
        [
            ("cart".to_owned(), vec![(1200, 40.0)]),
            ("shop".to_owned(), vec![(1000, 3.0), (1100, 28.0 / 3.0)]),
        ]
    );
}

#[test]
fn a_limit_keeps_the_greatest_and_counts_the_rest() {
    let limited = answer(SeriesQuestion { limit: Some(1), ..question() }, &[&batch(ROWS)]);
    assert_eq!((points(&limited)[0].0.as_str(), limited.left_out), ("cart", 1));
}

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair { name: name.to_owned(), value: value.to_owned() }
}

fn own_labels(exemplar: &Exemplar) -> Vec<LabelPair> {
    exemplar.labels.iter().filter(|pair| !pair.name.starts_with("__")).cloned().collect()
}

#[test]
fn exemplars_are_the_greatest_profile_or_span_of_a_point() {
    let individual = SeriesQuestion { exemplars: Some(Of::Profiles), ..question() };
    let found = answer(individual, &[&batch(ROWS)]);
    let exemplar = |series: usize, point: usize| &found.series[series].points[point].exemplars[0];
    let at_1100 = exemplar(1, 1);
    assert_eq!(at_1100.profile_id, "00000000-0000-0000-0000-000000000003");
    assert_eq!((at_1100.value, at_1100.timestamp, at_1100.span_id.as_str()), (16, 1100, ""));
    assert_eq!(own_labels(at_1100), [pair("pod", "b")]);
    let at_1000 = exemplar(1, 0);
    assert_eq!((at_1000.value, at_1000.timestamp), (3, 901));
    assert_eq!(own_labels(at_1000), [pair("pod", "a")]);

    let spans = SeriesQuestion { exemplars: Some(Of::Spans), ..question() };
    let found = answer(spans, &[&batch(ROWS)]);
    let span = &found.series[1].points[1].exemplars[0];
    assert_eq!((span.span_id.as_str(), span.value), ("0000000000000008", 16));
    assert_eq!(span.trace_id, "00000000000000080000000000000000");
    assert!(found.series[0].points[0].exemplars.is_empty());
    // Without the sample of profile 3 the greatest is span 7 of profile 2, which two series have: the pod is not the same.
    let rows: Vec<Row<'_>> = ROWS.iter().copied().filter(|row| row.4 != 3).collect();
    let spans = SeriesQuestion { exemplars: Some(Of::Spans), ..question() };
    let found = answer(spans, &[&batch(&rows)]);
    let span = &found.series[1].points[1].exemplars[0];
    assert_eq!((span.span_id.as_str(), span.value, span.timestamp), ("0000000000000007", 12, 1001));
    assert_eq!(own_labels(span), []);
}

#[test]
fn only_stacks_below_the_call_site_count() {
    let batch = batch(ROWS);
    let mut selection = Selection::new(Selector::default(), Millis { start: 0, end: 1200 });
    let sum =
        |selection: &Selection| selection.samples(&batch).map(|sample| sample.value).sum::<i64>();
    assert_eq!(sum(&selection), 1071);
    for (names, expected) in
        [(&["main"][..], 1071), (&["main", "b"], 2), (&["a"], 0), (&["main", "b", "c"], 0)]
    {
        selection.call_site = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(sum(&selection), expected, "{names:?}");
    }
    selection.call_site.clear();
    selection.spans.insert(7);
    assert_eq!(sum(&selection), 14);
    selection.profiles.insert(2);
    assert_eq!(sum(&selection), 12);
    selection.traces.insert(7 << 64);
    assert_eq!(sum(&selection), 12);
    selection.time = Millis { start: 1002, end: 1100 };
    assert_eq!(sum(&selection), 8);
    selection.selector = Selector::parse(r#"{pod="a"}"#).unwrap();
    assert_eq!(sum(&selection), 0);
}

#[test]
fn heat_maps_count_profiles_and_spans() {
    let question = HeatmapQuestion {
        steps: Steps { start: 1000, end: 1250, step: 100 },
        of: Of::Profiles,
        group_by: vec!["service_name".to_owned()],
        exemplars: true,
        limit: None,
    };
    let batch = batch(ROWS);
    let heat = |question: &HeatmapQuestion| {
        let mut sums = HeatmapSums::new(question.clone());
        sums.add(&batch, batch.samples());
        sums.finish()
    };
    // Profiles: 1 has 2 at 1000; 2 has 12 and 3 has 16 at 1100; 4 has 5040 at 1200, with what is behind the last column.
    let found = heat(&question).series;
    assert_eq!(found.len(), 2);
    let shop = &found[1].slots;
    assert_eq!(shop.iter().map(|slot| slot.timestamp).collect::<Vec<_>>(), [1000, 1100]);
    // From 2 in steps of 5038 / 20 = 251.9.
    assert_eq!(shop[0].y_min[..4], [2.0, 253.0, 505.0, 757.0]);
    assert_eq!((shop[0].y_min.len(), shop[0].counts.len()), (20, 20));
    assert_eq!((shop[0].counts[0], shop[1].counts[0]), (1, 2));
    assert_eq!(shop[1].counts.iter().sum::<i32>(), 2);
    assert_eq!(shop[1].exemplars.len(), 1);
    assert_eq!((shop[1].exemplars[0].value, &shop[1].exemplars[0].profile_id), (16, &uuid(3)));
    let cart = &found[0].slots;
    assert_eq!((cart.len(), cart[0].timestamp, cart[0].counts[19]), (1, 1200, 1));

    let spans = HeatmapQuestion { of: Of::Spans, exemplars: false, ..question.clone() };
    let found = heat(&spans).series;
    // 7 has 2 at 1000, and 12 at 1100 where 8 has 16: from 2 in steps of 0.7, rounded down.
    let shop = &found[0].slots;
    assert_eq!(shop[0].y_min[..5], [2.0, 2.0, 3.0, 4.0, 4.0]);
    let cells = |slot: usize| -> Vec<(usize, i32)> {
        let counts = shop[slot].counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count != 0).collect()
    };
    // The edges 12 and 15 are those of cells 15 (12.5) and 19 (15.3).
    assert_eq!((cells(0), cells(1)), (vec![(1, 1)], vec![(15, 1), (19, 1)]));
    assert!(shop[1].exemplars.is_empty());

    let limited = heat(&HeatmapQuestion { limit: Some(1), ..question });
    assert_eq!((limited.series[0].labels[0].value.as_str(), limited.left_out), ("cart", 1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Samples in any order and in any number of batches give the same answer.
    #[test]
    fn answers_do_not_depend_on_order_or_batches(
        rows in prop::collection::vec((0..3_usize, 0..400_i64, 1..50_i64, 0..4_u128, 0..3_u64), 0..40),
        keys in prop::collection::vec(any::<u32>(), 40),
        cut in 0..40_usize,
        average in any::<bool>(),
    ) {
        let labels = [SHOP, SHOP_B, CART];
        let row = |&(series, at, value, profile, span): &(usize, i64, i64, u128, u64)| {
            (labels[series], "main;a", 850 + at, value, profile, span)
        };
        let ordered: Vec<Row<'_>> = rows.iter().map(row).collect();
        let mut shuffled: Vec<_> = keys.iter().zip(&ordered).collect();
        shuffled.sort_by_key(|(key, _)| **key);
        let shuffled: Vec<Row<'_>> = shuffled.into_iter().map(|(_, row)| *row).collect();
        let (one, two) = shuffled.split_at(cut.min(shuffled.len()));
        let (whole, one, two) = (batch(&ordered), batch(one), batch(two));
        let aggregation = if average { Aggregation::Average } else { Aggregation::Sum };
        let question = SeriesQuestion { exemplars: Some(Of::Profiles), aggregation, ..question() };
        prop_assert_eq!(answer(question.clone(), &[&whole]), answer(question.clone(), &[&one, &two]));

        let heat = HeatmapQuestion {
            steps: question.steps,
            of: Of::Profiles,
            group_by: Vec::new(),
            exemplars: true,
            limit: None,
        };
        let heat = |batches: &[&Batch]| {
            let mut sums = HeatmapSums::new(heat.clone());
            for batch in batches {
                sums.add(batch, batch.samples());
            }
            sums.finish()
        };
        prop_assert_eq!(heat(&[&whole]), heat(&[&two, &one]));

        // What is in no step is in no point: the sums are those of the samples between.
        let sum = SeriesQuestion { aggregation: Aggregation::Sum, ..question };
        let total: f64 = answer(sum, &[&whole])
            .series
            .iter()
            .flat_map(|series| &series.points)
            .map(|point| point.value)
            .sum();
        let expected: i64 =
            ordered.iter().filter(|row| (901..=1200).contains(&row.2)).map(|row| row.3).sum();
        prop_assert_eq!(total, f64::from(i32::try_from(expected).unwrap()));
    }
}
