//! The catalogue with real databases, and as others read it.

use std::path::Path;

use model::samples::{Batch, Frame, Labels, Sample, Series};
use model::{Nanos, Timestamp};
use objects::Io;
use serde_json::json;
use store::Error;
use store::block::{Detail, Selection};
use store::lake::name::Tenant;
use store::lake::plan::Keep;
use store::lake::{Lake, Settings};
use testkit::duckdb::DuckDb;
use testkit::postgres::Postgres;

use crate::cut::Cut;

const SECOND_NS: i64 = 1_000_000_000;
/// Some day's midnight.
const DAY_NS: i64 = 20_000 * 86_400 * SECOND_NS;

const fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos(DAY_NS + second * SECOND_NS)
}

fn tenant() -> Tenant {
    Tenant::new("one").unwrap()
}

fn open(folder: &Path, catalogue: Option<&str>, now: Timestamp) -> Lake {
    let settings = Settings { catalogue: catalogue.map(str::to_owned), ..Settings::default() };
    Lake::open(folder.to_str().unwrap(), &Io::start().unwrap(), settings, now).unwrap()
}

/// As much as the second says, of a function.
fn push(lake: &Lake, second: i64) -> Result<(), Error> {
    let mut batch = Batch::new();
    let function = batch.text(if second % 2 == 0 { "even" } else { "odd" });
    let frame = batch.frame(Frame { function, ..Frame::default() });
    let stack = batch.stack(&[frame]);
    let labels = Labels::new([("service_name", "shop")]);
    let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().unwrap();
    let series = batch.series(Series { profile_type, labels });
    let profile = u128::try_from(second + 1).unwrap();
    let value = second + 1;
    batch.add(Sample { series, stack, at: at(second), value, profile, span_id: 0, trace_id: 0 });
    lake.push(&tenant(), &batch).map(drop)
}

fn sum(lake: &Lake) -> i64 {
    let selection = Selection { detail: Detail::Totals, ..Selection::all() };
    let found = lake.select(&tenant(), &selection).unwrap();
    found.samples().iter().map(|sample| sample.value).sum()
}

/// Pushes, merges, starts again and deletes; after each, others read what the store answers.
fn is_read_by_others(catalogue: Option<&str>, address: impl Fn(&Path) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let mut lake = open(folder.path(), catalogue, at(0));
    let duckdb = DuckDb::is_there();
    let check = |lake: &Lake, step: &str| {
        if !duckdb {
            return;
        }
        let mut duckdb = DuckDb::attach(&address(folder.path()));
        let blocks = lake.blocks().len();
        let found = duckdb.value("SELECT coalesce(sum(total), 0)::BIGINT FROM samples");
        assert_eq!(found, json!(sum(lake)), "{step}");
        let files = duckdb.rows("SELECT count(*) FROM ducklake_list_files('lake', 'samples')");
        assert_eq!(files, json!([[blocks]]), "{step}");
    };
    for second in 0..40 {
        push(&lake, second).unwrap();
        if second % 4 == 3 {
            lake.flush(at(second));
        }
    }
    check(&lake, "pushed");
    assert_eq!(lake.compact(at(60)).unwrap().replaced, 10);
    assert_eq!((lake.blocks().len(), sum(&lake)), (3, 820));
    check(&lake, "merged");
    drop(lake);
    lake = open(folder.path(), catalogue, at(61));
    check(&lake, "started again");
    lake.compact(at(640)).unwrap();
    lake.compact(at(1_300)).unwrap();
    assert_eq!((lake.blocks().len(), sum(&lake)), (1, 820));
    check(&lake, "merged again, and files removed");
    let files = std::fs::read_dir(folder.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.ends_with(".parquet")).count(), 1);
    push(&lake, 1_300).unwrap();
    lake.flush(at(1_300));
    let keep = Keep { age: Some(Nanos::new(600 * 1_000_000_000)), bytes: None };
    assert_eq!(lake.expire(&keep.into(), at(1_301)).unwrap().len(), 1);
    assert_eq!(sum(&lake), 1_301);
    check(&lake, "deleted");
}

#[test]
fn duckdb_reads_the_lake_in_sqlite_after_every_kind_of_commit() {
    is_read_by_others(None, |folder| {
        format!("sqlite:{}", folder.join("catalogue.sqlite").display())
    });
}

#[test]
fn duckdb_reads_the_lake_in_postgres_after_every_kind_of_commit() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("lake");
    let host = server.host().display().to_string();
    is_read_by_others(Some(&url), move |_| {
        format!("postgres:dbname=lake host={host} user=throughline")
    });
}

#[test]
fn a_database_that_is_away_refuses_pushes_and_loses_none_that_it_took() {
    let Some(mut server) = Postgres::start() else { return };
    let url = server.database("lake");
    let folder = tempfile::tempdir().unwrap();
    let lake = open(folder.path(), Some(&url), at(0));
    push(&lake, 0).unwrap();
    lake.flush(at(0));
    server.kill();
    push(&lake, 1).unwrap();
    lake.flush(at(1));
    let refused = push(&lake, 2).unwrap_err();
    assert!(matches!(refused, Error::Unsettled), "what became of the last is not known: {refused}");
    lake.flush(at(2));
    assert!(lake.is_pending());
    server.resume();
    lake.flush(at(3));
    assert!(!lake.is_pending());
    // A client sends again what was not acknowledged.
    push(&lake, 1).unwrap();
    lake.flush(at(4));
    assert_eq!(sum(&lake), 3);
    drop(lake);
    assert_eq!(sum(&open(folder.path(), Some(&url), at(5))), 3);
}

#[test]
fn a_push_whose_commit_was_done_and_not_answered_counts_once() {
    let Some(server) = Postgres::start() else { return };
    let [folder, way] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let cut = Cut::start(way.path(), server.host());
    let through = format!("host={}", way.path().display());
    let url =
        server.database("lake").replace(&format!("host={}", server.host().display()), &through);
    let lake = open(folder.path(), Some(&url), at(0));
    push(&lake, 0).unwrap();
    lake.flush(at(0));
    cut.at_commit();
    push(&lake, 1).unwrap();
    lake.flush(at(1));
    assert!(cut.is_cut() && lake.is_pending());
    // Its client heard no answer.
    assert!(matches!(push(&lake, 1), Err(Error::Unsettled)));
    lake.flush(at(2));
    cut.open();
    lake.flush(at(3));
    assert!(!lake.is_pending());
    push(&lake, 1).unwrap();
    assert!(!lake.is_pending(), "it is stored");
    assert_eq!(sum(&lake), 3);
    // Has the catalogue forget what it may, so that the next commit is that of the merge.
    lake.compact(at(4)).unwrap();
    // A merge that was done and not answered, of which more came meanwhile.
    cut.at_commit();
    assert!(lake.compact(at(60)).is_err());
    assert!(cut.is_cut());
    cut.open();
    push(&lake, 2).unwrap();
    lake.flush(at(61));
    lake.compact(at(80)).unwrap();
    assert_eq!((sum(&lake), lake.blocks().iter().all(|block| block.level == 1)), (6, true));
    // What was deleted, and was not answered.
    let keep = Keep { age: Some(Nanos::new(0)), bytes: None };
    cut.at_commit();
    assert!(lake.expire(&keep.into(), at(100)).is_err());
    cut.open();
    lake.expire(&keep.into(), at(101)).unwrap();
    assert_eq!((sum(&lake), lake.blocks().len()), (0, 0));
    drop(lake);
    assert_eq!(sum(&open(folder.path(), Some(&url), at(102))), 0);
}
