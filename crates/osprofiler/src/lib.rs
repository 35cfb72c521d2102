//! OSProfiler's notifications as services of OpenStack send them to a Redis server, and as spans.
//!
//! ```text
//! bytes of a client ─▶ Decoder ─▶ Session ─▶ Traces: lists of notifications, the newest first ─▶ replies
//! a notification's JSON ─▶ Notification ─▶ Spans ─▶ Span
//! X-Trace-Info, X-Trace-HMAC ─▶ Keys ─▶ TraceInfo
//! ```
//! A service with `connection_string = redis://…`, and `osprofiler trace show` and `trace list`, are answered as a Redis server does. Of its
//! commands there are those that clients need to connect, and those on lists and texts under OSProfiler's own keys. Sockets, files and clocks
//! are the caller's, who also decides when a connection ends and where a trace is kept.
//!
//! - **trace**: all notifications with the same `base_id`, which is its id in W3C's trace context too;
//! - **point**: what begins and ends, with a UUID, which the field calls `trace_id`; the low 64 bits are the id of its span;
//! - **notification**: the begin or the end of a point;
//! - **key**: `osprofiler_opt:BASE_ID` is a list of notifications, `osprofiler_error:BASE_ID` a text that says that a trace has an
//!   error, `osprofiler:…` a text with one notification, as services of 2018 and before wrote them.
//!
//! All that comes is checked before it takes memory, and nothing here panics on any bytes. A value is kept and given back byte for byte.
//!
//! ```
//! use osprofiler::{Limits, MemoryTraces, Next, Session};
//!
//! let mut traces = MemoryTraces::new(Limits::default());
//! let mut session = Session::new(1, None);
//! let mut replies = Vec::new();
//! let request = b"*3\r\n$5\r\nLPUSH\r\n$16\r\nosprofiler_opt:a\r\n$2\r\n{}\r\n";
//! assert_eq!(session.feed(request, &mut traces, &mut replies), Next::Read);
//! assert_eq!(replies, b":1\r\n");
//! ```
#![forbid(unsafe_code)]

mod commands;
mod header;
mod json;
mod memory;
mod notification;
pub mod resp;
mod session;
mod spans;
mod traces;

pub use header::{Error as HeaderError, Keys, TraceInfo};
pub use json::{Error as JsonError, Json, MAX_DEPTH, Wrong as JsonWrong};
pub use memory::{Limits, Losses, MemoryTraces};
pub use notification::{Error, MAX_NOTIFICATION_LEN, Notification, Point};
pub use session::{MAX_REPLIES_LEN, Next, Password, Session};
pub use spans::{Kind, OpenLimits, OpenLosses, Span, Spans, Value};
pub use traces::{Key, MAX_KEY_LEN, Page, StoreError, TextKey, Traces};
