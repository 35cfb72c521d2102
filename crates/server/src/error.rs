use std::io;
use std::path::PathBuf;

/// Why the server could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listening socket does not say its own address, so requests cannot be checked against it.
    #[error("the listening socket has no address")]
    Listener {
        /// What the system said.
        source: io::Error,
    },
    /// A file of an answer folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of an answer folder is larger than any answer.
    #[error("{} has {len_bytes} bytes, more than the {max_bytes} of the largest answer", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The largest length accepted.
        max_bytes: u64,
    },
    /// A file of an answer folder is not JSON.
    #[error("{} is not JSON", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
}
