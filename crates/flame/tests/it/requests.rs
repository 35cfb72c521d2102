//! Requests that are refused, and what becomes of the others.

use flame::{Aggregation, CallTree, Limits, Millis, Of, Rules, Steps, Walk};
use wire::pyroscope::{
    Code, Error, ExemplarType, GoPgo, HeatmapQueryType, Location, ProfileFormat,
    SelectHeatmapRequest, SelectMergeProfileRequest, SelectMergeSpanProfileRequest,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse, SelectSeriesRequest,
    StackTraceSelector, TimeSeriesAggregationType,
};

use super::samples::{CPU, batch, series};

const HOUR: i64 = 3_600_000;
const NOW: i64 = 1_000 * HOUR;

/// What makes a request wrong, and words of the refusal.
type Wrong<T> = (fn(&mut T), &'static str);

fn rules() -> Rules {
    Rules { limits: Limits::default(), now_ms: NOW }
}

fn merge() -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: CPU.to_owned(),
        label_selector: r#"{service_name="shop"}"#.to_owned(),
        start: NOW - HOUR,
        end: NOW,
        ..SelectMergeStacktracesRequest::default()
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<Option<T>, Error>, words: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains(words), "{}", error.message);
}

#[test]
fn ranges_are_bounded_and_moved() {
    let rules = rules();
    let time = |start, end| Ok(Some(Millis { start, end }));
    assert_eq!(rules.range(NOW - 24 * HOUR, NOW), time(NOW - 24 * HOUR, NOW));
    refused(rules.range(NOW - 24 * HOUR - 1, NOW), "86400 s long, which is more than 86400 s");
    refused(rules.range(NOW, NOW - 1), "before it starts");
    // Seven days back at most.
    let oldest = NOW - 7 * 24 * HOUR;
    assert_eq!(rules.range(0, oldest + HOUR), time(oldest, oldest + HOUR));
    assert_eq!(rules.range(0, oldest), Ok(None));
    assert_eq!(rules.range(NOW, NOW), Ok(None));
    assert_eq!(rules.range(i64::MIN, i64::MIN), Ok(None));
    refused(rules.range(0, i64::MAX), "more than");
    refused(rules.range(i64::MAX, i64::MIN), "before it starts");
    // Labels are listed for any length, and by default for all.
    assert_eq!(rules.range_of_labels(0, 0), time(oldest, NOW));
    assert_eq!(rules.range_of_labels(0, NOW), time(oldest, NOW));
    assert_eq!(rules.range_of_labels(5, 9), Ok(None));
    refused(rules.range_of_labels(9, 5), "before it starts");
}

