//! What of a class lies where.

use std::sync::Arc;

use ctf::{FieldClass, FieldClassKind, Meaning};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use tracedir::Recording;

use crate::columns::{Column, Kind, Part, Source};

/// The key of the file's metadata under which the registry stands, as JSON.
pub(crate) const KEY: &str = "throughline.events";
/// The `format` of a registry.
pub(crate) const FORMAT: &str = "throughline-events/1";

const INTS: usize = 12;
const FLOATS: usize = 4;
const TEXTS: usize = 4;

/// The column for what has no slot: by the name of the class's column.
pub(crate) const REST: &str = "rest";
/// Where in it the payload lies as JSON, where columns do not tell all of it.
pub(crate) const PAYLOAD: &str = "";

/// Which classes a file has, and what their slots hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registry {
    /// [`FORMAT`].
    pub(crate) format: String,
    /// What was lost when it was recorded.
    pub(crate) lost_event_records: u64,
    pub(crate) lost_packets: u64,
    /// By name.
    pub(crate) classes: Vec<Class>,
}

/// A class of event records, of all traces that declare it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) rows: u64,
    /// The columns of the class's table, in order.
    pub(crate) columns: Vec<Stored>,
    /// How the payload is made of the columns; without it, it lies in [`REST`] as JSON.
    pub(crate) payload: Option<Node>,
}

/// Where the values of a column are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    /// The file's column, or [`REST`].
    pub(crate) slot: String,
}

/// A part of a payload, by positions of the class's columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Node {
    Object(Vec<(String, Node)>),
    /// A value as it is.
    Value(usize),
    /// A text that is JSON.
    Json(usize),
    /// The names of a number, and the number.
    Named(usize, usize),
}

/// The columns of a file.
pub(crate) fn schema() -> SchemaRef {
    let field = |name: &str, of: DataType| Field::new(name, of, true);
    let mut fields = vec![field("ts", DataType::Timestamp(TimeUnit::Nanosecond, None))];
    fields.extend(["host", "session", "domain"].map(|name| field(name, DataType::Utf8View)));
    fields.extend(["stream", "cpu"].map(|name| field(name, DataType::Int64)));
    fields.push(field("class", DataType::Utf8View));
    fields.extend(["tid", "pid"].map(|name| field(name, DataType::Int64)));
    fields.push(field("comm", DataType::Utf8View));
    fields.extend((0..INTS).map(|n| field(&format!("i{n}"), DataType::Int64)));
    fields.extend((0..FLOATS).map(|n| field(&format!("f{n}"), DataType::Float64)));
    fields.extend((0..TEXTS).map(|n| field(&format!("s{n}"), DataType::Utf8View)));
    let entry = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Utf8, true),
    ]);
    let entries = Arc::new(Field::new("entries", DataType::Struct(entry), false));
    fields.push(field(REST, DataType::Map(entries, false)));
    Arc::new(Schema::new(fields))
}

/// Whether a file has these columns. How the parts of a map are called is the writer's affair.
pub(crate) fn has_columns(found: &Schema) -> bool {
    let is_same = |(one, other): (&Arc<Field>, &Arc<Field>)| {
        let types = (one.data_type(), other.data_type());
        one.name() == other.name()
            && (types.0 == types.1 || matches!(types, (DataType::Map(..), DataType::Map(..))))
    };
    let own = schema();
    own.fields().len() == found.fields().len()
        && own.fields().iter().zip(found.fields()).all(is_same)
}

impl Class {
    /// Where the columns of a class lie.
    pub(crate) fn new(recording: &Recording, name: &str, columns: &[Column]) -> Self {
        let (mut ints, mut floats, mut texts) = (0..INTS, 0..FLOATS, 0..TEXTS);
        let stored = |column: &Column| {
            let slot = match (&column.source, column.kind) {
                (Source::Common(common), _) => Some(common.name().to_owned()),
                (_, Kind::Int | Kind::Uint | Kind::Bool) => ints.next().map(|n| format!("i{n}")),
                (_, Kind::Float) => floats.next().map(|n| format!("f{n}")),
                (_, Kind::Text) => texts.next().map(|n| format!("s{n}")),
                _ => None,
            };
            let slot = slot.unwrap_or_else(|| REST.to_owned());
            Stored { name: column.name.clone(), kind: column.kind, slot }
        };
        let stored = columns.iter().map(stored).collect();
        let payload = payload(recording, name, columns);
        Self { name: name.to_owned(), rows: 0, columns: stored, payload }
    }
}

/// How the payload of a class is made of its columns; `None` where they do not tell all of it, or traces declare it
/// differently.
fn payload(recording: &Recording, name: &str, columns: &[Column]) -> Option<Node> {
    let traces = recording.traces().iter().map(|trace| trace.class());
    let classes = traces.flat_map(|trace| trace.event_record_classes());
    let declared = classes.filter(|class| class.name() == name);
    let mut made = declared.map(|class| match class.payload_class() {
        Some(scope) => object(&scope, "", columns),
        None => Some(Node::Object(Vec::new())),
    });
    let first = made.next()??;
    made.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

fn object(scope: &FieldClass<'_>, prefix: &str, columns: &[Column]) -> Option<Node> {
    let mut members: Vec<(String, Node)> = Vec::new();
    for member in scope.children() {
        let name = member.name();
        if name.is_empty() || name.contains('.') || members.iter().any(|(known, _)| known == name) {
            return None;
        }
        let node = node(&member, &format!("{prefix}{name}"), columns)?;
        members.push((name.to_owned(), node));
    }
    Some(Node::Object(members))
}

fn node(class: &FieldClass<'_>, path: &str, columns: &[Column]) -> Option<Node> {
    let column = |with_names: bool, kinds: &[Kind]| {
        columns.iter().position(|column| match &column.source {
            Source::Field { part: Part::Payload, path: known, labels } => {
                known == path && *labels == with_names && kinds.contains(&column.kind)
            }
            _ => false,
        })
    };
    match class.kind() {
        FieldClassKind::Structure => object(class, &format!("{path}."), columns),
        FieldClassKind::Integer(int) => match int.meaning() {
            Meaning::Boolean => column(true, &[Kind::Bool]).map(Node::Value),
            Meaning::Bits => None,
            Meaning::Number if int.has_mappings() => {
                let number = column(false, &[Kind::Int, Kind::Uint])?;
                Some(Node::Named(column(true, &[Kind::Text])?, number))
            }
            Meaning::Number => column(true, &[Kind::Int, Kind::Uint]).map(Node::Value),
        },
        FieldClassKind::Float { .. } => column(true, &[Kind::Float]).map(Node::Value),
        FieldClassKind::Text(_) | FieldClassKind::TextArray(..) => {
            column(true, &[Kind::Text]).map(Node::Value)
        }
        FieldClassKind::Blob(..) => column(true, &[Kind::Bytes]).map(Node::Value),
        FieldClassKind::Array(_) => {
            let list = column(true, &[Kind::Ints, Kind::Uints, Kind::Floats]).map(Node::Value);
            list.or_else(|| column(true, &[Kind::Text]).map(Node::Json))
        }
        _ => None,
    }
}
