//! What DuckDB reads after every kind of commit.

use std::fs;
use std::num::NonZeroU32;

use ducklake::{Bound, Change, Error, Expired, Keep, Numbers, Result, SnapshotId};
use model::Timestamp;
use serde_json::json;
use testkit::postgres::Postgres;

use crate::lake::{BEGIN, Lake, Row, Version, check, rows};
use testkit::duckdb::DuckDb;

/// One test for each database that can keep a catalogue.
macro_rules! in_each_database {
    ($($name:ident = $test:ident;)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                if testkit::duckdb::DuckDb::is_there() {
                    super::$test(crate::lake::Lake::sqlite().await).await;
                }
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                if !testkit::duckdb::DuckDb::is_there() {
                    return;
                }
                let Some(server) = testkit::postgres::Postgres::start() else { return };
                super::$test(crate::lake::Lake::postgres(&server).await).await;
            })*
        }
    };
}

in_each_database! {
    duckdb_reads_what_is_live_after_every_kind_of_commit = reads_what_is_live;
    a_file_is_added_and_ended_once = refuses;
    expired_snapshots_are_gone_and_the_rest_is_read = expires;
    columns_that_are_added_are_null_in_older_files = adds_columns;
    views_are_read_and_changed = makes_views;
    writers_wait_for_each_other = waits;
    duckdb_writes_in_turn_and_deletes_what_is_scheduled = writes_in_turn;
}

async fn reads_what_is_live(mut lake: Lake) {
    let mut duckdb = lake.duckdb();
    lake.check(&mut duckdb);
    let first = lake.commit(&[("a.parquet", rows(0..10))], &[]).await.unwrap();
    lake.check(&mut duckdb);
    let many = (1..40).map(|it| (format!("{it}.parquet"), rows(it * 10..it * 10 + 10)));
    let many: Vec<_> = many.collect();
    let many: Vec<_> = many.iter().map(|(name, rows)| (name.as_str(), rows.clone())).collect();
    let second = lake.commit(&many, &[]).await.unwrap();
    assert!(second > first);
    lake.check(&mut duckdb);

    let before = lake.live.clone();
    let ended: Vec<_> = before.keys().take(20).map(String::as_str).collect();
    let merged = ended.iter().flat_map(|path| before[*path].clone()).collect();
    lake.commit(&[("merged.parquet", merged)], &ended).await.unwrap();
    lake.check(&mut duckdb);
    lake.commit(&[], &["merged.parquet"]).await.unwrap();
    lake.check(&mut duckdb);
    lake.commit(&[("a*'b@(1) %20.parquet", rows(1..3))], &[]).await.unwrap();
    lake.check(&mut duckdb);

    check(&mut duckdb, &format!("samples AT (VERSION => {})", first.get()), &rows(0..10));
    let before: Vec<_> = before.into_values().flatten().collect();
    check(&mut duckdb, &format!("samples AT (VERSION => {})", second.get()), &before);
    check(&mut duckdb, "samples AT (VERSION => 1)", &[]);
    check(&mut duckdb, "samples AT (TIMESTAMP => TIMESTAMP '2024-01-02 03:04:06.5')", &rows(0..10));
    let snapshots = duckdb.rows(
        "SELECT snapshot_id, schema_version, changes::VARCHAR, commit_message, epoch_us(snapshot_time) FROM ducklake_snapshots('lake')",
    );
    let expected = json!([
        [0, 0, "{schemas_created=[main]}", null, 1_704_164_645_000_000_i64],
        [1, 1, "{tables_created=[main.samples]}", null, 1_704_164_645_000_000_i64],
        [2, 1, "{tables_inserted_into=[1]}", "a test", 1_704_164_646_000_000_i64],
        [3, 1, "{tables_inserted_into=[1]}", "a test", 1_704_164_647_000_000_i64],
        [
            4,
            1,
            "{tables_inserted_into=[1], tables_deleted_from=[1]}",
            "a test",
            1_704_164_648_000_000_i64
        ],
        [5, 1, "{tables_deleted_from=[1]}", "a test", 1_704_164_649_000_000_i64],
        [6, 1, "{tables_inserted_into=[1]}", "a test", 1_704_164_650_000_000_i64],
    ]);
    assert_eq!(snapshots, expected);
}