#[test]
fn merges_take_all_that_is_selected() {
    let mut request = merge();
    request.max_nodes = Some(0);
    request.format = ProfileFormat::Tree.into();
    request.profile_id_selector = vec!["7c9e6679-7425-40de-944b-e07fc1f90ae7".to_owned()];
    request.span_selector = vec!["9A517183f26a089d".to_owned()];
    let site = |name: &str| Location { name: name.to_owned() };
    request.stack_trace_selector =
        Some(StackTraceSelector { call_site: vec![site("main"), site("work")], go_pgo: None });
    let question = rules().stacktraces(&request).unwrap().unwrap();
    assert_eq!((question.max_nodes, question.format), (8_192, ProfileFormat::Tree));
    assert_eq!(question.profile_type.to_string(), CPU);
    let selection = question.selection;
    assert_eq!(selection.time, Millis { start: NOW - HOUR, end: NOW });
    assert!(selection.profiles.contains(&0x7c9e_6679_7425_40de_944b_e07f_c1f9_0ae7));
    assert!(selection.spans.contains(&0x9a51_7183_f26a_089d));
    assert_eq!(selection.call_site, ["main", "work"]);
    assert!(selection.selector.matches(&series(&[("service_name", "shop")])));
    assert!(!selection.selector.matches(&series(&[("service_name", "cart")])));
    let other = model::samples::Series {
        profile_type: "a:b:c::".parse().unwrap(),
        ..series(&[("service_name", "shop")])
    };
    assert!(!selection.selector.matches(&other));

    let spans = SelectMergeSpanProfileRequest {
        profile_type_id: CPU.to_owned(),
        start: NOW - HOUR,
        end: NOW,
        span_selector: vec!["000000000000000f".to_owned()],
        max_nodes: Some(5),
        ..SelectMergeSpanProfileRequest::default()
    };
    let question = rules().span_profile(&spans).unwrap().unwrap();
    assert_eq!((question.max_nodes, question.selection.spans.contains(&15)), (5, true));
    let dot = SelectMergeSpanProfileRequest { format: ProfileFormat::Dot.into(), ..spans };
    refused(rules().span_profile(&dot), "flame graph or as tree");

    let profile = SelectMergeProfileRequest {
        profile_type_id: CPU.to_owned(),
        start: NOW - HOUR,
        end: NOW,
        stack_trace_selector: Some(StackTraceSelector {
            call_site: vec![site("ignored")],
            go_pgo: Some(GoPgo { keep_locations: 5, aggregate_callees: true }),
        }),
        ..SelectMergeProfileRequest::default()
    };
    let question = rules().profile(&profile).unwrap().unwrap();
    assert_eq!(question.walk, Walk { keep_leaves: 5, aggregate_callees: true });
    assert_eq!((question.max_nodes, question.selection.call_site.len()), (1 << 20, 0));
}

#[test]
fn merges_are_answered_in_the_format_that_was_asked_for() {
    let shop: &[(&str, &str)] = &[("service_name", "shop")];
    let batches = [
        batch(&[(shop, "main;work", NOW, 2, 1, 0), (shop, "main", NOW - 2 * HOUR, 9, 1, 0)]),
        batch(&[(shop, "main;idle", NOW - HOUR, 3, 2, 0), (&[], "main", NOW, 9, 1, 0)]),
    ];
    let mut tree = CallTree::new();
    tree.add_stack(["main", "work"], 2);
    tree.add_stack(["main", "idle"], 3);
    let answer = |format: ProfileFormat| {
        let request = SelectMergeStacktracesRequest { format: format.into(), ..merge() };
        let question = rules().stacktraces(&request).unwrap().unwrap();
        let mut merged = flame::MergedStacks::new(&question);
        batches.iter().for_each(|batch| merged.add(batch));
        merged.finish()
    };
    let expected = SelectMergeStacktracesResponse {
        flamegraph: Some(tree.flame_graph(100)),
        ..SelectMergeStacktracesResponse::default()
    };
    assert_eq!(answer(ProfileFormat::Unspecified), expected);
    assert_eq!(answer(ProfileFormat::Flamegraph), expected);
    assert_eq!(answer(ProfileFormat::Tree).tree, tree.encode());
    assert_eq!(answer(ProfileFormat::Dot).dot, tree.dot(100));
    let profile = answer(ProfileFormat::Pprof).pprof.unwrap().profile.unwrap();
    assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), 5);
    assert_eq!(profile.string_table[..5], ["", "cpu", "nanoseconds", "main", "idle"]);
}

#[test]
fn merges_that_cannot_be_answered_are_refused_in_words() {
    let cases: &[Wrong<SelectMergeStacktracesRequest>] = &[
        (|of| of.max_nodes = Some(-1), "max_nodes is -1, but must be from 0 to 1048576"),
        (|of| of.max_nodes = Some(1_048_577), "max_nodes is 1048577"),
        (|of| of.profile_type_id = "cpu".to_owned(), "\"cpu\" is no profile type"),
        (|of| of.label_selector = "{a".to_owned(), "at byte 2 of the selector"),
        (|of| of.start = NOW + 1, "before it starts"),
        (|of| of.format = 9, "there is no format 9"),
        (|of| of.profile_id_selector = vec!["x".to_owned()], "\"x\" is no UUID"),
        (|of| of.span_selector = vec!["+00000000000000f".to_owned()], "16 hexadecimal digits"),
        (|of| of.trace_id_selector = vec!["ab".to_owned()], "32 hexadecimal digits"),
        (|of| of.span_selector = vec!["0".repeat(16); 5000], "5000 spans are more than 4096"),
        (
            |of| {
                of.span_selector = vec!["0".repeat(16)];
                of.trace_id_selector = vec!["0".repeat(32)];
            },
            "cannot be selected together",
        ),
    ];
    for (change, words) in cases {
        let mut request = merge();
        change(&mut request);
        refused(rules().stacktraces(&request), words);
    }
    let empty = SelectMergeStacktracesRequest { start: NOW, ..merge() };
    assert!(rules().stacktraces(&empty).unwrap().is_none());
}

