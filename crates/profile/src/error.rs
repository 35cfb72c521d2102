//! What can go wrong.

/// Why a sample was not taken. Whoever adds samples counts these as losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The sample's time is not in the packet's window.
    #[error("a sample at {at_unix_ns} ns is outside the window")]
    OutsideWindow {
        /// The sample's time.
        at_unix_ns: u64,
    },
    /// The packet holds as much as a receiver must be ready to take: seal it and begin another.
    #[error("the packet is full")]
    Full,
    /// A process or frame of another builder.
    #[error("an id of another builder")]
    ForeignId,
    /// More frames than a stack may have.
    #[error("a stack of {frames} frames")]
    TooDeep {
        /// How many there were.
        frames: usize,
    },
    /// A value that this kind of sample cannot have: not 1 on a CPU, more than 2^63 - 1 off it.
    #[error("a sample of this kind cannot have the value {value}")]
    Value {
        /// The value.
        value: u64,
    },
}

/// Bytes that are no profile request, or one too large to be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wrong} at byte {offset}, in {path}")]
pub struct DecodeError {
    /// Where, in the bytes of the request.
    pub offset: usize,
    /// The message or field that was being read.
    pub path: &'static str,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What is wrong with the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The bytes end too early.
    #[error("{needed} bytes are needed, {present} are there")]
    Cut {
        /// Bytes that are announced.
        needed: usize,
        /// Bytes that are there.
        present: usize,
    },
    /// A varint of more than 64 bits.
    #[error("a number of more than 64 bits")]
    LongVarint,
    /// A field number or wire type that does not exist.
    #[error("no field has the key {key}")]
    Key {
        /// Number and type, as they stand there.
        key: u64,
    },
    /// A field of another wire type than its own.
    #[error("a field is not {expected}")]
    Type {
        /// What it should be.
        expected: &'static str,
    },
    /// A number that the field's type cannot hold.
    #[error("{value} is outside the field's range")]
    Range {
        /// The number.
        value: u64,
    },
    /// Text that is not UTF-8.
    #[error("text that is not UTF-8")]
    Text,
    /// A limit is passed.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much may be.
        limit: usize,
    },
    /// The compressed bytes are damaged.
    #[error("the compressed bytes are damaged")]
    Gzip,
}
