//! Writes the tables of a DuckLake 1.0 catalogue by plain SQL, so that DuckDB, Spark and others open a lake of Parquet files as it is.
//!
//! ```text
//! Arrow schema ─ prepare ─▶ ducklake_table, ducklake_column ─┐
//! Parquet footer ─ Numbers ─▶ commit ─▶ ducklake_data_file ──┼─▶ one SQL database: SQLite or PostgreSQL
//! a moment or a count ─ expire ─▶ files to be deleted ───────┘
//! ```
//! In go Arrow's schema of the data files (each field with its `PARQUET:field_id`), paths of files and the numbers of their footers; out
//! come rows of a database. No data file is opened, written or deleted here. Every function works inside the caller's transaction,
//! so that rows of the caller's own change with the catalogue or not at all; [`begin`] begins one that is alone in writing.
//! After an error the transaction has to be rolled back when it came from the database; every other error changed nothing.
//!
//! Who should not use it: writers of small changes of rows. Files are added and ended as a whole; there are no delete files, partitions,
//! inlined rows, macros or encrypted files. What others wrote of these is left as it is, and files with deleted rows should not
//! be replaced without reading them through DuckLake.
//!
//! Vocabulary:
//! - **snapshot**: one state of the lake, numbered from 0; each commit makes one;
//! - **live**: shown by the newest snapshot; **ended**: shown by older ones only;
//! - **schema version**: counts changes of tables, columns and views, so that attached readers see them;
//! - **layout**: a table's name, columns and place.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use std::collections::HashMap;
//! use arrow_schema::{DataType, Field, Schema};
//! use ducklake::{Change, Layout};
//! use model::Timestamp;
//!
//! let folder = tempfile::tempdir()?;
//! let id = HashMap::from([("PARQUET:field_id".to_owned(), "1".to_owned())]);
//! let schema = Schema::new(vec![Field::new("at", DataType::Int64, false).with_metadata(id)]);
//! let layout = Layout { data: "s3://bucket/lake/", table: "samples", folder: "", schema: &schema };
//!
//! let url = format!("sqlite:{}", folder.path().join("catalogue.sqlite").display());
//! let mut connection = ducklake::connect(&url).await?;
//! let mut transaction = ducklake::begin(&mut connection).await?;
//! let at = Timestamp::from_nanos(0);
//! let samples = ducklake::prepare(&mut transaction, &layout, at).await?;
//! let nothing = Change { add: &[], end: &[], message: None };
//! let snapshot = ducklake::commit(&mut transaction, &samples, &nothing, at).await?;
//! transaction.commit().await?;
//! assert_eq!(snapshot.get(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

mod bound;
mod columns;
mod commit;
mod connect;
mod error;
mod expire;
mod live;
mod prepare;
mod rows;
mod snapshot;
mod statistics;
mod tables;
mod totals;
mod view;

pub use bound::{Bound, MAX_BOUND_BYTES};
pub use commit::{Change, DataFile, commit};
pub use connect::{begin, connect, pool};
pub use error::{Error, Result};
pub use expire::{Expired, Keep, deleted, expire, scheduled};
pub use live::{LiveFile, live};
pub use prepare::{Layout, Table, prepare};
pub use snapshot::SnapshotId;
pub use statistics::{ColumnStatistics, Numbers};
pub use view::view;
