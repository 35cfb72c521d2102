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
pub(super) const PART: &str = "part";
pub(super) const STACK: &str = "stack";
pub(super) const BEGIN: &str = "begin";
pub(super) const END: &str = "end";
pub(super) const TOTAL: &str = "total";
pub(super) const SAMPLES: &str = "samples";
pub(super) const AFTER: &str = "after";
pub(super) const VALUES: &str = "sample_values";
pub(super) const SPANS: &str = "spans";
pub(super) const LOCATIONS: &str = "locations";
pub(super) const STACKS: &str = "stacks";
pub(super) const PROFILES: &str = "profiles";

/// Nanoseconds since the epoch.
const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
/// The place of an item in a table, from 1.
const PLACE: DataType = DataType::UInt32;

/// All columns of a block, in order. Each field, those inside of lists, maps and structs too, has its number as metadata
/// (`PARQUET:field_id`): a number stands for one field in all layouts, so that tables over blocks know columns by it.
#[must_use]
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| Arc::new(Schema::new(columns())));
    Arc::clone(&SCHEMA)
}

/// A number is used once and never for another field.
fn columns() -> Vec<Field> {
    vec![
        field(1, TYPE, DataType::Utf8),
        field(2, SERVICE, DataType::Utf8),
        field(3, LABELS, DataType::Map(entries().into(), false)),
        field(6, SERIES, id()),
        field(7, PART, id()),
        field(8, STACK, PLACE),
        field(9, BEGIN, TIME),
        field(10, END, TIME),
        field(11, TOTAL, DataType::Int64),
        field(12, SAMPLES, list(13, PLACE)),
        field(14, AFTER, list(15, DataType::Int64)).with_nullable(true),
        field(16, VALUES, list(17, DataType::Int64)).with_nullable(true),
        field(18, SPANS, list(19, DataType::Struct(span()))).with_nullable(true),
        field(23, PROFILES, list(24, DataType::Struct(profile()))).with_nullable(true),
        field(27, STACKS, list(28, list(29, PLACE))).with_nullable(true),
        field(30, LOCATIONS, list(31, DataType::Struct(location()))).with_nullable(true),
    ]
}

fn field(id: u8, name: &str, kind: DataType) -> Field {
    let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    Field::new(name, kind, false).with_metadata(HashMap::from([id]))
}

const fn id() -> DataType {
    DataType::FixedSizeBinary(ID_BYTES)
}

fn list(element_id: u8, kind: DataType) -> DataType {
    DataType::List(field(element_id, "element", kind).into())
}

/// What a map consists of: Parquet gives it no number of its own.
fn entries() -> Field {
    let pair = vec![field(4, "key", DataType::Utf8), field(5, "value", DataType::Utf8)];
    Field::new("key_value", DataType::Struct(pair.into()), false)
}

/// The span of a sample of the row; ids are null where there is none.
fn span() -> Fields {
    vec![
        field(20, "sample", PLACE),
        field(21, "span_id", DataType::UInt64).with_nullable(true),
        field(22, "trace_id", id()).with_nullable(true),
    ]
    .into()
}

/// A profile; `id` is null where samples have none.
fn profile() -> Fields {
    vec![field(25, "id", id()).with_nullable(true), field(26, "at", TIME)].into()
}

/// The fields of [`model::samples::Frame`], in its order.
fn location() -> Fields {
    vec![
        field(32, "function", DataType::Utf8),
        field(33, "system_name", DataType::Utf8),
        field(34, "file", DataType::Utf8),
        field(35, "line", DataType::UInt32),
        field(36, "start_line", DataType::UInt32),
        field(37, "inlined", DataType::Boolean),
        field(38, "kind", DataType::Utf8),
        field(39, "mapping", DataType::Utf8),
        field(40, "build_id", DataType::Utf8),
        field(41, "address", DataType::UInt64),
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
