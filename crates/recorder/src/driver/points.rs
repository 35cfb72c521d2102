//! Points of OSProfiler as spans of OTLP.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Timestamp;
use osprofiler::{Kind, Notification, OpenLimits, Span, Spans, Value};
use records::{Error, Notified, RingBatch, decode_notified, ring_notifications};
use wire::otlp::{
    KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Status, TracesRequest, Value as Any,
};

/// How long a point may be open.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// Points that are open, and spans that are to be sent.
#[derive(Debug)]
pub(super) struct Points {
    open: Spans,
    ready: Vec<Span>,
    /// Notifications that are none of a span: not of a trace's point, or an end without a begin.
    of_none: u64,
}

impl Default for Points {
    fn default() -> Self {
        Self { open: Spans::new(OpenLimits::default()), ready: Vec::new(), of_none: 0 }
    }
}

impl Points {
    /// With points that were open.
    pub(super) fn restore(open: &[String]) -> Self {
        let mut points = Self::default();
        open.iter().for_each(|raw| points.add(raw.as_bytes()));
        points
    }

    pub(super) fn open(&self) -> Vec<&str> {
        self.open.open().collect()
    }

    pub(super) fn add_batch(&mut self, batch: &RingBatch) -> Result<(), Error> {
        ring_notifications(batch)?.iter().for_each(|it| self.add(&it.json));
        Ok(())
    }

    pub(super) fn add_entry(&mut self, payload: &[u8]) -> Result<(), Error> {
        for notified in decode_notified(payload)? {
            // A text says again what the end of a point says.
            if let Notified::Push { json, .. } = notified {
                self.add(json);
            }
        }
        Ok(())
    }

    fn add(&mut self, json: &[u8]) {
        match Notification::parse(json) {
            Ok(notification) => {
                let before = self.open.losses().without_begin;
                self.open.add(&notification, &mut self.ready);
                self.of_none += self.open.losses().without_begin - before;
            }
            Err(error) => {
                self.of_none += 1;
                tracing::debug!(
                    error = model::with_causes(&error),
                    "a notification that is no point of a trace is no span"
                );
            }
        }
    }

    /// How many notifications were none of a span, since this was asked last.
    pub(super) fn take_of_none(&mut self) -> u64 {
        std::mem::take(&mut self.of_none)
    }

    /// Whether there is nothing to be sent; what is open for too long is.
    pub(super) fn is_idle(&mut self, now: Timestamp) -> bool {
        let now_ns = u64::try_from(now.nanos()).unwrap_or(0);
        let before =
            now_ns.saturating_sub(u64::try_from(UNFINISHED.as_nanos()).unwrap_or(u64::MAX));
        self.open.take_older(before, &mut self.ready);
        self.ready.is_empty()
    }

    /// A request with at most so many of the spans, how many they are, and of how many notifications; nothing when there are none.
    pub(super) fn request(&self, most: usize) -> Option<(TracesRequest, usize, u64)> {
        let some = self.ready.get(..most).unwrap_or(&self.ready);
        let records = some.iter().map(|span| 1 + u64::from(span.end_ns.is_some())).sum();
        (!some.is_empty()).then(|| (request(some), some.len(), records))
    }

    /// So many have arrived.
    pub(super) fn sent(&mut self, len: usize) {
        self.ready.drain(..len.min(self.ready.len()));
    }
}

fn request(spans: &[Span]) -> TracesRequest {
    let mut by_service: BTreeMap<(String, Option<&str>), Vec<wire::otlp::Span>> = BTreeMap::new();
    for it in spans {
        by_service.entry((service(it), it.host.as_deref())).or_default().push(span(it));
    }
    let resource_spans = by_service.into_iter().map(|((service, host), spans)| {
        let mut attributes = vec![KeyValue::new("service.name", Any::Text(service))];
        attributes.extend(host.map(|host| KeyValue::new("host.name", Any::Text(host.to_owned()))));
        let scope = Scope { name: "osprofiler".to_owned(), ..Scope::default() };
        ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }
    });
    TracesRequest { resource_spans: resource_spans.collect() }
}

/// As OSProfiler's own driver for OTLP names it.
fn service(span: &Span) -> String {
    let parts = [&span.project, &span.service];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    parts.join("-")
}

fn span(it: &Span) -> wire::otlp::Span {
    let mut attributes: Vec<KeyValue> =
        it.attributes.iter().map(|(key, value)| KeyValue::new(*key, any(value))).collect();
    if it.end_ns.is_none() {
        attributes.push(KeyValue::new("throughline.span.end", Any::Text("soft".to_owned())));
    }
    let parent = it.parent_span_id.map(|id| id.to_be_bytes().to_vec());
    wire::otlp::Span {
        trace_id: it.trace_id.to_be_bytes().to_vec(),
        span_id: it.span_id.to_be_bytes().to_vec(),
        parent_span_id: parent.unwrap_or_default(),
        name: it.name.clone(),
        kind: match it.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        start_time_unix_nano: it.start_ns,
        end_time_unix_nano: it.end_ns.unwrap_or(it.start_ns),
        attributes,
        status: it
            .is_error
            .then(|| Status { message: it.message.clone().unwrap_or_default(), code: 2 }),
        flags: 1,
        ..wire::otlp::Span::default()
    }
}

fn any(value: &Value) -> Any {
    match value {
        Value::Text(text) | Value::Json(text) => Any::Text(text.clone()),
        Value::Int(value) => Any::Int(*value),
        Value::Float(value) => Any::Double(*value),
        Value::Bool(value) => Any::Bool(*value),
    }
}
