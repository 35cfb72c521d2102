//! What is not asked for is not read.

use query::format::Format;
use tempfile::tempdir;

use crate::ask::{asked, open, rows};
use crate::made::{BEGIN, two_classes};

const COUNT: u32 = 100_000;

#[test]
fn one_hundredth_of_the_time_reads_at_most_two_hundredths_of_the_packets() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", COUNT);
    let database = open(folder.path());
    let (all, counted) = asked(&database, "select count(*) from events", Format::Csv).unwrap();
    assert_eq!(all.lines().nth(1), Some("200000"));
    let all_packets = counted("packets_read");
    assert!(all_packets > 1_000, "{all_packets} packets tell nothing");

    let (from, to) = (BEGIN + 50_000_000, BEGIN + 51_000_000);
    for condition in [
        format!("ts >= to_timestamp_nanos({from}) and ts < to_timestamp_nanos({to})"),
        format!("ts between to_timestamp_nanos({from}) and to_timestamp_nanos({})", to - 1),
        "ts >= '2026-11-20T00:00:00.050' and '2026-11-20T00:00:00.051' > ts".to_owned(),
    ] {
        let sql = format!("select count(*), min(ts), max(ts) from events where {condition}");
        let (answer, counted) = asked(&database, &sql, Format::Csv).unwrap();
        let expected = "2000,2026-11-20T00:00:00.050,2026-11-20T00:00:00.050999";
        assert_eq!(answer.lines().nth(1), Some(expected), "{condition}");
        let packets = counted("packets_read");
        assert!(
            packets * 100 <= all_packets * 2,
            "{packets} of {all_packets} packets: {condition}"
        );
    }
    let explained = rows(
        &database,
        &format!(
            "explain analyze select count(*) from events where ts < to_timestamp_nanos({from})"
        ),
    );
    assert!(explained.iter().any(|line| line.contains("packets_read=")), "{explained:?}");
}

#[test]
fn a_class_decodes_nothing_of_the_others() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", 1_000);
    let database = open(folder.path());
    for sql in [
        "select count(*), sum(ret) from odd",
        "select count(*), sum(ret) from events.odd",
        "select count(*), sum(cast(json.r as bigint)) from
            (select replace(replace(fields, '{\"ret\":', ''), '}', '') as r
             from events where class in ('odd', 'neither') and host like 'o%') as json",
        "select count(*), sum(o.ret) from odd o where o.host = 'one' and o.stream <= 1",
    ] {
        let (answer, counted) = asked(&database, sql, Format::Csv).unwrap();
        let sum: i64 = (0..1_000).filter(|number| number % 2 == 1).sum();
        assert_eq!(answer.lines().nth(1), Some(&*format!("1000,{}", -2 * sum)), "{sql}");
        assert_eq!(counted("records_decoded"), 1_000, "{sql}");
        assert_eq!(counted("records_passed"), 2_000, "{sql}");
    }
    let sql = "select count(*) from events where class = 'neither' or host is null";
    let (answer, counted) = asked(&database, sql, Format::Csv).unwrap();
    assert_eq!(answer.lines().nth(1), Some("0"));
    assert_eq!(counted("packets_read"), 0, "no stream can hold any");
}

#[test]
fn conditions_on_anything_else_hold_too() {
    let folder = tempdir().unwrap();
    two_classes(&folder.path().join("a"), "one", 1_000);
    two_classes(&folder.path().join("b"), "three", 1_000);
    let database = open(folder.path());
    let check = |condition: &str, expected: &str| {
        let sql = format!("select count(*) from events where {condition}");
        assert_eq!(rows(&database, &sql), [expected], "{condition}");
    };
    check("tid = 101", "2000");
    check("host = 'three' and cpu = 1", "1000");
    check("class = 'odd' or tid = 101", "3000");
    let of_path = (0..1_000).filter(|number| number % 2 == 0 && number % 7 == 3).count();
    check("not (class = 'odd') and fields like '%/p3%'", &(4 * of_path).to_string());
    check("ts is null", "0");
    check("ts <> to_timestamp_nanos(1795132800000000000)", "3996");
    let sql = "select count(*), sum(size) from even where path = '/p6' and size > 500";
    let expected: Vec<u32> = (501..1_000).filter(|n| n % 2 == 0 && n % 7 == 6).collect();
    let (count, sum) = (4 * expected.len(), 4 * expected.iter().sum::<u32>());
    assert_eq!(rows(&database, sql), [format!("{count},{sum}")]);
}

#[test]
fn enough_rows_end_the_reading() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", COUNT);
    let database = open(folder.path());
    let (answer, counted) = asked(&database, "select ts from odd limit 3", Format::Csv).unwrap();
    assert_eq!(answer.lines().count(), 4);
    assert!(counted("packets_read") <= 4, "{} packets", counted("packets_read"));
}

#[test]
fn what_takes_more_memory_than_allowed_is_refused() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", COUNT);
    let ask = |memory_bytes| {
        let limits = query::Limits { memory_bytes, threads: 2 };
        let options = tracedir::ReadOptions::default();
        let database = query::Database::open(&[folder.path()], &options, None, &limits).unwrap();
        let everything = "select length(string_agg(fields, '')) > 1000000 from events";
        asked(&database, everything, Format::Csv).map(|(answer, _)| answer)
    };
    assert!(ask(256 << 20).unwrap().ends_with("\ntrue\n"));
    let refused = ask(1 << 20).unwrap_err().to_string();
    assert!(refused.contains("Resources exhausted") && !refused.contains('\n'), "{refused}");
}
