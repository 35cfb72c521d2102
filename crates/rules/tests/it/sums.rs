//! What is summed, and under which names.

use std::collections::BTreeMap;

use export::Prefix;
use model::samples::Batch;
use rules::{
    Bounds, Draft, Functions, Reason, SeriesLimits, Sums, Value, counter, overflow, preview, sums,
};

use crate::samples::{ALLOC, CPU, Pairs, add, by, of, rules, text};

const SHOP: Pairs<'_> = &[("service_name", "shop"), ("k8s.pod.name", "a"), ("__session_id__", "7")];

fn exact(name: &str) -> Functions {
    Functions::Exact(name.to_owned())
}

fn made(drafts: impl IntoIterator<Item = Draft>, batch: &Batch) -> Sums {
    sums(&rules(drafts), &Prefix::default(), batch, &Bounds::default())
}

#[track_caller]
fn check(drafts: impl IntoIterator<Item = Draft>, batch: &Batch, expected: &[(&str, i128)]) {
    let found = made(drafts, batch);
    let expected: BTreeMap<String, i128> =
        expected.iter().map(|(series, sum)| ((*series).to_owned(), *sum)).collect();
    assert_eq!(text(&found), expected);
}

fn batch() -> Batch {
    let mut batch = Batch::new();
    add(&mut batch, CPU, SHOP, "work;work;main", 10);
    add(&mut batch, CPU, SHOP, "read;work;main", 5);
    add(&mut batch, CPU, SHOP, "", 1);
    add(&mut batch, CPU, &[("service_name", "cart")], "work;main", 100);
    add(&mut batch, ALLOC, SHOP, "work;main", 7);
    batch
}

