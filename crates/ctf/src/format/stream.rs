//! What the lines of one data stream have in common.

use super::output::Output;

/// What the lines of one data stream have in common: the name of its trace, and the context of the packet it is in as
/// a writer wrote it. For one writer; made anew for another.
#[derive(Debug, Clone, Default)]
pub struct StreamText {
    /// Of the trace, below the path that was asked for.
    pub(crate) folder: Box<str>,
    pub(crate) packet: Output,
}

impl StreamText {
    /// For a stream of the trace in `folder`, given relative to the path that was asked for (`ust/uid/1000/64-bit`);
    /// empty when it is that path itself.
    #[must_use]
    pub fn new(folder: &str) -> Self {
        Self { folder: folder.into(), packet: Output::new() }
    }
}
