//! What a parsed expression is.

use std::cmp::Ordering;
use std::sync::Arc;

use super::pattern::Pattern;

#[derive(Debug, Clone)]
pub(super) enum Expr {
    /// All of them hold; there are at least two.
    All(Vec<Expr>),
    /// At least one holds; there are at least two.
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Test(Test),
}

/// One field and what must hold for it.
#[derive(Debug, Clone)]
pub(super) struct Test {
    pub(super) subject: Subject,
    /// Where the subject stands.
    pub(super) column: usize,
    pub(super) predicate: Predicate,
}

/// What a test looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    Name,
    Host,
    LogLevel,
    Env(String),
    Packet(PacketField),
    Field { place: Place, path: String },
}

/// Where a field is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    Payload,
    Contexts,
}

/// What packets say of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketField {
    CpuId,
    SequenceNumber,
    StreamClassId,
    StreamInstanceId,
    EventsDiscarded,
    ContentBits,
    TotalBits,
}

impl PacketField {
    /// By the names that CTF 1.8 gives them, and short ones.
    pub(super) const NAMES: [(&'static str, Self); 9] = [
        ("cpu_id", Self::CpuId),
        ("seq_num", Self::SequenceNumber),
        ("packet_seq_num", Self::SequenceNumber),
        ("stream_id", Self::StreamClassId),
        ("stream_instance_id", Self::StreamInstanceId),
        ("events_discarded", Self::EventsDiscarded),
        ("content_size", Self::ContentBits),
        ("packet_size", Self::TotalBits),
        ("total_size", Self::TotalBits),
    ];
}

#[derive(Debug, Clone)]
pub(super) enum Predicate {
    Exists,
    Compare(Comparison, Literal),
    /// Fits a pattern, or does not when `negated`.
    Match {
        pattern: Arc<Pattern>,
        negated: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    /// From −2⁶³ to 2⁶⁴ − 1.
    Integer(i128),
    Float(f64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Whether two values in this order satisfy it; `None`: one of them is not a number, and differs from everything.
    #[inline]
    pub(super) fn holds(self, order: Option<Ordering>) -> bool {
        let Some(order) = order else { return self == Self::NotEqual };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}