async fn refuses(mut lake: Lake) {
    lake.commit(&[("a", rows(0..1)), ("b", rows(1..2))], &[]).await.unwrap();
    let last = lake.commit(&[("c", rows(0..2))], &["a"]).await.unwrap();
    let not_live =
        |error: &Error, name: &str| matches!(error, Error::NotLive { path } if path == name);
    let known = |error: &Error, name: &str| matches!(error, Error::Known { path } if path == name);
    let error = lake.commit(&[("d", rows(0..1))], &["b", "a"]).await.unwrap_err();
    assert!(not_live(&error, "a"), "{error}");
    let error = lake.commit(&[], &["b", "none"]).await.unwrap_err();
    assert!(not_live(&error, "none"), "{error}");
    let error = lake.commit(&[], &["b", "b"]).await.unwrap_err();
    assert!(not_live(&error, "b"), "{error}");
    for name in ["a", "b"] {
        let error =
            lake.commit(&[("d", rows(0..1)), (name, rows(0..1))], &["c"]).await.unwrap_err();
        assert!(known(&error, name), "{error}");
    }
    let twice = [("d", rows(0..1)), ("d", rows(0..1))];
    let error = lake.commit(&twice, &[]).await.unwrap_err();
    assert!(known(&error, "d"), "{error}");
    let next = lake.commit(&[("d", rows(0..1))], &["b"]).await.unwrap();
    assert_eq!(next.get(), last.get() + 1);
    assert_eq!(lake.commit(&[], &[]).await.unwrap(), next);
}

async fn expires(mut lake: Lake) {
    let mut duckdb = lake.duckdb();
    for number in 0..4 {
        let name = format!("{number}.parquet");
        lake.commit(&[(name.as_str(), rows(number * 10..number * 10 + 10))], &[]).await.unwrap();
    }
    let merged = lake.commit(&[("merged.parquet", rows(0..20))], &["0.parquet", "1.parquet"]).await;
    let merged = merged.unwrap();
    let deleted_at = lake.now();
    let deleted = lake.commit(&[], &["2.parquet"]).await.unwrap();
    let at = lake.now();

    let nothing = expire(&mut lake, Keep::Since(Timestamp::from_nanos(BEGIN)), at).await;
    assert_eq!(nothing, Expired { snapshots: 0, files: 0 });
    let last = NonZeroU32::new(2).unwrap();
    let first = expire(&mut lake, Keep::Last(last), at).await;
    assert_eq!(first, Expired { snapshots: 6, files: 2 });
    lake.check(&mut duckdb);
    check(&mut duckdb, &format!("samples AT (VERSION => {})", merged.get()), &rows(0..40));
    let error = duckdb.ask("SELECT * FROM samples AT (VERSION => 3)").unwrap_err();
    assert!(error.contains("No snapshot found"), "{error}");

    let second = expire(&mut lake, Keep::Since(deleted_at), at).await;
    assert_eq!(second, Expired { snapshots: 1, files: 1 });
    lake.check(&mut duckdb);
    let third = expire(&mut lake, Keep::Since(Timestamp::MAX), at).await;
    assert_eq!(third, Expired::default(), "the newest one stays");
    let snapshots = duckdb.rows("SELECT snapshot_id FROM ducklake_snapshots('lake')");
    assert_eq!(snapshots, json!([[deleted.get()]]));

    let early = Timestamp::from_nanos(at.nanos() - 1_000_000_000);
    let connection = &mut lake.connection;
    assert_eq!(ducklake::scheduled(connection, early, 9).await.unwrap(), Vec::<String>::new());
    let paths = ducklake::scheduled(connection, at, 2).await.unwrap();
    assert_eq!(paths, ["blocks/0.parquet", "blocks/1.parquet"]);
    let again = lake.commit(&[("1.parquet", rows(0..1))], &[]).await.unwrap_err();
    assert!(matches!(again, Error::Known { path } if path == "1.parquet"));
    for path in &paths {
        fs::remove_file(lake.folder.path().join(path)).unwrap();
    }
    let connection = &mut lake.connection;
    assert_eq!(ducklake::deleted(connection, &paths).await.unwrap(), 2);
    assert_eq!(ducklake::deleted(connection, &paths).await.unwrap(), 0);
    let paths = ducklake::scheduled(connection, at, 9).await.unwrap();
    assert_eq!(paths, ["blocks/2.parquet"]);
    lake.check(&mut duckdb);
    lake.commit(&[("1.parquet", rows(50..60))], &[]).await.unwrap();
    lake.check(&mut lake.duckdb());

    let live = ducklake::live(&mut lake.connection, &lake.table, None, 2).await.unwrap();
    let paths: Vec<_> = live.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["1.parquet", "3.parquet"]);
    let rest = ducklake::live(&mut lake.connection, &lake.table, Some(paths[1]), 2).await.unwrap();
    let [file] = rest.as_slice() else { panic!("{rest:?}") };
    let bytes = fs::read(lake.folder.path().join("blocks/merged.parquet")).unwrap();
    let numbers = Numbers::read(&bytes).unwrap();
    assert_eq!((file.path.as_str(), file.since), ("merged.parquet", merged));
    assert_eq!((file.rows, file.bytes), (20, bytes.len() as u64));
    assert_eq!(file.footer_bytes, Some(numbers.footer_bytes));
}

