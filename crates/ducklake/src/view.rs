//! Views: queries by name.

use model::Timestamp;
use sqlx::AnyConnection;
use uuid::Uuid;

use crate::error::{Doing, Error, Result};
use crate::prepare::{MAIN, MAIN_ID};
use crate::rows::{Value, insert, row};
use crate::snapshot::{Snapshot, SnapshotId, quoted};
use crate::tables::VIEW;

const DOING: &str = "writing a view";

/// Makes a view of a query in DuckDB's SQL, or changes it; `None` when it is there with the same query, as no snapshot is made then.
/// Whether the query is one is known to its readers only.
///
/// # Errors
/// [`Error::NameTaken`] when a table has the name, [`Error::Database`].
pub async fn view(
    connection: &mut AnyConnection,
    name: &str,
    query: &str,
    at: Timestamp,
) -> Result<Option<SnapshotId>> {
    let mut snapshot = Snapshot::next(connection).await?;
    refuse_table(connection, name).await?;
    let found = sqlx::query_as(
        "SELECT view_id, sql FROM ducklake_view WHERE end_snapshot IS NULL AND schema_id = $1 AND view_name = $2",
    );
    let found: Option<(i64, String)> = found
        .bind(MAIN_ID)
        .bind(name.to_owned())
        .fetch_optional(&mut *connection)
        .await
        .doing(DOING)?;
    let mut changes = String::new();
    if let Some((id, sql)) = found {
        if sql == query {
            return Ok(None);
        }
        let end = sqlx::query(
            "UPDATE ducklake_view SET end_snapshot = $1 WHERE view_id = $2 AND end_snapshot IS NULL",
        );
        end.bind(snapshot.id).bind(id).execute(&mut *connection).await.doing(DOING)?;
        changes = format!("dropped_view:{id},");
    }
    snapshot.schema_version += 1;
    let id = snapshot.take_catalog_id();
    let uuid = Uuid::new_v4().to_string();
    let none = Value::Null;
    let view = row![id, uuid, snapshot.id, none, MAIN_ID, name, "duckdb", query, ""];
    insert(connection, &VIEW, &[view]).await?;
    changes.push_str(&format!("created_view:{}.{}", quoted(MAIN), quoted(name)));
    snapshot.write(connection, &changes, None, at).await.map(Some)
}

async fn refuse_table(connection: &mut AnyConnection, name: &str) -> Result<()> {
    let table = sqlx::query_as(
        "SELECT COUNT(*) FROM ducklake_table WHERE end_snapshot IS NULL AND schema_id = $1 AND table_name = $2",
    );
    let (count,): (i64,) =
        table.bind(MAIN_ID).bind(name.to_owned()).fetch_one(connection).await.doing(DOING)?;
    if count > 0 {
        return Err(Error::NameTaken { name: name.to_owned() });
    }
    Ok(())
}
