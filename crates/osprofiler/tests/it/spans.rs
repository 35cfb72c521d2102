//! Begins and ends of points as spans.

use osprofiler::{Kind, Notification, OpenLimits, OpenLosses, Span, Spans, Value};

use crate::notification::with;

const REQUEST: &str =
    r#""request": {"path": "/\u00e4", "query": "", "method": "GET", "scheme": "http"}"#;
const HOST: &str = r#", "host": "node-1""#;

/// A notification of a point by its number, with what `info` has.
fn notification(number: u16, name: &str, microseconds: u32, info: &str) -> Notification {
    let id = format!("-{number:012}");
    let time = format!(".{microseconds:06}");
    let text = with(&[
        ("wsgi-start", name),
        ("-000000000001", &id),
        (".678901", &time),
        (REQUEST, info),
        (HOST, if info.is_empty() { "\"host\": \"node-1\"" } else { HOST }),
    ]);
    Notification::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What comes of notifications, and what was lost.
fn spans(limits: OpenLimits, notifications: &[Notification]) -> (Vec<Span>, OpenLosses, usize) {
    let (mut spans, mut out) = (Spans::new(limits), Vec::new());
    for notification in notifications {
        spans.add(notification, &mut out);
    }
    (out, spans.losses(), spans.len())
}

/// The span of one begin and one end.
fn span(name: &str, begin: &str, end: &str) -> Span {
    let start = notification(1, &format!("{name}-start"), 5, begin);
    let stop = notification(1, &format!("{name}-stop"), 9, end);
    spans(OpenLimits::default(), &[start, stop]).0.remove(0)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn a_request_is_named_and_described_as_for_otlp() {
    let span = span("wsgi", REQUEST, "");
    assert_eq!((span.name.as_str(), span.kind), ("WSGI_GET_/ä", Kind::Server));
    assert_eq!(span.trace_id, 0xbdb9_c1f0_0000_4000_8000_0123_4567_89ab);
    assert_eq!((span.span_id, span.parent_span_id), (0x9000_0000_0000_0001, None));
    let times = (span.start_ns, span.end_ns);
    assert_eq!(times, (1_767_323_045_000_005_000, Some(1_767_323_045_000_009_000)));
    let expected = [
        ("http.path", text("/ä")),
        ("http.query", text("")),
        ("http.method", text("GET")),
        ("http.scheme", text("http")),
    ];
    assert_eq!(span.attributes, expected);
    assert!(!span.is_error && span.message.is_none() && span.service.is_none());
    assert_eq!((span.project.as_deref(), span.host.as_deref()), (Some("nova"), Some("node-1")));
}

#[test]
fn other_points_are_named_and_described_as_for_otlp() {
    let db = span(
        "neutron.db",
        r#""db": {"statement": "select 1\nfrom t", "params": {"a": NaN}}"#,
        r#""db": {"result": "7"}"#,
    );
    assert_eq!((db.name.as_str(), db.kind), ("SQL_SELECT", Kind::Client));
    let expected = [
        ("db.statement", text("select 1\nfrom t")),
        ("db.params", text("{\"a\": NaN}")),
        ("result", text("7")),
    ];
    assert_eq!(db.attributes, expected);
    let http = span(
        "http",
        r#""requests": {"method": "PUT", "query": null, "path": "/", "hostname": "h", "port": 8774, "scheme": "http"}"#,
        r#""requests": {"status_code": 404}"#,
    );
    assert_eq!((http.name.as_str(), http.kind), ("REQUESTS_PUT_h", Kind::Client));
    assert!(http.attributes.contains(&("http.port", Value::Int(8774))));
    assert!(!http.attributes.iter().any(|(name, _)| *name == "http.query"));
    assert_eq!(http.attributes.last(), Some(&("status_code", Value::Int(404))));
    let call = span(
        "list_servers",
        r#""function": {"name": "a.b", "args": "(1,)", "kwargs": {"c": 1}}"#,
        r#""function": {"result": [1.5]}"#,
    );
    assert_eq!((call.name.as_str(), call.kind), ("list_servers", Kind::Internal));
    let json = |text: &str| Value::Json(text.to_owned());
    let expected = [
        ("args", text("(1,)")),
        ("kwargs", json("{\"c\": 1}")),
        ("name", text("a.b")),
        ("result", json("[1.5]")),
    ];
    assert_eq!(call.attributes, expected);
    for odd in ["\"db\": 7", "\"request\": {}", "\"db\": {\"x\": 1}", "\"requests\": \"x\""] {
        let span = span("driver", odd, odd);
        assert_eq!((span.name.as_str(), span.attributes.len()), ("driver", 0), "{odd}");
    }
}

#[test]
fn an_exception_is_an_error() {
    let failed = span("rpc", "", r#""etype": "ValueError", "message": "no \"x\"""#);
    assert!(failed.is_error);
    assert_eq!(failed.message.as_deref(), Some("no \"x\""));
    let expected = [
        ("error", Value::Bool(true)),
        ("error.kind", text("ValueError")),
        ("message", text("no \"x\"")),
    ];
    assert_eq!(failed.attributes, expected);
    let odd = span("rpc", "", r#""etype": "E", "message": {"a": 123456789012345678901}"#);
    assert_eq!(odd.message.as_deref(), Some("{\"a\": 123456789012345678901}"));
    assert!(!span("rpc", "", r#""etype": null"#).is_error);
}

#[test]
fn ends_find_their_begins_in_any_nesting_and_others_are_counted() {
    let at = |number, name: &str, time| notification(number, name, time, "");
    let (out, losses, open) = spans(
        OpenLimits::default(),
        &[
            at(1, "a-start", 1),
            at(2, "b-start", 2),
            at(3, "c-stop", 3),
            at(1, "a-stop", 4),
            at(2, "b-start", 5),
            at(2, "b-stop", 0),
            at(4, "d", 7),
        ],
    );
    let names: Vec<_> = out
        .iter()
        .map(|span| (span.name.as_str(), span.end_ns.map(|end| end - span.start_ns)))
        .collect();
    assert_eq!(names, [("a", Some(3000)), ("b", None), ("b", Some(0)), ("d", Some(0))]);
    assert_eq!(losses.by_reason(), [("evicted", 0), ("begun_again", 1), ("without_begin", 1)]);
    assert_eq!(open, 0);
}

#[test]
fn the_oldest_open_points_make_room() {
    let starts: Vec<_> =
        (1..=9).map(|number| notification(number, "a-start", number.into(), "")).collect();
    let (out, losses, open) = spans(OpenLimits { points: 4, bytes: 1 << 20 }, &starts);
    let ids: Vec<_> = out.iter().map(|span| span.span_id & 0xffff).collect();
    assert_eq!((ids, losses.evicted, open), (vec![1, 2, 3, 4, 5], 5, 4));
    assert!(out.iter().all(|span| span.end_ns.is_none()));
    let (_, losses, open) = spans(OpenLimits { points: 100, bytes: 2500 }, &starts);
    assert!((1..9).contains(&open), "{open}");
    assert_eq!(losses.evicted as usize, 9 - open);
    let large = notification(
        1,
        "a-start",
        1,
        &format!("\"function\": {{\"args\": \"{}\"}}", "x".repeat(5000)),
    );
    let (out, _, open) = spans(OpenLimits { points: 100, bytes: 2500 }, &[large]);
    assert_eq!((out.len(), open), (1, 0));
}

#[test]
fn open_points_can_be_taken_by_age() {
    let (mut spans, mut out) = (Spans::default(), Vec::new());
    for number in 1..=5 {
        spans.add(&notification(number, "a-start", number.into(), ""), &mut out);
    }
    spans.take_older(1_767_323_045_000_003_000, &mut out);
    assert_eq!((out.len(), spans.len(), spans.losses()), (2, 3, OpenLosses::default()));
    spans.take_older(u64::MAX, &mut out);
    assert!(spans.is_empty() && out.len() == 5);
}