async fn expire(lake: &mut Lake, keep: Keep, at: Timestamp) -> Expired {
    let mut transaction = ducklake::begin(&mut lake.connection).await.unwrap();
    let expired = ducklake::expire(&mut transaction, keep, at).await.unwrap();
    transaction.commit().await.unwrap();
    expired
}

async fn adds_columns(mut lake: Lake) {
    let mut duckdb = lake.duckdb();
    let first = lake.commit(&[("a.parquet", rows(0..10))], &[]).await.unwrap();
    lake.check(&mut duckdb);
    lake.prepare(Version::First).await.unwrap();
    lake.prepare(Version::Second).await.unwrap();
    lake.prepare(Version::Second).await.unwrap();
    lake.check(&mut duckdb);
    assert_eq!(duckdb.value("SELECT count(core) FROM samples"), json!(0), "an attached session");
    lake.commit(&[("b.parquet", rows(10..20))], &[]).await.unwrap();
    lake.check(&mut duckdb);
    let found = duckdb
        .rows("SELECT count(core), sum(core)::BIGINT, count(*) FILTER (core IS NULL) FROM samples");
    assert_eq!(found, json!([[10, 70, 10]]));
    assert_eq!(duckdb.value("SELECT count(*) FROM samples WHERE core = 7"), json!(10));
    let spans = duckdb.rows(
        "SELECT count(*), count(sample.span), count(*) FILTER (sample.span = sample.value) FROM (SELECT unnest(samples) AS sample FROM samples)",
    );
    let samples = |rows: &[Row]| rows.iter().map(|row| row.samples.len()).sum::<usize>();
    let second = samples(&rows(10..20));
    assert_eq!(spans, json!([[samples(&rows(0..20)), second, second]]));
    let snapshots =
        duckdb.rows("SELECT snapshot_id, schema_version, changes::VARCHAR FROM ducklake_snapshots('lake') ORDER BY 1 DESC LIMIT 2");
    let [inserted, altered] = [first.get() + 2, first.get() + 1];
    assert_eq!(
        snapshots,
        json!([[inserted, 2, "{tables_inserted_into=[1]}"], [altered, 2, "{tables_altered=[1]}"]])
    );
    let old = duckdb.ask(&format!("SELECT core FROM samples AT (VERSION => {})", first.get()));
    assert!(old.unwrap_err().contains("core"));
    check(&mut duckdb, &format!("samples AT (VERSION => {})", first.get()), &rows(0..10));

    let error = lake.prepare(Version::First).await.unwrap_err();
    assert!(matches!(error, Error::UnknownColumn { id: 12 | 13, .. }), "{error}");
}

