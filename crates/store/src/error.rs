//! What can go wrong.

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
}