#[test]
fn without_groups_series_have_all_labels_that_are_not_internal() {
    let all = Draft { group_by: None, ..by(&[]) };
    check(
        [all],
        &batch(),
        &[
            (r#"cpu{service_name="cart"}"#, 100),
            (r#"cpu{k8s_pod_name="a",service_name="shop"}"#, 16),
        ],
    );
}

#[test]
fn groups_have_the_labels_of_their_names_and_add_up() {
    check([by(&[])], &batch(), &[("cpu", 116)]);
    check(
        [by(&["k8s_pod_name", "absent"])],
        &batch(),
        &[("cpu", 100), (r#"cpu{k8s_pod_name="a"}"#, 16)],
    );
    let team = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
    let external = Draft { external_labels: team, ..by(&[]) };
    check([external], &batch(), &[(r#"cpu{team="x"}"#, 116)]);
}

#[test]
fn matchers_choose_series() {
    for (matcher, expected) in [
        (r#"{service_name="shop"}"#, 16),
        (r#"service_name!="shop""#, 100),
        (r#"{service_name=~"s.*|x"}"#, 16),
        (r#"{service_name!~"s.*", k8s.pod.name=""}"#, 100),
        (r#"{__profile_type__="process_cpu:cpu:nanoseconds:cpu:nanoseconds"}"#, 116),
    ] {
        let draft = Draft { matchers: vec![matcher.to_owned()], ..by(&[]) };
        check([draft], &batch(), &[("cpu", expected)]);
    }
}

#[test]
fn a_function_counts_once_for_each_sample_that_has_it_or_ends_in_it() {
    check(
        [of(exact("work"), by(&["service_name"]))],
        &batch(),
        &[
            (r#"functions_cpu{function="work",service_name="cart"}"#, 100),
            (r#"functions_cpu{function="work",service_name="shop"}"#, 15),
        ],
    );
    let own = Draft { value: Value::Own, ..of(exact("work"), by(&[])) };
    check([own], &batch(), &[(r#"functions_self_cpu{function="work"}"#, 110)]);
    check([of(exact("wor"), by(&[]))], &batch(), &[]);
}

#[test]
fn patterns_make_a_series_for_each_function() {
    let mut batch = Batch::new();
    let stack =
        "memcpy@/usr/lib/libc.so.6;@/usr/lib/libc.so.6;shop.Pay@@shop/pay.go;shop.main@@main.go";
    add(&mut batch, CPU, SHOP, stack, 3);
    let of = |functions| of(functions, by(&[]));
    let series = |names: &[&'static str]| -> BTreeMap<String, i128> {
        names.iter().map(|name| (format!(r#"functions_cpu{{function="{name}"}}"#), 3)).collect()
    };
    for (functions, names) in [
        (Functions::Prefix("shop.".to_owned()), &["shop.Pay", "shop.main"][..]),
        (Functions::Regex("mem.*|.*main".to_owned()), &["memcpy", "shop.main"]),
        (Functions::Package("shop".to_owned()), &["shop.Pay", "shop.main"]),
        (Functions::Package("libc.so.6".to_owned()), &["memcpy", "libc.so.6+0x1f"]),
        (Functions::File("pay.go".to_owned()), &["shop.Pay"]),
        (exact("libc.so.6+0x1f"), &["libc.so.6+0x1f"]),
    ] {
        assert_eq!(text(&made([of(functions.clone())], &batch)), series(names), "{functions:?}");
    }
}

#[test]
fn rules_of_the_default_form_write_a_series_together_and_count_each_sample_once() {
    let shop =
        |draft: Draft| Draft { matchers: vec![r#"service_name="shop""#.to_owned()], ..draft };
    let drafts = [
        by(&["service_name"]),
        shop(by(&["service_name"])),
        Draft {
            matchers: vec![r#"k8s.pod.name="a""#.to_owned()],
            ..by(&["service_name", "absent"])
        },
        of(exact("work"), by(&[])),
        of(Functions::Prefix("wo".to_owned()), shop(by(&[]))),
    ];
    check(
        drafts,
        &batch(),
        &[
            (r#"cpu{service_name="cart"}"#, 100),
            (r#"cpu{service_name="shop"}"#, 16),
            (r#"functions_cpu{function="work"}"#, 115),
        ],
    );
}

#[test]
fn metrics_with_names_of_their_own_have_the_rules_id_and_are_never_shared() {
    let draft = |id: &str| Draft {
        id: id.to_owned(),
        metric: Some("profiles_recorded_cpu".to_owned()),
        ..by(&[])
    };
    check(
        [draft("abc"), draft("xyz"), of(exact("read"), draft("fgh"))],
        &batch(),
        &[
            (r#"profiles_recorded_cpu{profiles_rule_id="abc"}"#, 116),
            (r#"profiles_recorded_cpu{profiles_rule_id="xyz"}"#, 116),
            (r#"profiles_recorded_cpu{function="read",profiles_rule_id="fgh"}"#, 5),
        ],
    );
}

#[test]
fn a_rule_is_of_one_profile_type() {
    let alloc = Draft { profile_type: ALLOC.to_owned(), ..by(&[]) };
    check([alloc, by(&[])], &batch(), &[("cpu", 116), ("memory_alloc_space_bytes_space_bytes", 7)]);
}

#[test]
fn values_below_zero_are_summed_as_they_are() {
    let mut batch = batch();
    add(&mut batch, CPU, SHOP, "work", -200);
    check([by(&[])], &batch, &[("cpu", -84)]);
}

#[test]
fn counters_are_called_as_crate_export_has_it() {
    for (draft, metric) in [
        (by(&[]), export::Metric::ProfileTotal),
        (of(exact("work"), by(&[])), export::Metric::FunctionTotal),
        (
            Draft { value: Value::Own, ..of(exact("work"), by(&[])) },
            export::Metric::FunctionSelfTotal,
        ),
    ] {
        let sums = made([draft], &batch());
        let name = Prefix::default().metric(metric, CPU);
        let names: Vec<_> = sums.iter().map(|(labels, _)| counter(labels)).collect();
        assert_eq!(names[0].metric(), name);
        assert_eq!(names[0].get("function"), sums.iter().next().unwrap().0.get("function"));
    }
}

#[test]
fn labels_that_clash_or_that_no_receiver_takes_are_counted_and_their_values_stay() {
    let mut batch = Batch::new();
    add(&mut batch, CPU, &[("a.b", "1"), ("a_b", "2"), ("function", "x")], "work", 3);
    let long = "x".repeat(70_000);
    add(&mut batch, CPU, &[("a", &long)], "work", 5);
    let names: Vec<String> = (0..200).map(|number| format!("l{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    add(&mut batch, CPU, &many, "work", 7);
    let almost = "x".repeat((64 << 10) - 200);
    add(&mut batch, CPU, &[("a", &almost)], &format!("work{}", "k".repeat(200)), 11);
    let all = Draft { group_by: None, ..by(&[]) };
    let found = made([of(Functions::Prefix("work".to_owned()), all)], &batch);
    assert_eq!(
        text(&found),
        BTreeMap::from([(r#"functions_cpu{a_b="1",function="work"}"#.to_owned(), 3)])
    );
    assert_eq!(found.clashes(), 2);
    let overflows: Vec<_> =
        found.overflows().map(|(reason, amount)| (reason, amount.sum, amount.samples)).collect();
    assert_eq!(overflows, [(Reason::TooManyLabels, 7, 1), (Reason::LabelsTooLong, 16, 2)]);
    assert_eq!(found.overflow().sum, 23);
}

#[test]
fn what_is_beyond_the_limits_is_in_one_series() {
    let mut batch = Batch::new();
    for (pod, value) in [("a", 1), ("b", 2), ("c", 4), ("d", 8)] {
        add(&mut batch, CPU, &[("pod", pod)], "work", value);
        add(&mut batch, ALLOC, &[("pod", pod)], "work", value * 100);
    }
    let rules = rules([by(&["pod"]), Draft { profile_type: ALLOC.to_owned(), ..by(&["pod"]) }]);
    let prefix: Prefix = "p".parse().unwrap();
    let all = sums(&rules, &prefix, &batch, &Bounds::default());
    let series = |name: &str| {
        let (labels, _) = all.iter().find(|(labels, _)| labels.to_string() == name).unwrap();
        labels.clone()
    };
    let known = [
        series(r#"p_process_cpu_cpu_nanoseconds_cpu_nanoseconds{pod="d"}"#),
        series(r#"p_process_cpu_cpu_nanoseconds_cpu_nanoseconds{pod="c"}"#),
    ];
    let check = |limits: (usize, usize), known: &[_], names: &[&str], rest: i128| {
        let limits = SeriesLimits { all: limits.0, of_metric: limits.1 };
        let found = sums(&rules, &prefix, &batch, &Bounds::new(limits, known.to_vec()));
        let short = |(labels, sum): (wire::remote_write::Labels, i128)| {
            let part = &labels.metric()[2..5];
            format!("{part} {} {sum}", labels.get("pod").unwrap_or_default())
        };
        let mut expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        if rest > 0 {
            expected.push(format!("ove  {rest}"));
            assert_eq!(found.with_overflow(&prefix).last().unwrap().0, overflow(&prefix));
        }
        assert_eq!(found.with_overflow(&prefix).map(short).collect::<Vec<_>>(), expected);
        let total = |sums: &Sums| sums.with_overflow(&prefix).map(|(_, sum)| sum).sum::<i128>();
        assert_eq!(total(&found), total(&all));
    };
    check(
        (8, 4),
        &[],
        &[
            "mem a 100",
            "mem b 200",
            "mem c 400",
            "mem d 800",
            "pro a 1",
            "pro b 2",
            "pro c 4",
            "pro d 8",
        ],
        0,
    );
    check((8, 2), &[], &["mem a 100", "mem b 200", "pro a 1", "pro b 2"], 1212);
    check((3, 2), &[], &["mem a 100", "mem b 200", "pro a 1"], 1214);
    // Known ones win, and what is left goes to the first.
    check((4, 3), &known, &["mem a 100", "mem b 200", "pro c 4", "pro d 8"], 1203);
    check((2, 3), &known, &["pro c 4", "pro d 8"], 1503);
    check((1, 3), &known, &["pro c 4"], 1511);
    check((0, 0), &known, &[], 1515);
}

#[test]
fn sums_come_back_from_json() {
    let mut found = made([by(&["service_name"]), of(exact("work"), by(&[]))], &batch());
    let bounds = Bounds::new(SeriesLimits { all: 2, of_metric: 2 }, []);
    found.merge(Sums::default(), &bounds);
    assert!(found.overflow().samples > 0);
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Sums>(&json).unwrap(), found);
}

#[test]
fn a_preview_shows_the_largest_series_and_what_would_be_lost() {
    let mut batch = Batch::new();
    for number in 0..30 {
        add(&mut batch, CPU, &[("pod", &format!("p{number:02}"))], "work", number - 20);
    }
    add(&mut batch, CPU, &[("pod", &"x".repeat(70_000))], "work", 1);
    add(&mut batch, CPU, &[("pod", "p29"), ("p.od", "x"), ("p_od", "y")], "work", 100);
    let rule = rules([Draft { group_by: None, ..by(&[]) }]).remove(0);
    let found = preview(&rule, &Prefix::default(), &batch);
    assert_eq!((found.series, found.is_more, found.clashes, found.lost), (31, false, 1, 1));
    assert_eq!(found.examples.len(), 20);
    let first: Vec<_> = found.examples.iter().take(3).map(|it| it.sum.as_str()).collect();
    assert_eq!(first, ["100", "-20", "-19"]);
    assert!(found.examples[1].series.ends_with(r#"{pod="p00"}"#), "{}", found.examples[1].series);
}
