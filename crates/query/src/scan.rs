//! The operator that reads event records.
//!
//! Streams are divided among the partitions by their lengths and read one after the other; rows come in the order of
//! each stream. A partition decodes on a thread of its own and is at most [`AHEAD`] batches ahead of who takes them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ctf::TraceClass;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
};
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
use tracedir::{Event, Item};

use crate::build::{Getters, Origin, Rows};
use crate::columns::{Column, Common};
use crate::filter::Times;
use crate::source::{Lost, Recordings};

/// How many batches a partition may be ahead.
const AHEAD: usize = 2;

/// What is asked of event records.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) columns: Vec<Column>,
    /// The only class, for the table of one.
    pub(crate) class: Option<String>,
    pub(crate) times: Times,
    pub(crate) by_class: ByClass,
    /// How many rows are enough.
    pub(crate) limit: Option<usize>,
}

/// Conditions on what all event records of one class of one stream have in common, over these columns.
#[derive(Debug, Default)]
pub(crate) struct ByClass {
    pub(crate) columns: Vec<(String, Common)>,
    pub(crate) schema: Option<SchemaRef>,
    pub(crate) conditions: Vec<Arc<dyn PhysicalExpr>>,
}

impl ByClass {
    /// Of the classes of a trace, by position, which remain.
    fn remaining(
        &self,
        question: &Question,
        trace: &TraceClass,
        origin: &Origin,
    ) -> Result<Vec<bool>> {
        let classes = trace.event_record_classes();
        let named = |name: &str| question.class.as_deref().is_none_or(|only| only == name);
        let mut remaining: Vec<bool> = classes.iter().map(|class| named(class.name())).collect();
        let Some(schema) = &self.schema else { return Ok(remaining) };
        let arrays = self.columns.iter().map(|(_, common)| constant(*common, trace, origin));
        let options = RecordBatchOptions::new().with_row_count(Some(classes.len()));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(schema), arrays.collect(), &options)?;
        for condition in &self.conditions {
            let answer = condition.evaluate(&batch)?.into_array(classes.len())?;
            let answer: &BooleanArray = answer.as_boolean();
            for (remains, holds) in remaining.iter_mut().zip(answer) {
                *remains &= holds == Some(true);
            }
        }
        Ok(remaining)
    }
}

/// The values of a column for each class of a trace.
fn constant(common: Common, trace: &TraceClass, origin: &Origin) -> ArrayRef {
    let classes = trace.event_record_classes();
    let same = |text: &Option<String>| -> ArrayRef {
        Arc::new(classes.iter().map(|_| text.as_deref()).collect::<StringViewArray>())
    };
    match common {
        Common::Host => same(&origin.host),
        Common::Session => same(&origin.session),
        Common::Domain => same(&origin.domain),
        Common::Class => {
            Arc::new(classes.iter().map(|class| Some(class.name())).collect::<StringViewArray>())
        }
        _ => Arc::new(classes.iter().map(|_| Some(origin.stream)).collect::<Int64Array>()),
    }
}

/// Reads event records.
#[derive(Debug)]
pub(crate) struct ScanExec {
    recordings: Arc<Recordings>,
    question: Arc<Question>,
    /// Positions of streams.
    partitions: Vec<Vec<usize>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    /// In at most `partitions` partitions.
    pub(crate) fn new(
        recordings: Arc<Recordings>,
        question: Question,
        schema: SchemaRef,
        partitions: usize,
    ) -> Self {
        let partitions = divide(&recordings, partitions);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            recordings,
            question: Arc::new(question),
            partitions,
            schema,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Divides streams: the longest first, each to who has least.
fn divide(recordings: &Recordings, partitions: usize) -> Vec<Vec<usize>> {
    let streams = recordings.recording.streams();
    let bytes = |stream: &tracedir::Stream| stream.files().map(|file| file.len).sum::<u64>();
    let mut lengths: Vec<(u64, usize)> =
        streams.iter().enumerate().map(|(at, stream)| (bytes(stream), at)).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let mut parts = vec![(0, Vec::new()); partitions.clamp(1, lengths.len().max(1))];
    for (bytes, at) in lengths {
        if let Some((sum, part)) = parts.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum += bytes;
            part.push(at);
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { columns, class, times, by_class, limit } = &*self.question;
        let columns: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        write!(
            f,
            "ScanExec: streams={}, columns=[{}]",
            self.partitions.iter().map(Vec::len).sum::<usize>(),
            columns.join(", ")
        )?;
        if let Some(class) = class {
            write!(f, ", class={class}")?;
        }
        if times.is_asked() {
            let range = times.range();
            write!(f, ", ts=[{}, {})", range.begin.nanos(), range.end.nanos())?;
        }
        if !by_class.conditions.is_empty() {
            let shown: Vec<String> = by_class.conditions.iter().map(ToString::to_string).collect();
            write!(f, ", by_class=[{}]", shown.join(" AND "))?;
        }
        match limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut recursion = TreeNodeRecursion::Continue;
        for condition in &self.question.by_class.conditions {
            recursion = f(condition)?;
            if matches!(recursion, TreeNodeRecursion::Stop) {
                break;
            }
        }
        Ok(recursion)
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
        let streams = self.partitions.get(partition).cloned().unwrap_or_default();
        let batch_rows = context.session_config().batch_size();
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), AHEAD);
        let reading = Reading {
            recordings: Arc::clone(&self.recordings),
            question: Arc::clone(&self.question),
            rows: Rows::new(Arc::clone(&self.schema), &self.question.columns),
            batch_rows,
            counts: Counts::new(&self.metrics, partition),
            out: builder.tx(),
            left: self.question.limit.unwrap_or(usize::MAX),
        };
        builder.spawn_blocking(move || reading.run(&streams));
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What a scan did, for `EXPLAIN ANALYZE`.
struct Counts {
    output_rows: Count,
    /// Packets that were entered.
    packets: Count,
    /// Their bytes.
    bytes: Count,
    /// Event records that were gone over.
    passed: Count,
    /// Those of which fields were decoded.
    decoded: Count,
}

impl Counts {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            output_rows: MetricBuilder::new(metrics).output_rows(partition),
            packets: counter("packets_read"),
            bytes: counter("bytes_read"),
            passed: counter("records_passed"),
            decoded: counter("records_decoded"),
        }
    }
}

