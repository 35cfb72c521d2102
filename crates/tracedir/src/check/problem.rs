//! What can be wrong, and how it is told.

use std::fmt;
use std::path::PathBuf;

use ctf::MetadataWarning;
use model::with_causes;

use crate::error::Error;
use crate::finding::Cause;
use crate::index::IndexProblem;
use crate::manifest::Difference;

/// One thing that is wrong, and where.
#[derive(Debug)]
pub struct Remark {
    /// The file.
    pub path: PathBuf,
    /// Where the packet begins in it, bytes; absent for what is about the whole file.
    pub packet_offset_bytes: Option<u64>,
    /// Where in the packet, bits.
    pub offset_bits: Option<u64>,
    /// How many event records of the packet precede.
    pub event_index: Option<u64>,
    /// The field, as `scope.member.member`.
    pub field: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is wrong with metadata names the file itself.
        if !matches!(self.problem, Problem::Metadata(_)) {
            write!(f, "{}: ", self.path.display())?;
        }
        if let Some(offset) = self.packet_offset_bytes {
            write!(f, "packet at byte {offset}: ")?;
        }
        // What cannot be decoded says its place itself.
        let decode = matches!(
            self.problem,
            Problem::Unreadable(Cause::Damaged(_))
                | Problem::RestUnreadable { cause: Cause::Damaged(_), .. }
        );
        if let (Some(bits), Some(index), false) = (self.offset_bits, self.event_index, decode) {
            write!(f, "bit {bits} of the packet, event record {index}: ")?;
        }
        self.problem.fmt(f)
    }
}

/// What is wrong at one place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The metadata of a folder is of no use, and with it everything in the folder.
    #[error("{}", with_causes(.0))]
    Metadata(Error),
    /// The metadata says something that a reader reads past.
    #[error("{0}")]
    MetadataWarning(MetadataWarning),
    /// A packet or an event record cannot be decoded; the rest of the packet is lost.
    #[error("{0}")]
    Unreadable(Cause),
    /// No packet can be told from the rest of the file.
    #[error("{cause}; the remaining {lost_bytes} bytes cannot be read")]
    RestUnreadable {
        /// How much is lost, bytes.
        lost_bytes: u64,
        /// What is wrong.
        cause: Cause,
    },
    /// The index beside a stream file is of no use.
    #[error("{0}")]
    Index(IndexProblem),
    /// An index entry says something else than its packet.
    #[error("entry {entry} says {what} {indexed}, the packet {found}")]
    IndexDisagrees {
        /// Position of the entry in the index, from 0.
        entry: usize,
        /// What they disagree on.
        what: &'static str,
        /// The index's value.
        indexed: Shown,
        /// The packet's value.
        found: Shown,
    },
    /// The tracer had no room for event records.
    #[error("{count} event records were discarded in the time up to this packet's end")]
    DiscardedEventRecords {
        /// How many.
        count: u64,
    },
    /// Packets are absent before this one.
    #[error("{count} packets are lost before this one, by the sequence numbers")]
    LostPackets {
        /// How many.
        count: u64,
    },
    /// The sequence number does not go on from the packet before.
    #[error("sequence number {found} follows {before}")]
    SequenceBackward {
        /// The sequence number of the packet before.
        before: u64,
        /// This packet's.
        found: u64,
    },
    /// A packet that a tracer did not close.
    #[error("the packet was not closed: its end timestamp is 0")]
    Unclosed,
    /// A packet that ends before it begins.
    #[error("the packet begins at cycle {begin} and ends at cycle {end}")]
    Bounds {
        /// Begin timestamp, cycles.
        begin: u64,
        /// End timestamp, cycles.
        end: u64,
    },
    /// A packet begins before the one before it ended.
    #[error(
        "the packet begins at {begin_ns} ns, before the end of the one before it at {before_ns} ns"
    )]
    Overlap {
        /// Begin of this packet, nanoseconds.
        begin_ns: i64,
        /// End of the packet before, nanoseconds.
        before_ns: i64,
    },
    /// Event records lie outside of their packet's bounds; the place is that of the first.
    #[error(
        "{count} event records lie outside of the packet's bounds, the first at {at_ns} ns {side} {bound_ns} ns"
    )]
    OutsideBounds {
        /// How many in this packet.
        count: u64,
        /// Time of the first, nanoseconds.
        at_ns: i64,
        /// On which side of the bound.
        side: &'static str,
        /// The bound, nanoseconds.
        bound_ns: i64,
    },
    /// Event records are earlier than the one before them in the stream; the place is that of the first.
    #[error("{count} event records go back in time, the first to {at_ns} ns from {before_ns} ns")]
    TimeBackward {
        /// How many in this packet.
        count: u64,
        /// Time of the first, nanoseconds.
        at_ns: i64,
        /// Time of the event record before it, nanoseconds.
        before_ns: i64,
    },
    /// A sealed chunk is not what its manifest says.
    #[error("{0}")]
    Manifest(Difference),
    /// More of something than is listed one by one.
    #[error("{count} more {what}")]
    More {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
    },
}

