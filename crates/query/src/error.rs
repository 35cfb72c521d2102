use std::io;
use std::path::PathBuf;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recordings cannot be opened.
    #[error(transparent)]
    Trace(Box<tracedir::Error>),
    /// The recordings cannot be analysed.
    #[error(transparent)]
    Analysis(Box<mapper::Error>),
    /// A file of Parquet that `export_events` did not write, or that is damaged.
    #[error("{} is not an export of event records: {why}", .path.display())]
    NotExported {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        why: String,
    },
    /// Recordings and exported files are asked together.
    #[error("recordings and exported files cannot be asked together")]
    Mixed,
    /// Exported files have a column with different types.
    #[error("the files have {column:?} of {class:?} with different types: ask them one by one")]
    Differs {
        /// The class of event records.
        class: String,
        /// Its column.
        column: String,
    },
    /// A table of what analyses find is asked of exported files.
    #[error("the table {table} is made from recordings, not from exported files")]
    NoItems {
        /// The table.
        table: String,
    },
    /// Blocks of profiles cannot be read.
    #[error(transparent)]
    Profiles(Box<store::Error>),
    /// More stacks than one question can tell apart.
    #[error("the blocks have more than {} stacks: ask fewer of them", crate::profiles::MAX_STACKS)]
    TooManyStacks,
    /// The table of periods is asked for, and none are defined.
    #[error("no periods are defined for the table phases: --period 'NAME : BEGIN : END'")]
    NoPeriods,
    /// The question cannot be understood, or not be answered.
    #[error("{}", first_line(.0))]
    Query(#[source] Box<DataFusionError>),
    /// The question is longer than [`MAX_SQL_BYTES`](crate::MAX_SQL_BYTES).
    #[error("the question has {len} bytes, more than {}", crate::MAX_SQL_BYTES)]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The question has more parts than [`MAX_STEPS`](crate::MAX_STEPS).
    #[error(
        "the question has {steps} keywords, operators and commas, more than {}",
        crate::MAX_STEPS
    )]
    TooManySteps {
        /// How many.
        steps: usize,
    },
    /// Rows cannot be written in this format.
    #[error("cannot write the answer")]
    Arrow(#[from] ArrowError),
    /// Parquet cannot be written or read.
    #[error("Parquet")]
    Parquet(#[from] ParquetError),
    /// The answer cannot be written, or no thread be started.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<tracedir::Error> for Error {
    fn from(error: tracedir::Error) -> Self {
        Self::Trace(Box::new(error))
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Profiles(Box::new(error))
    }
}

impl From<mapper::Error> for Error {
    fn from(error: mapper::Error) -> Self {
        Self::Analysis(Box::new(error))
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            // What a table of ours could not do says so itself.
            DataFusionError::External(error) => match error.downcast::<Self>() {
                Ok(own) => *own,
                Err(error) => Self::Query(Box::new(DataFusionError::External(error))),
            },
            error => Self::Query(Box::new(error)),
        }
    }
}

/// What the engine says, without what it adds for its developers on further lines.
fn first_line(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
