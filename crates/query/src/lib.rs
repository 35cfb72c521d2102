//! SQL over recordings, on Apache DataFusion.
//!
//! In go paths and a question, out come rows. What a question does not ask for is not read: conditions on the time pass
//! over packets, conditions on the class over event records, and of the others only the columns that are asked for are
//! decoded ([`filter`]). What analyses find in the event records are tables of their own ([`items`]). Event records can be
//! kept as Parquet and asked there ([`typed`]). Blocks of a profile store are asked by themselves ([`profiles`]). Printing rows is [`format`]; which columns there are stands in [`columns`].
//!
//! Vocabulary:
//! - **table**: `events`, all event records; and one for each event record class, by its name ([`table`]);
//! - **item**: something that an analysis finds: a span, a thread, a file;
//! - **question**: one SQL statement that changes nothing; **answer**: its rows, in batches of Arrow arrays;
//! - **condition**: a part of `WHERE` that must hold; **pushed down**: answered where event records are read.
//!
//! The engine is asynchronous; the runtime that it needs stays inside of [`Database`].
//!
//! ```no_run
//! use query::{Database, Limits};
//!
//! let limits = Limits { memory_bytes: 1 << 30, threads: 2 };
//! let database = Database::open(&["session/"], &Default::default(), None, &limits)?;
//! let mut answer = database.ask("select class, count(*) from events group by class")?;
//! while let Some(batch) = answer.next_batch()? {
//!     println!("{} rows", batch.num_rows());
//! }
//! # Ok::<(), query::Error>(())
//! ```

mod build;
mod columns;
mod database;
mod error;
mod filter;
pub mod format;
mod items;
mod profiles;
mod rows;
mod scan;
mod source;
mod stream;
mod table;
mod typed;

pub use database::{Answer, Database, Limits, MAX_SQL_BYTES, MAX_STEPS};
pub use error::Error;
pub use source::{Lost, Progress};
pub use typed::{Exported, export_events, is_exported};
