//! Forgetting old snapshots, and the files that no other shows.

use std::num::NonZeroU32;

use model::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};

use crate::connect::Backend;
use crate::error::{Doing, Result};
use crate::rows::{filled, list, parts, placeholder};
use crate::snapshot::{Snapshot, time_text};
use crate::tables::Kind;

const DOING: &str = "forgetting old snapshots";

/// Which snapshots stay; the newest one always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Those from the first one on that was made at a time or later.
    Since(Timestamp),
    /// The newest ones.
    Last(NonZeroU32),
}

/// What was forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many snapshots.
    pub snapshots: u64,
    /// How many files are to be deleted, see [`scheduled`].
    pub files: u64,
}

/// Forgets old snapshots and schedules files for deletion, `at` this time, that no remaining snapshot shows. A reader that knows such
/// a snapshot may still be reading them; how long it may is up to the caller.
///
/// # Errors
/// [`Error::Database`](crate::Error::Database), [`Error::Damaged`](crate::Error::Damaged).
pub async fn expire(connection: &mut AnyConnection, keep: Keep, at: Timestamp) -> Result<Expired> {
    let newest = Snapshot::next(connection).await?.id - 1;
    let first = first_kept(connection, keep).await?.unwrap_or(newest);
    let snapshots =
        run(connection, "DELETE FROM ducklake_snapshot WHERE snapshot_id < $1", first).await?;
    if snapshots == 0 {
        return Ok(Expired::default());
    }
    run(connection, "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id < $1", first).await?;
    let files = schedule(connection, first, at).await?;
    // Columns and views go with the last snapshot that shows them, as files do.
    for statement in [
        "DELETE FROM ducklake_file_column_stats WHERE data_file_id IN (SELECT data_file_id FROM ducklake_data_file WHERE end_snapshot <= $1)",
        "DELETE FROM ducklake_data_file WHERE end_snapshot <= $1",
        "DELETE FROM ducklake_column WHERE end_snapshot <= $1",
        "DELETE FROM ducklake_view WHERE end_snapshot <= $1",
    ] {
        run(connection, statement, first).await?;
    }
    Ok(Expired { snapshots, files })
}

async fn first_kept(connection: &mut AnyConnection, keep: Keep) -> Result<Option<i64>> {
    let backend = Backend::of(connection)?;
    let first: Option<(Option<i64>,)> = match keep {
        Keep::Since(time) => {
            let time_place = placeholder(1, Kind::Time, backend);
            let sql = format!(
                "SELECT MIN(snapshot_id) FROM ducklake_snapshot WHERE snapshot_time >= {time_place}"
            );
            let query = sqlx::query_as(AssertSqlSafe(sql)).bind(time_text(time));
            query.fetch_optional(connection).await.doing(DOING)?
        }
        Keep::Last(count) => {
            let query = sqlx::query_as(
                "SELECT MIN(snapshot_id) FROM (SELECT snapshot_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT $1) AS newest",
            );
            query.bind(i64::from(count.get())).fetch_optional(connection).await.doing(DOING)?
        }
    };
    Ok(first.and_then(|(first,)| first))
}

async fn run(connection: &mut AnyConnection, statement: &'static str, first: i64) -> Result<u64> {
    let done = sqlx::query(statement).bind(first).execute(connection).await.doing(DOING)?;
    Ok(done.rows_affected())
}

/// Paths to be deleted are kept below the catalogue's data, as DuckDB keeps them.
async fn schedule(connection: &mut AnyConnection, first: i64, at: Timestamp) -> Result<u64> {
    let time = placeholder(1, Kind::Time, Backend::of(connection)?);
    let sql = format!(
        "INSERT INTO ducklake_files_scheduled_for_deletion \
         SELECT file.data_file_id, \
                CASE WHEN file.path_is_relative THEN place.folder || file.path ELSE file.path END, \
                file.path_is_relative AND place.is_relative, {time} \
         FROM ducklake_data_file AS file \
         JOIN (SELECT DISTINCT t.table_id AS id, t.path_is_relative AND s.path_is_relative AS is_relative, \
                      CASE WHEN t.path_is_relative THEN s.path || t.path ELSE t.path END AS folder \
               FROM ducklake_table AS t JOIN ducklake_schema AS s ON s.schema_id = t.schema_id) AS place \
         ON place.id = file.table_id WHERE file.end_snapshot <= $2"
    );
    let query = sqlx::query(AssertSqlSafe(sql)).bind(time_text(at)).bind(first);
    Ok(query.execute(connection).await.doing(DOING)?.rows_affected())
}

/// Paths of at most `limit` files below the catalogue's data that were scheduled for deletion at a time or before, the first ones first.
/// They stay until they are [`deleted`], and are not added again before.
///
/// # Errors
/// [`Error::Database`](crate::Error::Database).
pub async fn scheduled(
    connection: &mut AnyConnection,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<String>> {
    let time = placeholder(1, Kind::Time, Backend::of(connection)?);
    // Others lie elsewhere, and are not ours to delete.
    let sql = format!(
        "SELECT path FROM ducklake_files_scheduled_for_deletion WHERE schedule_start <= {time} AND path_is_relative \
         ORDER BY data_file_id LIMIT $2"
    );
    let query = sqlx::query_as(AssertSqlSafe(sql)).bind(time_text(until)).bind(i64::from(limit));
    let rows: Vec<(String,)> =
        query.fetch_all(connection).await.doing("looking for files to delete")?;
    Ok(rows.into_iter().map(|(path,)| path).collect())
}

/// Forgets files that [`scheduled`] gave, once they are deleted; how many there were.
///
/// # Errors
/// [`Error::Database`](crate::Error::Database).
pub async fn deleted(connection: &mut AnyConnection, paths: &[String]) -> Result<u64> {
    let mut count = 0;
    for (part, places) in parts(paths) {
        let sql = format!(
            "DELETE FROM ducklake_files_scheduled_for_deletion WHERE path IN {}",
            list(1, places)
        );
        let query = filled(part, places)
            .fold(sqlx::query(AssertSqlSafe(sql)), |query, path| query.bind(path.clone()));
        let done = query.execute(&mut *connection).await.doing("forgetting deleted files")?;
        count += done.rows_affected();
    }
    Ok(count)
}
