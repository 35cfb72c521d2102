//! Rows in each format.

use std::fs::File;

use query::format::{Format, Writer};
use tempfile::tempdir;

use crate::ask::{asked, open, rows};
use crate::made::two_classes;

#[test]
fn an_answer_looks_as_its_format_says() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", 4);
    let database = open(folder.path());
    let sql = "select ts, host, session, tid, path, size, 'a\"b' as q from even where cpu = 0 order by ts";
    let check = |format: Format, expected: &str| {
        assert_eq!(asked(&database, sql, format).unwrap().0, expected);
    };
    check(
        Format::Table,
        "ts                          host  session  tid  path  size  q\n\
         2026-11-20T00:00:00         one            100  /p0      0  a\"b\n\
         2026-11-20T00:00:00.000002  one            100  /p2      2  a\"b\n",
    );
    check(
        Format::Csv,
        "ts,host,session,tid,path,size,q\n\
         2026-11-20T00:00:00,one,,100,/p0,0,\"a\"\"b\"\n\
         2026-11-20T00:00:00.000002,one,,100,/p2,2,\"a\"\"b\"\n",
    );
    check(
        Format::Json,
        "{\"ts\":\"2026-11-20T00:00:00\",\"host\":\"one\",\"session\":null,\"tid\":100,\"path\":\"/p0\",\"size\":0,\"q\":\"a\\\"b\"}\n\
         {\"ts\":\"2026-11-20T00:00:00.000002\",\"host\":\"one\",\"session\":null,\"tid\":100,\"path\":\"/p2\",\"size\":2,\"q\":\"a\\\"b\"}\n",
    );
}

#[test]
fn an_answer_without_rows_has_its_heading() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", 4);
    let database = open(folder.path());
    let sql = "select ts, tid from odd where tid = 5";
    assert_eq!(asked(&database, sql, Format::Table).unwrap().0, "ts  tid\n");
    assert_eq!(asked(&database, sql, Format::Csv).unwrap().0, "ts,tid\n");
    assert_eq!(asked(&database, sql, Format::Json).unwrap().0, "");
}

#[test]
fn parquet_holds_the_same_rows() {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReader;

    let folder = tempdir().unwrap();
    two_classes(&folder.path().join("t"), "one", 1_000);
    let database = open(&folder.path().join("t"));
    let mut answer = database.ask("select * from odd").unwrap();
    let path = folder.path().join("odd.parquet");
    let file = File::create(&path).unwrap();
    let mut writer = Writer::new(Format::Parquet, &answer.schema(), file).unwrap();
    while let Some(batch) = answer.next_batch().unwrap() {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
    let reader = ParquetRecordBatchReader::try_new(File::open(&path).unwrap(), 1_024).unwrap();
    let (mut count, mut sum) = (0, 0);
    for batch in reader {
        let batch = batch.unwrap();
        count += batch.num_rows();
        let ret = batch.column_by_name("ret").unwrap().as_primitive::<Int64Type>();
        sum += ret.iter().flatten().sum::<i64>();
    }
    assert_eq!(rows(&database, "select count(*), sum(ret) from odd"), [format!("{count},{sum}")]);
    assert_eq!((count, sum), (1_000, -500_000));
}

#[test]
fn tables_and_columns_can_be_listed() {
    let folder = tempdir().unwrap();
    two_classes(folder.path(), "one", 4);
    let database = open(folder.path());
    let tables = rows(
        &database,
        "select table_schema, table_name from information_schema.tables
         where table_schema <> 'information_schema' order by 1, 2",
    );
    let of_classes = ["events,even", "events,odd", "public,even", "public,events"];
    let of_items = ["public,files", "public,odd", "public,phases", "public,sched", "public,spans"];
    let others = ["public,syscalls", "public,threads"];
    assert_eq!(tables, [&of_classes[..], &of_items[..], &others[..]].concat());
    let columns = rows(&database, "describe odd");
    let names: Vec<&str> = columns.iter().filter_map(|row| row.split(',').next()).collect();
    let expected =
        ["ts", "host", "session", "domain", "stream", "cpu", "tid", "pid", "comm", "ret", "vtid"];
    assert_eq!(names, expected);
}
