//! What a relay tells the rest of the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use wire::live::{ChunkId, UnixSeconds};

use crate::losses::Losses;

/// A recording session, as its producer names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingName {
    /// Host of the producer; empty for producers before LTTng 2.4.
    pub host: String,
    /// Name of the recording session; empty for producers before LTTng 2.4.
    pub session: String,
    /// Its folder, absolute.
    pub folder: PathBuf,
}

/// Something happened that others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A recording session began.
    SessionOpened(RecordingName),
    /// A trace chunk is complete, durable and in its last place.
    Sealed(Sealed),
    /// The data streams of a sealed chunk were compressed where they are.
    Compressed {
        /// Its folder, absolute.
        folder: PathBuf,
        /// Bytes of those streams.
        content_bytes: u64,
        /// Bytes of them compressed.
        compressed_bytes: u64,
    },
    /// A trace chunk was deleted on its producer's request (`lttng clear`).
    Cleared {
        /// The session.
        recording: RecordingName,
        /// The chunk.
        chunk: ChunkId,
    },
    /// A trace chunk is complete but could not be made durable or moved, and is not tried again before the next start: something is
    /// in its way ([`crate::Limits::seal_attempts`]), somebody has deleted it, or the relay ends; the log says why.
    SealFailed {
        /// The session.
        recording: RecordingName,
        /// The chunk.
        chunk: ChunkId,
        /// The folder it is in, absolute.
        folder: PathBuf,
    },
    /// A recording session ended; nothing more will come of it.
    SessionClosed(RecordingName),
}

/// A trace chunk in its last place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The session.
    pub recording: RecordingName,
    /// Its number in the session; 0 for producers before LTTng 2.11.
    pub chunk: ChunkId,
    /// The folder it is in, absolute. For a session that was never rotated this is the session's folder.
    pub folder: PathBuf,
    /// When it began, by the producer's clock; `None` for producers before LTTng 2.11.
    pub begin: Option<UnixSeconds>,
    /// When it ended, by the producer's clock; `None` when the producer went away without closing it.
    pub end: Option<UnixSeconds>,
    /// Its streams: the path of the first file of each without number of trace file, relative to `folder`, sorted.
    pub streams: Vec<PathBuf>,
    /// What was lost of which stream; only streams that lost something.
    pub losses: BTreeMap<PathBuf, Losses>,
}
