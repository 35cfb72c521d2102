//! Tables of exported files: the same as those of the recordings.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::{DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::scan::{Asked, Files, Question};
use crate::columns::{self, Common, Kind};
use crate::error::Error;
use crate::filter::{Names, Split};
use crate::items;
use crate::rows::{self, Type};
use crate::stream::FindExec;
use crate::table::{EVENTS, PUBLIC};

/// Event records of all classes or of one.
#[derive(Debug)]
struct Events {
    files: Arc<Files>,
    /// The only class.
    class: Option<String>,
    asked: Vec<Asked>,
    schema: SchemaRef,
    names: Names,
}

impl Events {
    fn all(files: Arc<Files>) -> Self {
        let asked = Common::OF_EVENTS.map(|common| match common {
            Common::Fields => Asked::Payload,
            common => Asked::Common(common.name()),
        });
        let schema = columns::schema(&columns::of_events());
        let of_class = vec![(Common::Class.name().to_owned(), Common::Class)];
        let names = Names { ts: Common::Ts.name().to_owned(), of_class };
        Self { files, class: None, asked: asked.to_vec(), schema, names }
    }

    /// Those of one class; `None` when no file has any.
    ///
    /// # Errors
    /// [`Error::Differs`] when files have a column of it with different types.
    fn of_class(files: Arc<Files>, name: &str) -> std::result::Result<Option<Self>, Error> {
        let mut known: Vec<(String, Kind)> = Vec::new();
        let mut ts = String::new();
        let classes = files.0.iter().flat_map(|file| &file.registry.classes);
        for class in classes.filter(|class| class.name == name) {
            for column in &class.columns {
                if column.slot == Common::Ts.name() {
                    ts.clone_from(&column.name);
                }
                match known.iter().find(|(known, _)| *known == column.name) {
                    None => known.push((column.name.clone(), column.kind)),
                    Some((_, kind)) if *kind == column.kind => {}
                    Some(_) => {
                        let (class, column) = (name.to_owned(), column.name.clone());
                        return Err(Error::Differs { class, column });
                    }
                }
            }
        }
        if known.is_empty() {
            return Ok(None);
        }
        let field = |(name, kind): &(String, Kind)| {
            datafusion::arrow::datatypes::Field::new(name, kind.data_type(), true)
        };
        let fields: Vec<_> = known.iter().map(field).collect();
        let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(fields));
        let asked = known.into_iter().map(|(name, kind)| Asked::Column(name, kind)).collect();
        let names = Names { ts, of_class: Vec::new() };
        Ok(Some(Self { files, class: Some(name.to_owned()), asked, schema, names }))
    }

    /// The classes for which conditions hold that are about nothing else.
    fn classes(&self, state: &dyn Session, conditions: &[Expr]) -> Result<Option<Vec<String>>> {
        if let Some(only) = &self.class {
            return Ok(Some(vec![only.clone()]));
        }
        if conditions.is_empty() {
            return Ok(None);
        }
        let mut names: Vec<&str> = self
            .files
            .0
            .iter()
            .flat_map(|file| &file.registry.classes)
            .map(|class| class.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let schema = rows::schema([(Common::Class.name(), Type::Text)]);
        let known = DFSchema::try_from(Arc::clone(&schema))?;
        let column = names.iter().map(|name| Some(*name)).collect::<StringViewArray>();
        let batch = RecordBatch::try_new(schema, vec![Arc::new(column)])?;
        let mut remaining = vec![true; names.len()];
        for condition in conditions {
            let condition = state.create_physical_expr(condition.clone(), &known)?;
            let answer = condition.evaluate(&batch)?.into_array(names.len())?;
            let answer: &BooleanArray = answer.as_boolean();
            for (remains, holds) in remaining.iter_mut().zip(answer) {
                *remains &= holds == Some(true);
            }
        }
        let wanted = names.iter().zip(remaining).filter(|(_, remains)| *remains);
        Ok(Some(wanted.map(|(name, _)| (*name).to_owned()).collect()))
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
        let all: Vec<usize> = (0..self.asked.len()).collect();
        let projection = projection.unwrap_or(&all);
        let schema = Arc::new(self.schema.project(projection)?);
        let Split { times, of_class } = self.names.split(filters);
        let question = Question {
            files: Arc::clone(&self.files),
            asked: projection.iter().filter_map(|at| self.asked.get(*at).cloned()).collect(),
            schema: Arc::clone(&schema),
            classes: self.classes(state, &of_class)?,
            times,
            partitions: state.config().target_partitions(),
        };
        Ok(Arc::new(FindExec::new(Arc::new(question), schema, limit)))
    }
}

/// Finds tables by name.
#[derive(Debug)]
struct Tables {
    files: Arc<Files>,
    /// Whether classes alone are found.
    only_classes: bool,
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let classes = self.files.0.iter().flat_map(|file| &file.registry.classes);
        let mut names: Vec<String> = classes.map(|class| class.name.clone()).collect();
        if !self.only_classes {
            names.push(EVENTS.to_owned());
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let failed = |error| DataFusionError::External(Box::new(error));
        if name == EVENTS && !self.only_classes {
            return Ok(Some(Arc::new(Events::all(Arc::clone(&self.files)))));
        }
        let table = Events::of_class(Arc::clone(&self.files), name).map_err(failed)?;
        match table {
            Some(table) => Ok(Some(Arc::new(table))),
            None if items::Name::of(name).is_some() => {
                Err(failed(Error::NoItems { table: name.to_owned() }))
            }
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

/// The schemas, as those of recordings.
#[derive(Debug)]
pub(crate) struct Catalog(Arc<Files>);

impl Catalog {
    pub(crate) const fn new(files: Arc<Files>) -> Self {
        Self(files)
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), EVENTS.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let tables = |only_classes| -> Arc<dyn SchemaProvider> {
            Arc::new(Tables { files: Arc::clone(&self.0), only_classes })
        };
        match name {
            PUBLIC => Some(tables(false)),
            EVENTS => Some(tables(true)),
            _ => None,
        }
    }
}
