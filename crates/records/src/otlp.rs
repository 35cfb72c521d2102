//! Spans and events as requests of OTLP.

use std::collections::BTreeMap;

use tracepoint::layout::Status;
use wire::otlp::{
    KeyValue, LogRecord, LogsRequest, Resource, ResourceLogs, ResourceSpans, Scope, ScopeLogs,
    ScopeSpans, SpanEvent, TracesRequest, Value,
};

use crate::assemble::{Attribute, Bound, Event, Source, Span};
use crate::batch::Process;

/// `SPAN_KIND_INTERNAL`: what a tracepoint says nothing else of.
const INTERNAL: i32 = 1;
/// Bit 0 of W3C's flags: sampled. What is not is not recorded.
const SAMPLED: u32 = 1;

/// Attributes of a span that say which of its bounds is soft.
const SOFT_BEGIN: &str = "throughline.span.begin";
const SOFT_END: &str = "throughline.span.end";

/// A request with these spans, by process and module; `machine` are attributes of all processes.
#[must_use]
pub fn traces_request(spans: &[Span], machine: &[(String, String)]) -> TracesRequest {
    let mut by_process: BTreeMap<&Process, BTreeMap<&str, Vec<wire::otlp::Span>>> = BTreeMap::new();
    for it in spans {
        let scopes = by_process.entry(&it.source.process).or_default();
        scopes.entry(&it.target).or_default().push(span(it));
    }
    let resource_spans = by_process.into_iter().map(|(process, scopes)| ResourceSpans {
        resource: Some(resource(process, machine)),
        scope_spans: scopes
            .into_iter()
            .map(|(target, spans)| ScopeSpans {
                scope: Some(scope(target)),
                spans,
                ..ScopeSpans::default()
            })
            .collect(),
        ..ResourceSpans::default()
    });
    TracesRequest { resource_spans: resource_spans.collect() }
}

/// A request with these events as log records, which have names; as [`traces_request`].
#[must_use]
pub fn logs_request(events: &[Event], machine: &[(String, String)]) -> LogsRequest {
    let mut by_process: BTreeMap<&Process, BTreeMap<&str, Vec<LogRecord>>> = BTreeMap::new();
    for it in events {
        let scopes = by_process.entry(&it.source.process).or_default();
        scopes.entry(&it.target).or_default().push(log_record(it));
    }
    let resource_logs = by_process.into_iter().map(|(process, scopes)| ResourceLogs {
        resource: Some(resource(process, machine)),
        scope_logs: scopes
            .into_iter()
            .map(|(target, log_records)| ScopeLogs {
                scope: Some(scope(target)),
                log_records,
                ..ScopeLogs::default()
            })
            .collect(),
        ..ResourceLogs::default()
    });
    LogsRequest { resource_logs: resource_logs.collect() }
}

fn resource(process: &Process, machine: &[(String, String)]) -> Resource {
    let pid = if process.pid == 0 { process.own_pid } else { process.pid };
    let mut attributes = vec![
        KeyValue::new("service.name", Value::Text(process.service.clone())),
        KeyValue::new("process.pid", Value::Int(pid.into())),
    ];
    let machine = machine.iter().filter(|(key, _)| key != "service.name");
    attributes.extend(machine.map(|(key, value)| KeyValue::new(key, Value::Text(value.clone()))));
    Resource { attributes, ..Resource::default() }
}

fn scope(target: &str) -> Scope {
    Scope { name: target.to_owned(), ..Scope::default() }
}

fn span(span: &Span) -> wire::otlp::Span {
    let mut attributes = of_thread(&span.source);
    attributes.extend(key_values(&span.attributes));
    for (key, bound) in [(SOFT_BEGIN, span.begin), (SOFT_END, span.end)] {
        if matches!(bound, Bound::Soft(_)) {
            attributes.push(KeyValue::new(key, Value::Text("soft".to_owned())));
        }
    }
    let id = |id: u64| if id == 0 { Vec::new() } else { id.to_be_bytes().to_vec() };
    wire::otlp::Span {
        trace_id: span.trace_id.to_be_bytes().to_vec(),
        span_id: id(span.span_id),
        parent_span_id: id(span.parent_id),
        name: span.name.clone(),
        kind: INTERNAL,
        start_time_unix_nano: unix_ns(span.begin.time()),
        // A clock that was set meanwhile does not make a span that ends before it begins.
        end_time_unix_nano: unix_ns(span.end.time().max(span.begin.time())),
        attributes,
        events: span.events.iter().map(span_event).collect(),
        dropped_events_count: span.dropped_events,
        status: (span.status != Status::Unset).then(|| wire::otlp::Status {
            code: if span.status == Status::Ok { 1 } else { 2 },
            message: String::new(),
        }),
        flags: SAMPLED,
        ..wire::otlp::Span::default()
    }
}

fn span_event(event: &Event) -> SpanEvent {
    SpanEvent {
        time_unix_nano: unix_ns(event.time),
        name: event.name.clone(),
        attributes: key_values(&event.attributes).collect(),
        dropped_attributes_count: 0,
    }
}

fn log_record(event: &Event) -> LogRecord {
    let mut attributes = of_thread(&event.source);
    attributes.extend(key_values(&event.attributes));
    LogRecord {
        time_unix_nano: unix_ns(event.time),
        observed_time_unix_nano: unix_ns(event.time),
        severity_number: event.severity.into(),
        attributes,
        event_name: event.name.clone(),
        ..LogRecord::default()
    }
}

fn of_thread(source: &Source) -> Vec<KeyValue> {
    vec![
        KeyValue::new("thread.id", Value::Int(source.tid.into())),
        KeyValue::new("thread.name", Value::Text(source.thread.clone())),
    ]
}

fn key_values(attributes: &[(String, Attribute)]) -> impl Iterator<Item = KeyValue> {
    attributes.iter().map(|(key, value)| {
        let value = match value {
            Attribute::Text(text) => Value::Text(text.clone()),
            Attribute::Int(value) => Value::Int(*value),
            Attribute::Float(value) => Value::Double(*value),
            Attribute::Bool(value) => Value::Bool(*value),
            Attribute::Bytes(bytes) => Value::Bytes(bytes.clone()),
        };
        KeyValue::new(key, value)
    })
}

fn unix_ns(time: model::Timestamp) -> u64 {
    time.nanos().try_into().unwrap_or(0)
}
