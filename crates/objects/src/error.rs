//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why objects cannot be put or had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a place that is known.
    #[error("{url}: not a folder, or a URL such as file:///folder or s3://bucket/prefix")]
    Url {
        /// What was given.
        url: String,
    },
    /// The client of object stores was left out.
    #[error("{url}: this build of throughline has no s3://: build it with --features object-store")]
    LeftOut {
        /// What was given.
        url: String,
    },
    /// The store, or the network to it, refuses.
    #[error("{url}: the store refuses {key}")]
    Store {
        /// The place.
        url: String,
        /// What in it.
        key: String,
        /// What it says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Something is longer than anything of its kind.
    #[error("{url}: {key} has {len} bytes; at most {most} are read")]
    TooLong {
        /// The place.
        url: String,
        /// What in it.
        key: String,
        /// Its length.
        len: u64,
        /// The longest that is read.
        most: u64,
    },
    /// A folder that another process has.
    #[error("{url} is used by another process")]
    Taken {
        /// The place.
        url: String,
    },
    /// The machine refuses.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}
