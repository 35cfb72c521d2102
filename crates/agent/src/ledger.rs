//! What became of packets.

use std::collections::BTreeMap;

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The spool has no room for all that waits: bytes or number.
    Size,
    /// It waited too long.
    Age,
    /// The disk could not be written, and memory had no more room.
    Memory,
    /// The target will not take it.
    Refused,
    /// Its file was damaged or taken away.
    Unreadable,
}

impl Reason {
    /// One word, as in a packet's losses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Age => "age",
            Self::Memory => "memory",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What the samples of a packet are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Times on a CPU.
    Cpu,
    /// Times off it.
    OffCpu,
    /// What others sample.
    Other,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Cpu, Self::OffCpu, Self::Other];

    /// One word, as in names of files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OffCpu => "off_cpu",
            Self::Other => "other",
        }
    }
}

/// What losses are of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loss {
    /// What the lost samples are; a packet of the same kind is to tell of them.
    pub kind: Kind,
    /// Such as `undelivered.size`.
    pub class: String,
}

/// The ledger of one target, in packets: `sealed + found = delivered + dropped + waiting`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Came from the sampler.
    pub sealed: u64,
    /// Were there at the start.
    pub found: u64,
    /// The target has taken them.
    pub delivered: u64,
    /// Never will be delivered.
    pub dropped: BTreeMap<Reason, u64>,
    /// Are kept.
    pub waiting: u64,
    /// Profiles in delivered packets that the target says it did not take.
    pub rejected_profiles: u64,
    /// Attempts that failed and were, or will be, made again.
    pub failed_attempts: u64,
}

impl Counts {
    /// Dropped, of all reasons.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether all packets are accounted for.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.sealed + self.found == self.delivered + self.all_dropped() + self.waiting
    }
}
