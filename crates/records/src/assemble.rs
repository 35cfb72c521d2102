//! Spans out of their begins, ends and events, which come from any ring, in any order among rings.
//!
//! A span is given once both ends are known and its [`Limits::linger`] is over, in which events of other threads come that were read later. One
//! whose other end does not come is given with a soft bound: after [`Limits::unfinished`], or at once when its process has ended or there
//! are too many. Times here are those at which entries were appended, so that the same entries give the same spans.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use model::Timestamp;
use rings::{Item, Record, Value};
use serde::{Deserialize, Serialize};
use tracepoint::layout::{SiteKind, Status};

use crate::batch::{Process, RingBatch};
use crate::error::Error;
use crate::notified::is_notification;

/// What is kept of spans that are not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many; those that were begun first are given as they are.
    pub partial: usize,
    /// Events of a span, and attributes; more events are counted, more attributes are left out.
    pub events: usize,
    /// How long a span may be open.
    pub unfinished: Duration,
    /// How long a whole span waits for events that other threads wrote.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            partial: 65_536,
            events: 128,
            unfinished: Duration::from_secs(3600),
            linger: Duration::from_secs(1),
        }
    }
}

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// Whose.
    pub process: Process,
    /// Its number, as the process sees it.
    pub tid: u32,
    /// What it was called.
    pub thread: String,
}

/// A begin or an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// It was recorded.
    Hard(Timestamp),
    /// A begin was before, or an end after this.
    Soft(Timestamp),
}

impl Bound {
    /// When.
    #[must_use]
    pub const fn time(self) -> Timestamp {
        match self {
            Self::Hard(time) | Self::Soft(time) => time,
        }
    }
}

/// Something that happened, in a span or in none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Where.
    pub source: Source,
    /// When.
    pub time: Timestamp,
    /// As the call site is named.
    pub name: String,
    /// The module of the call site.
    pub target: String,
    /// A number of OpenTelemetry's `SeverityNumber`; 0: nobody has said.
    pub severity: u8,
    /// Names and values of its fields.
    pub attributes: Vec<(String, Attribute)>,
}

/// A field's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Attribute {
    /// Text; what was not UTF-8 is replaced.
    Text(String),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Any bytes.
    Bytes(Vec<u8>),
}

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Where it began; where its end was written when that is all that is known.
    pub source: Source,
    /// Its trace.
    pub trace_id: u128,
    /// Its own id.
    pub span_id: u64,
    /// The span that it is in; 0 where a trace begins, or nothing is known of that.
    pub parent_id: u64,
    /// As the call site is named.
    pub name: String,
    /// The module of the call site.
    pub target: String,
    /// When it began.
    pub begin: Bound,
    /// When it ended.
    pub end: Bound,
    /// How it went.
    pub status: Status,
    /// Names and values of its fields.
    pub attributes: Vec<(String, Attribute)>,
    /// What happened in it, in order of time.
    pub events: Vec<Event>,
    /// Events that were left out.
    pub dropped_events: u32,
    /// Of how many records it was made, its events' among them.
    pub records: u32,
}

