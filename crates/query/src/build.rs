//! From event records to arrays.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::format::Output;
use ctf::format::json::JsonWriter;
use ctf::{Compound, EventRecord, EventRecordClass, FieldHandle, Scope, TraceClass, Value};
use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder,
    ListBuilder, RecordBatch, RecordBatchOptions, StringViewBuilder, TimestampNanosecondBuilder,
    UInt32Builder, UInt64Builder,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;

use crate::columns::{Column, Common, Kind, Part, Source};

/// Where a field of a class lies, if it has one.
pub(crate) fn handle(
    trace: &TraceClass,
    class: &EventRecordClass,
    part: Part,
    path: &str,
) -> Option<FieldHandle> {
    match part {
        Part::Payload => class.field_handle(path),
        Part::Context => class
            .context_handle(path)
            .or_else(|| trace.stream_class(class.stream_class_id())?.event_context_handle(path)),
    }
}

/// Where a class says which thread, process and name of it an event record is of.
pub(crate) fn identity(
    trace: &TraceClass,
    class: &EventRecordClass,
    common: Common,
) -> Option<FieldHandle> {
    let (context, payload): (&[&str], &[&str]) = match common {
        Common::Tid => (&["tid", "vtid"], &["perf_tid"]),
        Common::Pid => (&["pid", "vpid"], &["perf_pid"]),
        Common::Comm => (&["procname"], &[]),
        _ => return None,
    };
    let find =
        |part, paths: &[&str]| paths.iter().find_map(|path| handle(trace, class, part, path));
    find(Part::Context, context).or_else(|| find(Part::Payload, payload))
}

/// Where the columns' values are in event records of one class.
#[derive(Debug)]
pub(crate) struct Getters(Vec<Getter>);

#[derive(Debug, Clone, Copy)]
enum Getter {
    Absent,
    Field {
        handle: FieldHandle,
        labels: bool,
    },
    Ts,
    /// One text for all event records of the class, by its number.
    Name(u32),
    Number(i64),
    Cpu,
    Payload,
}

/// What all event records of one stream and trace class have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) host: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) stream: i64,
}

impl Origin {
    /// Of a stream at this position in its recording.
    pub(crate) fn new(trace: &TraceClass, stream: usize) -> Self {
        let text = |name| Some(trace.env(name)?.as_str()?.to_owned());
        Self {
            host: text("hostname"),
            session: text("trace_name"),
            domain: text("domain"),
            stream: i64::try_from(stream).unwrap_or(i64::MAX),
        }
    }
}

/// Collects rows of some columns, up to a batch.
#[derive(Debug)]
pub(crate) struct Rows {
    schema: SchemaRef,
    columns: Vec<(Column, Cells)>,
    names: Names,
    json: JsonWriter,
    text: Output,
    rows: usize,
}

impl Rows {
    pub(crate) fn new(schema: SchemaRef, columns: &[Column]) -> Self {
        let columns =
            columns.iter().map(|column| (column.clone(), Cells::new(column))).collect::<Vec<_>>();
        let (names, json, text) = (Names::default(), JsonWriter::new(), Output::new());
        Self { schema, columns, names, json, text, rows: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows
    }

    /// Where the columns' values are in event records of `class`.
    pub(crate) fn getters(
        &mut self,
        trace: &TraceClass,
        class: &EventRecordClass,
        origin: &Origin,
    ) -> Getters {
        let names = &mut self.names;
        let mut name = |text: Option<&str>| {
            text.map_or(Getter::Absent, |text| Getter::Name(names.number(text)))
        };
        let field = |handle: Option<FieldHandle>, labels| {
            handle.map_or(Getter::Absent, |handle| Getter::Field { handle, labels })
        };
        let getter = |(column, _): &(Column, Cells)| match &column.source {
            Source::Field { part, path, labels } => {
                field(handle(trace, class, *part, path), *labels)
            }
            Source::Common(common) => match common {
                Common::Ts => Getter::Ts,
                Common::Host => name(origin.host.as_deref()),
                Common::Session => name(origin.session.as_deref()),
                Common::Domain => name(origin.domain.as_deref()),
                Common::Class => name(Some(class.name())),
                Common::Stream => Getter::Number(origin.stream),
                Common::Cpu => Getter::Cpu,
                Common::Fields => Getter::Payload,
                Common::Tid | Common::Pid | Common::Comm => {
                    field(identity(trace, class, *common), true)
                }
            },
        };
        Getters(self.columns.iter().map(getter).collect())
    }

    /// Adds an event record as a row.
    pub(crate) fn push(&mut self, record: &EventRecord<'_>, getters: &Getters) {
        let mut show = Show { json: &mut self.json, text: &mut self.text };
        for ((_, cells), getter) in self.columns.iter_mut().zip(&getters.0) {
            match *getter {
                Getter::Absent => cells.push_null(),
                Getter::Field { handle, labels } => {
                    cells.push_field(record, handle, labels, &mut show)
                }
                Getter::Ts => cells.push_int(record.timestamp_ns()),
                Getter::Name(number) => cells.push_name(number),
                Getter::Number(number) => cells.push_int(Some(number)),
                Getter::Cpu => cells.push_int(record.cpu_id().and_then(|cpu| cpu.try_into().ok())),
                Getter::Payload => {
                    show.text.clear();
                    show.json.write_scope(record, Scope::Payload, show.text);
                    cells.push_text(show.text.as_bytes());
                }
            }
        }
        self.rows += 1;
    }

    /// The rows since the last batch.
    pub(crate) fn take_batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let names = &mut self.names;
        let arrays: Vec<ArrayRef> = self
            .columns
            .iter_mut()
            .map(|(_, cells)| cells.finish(names))
            .collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
    }
}

