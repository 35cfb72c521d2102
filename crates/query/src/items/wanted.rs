//! What conditions leave of a log.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringViewArray};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use model::{CpuId, Tid, TimeRange, Timestamp};
use stitch::spans::SpanKind;
use stitch::{Between, Logged, Selection};

use super::columns;
use crate::columns::Common;
use crate::filter::{Names, nanos, range};
use crate::rows::{Type, schema};

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Span(SpanKind),
    /// A period that somebody defines.
    Period,
}

impl Kind {
    pub(super) const OF_SYSCALLS: &[Self] = &[Self::Span(SpanKind::Syscall)];
    pub(super) const OF_PHASES: &[Self] = &[Self::Period];
    pub(super) const OF_SCHED: &[Self] = &[
        Self::Span(SpanKind::Running),
        Self::Span(SpanKind::Waiting),
        Self::Span(SpanKind::Blocked),
    ];
    pub(super) const OF_SPANS: &[Self] = &[
        Self::Span(SpanKind::Syscall),
        Self::Span(SpanKind::Running),
        Self::Span(SpanKind::Waiting),
        Self::Span(SpanKind::Blocked),
        Self::Span(SpanKind::Irq),
        Self::Span(SpanKind::Softirq),
        Self::Span(SpanKind::Disk),
        Self::Period,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Span(kind) => kind.word(),
            Self::Period => "period",
        }
    }
}

/// What is asked of spans.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) kinds: Vec<Kind>,
    /// When they end, if they do.
    end: Option<RangeInclusive<i64>>,
    tids: Option<Vec<Tid>>,
    comms: Option<Vec<String>>,
    cpus: Option<Vec<CpuId>>,
    pub(super) ns: Between,
}

/// A condition that says what need not be logged.
enum Condition {
    Kinds,
    End(RangeInclusive<i64>),
    Duration(RangeInclusive<i64>),
    Tids(Vec<Tid>),
    Comms(Vec<String>),
    Cpus(Vec<CpuId>),
}

/// Who answers a condition about rows that may be of these kinds.
pub(super) fn pushdown(kinds: &[Kind], condition: &Expr) -> TableProviderFilterPushDown {
    match of(kinds, condition) {
        Some(Condition::Kinds) => TableProviderFilterPushDown::Exact,
        Some(_) => TableProviderFilterPushDown::Inexact,
        None => TableProviderFilterPushDown::Unsupported,
    }
}

fn of(kinds: &[Kind], condition: &Expr) -> Option<Condition> {
    const LAST: i64 = i64::MAX;
    if kinds.is_empty() {
        return None;
    }
    if by_kind().is_of_class(condition) {
        return Some(Condition::Kinds);
    }
    if let Some(end) = range(condition, "end", nanos) {
        return Some(Condition::End(end));
    }
    // What begins after a time ends after it.
    if let Some(begin) = range(condition, "begin", nanos).filter(|begin| *begin.start() > i64::MIN)
    {
        return Some(Condition::End(*begin.start()..=LAST));
    }
    if let Some(ns) = range(condition, "duration", integer) {
        return Some(Condition::Duration(ns));
    }
    let int = |constant: &Expr| i32::try_from(integer(constant)?).ok();
    if let Some(tids) = constants(condition, "tid", int) {
        return Some(Condition::Tids(tids.into_iter().map(Tid::new).collect()));
    }
    let cpu = |constant: &Expr| u32::try_from(integer(constant)?).ok();
    if let Some(cpus) = constants(condition, "cpu", cpu) {
        return Some(Condition::Cpus(cpus.into_iter().map(CpuId::new).collect()));
    }
    constants(condition, "comm", text).map(Condition::Comms)
}

/// `kind`, in `sched` called `state`.
fn by_kind() -> Names {
    let of_class = ["kind", "state"].map(|name| (name.to_owned(), Common::Class)).to_vec();
    Names { ts: String::new(), of_class }
}

impl Wanted {
    /// Of rows that may be of these kinds, those for which all of these hold.
    pub(super) fn new(kinds: &[Kind], state: &dyn Session, conditions: &[Expr]) -> Result<Self> {
        let mut wanted = Self {
            kinds: kinds.to_vec(),
            end: None,
            tids: None,
            comms: None,
            cpus: None,
            ns: Between::default(),
        };
        for condition in conditions {
            match of(kinds, condition) {
                None => {}
                Some(Condition::Kinds) => wanted.keep_kinds(state, condition)?,
                Some(Condition::End(end)) => {
                    let all = i64::MIN..=i64::MAX;
                    let known = wanted.end.take().unwrap_or(all);
                    wanted.end =
                        Some(*known.start().max(end.start())..=*known.end().min(end.end()));
                }
                Some(Condition::Duration(ns)) => {
                    let least = u64::try_from(*ns.start()).unwrap_or(0);
                    // Nothing takes less than no time: then the engine leaves nothing.
                    let greatest = u64::try_from(*ns.end()).unwrap_or(0);
                    wanted.ns.least = wanted.ns.least.max(least);
                    wanted.ns.greatest = wanted.ns.greatest.min(greatest);
                }
                Some(Condition::Tids(tids)) => keep(&mut wanted.tids, tids),
                Some(Condition::Comms(comms)) => keep(&mut wanted.comms, comms),
                Some(Condition::Cpus(cpus)) => keep(&mut wanted.cpus, cpus),
            }
        }
        Ok(wanted)
    }

