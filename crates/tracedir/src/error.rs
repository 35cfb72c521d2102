use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::correlate::Uncorrelated;
use crate::manifest::Difference;

/// Why a recording cannot be opened or listed at all. Damage inside of one is a [`Finding`](crate::Finding).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder or file cannot be listed, opened or read.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: Action,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A given path is not a folder.
    #[error("{} is not a folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Nothing below the given paths is a trace.
    #[error("no trace below {}: no folder there holds a file `metadata`", shown(paths))]
    NoTrace {
        /// The given paths.
        paths: Vec<PathBuf>,
    },
    /// Folders nest deeper than any recording does.
    #[error("{} lies more than {limit} folders deep", path.display())]
    TooDeep {
        /// The first folder beyond the limit.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// More trace folders than one reading may hold.
    #[error("more than {limit} {things} below the given paths, {} is one too many", path.display())]
    TooMany {
        /// What there is too much of.
        things: &'static str,
        /// The first beyond the limit.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The metadata file is larger than any real one.
    #[error("{} announces {len} bytes of metadata, the limit is {limit}", path.display())]
    MetadataTooLarge {
        /// The metadata file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The metadata file has no bytes: the recording was cut off before any arrived.
    #[error(
        "{} is empty, {stream_bytes} bytes of packets beside it cannot be read",
        path.display()
    )]
    MetadataEmpty {
        /// The metadata file.
        path: PathBuf,
        /// Bytes in the stream files of the same folder.
        stream_bytes: u64,
    },
    /// A folder is no sealed chunk.
    #[error("{} has no manifest that says it is complete{}", path.display(), problem.as_ref().map(|it| format!(": {it}")).unwrap_or_default())]
    NoManifest {
        /// The folder.
        path: PathBuf,
        /// What is wrong with the one that is there.
        problem: Option<Box<Difference>>,
    },
    /// Times of two traces cannot be put in one order.
    #[error("times cannot be compared: {0}")]
    Uncorrelated(Box<Uncorrelated>),
    /// No offset of a clock can say that its times are that much later.
    #[error("{}: clocks cannot be moved by {offset_ns} ns", path.display())]
    ClockOffset {
        /// The metadata file.
        path: PathBuf,
        /// By how much they should be moved, nanoseconds.
        offset_ns: i128,
    },
    /// The metadata cannot be understood.
    #[error("{}", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong and where.
        source: ctf::Error,
    },
}

/// What was tried on a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Listing a folder.
    List,
    /// Opening a file.
    Open,
    /// Reading a file.
    Read,
    /// Writing, renaming or removing a file.
    Write,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

impl Error {
    pub(crate) fn io(action: Action, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
