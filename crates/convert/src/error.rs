use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ctf::DecodeError;
use ctf::writer::{ClassError, WriteError};
use thiserror::Error;

/// Why nothing was converted. Nothing is left behind then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The inputs cannot be read at all.
    #[error(transparent)]
    Read(Box<tracedir::Error>),
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: Action,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Metadata of no use.
    #[error("{}", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ctf::Error>,
    },
    /// There is something where the result should go.
    #[error("{} is there already and is no empty folder", path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
    /// Classes that the target has no form for, nor anything in their place.
    #[error("{}", path.display())]
    Class {
        /// The trace folder.
        path: PathBuf,
        /// Which class, and what is wrong.
        source: Box<ClassError>,
    },
    /// A value that does not fit where it should go.
    #[error("{}: packet at byte {offset_bytes}", path.display())]
    Value {
        /// The stream file.
        path: PathBuf,
        /// Where its packet begins.
        offset_bytes: u64,
        /// Which field, and what is wrong.
        source: Box<WriteError>,
    },
}

/// What was tried on a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Reading it.
    Read,
    /// Making it or writing to it.
    Write,
    /// Giving the result its name.
    Rename,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Rename => "rename the result to",
        })
    }
}

impl From<tracedir::Error> for Error {
    fn from(error: tracedir::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl Error {
    /// Whether the metadata of one folder are of no use.
    pub(crate) fn is_of_metadata(&self) -> bool {
        match self {
            Self::Metadata { .. } => true,
            Self::Read(error) => matches!(
                **error,
                tracedir::Error::MetadataEmpty { .. } | tracedir::Error::MetadataTooLarge { .. }
            ),
            _ => false,
        }
    }

    pub(crate) fn io(action: Action, path: &Path) -> impl FnOnce(io::Error) -> Self + use<'_> {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// What takes the place of classes that the target has no form for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What becomes of it.
    pub what: &'static str,
    /// How many fields or names of a trace's classes it concerns.
    pub count: u64,
}

/// Something that could not be read and is not in the result.
#[derive(Debug)]
pub struct Damage {
    /// The stream file.
    pub path: PathBuf,
    /// Where the packet that is hit begins.
    pub offset_bytes: u64,
    /// What is wrong.
    pub cause: Cause,
}

/// What is wrong with a packet.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Cause {
    /// Its bytes contradict the metadata.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The file ends inside of its header.
    #[error("the file ends inside of the packet's header")]
    CutHeader,
    /// It is longer than any that is read.
    #[error("the packet announces {announced} bytes, the limit is {limit}")]
    TooLong {
        /// The length it announces.
        announced: u64,
        /// The most that is taken.
        limit: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset_bytes, cause } = self;
        write!(f, "{}: packet at byte {offset_bytes}: {cause}", path.display())
    }
}
