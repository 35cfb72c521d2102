//! What applications recorded, as an agent keeps it and as others take it.
//!
//! ```text
//! words of a ring ─▶ RingBatch ─▶ bytes (an entry of a journal) ─▶ RingBatch ─┬▶ json: a line for each record
//!                                                                            └▶ Assembler ─▶ spans, events ─▶ otlp
//! ```
//! A batch can be read alone: it says which process, thread and ring its words are of, describes the call sites of its records and relates their
//! clock to the time of day. Pure: files, networks and clocks are the caller's.
//!
//! Vocabulary:
//! - **batch**: words of one ring that follow each other, kept as the application wrote them;
//! - **partial span**: a span of which the begin or the end is not known yet;
//! - **hard bound**: a begin or end that was recorded; **soft bound**: a time after, or before, which it must have been.

mod assemble;
mod batch;
mod error;
mod json;
mod notified;
mod otlp;
mod times;

pub use assemble::{Assembler, Attribute, Bound, Event, Limits, Source, Span};
pub use batch::{Process, RingBatch, RingId};
pub use error::Error;
pub use json::{write_lines, write_notified_lines};
pub use notified::{
    Notified, RingNotification, decode_notified, encode_notified, ring_notifications,
};
pub use otlp::{logs_request, traces_request};
pub use times::{Pair, Times};

/// What an entry of a journal holds. Numbers are written to disks, and never given to another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum EntryKind {
    /// A [`RingBatch`].
    Ring = 1,
    /// A process has ended, and its rings were read to their ends: a [`Process`].
    ProcessEnded = 2,
    /// Notifications of OSProfiler that came over a connection: some [`Notified`].
    Notified = 3,
}

impl EntryKind {
    /// As it is written.
    #[must_use]
    pub const fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Ring),
            2 => Some(Self::ProcessEnded),
            3 => Some(Self::Notified),
            _ => None,
        }
    }
}
