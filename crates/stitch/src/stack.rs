//! The open spans of one thread, also when some of them began before the window.
//!
//! The rules, chosen so that each step can be decided without the left part or be handed to it unchanged:
//!
//! - a request's begin empties the stack: what was open is abandoned;
//! - a request's end closes the request; phases still open in it are abandoned into it;
//! - a phase's end closes the nearest open phase of that name inside the request, phases above it are abandoned; when
//!   there is none, every open phase is abandoned;
//! - at most [`MAX_DEPTH`] phases are open in a request; opening one more abandons the outermost.
//!
//! An abandoned phase counts in its parent up to that moment. An abandoned request is partial and counts nowhere else.
//! Every phase end takes at least one open phase away, so after [`MAX_DEPTH`] ends that find nothing here no further one
//! can find anything on the left: the head of a stack is at most `2 * MAX_DEPTH + 1` segments.

use std::sync::Arc;

use model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fact::Span;
use crate::ident::Left;
use crate::rare::Rare;
use crate::spent::{Body, Spent};

/// How many phases may be open inside each other.
pub(crate) const MAX_DEPTH: usize = 16;

/// The open spans of a thread: what they need from the left, and what is open here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stack {
    /// What happened to spans of the left, oldest first.
    head: Vec<Segment>,
    /// Whether nothing of the left is open any more.
    rooted: bool,
    /// What the innermost open span of the left collected since the last segment. Unused when rooted.
    base: Rare<Body>,
    /// The most phases that were open at once above the left's.
    high: usize,
    /// Spans begun here, outermost first. A request can only be the first, and only when rooted.
    open: Vec<Frame>,
}

/// A stretch in which the innermost span of the left stayed the same, and what ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Segment {
    body: Body,
    step: HeadStep,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum HeadStep {
    PhaseEnd {
        name: Arc<str>,
    },
    RequestEnd {
        name: Arc<str>,
        request: Option<u64>,
        at: Timestamp,
    },
    /// So many phases are open above the left's: no more of them may stay open than leave room.
    Reach {
        phases: usize,
    },
    /// Everything that is open is abandoned.
    Clear,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Frame {
    name: Arc<str>,
    request: Option<u64>,
    is_request: bool,
    begin: Timestamp,
    body: Body,
}

/// A request, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) name: Arc<str>,
    pub(crate) request: Option<u64>,
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) body: Body,
}

/// What a step on a stack leaves to count.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) finished: Vec<Finished>,
    pub(crate) abandoned_requests: u64,
    pub(crate) abandoned_phases: u64,
    pub(crate) unmatched_ends: u64,
    pub(crate) ends_without_request: u64,
    pub(crate) outside_requests: u64,
    /// Whether a request ended that may have begun further left.
    pub(crate) ends_at_left: bool,
}

impl Stack {
    #[cfg(feature = "law")]
    pub(crate) fn leave_out(&mut self, part: crate::Part) {
        use crate::Part;
        match part {
            Part::SpanEnds => self.head.clear(),
            Part::SpansRooted => self.rooted = false,
            Part::SpanTime => self.base = Rare::default(),
            Part::SpanHeight => {
                for segment in &mut self.head {
                    if let HeadStep::Reach { phases } = &mut segment.step {
                        *phases = 0;
                    }
                }
            }
            Part::SpansOpen => self.open.clear(),
            _ => {}
        }
    }

    /// Where the thread's time and calls go just now; `None` when no span is open and none can be.
    pub(crate) fn top(&mut self) -> Option<&mut Spent> {
        match self.open.last_mut() {
            Some(frame) => Some(&mut frame.body.own),
            None if self.rooted => None,
            None => Some(&mut self.base.get_mut().own),
        }
    }

    /// Everything that its spans collected.
    pub(crate) fn spent_mut(&mut self) -> impl Iterator<Item = &mut Spent> {
        let head = self.head.iter_mut().map(|segment| &mut segment.body);
        let open = self.open.iter_mut().map(|frame| &mut frame.body);
        head.chain(self.base.some_mut()).chain(open).flat_map(Body::spent_mut)
    }

    /// Nothing is open at the left boundary.
    pub(crate) fn rooted() -> Self {
        Self { rooted: true, ..Self::default() }
    }

    /// Whether the thread's time and calls go anywhere: a span is open, or one may be.
    pub(crate) fn collects(&self) -> bool {
        !self.rooted || !self.open.is_empty()
    }

    /// Whether nothing is open, and all that is known is that whatever was open at the left boundary was abandoned.
    pub(crate) fn is_ended(&self) -> bool {
        let is_clear =
            |segment: &Segment| segment.step == HeadStep::Clear && segment.body == Body::default();
        self.rooted && self.open.is_empty() && self.head.iter().all(is_clear)
    }

    /// Requests that have begun and not ended.
    pub(crate) fn open_requests(&self) -> u64 {
        u64::from(self.has_request())
    }

    pub(crate) fn begin(&mut self, span: &Span<&str>, name: Arc<str>, at: Timestamp) -> Outcome {
        let mut out = Outcome::default();
        if span.is_request {
            self.clear(&mut out);
        }
        self.open.push(Frame {
            name,
            request: span.request,
            is_request: span.is_request,
            begin: at,
            body: Body::default(),
        });
        if !span.is_request {
            self.reach(0, &mut out);
        }
        out
    }

    pub(crate) fn end(&mut self, span: &Span<&str>, name: &Arc<str>, at: Timestamp) -> Outcome {
        let mut out = Outcome::default();
        if span.is_request {
            self.end_request(name, span.request, at, &mut out);
        } else {
            self.end_phase(name, &mut out);
        }
        out
    }

    /// Forgets every open span.
    pub(crate) fn abandon(&mut self) -> Outcome {
        let mut out = Outcome::default();
        self.clear(&mut out);
        out
    }

