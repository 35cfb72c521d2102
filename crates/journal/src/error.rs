//! Errors.

use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be used.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process has the journal.
    #[error("{} is another process's", path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A file is none that a journal could have written.
    #[error("{}: byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// Readers hold on to what should go, or whoever has asked for it ([`Journal::hold`](crate::Journal::hold)).
    #[error("the journal is full: {bytes} bytes")]
    Full {
        /// How large it is.
        bytes: u64,
    },
    /// A payload is too long.
    #[error("a payload of {len} bytes, {max} is the most")]
    TooLong {
        /// How long it is.
        len: usize,
        /// How long it may be.
        max: usize,
    },
    /// A name that no reader can have.
    #[error("no name of a reader: {name:?}")]
    Name {
        /// The name.
        name: String,
    },
}

/// Or [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) trait On<T> {
    fn on(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T> On<T> for io::Result<T> {
    fn on(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { what, path: path.to_owned(), source })
    }
}
