//! A snapshot that adds data files and ends others.

use std::collections::{HashMap, HashSet};

use model::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};

use crate::error::{Doing, Error, Result};
use crate::prepare::Table;
use crate::rows::{Value, filled, insert, list, parts, row};
use crate::snapshot::{Snapshot, SnapshotId};
use crate::statistics::Numbers;
use crate::tables::{DATA_FILE, FILE_COLUMN_STATS};
use crate::totals::{Totals, widen};

/// A Parquet file that lies where the catalogue says, as a whole, before it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Below the table's folder.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// What its footer says.
    pub numbers: Numbers,
}

/// What a snapshot changes.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Files that it shows first.
    pub add: &'a [DataFile],
    /// Paths of files that it does not show, while older ones do.
    pub end: &'a [String],
    /// A word to readers of the list of snapshots.
    pub message: Option<&'a str>,
}

/// Makes the snapshot; without files, none, and the newest one is given.
///
/// # Errors
/// [`Error::NotLive`] when a file to end is not live or named twice, [`Error::Known`] when one to add was there before, is to be deleted
/// yet, or is named twice, and [`Error::TooLarge`]; nothing is changed then. [`Error::Database`].
pub async fn commit(
    connection: &mut AnyConnection,
    table: &Table,
    change: &Change<'_>,
    at: Timestamp,
) -> Result<SnapshotId> {
    let mut snapshot = Snapshot::next(connection).await?;
    let Change { add, end, message } = *change;
    if add.is_empty() && end.is_empty() {
        return Ok(SnapshotId(snapshot.id - 1));
    }
    let before = Totals::read(connection, table.id).await?;
    let files = file_rows(table, add, snapshot, before.next_row_id)?;
    let found = found(connection, table, add, end).await?;
    refuse_known(connection, table, add, &found).await?;
    let ended = live(end, &found)?;

    insert(connection, &DATA_FILE, &files.files).await?;
    insert(connection, &FILE_COLUMN_STATS, &files.statistics).await?;
    let ids: Vec<i64> = ended.iter().map(|file| file.id).collect();
    end_files(connection, &ids, snapshot.id).await?;
    let ended_rows: i64 = ended.iter().map(|file| file.rows).sum();
    let ended_bytes: i64 = ended.iter().map(|file| file.bytes).sum();
    let after = Totals {
        rows: before.rows.saturating_add(files.rows).saturating_sub(ended_rows),
        bytes: before.bytes.saturating_add(files.bytes).saturating_sub(ended_bytes),
        next_row_id: before.next_row_id.saturating_add(files.rows),
    };
    after.write(connection, table.id).await?;
    widen(connection, table.id, add, before.next_row_id > 0).await?;
    snapshot.next_file_id = files.next_file_id;
    snapshot.write(connection, &changes(table, change), message, at).await
}

