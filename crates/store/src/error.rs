//! What can go wrong.

use crate::lake::name::BlockName;

/// Why a block cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is no Parquet, or a damaged one.
    #[error("a file of Parquet")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Columns that do not fit each other.
    #[error("columns of a block")]
    Columns(#[from] arrow_schema::ArrowError),
    /// A header that is no JSON.
    #[error("the header of a block")]
    Header(#[from] serde_json::Error),
    /// A file of Parquet that is no block.
    #[error("no block of samples: {what}")]
    NoBlock {
        /// What it lacks.
        what: &'static str,
    },
    /// A block of a layout that is not known here.
    #[error("a block of format {format}: this program reads up to {}", crate::block::FORMAT)]
    Format {
        /// Its layout.
        format: u32,
    },
    /// A value that a column cannot have.
    #[error("{what} in row {row}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Of all rows that were read, from 0.
        row: usize,
    },
    /// Something is wrong with a block.
    #[error("block {name}")]
    Block {
        /// Which one.
        name: Box<BlockName>,
        /// What it is.
        source: Box<Error>,
    },
    /// Something is wrong with a file that is not named as a block.
    #[error("file {name}")]
    File {
        /// Which one.
        name: String,
        /// What it is.
        source: Box<Error>,
    },
    /// The bytes of a block are not those that its name says.
    #[error("block {name}: its bytes are not those that its name says")]
    Changed {
        /// Which one.
        name: Box<BlockName>,
    },
    /// A block is not there.
    #[error("block {name} is not there")]
    Gone {
        /// Which one.
        name: Box<BlockName>,
    },
    /// A place that is asked and has no blocks.
    #[error("{place}: no folder, bucket or file with blocks of samples")]
    NoBlocks {
        /// Which one.
        place: String,
    },
    /// The place of blocks.
    #[error(transparent)]
    Objects(#[from] objects::Error),
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] crate::catalogue::Error),
    /// A bucket's catalogue is elsewhere.
    #[error("{url} is no folder: where its catalogue is has to be said")]
    NoCatalogue {
        /// The place of the blocks.
        url: String,
    },
    /// Blocks of the catalogue are not where they should be.
    #[error("{count} blocks of the catalogue are not there, such as {first}")]
    Missing {
        /// How many.
        count: usize,
        /// One of them.
        first: Box<BlockName>,
    },
    /// What is made of blocks cannot be written, or its files beside cannot be read again.
    #[error("cannot write sums of cells")]
    Backfill(#[source] std::io::Error),
    /// Samples of blocks do not add up.
    #[error("the sums of rows are {whole} together, and those of their samples {parts}")]
    Uneven {
        /// All of them, by rows.
        whole: i128,
        /// The same by cells.
        parts: i128,
    },
    /// A job of a merge that makes no sense.
    #[error("no job: {what}")]
    Job {
        /// What is wrong with it.
        what: &'static str,
    },
    /// What came of a job is not what it should be.
    #[error("block {name} is {what}")]
    Result {
        /// What came.
        name: Box<BlockName>,
        /// What it is.
        what: &'static str,
    },
    /// Whether what came before was stored is not known.
    #[error("the catalogue does not answer: try again")]
    Unsettled,
    /// No name of a tenant.
    #[error("{name:?} names no tenant: letters, digits and !-_.*'(), 150 at most")]
    Tenant {
        /// Its begin.
        name: String,
    },
    /// Too much waits to be written.
    #[error("{bytes} bytes of samples wait to be written: try again")]
    Busy {
        /// How much.
        bytes: usize,
    },
}

impl Error {
    /// Whether a block's bytes are not what they were.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Changed { .. } | Self::Block { .. } | Self::Gone { .. })
    }

    /// With the name of the block.
    pub(crate) fn of(self, name: &BlockName) -> Self {
        Self::Block { name: Box::new(name.clone()), source: Box::new(self) }
    }
}