async fn makes_views(mut lake: Lake) {
    let mut duckdb = lake.duckdb();
    lake.commit(&[("a.parquet", rows(0..10))], &[]).await.unwrap();
    lake.check(&mut duckdb);
    const NAME: &str = "hosts \"all\"";
    let sql = "SELECT host, count(*) AS rows FROM samples GROUP BY host";
    let first = make_view(&mut lake, NAME, sql).await.unwrap().unwrap();
    let found = duckdb.rows("SELECT * FROM \"hosts \"\"all\"\"\" ORDER BY host");
    assert_eq!(found, json!([["host-0", 4], ["host-1", 3], ["host-2", 3]]));
    assert_eq!(make_view(&mut lake, NAME, sql).await.unwrap(), None);
    let sql = "SELECT DISTINCT host FROM samples";
    let second = make_view(&mut lake, NAME, sql).await.unwrap().unwrap();
    assert_eq!(second.get(), first.get() + 1);
    duckdb.rows("USE memory");
    let found = duckdb.rows("SELECT * FROM lake.main.\"hosts \"\"all\"\"\" ORDER BY host");
    assert_eq!(found, json!([["host-0"], ["host-1"], ["host-2"]]));
    duckdb.rows("USE lake");
    let error = make_view(&mut lake, "samples", sql).await.unwrap_err();
    assert!(matches!(error, Error::NameTaken { name } if name == "samples"));
    let changes = duckdb.rows(
        "SELECT schema_version, changes['views_created'], changes['views_dropped'] FROM ducklake_snapshots('lake') ORDER BY snapshot_id DESC LIMIT 2",
    );
    let created = ["main.\"hosts \"\"all\"\"\""];
    assert_eq!(changes, json!([[3, created, ["2"]], [2, created, null]]));
    let old = duckdb.rows(&format!(
        "SELECT count(*) FROM \"hosts \"\"all\"\"\" AT (VERSION => {})",
        first.get()
    ));
    assert_eq!(old, json!([[3]]));
    lake.check(&mut duckdb);
}

async fn make_view(lake: &mut Lake, name: &str, sql: &str) -> Result<Option<SnapshotId>> {
    let at = lake.now();
    let mut transaction = ducklake::begin(&mut lake.connection).await?;
    let made = ducklake::view(&mut transaction, name, sql, at).await?;
    transaction.commit().await.unwrap();
    Ok(made)
}

async fn waits(mut lake: Lake) {
    const EACH: i64 = 20;
    let writer = async |from: i64| {
        let mut connection = ducklake::connect(&lake.url).await.unwrap();
        for number in from..from + EACH {
            let file = lake.write(&format!("{number}.parquet"), &rows(number..number + 1));
            let mut transaction = ducklake::begin(&mut connection).await.unwrap();
            let change = Change { add: &[file], end: &[], message: None };
            let at = Timestamp::from_nanos(BEGIN);
            ducklake::commit(&mut transaction, &lake.table, &change, at).await.unwrap();
            transaction.commit().await.unwrap();
        }
    };
    tokio::join!(writer(0), writer(EACH), writer(2 * EACH));
    let live = (0..3 * EACH).map(|number| (format!("{number}.parquet"), rows(number..number + 1)));
    lake.live = live.collect();
    let mut duckdb = lake.duckdb();
    lake.check(&mut duckdb);
    let snapshots = duckdb.value("SELECT count(*) FROM ducklake_snapshots('lake')");
    assert_eq!(snapshots, json!(2 + 3 * EACH));
    let row_ids = duckdb.value("SELECT count(DISTINCT rowid) FROM samples");
    assert_eq!(row_ids, json!(3 * EACH));
}

