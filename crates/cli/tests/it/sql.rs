//! Recordings asked in SQL from outside: what item tables hold beside what analyses say, cut and whole; forms and failures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Chunked, skip, unpacked_trace};

use crate::process::THROUGHLINE;
use crate::read::{stderr, stdout};

fn throughline(arguments: &[&str]) -> Output {
    Command::new(THROUGHLINE).args(arguments).output().unwrap()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn ask(sql: &str, format: &str, paths: &[&Path]) -> Output {
    let paths: Vec<&str> = paths.iter().map(|path| text(path)).collect();
    throughline(&[&["sql", "--format", format, sql], &paths[..]].concat())
}

/// The rows of an answer as CSV, with the heading.
pub(crate) fn rows(sql: &str, paths: &[&Path]) -> Vec<String> {
    let output = ask(sql, "csv", paths);
    assert!(output.status.success(), "{sql}: {}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

/// Rows without the heading, as numbers.
fn numbers(sql: &str, path: &Path) -> Vec<Vec<u64>> {
    let number = |cell: &str| cell.parse().unwrap_or_else(|_| panic!("{sql}: {cell}"));
    rows(sql, &[path]).iter().skip(1).map(|row| row.split(',').map(number).collect()).collect()
}

fn desktop() -> Option<PathBuf> {
    let found = unpacked_trace("kernel-basic-lttng210");
    if found.is_none() {
        skip("no recording kernel-basic-lttng210");
    }
    found
}

/// Every row of every item table, in an order of their own.
const EVERYTHING: [&str; 4] = [
    "select * from spans order by \"end\", begin, kind, name, tid, cpu, sector, ret, irq",
    "select * from sched order by \"end\", begin, state, cause, tid, cpu",
    "select * from threads order by tid",
    "select * from files order by pid, path, syscall",
];

fn same_everywhere(whole: &Path, parts: &[&Path]) {
    for sql in EVERYTHING {
        let (expected, found) = (rows(sql, &[whole]), rows(sql, parts));
        assert!(expected.len() > 10, "{sql}: {} rows", expected.len());
        let differs = expected.iter().zip(&found).find(|(one, other)| one != other);
        assert_eq!(differs, None, "{sql}");
        assert_eq!(expected.len(), found.len(), "{sql}");
    }
}

#[test]
fn items_of_a_desktop_are_the_same_whole_and_cut() {
    let Some(whole) = desktop() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cuts = ["18:39:19.9", "18:39:20.4321", "18:39:21", "18:39:24.5"];
    let begins = [None].into_iter().chain(cuts.map(Some));
    let ends = cuts.map(Some).into_iter().chain([None]);
    for (number, (begin, end)) in begins.zip(ends).enumerate() {
        let part = folder.path().join(number.to_string());
        let mut command = Command::new(THROUGHLINE);
        command.env("TZ", "UTC").args(["ctf", "convert", text(&whole), "--to", "1.8"]);
        command.args(["-o", text(&part)]);
        command.args(begin.into_iter().flat_map(|at| ["--begin", at]));
        command.args(end.into_iter().flat_map(|at| ["--end", at]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    same_everywhere(&whole, &[folder.path()]);
}

#[test]
fn items_of_chunks_are_those_of_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    assert_eq!(Chunked { chunks: 7, events: 400, seed: 5 }.write(&session).len(), 7);
    let whole = folder.path().join("whole");
    let output =
        throughline(&["ctf", "convert", text(&session), "--to", "1.8", "-o", text(&whole)]);
    assert!(output.status.success(), "{}", stderr(&output));
    for sql in EVERYTHING {
        assert_eq!(rows(sql, &[&whole]), rows(sql, &[&session]), "{sql}");
    }
}

/// The rows of a table of an analysis.
fn analysed(name: &str, table: &str, path: &Path) -> Vec<Vec<Value>> {
    let output = throughline(&["analyze", name, "--format", "json", text(path)]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tables = answer["tables"].as_array().unwrap();
    let found = tables.iter().find(|found| found["class"] == table);
    let rows = found.unwrap_or_else(|| panic!("no table {table}"))["rows"].as_array().unwrap();
    rows.iter().map(|row| row.as_array().unwrap().clone()).collect()
}

#[test]
fn items_add_up_to_what_analyses_say() {
    let Some(path) = desktop() else { return };
    let blocked: BTreeMap<String, (u64, u64)> = analysed("blocked", "blocked-by-cause", &path)
        .iter()
        .map(|row| {
            let cause = row[0].as_str().unwrap().to_owned();
            (cause, (row[1].as_u64().unwrap(), row[2].as_u64().unwrap()))
        })
        .collect();
    let sql = "select cause, count(duration), sum(duration) from sched where state = 'blocked' \
               and duration is not null group by cause order by cause";
    let found: BTreeMap<String, (u64, u64)> = rows(sql, &[&path])
        .iter()
        .skip(1)
        .map(|row| {
            let [cause, count, sum] = row.split(',').collect::<Vec<_>>().try_into().unwrap();
            (cause.to_owned(), (count.parse().unwrap(), sum.parse().unwrap()))
        })
        .collect();
    assert_eq!(found, blocked);

    let running: BTreeMap<u64, u64> = analysed("cputop", "cpu-per-thread", &path)
        .iter()
        .map(|row| (row[0]["tid"].as_u64().unwrap(), row[3].as_u64().unwrap()))
        .filter(|(_, ns)| *ns > 0)
        .collect();
    let found = numbers("select tid, running from threads where running > 0", &path);
    assert_eq!(found.iter().map(|row| (row[0], row[1])).collect::<BTreeMap<_, _>>(), running);
    // Cut by the ends of the recording, a turn of a CPU has one end alone.
    let sql = "select t.tid, sum(s.duration), min(t.running) from threads t join sched s on s.tid = t.tid \
               where s.state = 'running' group by t.tid \
               having count(*) = count(s.duration)";
    let whole = numbers(sql, &path);
    assert!(whole.len() > 20, "{} threads", whole.len());
    assert!(whole.iter().all(|row| row[1] == row[2]), "{whole:?}");

    // A call that has not returned may count.
    let least = |count: &Value| count.as_u64().or_else(|| count[0].as_u64()).unwrap();
    let calls = analysed("syscallstats", "syscalls-total", &path);
    let calls: u64 = calls.iter().map(|row| least(&row[1])).sum();
    let found = numbers("select count(duration) from syscalls", &path);
    assert_eq!(found, [[calls]]);
    let found = numbers("select sum(calls) from threads", &path);
    assert_eq!(found, [[calls]]);
}

#[test]
fn phases_are_the_periods_that_the_period_analysis_finds() {
    let Some(path) = desktop() else { return };
    let defined = [
        "--period",
        "soft : irq_softirq_entry : irq_softirq_exit",
        "--period-key",
        "soft : cpu_id, vec",
    ];
    let log = throughline(
        &[&["analyze", "periodlog", "--format", "json", text(&path)], &defined[..]].concat(),
    );
    let expected: Vec<u64> = stdout(&log)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["duration"].as_u64().unwrap())
        .collect();
    for table in ["phases", "spans where kind = 'period'"] {
        let sql = format!("select name, duration from {table} ");
        let found =
            throughline(&[&["sql", "--format", "csv", &sql, text(&path)], &defined[..]].concat());
        let found: Vec<String> = stdout(&found).lines().skip(1).map(str::to_owned).collect();
        let expected: Vec<String> = expected.iter().map(|ns| format!("soft,{ns}")).collect();
        assert!(found == expected, "{} and {} periods in {table}", found.len(), expected.len());
    }
    let undefined = ask("select * from phases", "csv", &[&path]);
    assert_eq!(undefined.status.code(), Some(2));
    assert!(stderr(&undefined).contains("--period"), "{}", stderr(&undefined));
}

#[test]
fn answers_have_a_form_also_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Chunked { chunks: 1, events: 200, seed: 1 }.write(folder.path()).len(), 1);
    let path = folder.path();
    let some = "select kind, count(*) as n from spans where kind = 'syscall' group by kind";
    let count = rows(some, &[path])[1].strip_prefix("syscall,").unwrap().to_owned();
    let table = ask(some, "table", &[path]);
    let expected = format!("kind     {:>n$}\nsyscall  {count}\n", "n", n = count.len());
    assert_eq!(stdout(&table), expected);
    let json = ask(some, "json", &[path]);
    assert_eq!(stdout(&json), format!("{{\"kind\":\"syscall\",\"n\":{count}}}\n"));

    let none = "select tid, comm from threads where tid < 0";
    for (format, expected) in [("csv", "tid,comm\n"), ("json", ""), ("table", "tid  comm\n")] {
        let output = ask(none, format, &[path]);
        assert_eq!(stdout(&output), expected, "{format}");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn what_cannot_be_asked_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Chunked { chunks: 1, events: 200, seed: 1 }.write(folder.path()).len(), 1);
    let nothing = tempfile::tempdir().unwrap();
    let absent = nothing.path().join("absent");
    for (sql, path, expected) in [
        ("select * from no_such_table", folder.path(), "no_such_table"),
        ("select no_such_column from syscalls", folder.path(), "no_such_column"),
        ("selekt", folder.path(), "selekt"),
        ("drop table syscalls", folder.path(), "DDL"),
        ("select * from syscalls", nothing.path(), text(nothing.path())),
        ("select * from syscalls", absent.as_path(), text(&absent)),
    ] {
        let output = ask(sql, "table", &[path]);
        assert_eq!(output.status.code(), Some(2), "{sql}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{sql}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{sql}: {said}");
        assert!(said.contains(expected), "{sql}: {said}");
    }
}

fn export(path: &Path, file: &Path, more: &[&str]) -> Output {
    throughline(&[&["chunk", "export", text(path), "-o", text(file)], more].concat())
}

#[test]
fn an_export_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    assert_eq!(Chunked { chunks: 2, events: 300, seed: 1 }.write(&session).len(), 2);
    let target = folder.path().join("export.parquet");
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let nothing = export(&folder.path().join("absent"), &target, &[]);
    assert_eq!(nothing.status.code(), Some(2), "{}", stderr(&nothing));
    assert_eq!(stderr(&nothing).lines().count(), 1, "{}", stderr(&nothing));
    assert_eq!(names(), ["session"]);

    let done = export(&session, &target, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!(names(), ["export.parquet", "session"]);
    let count = "select class, count(*) as n from events group by class order by class";
    assert_eq!(rows(count, &[&target]), rows(count, &[&session]));

    std::fs::write(&target, "something else").unwrap();
    let refused = export(&session, &target, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(std::fs::read(&target).unwrap(), b"something else");
    let other = ask(count, "csv", &[&target]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    let replaced = export(&session, &target, &["--force"]);
    assert_eq!(replaced.status.code(), Some(0), "{}", stderr(&replaced));
    assert_eq!(rows(count, &[&target]), rows(count, &[&session]));
    assert_eq!(names(), ["export.parquet", "session"]);
}

/// Finds the slot of a column in the file's own metadata, and adds it up there.
const DUCKDB: &str = r#"
import duckdb, json, sys
path, name, column = sys.argv[1:]
found = duckdb.execute("select value from parquet_kv_metadata(?) where key = 'throughline.events'", [path])
registry = json.loads(bytes(found.fetchone()[0]))
known = next(known for known in registry["classes"] if known["name"] == name)
slot = next(stored["slot"] for stored in known["columns"] if stored["name"] == column)
sql = f"select count({slot}), sum({slot}), min({slot}), max({slot}), epoch_ns(min(ts)), epoch_ns(max(ts)) from read_parquet(?) where class = ?"
print(*duckdb.execute(sql, [path, name]).fetchone(), sep=",")
"#;

#[test]
fn duckdb_adds_up_an_export_as_we_do() {
    if !testkit::is_installed("python-duckdb") {
        return skip("no python-duckdb (pip install duckdb; ./test sets it up)");
    }
    let Some(path) = desktop() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export.parquet");
    let done = export(&path, &file, &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    for (class, column) in [
        ("sched_switch", "next_tid"),
        ("sched_switch", "prev_state"),
        ("kmem_mm_page_alloc", "order"),
        ("syscall_exit_read", "ret"),
        ("block_rq_issue", "nr_sector"),
    ] {
        let mut command = Command::new("python-duckdb");
        let output = command.args(["-c", DUCKDB, text(&file), class, column]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let sql = format!(
            "select count({column}), sum({column}), min({column}), max({column}), \
             cast(min(ts) as bigint), cast(max(ts) as bigint) from events.{class}"
        );
        assert_eq!([stdout(&output).trim()], rows(&sql, &[&path])[1..], "{class}.{column}");
    }
}

#[test]
fn tables_of_analyses_are_parquet_with_the_columns_of_their_csv() {
    if !testkit::is_installed("python-duckdb") {
        return skip("no python-duckdb (pip install duckdb; ./test sets it up)");
    }
    const SAME: &str = r#"
import duckdb, sys
both = [duckdb.execute(f"select * from {read}").fetchall() for read in sys.argv[1:]]
names = [[column[0] for column in duckdb.execute(f"select * from {read}").description] for read in sys.argv[1:]]
assert names[0] == names[1], names
text = lambda cell: None if cell in ("", None) else float(cell) if isinstance(cell, (int, float)) else cell
assert [[text(cell) for cell in row] for row in both[0]] == [[text(cell) for cell in row] for row in both[1]]
print(len(both[0]), len(names[0]))
"#;
    let Some(path) = desktop() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, table) in [
        ("syscallstats", "syscalls-per-thread"),
        ("cputop", "cpu-per-thread"),
        ("irqstats", "irq-soft"),
        ("blocked", "blocked-per-thread-and-waker"),
    ] {
        let written = ["csv", "parquet"].map(|format| {
            let output =
                throughline(&["analyze", name, "--table", table, "--format", format, text(&path)]);
            assert!(output.status.success(), "{}", stderr(&output));
            let file = folder.path().join(format!("{table}.{format}"));
            std::fs::write(&file, &output.stdout).unwrap();
            let how = if format == "csv" { ", quote='\"', sample_size=-1" } else { "" };
            format!("read_{format}('{}'{how})", text(&file))
        });
        let output =
            Command::new("python-duckdb").args(["-c", SAME]).args(written).output().unwrap();
        assert!(output.status.success(), "{table}: {}", stderr(&output));
        let rows: usize = stdout(&output).split(' ').next().unwrap().parse().unwrap();
        assert!(rows > 3, "{table}: {rows} rows");
    }
    let several = throughline(&["analyze", "cputop", "--format", "parquet", text(&path)]);
    assert_eq!(several.status.code(), Some(2));
    assert!(stderr(&several).contains("--table"), "{}", stderr(&several));
}
