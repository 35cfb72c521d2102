//! Facts of several groups of traces in one order of time.
//!
//! With one group, facts go straight from the reader into the window. With several, each group is read ahead by a small
//! batch whose texts are copied, and the groups take turns by time.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::Timestamp;
use stitch::fact::{Fact, FactKind, Missing};
use stitch::{Cover, Identities, Selection, Summary, Window};
use tracedir::{Item, Merged};

use super::source::Group;
use crate::adapter::Adapter;

/// How many items a group is read ahead.
const BATCH: usize = 512;

/// The summary of a window, or of its last piece, and how the reading went.
#[derive(Debug, Default)]
pub struct Mapped {
    /// What the window says.
    pub summary: Summary,
    /// How many event records it has.
    pub events: u64,
    /// What could not be read, a line each.
    pub findings: Vec<String>,
    /// How many findings there are beyond those kept.
    pub more_findings: u64,
}

/// The facts of one stretch of time.
pub(super) struct Flow<'a> {
    lanes: Vec<Lane<'a>>,
}

/// A stretch of time to summarise.
pub(crate) struct Task<'a> {
    pub(crate) cover: Cover,
    pub(crate) entry: Arc<Identities>,
    /// When in it scheduler events end.
    pub(crate) unscheduled: Option<Timestamp>,
    /// What of it counts.
    pub(crate) selection: Option<&'a Arc<Selection>>,
    /// Who takes the summary piece by piece.
    pub(crate) taker: Option<&'a mut (dyn Taker + 'a)>,
}

/// Takes pieces of a window, which follow each other in time.
pub(crate) trait Taker {
    /// How many logged items make a piece.
    fn piece(&self) -> usize;

    /// Takes a piece and says who is who after it; that nothing more is wanted, where it ends.
    fn take(&mut self, piece: Summary) -> ControlFlow<(), Arc<Identities>>;
}

/// A window that is given away each time it has logged enough.
struct Pieces<'a> {
    window: Window,
    cover: Cover,
    unscheduled: Option<Fact<&'static str>>,
    selection: Option<&'a Arc<Selection>>,
    taker: Option<&'a mut (dyn Taker + 'a)>,
}

/// One group of traces on its way.
pub(super) struct Lane<'a> {
    group: &'a Group,
    merged: Merged<'a>,
    adapter: Adapter<'a>,
    events: u64,
    batch: Batch,
}

#[derive(Default)]
struct Batch {
    text: String,
    facts: Vec<Fact<(usize, usize)>>,
    next: usize,
}

impl<'a> Lane<'a> {
    pub(super) fn new(group: &'a Group, merged: Merged<'a>, adapter: Adapter<'a>) -> Self {
        Self { group, merged, adapter, events: 0, batch: Batch::default() }
    }

    /// Gives the facts of the next item; false at the end.
    fn step(&mut self, give: &mut impl FnMut(&Fact<&str>)) -> bool {
        match self.merged.next_item() {
            None => return false,
            Some(Item::Event(event)) => {
                self.events += 1;
                self.adapter.event(event.timestamp, &event.record, give);
            }
            Some(Item::Loss(loss)) => {
                let is_kernel = self.group.kernel.get(loss.stream_index).copied().unwrap_or(false);
                give(&self.adapter.loss(&loss, is_kernel));
            }
        }
        true
    }

    /// When the next fact is; reads on when the batch is used up.
    fn peek(&mut self) -> Option<Timestamp> {
        while self.batch.next >= self.batch.facts.len() {
            let mut batch = std::mem::take(&mut self.batch);
            batch.facts.clear();
            batch.text.clear();
            batch.next = 0;
            let mut goes_on = true;
            while goes_on && batch.facts.len() < BATCH {
                let Batch { text, facts, .. } = &mut batch;
                goes_on = self.step(&mut |fact| {
                    facts.push((*fact).map(&mut |words: &str| {
                        let begin = text.len();
                        text.push_str(words);
                        (begin, text.len())
                    }));
                });
            }
            self.batch = batch;
            if !goes_on && self.batch.facts.is_empty() {
                return None;
            }
        }
        self.batch.facts.get(self.batch.next).map(|fact| fact.at)
    }

