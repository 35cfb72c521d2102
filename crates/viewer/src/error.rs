use std::io;

use thiserror::Error;
use wire::live::Version;

/// Why a relay's sessions cannot be viewed any further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The relay cannot be reached.
    #[error("cannot connect to {address}")]
    Connect {
        /// Where it should be.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The relay's encrypted port does not let us in, or is not the relay's.
    #[error("cannot connect to {address}")]
    Tls {
        /// Where it should be.
        address: String,
        /// Why.
        source: door::Error,
    },
    /// The connection failed.
    #[error("the connection to the relay failed")]
    Io(#[source] io::Error),
    /// The relay closed the connection.
    #[error("the relay closed the connection")]
    Closed,
    /// A reply did not come in time.
    #[error("the relay did not answer for {seconds} s")]
    Silent {
        /// How long was waited.
        seconds: u64,
    },
    /// The caller does not want to wait any longer: see [`Stop`](crate::Stop).
    #[error("interrupted")]
    Stopped,
    /// What came is not the protocol.
    #[error("the relay's answer cannot be understood")]
    Protocol(#[from] wire::live::Error),
    /// It is another protocol.
    #[error("the relay speaks version {}.{} of the protocol, not 2", version.major, version.minor.0)]
    Version {
        /// Its version.
        version: Version,
    },
    /// The relay understood and refused.
    #[error("the relay refused: {0}")]
    Refused(Refusal),
    /// A session has more streams than are followed.
    #[error("the session has more than {limit} streams")]
    TooManyStreams {
        /// The most that are followed.
        limit: usize,
    },
}

/// Why a relay refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It makes no viewer session.
    #[error("no viewer session can be made")]
    ViewerSession,
    /// It serves one viewer for each session, and there is one.
    #[error("another viewer is attached to the session")]
    Taken,
    /// The session is not there, or not any more.
    #[error("there is no such session")]
    Unknown,
    /// The session was not made for being viewed.
    #[error("the session is not a live session")]
    NotLive,
    /// It cannot begin where it was asked to.
    #[error("it cannot begin there")]
    Seek,
}
