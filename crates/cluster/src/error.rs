//! What can go wrong where workers are.

use std::io;

/// Why a worker, or a coordinator, cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No thread, or no socket.
    #[error("{what}")]
    Io {
        /// What was wanted.
        what: String,
        /// What the machine says.
        source: io::Error,
    },
    /// The server of a worker ended.
    #[error("the worker's server ended")]
    Server(#[from] tonic::transport::Error),
    /// Blocks cannot be named.
    #[error(transparent)]
    Blocks(#[from] blocks::Error),
}

/// A worker that does not answer, or not as one does.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker}: {why}")]
pub(crate) struct Lost {
    pub(crate) worker: String,
    pub(crate) why: String,
}
