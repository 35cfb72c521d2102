//! Tables of a profile store's blocks: `samples`, each once, and `stacks`, the frames of each stack once.
//!
//! Threads read blocks side by side, each one row group of one block at a time. Conditions on the time are answered here; those that say
//! which service or type something is leave out row groups that cannot have it, and the engine answers them again.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType,
};
use datafusion::physical_plan::ExecutionPlan;
use model::Timestamp;
use model::samples::{Batch, Frame, ProfileType, Sample, Series, StackId};
use store::block::{Selection, groups, read_group_into};
use store::content::of_stack;
use store::lake::{Block, Reader};

use crate::error::Error;
use crate::filter::{Names, Times};
use crate::rows::{self, Type, Value};
use crate::stream::{Find, FindExec, Sink};
use crate::table::PUBLIC;

/// The most stacks that one question about `stacks` tells apart: 16 bytes each, and as much again for finding them.
pub(crate) const MAX_STACKS: usize = 1 << 24;

const TIME: &str = "time";
const SERVICE: &str = "service";
const TYPE: &str = "type";

/// Blocks that are asked.
#[derive(Debug)]
pub(crate) struct Profiles(pub(crate) Reader);

/// A column of the table `samples`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Time,
    Tenant,
    Service,
    Labels,
    Type,
    Unit,
    Value,
    Stack,
    Function,
    Profile,
    Span,
    Trace,
}

impl Column {
    const ALL: [(&'static str, Type, Self); 12] = [
        (TIME, Type::Time, Self::Time),
        ("tenant", Type::Text, Self::Tenant),
        (SERVICE, Type::Text, Self::Service),
        ("labels", Type::Labels, Self::Labels),
        (TYPE, Type::Text, Self::Type),
        ("unit", Type::Text, Self::Unit),
        ("value", Type::Int, Self::Value),
        ("stack", Type::Text, Self::Stack),
        ("function", Type::Text, Self::Function),
        ("profile", Type::Text, Self::Profile),
        ("span_id", Type::Text, Self::Span),
        ("trace_id", Type::Text, Self::Trace),
    ];
}

/// Columns of the table `stacks`.
const STACKS: [(&str, Type); 12] = [
    ("stack", Type::Text),
    ("depth", Type::Int),
    ("function", Type::Text),
    ("system_name", Type::Text),
    ("file", Type::Text),
    ("line", Type::Int),
    ("start_line", Type::Int),
    ("inlined", Type::Bool),
    ("kind", Type::Text),
    ("mapping", Type::Text),
    ("build_id", Type::Text),
    ("address", Type::Text),
];

/// The tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Samples,
    Stacks,
}

impl Name {
    const ALL: [Self; 2] = [Self::Samples, Self::Stacks];

    const fn word(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Stacks => "stacks",
        }
    }
}

/// Finds the tables by name.
#[derive(Debug)]
pub(crate) struct Catalog(pub(crate) Arc<Profiles>);

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == PUBLIC)
            .then(|| -> Arc<dyn SchemaProvider> { Arc::new(Tables(Arc::clone(&self.0))) })
    }
}

#[derive(Debug)]
struct Tables(Arc<Profiles>);

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        Name::ALL.map(|name| name.word().to_owned()).to_vec()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let found = Name::ALL.into_iter().find(|known| known.word() == name);
        Ok(found.map(|name| -> Arc<dyn TableProvider> {
            let schema = match name {
                Name::Samples => rows::schema(Column::ALL.map(|(name, of, _)| (name, of))),
                Name::Stacks => rows::schema(STACKS),
            };
            Arc::new(Table { profiles: Arc::clone(&self.0), name, schema })
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        Name::ALL.iter().any(|known| known.word() == name)
    }
}

#[derive(Debug)]
struct Table {
    profiles: Arc<Profiles>,
    name: Name,
    schema: SchemaRef,
}

fn names() -> Names {
    Names { ts: TIME.to_owned(), of_class: Vec::new() }
}

/// The text that a column has to be.
fn equal<'e>(condition: &'e Expr, column: &str) -> Option<&'e str> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return None;
    };
    let constant = match (&**left, &**right) {
        (Expr::Column(found), constant) | (constant, Expr::Column(found))
            if found.name == column =>
        {
            constant
        }
        _ => return None,
    };
    match constant {
        Expr::Literal(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
            _,
        ) => Some(text),
        _ => None,
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let is_equal =
            |filter: &Expr| [SERVICE, TYPE].iter().any(|name| equal(filter, name).is_some());
        let by_whom = |filter: &&Expr| match self.name {
            Name::Samples if names().answers(filter) => TableProviderFilterPushDown::Exact,
            Name::Samples if is_equal(filter) => TableProviderFilterPushDown::Inexact,
            _ => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(by_whom).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let schema = Arc::new(self.schema.project(projection)?);
        let profiles = Arc::clone(&self.profiles);
        let find: Arc<dyn Find> = match self.name {
            Name::Stacks => Arc::new(Stacks { profiles, projection: projection.clone() }),
            Name::Samples => {
                let of = |name| filters.iter().find_map(|it| equal(it, name).map(str::to_owned));
                let columns = projection.iter().filter_map(|at| Column::ALL.get(*at));
                Arc::new(Samples {
                    profiles,
                    columns: columns.map(|(_, _, column)| *column).collect(),
                    times: names().split(filters).times,
                    service: of(SERVICE),
                    profile_type: of(TYPE),
                    partitions: state.config().target_partitions(),
                })
            }
        };
        Ok(Arc::new(FindExec::new(find, schema, limit)))
    }
}

