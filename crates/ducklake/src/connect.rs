//! Connections to the database of a catalogue, and transactions that are alone in writing.

use std::borrow::Cow;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers};
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection, Transaction};

use crate::error::{Doing, Error, Result};

/// What every connection to SQLite has: readers beside one writer, a commit that survives a loss of power, waiting for another
/// writer up to 30 s.
const SQLITE: &str = "PRAGMA busy_timeout = 30000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON";

/// PostgreSQL's lock that [`begin`] holds: `ducklake` in ASCII.
const POSTGRES_LOCK: i64 = 0x6475_636b_6c61_6b65;

/// The databases that can keep a catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    pub(crate) fn of(connection: &AnyConnection) -> Result<Self> {
        match connection.backend_name() {
            "SQLite" => Ok(Self::Sqlite),
            "PostgreSQL" => Ok(Self::Postgres),
            other => Err(Error::Backend { name: other.to_owned() }),
        }
    }
}

/// Connects to `sqlite:PATH`, whose file is made when it is missing, or `postgres://…`.
///
/// # Errors
/// [`Error::Database`].
pub async fn connect(url: &str) -> Result<AnyConnection> {
    let mut connection = options(url)?.connect().await.doing("connecting")?;
    settle(&mut connection).await.doing("setting up a connection")?;
    Ok(connection)
}

/// Connections as [`connect`] makes them, `connections` at most, each made when it is needed first.
///
/// # Errors
/// [`Error::Database`] for an address that cannot be read.
pub fn pool(url: &str, connections: u32) -> Result<AnyPool> {
    let options = options(url)?;
    let pool = AnyPoolOptions::new().max_connections(connections);
    let pool = pool.after_connect(|connection, _| Box::pin(settle(connection)));
    Ok(pool.connect_lazy_with(options))
}

/// Begins a transaction that no other of this function runs beside, so that what it reads stays true until it ends. SQLite excludes all
/// other writers, PostgreSQL those that begin by this function.
///
/// # Errors
/// [`Error::Database`]; [`Error::is_conflict`] when SQLite's other writer takes longer than 30 s.
pub async fn begin(connection: &mut AnyConnection) -> Result<Transaction<'_, Any>> {
    const DOING: &str = "beginning a transaction";
    match Backend::of(connection)? {
        Backend::Sqlite => connection.begin_with("BEGIN IMMEDIATE").await.doing(DOING),
        Backend::Postgres => {
            let mut transaction = connection.begin().await.doing(DOING)?;
            let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(POSTGRES_LOCK);
            lock.execute(&mut *transaction).await.doing(DOING)?;
            Ok(transaction)
        }
    }
}

fn options(url: &str) -> Result<AnyConnectOptions> {
    install_default_drivers();
    let is_made = url.starts_with("sqlite:") && !url.contains('?');
    let url = if is_made { Cow::from(format!("{url}?mode=rwc")) } else { Cow::from(url) };
    url.parse().doing("reading the address of its database")
}

async fn settle(connection: &mut AnyConnection) -> std::result::Result<(), sqlx::Error> {
    if matches!(Backend::of(connection), Ok(Backend::Sqlite)) {
        sqlx::raw_sql(SQLITE).execute(connection).await?;
    }
    Ok(())
}
