//! Errors.

use std::io;
use std::path::PathBuf;

/// Why nothing can be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal cannot be used.
    #[error("cannot use the journal")]
    Journal(#[from] journal::Error),
    /// The socket for applications cannot be made.
    #[error("cannot listen at {}", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file or folder of a driver, or of the ledger, cannot be used.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file that this program wrote is damaged.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
    },
    /// The port for clients of Redis cannot be opened.
    #[error("cannot listen at {address}")]
    Port {
        /// Which.
        address: std::net::SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A thread or a runtime cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// A client for a target on the network cannot be made.
    #[error("cannot make a client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Or [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) trait On<T> {
    fn on(self, what: &'static str, path: &std::path::Path) -> Result<T>;
}

impl<T> On<T> for io::Result<T> {
    fn on(self, what: &'static str, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| Error::Io { what, path: path.to_owned(), source })
    }
}
