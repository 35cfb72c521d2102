//! Numbers of files against those that DuckDB takes from the same footers.

use std::collections::HashMap;
use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int8Array, Int32Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_schema::{Field, Schema};
use ducklake::{Error, Numbers};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use crate::lake::{Lake, rows};
use testkit::duckdb::DuckDb;

/// What DuckDB says of a file's columns when it adds it to a table of its own whose columns are numbered as the fields are.
fn told_by_duckdb(folder: &std::path::Path, file: &str, columns: &str) -> Value {
    let options = format!("DATA_PATH '{}/'", folder.display());
    let address = format!("sqlite:{}", folder.join("reference.sqlite").display());
    let mut duckdb = DuckDb::attach_with(&address, &options);
    duckdb.rows(&format!("CREATE TABLE t ({columns})"));
    duckdb.rows(&format!("CALL ducklake_add_data_files('lake', 't', '{file}')"));
    duckdb.rows(
        "SELECT column_id, column_size_bytes, value_count, null_count, min_value, max_value \
         FROM __ducklake_metadata_lake.ducklake_file_column_stats ORDER BY column_id",
    )
}

fn told(numbers: &Numbers) -> Value {
    let columns = numbers.columns.iter().map(|column| {
        let [min, max] = [&column.min, &column.max].map(|it| it.as_ref().map(ToString::to_string));
        json!([column.id, column.bytes, column.values, column.nulls, min, max])
    });
    Value::Array(columns.collect())
}

#[tokio::test]
async fn numbers_of_nested_columns_are_those_that_duckdb_takes() {
    if !DuckDb::is_there() {
        return;
    }
    let lake = Lake::sqlite().await;
    let file = lake.write("a.parquet", &rows(0..100));
    let path = lake.folder.path().join("blocks/a.parquet").display().to_string();
    let mut expected = told_by_duckdb(
        lake.folder.path(),
        &path,
        "begin TIMESTAMP_NS, host VARCHAR, value BIGINT, id BLOB, samples STRUCT(\"at\" TIMESTAMP_NS, value BIGINT)[], labels MAP(VARCHAR, VARCHAR)",
    );
    // Of bytes nothing is told here.
    expected[3][4] = Value::Null;
    expected[3][5] = Value::Null;
    assert_eq!(told(&file.numbers), expected);
    assert_eq!(file.numbers.rows, 100);
}

#[test]
fn numbers_of_all_kinds_are_those_that_duckdb_takes() {
    if !DuckDb::is_there() {
        return;
    }
    let columns: [(&str, ArrayRef); 11] = [
        ("UTINYINT", Arc::new(arrow_array::UInt8Array::from(vec![Some(200), None, Some(3)]))),
        ("USMALLINT", Arc::new(UInt16Array::from(vec![Some(40_000), None, Some(3)]))),
        ("UINTEGER", Arc::new(UInt32Array::from(vec![Some(u32::MAX), None, Some(3)]))),
        ("UBIGINT", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(3)]))),
        ("TINYINT", Arc::new(Int8Array::from(vec![Some(-3), None, Some(3)]))),
        ("INTEGER", Arc::new(Int32Array::from(vec![None::<i32>, None, None]))),
        ("BOOLEAN", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("DATE", Arc::new(Date32Array::from(vec![Some(-1), None, Some(19_756)]))),
        (
            "TIMESTAMP_MS",
            Arc::new(TimestampMillisecondArray::from(vec![
                Some(-1),
                None,
                Some(1_704_164_645_120),
            ])),
        ),
        (
            "TIMESTAMPTZ",
            Arc::new(
                TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1_704_164_645_123_456)])
                    .with_timezone("UTC"),
            ),
        ),
        ("VARCHAR", Arc::new(StringArray::from(vec![Some("b'é\n"), None, Some("")]))),
    ];
    let fields = columns.iter().zip(1..).map(|((name, array), id)| {
        let id = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
        Field::new(format!("c_{name}"), array.data_type().clone(), true).with_metadata(id)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let kinds: Vec<_> = columns.iter().map(|(name, _)| format!("c_{name} {name}")).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, rows: usize| {
        let path = folder.path().join(name);
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows));
        let file = File::create(&path).unwrap();
        let mut writer =
            ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        (Numbers::read(&fs::read(&path).unwrap()).unwrap(), path.display().to_string())
    };
    let (numbers, path) = written("kinds.parquet", 2);
    let mut expected = told_by_duckdb(folder.path(), &path, &kinds.join(", "));
    // As it writes them for rows of its own.
    expected[6][4] = json!("0");
    expected[6][5] = json!("1");
    assert_eq!(told(&numbers), expected);
    // One of its row groups has nulls only.
    let (cut, _) = written("cut.parquet", 1);
    for (whole, cut) in numbers.columns.iter().zip(&cut.columns) {
        assert_eq!((&whole.min, &whole.max), (&cut.min, &cut.max));
    }
    assert_eq!(cut.columns.len(), numbers.columns.len());
}

#[test]
fn floating_numbers_have_no_bounds_and_a_field_without_id_no_numbers() {
    let id = HashMap::from([("PARQUET:field_id".to_owned(), "1".to_owned())]);
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let kind = numbers.data_type().clone();
    let fields = vec![
        Field::new("known", kind.clone(), false).with_metadata(id),
        Field::new("unknown", kind, false),
    ];
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(&numbers), numbers]);
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).unwrap();
    writer.write(&batch.unwrap()).unwrap();
    let bytes = writer.into_inner().unwrap();
    let numbers = Numbers::read(&bytes).unwrap();
    let [column] = numbers.columns.as_slice() else { panic!("{numbers:?}") };
    assert_eq!((column.id, column.values, column.nulls), (1, Some(2), Some(0)));
    assert_eq!((&column.min, &column.max), (&None, &None));
    let footer = usize::try_from(numbers.footer_bytes).unwrap() + 8;
    assert_eq!(Numbers::read(&bytes[bytes.len() - footer..]).unwrap(), numbers);
}

#[tokio::test]
async fn bytes_that_are_no_footer_are_refused() {
    let lake = Lake::sqlite().await;
    lake.write("a.parquet", &rows(0..10));
    let bytes = fs::read(lake.folder.path().join("blocks/a.parquet")).unwrap();
    for count in [0, 4, 7, 100] {
        let end = &bytes[bytes.len() - count..];
        let error = Numbers::read(end).unwrap_err();
        assert!(matches!(error, Error::NoFooter { bytes } if bytes == count), "{error}");
    }
    let error = Numbers::read(&bytes[..bytes.len() - 1]).unwrap_err();
    assert!(matches!(error, Error::Footer(_)), "{error}");
    let footer = bytes.len() - 8 - 50;
    for at in footer..footer + 40 {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        // Whatever is found, nothing panics.
        drop(Numbers::read(&changed));
    }
}