/// A session that writes files, too.
fn writer(lake: &Lake) -> DuckDb {
    DuckDb::attach_with(&lake.address, "DATA_INLINING_ROW_LIMIT 0")
}

const INSERTION: &str = "INSERT INTO samples SELECT make_timestamp_ns(epoch_ns(begin) + 86_400_000_000_000), host || '-later', value, id, samples, labels FROM samples AT (VERSION => 2)";

/// What [`INSERTION`] adds to these rows.
fn inserted(rows: &[Row]) -> Vec<Row> {
    let later = rows.iter().map(|row| Row {
        at: row.at + 86_400_000_000_000,
        host: format!("{}-later", row.host),
        ..row.clone()
    });
    later.collect()
}

async fn writes_in_turn(mut lake: Lake) {
    let mut duckdb = writer(&lake);
    let first = rows(0..10);
    lake.commit(&[("a.parquet", first.clone())], &[]).await.unwrap();
    duckdb.rows(INSERTION);
    let after = lake.commit(&[("b.parquet", rows(10..20))], &["a.parquet"]).await.unwrap();
    assert_eq!(after.get(), 4);
    let counts = duckdb.rows(
        "SELECT count(*), count(*) FILTER (host LIKE '%-later'), count(DISTINCT rowid), max(begin)::VARCHAR FROM samples",
    );
    let last = inserted(&first).iter().map(|row| row.at).max().unwrap();
    let last = Bound::Time { nanos: last.into(), is_utc: false }.to_string();
    assert_eq!(counts, json!([[20, 10, 20, last]]));

    let at = lake.now();
    let expired = expire(&mut lake, Keep::Last(NonZeroU32::MIN), at).await;
    assert_eq!(expired, Expired { snapshots: 4, files: 1 });
    let path = lake.folder.path().join("blocks/a.parquet");
    assert!(path.exists());
    let cleaned = duckdb.rows("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)");
    assert_eq!(cleaned, json!([[path.display().to_string()]]));
    assert!(!path.exists());
    let scheduled = ducklake::scheduled(&mut lake.connection, at, 9).await.unwrap();
    assert_eq!(scheduled, Vec::<String>::new());
}

#[tokio::test]
async fn duckdb_waits_for_a_transaction_in_postgresql() {
    if !DuckDb::is_there() {
        return;
    }
    let Some(server) = Postgres::start() else { return };
    let mut lake = Lake::postgres(&server).await;
    lake.commit(&[("a.parquet", rows(0..10))], &[]).await.unwrap();
    let file = lake.write("b.parquet", &rows(10..20));
    let mut duckdb = writer(&lake);
    let mut transaction = ducklake::begin(&mut lake.connection).await.unwrap();
    let change = Change { add: &[file], end: &[], message: None };
    let at = Timestamp::from_nanos(BEGIN);
    let ours = ducklake::commit(&mut transaction, &lake.table, &change, at).await.unwrap();
    let insertion = std::thread::spawn(move || {
        duckdb.rows(INSERTION);
        duckdb
    });
    let mut watcher = ducklake::connect(&lake.url).await.unwrap();
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    loop {
        let (count,): (i64,) = sqlx::query_as(waiting).fetch_one(&mut watcher).await.unwrap();
        if count > 0 {
            break;
        }
        assert!(!insertion.is_finished(), "it did not wait");
    }
    transaction.commit().await.unwrap();
    let mut duckdb = insertion.join().unwrap();
    let snapshots =
        duckdb.rows("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1 DESC LIMIT 2");
    assert_eq!(snapshots, json!([[ours.get() + 1], [ours.get()]]));
    let rows = duckdb.rows("SELECT count(*), count(DISTINCT rowid) FROM samples");
    assert_eq!(rows, json!([[30, 30]]));
}
