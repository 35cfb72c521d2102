//! The bytes of a block: one file of Apache Parquet with a row for each stack of each series.
//!
//! ```text
//! type service labels series stack │ frames                              │ begin end total │ samples
//! text text    map    16 B   16 B  │ list of function, file, line, … ;   │ ns    ns  sum   │ list of at, value,
//!                                  │ null where a row before in the same │                 │ profile, span_id, trace_id
//!                                  │ row group has it for this stack     │                 │
//! ```
//!
//! Rows are sorted by type, service, labels and stack, the samples of a row by time and the rest. `series` and `stack` are digests of what
//! they stand for ([`crate::content`]), so that two blocks merge by comparing them. `begin` and `end` are the first and the last
//! time of a row, `total` the sum of its values: a question for the whole of a row reads none of its samples. A sum that would
//! pass the range of a number begins another row. Equal batches, in whatever order they were filled, become equal bytes.
//!
//! A row group can be read with nothing but itself. It ends where the type or the service changes, unless it is small.

mod columns;
mod read;
mod schema;
mod write;

pub use read::{Detail, Selection, header, read_into, series_into};
pub use schema::schema;
pub use write::{encode, encode_as};

/// The newest layout that is known, told in the file's own metadata.
pub const FORMAT: u32 = 1;
/// Key of the file's metadata where [`Header`] stands, as JSON.
pub const HEADER_KEY: &str = "throughline.samples";

/// What a block says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// How many samples there are.
    pub samples: u64,
    /// The first time of a sample, in nanoseconds since the epoch.
    pub begin_unix_ns: i64,
    /// The last time of a sample, in nanoseconds since the epoch.
    pub end_unix_ns: i64,
    /// Digests of the blocks that it was merged from and stands for.
    #[serde(default)]
    pub replaces: Vec<String>,
}