/// Finds samples.
#[derive(Debug)]
struct Samples {
    profiles: Arc<Profiles>,
    columns: Vec<Column>,
    times: Times,
    service: Option<String>,
    profile_type: Option<String>,
    partitions: usize,
}

impl Samples {
    /// The first and the last time, both included.
    fn bounds(&self) -> (Timestamp, Timestamp) {
        self.times.bounds()
    }

    /// The blocks whose names do not say that nothing of them is wanted.
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, last) = self.bounds();
        let may_have = move |block: &&Block| {
            !self.times.is_empty()
                && block.name().is_none_or(|name| name.begin <= last && name.end >= first)
        };
        self.profiles.0.blocks().iter().filter(may_have)
    }

    fn give(&self, block: &Block, batch: &Batch, sink: &mut Sink) {
        let tenant = block.tenant().map(store::lake::name::Tenant::as_str);
        // Of each stack that was asked for.
        let mut stacks = vec![String::new(); batch.stack_count()];
        for sample in batch.samples() {
            let row = Row::new(batch, tenant, sample, &self.columns, &mut stacks);
            let values = self.columns.iter().map(|column| row.value(*column));
            if sink.push(values).is_break() {
                return;
            }
        }
    }
}

/// What a sample's columns show.
struct Row<'b> {
    tenant: Option<&'b str>,
    sample: &'b Sample,
    series: &'b Series,
    profile_type: String,
    stack: &'b str,
    function: Option<&'b str>,
    profile: String,
    span: String,
    trace: String,
}

impl<'b> Row<'b> {
    /// Texts that no column shows are not made.
    fn new(
        batch: &'b Batch,
        tenant: Option<&'b str>,
        sample: &'b Sample,
        columns: &[Column],
        stacks: &'b mut [String],
    ) -> Self {
        let made = |column, is_there: bool, text: &dyn Fn() -> String| {
            if is_there && columns.contains(&column) { text() } else { String::new() }
        };
        let series = batch.series_of(sample.series);
        let mut stack = "";
        if columns.contains(&Column::Stack)
            && let Some(known) = stacks.get_mut(sample.stack.index())
        {
            if known.is_empty() {
                *known = of_stack(batch, sample.stack).to_string();
            }
            stack = known;
        }
        let innermost = batch.frames_of(sample.stack).next();
        Self {
            tenant,
            sample,
            series,
            profile_type: made(Column::Type, true, &|| series.profile_type.to_string()),
            stack,
            function: innermost.map(|frame| batch.text_of(batch.frame_of(frame).function)),
            profile: made(Column::Profile, sample.profile != 0, &|| {
                format!("{:032x}", sample.profile)
            }),
            span: made(Column::Span, sample.span_id != 0, &|| format!("{:016x}", sample.span_id)),
            trace: made(Column::Trace, sample.trace_id != 0, &|| {
                format!("{:032x}", sample.trace_id)
            }),
        }
    }

