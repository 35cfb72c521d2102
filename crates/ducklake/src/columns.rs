//! A table's columns from Arrow's schema of its files.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::error::{Error, Result};

/// Where a field's id is, as crate `parquet` reads and writes it.
const FIELD_ID: &str = "PARQUET:field_id";

/// A column, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// The field's id in the files; columns are shown in its order.
    pub(crate) id: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) name: String,
    /// DuckLake's name of its type.
    pub(crate) kind: String,
    pub(crate) is_nullable: bool,
}

/// All of them, parents before their parts.
pub(crate) fn columns(schema: &Schema) -> Result<Vec<Column>> {
    let mut walk = Walk::default();
    for field in schema.fields() {
        // Only whole columns can be said to have no null.
        walk.visit(field, None, field.name(), field.name(), field.is_nullable())?;
    }
    Ok(walk.columns)
}

#[derive(Default)]
struct Walk {
    columns: Vec<Column>,
    paths: HashMap<i64, String>,
}

impl Walk {
    fn visit(
        &mut self,
        field: &Field,
        parent: Option<i64>,
        name: &str,
        path: &str,
        is_nullable: bool,
    ) -> Result<()> {
        let id = field.metadata().get(FIELD_ID).and_then(|id| id.parse::<i32>().ok());
        let id = id.filter(|id| *id > 0).map(i64::from);
        let id = id.ok_or_else(|| Error::NoFieldId { field: path.to_owned() })?;
        if let Some(other) = self.paths.insert(id, path.to_owned()) {
            return Err(Error::SameFieldId { field: path.to_owned(), other, id });
        }
        let kind = kind(field.data_type());
        let kind = kind.ok_or_else(|| Error::Type {
            field: path.to_owned(),
            kind: field.data_type().to_string(),
        })?;
        self.columns.push(Column { id, parent, name: name.to_owned(), kind, is_nullable });
        for (name, part) in parts(field.data_type()) {
            self.visit(part, Some(id), name, &format!("{path}.{name}"), true)?;
        }
        Ok(())
    }
}

/// The parts of a nested type by DuckLake's names of them. The structure that Arrow and Parquet have between a map and its two
/// parts is none.
fn parts(kind: &DataType) -> Vec<(&str, &Field)> {
    match kind {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => vec![("element", element)],
        DataType::Struct(fields) => {
            fields.iter().map(|field| (field.name().as_str(), field.as_ref())).collect()
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                ["key", "value"].into_iter().zip(fields.iter().map(AsRef::as_ref)).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// DuckLake's name of a type, <https://ducklake.select/docs/stable/specification/data_types>. Those are absent that Parquet does not have
/// (seconds) or DuckDB reads less exactly than they are (nanoseconds of UTC).
fn kind(kind: &DataType) -> Option<String> {
    let name = match kind {
        DataType::Boolean => "boolean",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float32 => "float32",
        DataType::Float64 => "float64",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Millisecond, None) => "timestamp_ms",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "timestamp_ns",
        DataType::Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond, Some(_)) => {
            "timestamptz"
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "varchar",
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "blob",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list",
        DataType::Struct(_) => "struct",
        DataType::Map(..) => "map",
        DataType::Dictionary(_, value) => return self::kind(value),
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            return Some(format!("decimal({precision},{scale})"));
        }
        _ => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn field(name: &str, kind: DataType, id: i64) -> Field {
        let id = HashMap::from([(FIELD_ID.to_owned(), id.to_string())]);
        Field::new(name, kind, false).with_metadata(id)
    }

    fn shown(schema: Vec<Field>) -> Vec<String> {
        let columns = columns(&Schema::new(schema)).unwrap();
        let shown = columns.iter().map(|column| {
            let Column { id, parent, name, kind, is_nullable } = column;
            format!("{id} {parent:?} {name} {kind} {is_nullable}")
        });
        shown.collect()
    }

    #[test]
    fn parts_follow_their_parents_with_the_names_of_ducklake() {
        let point = DataType::Struct(
            vec![field("at", DataType::Int64, 9), field("text", DataType::Utf8, 3)].into(),
        );
        let entry = DataType::Struct(
            vec![field("k", DataType::Utf8, 5), field("v", DataType::Utf8, 6)].into(),
        );
        let entries = Arc::new(Field::new("key_value", entry, false));
        let columns = shown(vec![
            field("points", DataType::List(Arc::new(field("item", point, 2))), 1),
            field("labels", DataType::Map(entries, true), 4),
        ]);
        assert_eq!(
            columns,
            [
                "1 None points list false",
                "2 Some(1) element struct true",
                "9 Some(2) at int64 true",
                "3 Some(2) text varchar true",
                "4 None labels map false",
                "5 Some(4) key varchar true",
                "6 Some(4) value varchar true",
            ]
        );
    }

    #[test]
    fn a_field_without_id_or_with_anothers_or_of_no_type_is_named() {
        let refused = |fields| columns(&Schema::new(fields)).unwrap_err().to_string();
        let inner = Arc::new(Field::new("item", DataType::Utf8, false));
        let error = refused(vec![field("texts", DataType::List(inner), 1)]);
        assert!(error.contains("\"texts.element\""), "{error}");
        let error = refused(vec![field("a", DataType::Utf8, 0)]);
        assert!(error.contains("\"a\""), "{error}");
        let error = refused(vec![field("a", DataType::Utf8, 1), field("b", DataType::Utf8, 1)]);
        assert!(error.contains("\"b\" and \"a\""), "{error}");
        let error = refused(vec![field("a", DataType::Null, 1)]);
        assert!(error.contains("\"a\" of type Null"), "{error}");
    }
}
