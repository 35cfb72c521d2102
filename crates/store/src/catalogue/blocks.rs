//! Blocks begin and end.

use std::collections::{BTreeMap, BTreeSet};

use ducklake::{DataFile, Keep, Numbers, Table};
use model::Timestamp;
use rules::{Bounds, Sums};
use sqlx::{AnyConnection, Row as _};

use super::{Catalogue, Error, Result, beside, cells};
use crate::lake::name::{BlockName, Tenant};

/// What becomes true at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Blocks that begin, with what their footers say.
    pub begin: Vec<(BlockName, Numbers)>,
    /// Blocks that end.
    pub end: Vec<BlockName>,
}

/// What blocks that end had, of one cell.
#[derive(Debug, Clone)]
pub struct Summed {
    /// Whose samples.
    pub tenant: Tenant,
    /// When the cell that they came in began.
    pub cell_ms: i64,
    /// Their sums.
    pub sums: Sums,
    /// Which series may be there.
    pub bounds: Bounds,
}

/// What a commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It was done.
    Done,
    /// It had been done before: a commit whose answer was lost.
    Before,
}

impl Catalogue {
    /// The blocks that are there, and those that ended and when, as long as they are remembered.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Damaged`].
    pub fn blocks(&self) -> Result<BTreeMap<BlockName, Option<Timestamp>>> {
        self.database.transact(async |connection: &mut AnyConnection| {
            let all = "SELECT name, ended_ns FROM throughline_block";
            let rows = sqlx::query(all).fetch_all(connection).await?;
            let block = |row: &sqlx::any::AnyRow| {
                let ended: Option<i64> = row.try_get(1)?;
                Ok((name(row.try_get(0)?)?, ended.map(Timestamp::from_nanos)))
            };
            rows.iter().map(block).collect()
        })
    }

    /// Whether a block is there.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn has(&self, block: &BlockName) -> Result<bool> {
        let name = block.to_string();
        self.database.transact(async move |connection: &mut AnyConnection| {
            Ok(state(connection, &name).await? == State::Live)
        })
    }

    /// Has blocks begin and end, and counts what those had that end.
    ///
    /// # Errors
    ///
    /// [`Error::NotThere`] and [`Error::Again`], when nothing was changed. After one that [`Error::is_unknown`] that is not known:
    /// the same again says, if a block begins.
    pub fn commit(
        &self,
        change: Change,
        summed: Option<Summed>,
        now: Timestamp,
    ) -> Result<Committed> {
        let table = self.table.clone();
        self.database.transact(async move |connection: &mut AnyConnection| {
            if is_done(connection, &change).await? {
                return Ok(Committed::Before);
            }
            apply(connection, &table, &change, now).await?;
            if let Some(summed) = &summed {
                cells::add(connection, summed).await?;
            }
            Ok(Committed::Done)
        })
    }

    /// Forgets snapshots of the DuckLake from before `shown`, and names of blocks that ended before `named`, which may be taken again then.
    /// `waiting` are files of ended blocks that are there yet.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Lake`].
    pub fn forget(
        &self,
        shown: Timestamp,
        named: Timestamp,
        waiting: BTreeSet<String>,
        now: Timestamp,
    ) -> Result<()> {
        self.database.transact(async move |connection: &mut AnyConnection| {
            ducklake::expire(connection, Keep::Since(shown), now).await?;
            let mut gone = ducklake::scheduled(connection, now, MAX_FORGOTTEN).await?;
            gone.retain(|path| !waiting.contains(path));
            ducklake::deleted(connection, &gone).await?;
            let delete = "DELETE FROM throughline_block WHERE ended_ns < $1";
            sqlx::query(delete).bind(named.nanos()).execute(connection).await?;
            Ok(())
        })
    }
}

/// Files that are forgotten at a time.
const MAX_FORGOTTEN: u32 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Live,
    Ended,
}

async fn state(connection: &mut AnyConnection, name: &str) -> Result<State> {
    let select = "SELECT ended_ns FROM throughline_block WHERE name = $1";
    let row = sqlx::query(select).bind(name).fetch_optional(connection).await?;
    let ended: Option<Option<i64>> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(match ended {
        None => State::Unknown,
        Some(None) => State::Live,
        Some(Some(_)) => State::Ended,
    })
}

/// Whether everything that should begin is there already.
async fn is_done(connection: &mut AnyConnection, change: &Change) -> Result<bool> {
    let mut live = 0;
    for (block, _) in &change.begin {
        let name = block.to_string();
        match state(connection, &name).await? {
            State::Unknown => {}
            State::Live => live += 1,
            State::Ended => return Err(Error::Again { name }),
        }
    }
    match change.begin.first() {
        None => Ok(false),
        Some(_) if live == change.begin.len() => Ok(true),
        Some(_) if live == 0 => Ok(false),
        Some((block, _)) => Err(Error::Again { name: block.to_string() }),
    }
}

async fn apply(
    connection: &mut AnyConnection,
    table: &Table,
    change: &Change,
    now: Timestamp,
) -> Result<()> {
    for (block, _) in &change.begin {
        let insert = "INSERT INTO throughline_block (name, ended_ns) VALUES ($1, NULL)";
        sqlx::query(insert).bind(block.to_string()).execute(&mut *connection).await?;
    }
    for block in &change.end {
        let update =
            "UPDATE throughline_block SET ended_ns = $1 WHERE name = $2 AND ended_ns IS NULL";
        let query = sqlx::query(update).bind(now.nanos()).bind(block.to_string());
        if query.execute(&mut *connection).await?.rows_affected() != 1 {
            return Err(Error::NotThere { name: block.to_string() });
        }
    }
    let file = |(block, numbers): &(BlockName, Numbers)| DataFile {
        path: block.to_string(),
        bytes: block.bytes,
        numbers: numbers.clone(),
    };
    let add: Vec<DataFile> = change.begin.iter().map(file).collect();
    let end: Vec<String> = change.end.iter().map(BlockName::to_string).collect();
    let message = if add.is_empty() {
        "deleted"
    } else if end.is_empty() {
        "pushed"
    } else {
        "merged"
    };
    let lake = ducklake::Change { add: &add, end: &end, message: Some(message) };
    ducklake::commit(connection, table, &lake, now).await?;
    Ok(())
}

/// The blocks that are there, asked of a catalogue that another process may own.
///
/// # Errors
///
/// As [`beside`].
pub(crate) fn live_blocks(url: &str) -> Result<Vec<BlockName>> {
    beside(url, async |connection: &mut AnyConnection| {
        let live = "SELECT name FROM throughline_block WHERE ended_ns IS NULL ORDER BY name";
        let rows = sqlx::query(live).fetch_all(connection).await?;
        rows.iter().map(|row| name(row.try_get(0)?)).collect()
    })
}

fn name(text: String) -> Result<BlockName> {
    let damaged = |_| Error::Damaged { what: format!("{text:?} is no block's name") };
    text.parse().map_err(damaged)
}
