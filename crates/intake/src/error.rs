//! Why a body or a profile is not taken.

use model::Nanos;
use wire::proto::{DecodeError, Wrong};

/// Why a body or a profile is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the message says of them")]
pub enum Error {
    /// The bytes are no such message, or too many.
    #[error(transparent)]
    Bytes(#[from] DecodeError),
    /// An id that nothing has.
    #[error("{from} {id} refers to {to} {target}, which is not there")]
    Dangling { from: &'static str, id: u64, to: &'static str, target: u64 },
    /// An id that two have.
    #[error("two {what}s have the id {id}")]
    Duplicate { what: &'static str, id: u64 },
    /// The id 0, which stands for nothing.
    #[error("{what} number {place} has the id 0")]
    ZeroId { what: &'static str, place: usize },
    /// String 0 is what fields have that say nothing.
    #[error("string 0 is {text:?} and not empty")]
    FirstString { text: String },
    /// A sample has a value for each sample type.
    #[error("sample number {place} has {found} values for {expected} sample types")]
    Values { place: usize, found: usize, expected: usize },
    /// A part of a profile type that cannot stand in one.
    #[error("{part} {text:?} {why}")]
    Type { part: &'static str, text: String, why: &'static str },
    /// Values of equal samples add up to more than can be written.
    #[error("the values of equal samples add up to more than 2^63 - 1")]
    Overflow,
    /// Samples that were taken too long ago.
    #[error("a sample is from {before} before its arrival; {limit} are taken")]
    TooOld { before: Nanos, limit: Nanos },
    /// Samples of the future.
    #[error("a sample is from {after} after its arrival; {limit} are taken")]
    TooNew { after: Nanos, limit: Nanos },
    /// A series with too many labels.
    #[error("{found} labels; {limit} are taken: {names}")]
    Labels { found: usize, limit: usize, names: String },
    /// A label's name that is too long.
    #[error("a label's name of {found} bytes; {limit} are taken: {begin}…")]
    LabelName { found: usize, limit: usize, begin: String },
    /// A label's value that is too long.
    #[error("the value of label {name} has {found} bytes; {limit} are taken")]
    LabelValue { name: String, found: usize, limit: usize },
    /// Text that is no JSON, or that of something else.
    #[error("JSON: {why}")]
    Json { why: String },
    /// A parameter of an address.
    #[error("parameter {parameter}: {value:?} {why}")]
    Query { parameter: &'static str, value: String, why: &'static str },
    /// A line of text.
    #[error("line {line}: {value:?} {why}")]
    Line { line: usize, value: String, why: &'static str },
    /// A body of several parts.
    #[error("the form {why}")]
    Form { why: &'static str },
    /// Samples without weights, or weights without samples.
    #[error("{found} weights for {expected} samples")]
    Weights { expected: usize, found: usize },
    /// A frame's begin or end.
    #[error("event number {event} {why}")]
    Event { event: usize, why: &'static str },
    /// Events with some times or values missing.
    #[error("sample number {place} has {times} times and {values} values")]
    Times { place: usize, times: usize, values: usize },
    /// A value of a recording of which nothing says what it is made of.
    #[error("the recording has a value of class {id} and no such class")]
    NoClass { id: i64 },
    /// Profiles whose tables were not sent.
    #[error("the request has profiles and no dictionary")]
    NoDictionary,
    /// Something that is not read here.
    #[error("{what} is not supported")]
    Unsupported { what: String },
    /// More bytes than a tenant may send.
    #[error("more than the rate that may be sent; again after {after}")]
    Rate { after: Nanos },
    /// A limit of size is passed.
    #[error("more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
}

/// What whoever sent it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Send something else: this is wrong, or from a time that is not taken.
    Invalid,
    /// Ask in another way: the address is wrong.
    Query,
    /// Send less at once.
    TooLarge,
    /// Send another format.
    Unsupported,
    /// Send it again later.
    Rate,
}

impl Error {
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        Self::Json { why: error.to_string() }
    }

    /// What whoever sent it can do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::TooMany { .. }
            | Self::Bytes(DecodeError { wrong: Wrong::TooMany { .. }, .. }) => ErrorKind::TooLarge,
            Self::Rate { .. } => ErrorKind::Rate,
            Self::Query { .. } => ErrorKind::Query,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Invalid,
        }
    }
}
