//! Random commits and expiries against sets of paths.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use arrow_schema::{DataType, Field, Schema};
use ducklake::{Bound, Change, ColumnStatistics, DataFile, Error, Keep, Layout, Numbers, Table};
use model::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use sqlx::{AnyConnection, Row as _};

/// What is done to a catalogue. Numbers choose paths; files that are not there are tried too.
#[derive(Debug, Clone)]
enum Step {
    Commit { add: Vec<u8>, end: Vec<u8> },
    Expire { last: u8 },
    Delete { count: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let paths = || vec(0..30_u8, 0..5);
    prop_oneof![
        6 => (paths(), paths()).prop_map(|(add, end)| Step::Commit { add, end }),
        1 => (1..5_u8).prop_map(|last| Step::Expire { last }),
        1 => (0..5_u8).prop_map(|count| Step::Delete { count }),
    ]
}

/// What the catalogue should have.
#[derive(Debug, Default)]
struct Oracle {
    live: BTreeSet<String>,
    /// What each snapshot shows that is remembered.
    snapshots: BTreeMap<i64, BTreeSet<String>>,
    /// In no snapshot, and not deleted yet.
    scheduled: BTreeSet<String>,
}

impl Oracle {
    fn knows(&self, path: &str) -> bool {
        self.scheduled.contains(path) || self.snapshots.values().any(|paths| paths.contains(path))
    }
}

fn path(number: u8) -> String {
    format!("{number}.parquet")
}

fn file(number: u8) -> DataFile {
    let number = u64::from(number);
    let column = ColumnStatistics {
        id: 1,
        bytes: 1,
        values: Some(number + 1),
        nulls: Some(0),
        min: Some(Bound::Integer(i128::from(number) - 10)),
        max: Some(Bound::Integer(i128::from(number) * 7)),
    };
    let numbers = Numbers { footer_bytes: 10, rows: number + 1, columns: vec![column] };
    DataFile { path: path(u8::try_from(number).unwrap()), bytes: 100 + number, numbers }
}

async fn paths(
    connection: &mut AnyConnection,
    sql: &'static str,
    snapshot: i64,
) -> BTreeSet<String> {
    let rows = sqlx::query(sql).bind(snapshot).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect()
}

const SHOWN: &str = "SELECT path FROM ducklake_data_file WHERE begin_snapshot <= $1 AND (end_snapshot IS NULL OR end_snapshot > $1)";

async fn run(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("catalogue").display());
    let mut connection = ducklake::connect(&url).await.unwrap();
    // What a loss of power leaves is not looked at.
    sqlx::query("PRAGMA synchronous = OFF").execute(&mut connection).await.unwrap();
    let at = Timestamp::from_nanos(0);
    let id = [("PARQUET:field_id".to_owned(), "1".to_owned())];
    let field = Field::new("value", DataType::Int64, false).with_metadata(id.into_iter().collect());
    let schema = Schema::new(vec![field]);
    let layout = Layout { data: "/lake/", table: "t", folder: "t/", schema: &schema };
    let table = ducklake::prepare(&mut connection, &layout, at).await.unwrap();
    let mut oracle = Oracle::default();
    oracle.snapshots.extend([(0, BTreeSet::new()), (1, BTreeSet::new())]);
    for step in steps {
        apply(&mut connection, &table, &mut oracle, &step).await;
        check(&mut connection, &table, &oracle).await;
    }
}

