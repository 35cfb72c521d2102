//! What the lines of one data stream have in common.

use std::cell::Cell;

use super::output::Piece;

/// What the lines of one data stream have in common: the name of its trace, and the context of the packet it is in as
/// a writer wrote it. For one writer; made anew for another.
#[derive(Debug, Clone, Default)]
pub struct StreamText {
    /// Of the trace, below the path that was asked for.
    pub(crate) folder: Box<str>,
    pub(crate) packet: Piece,
    /// Where the writer keeps the programs of the trace class that was met last.
    pub(crate) slot: Cell<usize>,
}

impl StreamText {
    /// For a stream of the trace in `folder`, given relative to the path that was asked for (`ust/uid/1000/64-bit`);
    /// empty when it is that path itself.
    #[must_use]
    pub fn new(folder: &str) -> Self {
        Self { folder: folder.into(), ..Self::default() }
    }
}
