//! The columns of a block.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

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
pub(super) const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// All of them, in order.
pub(super) fn schema() -> SchemaRef {
    let column = |name: &str, kind: DataType| Field::new(name, kind, false);
    let id = DataType::FixedSizeBinary(ID_BYTES);
    Arc::new(Schema::new(vec![
        column(TYPE, DataType::Utf8),
        column(SERVICE, DataType::Utf8),
        column(LABELS, DataType::Map(Arc::new(column("key_value", label())), true)),
        column(SERIES, id.clone()),
        column(STACK, id),
        Field::new(FRAMES, DataType::List(element(frame())), true),
        column(BEGIN, TIME),
        column(END, TIME),
        column(TOTAL, DataType::Int64),
        column(SAMPLES, DataType::List(element(sample()))),
    ]))
}

pub(super) fn element(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", kind, false))
}

fn label() -> DataType {
    DataType::Struct(label_fields())
}

pub(super) fn label_fields() -> Fields {
    vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)]
        .into()
}

fn frame() -> DataType {
    DataType::Struct(frame_fields())
}

/// A frame: the fields of [`model::samples::Frame`], in its order.
pub(super) fn frame_fields() -> Fields {
    [
        ("function", DataType::Utf8),
        ("system_name", DataType::Utf8),
        ("file", DataType::Utf8),
        ("line", DataType::UInt32),
        ("start_line", DataType::UInt32),
        ("inlined", DataType::Boolean),
        ("kind", DataType::Utf8),
        ("mapping", DataType::Utf8),
        ("build_id", DataType::Utf8),
        ("address", DataType::UInt64),
    ]
    .map(|(name, kind)| Field::new(name, kind, false))
    .into_iter()
    .collect()
}

fn sample() -> DataType {
    DataType::Struct(sample_fields())
}

/// A sample; `profile`, `span_id` and `trace_id` are null where there is none.
pub(super) fn sample_fields() -> Fields {
    vec![
        Field::new("at", TIME, false),
        Field::new("value", DataType::Int64, false),
        Field::new("profile", DataType::FixedSizeBinary(ID_BYTES), true),
        Field::new("span_id", DataType::UInt64, true),
        Field::new("trace_id", DataType::FixedSizeBinary(ID_BYTES), true),
    ]
    .into()
}
