//! Which columns tables of event records have.
//!
//! [`Common`] columns are the same in all tables. The table of one class adds its payload's fields, then those of its
//! contexts, by the names that the trace gives them:
//!
//! | field class | column |
//! |---|---|
//! | integer | `Int64`; `UInt64` where it is unsigned and has 64 bits |
//! | integer with names for values | the name as text (several joined by `\|`, the number where it has none), and the number as `NAME_n` |
//! | bits (CTF 2) | `UInt64` |
//! | truth value, floating point number, text, BLOB | `Boolean`, `Float64`, text, `Binary` |
//! | array of integers or floating point numbers | a list |
//! | structure | its members as `"structure.member"`: each is decoded on its own, when asked for |
//! | any other array, variant | JSON as text |
//! | optional | its field, null where it is absent |
//!
//! A common column whose name a field of the payload has gets an underscore in front: `sched_wakeup.tid` is the thread that
//! is woken, `sched_wakeup._tid` the one that wakes. A context's field whose name is taken is `"context.NAME"`. A class that
//! several traces declare has the fields of all; where their types differ, the column is the narrowest that holds
//! both: `Decimal128(20, 0)` for integers, else text.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::{FieldClass, FieldClassKind, IntegerClass, Meaning, TraceClass};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use tracedir::Recording;

/// Structures inside of structures are looked into so deep; what lies deeper is JSON.
const MAX_DEPTH: usize = 16;

/// A column that is the same for all event records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Common {
    Ts,
    Host,
    Session,
    Domain,
    Stream,
    Cpu,
    Class,
    Tid,
    Pid,
    Comm,
    Fields,
}

impl Common {
    /// Those of `events`, in order.
    pub(crate) const OF_EVENTS: [Self; 11] = [
        Self::Ts,
        Self::Host,
        Self::Session,
        Self::Domain,
        Self::Stream,
        Self::Cpu,
        Self::Class,
        Self::Tid,
        Self::Pid,
        Self::Comm,
        Self::Fields,
    ];

    /// Those of the table of one class, in order.
    const OF_CLASS: [Self; 9] = [
        Self::Ts,
        Self::Host,
        Self::Session,
        Self::Domain,
        Self::Stream,
        Self::Cpu,
        Self::Tid,
        Self::Pid,
        Self::Comm,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ts => "ts",
            Self::Host => "host",
            Self::Session => "session",
            Self::Domain => "domain",
            Self::Stream => "stream",
            Self::Cpu => "cpu",
            Self::Class => "class",
            Self::Tid => "tid",
            Self::Pid => "pid",
            Self::Comm => "comm",
            Self::Fields => "fields",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Ts => Kind::Time,
            Self::Stream | Self::Cpu | Self::Tid | Self::Pid => Kind::Int,
            Self::Host | Self::Session | Self::Domain | Self::Class | Self::Comm | Self::Fields => {
                Kind::Text
            }
        }
    }
}

/// What a column's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Time,
    Int,
    Uint,
    /// Integers of either kind.
    Wide,
    Float,
    Bool,
    /// Texts; of other values, how JSON writes them.
    Text,
    Bytes,
    Ints,
    Uints,
    Floats,
}

impl Kind {
    pub(crate) fn data_type(self) -> DataType {
        let list = |of| DataType::List(Arc::new(Field::new_list_field(of, true)));
        match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Self::Int => DataType::Int64,
            Self::Uint => DataType::UInt64,
            Self::Wide => DataType::Decimal128(20, 0),
            Self::Float => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8View,
            Self::Bytes => DataType::Binary,
            Self::Ints => list(DataType::Int64),
            Self::Uints => list(DataType::UInt64),
            Self::Floats => list(DataType::Float64),
        }
    }

    /// The narrowest kind that holds values of both.
    const fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int, Self::Int) => Self::Int,
            (Self::Uint, Self::Uint) => Self::Uint,
            (Self::Int | Self::Uint | Self::Wide, Self::Int | Self::Uint | Self::Wide) => {
                Self::Wide
            }
            (Self::Float, Self::Float) => Self::Float,
            (Self::Bool, Self::Bool) => Self::Bool,
            (Self::Bytes, Self::Bytes) => Self::Bytes,
            (Self::Ints, Self::Ints) => Self::Ints,
            (Self::Uints, Self::Uints) => Self::Uints,
            (Self::Floats, Self::Floats) => Self::Floats,
            (Self::Time, Self::Time) => Self::Time,
            _ => Self::Text,
        }
    }
}

/// Which of a class's scopes a field is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Payload,
    /// The context of the class, or else the one that all event records of the stream carry.
    Context,
}

/// Where a column's values come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Common(Common),
    Field {
        part: Part,
        /// The names from the scope to the field, with dots between.
        path: String,
        /// The names of the number instead of the number.
        labels: bool,
    },
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) kind: Kind,
}

