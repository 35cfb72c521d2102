//! Exported event records: what SQL answers from them is what it answers from the recording.

use std::fs::{File, OpenOptions};
use std::path::Path;

use query::{Database, Error, Exported};
use testkit::{skip, unpacked_trace};

use crate::ask::{LIMITS, open, rows};
use crate::made::two_classes;

fn export(from: &Path, to: &Path) -> Exported {
    let pages = to.with_extension("pages");
    let pages = OpenOptions::new().read(true).write(true).create_new(true).open(pages).unwrap();
    let target = File::create_new(to).unwrap();
    query::export_events(&[from], &tracedir::ReadOptions::default(), target, pages).unwrap()
}

/// Of so many classes, the most frequent, all rows are compared.
const CLASSES: usize = 12;

fn same(recording: &Database, exported: &Database, sql: &str) -> usize {
    let schema = |database: &Database| database.ask(sql).unwrap().schema();
    assert_eq!(schema(recording), schema(exported), "{sql}");
    let all = |database| {
        let mut rows = rows(database, sql);
        rows.sort_unstable();
        rows
    };
    let (expected, found) = (all(recording), all(exported));
    let differs = expected.iter().zip(&found).find(|(one, other)| one != other);
    assert_eq!(differs, None, "{sql}");
    assert_eq!(expected.len(), found.len(), "{sql}");
    expected.len()
}

fn check(path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exported.parquet");
    let told = export(path, &file);
    let (recording, exported) = (open(path), open(&file));
    let all = same(&recording, &exported, "select * from events");
    assert_eq!(told.rows, all as u64);
    let mut classes =
        rows(&recording, "select class, count(*) from events group by 1 order by 2 desc");
    assert_eq!(told.classes, classes.len());
    classes.truncate(CLASSES);
    for class in classes {
        let (class, count) = class.rsplit_once(',').unwrap();
        let found = same(&recording, &exported, &format!("select * from events.\"{class}\""));
        assert_eq!(found.to_string(), count, "{class}");
    }
    // What is lost is told by whoever reads all.
    assert_eq!(recording.lost(), exported.lost());
}

macro_rules! recorded {
    ($($test:ident: $name:literal),+ $(,)?) => {$(
        #[test]
        fn $test() {
            match unpacked_trace($name) {
                Some(path) => check(&path),
                None => skip("no shared traces"),
            }
        }
    )+};
}

recorded! {
    a_desktop_is_the_same_exported: "kernel-basic-lttng210",
    a_big_endian_kernel_is_the_same_exported: "kernel-big-endian",
    perf_is_the_same_exported: "kernel-perf-ctf-old",
    chunks_and_a_kernel_are_the_same_exported: "pair-ust-chunks-and-kernel",
    a_trace_with_loss_is_the_same_exported: "ust-lost-events",
    robots_are_the_same_exported: "ust-ros2",
    nested_fields_of_ctf_2_are_the_same_exported: "ust-ctf2",
}

#[test]
fn a_parallel_program_is_the_same_exported() {
    match unpacked_trace("otf2-mpi") {
        Some(path) => check(&path.join("ssend")),
        None => skip("no shared traces"),
    }
}

#[test]
fn a_small_trace_is_the_same_exported_and_only_what_is_asked_for_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    two_classes(&trace, "h", 1_000);
    check(&trace);
    let file = folder.path().join("file.parquet");
    export(&trace, &file);
    let exported = open(&file);
    let plan = |sql: &str| rows(&exported, &format!("explain {sql}")).concat();
    assert!(plan("select ts from events").contains("row_groups=2"));
    assert!(plan("select ts from events where class = 'odd'").contains("row_groups=1"));
    assert!(plan("select ts from even where ts < '2020-01-01'").contains("row_groups=0"));
    let sql = "select count(*) from events where ts >= '2026-11-20T16:00:00' limit 5";
    assert_eq!(rows(&exported, sql), rows(&open(&trace), sql));
}

#[test]
fn recordings_and_exported_files_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    two_classes(&trace, "h", 10);
    let file = folder.path().join("file.parquet");
    export(&trace, &file);
    let options = tracedir::ReadOptions::default();
    let mixed = Database::open(&[&trace, &file], &options, None, &LIMITS);
    assert!(matches!(mixed, Err(Error::Mixed)), "{mixed:?}");
    let two = Database::open(&[&file, &file], &options, None, &LIMITS).unwrap();
    assert_eq!(rows(&two, "select count(*) from events"), ["40"]);
    let items = two.ask("select * from syscalls").err();
    assert!(matches!(items, Some(Error::NoItems { .. })), "{items:?}");
}

#[test]
fn a_file_that_is_cut_or_has_another_byte_is_refused_or_read_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    two_classes(&trace, "h", 200);
    let file = folder.path().join("file.parquet");
    export(&trace, &file);
    let whole = std::fs::read(&file).unwrap();
    let damaged = folder.path().join("damaged.parquet");
    let ask = |bytes: &[u8]| {
        std::fs::write(&damaged, bytes).unwrap();
        let options = tracedir::ReadOptions::default();
        let database = Database::open(&[&damaged], &options, None, &LIMITS)?;
        let mut answer = database.ask("select * from events")?;
        while answer.next_batch()?.is_some() {}
        Ok::<(), Error>(())
    };
    ask(&whole).unwrap();
    for len in [8, whole.len() / 2, whole.len() - 1] {
        assert!(ask(&whole[..len]).is_err(), "{len} bytes");
    }
    let mut footer = whole.clone();
    let registry = footer.windows(19).position(|text| text == b"throughline-events/").unwrap();
    footer[registry + 3] ^= 1;
    assert!(matches!(ask(&footer), Err(Error::NotExported { .. })));
}
