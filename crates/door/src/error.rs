//! What can go wrong.

use std::io;
use std::path::PathBuf;

use wire::door::{BadToken, Refusal};

use crate::tokens::BadTokens;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why files cannot be used, or a relay does not let a client in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file with a secret is open to others.
    #[error("{} holds a secret and is open to others (mode {mode:03o}); chmod 600 it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file is far longer than its like.
    #[error("{} is longer than {limit} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most bytes.
        limit: u64,
    },
    /// A PEM file lacks what it is for.
    #[error("{} holds no {what} in PEM form", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// A certificate or key cannot be used.
    #[error("{} cannot be used", path.display())]
    Unusable {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The TLS library refuses the settings.
    #[error("TLS settings")]
    Settings(#[source] rustls::Error),
    /// A certificate of a CA cannot be used for looking at certificates of clients.
    #[error("{} cannot be used", path.display())]
    Authority {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
    /// This system has no roots.
    #[error("this system has no CA certificates")]
    NoRoots,
    /// A file of one token does not hold one.
    #[error("{}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BadToken,
    },
    /// A file of tokens is not one.
    #[error("{}", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// What is wrong in which line.
        source: BadTokens,
    },
    /// A host that no certificate can be for.
    #[error("{host} is neither a host name nor an address")]
    Host {
        /// The host.
        host: String,
    },
    /// The handshake failed: the relay's certificate is not for its name or of no known CA, ours does not suit the relay, or
    /// it is no TLS port.
    #[error("TLS")]
    Handshake(#[source] io::Error),
    /// The relay ended the connection where it should have answered.
    #[error("the relay closed the connection during the handshake")]
    Closed,
    /// The relay does not let us in.
    #[error("{0}")]
    Refused(Refusal),
}