#[test]
fn series_have_a_step_a_limit_and_labels() {
    let request = SelectSeriesRequest {
        profile_type_id: CPU.to_owned(),
        start: NOW - HOUR,
        end: NOW,
        step: 15.0,
        group_by: vec!["pod".to_owned()],
        limit: Some(7),
        aggregation: Some(TimeSeriesAggregationType::Average.into()),
        exemplar_type: ExemplarType::Individual.into(),
        ..SelectSeriesRequest::default()
    };
    let (selection, question) = rules().series(&request).unwrap().unwrap();
    assert_eq!(question.steps, Steps { start: NOW - HOUR, end: NOW, step: 15_000 });
    assert_eq!(selection.time, Millis { start: NOW - HOUR - 14_999, end: NOW });
    assert_eq!(
        (question.aggregation, question.exemplars, question.limit),
        (Aggregation::Average, Some(Of::Profiles), Some(7))
    );
    let cases: &[Wrong<SelectSeriesRequest>] = &[
        (|of| of.step = 0.0009, "the step is 0.0009 s"),
        (|of| of.step = 0.0, "must be 1 ms or more"),
        (|of| of.step = -1.0, "the step is -1 s"),
        (|of| of.step = f64::NAN, "the step is NaN s"),
        (|of| of.step = f64::INFINITY, "the step is inf s"),
        (|of| of.limit = Some(-1), "the limit is -1"),
        (|of| of.aggregation = Some(2), "there is no aggregation 2"),
        (|of| of.exemplar_type = 4, "there are no exemplars 4"),
        (|of| of.exemplar_type = ExemplarType::Span.into(), "no spans as exemplars"),
        (|of| of.end = NOW - 2 * HOUR, "before it starts"),
    ];
    for (change, words) in cases {
        let mut wrong = request.clone();
        change(&mut wrong);
        refused(rules().series(&wrong), words);
    }
    let fine = SelectSeriesRequest { step: 0.001, limit: Some(0), ..request };
    let (_, question) = rules().series(&fine).unwrap().unwrap();
    assert_eq!((question.steps.step, question.limit), (1, None));
}

#[test]
fn heat_maps_show_examples_of_what_they_count() {
    let request = SelectHeatmapRequest {
        profile_type_id: CPU.to_owned(),
        start: NOW - HOUR,
        end: NOW,
        step: 60.0,
        query_type: HeatmapQueryType::Span.into(),
        exemplar_type: ExemplarType::Span.into(),
        ..SelectHeatmapRequest::default()
    };
    let (selection, question) = rules().heatmap(&request).unwrap().unwrap();
    assert_eq!((question.of, question.exemplars), (Of::Spans, true));
    assert_eq!(selection.time, Millis { start: NOW - HOUR, end: NOW });
    let cases: &[Wrong<SelectHeatmapRequest>] = &[
        (|of| of.query_type = 0, "query_type is not set"),
        (|of| of.query_type = 3, "there is no query type 3"),
        (|of| of.exemplar_type = ExemplarType::Individual.into(), "of what it counts"),
        (|of| of.step = 0.0, "the step is 0 s"),
    ];
    for (change, words) in cases {
        let mut wrong = request.clone();
        change(&mut wrong);
        refused(rules().heatmap(&wrong), words);
    }
}
