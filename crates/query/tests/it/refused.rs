//! Questions that cannot be asked.

use query::{Database, Error};
use tempfile::tempdir;

use crate::ask::{LIMITS, asked, open, rows};
use crate::made::two_classes;

#[test]
fn a_question_that_is_none_or_would_change_something_is_refused_in_one_line() {
    let folder = tempdir().unwrap();
    two_classes(&folder.path().join("t"), "one", 10);
    let database = open(folder.path());
    let target = folder.path().join("written.csv");
    let copy = format!("copy (select * from events) to '{}' stored as csv", target.display());
    for (sql, about) in [
        ("selec 1", "selec"),
        ("select nothing from events", "nothing"),
        ("select * from nowhere", "nowhere"),
        ("select frobnicate(ts) from events", "frobnicate"),
        ("select 1; select 2", "single"),
        ("", ""),
        ("create table x as select 1", "DDL"),
        ("create external table x stored as csv location '/etc/passwd'", "DDL"),
        ("insert into events values (1)", ""),
        ("drop table events", "DDL"),
        ("set datafusion.execution.batch_size = 1", "Statement"),
        (&copy, "DML"),
        ("select * from '/etc/passwd'", "passwd"),
        ("select 1 / (stream - stream) from events", "ivide"),
    ] {
        let refused = asked(&database, sql, query::format::Format::Csv).map(drop);
        let Err(Error::Query(_)) = refused else { panic!("{sql:?}: {refused:?}") };
        let why = refused.unwrap_err().to_string();
        assert!(why.contains(about), "{sql:?}: {why}");
        assert!(!why.contains('\n') && !why.is_empty(), "{sql:?}: {why}");
    }
    assert!(!target.exists());
}

#[test]
fn a_question_of_any_depth_is_answered_or_refused() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", 10);
    let database = open(folder.path());
    let most = query::MAX_STEPS / 2;
    let sum = format!("select tid{} from events where cpu = 0 limit 1", " + tid".repeat(most));
    assert_eq!(rows(&database, &sum), [(100 * (most + 1)).to_string()]);
    let unions = format!("select count(*) from (select 1{})", " union all select 1".repeat(40));
    assert_eq!(rows(&database, &unions), ["41"]);
    let more = format!("select tid{} from events", " + tid".repeat(query::MAX_STEPS));
    let refused = database.ask(&more).map(drop);
    assert!(matches!(refused, Err(Error::TooManySteps { .. })), "{refused:?}");
    let nested = format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let refused = database.ask(&nested).map(drop);
    assert!(matches!(refused, Err(Error::Query(_))), "{refused:?}");
    let long = format!("select '{}'", "x".repeat(query::MAX_SQL_BYTES));
    let refused = database.ask(&long).map(drop);
    assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");
}

#[test]
fn paths_without_a_trace_are_refused() {
    let folder = tempdir().unwrap();
    let refused =
        Database::open(&[folder.path()], &tracedir::ReadOptions::default(), None, &LIMITS);
    let Err(Error::Trace(why)) = refused else { panic!("{refused:?}") };
    assert!(matches!(*why, tracedir::Error::NoTrace { .. }), "{why:?}");
}
