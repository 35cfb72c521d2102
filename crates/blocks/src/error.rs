//! What can go wrong.

use std::io;
use std::path::PathBuf;

use crate::id::BlockId;

/// Why a job cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Of the place where chunks or blocks are.
    #[error(transparent)]
    Objects(#[from] objects::Error),
    /// No chunk in a bucket: what has no manifest is not whole.
    #[error("{url}: no sealed chunk at or below it")]
    NoChunk {
        /// The place.
        url: String,
    },
    /// A manifest that cannot be used.
    #[error("{name}: {problem}")]
    Manifest {
        /// Of which chunk.
        name: String,
        /// Why.
        problem: String,
    },
    /// A file of a chunk is not what its manifest says.
    #[error("{name}: not the bytes that its manifest names")]
    Changed {
        /// The file.
        name: String,
    },
    /// What one window needs is more than the cache may hold.
    #[error(
        "a window needs chunks of {needed} bytes at once; the cache may hold {limit} (--cache-size)"
    )]
    CacheTooSmall {
        /// Bytes of its chunks.
        needed: u64,
        /// Bytes that the cache may hold.
        limit: u64,
    },
    /// The machine refuses.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Reading recordings failed.
    #[error(transparent)]
    Mapper(#[from] mapper::Error),
    /// Summaries do not merge, or are not summaries.
    #[error(transparent)]
    Summary(#[from] stitch::Error),
    /// What is sent cannot be encoded or decoded.
    #[error("cannot be encoded or decoded")]
    Encoding(#[from] postcard::Error),
    /// What was sent is no task.
    #[error("a task is refused: {0}")]
    Task(#[from] BadTask),
    /// A part of the work failed where it was done.
    #[error("{place}: {problem}")]
    Step {
        /// Where.
        place: String,
        /// Why.
        problem: String,
    },
    /// Neighbours do not merge where they were made.
    #[error("{problem}")]
    Stale {
        /// What one of them did not know.
        problem: String,
    },
    /// The same stretch came twice from the engine.
    #[error("windows {first} to {last} came twice")]
    Twice {
        /// The first window.
        first: usize,
        /// The last window.
        last: usize,
    },
    /// The engine ended and something is missing, again and again.
    #[error("{missing} steps were never done, also after {attempts} attempts in a row: {why}")]
    Incomplete {
        /// Steps without an outcome.
        missing: usize,
        /// How often it was tried.
        attempts: usize,
        /// What was lost last.
        why: String,
    },
    /// Nobody does any work.
    #[error("nobody is there to do the work: {}", [lost.as_slice(), tried.as_slice()].concat().join("; "))]
    Nobody {
        /// Who was tried last, and why they do not.
        tried: Vec<String>,
        /// Who was lost on the way.
        lost: Vec<String>,
    },
    /// It was told to stop.
    #[error("stopped; what is committed is not done again")]
    Stopped,
}

impl Error {
    /// Whether the same job, run again, goes on where this one ended: what it is of is not to blame.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        match self {
            Self::Incomplete { .. } => true,
            Self::Nobody { lost, .. } => !lost.is_empty(),
            _ => false,
        }
    }
}

/// Why the bytes of a task are not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadTask {
    /// Something else.
    #[error("it is none")]
    Magic,
    /// Another version of the program sent it.
    #[error("version {found}; this program reads {expected}")]
    Version {
        /// The version that was sent.
        found: u32,
        /// The version that this program sends and reads.
        expected: u32,
    },
    /// Its sender makes other summaries of the same events.
    #[error("its sender reads events in another way, or writes other summaries")]
    OtherReading,
    /// Longer than any.
    #[error("{len} bytes are too long")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// The body is not what a task is made of.
    #[error("its body cannot be decoded")]
    Body(#[source] postcard::Error),
    /// Its parts do not fit together.
    #[error("{0}")]
    Inconsistent(&'static str),
}

/// Why the bytes of a block are not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Something else, or nothing.
    #[error("not a block")]
    Magic,
    /// Another version of the program wrote it.
    #[error("block version {found}; this program reads {expected}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The version this program writes and reads.
        expected: u32,
    },
    /// The end is missing, or there is too much.
    #[error("its length is not the one that it announces")]
    Short,
    /// The bytes are not those that were written.
    #[error("its checksum is wrong")]
    Checksum,
    /// It is a block of another name.
    #[error("it is another block")]
    OtherName,
    /// The body is not what a block is made of.
    #[error("its body cannot be decoded")]
    Body(#[source] postcard::Error),
    /// The summary in it is damaged or of another version.
    #[error("its summary: {0}")]
    Summary(#[source] stitch::Error),
}

/// A block that was refused, by name.
#[derive(Debug, thiserror::Error)]
#[error("block {id} is refused and made again: {damage}")]
pub struct Refused {
    /// Which one.
    pub id: BlockId,
    /// Why.
    pub damage: Damage,
}