    fn keep_kinds(&mut self, state: &dyn Session, condition: &Expr) -> Result<()> {
        let schema = schema([("kind", Type::Text), ("state", Type::Text)]);
        let words = self.kinds.iter().map(|kind| Some(kind.word()));
        let words: ArrayRef = Arc::new(words.collect::<StringViewArray>());
        let known = DFSchema::try_from(Arc::clone(&schema))?;
        let condition = state.create_physical_expr(condition.clone(), &known)?;
        let batch = RecordBatch::try_new(schema, vec![Arc::clone(&words), words])?;
        let answer = condition.evaluate(&batch)?.into_array(self.kinds.len())?;
        let answer: &BooleanArray = answer.as_boolean();
        let mut holds = answer.iter().map(|holds| holds == Some(true));
        self.kinds.retain(|_| holds.next().unwrap_or(false));
        Ok(())
    }

    /// The logs that have these kinds.
    pub(super) fn logs(&self) -> Vec<Logged> {
        let mut logs: Vec<Logged> = Vec::new();
        for kind in &self.kinds {
            if let Kind::Span(kind) = kind {
                let log = columns::log(*kind);
                if !logs.contains(&log) {
                    logs.push(log);
                }
            }
        }
        logs
    }

    /// The range of time to be read, for what counts whole where it ends in it. Time that a thread had a CPU for is cut at
    /// the begin of a range, so where that is asked for all is read from the begin on.
    pub(super) fn range(&self, is_cut_at_begin: bool) -> TimeRange {
        let Some(end) = &self.end else { return TimeRange::ALL };
        let begin = if is_cut_at_begin { i64::MIN } else { *end.start() };
        let end = end.end().saturating_add(1).max(begin);
        TimeRange { begin: Timestamp::from_nanos(begin), end: Timestamp::from_nanos(end) }
    }

    /// Whether spans without an end can be among them.
    pub(super) fn may_be_open(&self) -> bool {
        self.end.as_ref().is_none_or(|end| *end.end() == i64::MAX)
    }

    /// Names of processes that are asked for.
    pub(super) fn comms(&self) -> Option<&[String]> {
        self.comms.as_deref()
    }

    /// What must be logged, where the threads of these names are those.
    pub(super) fn selection(&self, named: Option<Vec<Tid>>) -> Selection {
        let mut tids = self.tids.clone();
        if let Some(named) = named {
            keep(&mut tids, named);
        }
        Selection {
            cpus: self.cpus.clone(),
            tids,
            ns: self.ns,
            logs: self.logs(),
            ..Selection::default()
        }
    }

    pub(super) fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.word()).collect();
        write!(f, ", kinds=[{}]", kinds.join(", "))?;
        if let Some(end) = &self.end {
            write!(f, ", end=[{}, {}]", end.start(), end.end())?;
        }
        if self.ns != Between::default() {
            write!(f, ", duration=[{}, {}]", self.ns.least, self.ns.greatest)?;
        }
        if let Some(tids) = &self.tids {
            write!(f, ", tids={:?}", tids.iter().map(|tid| tid.get()).collect::<Vec<_>>())?;
        }
        if let Some(comms) = &self.comms {
            write!(f, ", comms={comms:?}")?;
        }
        if let Some(cpus) = &self.cpus {
            write!(f, ", cpus={:?}", cpus.iter().map(|cpu| cpu.get()).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

/// Only what is in both lists.
fn keep<T: PartialEq>(known: &mut Option<Vec<T>>, more: Vec<T>) {
    match known {
        None => *known = Some(more),
        Some(known) => known.retain(|value| more.contains(value)),
    }
}

/// The constants one of which a column is said to be, by `=`, `in` and `or`.
fn constants<T>(
    condition: &Expr,
    column: &str,
    constant: impl Fn(&Expr) -> Option<T> + Copy,
) -> Option<Vec<T>> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(found) if found.name == column);
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let value = if is_column(left) {
                right
            } else if is_column(right) {
                left
            } else {
                return None;
            };
            Some(vec![constant(value)?])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut all = constants(left, column, constant)?;
            all.extend(constants(right, column, constant)?);
            Some(all)
        }
        Expr::InList(list) if !list.negated && is_column(&list.expr) => {
            list.list.iter().map(constant).collect()
        }
        _ => None,
    }
}

fn integer(constant: &Expr) -> Option<i64> {
    match constant {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        _ => None,
    }
}

fn text(constant: &Expr) -> Option<String> {
    match constant {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    }
}
