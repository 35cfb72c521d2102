//! The bytes of a block: one file of Apache Parquet with a row for each stack of each series.
//!
//! ```text
//! type service labels series part │ stack    │ begin end total │ samples after sample_values spans │ profiles stacks locations
//! text text    map    16 B   16 B │ place in │ ns    ns  sum   │ each sample's place in profiles,  │ tables, in the first row of
//!                                 │ stacks   │                 │ ns since, value, ids of the span  │ the series or the row group
//! ```
//!
//! Rows are sorted by service, type, labels and stack, the samples of a row by time and the rest. What rows refer to stands once in the row
//! group: the frames that stacks consist of, the stacks, and the profiles with their times. `begin` and `end` are
//! the first and the last time of the row's series in the row group, `total` the sum of the row's values: a question for the whole of that time reads no
//! samples. A sum that would pass the range of a number begins another row. Equal batches, in whatever order they were filled, become equal
//! bytes.
//!
//! A row group can be read with nothing but itself. It ends where the service changes, unless it is small. Of one that is read, what is
//! decoded are its tables, which series its rows are of, and the rows that are asked for.

mod columns;
mod group;
mod order;
mod read;
mod schema;
mod tables;
mod write;

pub use read::{
    Detail, Selection, groups, header, read_group_into, read_into, read_parts_into, series_into,
};
pub use schema::schema;
pub use write::{encode, encode_as};

/// The layout, told in the file's own metadata.
pub const FORMAT: u32 = 2;
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
