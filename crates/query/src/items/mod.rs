//! Tables of what analyses find: spans one by one, threads, files, periods.
//!
//! They are read by the interpreter that the analyses use, from the first event of a recording on, piece by piece. Names
//! become known late, so that columns with names make it read everything once before the rows; that is done once for a
//! [`Database`](crate::Database).
//!
//! Conditions on kinds are answered here, exactly. Those on the end, on threads, names of processes, CPUs and durations say
//! what need not be logged; as what has no thread, CPU or duration stays in, the engine answers them again.

mod columns;
mod spans;
mod totals;
mod wanted;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use mapper::{Analysis, Options, PeriodRules};
use stitch::Summary;

use crate::error::Error;
use crate::source::{Lost, Recordings};
use crate::stream::{Find, FindExec};
use columns::Column;
use spans::SpansOf;
use totals::{Periods, Totals};
use wanted::{Kind, Wanted};

/// The names of item tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Syscalls,
    Spans,
    Sched,
    Threads,
    Files,
    Phases,
}

impl Name {
    pub(crate) const ALL: [Self; 6] =
        [Self::Syscalls, Self::Spans, Self::Sched, Self::Threads, Self::Files, Self::Phases];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Syscalls => "syscalls",
            Self::Spans => "spans",
            Self::Sched => "sched",
            Self::Threads => "threads",
            Self::Files => "files",
            Self::Phases => "phases",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }
}

/// What items are read from.
#[derive(Debug)]
pub(crate) struct Items {
    paths: Vec<PathBuf>,
    options: Options,
    periods: Option<PeriodRules>,
    /// Everything, read once.
    all: Mutex<Option<Arc<Summary>>>,
    recordings: Arc<Recordings>,
}

impl Items {
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        options: Options,
        periods: Option<PeriodRules>,
        recordings: Arc<Recordings>,
    ) -> Self {
        Self { paths, options, periods, all: Mutex::default(), recordings }
    }

    /// The summary of everything.
    fn all(&self) -> std::result::Result<Arc<Summary>, Error> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = &*all {
            return Ok(Arc::clone(all));
        }
        let analysis = mapper::analyse(&self.paths, &self.options)?;
        self.note(&analysis);
        Ok(Arc::clone(all.insert(Arc::new(analysis.summary))))
    }

    fn note(&self, analysis: &Analysis) {
        let loss = stitch::loss(&analysis.summary);
        let lost = Lost { event_records: loss.events_discarded, packets: loss.packets_lost };
        self.recordings.note_all(lost, &analysis.findings, analysis.more_findings);
    }
}

/// One item table.
#[derive(Debug)]
pub(crate) struct Table {
    items: Arc<Items>,
    name: Name,
    schema: SchemaRef,
}

impl Table {
    pub(crate) fn new(items: Arc<Items>, name: Name) -> Self {
        let columns = |columns: &[Column]| {
            crate::rows::schema(columns.iter().map(|column| (column.name(), column.of())))
        };
        let schema = match name {
            Name::Syscalls => columns(Column::OF_SYSCALLS),
            Name::Spans => columns(Column::OF_SPANS),
            Name::Sched => columns(Column::OF_SCHED),
            Name::Threads => crate::rows::schema(totals::THREADS.iter().copied()),
            Name::Files => crate::rows::schema(totals::FILES.iter().copied()),
            Name::Phases => crate::rows::schema(totals::PERIODS.iter().copied()),
        };
        Self { items, name, schema }
    }

    /// The kinds that rows of it may be of.
    fn kinds(&self) -> &'static [Kind] {
        match self.name {
            Name::Syscalls => Kind::OF_SYSCALLS,
            Name::Sched => Kind::OF_SCHED,
            Name::Spans => Kind::OF_SPANS,
            Name::Phases => Kind::OF_PHASES,
            Name::Threads | Name::Files => &[],
        }
    }

    fn columns(&self, projection: &[usize]) -> Vec<Column> {
        let all = match self.name {
            Name::Syscalls => Column::OF_SYSCALLS,
            Name::Sched => Column::OF_SCHED,
            _ => Column::OF_SPANS,
        };
        projection.iter().filter_map(|at| all.get(*at).copied()).collect()
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
        let by_whom = |filter: &&Expr| wanted::pushdown(self.kinds(), filter);
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
        let items = Arc::clone(&self.items);
        let wanted = Wanted::new(self.kinds(), state, filters)?;
        let find: Arc<dyn Find> = match self.name {
            Name::Syscalls | Name::Spans | Name::Sched => {
                Arc::new(SpansOf { items, wanted, columns: self.columns(projection) })
            }
            Name::Threads | Name::Files => {
                Arc::new(Totals { items, name: self.name, projection: projection.clone() })
            }
            Name::Phases => Arc::new(Periods { items, wanted, projection: projection.clone() }),
        };
        Ok(Arc::new(FindExec::new(find, schema, limit)))
    }
}
