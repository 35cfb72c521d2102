//! Spans and log records of OpenTelemetry's protocol (OTLP 1.x): messages of `opentelemetry.proto.{common,resource,trace,logs}.v1` and of the
//! requests and answers of its collectors. What is not known of a message is passed over.

use prost::{Message, Oneof};

/// Statuses of HTTP after which the same request may be sent again; after no other (OTLP specification, "Failures").
#[must_use]
pub const fn may_be_repeated(status: u16) -> bool {
    matches!(status, 429 | 502 | 503 | 504)
}

/// A value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// Which kind, and what it is; none is a null.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<Value>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A truth value.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// An integer.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// A floating-point number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Values one after the other.
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    /// Values by names.
    #[prost(message, tag = "6")]
    List(KeyValueList),
    /// Any bytes.
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

/// Values one after the other.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayValue {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

/// Values by names.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValueList {
    /// The names and values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What it is.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

impl KeyValue {
    /// An attribute of this name.
    pub fn new(key: impl Into<String>, value: Value) -> Self {
        Self { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
    }
}

/// Who has made spans or log records.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// What is known of it.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
    /// Attributes that were left out.
    #[prost(uint32, tag = "2")]
    pub dropped_attributes_count: u32,
}

/// The library that has made them.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// What is known of it.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
    /// Attributes that were left out.
    #[prost(uint32, tag = "4")]
    pub dropped_attributes_count: u32,
}

/// A request to keep spans, and the same as `TracesData` in files.
#[derive(Clone, PartialEq, Message)]
pub struct TracesRequest {
    /// Spans by who has made them.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Spans of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// Whose.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// By library.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
    /// What names of the resource's attributes mean.
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// Spans of a library.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
    /// What names of attributes mean.
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// A span. Ids are bytes, the highest first: 16 of a trace, 8 of a span; none where there is none.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// Its trace.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its own.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// W3C's `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// The span that it is in.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What it is called.
    #[prost(string, tag = "5")]
    pub name: String,
    /// 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// When it began, in nanoseconds since the epoch.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// When it ended, in nanoseconds since the epoch.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is known of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Attributes that were left out.
    #[prost(uint32, tag = "10")]
    pub dropped_attributes_count: u32,
    /// What happened in it.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<SpanEvent>,
    /// Events that were left out.
    #[prost(uint32, tag = "12")]
    pub dropped_events_count: u32,
    /// Other spans.
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<Link>,
    /// Links that were left out.
    #[prost(uint32, tag = "14")]
    pub dropped_links_count: u32,
    /// How it went.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// W3C's flags in bits 0 to 7; 0x100 says that 0x200 is known, which says that the parent is elsewhere.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Something that happened in a span.
#[derive(Clone, PartialEq, Message)]
pub struct SpanEvent {
    /// When, in nanoseconds since the epoch.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// What.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What is known of it.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
    /// Attributes that were left out.
    #[prost(uint32, tag = "4")]
    pub dropped_attributes_count: u32,
}

/// Another span that a span has to do with.
#[derive(Clone, PartialEq, Message)]
pub struct Link {
    /// Its trace.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its own id.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// W3C's `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// What is known of it.
    #[prost(message, repeated, tag = "4")]
    pub attributes: Vec<KeyValue>,
    /// Attributes that were left out.
    #[prost(uint32, tag = "5")]
    pub dropped_attributes_count: u32,
    /// As those of a span.
    #[prost(fixed32, tag = "6")]
    pub flags: u32,
}

/// How a span went.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// Words for who looks for a fault.
    #[prost(string, tag = "2")]
    pub message: String,
    /// 0 unset, 1 well, 2 it failed.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// What a collector says of a request.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// What it did not take; none when it took all.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector did not take. It is not to be sent again.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// How many spans, or log records.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// A request to keep log records.
#[derive(Clone, PartialEq, Message)]
pub struct LogsRequest {
    /// Log records by who has made them.
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

/// Log records of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceLogs {
    /// Whose.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// By library.
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
    /// What names of the resource's attributes mean.
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// Log records of a library.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeLogs {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    /// The log records.
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
    /// What names of attributes mean.
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// A log record: one with a name is an event.
#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since the epoch.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// When it was seen, in nanoseconds since the epoch.
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    /// How severe it is; 0: nobody has said.
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    /// What its source calls that.
    #[prost(string, tag = "3")]
    pub severity_text: String,
    /// What it says.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// What is known of it.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    /// Attributes that were left out.
    #[prost(uint32, tag = "7")]
    pub dropped_attributes_count: u32,
    /// W3C's flags.
    #[prost(fixed32, tag = "8")]
    pub flags: u32,
    /// The trace it is of.
    #[prost(bytes = "vec", tag = "9")]
    pub trace_id: Vec<u8>,
    /// The span it is of.
    #[prost(bytes = "vec", tag = "10")]
    pub span_id: Vec<u8>,
    /// What happened.
    #[prost(string, tag = "12")]
    pub event_name: String,
}