/// What writes values as JSON.
struct Show<'a> {
    json: &'a mut JsonWriter,
    text: &'a mut Output,
}

/// Texts that many rows share, by number: names of hosts, sessions and classes, as many as the traces declare.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
    /// All of them; absent when one has come since it was made.
    array: Option<ArrayRef>,
}

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        self.array = None;
        number
    }

    fn array(&mut self) -> ArrayRef {
        let texts = &self.texts;
        let array = self.array.get_or_insert_with(|| {
            let mut builder = StringViewBuilder::with_capacity(texts.len());
            texts.iter().for_each(|text| builder.append_value(text));
            Arc::new(builder.finish())
        });
        Arc::clone(array)
    }
}

/// The cells of one column since the last batch.
#[derive(Debug)]
enum Cells {
    Time(TimestampNanosecondBuilder),
    Int(Int64Builder),
    Uint(UInt64Builder),
    Wide(Decimal128Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringViewBuilder),
    Name(UInt32Builder),
    Bytes(BinaryBuilder),
    Ints(ListBuilder<Int64Builder>),
    Uints(ListBuilder<UInt64Builder>),
    Floats(ListBuilder<Float64Builder>),
}

/// Does the same to the builder of whichever kind of cells.
macro_rules! each {
    ($cells:expr, $builder:ident => $do:expr) => {
        match $cells {
            Cells::Time($builder) => $do,
            Cells::Int($builder) => $do,
            Cells::Uint($builder) => $do,
            Cells::Wide($builder) => $do,
            Cells::Float($builder) => $do,
            Cells::Bool($builder) => $do,
            Cells::Text($builder) => $do,
            Cells::Name($builder) => $do,
            Cells::Bytes($builder) => $do,
            Cells::Ints($builder) => $do,
            Cells::Uints($builder) => $do,
            Cells::Floats($builder) => $do,
        }
    };
}

impl Cells {
    fn new(column: &Column) -> Self {
        let is_name = matches!(
            column.source,
            Source::Common(Common::Host | Common::Session | Common::Domain | Common::Class)
        );
        match column.kind {
            Kind::Time => Self::Time(TimestampNanosecondBuilder::new()),
            Kind::Int => Self::Int(Int64Builder::new()),
            Kind::Uint => Self::Uint(UInt64Builder::new()),
            Kind::Wide => {
                Self::Wide(Decimal128Builder::new().with_data_type(Kind::Wide.data_type()))
            }
            Kind::Float => Self::Float(Float64Builder::new()),
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Text if is_name => Self::Name(UInt32Builder::new()),
            Kind::Text => Self::Text(texts()),
            Kind::Bytes => Self::Bytes(BinaryBuilder::new()),
            Kind::Ints => Self::Ints(ListBuilder::new(Int64Builder::new())),
            Kind::Uints => Self::Uints(ListBuilder::new(UInt64Builder::new())),
            Kind::Floats => Self::Floats(ListBuilder::new(Float64Builder::new())),
        }
    }

    fn push_null(&mut self) {
        each!(self, builder => builder.append_null());
    }

    fn push_int(&mut self, number: Option<i64>) {
        match self {
            Self::Time(builder) => builder.append_option(number),
            Self::Int(builder) => builder.append_option(number),
            _ => self.push_null(),
        }
    }