    fn has_request(&self) -> bool {
        self.open.first().is_some_and(|frame| frame.is_request)
    }

    /// How many phases are open here, without the left's.
    fn depth(&self) -> usize {
        self.open.len() - usize::from(self.has_request())
    }

    /// Notes that `more` phases are open above those open here, and abandons the outermost if that is too many.
    fn reach(&mut self, more: usize, out: &mut Outcome) {
        let depth = self.depth().saturating_add(more);
        if !self.rooted && depth.min(MAX_DEPTH) > self.high {
            self.high = depth.min(MAX_DEPTH);
            self.cut(HeadStep::Reach { phases: self.high });
        }
        let too_many = depth.saturating_sub(MAX_DEPTH).min(self.open.len());
        for _ in 0..too_many {
            self.abandon_outermost(out);
        }
    }

    fn abandon_outermost(&mut self, out: &mut Outcome) {
        let first = usize::from(self.has_request());
        if first >= self.open.len() {
            return;
        }
        let frame = self.open.remove(first);
        out.abandoned_phases += 1;
        match self.open.first_mut().filter(|under| under.is_request) {
            Some(request) => request.body.fold(&frame.name, frame.body),
            None if self.rooted => out.outside_requests += 1,
            None => self.base.get_mut().fold(&frame.name, frame.body),
        }
    }

    /// Takes the innermost open phase away, into what is open under it.
    fn fold_top(&mut self, out: &mut Outcome) {
        let Some(frame) = self.open.pop() else { return };
        match self.open.last_mut() {
            Some(under) => under.body.fold(&frame.name, frame.body),
            None if self.rooted => out.outside_requests += 1,
            None => self.base.get_mut().fold(&frame.name, frame.body),
        }
    }

    fn abandon_phases_above(&mut self, keep: usize, out: &mut Outcome) {
        while self.open.len() > keep {
            out.abandoned_phases += 1;
            self.fold_top(out);
        }
    }

    fn end_phase(&mut self, name: &Arc<str>, out: &mut Outcome) {
        let bottom = usize::from(self.has_request());
        let found = self.open.iter().skip(bottom).rposition(|frame| frame.name == *name);
        if let Some(above_bottom) = found {
            self.abandon_phases_above(bottom + above_bottom + 1, out);
            self.fold_top(out);
            return;
        }
        self.abandon_phases_above(bottom, out);
        if self.rooted || self.head_phase_ends() >= MAX_DEPTH {
            out.unmatched_ends += 1;
        } else {
            self.cut(HeadStep::PhaseEnd { name: Arc::clone(name) });
        }
    }

    fn end_request(
        &mut self,
        name: &Arc<str>,
        request: Option<u64>,
        at: Timestamp,
        out: &mut Outcome,
    ) {
        let bottom = usize::from(self.has_request());
        self.abandon_phases_above(bottom, out);
        if !self.rooted {
            self.cut(HeadStep::RequestEnd { name: Arc::clone(name), request, at });
            out.ends_at_left = true;
            self.rooted = true;
            return;
        }
        match self.open.pop() {
            Some(frame) if frame.name == *name => out.finished.push(Finished {
                name: frame.name,
                request: frame.request.or(request),
                begin: frame.begin,
                end: at,
                body: frame.body,
            }),
            other => {
                out.abandoned_requests += u64::from(other.is_some());
                out.unmatched_ends += 1;
                out.ends_without_request += 1;
            }
        }
    }

    fn clear(&mut self, out: &mut Outcome) {
        let bottom = usize::from(self.has_request());
        self.abandon_phases_above(bottom, out);
        if self.rooted {
            out.abandoned_requests += u64::from(self.open.pop().is_some());
        } else {
            self.cut(HeadStep::Clear);
            self.rooted = true;
        }
    }

    fn head_phase_ends(&self) -> usize {
        self.head.iter().filter(|seg| matches!(seg.step, HeadStep::PhaseEnd { .. })).count()
    }

    fn cut(&mut self, step: HeadStep) {
        let body = self.base.take();
        self.head.push(Segment { body, step });
    }

    /// Appends what happened in the window to the right. Its terms must have been resolved already.
    pub(crate) fn append(&mut self, mut right: Self) -> Outcome {
        let mut out = Outcome::default();
        for segment in right.head {
            self.take(segment.body, &mut out);
            match segment.step {
                HeadStep::PhaseEnd { name } => self.end_phase(&name, &mut out),
                HeadStep::RequestEnd { name, request, at } => {
                    self.end_request(&name, request, at, &mut out);
                }
                HeadStep::Reach { phases } => self.reach(phases, &mut out),
                HeadStep::Clear => self.clear(&mut out),
            }
        }
        if !right.rooted {
            self.take(right.base.take(), &mut out);
        }
        self.open.extend(right.open);
        out
    }

    fn take(&mut self, body: Body, out: &mut Outcome) {
        match self.open.last_mut() {
            Some(frame) => frame.body.add(body),
            None if self.rooted => {
                let outermost = body.phases.iter().filter(|(path, _)| !path.contains('/'));
                out.outside_requests += outermost.map(|(_, phase)| phase.spans).sum::<u64>();
            }
            None => self.base.get_mut().add(body),
        }
    }

    /// The same with nothing to the left: no span was open there.
    pub(crate) fn closed(self) -> (Self, Outcome) {
        let mut nothing = Self::rooted();
        let out = nothing.append(self);
        (nothing, out)
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        for segment in &mut self.head {
            segment.body.resolve(left);
        }
        if let Some(base) = self.base.some_mut() {
            base.resolve(left);
        }
        for frame in &mut self.open {
            frame.body.resolve(left);
        }
    }
}
