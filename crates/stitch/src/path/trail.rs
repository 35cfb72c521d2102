//! Paths of threads backward in time, in one tree: what a thread did, and before a wake-up what its waker did.
//!
//! A path is known by its last node; each node says what came before, so paths that were one share it. Nodes are in the order
//! of time: what comes before has a smaller number. The path of a thread that is as at the left boundary begins with a node of
//! its own, [`Node::Left`]; putting in the left part's path there is all that a merge has to do.
//!
//! Stretches that nobody will draw are added up ([`Node::Sum`]), so that a tree grows with the threads that it ends in
//! and with what open requests may still draw, not with events.

use std::collections::BTreeMap;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::handlers::OnLeft;
use super::waits::Waker;
use crate::call::ClassTerm;

/// How many stretches of a path are kept to be drawn: the last ones.
pub const MAX_HOPS: usize = 100;

/// What a thread does while a path goes through it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum What {
    Running,
    /// Ready to run, without a CPU.
    Ready,
    /// It sleeps for this, and something that has no path itself ends that.
    Asleep(Box<ClassTerm>, Waker),
    Unknown,
}

/// Time by thread and by what it did.
pub(crate) type Costs = BTreeMap<(Tid, What), u64>;

/// The number of a node.
pub(super) type Id = u32;

/// The number of no node: of what nobody may follow.
pub(super) const NOWHERE: Id = Id::MAX;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Node {
    /// The path of this thread to the end of the stretch that crosses the left boundary.
    Left(Tid),
    /// Nobody knows what this thread did before.
    Origin(Tid),
    Step(Step),
    /// Several stretches.
    Sum {
        before: Id,
        begin: Timestamp,
        end: Timestamp,
        costs: Costs,
    },
    /// One of two paths of a thread that was woken: its own when something without a path woke it, else its waker's.
    Either {
        condition: Condition,
        own: Id,
        waker: Id,
    },
}

/// What nobody but the left part knows: whether something without a path woke a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Condition {
    /// A handler of the left boundary, if there was one.
    Handler(OnLeft),
    /// A clock, if that is what the thread waited for.
    Clock(ClassTerm),
}

/// One thread does one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) before: Id,
    pub(super) tid: Tid,
    pub(super) what: What,
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

/// A stretch of a path, to be drawn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Hop {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) tid: Tid,
    pub(crate) what: What,
}

/// A path from its end back to some time.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Walked {
    pub(crate) costs: Costs,
    /// The last ones, the last one first.
    pub(crate) hops: Vec<Hop>,
    /// Whether there are more.
    pub(crate) is_longer: bool,
}

/// All paths of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trail(pub(super) Vec<Node>);

/// What a path is kept for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) path: Id,
    /// Who asks for it follows it to no earlier time.
    pub(super) drawn_from: Timestamp,
}

impl Trail {
    pub(super) fn push(&mut self, node: Node) -> Id {
        let id = Id::try_from(self.0.len()).unwrap_or(NOWHERE);
        self.0.push(node);
        id
    }

    /// The path when its thread does something for a while after it.
    pub(super) fn step(&mut self, step: Step) -> Id {
        if step.begin >= step.end {
            return step.before;
        }
        self.push(Node::Step(step))
    }

    fn node(&self, id: Id) -> Option<&Node> {
        self.0.get(usize::try_from(id).ok()?)
    }

    /// The path from its end back to a time, of `owner` where nobody knows whose it is. `None` when the left part decides.
    pub(super) fn walk(
        &self,
        path: Id,
        owner: Tid,
        from: Timestamp,
        to: Timestamp,
        most: usize,
    ) -> Option<Walked> {
        let mut walked = Walked::default();
        let mut is_drawn = true;
        let (mut at, mut until) = (path, to);
        while until > from {
            let (tid, what, begin, before) = match self.node(at) {
                Some(Node::Left(_) | Node::Either { .. }) => return None,
                Some(Node::Step(Step { before, tid, what, begin, .. })) => {
                    (*tid, what.clone(), (*begin).max(from), *before)
                }
                Some(Node::Sum { before, begin, costs, .. }) if *begin >= from => {
                    for (key, ns) in costs {
                        add(&mut walked.costs, key.clone(), *ns);
                    }
                    is_drawn = false;
                    walked.is_longer = true;
                    (at, until) = (if *before < at { *before } else { NOWHERE }, *begin);
                    continue;
                }
                Some(Node::Origin(tid)) => (*tid, What::Unknown, from, at),
                // Where a path is asked for from a time on, one stretch may lie across it; sums of several never do.
                Some(Node::Sum { costs, .. }) if costs.len() == 1 => match costs.keys().next() {
                    Some((tid, what)) => (*tid, what.clone(), from, at),
                    None => (owner, What::Unknown, from, at),
                },
                Some(Node::Sum { .. }) | None => (owner, What::Unknown, from, at),
            };
            add(&mut walked.costs, (tid, what.clone()), until.since(begin).get());
            if is_drawn {
                is_drawn = walked.draw(Hop { begin, end: until, tid, what }, most);
            }
            // What comes before has a smaller number, also in a file that somebody else wrote.
            (at, until) = (if before < at { before } else { NOWHERE }, begin);
        }
        Some(walked)
    }

