//! Paths as answers: who, in which state, for how long.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Tid, Timestamp};

use super::Finish;
use super::tables::irq_cell;
use crate::answer::{CriticalPath, PATH_FORMAT, PathAnswer, PathHop, PathState, PathTotal};
use crate::call::Class;
use crate::fact::Line;
use crate::path::{Costs, Ended, Hop, Waker, Walked, What};
use crate::summary::Summary;
use crate::table::Cell;

/// The last-waker critical path of a thread from the end of what was summarised back to a time, or to its begin. Nothing
/// when the thread has ended or was not seen.
#[must_use]
pub fn thread_path(summary: &Summary, tid: Tid, since: Timestamp) -> Option<PathAnswer> {
    let finish = Finish::new(summary);
    let (_, begin, end) = finish.cover();
    let begin = since.max(begin);
    let walked = summary.paths.closed().of_thread(tid, begin, end)?;
    let name = Arc::default();
    Some(finish.path_answer(&Ended { begin, end, tid, name, request: None }, &walked))
}

/// The last-waker critical path of the slowest request that has one. A selection may ask for a request by its id.
#[must_use]
pub fn request_path(summary: &Summary) -> Option<PathAnswer> {
    let finish = Finish::new(summary);
    let requests = summary.paths.closed().requests;
    let (ended, walked) = requests.slowest.first()?;
    let answer = finish.path_answer(ended, walked);
    Some(PathAnswer { request: Some(Arc::clone(&ended.name)), ..answer })
}

impl Finish<'_> {
    /// What a thread does on a path.
    pub(super) fn path_state(&self, what: &What) -> PathState {
        match what {
            What::Running => PathState::Running,
            What::Ready => PathState::Waiting,
            What::Unknown => PathState::Unknown,
            What::Asleep(class, waker) => match (self.class(class), waker) {
                (Class::Disk, _) => PathState::Disk,
                (Class::Network, _) => PathState::Network,
                (Class::Lock, _) => PathState::Lock,
                (Class::Timer, _) => PathState::Timer,
                (Class::Pipe, _) => PathState::Pipe,
                (Class::Child, _) => PathState::Child,
                (Class::Other, Waker::Handler(_)) => PathState::Interrupt,
                (Class::Other, _) => PathState::Other,
            },
        }
    }

    /// Time by thread and state.
    pub(super) fn path_states(&self, costs: &Costs) -> BTreeMap<(Tid, PathState), u64> {
        let mut states = BTreeMap::new();
        for ((tid, what), ns) in costs {
            let sum: &mut u64 = states.entry((*tid, self.path_state(what))).or_default();
            *sum = sum.saturating_add(*ns);
        }
        states
    }

    fn path_answer(&self, ended: &Ended, walked: &Walked) -> PathAnswer {
        PathAnswer {
            format: PATH_FORMAT.into(),
            host: self.cover().0,
            request: None,
            id: ended.request,
            comm: self.comm(ended.tid),
            tid: ended.tid.get(),
            begin_ns: ended.begin.nanos(),
            end_ns: ended.end.nanos(),
            path: self.critical_path(walked, ended.begin),
            loss: self.loss().0,
        }
    }

    /// A path whose time counts from `begin`.
    pub(super) fn critical_path(&self, walked: &Walked, begin: Timestamp) -> CriticalPath {
        let states = self.path_states(&walked.costs).into_iter();
        let mut totals: Vec<PathTotal> = states
            .map(|((tid, state), ns)| PathTotal { comm: self.comm(tid), tid: tid.get(), state, ns })
            .collect();
        totals.sort_by_key(|total| (Reverse(total.ns), total.tid, total.state));
        let mut before: Option<Tid> = None;
        let hops = walked.hops.iter().rev().map(|hop| {
            let came_from = before.replace(hop.tid).filter(|before| *before != hop.tid);
            PathHop {
                offset_ns: hop.begin.since(begin).get(),
                ns: hop.end.since(hop.begin).get(),
                comm: self.comm(hop.tid),
                tid: hop.tid.get(),
                state: self.path_state(&hop.what),
                ended_by: self.ended_by(hop),
                woken_by: came_from.map(|waker| self.thread_text(waker)),
            }
        });
        CriticalPath { totals, hops: hops.collect(), is_longer: walked.is_longer }
    }

    /// Who ended a wait that the path goes through.
    fn ended_by(&self, hop: &Hop) -> Option<Arc<str>> {
        let What::Asleep(_, waker) = &hop.what else { return None };
        match waker {
            Waker::Handler(line) => Some(self.line_text(*line)),
            // A clock did, in a handler that nobody recorded.
            Waker::Thread(_) if self.path_state(&hop.what) == PathState::Timer => None,
            Waker::Thread(tid) => Some(self.thread_text(*tid)),
            Waker::LeftHandler(..) | Waker::Unknown => None,
        }
    }

    fn thread_text(&self, tid: Tid) -> Arc<str> {
        if tid == Tid::IDLE {
            return "idle CPU".into();
        }
        let comm = self.comm(tid);
        let comm = if comm.is_empty() { "?" } else { &*comm };
        format!("{comm} ({tid})").into()
    }

    fn line_text(&self, line: Line) -> Arc<str> {
        let name = match irq_cell(&self.summary.folds.irqs, line) {
            Cell::Irq { name, .. } => name,
            _ => "".into(),
        };
        let text = match line {
            Line::Hard(number) => format!("interrupt {number} {name}"),
            Line::Soft(vector) => format!("soft interrupt {vector} {name}"),
        };
        text.trim_end().into()
    }
}
