//! The tables against those that DuckDB makes.

use std::collections::BTreeMap;

use sqlx::{Row, any::AnyRow};
use testkit::postgres::Postgres;

use crate::lake::Lake;
use testkit::duckdb::DuckDb;

/// Columns of a table with their types and rules, in order.
type Tables = BTreeMap<String, Vec<String>>;

async fn tables(url: &str, sql: &'static str) -> Tables {
    let mut connection = ducklake::connect(url).await.unwrap();
    let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
    let mut tables = Tables::new();
    let text = |row: &AnyRow, index: usize| row.get::<String, _>(index);
    for row in &rows {
        tables.entry(text(row, 0)).or_default().push(text(row, 1));
    }
    tables
}

fn make(address: &str, data: &std::path::Path) {
    let options = format!("DATA_PATH '{}/'", data.display());
    let mut duckdb = DuckDb::attach_with(address, &options);
    duckdb.rows("SELECT 1");
}

#[tokio::test]
async fn sqlite_has_the_tables_that_duckdb_makes() {
    const COLUMNS: &str = "SELECT t.name, c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' || c.pk \
         FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid";
    if !DuckDb::is_there() {
        return;
    }
    let lake = Lake::sqlite().await;
    let path = lake.folder.path().join("reference.sqlite");
    make(&format!("sqlite:{}", path.display()), lake.folder.path());
    let reference = tables(&format!("sqlite:{}", path.display()), COLUMNS).await;
    assert_eq!(reference.len(), 28, "{reference:?}");
    assert_eq!(tables(&lake.url, COLUMNS).await, reference);
}

#[tokio::test]
async fn postgresql_has_the_tables_that_duckdb_makes() {
    const COLUMNS: &str = "SELECT CAST(table_name AS TEXT), CAST(column_name || ' ' || data_type || ' ' || is_nullable AS TEXT) \
         FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position";
    if !DuckDb::is_there() {
        return;
    }
    let Some(server) = Postgres::start() else { return };
    let lake = Lake::postgres(&server).await;
    let reference = server.database("reference");
    let host = server.host().display();
    let address = format!("postgres:host={host} user=throughline dbname=reference");
    make(&address, lake.folder.path());
    let reference = tables(&reference, COLUMNS).await;
    assert_eq!(reference.len(), 28, "{reference:?}");
    assert_eq!(tables(&lake.url, COLUMNS).await, reference);
}