/// The columns of `events`.
pub(crate) fn of_events() -> Vec<Column> {
    Common::OF_EVENTS.map(|common| common_column(common, common.name().to_owned())).to_vec()
}

/// The columns of the class `name`; `None` when no trace declares it.
pub(crate) fn of_class(recording: &Recording, name: &str) -> Option<Vec<Column>> {
    let mut found = false;
    let mut fields = Fields::default();
    for trace in recording.traces() {
        for class in
            trace.class().event_record_classes().iter().filter(|class| class.name() == name)
        {
            found = true;
            fields.add(trace.class(), class);
        }
    }
    found.then(|| fields.columns())
}

/// The schema of some columns; all may be null.
pub(crate) fn schema(columns: &[Column]) -> SchemaRef {
    let field = |column: &Column| Field::new(&column.name, column.kind.data_type(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn common_column(common: Common, name: String) -> Column {
    Column { name, source: Source::Common(common), kind: common.kind() }
}

/// Fields of all declarations of a class.
#[derive(Default)]
struct Fields {
    payload: Found,
    context: Found,
}

impl Fields {
    fn add(&mut self, trace: &TraceClass, class: &ctf::EventRecordClass) {
        let below = |scope: Option<FieldClass<'_>>, found: &mut Found| {
            if let Some(scope) = scope {
                found.members(&scope, "", 0);
            }
        };
        below(class.payload_class(), &mut self.payload);
        below(class.context_class(), &mut self.context);
        let stream = trace.stream_class(class.stream_class_id());
        below(stream.and_then(|stream| stream.event_context_class()), &mut self.context);
    }

    fn columns(self) -> Vec<Column> {
        let payload = self.payload.columns(Part::Payload);
        let mut taken: HashMap<String, ()> =
            payload.iter().map(|column| (column.name.clone(), ())).collect();
        let mut columns = Vec::new();
        for common in Common::OF_CLASS {
            let mut name = common.name().to_owned();
            while taken.contains_key(&name) {
                name.insert(0, '_');
            }
            taken.insert(name.clone(), ());
            columns.push(common_column(common, name));
        }
        columns.extend(payload);
        for mut column in self.context.columns(Part::Context) {
            // What a common column shows already.
            if matches!(column.name.as_str(), "tid" | "pid") {
                continue;
            }
            if taken.contains_key(&column.name) {
                column.name.insert_str(0, "context.");
            }
            if taken.insert(column.name.clone(), ()).is_none() {
                columns.push(column);
            }
        }
        columns
    }
}

/// Fields by their paths, in the order in which they were met.
#[derive(Default)]
struct Found {
    order: Vec<String>,
    by_path: HashMap<String, FieldKind>,
}

/// What a field's column is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Plain(Kind),
    /// Integers with names for some values.
    Named(Kind),
}

impl Found {
    fn members(&mut self, scope: &FieldClass<'_>, prefix: &str, depth: usize) {
        for member in scope.children().filter(|member| !member.name().is_empty()) {
            // A name with a dot would not be found again: dots lead into structures.
            if member.name().contains('.') {
                continue;
            }
            let path = format!("{prefix}{}", member.name());
            let there = present(member);
            match there.kind() {
                FieldClassKind::Structure if depth < MAX_DEPTH => {
                    self.members(&there, &format!("{path}."), depth + 1);
                }
                _ => self.add(path, kind(&there)),
            }
        }
    }

    fn add(&mut self, path: String, kind: FieldKind) {
        match self.by_path.get_mut(&path) {
            Some(known) if *known == kind => {}
            Some(known) => {
                let plain = |kind: FieldKind| match kind {
                    FieldKind::Plain(kind) => kind,
                    FieldKind::Named(_) => Kind::Text,
                };
                *known = match (*known, kind) {
                    (FieldKind::Named(a), FieldKind::Named(b)) => FieldKind::Named(a.with(b)),
                    (a, b) => FieldKind::Plain(plain(a).with(plain(b))),
                };
            }
            None => {
                self.order.push(path.clone());
                self.by_path.insert(path, kind);
            }
        }
    }

    fn columns(self, part: Part) -> Vec<Column> {
        let mut columns = Vec::new();
        for path in self.order {
            let Some(kind) = self.by_path.get(&path).copied() else { continue };
            let source = |labels| Source::Field { part, path: path.clone(), labels };
            match kind {
                FieldKind::Plain(kind) => {
                    columns.push(Column { name: path.clone(), source: source(true), kind });
                }
                FieldKind::Named(kind) => {
                    columns.push(Column {
                        name: path.clone(),
                        source: source(true),
                        kind: Kind::Text,
                    });
                    let number = format!("{path}_n");
                    if !self.by_path.contains_key(&number) {
                        columns.push(Column { name: number, source: source(false), kind });
                    }
                }
            }
        }
        columns
    }
}

/// What an optional field is when it is there; any other itself.
fn present(class: FieldClass<'_>) -> FieldClass<'_> {
    let mut class = class;
    for _ in 0..MAX_DEPTH {
        match class.kind() {
            FieldClassKind::Optional(_) => match class.children().next() {
                Some(inner) => class = inner,
                None => break,
            },
            _ => break,
        }
    }
    class
}

fn kind(class: &FieldClass<'_>) -> FieldKind {
    FieldKind::Plain(match class.kind() {
        FieldClassKind::Integer(int) => return integer(&int),
        FieldClassKind::Float { .. } => Kind::Float,
        FieldClassKind::Blob(..) => Kind::Bytes,
        FieldClassKind::Array(_) => match class.children().next().map(|element| element.kind()) {
            Some(FieldClassKind::Integer(int)) => match integer(&int) {
                FieldKind::Plain(Kind::Int) => Kind::Ints,
                FieldKind::Plain(Kind::Uint) => Kind::Uints,
                _ => Kind::Text,
            },
            Some(FieldClassKind::Float { .. }) => Kind::Floats,
            _ => Kind::Text,
        },
        // Texts, and what JSON shows.
        _ => Kind::Text,
    })
}

fn integer(int: &IntegerClass<'_>) -> FieldKind {
    let is_wide = !int.is_signed() && int.bits() == 64;
    let kind = if is_wide { Kind::Uint } else { Kind::Int };
    match int.meaning() {
        Meaning::Boolean => FieldKind::Plain(Kind::Bool),
        Meaning::Bits => FieldKind::Plain(Kind::Uint),
        Meaning::Number if int.has_mappings() => FieldKind::Named(kind),
        Meaning::Number => FieldKind::Plain(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns_of(metadata: &[&str]) -> Vec<(String, Kind)> {
        let mut fields = Fields::default();
        for metadata in metadata {
            let trace = TraceClass::parse(metadata.as_bytes()).expect("right");
            fields.add(&trace, &trace.event_record_classes()[0]);
        }
        let columns = fields.columns();
        columns.into_iter().skip(2).map(|column| (column.name, column.kind)).collect()
    }

    fn names(columns: &[(String, Kind)]) -> Vec<(&str, Kind)> {
        columns.iter().map(|(name, kind)| (name.as_str(), *kind)).collect()
    }

    const HEAD: &str = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        typealias integer { size = 8; } := u8; typealias integer { size = 64; } := u64;
        typealias integer { size = 64; signed = true; } := s64;";

    #[test]
    fn a_payload_keeps_its_names_and_the_others_step_aside() {
        let metadata = format!(
            "{HEAD} stream {{ event.context := struct {{ u8 tid; u8 comm; u8 prio; u8 depth; }}; }};
            event {{ name = e; fields := struct {{
                u8 tid; u64 prio; enum : u8 {{ on = 1 }} state; struct {{ s64 x; u8 list[2]; }} at;
                enum : u8 {{ a, b }} tag; variant <tag> {{ u8 a; string b; }} what;
            }}; }};"
        );
        let columns = columns_of(&[&metadata]);
        let expected = [
            ("session", Kind::Text),
            ("domain", Kind::Text),
            ("stream", Kind::Int),
            ("cpu", Kind::Int),
            ("_tid", Kind::Int),
            ("pid", Kind::Int),
            ("comm", Kind::Text),
            ("tid", Kind::Int),
            ("prio", Kind::Uint),
            ("state", Kind::Text),
            ("state_n", Kind::Int),
            ("at.x", Kind::Int),
            ("at.list", Kind::Ints),
            ("tag", Kind::Text),
            ("tag_n", Kind::Int),
            ("what", Kind::Text),
            ("context.comm", Kind::Int),
            ("context.prio", Kind::Int),
            ("depth", Kind::Int),
        ];
        assert_eq!(names(&columns), expected);
    }

    #[test]
    fn declarations_that_differ_share_a_column_that_holds_both() {
        let event = |fields: &str| {
            format!("{HEAD} event {{ name = e; fields := struct {{ {fields} }}; }};")
        };
        let first = event("u64 a; u8 b; string c; u8 only_here;");
        let second = event("s64 a; string b; string c; u8 only_there;");
        let columns = columns_of(&[&first, &second]);
        let payload = names(&columns).split_off(7);
        let expected = [
            ("a", Kind::Wide),
            ("b", Kind::Text),
            ("c", Kind::Text),
            ("only_here", Kind::Int),
            ("only_there", Kind::Int),
        ];
        assert_eq!(payload, expected);
    }
}
