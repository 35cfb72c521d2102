//! Trace folders on disk: finds CTF traces and rotation chunks, opens their streams, merges them in time.
//!
//! In go paths, out come event records and losses of all traces below them, in one order that does not depend on
//! how the folders are listed. What cannot be read is reported and costs no more than its packet.
//!
//! Vocabulary:
//! - **trace folder** ([`TraceFolder`]): a folder with a file `metadata`; a *physical trace*;
//! - **logical trace** ([`LogicalTrace`]): all trace folders of one trace UUID and host, such as its rotation chunks;
//! - **stream** ([`Stream`]): one data stream over all files that hold its packets;
//! - **chunk** ([`Chunk`]): what a recording session wrote between two rotations;
//! - **loss** ([`Loss`]): counted by the tracer and not recorded; **finding** ([`Finding`]): recorded and not readable.
//!
//! What belongs together, and when files that only look so are kept apart, is written in [`Recording`] and
//! [`StreamKey`]; which clocks can be compared, in [`ClockOrigin`]. [`Follow`] reads a recording while it is written.
//!
//! Only regular files below the given paths are read, never through a symbolic link. Memory: one packet or 64 KiB of
//! each stream, the list of files, and [`ClassCache`].
//!
//! ```no_run
//! use model::TimeRange;
//! use tracedir::{Item, Recording};
//!
//! let recording = Recording::open(&["session/archives"])?;
//! let mut merged = recording.merged(TimeRange::ALL);
//! while let Some(item) = merged.next_item() {
//!     match item {
//!         Item::Event(event) => println!("{} {}", event.timestamp.nanos(), event.record.name()),
//!         Item::Loss(loss) => println!("{} lost", loss.count),
//!     }
//! }
//! assert!(merged.findings().is_empty() && recording.findings().is_empty());
//! # Ok::<(), tracedir::Error>(())
//! ```

mod check;
mod chunk;
mod classes;
mod compress;
mod correlate;
mod count;
mod digest;
mod discover;
mod error;
mod finding;
mod follow;
mod gaps;
mod heads;
mod index;
mod join;
mod lane;
pub mod manifest;
mod merge;
mod options;
mod recording;
pub mod seekable;
mod skip;
mod source;
mod stream;
mod survey;
mod turns;
mod window;

pub use check::{Checked, Detail, Problem, Remark, Shown, check};
pub use chunk::{
    ARCHIVES, Chunk, ChunkName, Missing, SessionChunks, UnsealedChunk, has_chunks, session_chunks,
};
pub use classes::{ClassCache, MAX_METADATA_BYTES};
pub use compress::{Repacked, compress_chunk, compress_loose, decompress_chunk, decompress_loose};
pub use correlate::{ClockGroup, ClockOfTrace, ClockOrigin, Uncorrelated};
pub use count::Counted;
pub use discover::{MAX_DEPTH, MAX_STREAM_FILES, StreamFile, TraceFolder, discover};
pub use error::{Action, Error};
pub use finding::{Cause, Finding, Findings};
pub use follow::{Follow, FollowOptions};
pub use gaps::{Gap, Gaps};
pub use index::IndexProblem;
pub use lane::{MAX_PACKET_BYTES, PacketEnds};
pub use merge::{Event, Item, Loss, LossKind, Merged};
pub use options::{Correlate, ReadOptions};
pub use recording::{LogicalTrace, Recording};
pub use source::{PacketSource, compressed_path};
pub use stream::{Stream, StreamCover, StreamKey};
pub use survey::StreamSurvey;
