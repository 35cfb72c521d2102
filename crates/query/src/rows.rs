//! Rows of plain values, up to a batch.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, MapBuilder, RecordBatch,
    RecordBatchOptions, StringBuilder, StringViewBuilder, TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use model::samples::Labels;

/// What a column holds; null where there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// A point in time.
    Time,
    Int,
    Float,
    Text,
    Bool,
    /// Names and values.
    Labels,
}

impl Type {
    fn data_type(self) -> DataType {
        match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8View,
            Self::Bool => DataType::Boolean,
            Self::Labels => labels().finish().data_type().clone(),
        }
    }
}

/// The schema of columns; all may be null.
pub(crate) fn schema<'n>(columns: impl IntoIterator<Item = (&'n str, Type)>) -> SchemaRef {
    let field = |(name, of): (&str, Type)| Field::new(name, of.data_type(), true);
    Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    /// A number, or nanoseconds since the epoch.
    Int(i64),
    Float(f64),
    Text(&'a str),
    Bool(bool),
    Labels(&'a Labels),
}

impl Value<'_> {
    pub(crate) fn int(number: Option<impl TryInto<i64>>) -> Self {
        number.and_then(|number| number.try_into().ok()).map_or(Self::Null, Self::Int)
    }
}

impl<'a> Value<'a> {
    /// A text; null where there is none or it is empty.
    pub(crate) fn text(text: Option<&'a str>) -> Self {
        text.filter(|text| !text.is_empty()).map_or(Self::Null, Self::Text)
    }
}

fn labels() -> MapBuilder<StringBuilder, StringBuilder> {
    MapBuilder::new(None, StringBuilder::new(), StringBuilder::new())
}

fn append_labels(cells: &mut MapBuilder<StringBuilder, StringBuilder>, value: Value<'_>) {
    let labels = match value {
        Value::Labels(labels) => Some(labels),
        _ => None,
    };
    for (name, value) in labels.iter().flat_map(|labels| labels.iter()) {
        cells.keys().append_value(name);
        cells.values().append_value(value);
    }
    let appended = cells.append(labels.is_some());
    debug_assert!(appended.is_ok(), "as many names as values");
}

/// Collects rows.
#[derive(Debug)]
pub(crate) struct Rows {
    schema: SchemaRef,
    cells: Vec<Cells>,
    rows: usize,
}

#[derive(Debug)]
enum Cells {
    Time(TimestampNanosecondBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringViewBuilder),
    Bool(BooleanBuilder),
    Labels(MapBuilder<StringBuilder, StringBuilder>),
}

impl Cells {
    fn new(of: &DataType) -> Self {
        match of {
            DataType::Timestamp(..) => Self::Time(TimestampNanosecondBuilder::new()),
            DataType::Int64 => Self::Int(Int64Builder::new()),
            DataType::Float64 => Self::Float(Float64Builder::new()),
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Map(..) => Self::Labels(labels()),
            _ => Self::Text(crate::build::texts()),
        }
    }

    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Time(cells), Value::Int(at)) => cells.append_value(at),
            (Self::Time(cells), _) => cells.append_null(),
            (Self::Int(cells), Value::Int(number)) => cells.append_value(number),
            (Self::Int(cells), _) => cells.append_null(),
            (Self::Float(cells), Value::Float(number)) => cells.append_value(number),
            // Of numbers with fractions some may have none.
            (Self::Float(cells), Value::Int(number)) => cells.append_value(number as f64),
            (Self::Float(cells), _) => cells.append_null(),
            (Self::Text(cells), Value::Text(text)) => cells.append_value(text),
            (Self::Text(cells), _) => cells.append_null(),
            (Self::Bool(cells), Value::Bool(truth)) => cells.append_value(truth),
            (Self::Bool(cells), _) => cells.append_null(),
            (Self::Labels(cells), value) => append_labels(cells, value),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Time(cells) => Arc::new(cells.finish()),
            Self::Int(cells) => Arc::new(cells.finish()),
            Self::Float(cells) => Arc::new(cells.finish()),
            Self::Text(cells) => Arc::new(cells.finish()),
            Self::Bool(cells) => Arc::new(cells.finish()),
            Self::Labels(cells) => Arc::new(cells.finish()),
        }
    }
}

impl Rows {
    /// Of a schema that [`schema`] made.
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let cells = schema.fields().iter().map(|field| Cells::new(field.data_type())).collect();
        Self { schema, cells, rows: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows
    }

    /// Adds a row: a value for each column.
    pub(crate) fn push<'v>(&mut self, values: impl IntoIterator<Item = Value<'v>>) {
        self.cells.iter_mut().zip(values).for_each(|(cells, value)| cells.push(value));
        self.rows += 1;
    }

    /// The rows since the last batch.
    pub(crate) fn take_batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let arrays = self.cells.iter_mut().map(Cells::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
    }
}
