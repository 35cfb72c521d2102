//! The files that the newest snapshot shows.

use sqlx::AnyConnection;

use crate::error::{Doing, Result};
use crate::prepare::Table;
use crate::snapshot::SnapshotId;

/// A live file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Below the table's folder.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Length of its footer, without the 8 bytes behind it; `None` where another writer did not say.
    pub footer_bytes: Option<u64>,
    /// How many rows it has.
    pub rows: u64,
    /// The first snapshot that shows it.
    pub since: SnapshotId,
}

/// At most `limit` live files of a table in the order of their paths, those after a path perhaps.
///
/// # Errors
/// [`Error::Database`](crate::Error::Database).
pub async fn live(
    connection: &mut AnyConnection,
    table: &Table,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<LiveFile>> {
    let query = sqlx::query_as(
        "SELECT path, file_size_bytes, footer_size, record_count, begin_snapshot FROM ducklake_data_file \
         WHERE table_id = $1 AND end_snapshot IS NULL AND path > $2 ORDER BY path LIMIT $3",
    );
    // No path is empty, and each is after the empty one.
    let query = query.bind(table.id).bind(after.unwrap_or("").to_owned()).bind(i64::from(limit));
    let rows: Vec<(String, i64, Option<i64>, i64, i64)> =
        query.fetch_all(connection).await.doing("reading live files")?;
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let files = rows.into_iter().map(|(path, bytes, footer_bytes, rows, since)| LiveFile {
        path,
        bytes: number(bytes),
        footer_bytes: footer_bytes.map(number),
        rows: number(rows),
        since: SnapshotId(since),
    });
    Ok(files.collect())
}
