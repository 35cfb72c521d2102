//! Between the columns of a class and the slots of a file.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Decimal128Array, Float64Array,
    Float64Builder, Int64Array, Int64Builder, ListBuilder, MapArray, MapBuilder, RecordBatch,
    StringBuilder, StringViewBuilder, UInt64Array, UInt64Builder, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, SchemaRef, UInt64Type,
};
use datafusion::arrow::error::ArrowError;

use super::registry::{PAYLOAD, REST, Stored};
use crate::columns::Kind;

/// Rows of a class as rows of a file. `payload` is the payload of each as JSON, where it must be kept so.
pub(super) fn packed(
    schema: &SchemaRef,
    stored: &[Stored],
    class: ArrayRef,
    rows: &RecordBatch,
    payload: Option<&ArrayRef>,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let count = rows.num_rows();
    let mut packed = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let column = stored.iter().position(|stored| stored.slot == *field.name());
        packed.push(match (field.name().as_str(), column) {
            ("class", _) => Arc::clone(&class),
            (REST, _) => rest(stored, rows, payload, field.data_type())?,
            (_, Some(at)) => slot(rows.column(at))?,
            (_, None) => new_null_array(field.data_type(), count),
        });
    }
    Ok(packed)
}

/// A column in the type of its slot: integers of 64 bits keep their bits.
fn slot(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::UInt64 => {
            let bits = column.as_primitive::<UInt64Type>().unary::<_, Int64Type>(u64::cast_signed);
            Ok(Arc::new(bits))
        }
        DataType::Boolean => cast(column, &DataType::Int64),
        _ => Ok(Arc::clone(column)),
    }
}

fn rest(
    stored: &[Stored],
    rows: &RecordBatch,
    payload: Option<&ArrayRef>,
    of: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let kept = stored.iter().zip(rows.columns()).filter(|(stored, _)| stored.slot == REST);
    let kept: Vec<(&Stored, &ArrayRef)> = kept.collect();
    if kept.is_empty() && payload.is_none() {
        return Ok(new_null_array(of, rows.num_rows()));
    }
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    let mut text = String::new();
    for row in 0..rows.num_rows() {
        for (stored, column) in &kept {
            if column.is_null(row) {
                continue;
            }
            text.clear();
            write_value(&mut text, stored.kind, column, row);
            map.keys().append_value(&stored.name);
            map.values().append_value(&text);
        }
        if let Some(payload) = payload {
            map.keys().append_value(PAYLOAD);
            map.values().append_value(payload.as_string_view().value(row));
        }
        map.append(true)?;
    }
    cast(&(Arc::new(map.finish()) as ArrayRef), of)
}

