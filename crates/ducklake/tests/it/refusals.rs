//! Catalogues that are not what was expected.

use std::fs;

use arrow_schema::Schema;
use ducklake::{Error, Layout};
use model::Timestamp;

use crate::lake::{BEGIN, Lake, Version, check, rows, schema};
use testkit::duckdb::DuckDb;

async fn prepare(lake: &mut Lake, data: &str, folder: &str, schema: &Schema) -> Error {
    let layout = Layout { data, table: "samples", folder, schema };
    let at = Timestamp::from_nanos(BEGIN);
    ducklake::prepare(&mut lake.connection, &layout, at).await.unwrap_err()
}

#[tokio::test]
async fn a_catalogue_of_other_data_or_another_version_is_refused_by_name() {
    let mut lake = Lake::sqlite().await;
    let data = format!("{}/", lake.folder.path().display());
    let schema = schema(Version::First);
    let error = prepare(&mut lake, "/elsewhere/", "blocks/", &schema).await;
    assert!(matches!(error, Error::DataPath { wanted, .. } if wanted == "/elsewhere/"));
    let error = prepare(&mut lake, &data, "files/", &schema).await;
    assert!(matches!(error, Error::TableFolder { found, .. } if found == "blocks/"));
    for (data, folder) in [("", ""), ("/lake", ""), ("/lake/", "blocks")] {
        let error = prepare(&mut lake, data, folder, &schema).await;
        assert!(matches!(error, Error::Folder { .. }), "{error}");
    }
    let version = sqlx::query("UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'");
    version.execute(&mut lake.connection).await.unwrap();
    let error = prepare(&mut lake, &data, "blocks/", &schema).await;
    assert!(matches!(&error, Error::Version { found } if found == "1.1"));
    assert!(error.to_string().contains("\"1.1\""), "{error}");
}

#[tokio::test]
async fn files_that_were_moved_are_read_where_they_are() {
    if !DuckDb::is_there() {
        return;
    }
    let mut lake = Lake::sqlite().await;
    lake.commit(&[("a.parquet", rows(0..10))], &[]).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(lake.folder.path().join("blocks"), elsewhere.path().join("blocks")).unwrap();
    let place = elsewhere.path().display();
    let options = format!("READ_ONLY, DATA_PATH '{place}/', OVERRIDE_DATA_PATH true");
    check(&mut DuckDb::attach_with(&lake.address, &options), "samples", &rows(0..10));
}

#[tokio::test]
async fn sqlite_survives_a_loss_of_power_by_its_settings() {
    let mut lake = Lake::sqlite().await;
    for (setting, expected) in
        [("journal_mode", "wal"), ("synchronous", "2"), ("foreign_keys", "1")]
    {
        let sql = format!("SELECT CAST({setting} AS TEXT) FROM pragma_{setting}");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(sql));
        let (found,): (String,) = query.fetch_one(&mut lake.connection).await.unwrap();
        assert_eq!(found, expected, "{setting}");
    }
    let pool = ducklake::pool(&lake.url, 2).unwrap();
    let query = sqlx::query_as("SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous");
    let (found,): (String,) = query.fetch_one(&pool).await.unwrap();
    assert_eq!(found, "2");
}
