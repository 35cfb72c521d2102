//! What can go wrong in a relay.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use wire::live::{ChunkId, NetSeqNum, RelaySessionId, ReturnCode, StreamHandle};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the relay could not start, or could not do what a peer asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A port could not be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// An address that other machines reach, and nobody said which of them may connect.
    #[error("{address} is open to other machines, and nobody said which of them may connect")]
    OpenAddress {
        /// The address.
        address: SocketAddr,
    },
    /// An encrypted port that would let everybody in.
    #[error(
        "the TLS port {address} has neither a CA for clients nor tokens: everybody could come in"
    )]
    Unguarded {
        /// Its address.
        address: SocketAddr,
    },
    /// A file of the encrypted port, or the CA of a URL, cannot be used.
    #[error("TLS")]
    Tls(#[from] door::Error),
    /// A producer may not record for this host.
    #[error("sessions of host {hostname:?} are not for this producer")]
    ForeignHost {
        /// The host that it named.
        hostname: String,
    },
    /// A file or folder could not be used.
    #[error("{action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path, relative to the root unless absolute.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another relay writes to the same root.
    #[error("{root} is in use by another relay")]
    RootInUse {
        /// The root.
        root: PathBuf,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread {
        /// Why.
        source: io::Error,
    },
    /// A connection failed.
    #[error("connection")]
    Connection(#[from] io::Error),
    /// Bytes from a peer are not the protocol, or ask for something refused.
    #[error("protocol")]
    Protocol(#[from] wire::live::Error),
    /// The peer ended inside a message.
    #[error("connection ended inside a message, {missing} bytes are missing")]
    CutShort {
        /// Bytes that were announced and did not come.
        missing: u64,
    },
    /// A request came before the one it depends on.
    #[error("{request} before {needed}")]
    OutOfOrder {
        /// What came.
        request: wire::live::Command,
        /// What had to come first.
        needed: wire::live::Command,
    },
    /// The peer's major version is not ours.
    #[error("peer speaks major version {major}, 2 is needed")]
    WrongMajor {
        /// Its major version.
        major: u32,
    },
    /// A control connection made no session in time.
    #[error("the producer made no session")]
    NoSession,
    /// A producer began a request and did not finish it within [`crate::Limits::request_timeout`].
    #[error("the rest of a request took too long, {missing} bytes are missing")]
    RequestUnfinished {
        /// Bytes that were announced and did not come.
        missing: u64,
    },
    /// A viewer asked before it said its version, or said nothing for too long.
    #[error("the viewer did not connect")]
    ViewerNotConnected,
    /// A viewer that follows no session said nothing for [`crate::Limits::viewer_idle`].
    #[error("the viewer follows no session and said nothing for too long")]
    ViewerIdle,
    /// A stream that does not exist or is not this connection's.
    #[error("stream {handle} does not belong to this connection")]
    UnknownStream {
        /// The handle.
        handle: StreamHandle,
    },
    /// A session that does not exist or is not this connection's.
    #[error("session {session} does not belong to this connection")]
    UnknownSession {
        /// The session.
        session: RelaySessionId,
    },
    /// A chunk that does not exist or is closed.
    #[error("chunk {chunk} does not exist")]
    UnknownChunk {
        /// The chunk.
        chunk: ChunkId,
    },
    /// A stream that left its chunk and entered none cannot take data.
    #[error("stream {handle} is in no chunk")]
    NoChunk {
        /// The handle.
        handle: StreamHandle,
    },
    /// A packet or index entry whose number is not after the one before.
    #[error("stream {handle}: packet {found} after packet {last}")]
    NotIncreasing {
        /// The stream.
        handle: StreamHandle,
        /// The number found.
        found: NetSeqNum,
        /// The number before.
        last: NetSeqNum,
    },
    /// A packet began while another one of its stream had not ended.
    #[error("stream {handle}: packet {found} within another one")]
    WithinPacket {
        /// The stream.
        handle: StreamHandle,
        /// The number of the packet that began.
        found: NetSeqNum,
    },
    /// The packet of an index entry will not come; a producer that can resume sends both again.
    #[error("stream {handle}: packet {number} was lost with its connection")]
    PacketLost {
        /// The stream.
        handle: StreamHandle,
        /// The packet.
        number: NetSeqNum,
    },
    /// A producer ended its connection while a request of it waited for room on the disk.
    #[error("the producer is gone; its request waited for room on the disk")]
    ProducerGone,
    /// The relay stopped while packets of a connection waited for room on the disk.
    #[error("{bytes} bytes of packets that arrived were not taken")]
    NotTaken {
        /// Bytes of them.
        bytes: u64,
    },
    /// The system gives no random numbers.
    #[error("no random number")]
    Random {
        /// Why.
        source: io::Error,
    },
    /// Data for a metadata stream, or metadata for a data stream.
    #[error("stream {handle} is of the other kind")]
    WrongKind {
        /// The handle.
        handle: StreamHandle,
    },
    /// A bound of [`crate::Limits`] was reached.
    #[error("limit of {what} reached: {limit}")]
    Limit {
        /// What there would be too many of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// A name the relay keeps for its own folders.
    #[error("path {path} is kept for the relay")]
    ReservedPath {
        /// The path.
        path: String,
    },
    /// A stream that is not below its session's folder, or whose path names no session.
    #[error("path {path} is not in the session's folder")]
    ForeignPath {
        /// The path.
        path: String,
    },
    /// A command or session of a protocol version that is too old for it.
    #[error("{what} with protocol 2.{minor}; 2.11 is needed")]
    TooOld {
        /// What was asked for.
        what: String,
        /// The minor version that is spoken.
        minor: u32,
    },
    /// A value that has no meaning.
    #[error("{what} cannot be")]
    Meaningless {
        /// The value.
        what: &'static str,
    },
    /// A chunk cannot be described in its manifest.
    #[error("cannot describe chunk {folder}")]
    Manifest {
        /// Its folder.
        folder: PathBuf,
        /// Why.
        source: Box<tracedir::Error>,
    },
    /// A journal file that is not ours.
    #[error("journal {path} cannot be read at line {line}")]
    Journal {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
}

impl Error {
    /// What the producer is told.
    pub(crate) const fn code(&self) -> ReturnCode {
        match self {
            Self::File { .. } => ReturnCode::FILE_CREATION,
            Self::Limit { .. } => ReturnCode::NO_MEMORY,
            Self::UnknownChunk { .. } | Self::OutOfOrder { .. } => ReturnCode::INVALID_PROTOCOL,
            Self::Protocol(_)
            | Self::UnknownStream { .. }
            | Self::UnknownSession { .. }
            | Self::NoChunk { .. }
            | Self::NotIncreasing { .. }
            | Self::WithinPacket { .. }
            | Self::ForeignHost { .. }
            | Self::WrongKind { .. }
            | Self::ReservedPath { .. }
            | Self::ForeignPath { .. }
            | Self::TooOld { .. }
            | Self::Meaningless { .. } => ReturnCode::INVALID,
            _ => ReturnCode::UNKNOWN_ERROR,
        }
    }
}

impl Error {
    /// Whether the disk is full, or what this user may take of it.
    pub(crate) fn is_no_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::File { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// Adds to an I/O error what was done to which file.
pub(crate) trait FileContext<T> {
    fn on(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn on(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| Error::File { action, path: path.into(), source })
    }
}

impl<T> FileContext<T> for rustix::io::Result<T> {
    fn on(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(io::Error::from).on(action, path)
    }
}