    fn push_name(&mut self, number: u32) {
        match self {
            Self::Name(builder) => builder.append_value(number),
            _ => self.push_null(),
        }
    }

    /// What is not UTF-8 becomes U+FFFD.
    fn push_text(&mut self, text: &[u8]) {
        match self {
            Self::Text(builder) => builder.append_value(String::from_utf8_lossy(text)),
            _ => self.push_null(),
        }
    }

    fn push_field(
        &mut self,
        record: &EventRecord<'_>,
        handle: FieldHandle,
        labels: bool,
        show: &mut Show<'_>,
    ) {
        match self {
            Self::Int(builder) => builder.append_option(record.i64(handle)),
            Self::Uint(builder) => builder.append_option(record.u64(handle)),
            _ => match record.get(handle) {
                Some(value) => self.push_value(value, labels, show),
                None => self.push_null(),
            },
        }
    }

    fn push_value(&mut self, value: Value<'_>, labels: bool, show: &mut Show<'_>) {
        match self {
            Self::Wide(builder) => {
                let signed = value.as_i64().map(i128::from);
                builder.append_option(signed.or_else(|| value.as_u64().map(i128::from)));
            }
            Self::Float(builder) => builder.append_option(float(&value)),
            Self::Bool(builder) => builder.append_option(match value {
                Value::Bool(truth) => Some(truth),
                _ => None,
            }),
            Self::Bytes(builder) => builder.append_option(value.as_bytes()),
            Self::Text(builder) => push_shown(builder, value, labels, show),
            Self::Ints(builder) => {
                let numbers = compound(&value).and_then(Compound::integers);
                let number = |number: i128| i64::try_from(number).ok();
                builder.append_option(numbers.map(|numbers| numbers.map(number)));
            }
            Self::Uints(builder) => {
                let numbers = compound(&value).and_then(Compound::integers);
                let number = |number: i128| u64::try_from(number).ok();
                builder.append_option(numbers.map(|numbers| numbers.map(number)));
            }
            Self::Floats(builder) => match compound(&value) {
                Some(compound) => {
                    compound.visit(&mut FloatsOf(builder.values()));
                    builder.append(true);
                }
                None => builder.append_null(),
            },
            Self::Time(_) | Self::Int(_) | Self::Uint(_) | Self::Name(_) => self.push_null(),
        }
    }

    fn finish(&mut self, names: &mut Names) -> Result<ArrayRef, ArrowError> {
        if let Self::Name(builder) = self {
            return take(&names.array(), &builder.finish(), None);
        }
        let array: ArrayRef = each!(self, builder => Arc::new(builder.finish()));
        Ok(array)
    }
}

/// Takes memory in small pieces: by default they grow from batch to batch, and each batch then counts as many times what
/// is in it.
pub(crate) fn texts() -> StringViewBuilder {
    StringViewBuilder::new().with_fixed_block_size(32 << 10)
}

const fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

const fn compound<'v, 'a>(value: &'v Value<'a>) -> Option<&'v Compound<'a>> {
    match value {
        Value::Compound(compound) => Some(compound),
        _ => None,
    }
}

/// A text as it is, a named number by its names, anything else as JSON.
fn push_shown(
    builder: &mut StringViewBuilder,
    value: Value<'_>,
    labels: bool,
    show: &mut Show<'_>,
) {
    match value {
        Value::Str(text) => builder.append_value(String::from_utf8_lossy(text)),
        Value::WideStr(text) => builder.append_value(text.chars().collect::<String>()),
        Value::Enum(value) if labels => {
            let mut names = value.labels();
            match (names.next(), names.next()) {
                (None, _) => builder.append_value(value.number().to_string()),
                (Some(only), None) => builder.append_value(only),
                (Some(first), Some(second)) => {
                    let all: Vec<&str> = [first, second].into_iter().chain(names).collect();
                    builder.append_value(all.join("|"));
                }
            }
        }
        value => {
            show.text.clear();
            show.json.write_value(value, show.text);
            builder.append_value(String::from_utf8_lossy(show.text.as_bytes()));
        }
    }
}

/// Takes the elements of an array of floating point numbers.
struct FloatsOf<'b>(&'b mut Float64Builder);

impl<'a> ctf::Visitor<'a> for FloatsOf<'_> {
    fn scalar(&mut self, _: ctf::Field<'a>, value: Value<'a>) {
        self.0.append_option(float(&value));
    }

    fn enter(&mut self, _: ctf::Field<'a>, _: ctf::Shape) {}
    fn leave(&mut self, _: ctf::Field<'a>, _: ctf::Shape) {}
}
