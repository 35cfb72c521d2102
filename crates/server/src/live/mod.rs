//! What is being recorded right now, and how pages follow it.
//!
//! ```text
//! LiveSource (the caller's) ─ a thread for each page ─▶ TailSender ─▶ bounded queue ─▶ tail.rs ─▶ server-sent events ─▶ page
//! ```
//!
//! A page that reads slowly loses the oldest events that wait for it, whole, and is told how many.

pub(crate) mod endpoints;
mod queue;
mod request;

use serde::Serialize;

use crate::Snapshot;
pub use queue::{TailEvent, TailSender};
pub use request::{Begin, TailRequest};

/// Pages that follow at once. Each costs a thread of the source and up to [`MAX_WAITING_BYTES`].
pub const MAX_TAILS: usize = 32;
/// Events that wait for a page; it does not show more at once either.
pub const MAX_WAITING_EVENTS: usize = 2000;
/// Bytes of events that wait for a page.
pub const MAX_WAITING_BYTES: usize = 2 << 20;
/// The payload of one event is cut after so many bytes, and so are its contexts.
pub const MAX_FIELDS_BYTES: usize = 16 << 10;
/// Streams that a page is told of one by one; the busiest are.
pub const MAX_STREAMS_TOLD: usize = 256;

/// Gives what is being recorded.
pub trait LiveSource: Send + Sync + 'static {
    /// The sessions that can be followed ([`LiveSessions::to_json`]). What is ready: called on the thread that serves all
    /// connections.
    fn sessions_json(&self) -> Snapshot;

    /// Begins to follow a session, on a thread of the source's own: it ends when `tail` says that the page has left.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing was begun.
    fn follow(&self, request: TailRequest, tail: TailSender) -> Result<(), Refusal>;
}

/// Why a session is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The condition on fields cannot be understood.
    #[error("{message}")]
    Condition {
        /// What is wrong with it.
        message: String,
    },
    /// The source has no thread for it.
    #[error("the machine has no thread left for it")]
    Threads,
}

/// The sessions that can be followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LiveSessions {
    /// In the order they are shown in.
    pub sessions: Vec<LiveSession>,
    /// Why there may be others, one line for a reader.
    pub problem: Option<String>,
}

/// A recording session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveSession {
    /// The host that records it.
    pub host: String,
    /// Its name.
    pub name: String,
    /// Its streams, those of metadata included.
    pub streams: u32,
    /// Viewers, pages included.
    pub viewers: u32,
    /// Period of its live timer in microseconds; 0 without one.
    pub live_timer_us: u32,
    /// The format of its traces, such as `CTF 1.8`.
    pub format: &'static str,
    /// When it was first seen, milliseconds since 1970 by this machine's clock.
    pub since_ms: i64,
}

impl LiveSessions {
    /// The JSON document of `/api/v1/live/sessions`.
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            format: &'static str,
            #[serde(flatten)]
            sessions: &'a LiveSessions,
        }
        json(&Document { format: "throughline-live-sessions/1", sessions: self })
    }
}

/// How a tail stands, told about twice a second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TailState {
    /// Time since it began, in milliseconds, when the counts were taken.
    pub at_ms: u64,
    /// Event records that were read, also those that are not asked for.
    pub events: u64,
    /// Event records that were asked for.
    pub matched: u64,
    /// Event records that came too late for the order of time.
    pub late: u64,
    /// Places that could not be read.
    pub unreadable: u64,
    /// What was lost of all streams, also of those that are not told or have ended.
    pub lost: Lost,
    /// The streams; one may have the place of one that has ended.
    pub streams: Vec<StreamState>,
    /// Streams beyond [`MAX_STREAMS_TOLD`].
    pub more_streams: u64,
}

/// What was lost, as of one stream in [`StreamState`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Event records that the tracer had no room for.
    pub events: u64,
    /// Packets that are absent.
    pub packets: u64,
    /// Those of them that are known to be lost on the way.
    pub packets_network: u64,
}

impl Lost {
    /// Adds what was lost of a stream.
    pub const fn add(&mut self, stream: &StreamState) {
        self.events += stream.lost_events;
        self.packets += stream.lost_packets;
        self.packets_network += stream.lost_packets_network;
    }
}

/// One stream of events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StreamState {
    /// Its path, such as `ust/uid/0/64-bit/channel_0`.
    pub path: String,
    /// Its event records so far.
    pub events: u64,
    /// Event records that the tracer had no room for.
    pub lost_events: u64,
    /// Packets that are absent: overwritten by the tracer before they were sent, or lost on the way.
    pub lost_packets: u64,
    /// Those of them that are known to be lost on the way.
    pub lost_packets_network: u64,
}

/// Strings, integers and lists always have a JSON form.
fn json(value: &impl Serialize) -> String {
    #[expect(clippy::expect_used, reason = "strings, integers and lists always have a JSON form")]
    serde_json::to_string(value).expect("it has a JSON form")
}
