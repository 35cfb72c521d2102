//! What can be wrong with metadata and with packets.

use std::fmt;

use crate::clock::Uuid;

/// Any failure of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A metadata packet cannot be read.
    #[error("metadata packet at byte {offset_bytes}: {problem}")]
    MetadataPacket {
        /// Where the packet begins in the metadata file.
        offset_bytes: usize,
        /// What is wrong with it.
        problem: MetadataPacketProblem,
    },
    /// The metadata text cannot be read. For packetised metadata, offsets count the text without packet headers.
    #[error("metadata text, line {line}, byte {offset_bytes}: {problem}")]
    MetadataText {
        /// Where in the text.
        offset_bytes: usize,
        /// The same as a line number, from 1.
        line: usize,
        /// What is wrong there.
        problem: TextProblem,
    },
    /// CTF 2 metadata cannot be read. For packetised metadata, offsets count the text without packet headers.
    #[error("metadata fragment {fragment}, {path}{}line {line}, byte {offset_bytes}: {problem}",
        if path.is_empty() { "" } else { ", " })]
    MetadataJson {
        /// Where in the text.
        offset_bytes: usize,
        /// The same as a line number, from 1.
        line: usize,
        /// Which JSON object of the sequence, from 1.
        fragment: usize,
        /// Members and positions in it, as `payload-field-class.member-classes[2]`; empty for the fragment itself and
        /// for what is no JSON.
        path: String,
        /// What is wrong there.
        problem: TextProblem,
    },
    /// Neither packets, nor text that says `/* CTF 1.8`, nor a JSON text sequence.
    #[error("not CTF metadata: it begins with {found:02x?}")]
    NotMetadata {
        /// Up to the first eight bytes.
        found: Vec<u8>,
    },
    /// Metadata that arrive piece by piece cannot go on like this.
    #[error("metadata stream: {0}")]
    MetadataStream(MetadataStreamProblem),
    /// A packet cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// What is wrong with a metadata stream as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataStreamProblem {
    /// More metadata than is taken.
    #[error("is longer than {limit_bytes} bytes")]
    TooLong {
        /// The most that is taken.
        limit_bytes: usize,
    },
    /// A stream class with a lower id came after this one, which would change its position.
    #[error("declares a stream class before that of id {stream_class_id} later than that one")]
    Moved {
        /// The class that would move.
        stream_class_id: u64,
    },
}

/// What is wrong with one metadata packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataPacketProblem {
    /// Not the magic of a metadata packet in the byte order of the first.
    #[error("magic is {found:#010x}")]
    Magic {
        /// The 32 bits found.
        found: u32,
    },
    /// The file ends inside the packet.
    #[error("needs {needed} bytes and {available} are left")]
    Truncated {
        /// Bytes of the packet, as its header says, or of the header itself.
        needed: u64,
        /// Bytes that are left.
        available: u64,
    },
    /// Content and total sizes cannot both be right.
    #[error("content of {content_bits} bits in a packet of {total_bits} bits")]
    Sizes {
        /// Content size as announced.
        content_bits: u32,
        /// Packet size as announced.
        total_bits: u32,
    },
    /// Compressed, encrypted or checksummed metadata.
    #[error("uses a compression, encryption or checksum scheme, of which none is defined")]
    Scheme,
    /// Neither version 1.8 nor 2.
    #[error("is of CTF {major}.{minor}, neither 1.8 nor 2")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// Its trace UUID differs from the first packet's.
    #[error("belongs to trace {found}, not {expected}")]
    OtherTrace {
        /// The UUID of the first packet.
        expected: Uuid,
        /// This packet's UUID.
        found: Uuid,
    },
}