fn changes(table: &Table, change: &Change<'_>) -> String {
    let inserted = (!change.add.is_empty()).then(|| format!("inserted_into_table:{}", table.id));
    let deleted = (!change.end.is_empty()).then(|| format!("deleted_from_table:{}", table.id));
    [inserted, deleted].into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// Rows of files to add, and sums over them.
#[derive(Default)]
struct FileRows {
    files: Vec<Vec<Value>>,
    statistics: Vec<Vec<Value>>,
    next_file_id: i64,
    rows: i64,
    bytes: i64,
}

fn file_rows(
    table: &Table,
    add: &[DataFile],
    snapshot: Snapshot,
    next_row_id: i64,
) -> Result<FileRows> {
    let mut all = FileRows { next_file_id: snapshot.next_file_id, ..FileRows::default() };
    for file in add {
        let number = |what, found: u64| {
            let too_large = |_| Error::TooLarge { path: file.path.clone(), what, found };
            i64::try_from(found).map_err(too_large)
        };
        let Numbers { footer_bytes, rows, columns } = &file.numbers;
        let id = all.next_file_id;
        let (rows, bytes) = (number("number of rows", *rows)?, number("length", file.bytes)?);
        let footer_bytes = number("length of the footer", *footer_bytes)?;
        let first_row = next_row_id.saturating_add(all.rows);
        all.files.push(row![
            id,
            table.id,
            snapshot.id,
            Value::Null,
            Value::Null,
            file.path.as_str(),
            true,
            "parquet",
            rows,
            bytes,
            footer_bytes,
            first_row,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
        ]);
        for column in columns {
            let bytes = number("length of a column", column.bytes)?;
            let count = |count: Option<u64>| count.map(|it| number("number of values", it));
            let values = count(column.values).transpose()?;
            let nulls = count(column.nulls).transpose()?;
            let [min, max] =
                [&column.min, &column.max].map(|bound| bound.as_ref().map(ToString::to_string));
            all.statistics.push(row![
                id,
                table.id,
                column.id,
                bytes,
                values,
                nulls,
                min,
                max,
                Value::Null,
                Value::Null,
            ]);
        }
        all.next_file_id += 1;
        all.rows = all.rows.saturating_add(rows);
        all.bytes = all.bytes.saturating_add(bytes);
    }
    Ok(all)
}

/// A file of the catalogue.
#[derive(Debug, Clone, Copy)]
struct Found {
    id: i64,
    is_live: bool,
    rows: i64,
    bytes: i64,
}

/// Those of the change's files that the catalogue has.
async fn found(
    connection: &mut AnyConnection,
    table: &Table,
    add: &[DataFile],
    end: &[String],
) -> Result<HashMap<String, Found>> {
    let paths = add.iter().map(|file| &file.path).chain(end);
    let paths: Vec<&String> = paths.collect();
    let mut found = HashMap::new();
    for (part, places) in parts(&paths) {
        let sql = format!(
            "SELECT path, data_file_id, CASE WHEN end_snapshot IS NULL THEN 1 ELSE 0 END, record_count, file_size_bytes \
             FROM ducklake_data_file WHERE table_id = $1 AND path IN {}",
            list(2, places)
        );
        let query = sqlx::query_as(AssertSqlSafe(sql)).bind(table.id);
        let query = filled(part, places).fold(query, |query, path| query.bind((*path).clone()));
        let rows: Vec<(String, i64, i64, i64, i64)> =
            query.fetch_all(&mut *connection).await.doing("looking for files")?;
        found.extend(rows.into_iter().map(|(path, id, is_live, rows, bytes)| {
            (path, Found { id, is_live: is_live != 0, rows, bytes })
        }));
    }
    Ok(found)
}

/// Files are added once, also those whose deletion is still to come.
async fn refuse_known(
    connection: &mut AnyConnection,
    table: &Table,
    add: &[DataFile],
    found: &HashMap<String, Found>,
) -> Result<()> {
    let mut seen = HashSet::new();
    let known = add.iter().find(|file| found.contains_key(&file.path) || !seen.insert(&file.path));
    if let Some(known) = known {
        return Err(Error::Known { path: known.path.clone() });
    }
    let paths = add.iter().map(|file| format!("{}{}", table.folder, file.path));
    for (part, places) in parts(&paths.collect::<Vec<_>>()) {
        let sql = format!(
            "SELECT path FROM ducklake_files_scheduled_for_deletion WHERE path IN {} LIMIT 1",
            list(1, places)
        );
        let query = filled(part, places)
            .fold(sqlx::query_as(AssertSqlSafe(sql)), |query, path| query.bind(path.clone()));
        let known: Option<(String,)> =
            query.fetch_optional(&mut *connection).await.doing("looking for files")?;
        if let Some((path,)) = known {
            let path = path.strip_prefix(&table.folder).unwrap_or(&path).to_owned();
            return Err(Error::Known { path });
        }
    }
    Ok(())
}

/// The files to end, each live.
fn live(end: &[String], found: &HashMap<String, Found>) -> Result<Vec<Found>> {
    let mut seen = HashSet::new();
    let live = end.iter().map(|path| {
        let live = found.get(path).filter(|file| file.is_live && seen.insert(path));
        live.copied().ok_or_else(|| Error::NotLive { path: path.clone() })
    });
    live.collect()
}

async fn end_files(connection: &mut AnyConnection, ids: &[i64], snapshot: i64) -> Result<()> {
    for (part, places) in parts(ids) {
        let sql = format!(
            "UPDATE ducklake_data_file SET end_snapshot = $1 WHERE data_file_id IN {}",
            list(2, places)
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(snapshot);
        let query = filled(part, places).fold(query, |query, id| query.bind(*id));
        query.execute(&mut *connection).await.doing("ending files")?;
    }
    Ok(())
}
