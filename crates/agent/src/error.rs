//! What can go wrong before anything runs.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an agent cannot start, or a sender be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder of the spool.
    #[error("cannot {step} {}", path.display())]
    Spool {
        /// What was to be done.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another agent has the spool.
    #[error("{} is the spool of another agent that runs", path.display())]
    Taken {
        /// The spool.
        path: PathBuf,
    },
    /// More targets than [`Target::MAX`](crate::Target::MAX), or none.
    #[error("{count} targets: there must be 1 to {}", crate::Target::MAX)]
    Targets {
        /// How many.
        count: usize,
    },
    /// The same target twice.
    #[error("the same target twice: {name}")]
    Twice {
        /// The target.
        name: String,
    },
    /// Certificates that are to be trusted.
    #[error(transparent)]
    Door(#[from] door::Error),
    /// A thread or its runtime.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Says which step failed.
pub(crate) trait Step<T> {
    fn on(self, step: &'static str, path: &std::path::Path) -> Result<T>;
}

impl<T> Step<T> for io::Result<T> {
    fn on(self, step: &'static str, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| Error::Spool { step, path: path.to_owned(), source })
    }
}