/// One partition being read.
struct Reading {
    recordings: Arc<Recordings>,
    question: Arc<Question>,
    rows: Rows,
    batch_rows: usize,
    counts: Counts,
    out: Sender<Result<RecordBatch>>,
    /// How many more rows are wanted.
    left: usize,
}

/// Nobody takes rows any more, or there are enough.
struct Enough;

/// By position of the class, where the columns' values are; nothing for classes that are left out.
type OfTrace = Vec<Option<Getters>>;

impl Reading {
    fn run(mut self, streams: &[usize]) -> Result<()> {
        for stream in streams {
            if self.question.times.is_empty() || self.left == 0 {
                break;
            }
            if self.stream(*stream)?.is_err() {
                return Ok(());
            }
        }
        if self.rows.len() > 0 {
            // When nobody takes it, there is nobody to tell.
            drop(self.send()?);
        }
        Ok(())
    }

    fn stream(&mut self, stream: usize) -> Result<std::result::Result<(), Enough>> {
        let recordings = Arc::clone(&self.recordings);
        let recording = &recordings.recording;
        let mut classes: HashMap<*const TraceClass, (Arc<TraceClass>, OfTrace)> = HashMap::new();
        let mut any = false;
        for trace in recording.streams().get(stream).into_iter().flat_map(|s| s.trace_classes()) {
            let of_trace = self.of_trace(trace, stream)?;
            any |= of_trace.iter().any(Option::is_some);
            classes.insert(Arc::as_ptr(trace), (Arc::clone(trace), of_trace));
        }
        let Some(mut merged) = recording.stream_merged(stream, self.question.times.range()) else {
            return Ok(Ok(()));
        };
        if !any {
            return Ok(Ok(()));
        }
        let (mut lost, mut packet, mut passed) = (Lost::default(), u64::MAX, 0);
        let mut ended = Ok(());
        // The class of the last event record's trace: nearly always that of the next one's.
        let mut last: Option<(&Arc<TraceClass>, &OfTrace)> = None;
        let none = Vec::new();
        while let Some(item) = merged.next_item() {
            let event = match &item {
                Item::Event(event) => event,
                Item::Loss(loss) => {
                    lost.add(loss);
                    continue;
                }
            };
            passed += 1;
            if event.packet_index != packet {
                packet = event.packet_index;
                self.entered(event);
            }
            let known = last.filter(|(class, _)| Arc::ptr_eq(class, event.trace_class()));
            let of_trace = match known {
                Some((_, of_trace)) => of_trace,
                None => {
                    let found = classes.get(&Arc::as_ptr(event.trace_class()));
                    last = found.map(|(class, of_trace)| (class, of_trace));
                    found.map_or(&none, |(_, of_trace)| of_trace)
                }
            };
            if !self.take(event, of_trace) {
                continue;
            }
            if self.rows.len() >= self.batch_rows || self.left == 0 {
                ended = self.send()?;
            }
            if ended.is_err() {
                break;
            }
        }
        self.counts.passed.add(passed);
        self.counts.packets.add(usize::try_from(merged.packets()).unwrap_or(usize::MAX));
        recordings.note(stream, lost, merged.findings());
        Ok(ended)
    }

    fn of_trace(&mut self, trace: &Arc<TraceClass>, stream: usize) -> Result<OfTrace> {
        let origin = Origin::new(trace, stream);
        let question = Arc::clone(&self.question);
        let remaining = question.by_class.remaining(&question, trace, &origin)?;
        let class_of_stream =
            self.recordings.recording.streams().get(stream).map(|stream| stream.key().class_id);
        let classes = trace.event_record_classes().iter().zip(remaining);
        Ok(classes
            .map(|(class, remains)| {
                let here = Some(class.stream_class_id()) == class_of_stream;
                (remains && here).then(|| self.rows.getters(trace, class, &origin))
            })
            .collect())
    }

    fn entered(&self, event: &Event<'_>) {
        let bytes = event.record.packet().total_bytes().unwrap_or(0);
        self.recordings.progress.add(bytes);
        self.counts.bytes.add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Adds an event record that is wanted.
    fn take(&mut self, event: &Event<'_>, of_trace: &OfTrace) -> bool {
        let class = usize::try_from(event.record.class().index()).ok();
        let getters = class.and_then(|class| of_trace.get(class)).and_then(Option::as_ref);
        let Some(getters) = getters else { return false };
        if !self.question.times.take(event.record.timestamp_ns()) {
            return false;
        }
        self.rows.push(&event.record, getters);
        self.counts.decoded.add(1);
        self.left -= 1;
        true
    }

    /// Hands over the rows so far.
    fn send(&mut self) -> Result<std::result::Result<(), Enough>> {
        self.counts.output_rows.add(self.rows.len());
        let batch = self.rows.take_batch().map_err(DataFusionError::from)?;
        let sent = self.out.blocking_send(Ok(batch)).is_ok() && self.left > 0;
        Ok(if sent { Ok(()) } else { Err(Enough) })
    }
}
