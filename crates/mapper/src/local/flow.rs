//! Facts of several groups of traces in one order of time.
//!
//! With one group, facts go straight from the reader into the window. With several, each group is read ahead by a small
//! batch whose texts are copied, and the groups take turns by time.

use std::sync::Arc;

use model::Timestamp;
use stitch::fact::{Fact, FactKind, Missing};
use stitch::{Cover, Identities, Summary, Window};
use tracedir::{Item, Merged};

use super::source::Group;
use crate::adapter::Adapter;

/// How many items a group is read ahead.
const BATCH: usize = 512;

/// The summary of a window and how the reading went.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) summary: Summary,
    pub(crate) events: u64,
    pub(crate) findings: Vec<String>,
    pub(crate) more_findings: u64,
}

/// The facts of one stretch of time.
pub(super) struct Flow<'a> {
    lanes: Vec<Lane<'a>>,
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

impl<'a> Flow<'a> {
    pub(super) fn new(lanes: Vec<Lane<'a>>) -> Self {
        Self { lanes }
    }

    /// Gives all facts in order: by time, then by group.
    pub(super) fn run(&mut self, give: impl FnMut(&Fact<&str>)) {
        let mut give = give;
        self.run_while(|| true, &mut give);
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

    /// Summarises all facts. `unscheduled`: when in this window scheduler events end.
    pub(super) fn summarise(
        mut self,
        cover: Cover,
        entry: Arc<Identities>,
        unscheduled: Option<Timestamp>,
    ) -> Mapped {
        let mut window = Window::after(cover, entry);
        let mut unscheduled = unscheduled.map(|at| Fact {
            at,
            cpu: None,
            tid: None,
            pid: None,
            kind: FactKind::Lost { what: Missing::KernelEverywhere, events: 0, packets: 0 },
        });
        self.run(|fact| {
            if let Some(end) = unscheduled.take_if(|end| end.at <= fact.at) {
                window.add(&end);
            }
            window.add(fact);
        });
        if let Some(end) = unscheduled {
            window.add(&end);
        }
        let mut mapped = Mapped { summary: window.finish(), ..Mapped::default() };
        for lane in &self.lanes {
            mapped.events += lane.events;
            mapped.findings.extend(lane.merged.findings().kept().iter().map(ToString::to_string));
            mapped.more_findings += lane.merged.findings().more();
        }
        mapped
    }
}
