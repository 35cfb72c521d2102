//! A line of JSON for each record, and for each note of losses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Timestamp;
use rings::{Item, Record, Value};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use tracepoint::DropReason;
use tracepoint::layout::{Severity, SiteKind, Status};

use crate::batch::RingBatch;
use crate::error::Error;
use crate::notified::Notified;

/// Members stand in this order; those that say nothing are left out.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    service: &'a str,
    pid: u32,
    tid: u32,
    thread: &'a str,
    /// Memory file, place and generation.
    ring: &'a str,
    number: u64,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'a> {
    Record(Box<Of<'a>>),
    Dropped { dropped: Map<String, Json> },
}

#[derive(Serialize)]
struct Of<'a> {
    name: &'a str,
    kind: &'static str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    fields: Map<String, Json>,
    /// How long texts and bytes were that are not whole.
    #[serde(skip_serializing_if = "Map::is_empty")]
    cut_from: Map<String, Json>,
}

/// Writes the lines of a batch. Bytes are in base64, text that is not UTF-8 has U+FFFD for what is not; numbers that JSON does not know
/// (`NaN`, infinities) are texts.
///
/// # Errors
/// [`Error::Records`].
pub fn write_lines(batch: &RingBatch, into: &mut Vec<u8>) -> Result<(), Error> {
    let (inode, made) = batch.process.file;
    let ring = format!("{inode}.{made}-{}.{}", batch.ring.place, batch.ring.generation);
    // Notes of losses are numbered with the records.
    let mut number = batch.begin.number;
    batch.each(|item| {
        let (ticks, what) = match item {
            Item::Record(record) => (record.time, What::Record(Box::new(of(record)))),
            Item::Dropped { time, counts } => (*time, What::Dropped { dropped: by_reason(counts) }),
        };
        let line = Line {
            time: rfc3339(batch.times.timestamp(ticks)),
            service: &batch.process.service,
            pid: batch.process.pid,
            tid: batch.ring.tid,
            thread: &batch.ring.thread,
            ring: &ring,
            number,
            what,
        };
        number += 1;
        let written = serde_json::to_writer(&mut *into, &line);
        debug_assert!(written.is_ok(), "memory takes it, and no map has keys but texts");
        into.push(b'\n');
    })
}

/// A line of a notification that came over a connection.
#[derive(Serialize)]
struct NotifiedLine<'a> {
    time: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Json>,
    /// What is no JSON, such as one with `NaN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Writes a line for each of some notifications, which were appended at a time.
pub fn write_notified_lines(notified: &[Notified<'_>], appended: Timestamp, into: &mut Vec<u8>) {
    for it in notified {
        let (kind, base_id, key, bytes) = match it {
            Notified::Push { base_id, json } => ("notification", Some(*base_id), None, *json),
            Notified::Set { key, text } => ("text", None, Some(*key), *text),
        };
        let json = serde_json::from_slice::<Json>(bytes);
        let text = json.is_err().then(|| String::from_utf8_lossy(bytes).into_owned());
        let time = rfc3339(appended);
        let line = NotifiedLine { time, kind, base_id, key, notification: json.ok(), text };
        let written = serde_json::to_writer(&mut *into, &line);
        debug_assert!(written.is_ok(), "memory takes it, and no map has keys but texts");
        into.push(b'\n');
    }
}

fn of<'a>(record: &Record<'a>) -> Of<'a> {
    let site = record.site;
    let hex = |id: u64| (id != 0).then(|| format!("{id:016x}"));
    let span = record.span;
    let trace_id = span.map(|span| span.trace_id).filter(|id| *id != 0);
    let mut fields = Map::new();
    let mut cut_from = Map::new();
    for (field, value) in record.fields() {
        let Some((name, _)) = site.fields.get(field) else { continue };
        if let Value::Text(cut) | Value::Bytes(cut) = value
            && cut.bytes.len() < cut.had as usize
        {
            cut_from.insert(name.clone(), cut.had.into());
        }
        // Long JSON of OSProfiler is in pieces, one behind the other.
        match (fields.get_mut(name), json(value)) {
            (Some(Json::String(before)), Json::String(piece)) => before.push_str(&piece),
            (_, json) => drop(fields.insert(name.clone(), json)),
        }
    }
    Of {
        name: &site.name,
        kind: kind(site.kind),
        target: &site.target,
        severity: severity(site.severity),
        trace_id: trace_id.map(|id| format!("{id:032x}")),
        span_id: span.and_then(|span| hex(span.span_id)),
        parent_span_id: span.and_then(|span| hex(span.parent_id)),
        status: (site.kind == SiteKind::SpanEnd).then(|| status(span.map(|span| span.status))),
        fields,
        cut_from,
    }
}

fn json(value: Value<'_>) -> Json {
    match value {
        Value::Unsigned(value) => value.into(),
        Value::Signed(value) => value.into(),
        Value::Bool(value) => value.into(),
        Value::Float(value) => {
            serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Json::from)
        }
        Value::Text(cut) => String::from_utf8_lossy(cut.bytes).into(),
        Value::Bytes(cut) => STANDARD.encode(cut.bytes).into(),
    }
}

fn by_reason(counts: &[u64]) -> Map<String, Json> {
    let reasons = DropReason::ALL.into_iter().zip(counts);
    let reasons = reasons.filter(|(_, count)| **count > 0);
    reasons.map(|(reason, count)| (reason.name().to_owned(), Json::from(*count))).collect()
}

fn rfc3339(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(time.nanos().into());
    time.map(|time| format!("{time:.9}")).unwrap_or_default()
}

const fn kind(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::Event => "event",
        SiteKind::SpanBegin => "span_begin",
        SiteKind::SpanEnd => "span_end",
        SiteKind::SpanEvent => "span_event",
        SiteKind::SpanRecord => "span_record",
    }
}

const fn severity(severity: Severity) -> Option<&'static str> {
    match severity {
        Severity::Unspecified => None,
        Severity::Trace => Some("trace"),
        Severity::Debug => Some("debug"),
        Severity::Info => Some("info"),
        Severity::Warn => Some("warn"),
        Severity::Error => Some("error"),
    }
}

const fn status(status: Option<Status>) -> &'static str {
    match status {
        None | Some(Status::Unset) => "unset",
        Some(Status::Ok) => "ok",
        Some(Status::Error) => "error",
    }
}
