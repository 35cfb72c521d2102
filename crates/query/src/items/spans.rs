//! Spans one by one, from left to right.

use std::fmt;
use std::sync::Arc;

use mapper::{Options, read_log};
use stitch::spans::{Span, SpanKind};
use stitch::{Logged, Question, Summary, Tables};

use super::Items;
use super::columns::{Column, Who};
use super::totals::periods;
use super::wanted::{Kind, Wanted};
use crate::error::Error;
use crate::rows::Value;
use crate::stream::{Find, Sink};

/// Finds spans.
#[derive(Debug)]
pub(super) struct SpansOf {
    pub(super) items: Arc<Items>,
    pub(super) wanted: Wanted,
    pub(super) columns: Vec<Column>,
}

impl Find for SpansOf {
    fn find(&self, _: usize, sink: &mut Sink) -> Result<(), Error> {
        if !self.wanted.logs().is_empty() {
            self.spans(sink)?;
        }
        if self.wanted.kinds.contains(&Kind::Period) && self.items.periods.is_some() {
            periods(&self.items, &self.wanted, &mut |period| {
                sink.push(self.columns.iter().map(|column| match column {
                    Column::Begin => period.begin,
                    Column::End => period.end,
                    Column::Duration => period.duration,
                    Column::Kind => Value::Text(Kind::Period.word()),
                    Column::Name => period.name,
                    Column::Uncertain => Value::Bool(false),
                    _ => Value::Null,
                }))
            })?;
        }
        Ok(())
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wanted.explain(f)
    }
}

impl SpansOf {
    fn spans(&self, sink: &mut Sink) -> Result<(), Error> {
        let logs = self.wanted.logs();
        let needs_names = self.columns.iter().any(|column| column.needs_names(&logs));
        let all = match needs_names || self.wanted.comms().is_some() {
            true => Some(self.items.all()?),
            false => None,
        };
        let named = all.as_deref().zip(self.wanted.comms());
        let named = named.map(|(all, comms)| stitch::threads_named(all, comms));
        let selection = self.wanted.selection(named);
        if selection.tids.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let options = Options {
            range: self.wanted.range(logs.contains(&Logged::Turns)),
            selection: Some(Arc::new(selection)),
            ..self.items.options.clone()
        };
        let nobody = Summary::identity();
        let question = Question::default();
        let names = Tables::new(all.as_deref().unwrap_or(&nobody), &question);
        let mut rows = RowsOf { of: self, names: &names, sink };
        let analysis = read_log(&self.items.paths, &options, &mut |log| {
            names.spans(log, &mut |span| rows.push(&span));
            rows.sink.wants_more()
        })?;
        self.items.note(&analysis);
        // What is open where reading ended early may end later: only what has an end is known then.
        let is_known = |span: &Span| span.end.is_some() || self.wanted.may_be_open();
        let end = Tables::new(&analysis.summary, &question);
        let mut rows = RowsOf { of: self, names: &names, sink };
        end.open_spans(&logs, &mut |span| {
            if is_known(&span) {
                rows.push(&span);
            }
        });
        Ok(())
    }

    fn wants(&self, kind: SpanKind) -> bool {
        self.wanted.kinds.contains(&Kind::Span(kind))
    }
}

/// Makes rows of spans.
struct RowsOf<'a> {
    of: &'a SpansOf,
    names: &'a Tables<'a>,
    sink: &'a mut Sink,
}

impl RowsOf<'_> {
    fn push(&mut self, span: &Span) {
        if !self.of.wants(span.kind) || self.sink.wants_more().is_break() {
            return;
        }
        let mut who = Who::default();
        for column in &self.of.columns {
            match (column, span.tid, span.waker) {
                (Column::Pid, Some(tid), _) => who.pid = self.names.process(tid),
                (Column::Comm, Some(tid), _) => who.comm = self.names.comm(tid),
                (Column::WakerComm, _, Some(waker)) => who.waker = self.names.comm(waker),
                _ => {}
            }
        }
        let values = self.of.columns.iter().map(|column| column.value(span, &who));
        // Whether more is wanted is asked before the next one.
        let _enough = self.sink.push(values);
    }
}
