//! Begins and ends of points become spans, as OSProfiler's own driver for OTLP maps them (`osprofiler/drivers/otlp.py` of 4.4.0).
//!
//! | what a point's `info` has | name of the span | attributes |
//! |---|---|---|
//! | `request` | `WSGI_METHOD_PATH` | `http.path`, `http.query`, `http.method`, `http.scheme` |
//! | `db` | `SQL_` and the statement's first word | `db.statement`, `db.params` |
//! | `requests` | `REQUESTS_METHOD_HOSTNAME` | those of `request`, `http.hostname`, `http.port` |
//! | `function` | the point's | `args`, `kwargs`, `name` |
//!
//! The end adds `result`, `status_code`, and of an exception `error`, `error.kind` and `message`, with the status of an error. Times are
//! those of the notifications. Where that driver gives a name without `-start` it cuts letters; here it is the whole name.

use std::collections::{BTreeMap, HashMap};

use crate::json::Json;
use crate::notification::{Notification, Point};

/// What a span is to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It answers a request: the point's name has `wsgi` in it.
    Server,
    /// It asks another one: the point's name has `db`, `http` or `api` in it.
    Client,
    /// Neither.
    Internal,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Anything else, as JSON.
    Json(String),
}

/// What happened between a point's begin and end.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Of W3C's trace context, as the ids of spans are.
    pub trace_id: u128,
    /// The low half of the point's UUID.
    pub span_id: u64,
    /// `None` for a root.
    pub parent_span_id: Option<u64>,
    /// What happened.
    pub name: String,
    /// What it is to others.
    pub kind: Kind,
    /// Since the Unix epoch.
    pub start_ns: u64,
    /// `None` when the end did not come. Never before the begin.
    pub end_ns: Option<u64>,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether it ended by an exception.
    pub is_error: bool,
    /// What that says.
    pub message: Option<String>,
    /// Of the service.
    pub project: Option<String>,
    /// Of the project.
    pub service: Option<String>,
    /// Where it happened.
    pub host: Option<String>,
}

/// How much may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLimits {
    /// Points.
    pub points: usize,
    /// Bytes of all.
    pub bytes: usize,
}

impl Default for OpenLimits {
    fn default() -> Self {
        Self { points: 65_536, bytes: 64 << 20 }
    }
}

/// What did not become a whole span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenLosses {
    /// Points that came out without an end since others came.
    pub evicted: u64,
    /// Points that came out without an end since the same one began again.
    pub begun_again: u64,
    /// Ends whose begin is not there; they are dropped.
    pub without_begin: u64,
}

