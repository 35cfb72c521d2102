//! What is sent, and where it comes from.

use std::io;
use std::sync::Arc;

use wire::remote_write::{Labels, Metadata, Sample, Series};

/// A closed cell: one sample of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The series.
    pub labels: Labels,
    /// Its value, time and, of a counter, since when it counts. A series ends with [`STALE`](wire::remote_write::STALE).
    pub sample: Sample,
    /// What its metric is.
    pub metadata: Option<Arc<Metadata>>,
}

impl Cell {
    pub(crate) fn series(&self) -> Series {
        Series::new(self.labels.clone(), vec![self.sample], self.metadata.clone())
    }
}

/// Closed cells in order.
///
/// A cell at a position never changes and never goes before it has been sent; among cells of one series, a later position has a later time.
pub trait Source {
    /// Cells from a position on, at most so many; fewer, or none, when no more are closed.
    ///
    /// # Errors
    /// When they cannot be read. They are asked for again.
    fn read(&mut self, from: u64, most: usize) -> io::Result<Vec<Cell>>;
}