type Key = (u128, u64);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Began {
    source: Source,
    time: Timestamp,
    parent_id: u64,
    name: String,
    target: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ended {
    source: Source,
    time: Timestamp,
    status: u64,
    name: String,
    target: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Partial {
    /// Its place among all, by when its first record came.
    order: u64,
    /// When its first and its last record came.
    since: i64,
    latest: i64,
    began: Option<Began>,
    ended: Option<Ended>,
    attributes: Vec<(String, Attribute)>,
    events: Vec<Event>,
    dropped_events: u32,
    records: u32,
}

/// Puts spans together.
#[derive(Debug, Default)]
pub struct Assembler {
    limits: Limits,
    partial: HashMap<Key, Partial>,
    order: BTreeMap<u64, Key>,
    next: u64,
    spans: Vec<Span>,
    events: Vec<Event>,
}

impl Assembler {
    /// With these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes a batch in that was appended at a time, but for notifications of OSProfiler ([`ring_notifications`](crate::ring_notifications)).
    ///
    /// # Errors
    /// [`Error::Records`]: what is before the damage was taken.
    pub fn add(&mut self, batch: &RingBatch, appended: Timestamp) -> Result<(), Error> {
        batch.each(|item| {
            if let Item::Record(record) = item
                && !is_notification(record)
            {
                self.record(batch, record, appended);
            }
        })
    }

    /// What was appended before a time is all that there is, and a process has no more: its spans are given as they are.
    pub fn end_process(&mut self, process: &Process) {
        let is_of = |partial: &Partial| {
            let of_begin = partial.began.as_ref().map(|it| &it.source.process == process);
            let of_end = || partial.ended.as_ref().map(|it| &it.source.process == process);
            of_begin.or_else(of_end).unwrap_or_default()
        };
        let over = self.order.values().filter(|key| self.partial.get(key).is_some_and(is_of));
        over.copied().collect::<Vec<_>>().into_iter().for_each(|key| self.give(key));
    }

    /// Gives what is ready at a time: spans and events that are in none, each in the order in which they came.
    pub fn take(&mut self, now: Timestamp) -> (Vec<Span>, Vec<Event>) {
        let limits = self.limits;
        let ago = |since: i64| {
            Duration::from_nanos(now.nanos().saturating_sub(since).try_into().unwrap_or(0))
        };
        let is_ready = |partial: &Partial| {
            let is_whole = partial.began.is_some() && partial.ended.is_some();
            let patience = if is_whole { limits.linger } else { limits.unfinished };
            let since = if is_whole { partial.latest } else { partial.since };
            ago(since) >= patience
        };
        let ready = self.order.values().filter(|key| self.partial.get(key).is_some_and(is_ready));
        ready.copied().collect::<Vec<_>>().into_iter().for_each(|key| self.give(key));
        (std::mem::take(&mut self.spans), std::mem::take(&mut self.events))
    }

    /// How many spans are not given yet.
    #[must_use]
    pub fn partial(&self) -> usize {
        self.partial.len()
    }

    /// What is not given yet, as bytes, for the next process.
    ///
    /// # Errors
    /// [`Error::Form`]; there are no spans of which that is known.
    pub fn save(&self) -> Result<Vec<u8>, Error> {
        let partial: Vec<(&Key, &Partial)> =
            self.order.values().filter_map(|key| self.partial.get_key_value(key)).collect();
        Ok(postcard::to_allocvec(&partial)?)
    }

    /// Goes on with what was saved.
    ///
    /// # Errors
    /// [`Error::Form`].
    pub fn restore(limits: Limits, bytes: &[u8]) -> Result<Self, Error> {
        let mut assembler = Self::new(limits);
        for (key, partial) in postcard::from_bytes::<Vec<(Key, Partial)>>(bytes)? {
            let order = assembler.next;
            assembler.next += 1;
            assembler.order.insert(order, key);
            assembler.partial.insert(key, Partial { order, ..partial });
        }
        Ok(assembler)
    }

    fn record(&mut self, batch: &RingBatch, record: &Record<'_>, appended: Timestamp) {
        let span = record.span.filter(|span| span.span_id != 0);
        let Some(span) = span else {
            self.events.push(event(batch, record));
            return;
        };
        let limits = self.limits;
        let partial = self.partial_of((span.trace_id, span.span_id), appended);
        partial.records = partial.records.saturating_add(1);
        match record.site.kind {
            SiteKind::Event => {}
            SiteKind::SpanEvent if partial.events.len() < limits.events => {
                partial.events.push(event(batch, record));
            }
            SiteKind::SpanEvent => {
                partial.dropped_events = partial.dropped_events.saturating_add(1)
            }
            SiteKind::SpanRecord => {
                let room = limits.events.saturating_sub(partial.attributes.len());
                partial.attributes.extend(attributes(record).take(room));
            }
            SiteKind::SpanBegin => {
                partial.attributes.extend(attributes(record));
                partial.began = Some(Began {
                    source: source(batch),
                    time: batch.times.timestamp(record.time),
                    parent_id: span.parent_id,
                    name: record.site.name.clone(),
                    target: record.site.target.clone(),
                });
            }
            SiteKind::SpanEnd => {
                partial.ended = Some(Ended {
                    source: source(batch),
                    time: batch.times.timestamp(record.time),
                    status: span.status as u64,
                    name: record.site.name.clone(),
                    target: record.site.target.clone(),
                });
            }
        }
        while self.partial.len() > limits.partial {
            let Some((_, key)) = self.order.first_key_value() else { return };
            self.give(*key);
        }
    }

    fn partial_of(&mut self, key: Key, appended: Timestamp) -> &mut Partial {
        let (next, order) = (&mut self.next, &mut self.order);
        let partial = self.partial.entry(key).or_insert_with(|| {
            let at = *next;
            *next += 1;
            order.insert(at, key);
            Partial { order: at, since: appended.nanos(), ..Partial::default() }
        });
        partial.latest = appended.nanos();
        partial
    }

    fn give(&mut self, key: Key) {
        let Some(partial) = self.partial.remove(&key) else { return };
        self.order.remove(&partial.order);
        let Partial { began, ended, attributes, mut events, dropped_events, records, .. } = partial;
        events.sort_by_key(|event| event.time);
        let seen = events.iter().map(|event| event.time);
        let (began_at, ended_at) =
            (began.as_ref().map(|it| it.time), ended.as_ref().map(|it| it.time));
        let all = seen.chain(began_at).chain(ended_at);
        let soft = |time: Option<Timestamp>| Bound::Soft(time.unwrap_or(Timestamp::MIN));
        let begin = began_at.map_or_else(|| soft(all.clone().min()), Bound::Hard);
        let end = ended_at.map_or_else(|| soft(all.clone().max()), Bound::Hard);
        let status = ended.as_ref().and_then(|it| Status::from_code(it.status)).unwrap_or_default();
        let parent_id = began.as_ref().map_or(0, |it| it.parent_id);
        let of_begin = began.map(|it| (it.source, it.name, it.target));
        let known = of_begin.or_else(|| ended.map(|it| (it.source, it.name, it.target)));
        let Some((source, name, target)) = known else {
            // Events of a span of which neither end is known.
            self.events.extend(events);
            return;
        };
        let (trace_id, span_id) = key;
        let span = Span {
            source,
            trace_id,
            span_id,
            parent_id,
            name,
            target,
            begin,
            end,
            status,
            attributes,
            events,
            dropped_events,
            records,
        };
        self.spans.push(span);
    }
}

fn source(batch: &RingBatch) -> Source {
    Source {
        process: batch.process.clone(),
        tid: batch.ring.tid,
        thread: batch.ring.thread.clone(),
    }
}

fn event(batch: &RingBatch, record: &Record<'_>) -> Event {
    Event {
        source: source(batch),
        time: batch.times.timestamp(record.time),
        name: record.site.name.clone(),
        target: record.site.target.clone(),
        severity: record.site.severity as u8,
        attributes: attributes(record).collect(),
    }
}

fn attributes(record: &Record<'_>) -> impl Iterator<Item = (String, Attribute)> {
    let fields = &record.site.fields;
    record
        .fields()
        .filter_map(|(field, value)| Some((fields.get(field)?.0.clone(), attribute(value))))
}

fn attribute(value: Value<'_>) -> Attribute {
    match value {
        // What no attribute can be is told by its digits.
        Value::Unsigned(value) => i64::try_from(value)
            .map_or_else(|_too_large| Attribute::Text(value.to_string()), Attribute::Int),
        Value::Signed(value) => Attribute::Int(value),
        Value::Float(value) => Attribute::Float(value),
        Value::Bool(value) => Attribute::Bool(value),
        Value::Text(cut) => Attribute::Text(String::from_utf8_lossy(cut.bytes).into_owned()),
        Value::Bytes(cut) => Attribute::Bytes(cut.bytes.to_vec()),
    }
}