async fn apply(connection: &mut AnyConnection, table: &Table, oracle: &mut Oracle, step: &Step) {
    let at = Timestamp::from_nanos(0);
    match step {
        Step::Commit { add, end } => {
            let files: Vec<_> = add.iter().map(|number| file(*number)).collect();
            let end: Vec<_> = end.iter().map(|number| path(*number)).collect();
            let new: BTreeSet<_> = files.iter().map(|file| file.path.clone()).collect();
            let ended: BTreeSet<_> = end.iter().cloned().collect();
            let is_new = new.len() == files.len() && !new.iter().any(|path| oracle.knows(path));
            let is_live = ended.len() == end.len() && ended.is_subset(&oracle.live);
            let change = Change { add: &files, end: &end, message: None };
            // Without a transaction of its own: a refused change must have changed nothing.
            let done = ducklake::commit(connection, table, &change, at).await;
            match done {
                Ok(snapshot) => {
                    assert!(is_new && is_live, "{step:?}");
                    oracle.live.retain(|path| !ended.contains(path));
                    oracle.live.extend(new);
                    oracle.snapshots.insert(snapshot.get(), oracle.live.clone());
                }
                Err(Error::Known { path }) => assert!(!is_new && new.contains(&path)),
                Err(Error::NotLive { path }) => assert!(!is_live && ended.contains(&path)),
                Err(other) => panic!("{other}"),
            }
        }
        Step::Expire { last } => {
            let keep = Keep::Last(NonZeroU32::new(u32::from(*last)).unwrap());
            let known: BTreeSet<_> = oracle.snapshots.values().flatten().cloned().collect();
            let count = oracle.snapshots.len();
            while oracle.snapshots.len() > usize::from(*last) {
                oracle.snapshots.pop_first();
            }
            let shown: BTreeSet<_> = oracle.snapshots.values().flatten().cloned().collect();
            let expired = ducklake::expire(connection, keep, at).await.unwrap();
            assert_eq!(expired.snapshots, (count - oracle.snapshots.len()) as u64);
            let gone: BTreeSet<_> = known.difference(&shown).cloned().collect();
            assert_eq!(expired.files, gone.len() as u64);
            oracle.scheduled.extend(gone);
        }
        Step::Delete { count } => {
            let paths = ducklake::scheduled(connection, at, u32::from(*count)).await.unwrap();
            assert_eq!(paths.len(), usize::from(*count).min(oracle.scheduled.len()));
            let deleted = ducklake::deleted(connection, &paths).await.unwrap();
            assert_eq!(deleted, paths.len() as u64);
            for path in &paths {
                assert!(oracle.scheduled.remove(path.strip_prefix("t/").unwrap()));
            }
        }
    }
}

async fn check(connection: &mut AnyConnection, table: &Table, oracle: &Oracle) {
    let live = ducklake::live(connection, table, None, 100).await.unwrap();
    let found: BTreeSet<_> = live.iter().map(|file| file.path.clone()).collect();
    assert_eq!(found, oracle.live);
    for (snapshot, shown) in &oracle.snapshots {
        assert_eq!(paths(connection, SHOWN, *snapshot).await, *shown, "snapshot {snapshot}");
    }
    let all = "SELECT path FROM ducklake_files_scheduled_for_deletion WHERE $1 = 0";
    let scheduled: BTreeSet<_> = oracle.scheduled.iter().map(|path| format!("t/{path}")).collect();
    assert_eq!(paths(connection, all, 0).await, scheduled);
    let sums = sqlx::query("SELECT record_count, file_size_bytes FROM ducklake_table_stats");
    let sums = sums.fetch_one(&mut *connection).await.unwrap();
    let rows: u64 = live.iter().map(|file| file.rows).sum();
    let bytes: u64 = live.iter().map(|file| file.bytes).sum();
    assert_eq!((sums.get::<i64, _>(0), sums.get::<i64, _>(1)), (rows as i64, bytes as i64));
    let outside = "SELECT count(*) FROM ducklake_file_column_stats AS file JOIN ducklake_table_column_stats AS whole USING (table_id, column_id) \
         WHERE CAST(file.min_value AS BIGINT) < CAST(whole.min_value AS BIGINT) OR CAST(file.max_value AS BIGINT) > CAST(whole.max_value AS BIGINT)";
    let outside = sqlx::query(outside).fetch_one(&mut *connection).await.unwrap();
    assert_eq!(outside.get::<i64, _>(0), 0, "values outside of the table's bounds");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_commits_and_expiries_leave_what_sets_of_paths_say(steps in vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run(steps));
    }
}
