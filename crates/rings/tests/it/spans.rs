//! Spans and events of applications, by the macros and by crate `tracing`.

use rings::{Door, OfSpan};
use tracepoint::layout::{Severity, SiteKind};
use tracepoint::{Context, Status};

use crate::peer::{Kept, KeptValue, Language, Read, comes, drain_all};

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const REMOTE: u64 = 0x00f0_67aa_0ba9_02b7;

fn read_of(language: Language, role: &str) -> (Vec<Read>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    let mut app = language.start(role, &path, &[]);
    let (_connection, rings) = comes(&door);
    let said = if role == "spans" { app.hears("contexts ") } else { String::new() };
    app.hears("written");
    let read = drain_all(&rings);
    app.ends();
    (read, said.split(' ').map(str::to_owned).collect())
}

fn of(record: &Kept) -> (&str, SiteKind, OfSpan) {
    (&record.name, record.kind, record.span.unwrap())
}

#[test]
fn spans_have_their_trace_their_parent_and_their_status() {
    Language::ALL.into_iter().for_each(check_spans);
}

fn check_spans(language: Language) {
    let (read, contexts) = read_of(language, "spans");
    let records = &read[0].records;
    let [sent, root] = [0, 1].map(|at| Context::from_traceparent(&contexts[at]).unwrap());
    let request = records[1].span.unwrap();
    assert_eq!((request.trace_id, request.parent_id), (TRACE, REMOTE));
    assert_eq!(sent.trace_id(), TRACE);
    let none = OfSpan { trace_id: 0, span_id: 0, parent_id: 0, status: Status::Unset };
    let request_end = OfSpan { parent_id: 0, ..request };
    let decode = OfSpan { span_id: sent.span_id(), ..request_end };
    let decode_begin = OfSpan { parent_id: request.span_id, ..decode };
    let decode_end = OfSpan { status: Status::Error, ..decode };
    let own = OfSpan { trace_id: root.trace_id(), span_id: root.span_id(), ..none };
    assert!(request.span_id != 0 && request.span_id != REMOTE && own.trace_id != TRACE);
    let expected = [
        ("before", SiteKind::SpanEvent, none),
        ("request", SiteKind::SpanBegin, request),
        ("decode", SiteKind::SpanBegin, decode_begin),
        ("inside", SiteKind::SpanEvent, decode),
        ("decode", SiteKind::SpanEnd, decode_end),
        ("after", SiteKind::SpanEvent, none),
        // Nothing of the trace that is not sampled.
        ("request", SiteKind::SpanEnd, request_end),
        ("root", SiteKind::SpanBegin, own),
        ("root", SiteKind::SpanEnd, own),
    ];
    assert_eq!(records.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(records[1].values, [KeptValue::Text(b"/a".to_vec(), 2)]);
    assert_eq!(records[2].values, [KeptValue::Unsigned(512)]);
}

#[test]
fn spans_and_events_of_crate_tracing_are_records() {
    let (mut read, _) = read_of(Language::Rust, "layer");
    read.sort_by_key(|read| read.records.len());
    let [elsewhere, records] = [0, 1].map(|at| &read[at].records);
    let [request, inner] = [0, 2].map(|at| records[at].span.unwrap());
    assert_eq!((request.trace_id, request.parent_id), (TRACE, REMOTE));
    assert_eq!((inner.trace_id, inner.parent_id), (TRACE, request.span_id));
    let ended = |span: OfSpan| OfSpan { parent_id: 0, ..span };
    let in_none = OfSpan { trace_id: 0, span_id: 0, parent_id: 0, status: Status::Unset };
    let found: Vec<_> = records.iter().map(|it| (it.kind, it.span.unwrap())).collect();
    let expected = [
        (SiteKind::SpanBegin, request),
        (SiteKind::SpanEvent, ended(request)),
        (SiteKind::SpanBegin, inner),
        (SiteKind::SpanEvent, ended(inner)),
        (SiteKind::SpanRecord, ended(request)),
        (SiteKind::SpanEnd, ended(inner)),
        (SiteKind::SpanEnd, ended(request)),
        (SiteKind::SpanEvent, in_none),
        (SiteKind::SpanEvent, in_none),
    ];
    assert_eq!(found, expected);
    assert_eq!(elsewhere[0].span, Some(ended(inner)));
    let text = |text: &str| KeptValue::Text(text.as_bytes().to_vec(), text.len() as u32);
    assert_eq!((&*records[0].name, &records[0].fields[..]), ("request", &["path".to_owned()][..]));
    assert_eq!(records[0].values, [text("/a")]);
    assert_eq!(records[1].severity, Severity::Warn);
    assert_eq!(records[1].fields, ["message", "code", "ratio", "ok", "kind"]);
    let values = [
        text("slow 7"),
        KeptValue::Signed(-5),
        KeptValue::Float(0.5),
        KeptValue::Bool(false),
        text("Some(1)"),
    ];
    assert_eq!(records[1].values, values);
    assert_eq!(
        (&records[4].fields[..], &records[4].values[..]),
        (&["bytes".to_owned()][..], &[KeptValue::Signed(512)][..])
    );
    let cut = &records[8];
    assert_eq!(cut.fields, ["message", "long", "after"]);
    let KeptValue::Text(kept, had) = &cut.values[1] else { panic!("{:?}", cut.values[1]) };
    assert!(
        kept.iter().all(|byte| *byte == b'x') && (2048..3584).contains(&kept.len()),
        "{}",
        kept.len()
    );
    assert_eq!((*had, &cut.values[2]), (20_000, &KeptValue::Signed(9)));
}
