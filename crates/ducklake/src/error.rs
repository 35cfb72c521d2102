//! What can go wrong.

use parquet::errors::ParquetError;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a catalogue cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database.
    #[error("the catalogue's database failed at {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        source: sqlx::Error,
    },
    /// A database whose SQL is not spoken here.
    #[error("a catalogue is kept by SQLite or PostgreSQL, not by {name}")]
    Backend {
        /// Its name.
        name: String,
    },
    /// A catalogue of another version.
    #[error("the catalogue is of DuckLake version {found:?}; versions that are known: 1.0")]
    Version {
        /// Which.
        found: String,
    },
    /// A catalogue without what each has.
    #[error("the catalogue is damaged: it has no {what}")]
    Damaged {
        /// What is missing.
        what: &'static str,
    },
    /// A catalogue of data elsewhere.
    #[error("the catalogue is of data in {found:?}, not in {wanted:?}")]
    DataPath {
        /// Where its data is.
        found: String,
        /// Where it was looked for.
        wanted: String,
    },
    /// A place that cannot be put before paths of files.
    #[error("{path:?} is no folder of data: it has to end with a slash")]
    Folder {
        /// The place.
        path: String,
    },
    /// A table whose files are elsewhere.
    #[error("files of table {table:?} are below {found:?}, not below {wanted:?}")]
    TableFolder {
        /// The table.
        table: String,
        /// Where they are.
        found: String,
        /// Where they were looked for.
        wanted: String,
    },
    /// A field without an id.
    #[error("field {field:?} has no PARQUET:field_id that is a positive number")]
    NoFieldId {
        /// Its path, such as `samples.element.at`.
        field: String,
    },
    /// A field with another's id.
    #[error("fields {field:?} and {other:?} have the same PARQUET:field_id {id}")]
    SameFieldId {
        /// Its path.
        field: String,
        /// The other's.
        other: String,
        /// The id.
        id: i64,
    },
    /// A type that DuckLake does not have.
    #[error("DuckLake has no type for field {field:?} of type {kind}")]
    Type {
        /// Its path.
        field: String,
        /// Arrow's type.
        kind: String,
    },
    /// A table whose columns are not those of the files.
    #[error("column {id} of table {table:?} is {found}, not {wanted}")]
    Column {
        /// The table.
        table: String,
        /// The column.
        id: i64,
        /// As the catalogue has it.
        found: String,
        /// As the files have it.
        wanted: String,
    },
    /// A table that someone with a later layout has written.
    #[error("table {table:?} has column {id} ({name:?}), which is not known")]
    UnknownColumn {
        /// The table.
        table: String,
        /// The column.
        id: i64,
        /// Its name.
        name: String,
    },
    /// A view that would hide a table.
    #[error("{name:?} is the name of a table")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A file that is in the catalogue, or was.
    #[error("file {path:?} was added before")]
    Known {
        /// The file.
        path: String,
    },
    /// A file to end that no snapshot shows, or only older ones.
    #[error("file {path:?} is not live")]
    NotLive {
        /// The file.
        path: String,
    },
    /// A number that no database has.
    #[error("{what} of file {path:?} is too large: {found}")]
    TooLarge {
        /// The file.
        path: String,
        /// Which number.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// Bytes that are not the end of a Parquet file.
    #[error("these {bytes} bytes do not end with the footer of a Parquet file")]
    NoFooter {
        /// How many.
        bytes: usize,
    },
    /// A footer that cannot be read.
    #[error("the footer of a Parquet file cannot be read")]
    Footer(#[from] ParquetError),
}

impl Error {
    /// Whether another writer was in the way, so that the same transaction can succeed when it is done again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        // SQLite: SQLITE_BUSY with its extended codes; PostgreSQL: serialization failure, deadlock, lock not available.
        const CODES: [&str; 6] = ["5", "261", "517", "40001", "40P01", "55P03"];
        let Self::Database { source: sqlx::Error::Database(source), .. } = self else {
            return false;
        };
        source.code().is_some_and(|code| CODES.contains(&code.as_ref()))
    }
}

/// Names what was being done.
pub(crate) trait Doing<T> {
    /// The error with that.
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Database { doing, source })
    }
}