    /// Keeps what leads to these, as much of it as somebody may draw stretch by stretch, but at most so many; requests that
    /// are open began at `begins`, in order. Gives the new number of each node that is kept.
    pub(super) fn keep(
        &mut self,
        leaves: &[Leaf],
        begins: &[Timestamp],
        most: usize,
    ) -> Vec<Option<Id>> {
        let marks = self.marks(leaves);
        let old = std::mem::take(&mut self.0);
        let mut ids: Vec<Option<Id>> = Vec::with_capacity(old.len());
        for (node, mark) in old.into_iter().zip(&marks) {
            if mark.uses == 0 {
                ids.push(None);
                continue;
            }
            let before = |id: Id| {
                let n = usize::try_from(id).ok();
                let new = n.and_then(|n| ids.get(n).copied().flatten()).unwrap_or(NOWHERE);
                let is_shared = n.and_then(|n| marks.get(n)).is_none_or(|mark| mark.uses > 1);
                (new, is_shared)
            };
            let id = match node {
                Node::Left(_) | Node::Origin(_) => self.push(node),
                Node::Either { condition, own, waker } => {
                    let (own, waker) = (before(own).0, before(waker).0);
                    self.push(Node::Either { condition, own, waker })
                }
                Node::Step(step) if mark.is_drawn(step.end, most) => {
                    let before = before(step.before).0;
                    self.push(Node::Step(Step { before, ..step }))
                }
                Node::Step(step) => {
                    let ns = step.end.since(step.begin).get();
                    let costs = Costs::from([((step.tid, step.what), ns)]);
                    self.sum(before(step.before), (step.begin, step.end), costs, begins)
                }
                Node::Sum { before: id, begin, end, costs } => {
                    self.sum(before(id), (begin, end), costs, begins)
                }
            };
            ids.push(Some(id));
        }
        ids
    }

    /// Adds to the sum that comes before, when nothing else follows it and no request may begin in between; else a sum of
    /// its own.
    fn sum(
        &mut self,
        (before, is_shared): (Id, bool),
        (begin, end): (Timestamp, Timestamp),
        costs: Costs,
        begins: &[Timestamp],
    ) -> Id {
        let may_join = |from: Timestamp| {
            let next = begins.partition_point(|begin| *begin <= from);
            !is_shared && begins.get(next).is_none_or(|begin| *begin >= end)
        };
        if let Some(Node::Sum { begin, end: joined, costs: sums, .. }) =
            usize::try_from(before).ok().and_then(|n| self.0.get_mut(n))
            && may_join(*begin)
        {
            *joined = end;
            costs.into_iter().for_each(|(key, ns)| add(sums, key, ns));
            return before;
        }
        self.push(Node::Sum { before, begin, end, costs })
    }

    /// Who uses each node and for what, from the end to the begin: what follows has a greater number.
    fn marks(&self, leaves: &[Leaf]) -> Vec<Mark> {
        let mut marks = vec![Mark::UNUSED; self.0.len()];
        for leaf in leaves {
            let end = match self.node(leaf.path) {
                Some(Node::Sum { end, .. } | Node::Step(Step { end, .. })) => *end,
                Some(Node::Left(_) | Node::Origin(_) | Node::Either { .. }) | None => {
                    Timestamp::MAX
                }
            };
            if leaf.drawn_from < end {
                mark(&mut marks, leaf.path, leaf.drawn_from, 1);
            }
        }
        for (n, node) in self.0.iter().enumerate().rev() {
            let Some(&Mark { uses, drawn_from, hops }) = marks.get(n) else { continue };
            if uses == 0 {
                continue;
            }
            match node {
                Node::Left(_) | Node::Origin(_) => {}
                // What lies before that, nobody may follow.
                Node::Sum { begin, .. } | Node::Step(Step { begin, .. })
                    if *begin <= drawn_from => {}
                Node::Sum { before, .. } => mark(&mut marks, *before, drawn_from, usize::MAX),
                Node::Step(step) => {
                    let goes_on = match self.node(step.before) {
                        Some(Node::Step(before)) => {
                            before.tid == step.tid && before.what == step.what
                        }
                        _ => false,
                    };
                    let hops = if goes_on { hops } else { hops.saturating_add(1) };
                    mark(&mut marks, step.before, drawn_from, hops);
                }
                Node::Either { own, waker, .. } => {
                    mark(&mut marks, *own, drawn_from, hops);
                    mark(&mut marks, *waker, drawn_from, hops);
                }
            }
        }
        marks
    }
}

/// Who uses a node.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// How many nodes and leaves follow.
    uses: u32,
    /// The earliest time from which one of them is drawn.
    drawn_from: Timestamp,
    /// Which stretch of a drawn path this is at least, counted from the end.
    hops: usize,
}

impl Mark {
    const UNUSED: Self = Self { uses: 0, drawn_from: Timestamp::MAX, hops: usize::MAX };

    fn is_drawn(&self, end: Timestamp, most: usize) -> bool {
        end > self.drawn_from && self.hops <= most
    }
}

fn mark(marks: &mut [Mark], id: Id, drawn_from: Timestamp, hops: usize) {
    let Some(mark) = usize::try_from(id).ok().and_then(|n| marks.get_mut(n)) else { return };
    mark.uses = mark.uses.saturating_add(1);
    mark.drawn_from = mark.drawn_from.min(drawn_from);
    mark.hops = mark.hops.min(hops);
}

impl Walked {
    /// Adds the stretch before those that are there; false when there is no room for it.
    fn draw(&mut self, hop: Hop, most: usize) -> bool {
        if let Some(last) = self.hops.last_mut()
            && (last.tid, &last.what) == (hop.tid, &hop.what)
        {
            last.begin = hop.begin;
            return true;
        }
        if self.hops.len() >= most {
            self.is_longer = true;
            return false;
        }
        self.hops.push(hop);
        true
    }
}

/// Adds nanoseconds to a sum; none are not listed.
pub(super) fn add(costs: &mut Costs, key: (Tid, What), ns: u64) {
    if ns > 0 {
        let sum = costs.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }
}
