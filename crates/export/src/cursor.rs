//! What was sent last to one receiver.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use wire::remote_write::Version;

use crate::error::Result;

/// Series that are remembered as parked, for each receiver. The one that was parked first goes first.
pub const MAX_PARKED: usize = 100;

/// How far the cells of one source are with one receiver. `next` = `taken` + all that is lost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Position of the first cell that is neither taken nor lost.
    pub next: u64,
    /// What is being sent: the receiver may have it already.
    pub intent: Option<Intent>,
    /// The latest time of a cell that was taken, milliseconds since 1970.
    pub newest_ms: Option<i64>,
    /// Cells that the receiver has.
    pub taken: u64,
    /// Cells that it will not have, by reason.
    pub lost: BTreeMap<Reason, u64>,
    /// Series of which cells were refused; at most [`MAX_PARKED`].
    pub parked: VecDeque<Parked>,
    /// What the receiver understands.
    pub learned: Option<Learned>,
}

/// Cells that are being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// How many, from [`Cursor::next`] on.
    pub cells: usize,
    /// As which message.
    #[serde(with = "VersionNumber")]
    pub version: Version,
}

/// What an endpoint was found to understand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Its URL.
    pub endpoint: String,
    /// The message that it takes.
    #[serde(with = "VersionNumber")]
    pub version: Version,
}

/// Why a receiver does not have a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It refused it alone (400).
    Refused,
    /// It failed at it alone, again and again, while it took something else (500).
    Failed,
    /// It says that it is too large, alone (413), or it is.
    TooLarge,
    /// It says yes, and that it wrote nothing.
    Unwritten,
    /// Older than an hour before the newest one that it has.
    Old,
    /// More than an hour ahead of the clock.
    Ahead,
}

impl Reason {
    /// A word for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::TooLarge => "too_large",
            Self::Unwritten => "unwritten",
            Self::Old => "old",
            Self::Ahead => "ahead",
        }
    }
}

/// A series of which a cell was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The series, as Prometheus shows one.
    pub series: String,
    /// Time of the last of its cells that was refused, milliseconds since 1970.
    pub time_ms: i64,
    /// Why.
    pub reason: Reason,
    /// What the receiver said.
    pub words: String,
    /// Cells refused since it was parked.
    pub cells: u64,
    /// Whether it is sent alone: nothing of it was taken since.
    pub is_alone: bool,
}

/// How a version is written down.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Version")]
enum VersionNumber {
    #[serde(rename = "1.0")]
    V1,
    #[serde(rename = "2.0")]
    V2,
}

impl Cursor {
    /// Cells that a receiver will not have, for all reasons.
    #[must_use]
    pub fn all_lost(&self) -> u64 {
        self.lost.values().sum()
    }

    pub(crate) fn lose(&mut self, reason: Reason) {
        *self.lost.entry(reason).or_default() += 1;
        self.next += 1;
    }

    /// Parks a series, or counts one more cell of it.
    pub(crate) fn park(&mut self, series: String, time_ms: i64, reason: Reason, words: String) {
        let at = self.parked.iter().position(|it| it.series == series);
        let before = at.and_then(|at| self.parked.remove(at)).map_or(0, |it| it.cells);
        while self.parked.len() >= MAX_PARKED {
            self.parked.pop_front();
        }
        let cells = before + 1;
        self.parked.push_back(Parked { series, time_ms, reason, words, cells, is_alone: true });
    }

    /// Whether any series is sent alone.
    pub(crate) fn has_alone(&self) -> bool {
        self.parked.iter().any(|it| it.is_alone)
    }

    pub(crate) fn parks(&self, series: &str) -> bool {
        self.parked.iter().any(|it| it.is_alone && it.series == series)
    }

    /// A series that was alone was taken.
    pub(crate) fn unpark(&mut self, series: &str) {
        for parked in self.parked.iter_mut().filter(|it| it.series == series) {
            parked.is_alone = false;
        }
    }
}

/// Where a cursor is kept.
pub trait KeepCursor {
    /// The cursor that was saved last; `None` when none ever was.
    ///
    /// # Errors
    /// When that cannot be said. Nothing may be sent then.
    fn load(&mut self) -> Result<Option<Cursor>>;

    /// Keeps a cursor in place of the one before. When this returns, no crash brings the old one back, and until then none leaves
    /// anything but the old one or this one.
    ///
    /// # Errors
    /// When it is not certain which of the two is there. It is asked for again.
    fn save(&mut self, cursor: &Cursor) -> Result<()>;
}
