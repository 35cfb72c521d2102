//! The columns of a block.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

/// Bytes of a digest, a profile's id, a trace's id.
pub(super) const ID_BYTES: i32 = 16;

pub(super) const TYPE: &str = "type";
pub(super) const SERVICE: &str = "service";
pub(super) const LABELS: &str = "labels";
pub(super) const SERIES: &str = "series";
pub(super) const STACK: &str = "stack";
pub(super) const FRAMES: &str = "frames";
pub(super) const BEGIN: &str = "begin";
pub(super) const END: &str = "end";
pub(super) const TOTAL: &str = "total";
pub(super) const SAMPLES: &str = "samples";

/// Nanoseconds since the epoch.
const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// All columns of a block, in order. Each field, those inside of lists, maps and structs too, has its number as metadata
/// (`PARQUET:field_id`): a number stands for one field in all layouts, so that tables over blocks know columns by it.
#[must_use]
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| Arc::new(Schema::new(columns())));
    Arc::clone(&SCHEMA)
}

/// A number is used once and never for another field.
fn columns() -> Vec<Field> {
    let id = || DataType::FixedSizeBinary(ID_BYTES);
    vec![
        field(1, TYPE, DataType::Utf8),
        field(2, SERVICE, DataType::Utf8),
        field(3, LABELS, DataType::Map(entries().into(), true)),
        field(6, SERIES, id()),
        field(7, STACK, id()),
        field(8, FRAMES, list(9, frame())).with_nullable(true),
        field(20, BEGIN, TIME),
        field(21, END, TIME),
        field(22, TOTAL, DataType::Int64),
        field(23, SAMPLES, list(24, sample())),
    ]
}

fn field(id: u8, name: &str, kind: DataType) -> Field {
    let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    Field::new(name, kind, false).with_metadata(HashMap::from([id]))
}

fn list(element_id: u8, fields: Fields) -> DataType {
    DataType::List(field(element_id, "element", DataType::Struct(fields)).into())
}

/// What a map consists of: Parquet gives it no number of its own.
fn entries() -> Field {
    let pair = vec![field(4, "key", DataType::Utf8), field(5, "value", DataType::Utf8)];
    Field::new("key_value", DataType::Struct(pair.into()), false)
}

/// The fields of [`model::samples::Frame`], in its order.
fn frame() -> Fields {
    vec![
        field(10, "function", DataType::Utf8),
        field(11, "system_name", DataType::Utf8),
        field(12, "file", DataType::Utf8),
        field(13, "line", DataType::UInt32),
        field(14, "start_line", DataType::UInt32),
        field(15, "inlined", DataType::Boolean),
        field(16, "kind", DataType::Utf8),
        field(17, "mapping", DataType::Utf8),
        field(18, "build_id", DataType::Utf8),
        field(19, "address", DataType::UInt64),
    ]
    .into()
}

/// A sample; `profile`, `span_id` and `trace_id` are null where there is none.
fn sample() -> Fields {
    vec![
        field(25, "at", TIME),
        field(26, "value", DataType::Int64),
        field(27, "profile", DataType::FixedSizeBinary(ID_BYTES)).with_nullable(true),
        field(28, "span_id", DataType::UInt64).with_nullable(true),
        field(29, "trace_id", DataType::FixedSizeBinary(ID_BYTES)).with_nullable(true),
    ]
    .into()
}

/// The element of a column that is a list, or the pair of a map.
///
/// # Panics
///
/// For a column that is neither.
pub(super) fn item(column: &str) -> FieldRef {
    let schema = schema();
    match schema.field_with_name(column).map(Field::data_type) {
        Ok(DataType::List(item) | DataType::Map(item, _)) => Arc::clone(item),
        other => panic!("{column} has no items: {other:?}"),
    }
}

/// The fields of an item.
pub(super) fn fields(item: &Field) -> Fields {
    match item.data_type() {
        DataType::Struct(fields) => fields.clone(),
        _ => Fields::empty(),
    }
}