/// A number that may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown(pub Option<u64>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

impl Problem {
    /// A short name for programs; the same for all remarks of one kind.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Metadata(_) => "metadata",
            Self::MetadataWarning(_) => "metadata-warning",
            Self::Unreadable(_) => "unreadable",
            Self::RestUnreadable { .. } => "rest-unreadable",
            Self::Index(_) => "index",
            Self::IndexDisagrees { .. } => "index-disagrees",
            Self::DiscardedEventRecords { .. } => "discarded-event-records",
            Self::LostPackets { .. } => "lost-packets",
            Self::SequenceBackward { .. } => "sequence-backward",
            Self::Unclosed => "unclosed",
            Self::Bounds { .. } => "bounds",
            Self::Overlap { .. } => "overlap",
            Self::OutsideBounds { .. } => "outside-bounds",
            Self::TimeBackward { .. } => "time-backward",
            Self::Manifest(_) => "manifest",
            Self::More { .. } => "more",
        }
    }
}

impl Problem {
    /// The numbers and words of the message by their names, for programs.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, Detail)> {
        let size = |size: usize| i128::try_from(size).unwrap_or(i128::MAX);
        let number = |name, number: i128| (name, Detail::Number(number));
        let numbers = |all: Vec<(&'static str, i128)>| {
            all.into_iter().map(|(name, value)| (name, Detail::Number(value))).collect()
        };
        match self {
            Self::Metadata(Error::Metadata { source, .. }) => match source {
                ctf::Error::MetadataText { offset_bytes, line, .. }
                | ctf::Error::MetadataJson { offset_bytes, line, .. } => {
                    vec![number("offset_bytes", size(*offset_bytes)), number("line", size(*line))]
                }
                ctf::Error::MetadataPacket { offset_bytes, .. } => {
                    vec![number("offset_bytes", size(*offset_bytes))]
                }
                _ => Vec::new(),
            },
            Self::Metadata(_) | Self::Unclosed => Vec::new(),
            Self::MetadataWarning(MetadataWarning { offset_bytes, line, .. }) => {
                vec![number("offset_bytes", size(*offset_bytes)), number("line", size(*line))]
            }
            Self::Unreadable(cause) => numbers(cause.values()),
            Self::RestUnreadable { lost_bytes, cause } => {
                let mut values: Vec<_> = numbers(cause.values());
                values.push(number("lost_bytes", (*lost_bytes).into()));
                values
            }
            Self::Index(IndexProblem::Contents(error)) => numbers(error.values()),
            Self::Index(IndexProblem::OtherPacket { offset_bytes }) => {
                vec![number("offset_bytes", (*offset_bytes).into())]
            }
            Self::Index(IndexProblem::Io(_)) => Vec::new(),
            Self::IndexDisagrees { entry, what, indexed, found } => {
                let mut values = vec![number("entry", size(*entry)), ("what", Detail::Word(what))];
                let both = [("indexed", indexed.0), ("found", found.0)];
                let there = |(name, value): (_, Option<u64>)| Some(number(name, value?.into()));
                values.extend(both.into_iter().filter_map(there));
                values
            }
            Self::DiscardedEventRecords { count } | Self::LostPackets { count } => {
                vec![number("count", (*count).into())]
            }
            Self::SequenceBackward { before, found } => {
                vec![number("before", (*before).into()), number("found", (*found).into())]
            }
            Self::Bounds { begin, end } => {
                vec![number("begin", (*begin).into()), number("end", (*end).into())]
            }
            Self::Overlap { begin_ns, before_ns } => vec![
                number("begin_ns", (*begin_ns).into()),
                number("before_ns", (*before_ns).into()),
            ],
            Self::OutsideBounds { count, at_ns, side, bound_ns } => vec![
                number("count", (*count).into()),
                number("at_ns", (*at_ns).into()),
                ("side", Detail::Word(side)),
                number("bound_ns", (*bound_ns).into()),
            ],
            Self::TimeBackward { count, at_ns, before_ns } => vec![
                number("count", (*count).into()),
                number("at_ns", (*at_ns).into()),
                number("before_ns", (*before_ns).into()),
            ],
            Self::Manifest(difference) => match difference {
                Difference::Length { found, expected } => {
                    vec![number("found", (*found).into()), number("expected", (*expected).into())]
                }
                Difference::Stream { what, found, expected } => {
                    let mut values = vec![("what", Detail::Word(what)), number("found", *found)];
                    values.extend(expected.map(|expected| number("expected", expected)));
                    values
                }
                Difference::Missing { bytes } => vec![number("bytes", (*bytes).into())],
                Difference::OtherStream { class_id, .. } => {
                    vec![number("class_id", (*class_id).into())]
                }
                Difference::Unreadable { .. }
                | Difference::Changed
                | Difference::Recompressed
                | Difference::Unnamed => Vec::new(),
            },
            Self::More { what, count } => {
                vec![("what", Detail::Word(what)), number("count", (*count).into())]
            }
        }
    }
}

/// A part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// A number.
    Number(i128),
    /// One of a few words.
    Word(&'static str),
}
