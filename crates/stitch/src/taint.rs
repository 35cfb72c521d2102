//! What a loss of events does to what is in flight across it.

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ident::Left;

/// Who was last known to have a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Occupant {
    Thread(Tid),
    /// Nobody knows since events were lost then.
    Lost(Timestamp),
}

/// Whether events of a thread are missing since the left boundary.
///
/// A thread that a switch takes away from a CPU, before anything else was seen of it, was there in the time that a loss on
/// that CPU hides, if there was one: the left part knows.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(crate) enum Taint {
    #[default]
    None,
    /// If events of this CPU were lost before the left boundary and the thread was not seen since.
    IfLostOn(CpuId),
    Certain,
}

impl Taint {
    pub(crate) fn or(self, other: Self) -> Self {
        self.max(other)
    }

    pub(crate) fn is_certain(self) -> bool {
        self == Self::Certain
    }

    /// With the left part known. `tid` is the thread that is asked about.
    pub(crate) fn resolved(self, tid: Tid, left: &impl Left) -> Self {
        match self {
            Self::IfLostOn(cpu) => left.taint_of(tid, cpu),
            known => known,
        }
    }

    /// Of a thread that was last seen then and is taken away from a CPU of which this is known.
    pub(crate) fn of(occupant: Option<Occupant>, seen: Option<Timestamp>, cpu: CpuId) -> Self {
        match (occupant, seen) {
            (Some(Occupant::Lost(at)), seen) if seen.is_none_or(|seen| seen <= at) => Self::Certain,
            (None, None) => Self::IfLostOn(cpu),
            _ => Self::None,
        }
    }
}