    fn value(&self, column: Column) -> Value<'_> {
        match column {
            Column::Time => Value::Int(self.sample.at.nanos()),
            Column::Tenant => Value::text(self.tenant),
            Column::Service => Value::text(store::service(self.series)),
            Column::Labels => Value::Labels(&self.series.labels),
            Column::Type => Value::text(Some(&self.profile_type)),
            Column::Unit => Value::text(Some(&self.series.profile_type.sample_unit)),
            Column::Value => Value::Int(self.sample.value),
            Column::Stack => Value::text(Some(self.stack)),
            Column::Function => Value::text(self.function),
            Column::Profile => Value::text(Some(&self.profile)),
            Column::Span => Value::text(Some(&self.span)),
            Column::Trace => Value::text(Some(&self.trace)),
        }
    }
}

impl Find for Samples {
    fn find(&self, partition: usize, sink: &mut Sink) -> std::result::Result<(), Error> {
        // A text that is no type is no sample's.
        let profile_type: Option<ProfileType> = match &self.profile_type {
            None => None,
            Some(text) => match text.parse() {
                Ok(wanted) => Some(wanted),
                Err(_) => return Ok(()),
            },
        };
        let is_wanted = |series: &Series| {
            self.service.as_deref().is_none_or(|service| store::service(series) == Some(service))
        };
        let selection = Selection {
            profile_type: profile_type.as_ref(),
            series: &is_wanted,
            times: self.bounds(),
            ..Selection::all()
        };
        for block in self.blocks().skip(partition).step_by(self.partitions.max(1)) {
            let bytes = self.profiles.0.read(block)?;
            for group in groups(&bytes, &selection, self.service.as_deref())
                .map_err(|error| block.blame(error))?
            {
                let mut batch = Batch::new();
                read_group_into(&bytes, group, &selection, &mut batch)
                    .map_err(|error| block.blame(error))?;
                self.give(block, &batch, sink);
                if sink.wants_more().is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn partitions(&self) -> usize {
        self.partitions
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", blocks={} of {}", self.blocks().count(), self.profiles.0.blocks().len())?;
        for (name, text) in [(SERVICE, &self.service), (TYPE, &self.profile_type)] {
            if let Some(text) = text {
                write!(f, ", {name}={text:?}")?;
            }
        }
        Ok(())
    }
}

/// Finds the frames of stacks.
#[derive(Debug)]
struct Stacks {
    profiles: Arc<Profiles>,
    projection: Vec<usize>,
}

impl Stacks {
    fn give(&self, batch: &Batch, stack: StackId, id: &str, sink: &mut Sink) {
        for (depth, frame) in batch.frames_of(stack).enumerate() {
            let frame: Frame = batch.frame_of(frame);
            let text = |id| Value::text(Some(batch.text_of(id)));
            let line = |line: u32| Value::int(Some(line).filter(|line| *line > 0));
            let address = match frame.address {
                0 => String::new(),
                address => format!("{address:#x}"),
            };
            let values = [
                Value::Text(id),
                Value::int(Some(depth)),
                text(frame.function),
                text(frame.system_name),
                text(frame.file),
                line(frame.line),
                line(frame.start_line),
                Value::Bool(frame.is_inlined),
                text(frame.kind),
                text(frame.mapping),
                text(frame.build_id),
                Value::text(Some(&address)),
            ];
            let asked = self.projection.iter().filter_map(|at| values.get(*at).copied());
            if sink.push(asked).is_break() {
                return;
            }
        }
    }
}

impl Find for Stacks {
    fn find(&self, _partition: usize, sink: &mut Sink) -> std::result::Result<(), Error> {
        let mut seen = HashSet::new();
        let selection = Selection::all();
        for block in self.profiles.0.blocks() {
            let bytes = self.profiles.0.read(block)?;
            for group in groups(&bytes, &selection, None).map_err(|error| block.blame(error))? {
                let mut batch = Batch::new();
                read_group_into(&bytes, group, &selection, &mut batch)
                    .map_err(|error| block.blame(error))?;
                let mut of_group: Vec<StackId> =
                    batch.samples().iter().map(|it| it.stack).collect();
                of_group.sort_unstable();
                of_group.dedup();
                for stack in of_group {
                    let id = of_stack(&batch, stack);
                    if !seen.insert(id) {
                        continue;
                    }
                    if seen.len() > MAX_STACKS {
                        return Err(Error::TooManyStacks);
                    }
                    self.give(&batch, stack, &id.to_string(), sink);
                    if sink.wants_more().is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", blocks={}", self.profiles.0.blocks().len())
    }
}
