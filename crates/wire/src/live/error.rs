//! What can be wrong with bytes of the relay protocol.

use super::{Command, NameProblem};

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes are not a message of the relay protocol, or a message cannot be written as bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The payload ends inside a field.
    #[error("truncated: {field} at byte {offset} needs {needed} bytes, {left} are left")]
    Truncated {
        /// The field that did not fit.
        field: &'static str,
        /// Offset of the field from the start of the payload.
        offset: usize,
        /// Bytes the field needs.
        needed: usize,
        /// Bytes that were left.
        left: usize,
    },
    /// The command number is none we know.
    #[error("unknown command {number} at byte {offset} of the header")]
    UnknownCommand {
        /// The number found.
        number: u32,
        /// Where it stands, in bytes.
        offset: usize,
    },
    /// The announced payload is larger than the command may have.
    #[error("{command} announces {len} bytes of payload, at most {max} are accepted")]
    PayloadTooLarge {
        /// The command.
        command: Command,
        /// The announced length in bytes.
        len: u64,
        /// The maximum in bytes.
        max: u64,
    },
    /// A length or count inside a message is larger than allowed.
    #[error("{field} at byte {offset} is {len}, at most {max} is accepted")]
    LengthTooLarge {
        /// The field.
        field: &'static str,
        /// Offset of the field from the start of the payload.
        offset: usize,
        /// The value found.
        len: u64,
        /// The maximum.
        max: u64,
    },
    /// A field has a value outside its set.
    #[error("{field} at byte {offset} has the value {value}")]
    BadValue {
        /// The field.
        field: &'static str,
        /// Offset of the field from the start of the message.
        offset: usize,
        /// The value found.
        value: u64,
    },
    /// A name or path that must not be used for files.
    #[error("{field} at byte {offset} cannot be used: {problem}")]
    BadName {
        /// The field.
        field: &'static str,
        /// Offset of the field from the start of the payload; 0 for a name that is being made.
        offset: usize,
        /// What is wrong with it.
        problem: NameProblem,
    },
    /// The message does not exist in the protocol version spoken.
    #[error("{command} cannot be spoken with minor version {minor}")]
    NotInVersion {
        /// The command.
        command: Command,
        /// The negotiated minor version.
        minor: u32,
    },
}

/// What the receiver of a bad message should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The message is whole but asks for something refused: answer it with an error, keep the connection.
    Refused,
    /// The bytes are not the protocol: close the connection.
    Malformed,
}

impl Error {
    /// Whether the connection can go on after this error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BadName { .. } | Self::BadValue { .. } => ErrorKind::Refused,
            _ => ErrorKind::Malformed,
        }
    }
}
