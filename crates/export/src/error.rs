//! What can go wrong besides receivers' answers.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source.
    #[error("cells from position {from} on cannot be read")]
    Source {
        /// The position.
        from: u64,
        /// Why not.
        source: io::Error,
    },
    /// The source has fewer cells than were sent of it.
    #[error("{intended} cells from position {from} on were being sent, the source has {found}")]
    Shrunk {
        /// The position.
        from: u64,
        /// How many were being sent.
        intended: usize,
        /// How many there are.
        found: usize,
    },
    /// The cursor.
    #[error("the cursor cannot be kept")]
    Cursor(#[source] io::Error),
    /// A file of a cursor that is damaged, or of another program.
    #[error("{} is no cursor: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Certificates, or a file with a secret.
    #[error(transparent)]
    Door(#[from] door::Error),
    /// A tenant that cannot be a header.
    #[error("the tenant cannot be sent: it has characters that no header may have")]
    Tenant,
    /// A name, password or token that cannot be a header.
    #[error("the token or password cannot be sent: it has characters that no header may have")]
    Credentials,
    /// A thread or its runtime.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}
