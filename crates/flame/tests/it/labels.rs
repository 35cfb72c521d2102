//! What there is.

use flame::{LabelSet, Selector, label_names, label_values, names, profile_stats, profile_types};
use model::Timestamp;
use model::samples::Series;
use wire::pyroscope::Labels;

use super::samples::{CPU, series};

fn shop() -> Vec<Series> {
    vec![
        series(&[("service_name", "shop"), ("pod", "b"), ("a.b", "x")]),
        series(&[("service_name", "shop"), ("pod", "a")]),
        series(&[("service_name", "cart")]),
        Series {
            profile_type: "memory:alloc:bytes::".parse().unwrap(),
            ..series(&[("service_name", "cart")])
        },
    ]
}

fn text(sets: &[Labels]) -> Vec<String> {
    let pairs = |set: &Labels| {
        let pairs = set.labels.iter().map(|pair| format!("{}={}", pair.name, pair.value));
        pairs.collect::<Vec<_>>().join(",")
    };
    sets.iter().map(pairs).collect()
}

#[test]
fn types_are_given_once_by_their_ids() {
    let series = shop();
    let types = profile_types(series.iter().map(|series| &series.profile_type)).profile_types;
    let ids: Vec<&str> = types.iter().map(|kind| kind.id.as_str()).collect();
    assert_eq!(ids, ["memory:alloc:bytes::", CPU]);
    assert_eq!(
        (types[1].sample_type.as_str(), types[1].period_unit.as_str()),
        ("cpu", "nanoseconds")
    );
}

#[test]
fn labels_are_a_series_own_and_those_of_its_type() {
    let series = shop();
    let expected = [
        "__name__",
        "__period_type__",
        "__period_unit__",
        "__profile_type__",
        "__service_name__",
        "__type__",
        "__unit__",
        "a.b",
        "pod",
        "service_name",
    ];
    assert_eq!(names(&series[0]), expected);
    assert!(!names(&series[3]).contains(&"__period_type__"));
    let plain = label_names(&series, &[], LabelSet::Plain).names;
    assert!(!plain.contains(&"a.b".to_owned()) && plain.contains(&"pod".to_owned()));
    assert!(label_names(&series, &[], LabelSet::Utf8).names.contains(&"a.b".to_owned()));
    let cart = [Selector::parse(r#"{service_name="cart"}"#).unwrap()];
    assert!(!label_names(&series, &cart, LabelSet::Utf8).names.contains(&"pod".to_owned()));
}

#[test]
fn values_are_of_series_that_any_selector_means() {
    let series = shop();
    let selectors =
        [r#"{pod="a"}"#, r#"{service_name="cart"}"#].map(|text| Selector::parse(text).unwrap());
    assert_eq!(label_values(&series, &selectors, "service_name").names, ["cart", "shop"]);
    assert_eq!(label_values(&series, &selectors, "pod").names, ["a"]);
    assert_eq!(label_values(&series, &[], "__profile_type__").names, ["memory:alloc:bytes::", CPU]);
}

#[test]
fn label_sets_are_cut_to_what_is_asked_for() {
    let series = shop();
    let asked = ["service_name", "__profile_type__"].map(str::to_owned);
    let sets = flame::series(&series, &[], &asked, LabelSet::Plain).labels_set;
    assert_eq!(
        text(&sets),
        [
            "__profile_type__=memory:alloc:bytes::,service_name=cart".to_owned(),
            format!("__profile_type__={CPU},service_name=cart"),
            format!("__profile_type__={CPU},service_name=shop"),
        ]
    );
    let pods = flame::series(&series, &[], &["pod".to_owned()], LabelSet::Plain).labels_set;
    assert_eq!(text(&pods), ["pod=a", "pod=b"]);
    let all = flame::series(&series, &[], &[], LabelSet::Plain).labels_set;
    assert_eq!(all.len(), 4);
    assert!(text(&all)[3].ends_with("__unit__=nanoseconds,pod=b,service_name=shop"), "{all:?}");
}

#[test]
fn stats_say_whether_there_is_anything() {
    let nothing = profile_stats(None);
    assert_eq!((nothing.data_ingested, nothing.oldest_profile_time), (false, 0));
    let some =
        profile_stats(Some((Timestamp::from_nanos(1_999_999), Timestamp::from_nanos(5_000_000))));
    assert_eq!(
        (some.data_ingested, some.oldest_profile_time, some.newest_profile_time),
        (true, 1, 5)
    );
}