/// A value that is not null as text that [`Restored`] reads back.
fn write_value(out: &mut String, kind: Kind, column: &ArrayRef, row: usize) {
    // Writing to a text cannot fail.
    let written = match kind {
        Kind::Time | Kind::Int => write!(out, "{}", column.as_primitive::<Int64Type>().value(row)),
        Kind::Uint => write!(out, "{}", column.as_primitive::<UInt64Type>().value(row)),
        Kind::Wide => write!(out, "{}", column.as_primitive::<Decimal128Type>().value(row)),
        Kind::Float => write!(out, "{}", column.as_primitive::<Float64Type>().value(row)),
        Kind::Bool => write!(out, "{}", column.as_boolean().value(row)),
        Kind::Text => write!(out, "{}", column.as_string_view().value(row)),
        Kind::Bytes => {
            let bytes = column.as_binary::<i32>().value(row);
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Kind::Ints => {
            let list = column.as_list::<i32>().value(row);
            write_list(out, list.as_primitive::<Int64Type>().iter())
        }
        Kind::Uints => {
            let list = column.as_list::<i32>().value(row);
            write_list(out, list.as_primitive::<UInt64Type>().iter())
        }
        Kind::Floats => {
            let list = column.as_list::<i32>().value(row);
            write_list(out, list.as_primitive::<Float64Type>().iter())
        }
    };
    debug_assert!(written.is_ok());
}

/// `1,2,,3`: nothing where an element is null; `[]` for a list without elements.
fn write_list<T: std::fmt::Display>(
    out: &mut String,
    list: impl ExactSizeIterator<Item = Option<T>>,
) -> std::fmt::Result {
    if list.len() == 0 {
        return out.write_str("[]");
    }
    for (at, element) in list.enumerate() {
        if at > 0 {
            out.push(',');
        }
        if let Some(element) = element {
            write!(out, "{element}")?;
        }
    }
    Ok(())
}

/// The values of a column from what of it lies in a file's row group. What is not of its kind is null.
pub(super) fn restored(kind: Kind, slot: &ArrayRef, in_rest: Option<&str>) -> ArrayRef {
    match in_rest {
        Some(name) => from_rest(kind, slot, name),
        None => from_slot(kind, slot),
    }
}

fn from_slot(kind: Kind, slot: &ArrayRef) -> ArrayRef {
    let nothing = || new_null_array(&kind.data_type(), slot.len());
    match kind {
        Kind::Uint => slot
            .as_primitive_opt::<Int64Type>()
            .map_or_else(nothing, |bits| Arc::new(bits.unary::<_, UInt64Type>(i64::cast_unsigned))),
        Kind::Bool => slot.as_primitive_opt::<Int64Type>().map_or_else(nothing, |truths| {
            let truth = |truth: Option<i64>| truth.map(|truth| truth != 0);
            Arc::new(truths.iter().map(truth).collect::<BooleanArray>())
        }),
        _ if *slot.data_type() == kind.data_type() => Arc::clone(slot),
        _ => nothing(),
    }
}

/// The texts that stand under a name, row by row.
pub(super) fn texts_of<'m>(
    map: &'m MapArray,
    name: &'m str,
) -> impl Iterator<Item = Option<&'m str>> {
    let keys = map.keys().as_string_opt::<i32>();
    let values = map.values().as_string_opt::<i32>();
    let offsets = map.value_offsets();
    (0..map.len()).map(move |row| {
        let (keys, values) = (keys?, values?);
        let begin = usize::try_from(*offsets.get(row)?).ok()?;
        let end = usize::try_from(*offsets.get(row + 1)?).ok()?;
        if map.is_null(row) {
            return None;
        }
        let at = (begin..end).find(|at| keys.is_valid(*at) && keys.value(*at) == name)?;
        values.is_valid(at).then(|| values.value(at))
    })
}

fn from_rest(kind: Kind, rest: &ArrayRef, name: &str) -> ArrayRef {
    let Some(map) = rest.as_map_opt() else {
        return new_null_array(&kind.data_type(), rest.len());
    };
    let texts = texts_of(map, name);
    match kind {
        Kind::Int => Arc::new(texts.map(|text| text?.parse().ok()).collect::<Int64Array>()),
        Kind::Time => new_null_array(&kind.data_type(), rest.len()),
        Kind::Uint => Arc::new(texts.map(|text| text?.parse().ok()).collect::<UInt64Array>()),
        Kind::Wide => {
            let numbers = texts.map(|text| text?.parse().ok()).collect::<Decimal128Array>();
            Arc::new(numbers.with_data_type(kind.data_type()))
        }
        Kind::Float => Arc::new(texts.map(|text| text?.parse().ok()).collect::<Float64Array>()),
        Kind::Bool => Arc::new(texts.map(|text| text?.parse().ok()).collect::<BooleanArray>()),
        Kind::Text => {
            let mut found = StringViewBuilder::new();
            texts.for_each(|text| found.append_option(text));
            Arc::new(found.finish())
        }
        Kind::Bytes => {
            let mut found = BinaryBuilder::new();
            texts.for_each(|text| found.append_option(text.and_then(bytes)));
            Arc::new(found.finish())
        }
        Kind::Ints => {
            let mut lists = ListBuilder::new(Int64Builder::new());
            texts.for_each(|text| lists.append_option(text.map(elements)));
            Arc::new(lists.finish())
        }
        Kind::Uints => {
            let mut lists = ListBuilder::new(UInt64Builder::new());
            texts.for_each(|text| lists.append_option(text.map(elements)));
            Arc::new(lists.finish())
        }
        Kind::Floats => {
            let mut lists = ListBuilder::new(Float64Builder::new());
            texts.for_each(|text| lists.append_option(text.map(elements)));
            Arc::new(lists.finish())
        }
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let pair = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

fn elements<T: std::str::FromStr>(list: &str) -> Vec<Option<T>> {
    match list {
        "[]" => Vec::new(),
        list => list.split(',').map(|element| element.parse().ok()).collect(),
    }
}
