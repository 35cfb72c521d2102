//! Steps as a leaf of a plan.
//!
//! ```text
//! DistributedExec
//!   CoalescePartitionsExec
//!     NetworkCoalesceExec                     here; what is below runs on workers
//!       DistributedLeafExec: StepsExec, …     one for each task
//! ```
//!
//! The leaf is whole where it is planned, and a task where it is sent; only a worker, which decodes it, can execute it. So nothing
//! is ever done twice because a plan was not cut, or done here because it was not sent.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use blocks::{Report, Step, Task, Work};
use datafusion::arrow::array::{AsArray, BinaryArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err, internal_err, plan_err};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedLeafExec,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse,
};

use crate::split::shares;
use crate::worker::Accepted;

/// What a step weighs besides the bytes that it reads.
const STEP_WEIGHT: u64 = 64 << 10;

/// A job's steps, as a table of reports.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) work: Arc<Work>,
    pub(crate) steps: Vec<Step>,
    /// Into how many tasks they are cut: at least two, because a plan of one task is not sent anywhere.
    pub(crate) tasks: usize,
}

#[async_trait]
impl TableProvider for Steps {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (work, steps) = (Arc::clone(&self.work), self.steps.clone());
        Ok(Arc::new(StepsExec::new(Form::Whole { work, steps, tasks: self.tasks }, self.tasks)))
    }
}

/// A row for each report, in its bytes.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("report", DataType::Binary, false)]))
}

/// A report as a row.
pub(crate) fn row(report: &Report) -> Result<RecordBatch> {
    let bytes = report.encode().map_err(external)?;
    let column = BinaryArray::from_iter_values([bytes]);
    Ok(RecordBatch::try_new(schema(), vec![Arc::new(column)])?)
}

/// The reports of rows.
pub(crate) fn reports(rows: &RecordBatch) -> Result<Vec<Report>> {
    let column = rows.columns().first().and_then(|column| column.as_binary_opt::<i32>());
    let Some(column) = column else { return internal_err!("rows that are no reports") };
    column.iter().flatten().map(|bytes| Report::decode(bytes).map_err(external)).collect()
}

pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The leaf.
#[derive(Debug)]
pub(crate) struct StepsExec {
    pub(crate) form: Form,
    properties: Arc<PlanProperties>,
}

#[derive(Debug)]
pub(crate) enum Form {
    /// All steps, not yet cut.
    Whole { work: Arc<Work>, steps: Vec<Step>, tasks: usize },
    /// To be sent.
    Task(Box<Task>),
    /// At a worker.
    Accepted(Arc<Accepted>),
}

impl StepsExec {
    pub(crate) fn new(form: Form, partitions: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        // Its rows come through a channel of tokio: nothing has to be put above it that gives way to others.
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { form, properties: Arc::new(properties) }
    }
}

impl DisplayAs for StepsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Whole { steps, .. } => write!(f, "StepsExec: {} steps", steps.len()),
            Form::Task(task) => write!(f, "StepsExec: {} steps", task.steps().len()),
            Form::Accepted(_) => write!(f, "StepsExec: a task"),
        }
    }
}

impl ExecutionPlan for StepsExec {
    fn name(&self) -> &'static str {
        "StepsExec"
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

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match &self.form {
            Form::Accepted(accepted) if partition == 0 => accepted.reports(),
            _ => exec_err!("steps are done by workers, each a task of one partition"),
        }
    }
}

/// Into how many tasks the leaf is to be cut.
pub(crate) fn desired_tasks(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    let Form::Whole { tasks, .. } = &event.plan.downcast_ref::<StepsExec>()?.form else {
        return None;
    };
    Some(Ok(DesiredTaskCountEventResponse::desired(*tasks)))
}

/// Cuts the leaf: each step is in one task, neighbours go together, and tasks read about as many bytes.
pub(crate) fn cut(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let Form::Whole { work, steps, tasks } = &event.plan.downcast_ref::<StepsExec>()?.form else {
        return None;
    };
    if event.task_count != *tasks {
        return Some(plan_err!(
            "{} tasks were wanted, and {} are planned",
            tasks,
            event.task_count
        ));
    }
    let weights: Vec<u64> = steps.iter().map(|step| weight(work, step)).collect();
    let task = |share: std::ops::Range<usize>| {
        let steps = steps.get(share).unwrap_or_default().to_vec();
        let form = Form::Task(Box::new(Task::new(work, steps)));
        Arc::new(StepsExec::new(form, 1)) as Arc<dyn ExecutionPlan>
    };
    let tasks = shares(&weights, event.task_count).into_iter().map(task);
    let cut = DistributedLeafExec::try_new(Arc::clone(event.plan), tasks);
    Some(cut.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

fn weight(work: &Work, step: &Step) -> u64 {
    let numbers = match step {
        Step::Map { part, .. } => work.parts.get(*part).map(|part| part.pieces.as_slice()),
        Step::Load { .. } => None,
    };
    let pieces = numbers.unwrap_or_default().iter().filter_map(|piece| work.pieces.get(*piece));
    pieces.map(|piece| piece.bytes).fold(STEP_WEIGHT, u64::saturating_add)
}

/// A worker executes this leaf and nothing else: a plan can also say to read any file, or to write one.
pub(crate) fn only_steps(
    event: WorkerPlanRewriteEvent<'_>,
) -> Result<WorkerPlanRewriteEventResponse> {
    match event.plan.downcast_ref::<StepsExec>().map(|plan| &plan.form) {
        Some(Form::Accepted(_)) => Ok(WorkerPlanRewriteEventResponse::new(event.plan)),
        _ => exec_err!("a worker does steps of jobs and no other plan: {}", event.plan.name()),
    }
}