impl OpenLosses {
    /// Each count with its name.
    #[must_use]
    pub const fn by_reason(&self) -> [(&'static str, u64); 3] {
        let Self { evicted, begun_again, without_begin } = *self;
        [("evicted", evicted), ("begun_again", begun_again), ("without_begin", without_begin)]
    }
}

/// The trace's and the point's UUIDs.
type Id = (u128, u128);

/// The points that are open.
#[derive(Debug, Default)]
pub struct Spans {
    limits: OpenLimits,
    open: HashMap<Id, Open>,
    by_age: BTreeMap<u64, Id>,
    last_number: u64,
    bytes: usize,
    losses: OpenLosses,
}

#[derive(Debug)]
struct Open {
    number: u64,
    bytes: usize,
    span: Span,
    raw: Box<str>,
}

impl Spans {
    /// None yet.
    #[must_use]
    pub fn new(limits: OpenLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What was lost so far.
    #[must_use]
    pub const fn losses(&self) -> OpenLosses {
        self.losses
    }

    /// How many points are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a notification; the spans that come of it go to `out`: the one that ends with it, and those that make room, without an end.
    /// A point that neither begins nor ends is a span of no length.
    pub fn add(&mut self, notification: &Notification, out: &mut Vec<Span>) {
        let id = (notification.base_id, notification.trace_id);
        match notification.point {
            Point::Other => {
                let mut span = begin(notification);
                end(&mut span, notification);
                out.push(span);
            }
            Point::Start => self.start(id, notification, out),
            Point::Stop => match self.take(id) {
                Some(mut span) => {
                    end(&mut span, notification);
                    out.push(span);
                }
                None => self.losses.without_begin += 1,
            },
        }
    }

    /// All that began before a time, without an end; it counts as no loss.
    pub fn take_older(&mut self, begun_before_ns: u64, out: &mut Vec<Span>) {
        let is_old =
            |id: &&Id| self.open.get(id).is_some_and(|open| open.span.start_ns < begun_before_ns);
        let old: Vec<Id> = self.by_age.values().filter(is_old).copied().collect();
        out.extend(old.into_iter().filter_map(|id| self.take(id)));
    }

    /// The notifications with which points began that are open, in the order in which they came: added again, they are open again.
    pub fn open(&self) -> impl Iterator<Item = &str> {
        self.by_age.values().filter_map(|id| self.open.get(id)).map(|open| &*open.raw)
    }

    fn start(&mut self, id: Id, notification: &Notification, out: &mut Vec<Span>) {
        let (span, raw) = (begin(notification), Box::from(notification.raw()));
        if let Some(before) = self.take(id) {
            self.losses.begun_again += 1;
            out.push(before);
        }
        let bytes = size(&span) + notification.raw().len();
        self.last_number += 1;
        let number = self.last_number;
        self.bytes += bytes;
        self.by_age.insert(number, id);
        self.open.insert(id, Open { number, bytes, span, raw });
        while self.open.len() > self.limits.points || self.bytes > self.limits.bytes {
            let oldest = self.by_age.first_key_value().map(|(_, id)| *id);
            let Some(span) = oldest.and_then(|id| self.take(id)) else { break };
            self.losses.evicted += 1;
            out.push(span);
        }
    }

    fn take(&mut self, id: Id) -> Option<Span> {
        let Open { number, bytes, span, .. } = self.open.remove(&id)?;
        self.by_age.remove(&number);
        self.bytes -= bytes;
        Some(span)
    }
}

/// What an open point takes, about.
fn size(span: &Span) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let value = |value: &Value| match value {
        Value::Text(text) | Value::Json(text) => text.len(),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => 0,
    };
    let attribute = size_of::<(&str, Value)>();
    let values: usize = span.attributes.iter().map(|(_, it)| value(it) + attribute).sum();
    let texts = span.name.len() + text(&span.project) + text(&span.service) + text(&span.host);
    2 * size_of::<Open>() + texts + values
}

fn begin(notification: &Notification) -> Span {
    let info = notification.info();
    Span {
        trace_id: notification.base_id,
        span_id: notification.span_id(),
        parent_span_id: notification.parent_span_id(),
        name: name(notification, info),
        kind: kind(&notification.name),
        start_ns: notification.timestamp_ns,
        end_ns: None,
        attributes: attributes(info),
        is_error: false,
        message: None,
        project: notification.project.clone(),
        service: notification.service.clone(),
        host: notification.host.clone(),
    }
}

fn end(span: &mut Span, notification: &Notification) {
    let info = notification.info();
    span.end_ns = Some(notification.timestamp_ns.max(span.start_ns));
    let results = ["db", "function"].map(|call| info.get(call)?.get("result"));
    let result = results.into_iter().flatten().rfind(|result| result.is_truthy());
    let status = info.get("requests").and_then(|requests| requests.get("status_code"));
    for (name, found) in [("result", result), ("status_code", status)] {
        span.attributes.extend(found.and_then(value).map(|value| (name, value)));
    }
    let Some(exception) = info.get("etype").filter(|kind| kind.is_truthy()) else { return };
    let message = info.get("message");
    span.is_error = true;
    span.message = message.map(words);
    span.attributes.push(("error", Value::Bool(true)));
    for (name, found) in [("error.kind", Some(exception)), ("message", message)] {
        span.attributes.extend(found.and_then(value).map(|value| (name, value)));
    }
}

fn kind(name: &str) -> Kind {
    if name.contains("wsgi") {
        Kind::Server
    } else if ["db", "http", "api"].iter().any(|word| name.contains(word)) {
        Kind::Client
    } else {
        Kind::Internal
    }
}

/// What `info` tells of, in the order in which it is asked for it.
fn subject<'t>(info: Json<'t>, names: &[&'static str]) -> Option<(&'static str, Json<'t>)> {
    let found = names
        .iter()
        .find_map(|name| Some((*name, info.get(name)?)).filter(|(_, it)| it.is_truthy()));
    found.filter(|(_, it)| it.is_object())
}

fn name(notification: &Notification, info: Json<'_>) -> String {
    let part = |of: Json<'_>, field| of.get(field).map(words);
    let known = match subject(info, &["request", "db", "requests"]) {
        Some(("request", of)) => part(of, "method").zip(part(of, "path")).map(wsgi),
        Some(("db", of)) => part(of, "statement").map(|statement| sql(&statement)),
        Some((_, of)) => part(of, "method").zip(part(of, "hostname")).map(requests),
        None => None,
    };
    known.unwrap_or_else(|| notification.name.clone())
}

fn wsgi((method, path): (String, String)) -> String {
    format!("WSGI_{method}_{path}")
}

fn requests((method, host): (String, String)) -> String {
    format!("REQUESTS_{method}_{host}")
}

fn sql(statement: &str) -> String {
    let verb = statement.split(' ').next().unwrap_or_default();
    format!("SQL_{}", verb.to_uppercase())
}

fn attributes(info: Json<'_>) -> Vec<(&'static str, Value)> {
    const HTTP: [(&str, &str); 6] = [
        ("http.path", "path"),
        ("http.query", "query"),
        ("http.method", "method"),
        ("http.scheme", "scheme"),
        ("http.hostname", "hostname"),
        ("http.port", "port"),
    ];
    const FUNCTION: [(&str, &str); 3] = [("args", "args"), ("kwargs", "kwargs"), ("name", "name")];
    let Some((what, of)) = subject(info, &["db", "request", "requests", "function"]) else {
        return Vec::new();
    };
    let fields: &[(&'static str, &str)] = match what {
        "db" => &[("db.statement", "statement")],
        "function" => &FUNCTION,
        "requests" => &HTTP,
        _ => &HTTP[..4],
    };
    let field = |(name, field): &(&'static str, &str)| Some((*name, value(of.get(field)?)?));
    let mut attributes: Vec<_> = fields.iter().filter_map(field).collect();
    if let Some(params) = of.get("params").filter(|_| what == "db") {
        attributes.push(("db.params", Value::Text(params.as_str().to_owned())));
    }
    attributes
}

/// `None` for `null`.
fn value(json: Json<'_>) -> Option<Value> {
    let text = json.as_str();
    Some(match text.as_bytes() {
        b"null" => return None,
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        [b'"', ..] => Value::Text(words(json)),
        [b'{' | b'[', ..] => Value::Json(text.to_owned()),
        _ => match text.parse() {
            Ok(number) => Value::Int(number),
            Err(_no_i64) => number(text),
        },
    })
}

/// A whole number beyond 64 bits, or one that is not finite, stays text.
fn number(text: &str) -> Value {
    let is_whole = !text.contains(['.', 'e', 'E']);
    let number = text.parse::<f64>().ok().filter(|it| it.is_finite() && !is_whole);
    number.map_or_else(|| Value::Json(text.to_owned()), Value::Float)
}

/// As Python writes it: a text without quotes, `None` for `null`, and JSON for the rest.
fn words(json: Json<'_>) -> String {
    match json.text() {
        Some(text) => text.into_owned(),
        None if json.as_str() == "null" => "None".to_owned(),
        None => json.as_str().to_owned(),
    }
}
