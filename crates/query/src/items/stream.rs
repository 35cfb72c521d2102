//! The operator that gives the rows of an item table, in one partition, as they are found.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use tokio::sync::mpsc::Sender;

use crate::error::Error;
use crate::rows::{Rows, Value};

/// How many batches may wait for who takes them.
const AHEAD: usize = 2;

/// Where rows come from.
pub(super) trait Find: fmt::Debug + Send + Sync {
    /// Finds rows until the sink has enough.
    fn find(&self, sink: &mut Sink) -> std::result::Result<(), Error>;

    /// What is read, for `EXPLAIN`.
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Takes rows, and hands them over batch by batch.
pub(super) struct Sink {
    rows: Rows,
    batch_rows: usize,
    /// How many more rows are wanted.
    left: usize,
    out: Sender<Result<RecordBatch>>,
    output_rows: Count,
    failed: Option<DataFusionError>,
}

impl Sink {
    /// Takes a row; breaks when no more are wanted.
    pub(super) fn push<'v>(
        &mut self,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> ControlFlow<()> {
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        self.left -= 1;
        self.rows.push(values);
        if self.rows.len() >= self.batch_rows || self.left == 0 {
            self.send();
        }
        self.wants_more()
    }

    pub(super) fn wants_more(&self) -> ControlFlow<()> {
        if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn send(&mut self) {
        self.output_rows.add(self.rows.len());
        match self.rows.take_batch() {
            Ok(batch) => {
                if self.out.blocking_send(Ok(batch)).is_err() {
                    self.left = 0;
                }
            }
            Err(error) => {
                self.left = 0;
                self.failed = Some(error.into());
            }
        }
    }
}

/// Gives the rows that somebody finds.
#[derive(Debug)]
pub(super) struct ItemsExec {
    find: Arc<dyn Find>,
    limit: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ItemsExec {
    pub(super) fn new(find: Arc<dyn Find>, schema: SchemaRef, limit: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Self { find, limit, schema, properties: Arc::new(properties), metrics }
    }
}

impl DisplayAs for ItemsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "ItemsExec: columns=[{}]", columns.join(", "))?;
        self.find.explain(f)?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ItemsExec {
    fn name(&self) -> &'static str {
        "ItemsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), AHEAD);
        let mut sink = Sink {
            rows: Rows::new(Arc::clone(&self.schema)),
            batch_rows: context.session_config().batch_size(),
            left: self.limit.unwrap_or(usize::MAX),
            out: builder.tx(),
            output_rows: MetricBuilder::new(&self.metrics).output_rows(partition),
            failed: None,
        };
        let find = Arc::clone(&self.find);
        builder.spawn_blocking(move || {
            find.find(&mut sink).map_err(|error| DataFusionError::External(Box::new(error)))?;
            if sink.rows.len() > 0 {
                sink.send();
            }
            sink.failed.map_or(Ok(()), Err)
        });
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
