//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why recordings cannot be analysed or summaries not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recordings come from several hosts; one analysis is about one.
    #[error("the recordings come from several hosts: {}", hosts.join(", "))]
    SeveralHosts {
        /// Their names.
        hosts: Vec<String>,
    },
    /// No stream has a packet with a time.
    #[error("nothing in the recording has a time")]
    NoTime,
    /// A folder that is not named as a rotation chunk.
    #[error("{} is not named as a rotation chunk", path.display())]
    NotAChunk {
        /// The folder.
        path: PathBuf,
    },
    /// Summaries cannot be stored or read.
    #[error("cannot use {}", path.display())]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Reading a recording failed.
    #[error("cannot read the recording")]
    Recording(#[source] Box<tracedir::Error>),
    /// An expression that begins or ends periods asks for what no event has.
    #[error("cannot look for periods")]
    Period(#[source] ctf::filter::FilterError),
    /// A summary cannot be read or does not merge.
    #[error(transparent)]
    Summary(Box<stitch::Error>),
}

impl From<tracedir::Error> for Error {
    fn from(error: tracedir::Error) -> Self {
        Self::Recording(Box::new(error))
    }
}

impl From<stitch::Error> for Error {
    fn from(error: stitch::Error) -> Self {
        Self::Summary(Box::new(error))
    }
}
