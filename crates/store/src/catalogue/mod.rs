//! The catalogue: one SQL database that says which blocks there are, and what was exported of them.
//!
//! ```text
//! throughline_owner    which process may commit: whoever opens it last
//! throughline_block    every block by name; a name is taken once, and ended once
//! throughline_sums     sums of a cell that is not closed, by tenant
//! throughline_head     how far a tenant's cells are closed
//! throughline_counter  counters of exported series
//! throughline_outbox   closed cells, by tenant and position
//! throughline_cursor   how far each receiver is
//! throughline_document rules of a tenant, and settings that clients of Pyroscope keep
//! ```
//! Everything is a transaction: blocks that were merged end together with the beginning of the merged one and with the sums of what was
//! in them. A process that was taken for dead and is not finds that its commits are refused.
//!
//! Beside these are the tables of a DuckLake ([`ducklake`]), whose table `samples` has the same blocks, for everybody who reads SQL.
//!
//! SQLite by default, PostgreSQL by URL.

mod blocks;
mod cells;
mod outbox;
mod rules;
mod thread;

use std::path::Path;

use ducklake::{Layout, Table};
use model::Timestamp;
use sqlx::{AnyConnection, Row as _};

use self::thread::Database;

pub(crate) use self::blocks::live_blocks;
pub use self::blocks::{Change, Committed, Summed};
pub use self::cells::{Elsewhere, Head, MAX_WAITING, Made};
pub use self::outbox::{KeptCursor, Outbox};
pub(crate) use self::rules::exported;

/// What goes wrong with the catalogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No thread.
    #[error("no thread for the catalogue")]
    Thread(#[source] std::io::Error),
    /// The thread ended: a panic, which was told.
    #[error("the catalogue's thread ended")]
    Ended,
    /// The database says no, or is not there. Whether what was asked for was done is not known.
    #[error("the catalogue's database")]
    Database(#[from] sqlx::Error),
    /// The tables that others read, or their database: then whether it was done is not known.
    #[error(transparent)]
    Lake(#[from] ducklake::Error),
    /// It takes too long. Whether what was asked for was done is not known.
    #[error("the catalogue's database does not answer")]
    Slow,
    /// Another process opened it after this one.
    #[error("another process took the catalogue over")]
    Taken,
    /// A block that should end is not there.
    #[error("block {name} is not in the catalogue, or was replaced by another process")]
    NotThere {
        /// Its name.
        name: String,
    },
    /// A block that should begin was there before.
    #[error("block {name} was in the catalogue before")]
    Again {
        /// Its name.
        name: String,
    },
    /// A row that this program did not write.
    #[error("the catalogue is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// Rules or settings were changed meanwhile.
    #[error("generation {expected} should be replaced: there is {found}")]
    Generation {
        /// Which ones should have been there.
        expected: u64,
        /// Which ones are.
        found: u64,
    },
    /// Tables of a later program.
    #[error("a catalogue of version {version}: this program knows {VERSION}")]
    Version {
        /// Which one.
        version: i64,
    },
}

/// What the catalogue says.
pub type Result<T> = std::result::Result<T, Error>;

/// The version of our tables.
const VERSION: i64 = 1;

/// Statements that make our tables where they are missing.
const TABLES: [&str; 10] = [
    "CREATE TABLE IF NOT EXISTS throughline_version (version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS throughline_owner (epoch BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS throughline_block (name TEXT NOT NULL PRIMARY KEY, ended_ns BIGINT)",
    "CREATE INDEX IF NOT EXISTS throughline_block_ended ON throughline_block (ended_ns)",
    "CREATE TABLE IF NOT EXISTS throughline_sums (tenant TEXT NOT NULL, cell_ms BIGINT NOT NULL, sums TEXT NOT NULL, \
     PRIMARY KEY (tenant, cell_ms))",
    "CREATE TABLE IF NOT EXISTS throughline_head (tenant TEXT NOT NULL PRIMARY KEY, next BIGINT NOT NULL, closed_ms BIGINT NOT NULL, \
     lost BIGINT NOT NULL, inexact BIGINT NOT NULL, left_out BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS throughline_counter (tenant TEXT NOT NULL, id TEXT NOT NULL, series TEXT NOT NULL, start_ms BIGINT NOT NULL, \
     total BIGINT NOT NULL, seen_ms BIGINT NOT NULL, is_stale BIGINT NOT NULL, PRIMARY KEY (tenant, id))",
    "CREATE TABLE IF NOT EXISTS throughline_outbox (tenant TEXT NOT NULL, first BIGINT NOT NULL, cells BIGINT NOT NULL, \
     end_ms BIGINT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (tenant, first))",
    "CREATE TABLE IF NOT EXISTS throughline_cursor (tenant TEXT NOT NULL, receiver TEXT NOT NULL, origin BIGINT NOT NULL, \
     content TEXT NOT NULL,      PRIMARY KEY (tenant, receiver))",
    "CREATE TABLE IF NOT EXISTS throughline_document (kind TEXT NOT NULL, tenant TEXT NOT NULL, generation BIGINT NOT NULL, \
     content TEXT NOT NULL, PRIMARY KEY (kind, tenant))",
];

/// The table of a DuckLake that has the samples.
const SAMPLES: &str = "samples";

/// An open catalogue.
#[derive(Debug)]
pub struct Catalogue {
    database: Database,
    table: Table,
    epoch: i64,
}

impl Catalogue {
    /// Opens the catalogue at a URL (`sqlite:PATH`, which is made, or `postgres://…`) of the blocks at `data`, and takes it over from whoever has it.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Lake`], [`Error::Version`].
    pub fn open(url: &str, data: &str, now: Timestamp) -> Result<Self> {
        let database = Database::start(url)?;
        let data = if data.ends_with('/') { data.to_owned() } else { format!("{data}/") };
        let (epoch, table) = database.transact(async move |connection: &mut AnyConnection| {
            for table in TABLES {
                sqlx::query(table).execute(&mut *connection).await?;
            }
            check_version(connection).await?;
            let schema = crate::block::schema();
            let layout = Layout { data: &data, table: SAMPLES, folder: "", schema: &schema };
            let table = ducklake::prepare(connection, &layout, now).await?;
            Ok((take_over(connection).await?, table))
        })?;
        database.own(epoch)?;
        Ok(Self { database, table, epoch })
    }

    /// The how manieth owner this is.
    #[must_use]
    pub const fn epoch(&self) -> i64 {
        self.epoch
    }
}

impl Error {
    /// Whether what was asked for may have been done.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Database(_) | Self::Ended | Self::Slow => true,
            Self::Lake(error) => matches!(error, ducklake::Error::Database { .. }),
            _ => false,
        }
    }
}

