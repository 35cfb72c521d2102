//! Answers of `/pyroscope/render`.

use flame::{
    CallTree, Limits, Millis, Rules, Steps, render, render_diff, timeline, timeline_steps,
};
use wire::pyroscope::Point;

use super::samples::{CPU, series};
use super::trees::tree;

const RULES: Rules = Rules {
    limits: Limits {
        max_range_ms: 86_400_000,
        max_lookback_ms: 604_800_000,
        default_nodes: 8,
        max_nodes: 16,
        max_items: 4,
    },
    now_ms: 1_000_000,
};

#[test]
fn queries_name_the_type_before_the_braces_or_in_them() {
    for query in [
        format!("{CPU}{{pod=\"a\"}}"),
        format!("{{__name__=\"{CPU}\", pod=\"a\"}}"),
        format!("{{pod=\"a\", __profile_type__=\"{CPU}:delta\"}}"),
    ] {
        let question = RULES.render(&query, (500, 900), None).unwrap().unwrap();
        assert_eq!((question.profile_type.to_string().as_str(), question.max_nodes), (CPU, 8));
        let selector = &question.selection.selector;
        assert!(selector.matches(&series(&[("pod", "a")])), "{query}");
        assert!(!selector.matches(&series(&[("pod", "b")])), "{query}");
    }
    for (query, words) in [
        ("process_cpu{}", "names 0 profile types"),
        ("{", "at byte 1"),
        ("a:b:c:d:e{__name__=\"a:b:c:d:f\"}", "names 2 profile types"),
    ] {
        let error = RULES.render(query, (500, 900), None).unwrap_err();
        assert!(error.message.contains(words), "{}", error.message);
    }
    assert!(RULES.render(CPU, (500, 900), Some(17)).is_err());
    assert!(RULES.render(CPU, (500, 500), None).unwrap().is_none());
}

#[test]
fn time_lines_have_steps_of_the_ladder() {
    let step = |seconds: i64| timeline_steps(Millis { start: 0, end: seconds * 1000 }).step / 1000;
    let expected = [
        (0, 15),
        (26_249, 15),
        (26_250, 20),
        (37_500, 30),
        (86_400, 60),
        (7 * 86_400, 300),
        (315_000, 300),
        (1_000_000_000, 10_800),
    ];
    for (seconds, expected) in expected {
        assert_eq!(step(seconds), expected, "{seconds}");
    }
}

#[test]
fn answers_are_plain_json() {
    let graph = tree(&[("main;work", 5), ("main", 1)]).flame_graph(10);
    let steps = Steps { start: 60_000, end: 120_000, step: 15_000 };
    let point = |timestamp, value| Point { timestamp, value, ..Point::default() };
    // The last is that of the end.
    let line = timeline(&[point(60_000, 2.0), point(90_000, 3.0), point(120_000, 9.0)], steps);
    let answer = render(graph, &CPU.parse().unwrap(), line.clone(), [("a".to_owned(), line)]);
    let line = r#"{"startTime":60,"samples":[2,0,3,0],"durationDelta":15,"watermarks":null}"#;
    let expected = r#"{"version":1,"flamebearer":{"names":["total","main","work"],"levels":[[0,6,0,0],[0,6,1,1],[1,5,5,2]],"#.to_owned()
        + r#""numTicks":6,"maxSelf":5},"metadata":{"format":"single","spyName":"","sampleRate":1000000000,"units":"samples","#
        + &format!(r#""name":"cpu"}},"timeline":{line},"groups":{{"a":{line}}},"heatmap":null}}"#);
    assert_eq!(serde_json::to_string(&answer).unwrap(), expected);

    let diff = CallTree::diff(&tree(&[("main", 1)]), &tree(&[("main", 2)]), 10);
    let answer = render_diff(diff, &"memory:alloc_space:bytes:space:bytes".parse().unwrap());
    let json = serde_json::to_string(&answer).unwrap();
    let expected = r#"{"version":1,"flamebearer":{"names":["total","main"],"levels":[[0,1,0,0,2,0,0],[0,1,1,0,2,2,1]],"#.to_owned()
        + r#""numTicks":3,"maxSelf":2},"metadata":{"format":"double","spyName":"","sampleRate":100,"units":"bytes","#
        + r#""name":"alloc_space"},"timeline":null,"groups":null,"heatmap":null,"leftTicks":1,"rightTicks":2}"#;
    assert_eq!(json, expected);
}
