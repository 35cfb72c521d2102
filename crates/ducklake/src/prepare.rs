//! A catalogue and a table in it: made when they are missing, else compared, and columns that are missing added.

use std::collections::HashMap;

use arrow_schema::Schema;
use model::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use crate::columns::{Column, columns};
use crate::connect::Backend;
use crate::error::{Doing, Error, Result};
use crate::rows::{Value, insert, row};
use crate::snapshot::{Snapshot, quoted};
use crate::tables::{ALL, COLUMN, INDEXES, METADATA, SCHEMA, SCHEMA_VERSIONS, TABLE};
use crate::totals::Totals;

/// The version that is written, and the only one that is read.
const VERSION: &str = "1.0";
/// The one schema.
pub(crate) const MAIN: &str = "main";
/// Its id.
pub(crate) const MAIN_ID: i64 = 0;

/// A table as its writer wants it.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// Where all data of the catalogue is: an absolute folder or an address such as `s3://bucket/lake/`, a slash at its end.
    pub data: &'a str,
    /// The table's name.
    pub table: &'a str,
    /// Where its files are below `data`: empty, or with a slash at its end.
    pub folder: &'a str,
    /// What its files have, each field and part of one with a `PARQUET:field_id` of its own. Columns are shown in the order of these.
    pub schema: &'a Schema,
}

/// A table of a catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(crate) id: i64,
    /// Where its files are below the catalogue's data.
    pub(crate) folder: String,
}

/// Makes the catalogue's tables when there are none, and a table of this layout when there is none. To one that is there columns and
/// parts of columns are added which it does not have, null in all earlier files, and columns may become nullable.
///
/// # Errors
/// A catalogue of another version or other data, a table with other columns or more, a layout that is none: see [`Error`].
pub async fn prepare(
    connection: &mut AnyConnection,
    layout: &Layout<'_>,
    at: Timestamp,
) -> Result<Table> {
    let folder = (!layout.folder.is_empty()).then_some(layout.folder);
    for path in [Some(layout.data), folder].into_iter().flatten() {
        if !path.ends_with('/') {
            return Err(Error::Folder { path: path.to_owned() });
        }
    }
    let columns = columns(layout.schema)?;
    if !exists(connection).await? {
        create(connection, layout.data, at).await?;
    }
    compare(connection, layout.data).await?;
    let Some(table) = find(connection, layout.table).await? else {
        return create_table(connection, layout, &columns, at).await;
    };
    if table.folder != layout.folder {
        return Err(Error::TableFolder {
            table: layout.table.to_owned(),
            found: table.folder,
            wanted: layout.folder.to_owned(),
        });
    }
    extend(connection, table.id, layout.table, &columns, at).await?;
    Ok(table)
}

async fn exists(connection: &mut AnyConnection) -> Result<bool> {
    let sql = match Backend::of(connection)? {
        Backend::Sqlite => {
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'ducklake_metadata'"
        }
        Backend::Postgres => "SELECT COUNT(to_regclass('ducklake_metadata'))",
    };
    let (count,): (i64,) =
        sqlx::query_as(sql).fetch_one(connection).await.doing("looking for a catalogue")?;
    Ok(count > 0)
}

async fn create(connection: &mut AnyConnection, data: &str, at: Timestamp) -> Result<()> {
    let backend = Backend::of(connection)?;
    let tables = ALL.iter().map(|relation| relation.creation(backend));
    for statement in tables.chain(INDEXES.into_iter().map(str::to_owned)) {
        let statement = sqlx::query(AssertSqlSafe(statement)).persistent(false);
        statement.execute(&mut *connection).await.doing("making the tables of a catalogue")?;
    }
    let created_by = concat!("Throughline ", env!("CARGO_PKG_VERSION"));
    let settings = [
        ("version", VERSION),
        ("created_by", created_by),
        ("data_path", data),
        ("encrypted", "false"),
    ];
    let settings = settings.map(|(key, value)| row![key, value, Value::Null, Value::Null]);
    insert(connection, &METADATA, &settings).await?;
    let uuid = Uuid::new_v4().to_string();
    // Without a folder of its own, so that a table's folder is below the data as the caller says.
    let main = row![MAIN_ID, uuid, Snapshot::FIRST.id, Value::Null, MAIN, "", true];
    insert(connection, &SCHEMA, &[main]).await?;
    let changes = format!("created_schema:{}", quoted(MAIN));
    Snapshot::FIRST.write(connection, &changes, None, at).await?;
    Ok(())
}

