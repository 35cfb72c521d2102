//! What can be wrong with a message.

/// Bytes that are no such message, or one too large to be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wrong} at byte {offset}, in {path}")]
pub struct DecodeError {
    /// Where, in the bytes of the whole message.
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
