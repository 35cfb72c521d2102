//! What a writer refuses.

use crate::class::CtfVersion;

/// Classes that cannot be written. Always a fault of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ClassError {
    /// Which class or field: names from the stream or event record class inwards, with dots between.
    pub place: String,
    /// What is wrong with it.
    pub problem: ClassProblem,
}

/// What is wrong with a class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassProblem {
    /// The version of the format has no such thing.
    #[error("{} has no {what}", version_name(*.version))]
    NotInVersion {
        /// The version.
        version: CtfVersion,
        /// What it does not have.
        what: &'static str,
    },
    /// A name that the version cannot spell.
    #[error("the name {name:?} cannot be spelled in TSDL")]
    Name {
        /// The name.
        name: String,
    },
    /// Two of one name, id or key.
    #[error("{what} {value} is there twice")]
    Duplicate {
        /// What it is of.
        what: &'static str,
        /// The name or number.
        value: String,
    },
    /// A width that a field of this kind cannot have.
    #[error("a width of {bits} bits")]
    Width {
        /// The width.
        bits: u8,
    },
    /// An alignment that is no power of two.
    #[error("an alignment of {align} bits")]
    Align {
        /// The alignment.
        align: u64,
    },
    /// No such clock in the trace.
    #[error("clock {index} of {clocks}")]
    Clock {
        /// The position that was named.
        index: usize,
        /// How many there are.
        clocks: usize,
    },
    /// A clock that counts nothing.
    #[error("a frequency of 0")]
    Frequency,
    /// A reference to a field that cannot be referred to from here.
    #[error("the field it refers to {why}")]
    Reference {
        /// Why not.
        why: &'static str,
    },
    /// Options or mappings that contradict each other or the selector.
    #[error("{0}")]
    Ranges(&'static str),
    /// Fields nested too deep.
    #[error("more than {limit} fields inside of each other")]
    Depth {
        /// The most there may be.
        limit: usize,
    },
    /// An event record class without id among several, or one whose id the header has no room for.
    #[error("the event record header has no room for the id {id}")]
    Id {
        /// The id.
        id: u64,
    },
    /// A header with times for event records without a clock.
    #[error("its event record header needs a clock")]
    NoClock,
}

const fn version_name(version: CtfVersion) -> &'static str {
    match version {
        CtfVersion::V1_8 => "CTF 1.8",
        CtfVersion::V2 => "CTF 2",
    }
}

/// Values that do not match their classes. Always a fault of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no such data stream class.
    #[error("no data stream class {0}")]
    NoStreamClass(u64),
    /// There is no such event record class.
    #[error("no event record class {0}")]
    NoClass(u64),
    /// A value of another kind than the next field.
    #[error("{field} is not {given}")]
    Kind {
        /// The field.
        field: String,
        /// What was given.
        given: &'static str,
    },
    /// A number that its field's width cannot hold.
    #[error("{field} cannot hold {value}")]
    Range {
        /// The field.
        field: String,
        /// The number.
        value: i128,
    },
    /// Another number of elements or bytes than the field has.
    #[error("{field} has a length of {expected}, not of {given}")]
    Length {
        /// The field.
        field: String,
        /// How many the class or the field that counts them says.
        expected: u64,
        /// How many were given.
        given: u64,
    },
    /// A selector that chooses no option.
    #[error("{field} has no option for {selector}")]
    NoOption {
        /// The variant.
        field: String,
        /// The selector's value.
        selector: i128,
    },
    /// A number that begins inside of a byte whose other bits are in another byte order.
    #[error("{field} changes the byte order inside of a byte")]
    ByteOrder {
        /// The field.
        field: String,
    },
    /// More array elements of no size than a reader goes through.
    #[error("{field} has more than {limit} elements of no size")]
    EmptyElements {
        /// The array.
        field: String,
        /// The most there may be.
        limit: u64,
    },
    /// One value more than there are fields.
    #[error("{given} after the last field")]
    Surplus {
        /// What was given.
        given: &'static str,
    },
    /// Fewer values than fields.
    #[error("{field} is missing")]
    Missing {
        /// The first field without a value.
        field: String,
    },
    /// A record that takes no bits: no reader could tell how many there are.
    #[error("the event record takes no bits")]
    Empty,
    /// The event record header is too narrow for the step from the time before.
    #[error("time {time} cannot be told from {last} in {bits} bits")]
    Time {
        /// The record's time.
        time: u64,
        /// The time before.
        last: u64,
        /// The header's width.
        bits: u8,
    },
    /// The record does not even fit in an empty packet.
    #[error("{bytes} bytes do not fit in a packet of {max_bytes}")]
    TooLarge {
        /// Size of the record, or of the packet's own fields.
        bytes: u64,
        /// The most a packet may hold.
        max_bytes: u64,
    },
}