/// What is wrong with the metadata text at one place. Names are cut to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextProblem {
    /// A byte that begins no token.
    #[error("unexpected byte {0:#04x}")]
    Byte(u8),
    /// The text ends inside a comment, a literal, a block or a statement.
    #[error("the text ends inside {0}")]
    Unfinished(&'static str),
    /// A literal that is not one.
    #[error("malformed {0}")]
    Literal(&'static str),
    /// Another token than the grammar wants.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What the grammar wants.
        expected: &'static str,
        /// The token that is there.
        found: String,
    },
    /// A value that its attribute cannot take.
    #[error("`{attribute}` cannot be {found}")]
    Value {
        /// The attribute.
        attribute: &'static str,
        /// The value.
        found: String,
    },
    /// Something required is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Something occurs twice.
    #[error("{what} `{name}` is defined twice")]
    Duplicate {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A name that nothing before declares.
    #[error("{what} `{name}` is not declared before")]
    Unknown {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A field of the wrong class for its place.
    #[error("{what} must be {expected}")]
    Class {
        /// The field's place.
        what: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A length or selector reference that leads nowhere usable.
    #[error("reference `{path}`: {problem}")]
    Reference {
        /// As spelled.
        path: String,
        /// Why it cannot be used.
        problem: &'static str,
    },
    /// Something without which the trace cannot be read, and which this reader does not know.
    #[error("{what} `{name}` is not supported")]
    Unsupported {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// More of something than this reader takes.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The most that is taken.
        limit: u64,
    },
}

/// A packet or event record that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Where, in bits from the beginning of the packet.
    pub offset_bits: u64,
    /// How many event records of the packet precede; `None` in the packet header and context.
    pub event_index: Option<u64>,
    /// The field, as `scope.member.member`; empty when no single field is to blame.
    pub field: String,
    /// What is wrong.
    pub kind: DecodeErrorKind,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bit {} of the packet", self.offset_bits)?;
        if let Some(index) = self.event_index {
            write!(f, ", event record {index}")?;
        }
        if !self.field.is_empty() {
            write!(f, ", field {}", self.field)?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for DecodeError {}

/// What is wrong in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A field, or the padding before it, does not fit in the packet's content.
    #[error("needs content up to bit {end_bits}, which ends at bit {content_bits}")]
    BeyondContent {
        /// Where the field would end; `u64::MAX` when that is further than can be said.
        end_bits: u64,
        /// Where the content ends.
        content_bits: u64,
    },
    /// The data ends before the packet's announced end.
    #[error("the packet announces {announced_bits} bits and {available_bits} are there")]
    Truncated {
        /// As the packet says.
        announced_bits: u64,
        /// What there is.
        available_bits: u64,
    },
    /// A string without its terminating NUL in the content.
    #[error("the string has no end in the packet's content")]
    UnterminatedString,
    /// A length whose elements cannot fit in what is left of the content.
    #[error("{length} elements do not fit in the remaining {remaining_bits} bits")]
    Length {
        /// Elements announced.
        length: u64,
        /// Bits of content that are left.
        remaining_bits: u64,
    },
    /// More elements of no size in one packet than is taken.
    #[error("more than {limit} array elements of no size")]
    EmptyElements {
        /// The most that is taken.
        limit: u64,
    },
    /// A selector value for which the variant has no option.
    #[error("the variant has no option for selector {selector}")]
    NoOption {
        /// The selector's value.
        selector: i128,
    },
    /// An integer of variable length that needs more than 64 bits or ten bytes.
    #[error("the integer of variable length needs more than 64 bits")]
    Oversized,
    /// The byte order changes inside a byte.
    #[error("the byte order changes inside a byte")]
    ByteOrderChange,
    /// No event record class of this stream class has this id.
    #[error("no event record class has the id {id}")]
    UnknownEventClass {
        /// The id found.
        id: u64,
    },
    /// An event record of no bits at all would repeat for ever.
    #[error("the event record has no bits")]
    EmptyEvent,
    /// The time does not fit in 64 bits of nanoseconds.
    #[error("clock value {cycles} is outside of the years 1677 to 2262")]
    TimestampOverflow {
        /// The clock's value.
        cycles: u64,
    },
    /// The packet does not begin with the magic number.
    #[error("magic is {found:#x}, not 0xc1fc1fc1")]
    Magic {
        /// What it begins with.
        found: u64,
    },
    /// No data stream class has this id.
    #[error("no data stream class has the id {id}")]
    UnknownStreamClass {
        /// The id found.
        id: u64,
    },
    /// The packet does not say its stream class and there is not exactly one.
    #[error("the packet has no stream class id and there are {classes} data stream classes")]
    NoStreamClass {
        /// How many there are.
        classes: usize,
    },
    /// Content longer than the packet, or not in whole bytes, or shorter than its own header and context.
    #[error(
        "content of {content_bits} bits in a packet of {total_bits} bits whose header ends at bit {header_end_bits}"
    )]
    PacketSizes {
        /// Content length as announced.
        content_bits: u64,
        /// Total length as announced.
        total_bits: u64,
        /// Where header and context end.
        header_end_bits: u64,
    },
}

impl DecodeErrorKind {
    /// The length in bytes of a packet whose header contradicts itself, when it announces one all the same.
    #[must_use]
    pub fn packet_bytes(&self) -> Option<u64> {
        match self {
            Self::PacketSizes { total_bits, .. } => {
                Some(total_bits / 8).filter(|bytes| *bytes > 0 && total_bits % 8 == 0)
            }
            _ => None,
        }
    }

    /// The numbers of the message by their names, for programs.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, i128)> {
        match *self {
            Self::BeyondContent { end_bits, content_bits } => {
                vec![("end_bits", end_bits.into()), ("content_bits", content_bits.into())]
            }
            Self::Truncated { announced_bits, available_bits } => vec![
                ("announced_bits", announced_bits.into()),
                ("available_bits", available_bits.into()),
            ],
            Self::Length { length, remaining_bits } => {
                vec![("length", length.into()), ("remaining_bits", remaining_bits.into())]
            }
            Self::EmptyElements { limit } => vec![("limit", limit.into())],
            Self::NoOption { selector } => vec![("selector", selector)],
            Self::UnknownEventClass { id } | Self::UnknownStreamClass { id } => {
                vec![("id", id.into())]
            }
            Self::TimestampOverflow { cycles } => vec![("cycles", cycles.into())],
            Self::Magic { found } => vec![("found", found.into())],
            Self::NoStreamClass { classes } => {
                vec![("classes", i128::try_from(classes).unwrap_or(i128::MAX))]
            }
            Self::PacketSizes { content_bits, total_bits, header_end_bits } => vec![
                ("content_bits", content_bits.into()),
                ("total_bits", total_bits.into()),
                ("header_end_bits", header_end_bits.into()),
            ],
            Self::UnterminatedString
            | Self::Oversized
            | Self::ByteOrderChange
            | Self::EmptyEvent => Vec::new(),
        }
    }
}