async fn compare(connection: &mut AnyConnection, data: &str) -> Result<()> {
    let settings = sqlx::query_as("SELECT key, value FROM ducklake_metadata WHERE scope IS NULL");
    let settings: Vec<(String, String)> =
        settings.fetch_all(connection).await.doing("reading what a catalogue is of")?;
    let mut settings: HashMap<String, String> = settings.into_iter().collect();
    let found = settings.remove("version").ok_or(Error::Damaged { what: "version" })?;
    if found != VERSION {
        return Err(Error::Version { found });
    }
    let found = settings.remove("data_path").ok_or(Error::Damaged { what: "data_path" })?;
    if found != data {
        return Err(Error::DataPath { found, wanted: data.to_owned() });
    }
    Ok(())
}

async fn find(connection: &mut AnyConnection, name: &str) -> Result<Option<Table>> {
    let found = sqlx::query_as(
        "SELECT t.table_id, COALESCE(s.path, '') || COALESCE(t.path, '') FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id \
         WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL AND s.schema_name = $1 AND t.table_name = $2",
    );
    let found: Option<(i64, String)> = found
        .bind(MAIN)
        .bind(name)
        .fetch_optional(connection)
        .await
        .doing("looking for a table")?;
    Ok(found.map(|(id, folder)| Table { id, folder }))
}

async fn create_table(
    connection: &mut AnyConnection,
    layout: &Layout<'_>,
    columns: &[Column],
    at: Timestamp,
) -> Result<Table> {
    let mut snapshot = Snapshot::next(connection).await?;
    snapshot.schema_version += 1;
    let id = snapshot.take_catalog_id();
    let Layout { table: name, folder, .. } = *layout;
    let uuid = Uuid::new_v4().to_string();
    let table = row![id, uuid, snapshot.id, Value::Null, MAIN_ID, name, folder, true];
    insert(connection, &TABLE, &[table]).await?;
    let rows = columns.iter().map(|column| column_row(column, id, snapshot.id, column.is_nullable));
    insert(connection, &COLUMN, &rows.collect::<Vec<_>>()).await?;
    let version = row![snapshot.id, snapshot.schema_version, id];
    insert(connection, &SCHEMA_VERSIONS, &[version]).await?;
    Totals::default().write(connection, id).await?;
    let changes = format!("created_table:{}.{}", quoted(MAIN), quoted(name));
    snapshot.write(connection, &changes, None, at).await?;
    Ok(Table { id, folder: folder.to_owned() })
}

/// Adds columns to a table.
async fn extend(
    connection: &mut AnyConnection,
    table: i64,
    name: &str,
    columns: &[Column],
    at: Timestamp,
) -> Result<()> {
    let plan = plan(name, &live_columns(connection, table).await?, columns)?;
    if plan.is_empty() {
        return Ok(());
    }
    let mut snapshot = Snapshot::next(connection).await?;
    snapshot.schema_version += 1;
    for change in &plan {
        if let Alteration::Relax(column) = change {
            let end = sqlx::query(
                "UPDATE ducklake_column SET end_snapshot = $1 WHERE table_id = $2 AND column_id = $3 AND end_snapshot IS NULL",
            );
            let end = end.bind(snapshot.id).bind(table).bind(column.id);
            end.execute(&mut *connection).await.doing("changing a column")?;
        }
    }
    let rows = plan.iter().map(|(Alteration::Add(column) | Alteration::Relax(column))| {
        column_row(column, table, snapshot.id, true)
    });
    insert(connection, &COLUMN, &rows.collect::<Vec<_>>()).await?;
    let version = row![snapshot.id, snapshot.schema_version, table];
    insert(connection, &SCHEMA_VERSIONS, &[version]).await?;
    snapshot.write(connection, &format!("altered_table:{table}"), None, at).await?;
    Ok(())
}

