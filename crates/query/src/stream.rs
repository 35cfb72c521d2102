//! The operator that gives rows as somebody finds them.

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
pub(crate) trait Find: fmt::Debug + Send + Sync {
    /// Finds the rows of a partition until the sink has enough.
    fn find(&self, partition: usize, sink: &mut Sink) -> std::result::Result<(), Error>;

    /// In how many partitions rows are found side by side.
    fn partitions(&self) -> usize {
        1
    }

    /// What is read, for `EXPLAIN`.
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Takes rows, and hands them over batch by batch.
pub(crate) struct Sink {
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
    pub(crate) fn push<'v>(
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

    pub(crate) fn wants_more(&self) -> ControlFlow<()> {
        if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Takes rows that are a batch already; breaks when no more are wanted.
    pub(crate) fn batch(&mut self, batch: &RecordBatch) -> ControlFlow<()> {
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        self.left -= batch.num_rows();
        if batch.num_rows() > 0 {
            self.give(batch);
        }
        self.wants_more()
    }

    /// How many rows a batch should have.
    pub(crate) const fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    fn give(&mut self, batch: RecordBatch) {
        self.output_rows.add(batch.num_rows());
        if self.out.blocking_send(Ok(batch)).is_err() {
            self.left = 0;
        }
    }

    fn send(&mut self) {
        match self.rows.take_batch() {
            Ok(batch) => self.give(batch),
            Err(error) => {
                self.left = 0;
                self.failed = Some(error.into());
            }
        }
    }
}

/// Gives the rows that somebody finds.
#[derive(Debug)]
pub(crate) struct FindExec {
    find: Arc<dyn Find>,
    limit: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FindExec {
    pub(crate) fn new(find: Arc<dyn Find>, schema: SchemaRef, limit: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(find.partitions()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Self { find, limit, schema, properties: Arc::new(properties), metrics }
    }
}

impl DisplayAs for FindExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "FindExec: columns=[{}]", columns.join(", "))?;
        self.find.explain(f)?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for FindExec {
    fn name(&self) -> &'static str {
        "FindExec"
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
            find.find(partition, &mut sink)
                .map_err(|error| DataFusionError::External(Box::new(error)))?;
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