async fn check_version(connection: &mut AnyConnection) -> Result<()> {
    let found = sqlx::query("SELECT version FROM throughline_version")
        .fetch_optional(&mut *connection)
        .await?;
    match found.map(|row| row.try_get(0)).transpose()? {
        Some(VERSION) => Ok(()),
        Some(version) => Err(Error::Version { version }),
        None => {
            let insert = "INSERT INTO throughline_version (version) VALUES ($1)";
            sqlx::query(insert).bind(VERSION).execute(connection).await?;
            Ok(())
        }
    }
}

/// A new epoch.
async fn take_over(connection: &mut AnyConnection) -> Result<i64> {
    let update = "UPDATE throughline_owner SET epoch = epoch + 1";
    if sqlx::query(update).execute(&mut *connection).await?.rows_affected() == 0 {
        let insert = "INSERT INTO throughline_owner (epoch) VALUES (1)";
        sqlx::query(insert).execute(&mut *connection).await?;
    }
    let row = sqlx::query("SELECT epoch FROM throughline_owner").fetch_one(connection).await?;
    Ok(row.try_get(0)?)
}

/// Asks a catalogue that another process may own: it is neither made, nor written to, nor taken over.
///
/// # Errors
///
/// [`Error::Database`] when there is none, too; those of what is asked.
fn beside<T>(url: &str, ask: impl AsyncFnOnce(&mut AnyConnection) -> Result<T>) -> Result<T> {
    let is_plain_file = url.starts_with("sqlite:") && !url.contains('?');
    let url = if is_plain_file { format!("{url}?mode=ro") } else { url.to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Error::Thread)?.block_on(async {
        let mut connection = ducklake::connect(&url).await?;
        ask(&mut connection).await
    })
}

/// The URL of a catalogue in a file.
#[must_use]
pub fn url_of_file(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}