/// What is to be done to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Alteration<'a> {
    /// It gets a column.
    Add(&'a Column),
    /// A column of it may be null.
    Relax(&'a Column),
}

fn plan<'a>(table: &str, found: &[Column], wanted: &'a [Column]) -> Result<Vec<Alteration<'a>>> {
    if let Some(unknown) = found.iter().find(|it| wanted.iter().all(|column| column.id != it.id)) {
        let Column { id, name, .. } = unknown.clone();
        return Err(Error::UnknownColumn { table: table.to_owned(), id, name });
    }
    let mut plan = Vec::new();
    for column in wanted {
        let Some(found) = found.iter().find(|it| it.id == column.id) else {
            plan.push(Alteration::Add(column));
            continue;
        };
        let shape = |it: &Column| (it.name.clone(), it.kind.clone(), it.parent);
        if shape(found) != shape(column) {
            return Err(Error::Column {
                table: table.to_owned(),
                id: column.id,
                found: described(found),
                wanted: described(column),
            });
        }
        if column.is_nullable && !found.is_nullable {
            plan.push(Alteration::Relax(column));
        }
    }
    Ok(plan)
}

fn described(column: &Column) -> String {
    let Column { name, kind, parent, .. } = column;
    match parent {
        Some(parent) => format!("{name:?} of type {kind} in column {parent}"),
        None => format!("{name:?} of type {kind}"),
    }
}

async fn live_columns(connection: &mut AnyConnection, table: i64) -> Result<Vec<Column>> {
    let rows = sqlx::query_as(
        "SELECT column_id, parent_column, column_name, column_type, CASE WHEN nulls_allowed THEN 1 ELSE 0 END \
         FROM ducklake_column WHERE table_id = $1 AND end_snapshot IS NULL",
    );
    let rows: Vec<(i64, Option<i64>, String, String, i64)> =
        rows.bind(table).fetch_all(connection).await.doing("reading a table's columns")?;
    let columns = rows.into_iter().map(|(id, parent, name, kind, nullable)| Column {
        id,
        parent,
        name,
        kind,
        is_nullable: nullable != 0,
    });
    Ok(columns.collect())
}

fn column_row(column: &Column, table: i64, begin: i64, is_nullable: bool) -> Vec<Value> {
    let Column { id, parent, name, kind, .. } = column;
    let is_nested = matches!(kind.as_str(), "list" | "struct" | "map");
    // As DuckDB writes "no default": the literal NULL, without a type for what has parts.
    let default_type = if is_nested { "" } else { "literal" };
    row![
        *id,
        begin,
        Value::Null,
        table,
        *id,
        name.as_str(),
        kind.as_str(),
        Value::Null,
        "NULL",
        is_nullable,
        *parent,
        default_type,
        "duckdb",
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(id: i64, name: &str, kind: &str, is_nullable: bool) -> Column {
        Column { id, parent: None, name: name.to_owned(), kind: kind.to_owned(), is_nullable }
    }

    #[test]
    fn columns_are_added_and_may_become_nullable() {
        let before = [column(1, "a", "int64", false), column(2, "b", "int64", true)];
        let after = [
            column(1, "a", "int64", true),
            column(2, "b", "int64", false),
            column(3, "c", "varchar", false),
        ];
        let expected = [Alteration::Relax(&after[0]), Alteration::Add(&after[2])];
        assert_eq!(plan("t", &before, &after).unwrap(), expected);
        assert_eq!(plan("t", &before, &before).unwrap(), []);
    }

    #[test]
    fn what_files_do_not_have_any_more_is_refused_by_name() {
        let found = [column(1, "a", "int64", false)];
        let refused = |wanted: &[Column]| plan("t", &found, wanted).unwrap_err().to_string();
        assert_eq!(refused(&[]), r#"table "t" has column 1 ("a"), which is not known"#);
        assert_eq!(
            refused(&[column(1, "a", "varchar", false)]),
            r#"column 1 of table "t" is "a" of type int64, not "a" of type varchar"#
        );
        let mut moved = column(1, "a", "int64", false);
        moved.parent = Some(7);
        assert_eq!(
            refused(&[moved]),
            r#"column 1 of table "t" is "a" of type int64, not "a" of type int64 in column 7"#
        );
    }
}
