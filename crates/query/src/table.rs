//! Tables of event records, and where they are found by name.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::{DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::columns::{self, Column, Common, Source};
use crate::filter::{Names, Split};
use crate::items::{self, Items, Name};
use crate::scan::{ByClass, Question, ScanExec};
use crate::source::Recordings;

/// The name of the table of all event records, and of the schema that holds the tables of classes.
pub(crate) const EVENTS: &str = "events";

/// Event records of all classes or of one.
#[derive(Debug)]
pub(crate) struct Events {
    recordings: Arc<Recordings>,
    class: Option<String>,
    columns: Vec<Column>,
    schema: SchemaRef,
    names: Names,
}

impl Events {
    /// All event records.
    pub(crate) fn all(recordings: Arc<Recordings>) -> Self {
        Self::new(recordings, None, columns::of_events())
    }

    /// Those of one class; `None` when no trace declares it.
    pub(crate) fn of_class(recordings: Arc<Recordings>, name: &str) -> Option<Self> {
        let columns = columns::of_class(&recordings.recording, name)?;
        Some(Self::new(recordings, Some(name.to_owned()), columns))
    }

    fn new(recordings: Arc<Recordings>, class: Option<String>, columns: Vec<Column>) -> Self {
        let schema = columns::schema(&columns);
        let common = |column: &Column| match column.source {
            Source::Common(common) => Some((column.name.clone(), common)),
            Source::Field { .. } => None,
        };
        let (mut ts, mut of_class) = (String::new(), Vec::new());
        for (name, common) in columns.iter().filter_map(common) {
            match common {
                Common::Ts => ts = name,
                Common::Host
                | Common::Session
                | Common::Domain
                | Common::Stream
                | Common::Class => of_class.push((name, common)),
                _ => {}
            }
        }
        Self { recordings, class, columns, schema, names: Names { ts, of_class } }
    }

    fn by_class(&self, state: &dyn Session, conditions: &[Expr]) -> Result<ByClass> {
        if conditions.is_empty() {
            return Ok(ByClass::default());
        }
        let columns = self.names.of_class.clone();
        let field = |(name, _): &(String, Common)| self.schema.field_with_name(name).cloned();
        let fields: Vec<Field> =
            columns.iter().map(field).collect::<std::result::Result<_, _>>()?;
        let schema = Arc::new(Schema::new(fields));
        let known = DFSchema::try_from(Arc::clone(&schema))?;
        let compile = |condition: &Expr| state.create_physical_expr(condition.clone(), &known);
        let conditions = conditions.iter().map(compile).collect::<Result<_>>()?;
        Ok(ByClass { columns, schema: Some(schema), conditions })
    }
}

#[async_trait]
impl TableProvider for Events {
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
        let by_whom = |filter: &&Expr| match self.names.answers(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
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
        let (columns, schema) = match projection {
            None => (self.columns.clone(), Arc::clone(&self.schema)),
            Some(wanted) => {
                let columns = wanted.iter().filter_map(|at| self.columns.get(*at).cloned());
                (columns.collect(), Arc::new(self.schema.project(wanted)?))
            }
        };
        let Split { times, of_class } = self.names.split(filters);
        let by_class = self.by_class(state, &of_class)?;
        let class = self.class.clone();
        let question = Question { columns, class, times, by_class, limit };
        let partitions = state.config().target_partitions();
        let recordings = Arc::clone(&self.recordings);
        Ok(Arc::new(ScanExec::new(recordings, question, schema, partitions)))
    }
}

/// Finds tables by name: `events`, and that of each class.
#[derive(Debug)]
pub(crate) struct Tables {
    recordings: Arc<Recordings>,
    /// What tables of items are read from; nothing where classes alone are found.
    items: Option<Arc<Items>>,
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let traces = self.recordings.recording.traces();
        let classes = traces.iter().flat_map(|trace| trace.class().event_record_classes());
        let mut names: Vec<String> = classes.map(|class| class.name().to_owned()).collect();
        if self.items.is_some() {
            names.push(EVENTS.to_owned());
            names.extend(Name::ALL.map(|name| name.word().to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let recordings = Arc::clone(&self.recordings);
        if let Some(items) = &self.items {
            if name == EVENTS {
                return Ok(Some(Arc::new(Events::all(recordings))));
            }
            if let Some(name) = Name::of(name) {
                return Ok(Some(Arc::new(items::Table::new(Arc::clone(items), name))));
            }
        }
        let table = Events::of_class(recordings, name);
        Ok(table.map(|table| -> Arc<dyn TableProvider> { Arc::new(table) }))
    }

    fn table_exist(&self, name: &str) -> bool {
        let traces = self.recordings.recording.traces();
        let mut classes = traces.iter().flat_map(|trace| trace.class().event_record_classes());
        let is_own = name == EVENTS || Name::of(name).is_some();
        (is_own && self.items.is_some()) || classes.any(|class| class.name() == name)
    }
}

/// The schemas: [`PUBLIC`], where names without a schema are looked up, and [`EVENTS`].
#[derive(Debug)]
pub(crate) struct Catalog {
    public: Arc<Tables>,
    classes: Arc<Tables>,
}

/// The schema where names without one are looked up.
pub(crate) const PUBLIC: &str = "public";

impl Catalog {
    pub(crate) fn new(recordings: &Arc<Recordings>, items: Items) -> Self {
        let tables = |items| Arc::new(Tables { recordings: Arc::clone(recordings), items });
        Self { public: tables(Some(Arc::new(items))), classes: tables(None) }
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), EVENTS.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PUBLIC => Some(Arc::<Tables>::clone(&self.public)),
            EVENTS => Some(Arc::<Tables>::clone(&self.classes)),
            _ => None,
        }
    }
}