    fn give_next(&mut self, give: &mut impl FnMut(&Fact<&str>)) {
        let Batch { text, facts, next } = &mut self.batch;
        if let Some(fact) = facts.get(*next) {
            give(&fact.map(&mut |(begin, end)| text.get(begin..end).unwrap_or_default()));
        }
        *next += 1;
    }
}

impl<'a> Pieces<'a> {
    fn new(task: Task<'a>) -> Self {
        let Task { cover, entry, unscheduled, selection, taker } = task;
        let unscheduled = unscheduled.map(|at| Fact {
            at,
            cpu: None,
            tid: None,
            pid: None,
            kind: FactKind::Lost { what: Missing::KernelEverywhere, events: 0, packets: 0 },
        });
        let window = window(cover.clone(), entry, selection);
        Self { window, cover, unscheduled, selection, taker }
    }

    fn add(&mut self, fact: &Fact<&str>) -> ControlFlow<()> {
        if let Some(taker) = &mut self.taker
            && self.window.logged() >= taker.piece()
            && self.window.now() < fact.at
        {
            let (host, end) = (Arc::clone(&self.cover.host), self.cover.end);
            let next = Cover { host, begin: fact.at, end };
            let nothing = window(next.clone(), Arc::default(), self.selection);
            let piece = std::mem::replace(&mut self.window, nothing).finish_before(fact.at);
            self.window = match taker.take(piece) {
                ControlFlow::Continue(entry) => window(next.clone(), entry, self.selection),
                ControlFlow::Break(()) => return ControlFlow::Break(()),
            };
            self.cover = next;
        }
        if let Some(end) = self.unscheduled.take_if(|end| end.at <= fact.at) {
            self.window.add(&end);
        }
        self.window.add(fact);
        ControlFlow::Continue(())
    }

    fn finish(mut self) -> Summary {
        if let Some(end) = self.unscheduled {
            self.window.add(&end);
        }
        self.window.finish()
    }
}

fn window(cover: Cover, entry: Arc<Identities>, selection: Option<&Arc<Selection>>) -> Window {
    let window = Window::after(cover, entry);
    match selection {
        Some(selection) => window.selecting(selection),
        None => window,
    }
}

impl<'a> Flow<'a> {
    pub(super) fn new(lanes: Vec<Lane<'a>>) -> Self {
        Self { lanes }
    }

    /// Gives all facts in order: by time, then by group.
    pub(super) fn run(&mut self, give: impl FnMut(&Fact<&str>)) {
        let mut give = give;
        self.run_while(|| true, &mut give);
    }

    /// Gives facts in order until one is answered with the end.
    fn run_until(&mut self, mut give: impl FnMut(&Fact<&str>) -> ControlFlow<()>) {
        let over = Cell::new(false);
        self.run_while(|| !over.get(), |fact| over.set(over.get() || give(fact).is_break()));
    }

    /// Gives facts in order for as long as it `goes_on`.
    pub(super) fn run_while(
        &mut self,
        goes_on: impl Fn() -> bool,
        mut give: impl FnMut(&Fact<&str>),
    ) {
        if let [only] = self.lanes.as_mut_slice() {
            while goes_on() && only.step(&mut give) {}
            return;
        }
        while goes_on() {
            let next = self.lanes.iter_mut().filter_map(|lane| Some((lane.peek()?, lane)));
            let Some((_, lane)) = next.min_by_key(|(at, _)| *at) else { return };
            lane.give_next(&mut give);
        }
    }

    /// Summarises all facts.
    pub(super) fn summarise(mut self, task: Task<'_>) -> Mapped {
        let mut pieces = Pieces::new(task);
        self.run_until(|fact| pieces.add(fact));
        let mut mapped = Mapped { summary: pieces.finish(), ..Mapped::default() };
        for lane in &self.lanes {
            mapped.events += lane.events;
            mapped.findings.extend(lane.merged.findings().kept().iter().map(ToString::to_string));
            mapped.more_findings += lane.merged.findings().more();
        }
        mapped
    }
}
