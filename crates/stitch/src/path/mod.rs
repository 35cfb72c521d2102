//! Who waits for whom: waits by cause and by who ended them, and paths of threads backward in time.
//!
//! A thread's wait begins when it leaves a CPU asleep and ends with its first wake-up, or where it is seen running without
//! one. The waker is the thread on the CPU where the wake-up happened, unless that CPU was handling an interrupt.
//!
//! The last-waker path of a thread goes back through what the thread did to its last wake-up, and from there on through what
//! its waker did; where no thread woke it, it goes on through the wait. So it never branches, and its stretches add
//! up to the time from its begin to its end.
//!
//! What lies across the left boundary is settled by replaying the first wake-up and the first sight of each thread behind the
//! left part: so a merge takes the same steps as a window that holds both.
//!
//! Where kernel events are lost, on any CPU, nobody knows what any thread does until it is seen again: a wait is certain or
//! it is not counted.

mod handlers;
mod register;
mod requests;
mod trail;
mod waits;

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{Class, ClassTerm};
use crate::fact::{Fact, FactKind, LeftAs, Missing};
use crate::ident::Left;
use crate::keyed::{Keyed, Slot};
use crate::numbers::Numbers;

use handlers::{Doing, Handlers};
use register::{First, How, Register, State, Stretch, Tail, Wake};
use requests::{Requests, change_costs};
use trail::{Condition, Id, Leaf, NOWHERE, Node, Step, Trail};

pub(crate) use requests::Ended;
pub use requests::MAX_PATHS;
pub use trail::MAX_HOPS;
pub(crate) use trail::{Costs, Hop, Walked, What};
use waits::Waits;
pub(crate) use waits::{Wait, WaitRow, WaitsOf, Waker};

/// How many nodes a trail has before what nobody will draw is added up.
const MAX_TRAIL: usize = 1 << 16;

/// How many stretches of a path are kept that somebody asks for.
const MAX_ASKED_HOPS: usize = 10_000;

/// Waits and paths of one window, and what it leaves open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Paths {
    pub(crate) waits: Waits,
    pub(crate) requests: Requests,
    trail: Trail,
    /// Bound: threads that lived at one of the ends.
    threads: Keyed<Tid, Register>,
    /// Numbers whose thread has ended and that nothing was seen of since, but for those whose thread lived at the left
    /// boundary.
    pub(crate) ended: Numbers,
    /// No later than this they had ended; earlier than what is seen of them next.
    #[serde(skip)]
    pub(crate) ended_by: Option<Timestamp>,
    cpus: Keyed<CpuId, Handlers>,
    /// The left boundary.
    begin: Timestamp,
    /// When kernel events were first lost: no thread or CPU that is not listed is as at the left boundary.
    lost: Option<Timestamp>,
    /// When the request of each thread began that is open, if the window says; none that spans are lost of.
    open: BTreeMap<Tid, Option<Timestamp>>,
    /// Whether requests of the left are forgotten.
    are_spans_lost: bool,
    /// Where requests end that began further left. Bound: threads.
    ends: BTreeMap<Tid, Id>,
    /// Where requests end right now.
    #[serde(skip)]
    ending: BTreeMap<Tid, Id>,
    /// Threads that are known to run, so that most events need no look at their register. Bound: CPUs.
    #[serde(skip)]
    running: Vec<(CpuId, Tid)>,
    /// What is kept besides what requests need.
    asked: Asked,
    /// How many nodes the trail may have before it is cut down, if more than [`MAX_TRAIL`].
    #[serde(skip)]
    most: usize,
    /// Whether no request of the left is open, in a window that knows.
    #[serde(skip)]
    is_outside: bool,
    /// How many requests are open in a window.
    #[serde(skip)]
    requests_open: usize,
}

/// Paths that somebody asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Every path is kept stretch by stretch from then on, at most 10,000 of them.
    pub since: Option<Timestamp>,
    /// Of requests only the slowest with this id keep their path.
    pub request: Option<u64>,
}

/// How a thread leaves its CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leaves {
    Ready,
    Asleep(ClassTerm),
    Ended,
}

impl Default for Paths {
    fn default() -> Self {
        Self::new(Timestamp::from_nanos(0))
    }
}

impl Leaves {
    /// By the way a thread leaves, and what it sleeps for if it does.
    pub(crate) fn of(left_as: LeftAs, cause: impl FnOnce() -> ClassTerm) -> Self {
        match left_as {
            LeftAs::Preempted => Self::Ready,
            LeftAs::Interruptible | LeftAs::Uninterruptible => Self::Asleep(cause()),
            LeftAs::Dead => Self::Ended,
        }
    }
}

impl Paths {
    pub(crate) fn new(begin: Timestamp) -> Self {
        Self {
            waits: Waits::default(),
            requests: Requests::default(),
            trail: Trail::default(),
            threads: Keyed::new(),
            ended: Numbers::default(),
            ended_by: None,
            cpus: Keyed::new(),
            begin,
            lost: None,
            open: BTreeMap::new(),
            are_spans_lost: false,
            ends: BTreeMap::new(),
            ending: BTreeMap::new(),
            running: Vec::new(),
            asked: Asked::default(),
            most: 0,
            is_outside: false,
            requests_open: 0,
        }
    }

    /// Of a window that begins where no request is open.
    pub(crate) fn outside_requests(begin: Timestamp) -> Self {
        Self { is_outside: true, ..Self::new(begin) }
    }

    /// Whether nobody will follow a path to now: no request is open, and none is asked for. A request that begins later never
    /// goes further back than its begin.
    fn is_idle(&self) -> bool {
        self.is_outside && self.requests_open == 0 && self.asked.since.is_none()
    }

    /// Notes when the open request of a thread began, in a window.
    fn set_open(&mut self, tid: Tid, begin: Option<Timestamp>) {
        let before = self.open.insert(tid, begin).flatten();
        self.requests_open -= usize::from(before.is_some());
        self.requests_open += usize::from(begin.is_some());
    }

    /// A stretch of time that nobody recorded.
    pub(crate) fn gap(at: Timestamp) -> Self {
        let mut gap = Self::new(at);
        gap.lose(Missing::KernelEverywhere, at);
        gap.lose(Missing::Spans, at);
        gap
    }

    pub(crate) fn ask(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// What ended so far does not count; what is open goes on.
    pub(crate) fn count_from_here(&mut self) {
        self.waits = self.waits.emptied();
        self.requests = Requests::default();
    }

    /// Takes in a fact of this thread, which has a CPU if it says so, at a time that does not go back; all but switches.
    pub(crate) fn take(&mut self, at: Timestamp, fact: &Fact<&str>, thread: Option<Tid>) {
        match fact.kind {
            FactKind::Lost { what, .. } => return self.lose(what, at),
            FactKind::Switch { .. } => return,
            _ => {}
        }
        if let Some(tid) = thread.filter(|tid| *tid != Tid::IDLE) {
            self.see(tid, at, fact.cpu);
        }
        match (fact.kind, fact.cpu) {
            (FactKind::Fork { child, .. }, _) => self.born(child, at, thread),
            (FactKind::Wakeup { tid, .. }, Some(cpu)) => self.wakeup(tid, at, cpu, thread),
            (FactKind::IrqEntry { line, .. }, Some(cpu)) => self.handlers(cpu).enter(line, at),
            (FactKind::IrqExit { .. }, Some(cpu)) => self.handlers(cpu).exit(),
            (FactKind::CallEntry { .. } | FactKind::CallExit { .. }, Some(cpu)) => {
                self.handlers(cpu).clear();
            }
            (FactKind::SpanBegin(span), _) if span.is_request => {
                if let Some(tid) = thread {
                    self.set_open(tid, Some(at));
                }
            }
            (FactKind::SpanEnd(span), _) if span.is_request => {
                let Some(tid) = thread else { return };
                self.bound();
                self.ending.clear();
                let path = self.split(tid, at);
                self.ending.extend(path.map(|path| (tid, path)));
                self.set_open(tid, None);
            }
            _ => {}
        }
    }

    /// A thread leaves its CPU.
    pub(crate) fn leave(&mut self, tid: Tid, at: Timestamp, leaves: Leaves) {
        let slot = self.slot(tid);
        let path = self.step(slot, tid, First { at, how: How::Seen });
        let state = match leaves {
            Leaves::Ready => State::Ready,
            Leaves::Asleep(class) => State::Asleep(class),
            Leaves::Ended => {
                self.set_open(tid, None);
                State::Ended
            }
        };
        self.go_on(slot, tid, Stretch { since: at, state, path });
    }

    /// A CPU goes to a thread, after the one before has left it.
    pub(crate) fn switch(&mut self, cpu: CpuId, at: Timestamp, next: Tid) {
        self.bound();
        self.handlers(cpu).clear();
        if next != Tid::IDLE {
            let slot = self.slot(next);
            let path = self.step(slot, next, First { at, how: How::GotCpu });
            self.run((slot, next), at, path, cpu);
        }
    }

    /// Keeps the trail short while a window is read.
    fn bound(&mut self) {
        if self.trail.0.len() > self.most.max(MAX_TRAIL) {
            self.cut_down(self.needed_from(!self.is_outside));
            self.most = 2 * self.trail.0.len();
        }
    }

    fn see(&mut self, tid: Tid, at: Timestamp, cpu: Option<CpuId>) {
        if cpu.is_some_and(|cpu| self.running.contains(&(cpu, tid))) {
            return;
        }
        let slot = self.slot(tid);
        let path = self.step(slot, tid, First { at, how: How::Seen });
        match cpu {
            Some(cpu) => self.run((slot, tid), at, path, cpu),
            None => self.go_on(slot, tid, Stretch { since: at, state: State::Unknown(None), path }),
        }
    }

    /// A thread begins, woken by what gave birth to it.
    fn born(&mut self, child: Tid, at: Timestamp, parent: Option<Tid>) {
        self.set_open(child, None);
        let slot = self.slot(child);
        self.step(slot, child, First { at, how: How::Born });
        let path = parent.and_then(|parent| self.split(parent, at));
        let path = path.unwrap_or_else(|| self.push(Node::Origin(child)));
        self.go_on(slot, child, Stretch { since: at, state: State::New, path });
    }

    fn wakeup(&mut self, tid: Tid, at: Timestamp, cpu: CpuId, thread: Option<Tid>) {
        let slot = self.slot(tid);
        let register = self.threads.at(slot);
        let waits = match &register.tail {
            Tail::AsLeft => register.wake.is_none(),
            Tail::Known(Stretch { state, .. }) => {
                matches!(state, State::Asleep(_) | State::New | State::Ended | State::Unknown(None))
            }
        };
        if !waits {
            return;
        }
        let begin = self.begin;
        let by = waker(self.handlers(cpu).doing(cpu, at, begin), thread);
        let path = match by {
            Waker::Thread(waker) | Waker::LeftHandler(_, Some(waker)) => self.split(waker, at),
            Waker::LeftHandler(_, None) | Waker::Handler(_) | Waker::Unknown => None,
        };
        self.woken(slot, tid, Wake { at, by, path });
    }

    /// Events are missing.
    fn lose(&mut self, what: Missing, at: Timestamp) {
        if what == Missing::Spans {
            self.open.clear();
            self.requests_open = 0;
            self.are_spans_lost = true;
            return;
        }
        self.cpus.clear();
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.lose_thread(tid, at));
        self.lost.get_or_insert(at);
    }

    fn lose_thread(&mut self, tid: Tid, at: Timestamp) {
        let slot = self.slot(tid);
        match &mut self.threads.at(slot).tail {
            Tail::Known(Stretch { state: State::Unknown(wake), .. }) => *wake = None,
            Tail::Known(Stretch { state: State::Ended, .. }) => {}
            Tail::AsLeft | Tail::Known(_) => {
                let path = self.step(slot, tid, First { at, how: How::Lost });
                self.go_on(slot, tid, Stretch { since: at, state: State::Unknown(None), path });
            }
        }
    }

    fn unseen_handlers(&self) -> Handlers {
        if self.lost.is_some() { Handlers::NONE } else { Handlers::UNSEEN }
    }

    fn handlers(&mut self, cpu: CpuId) -> &mut Handlers {
        let unseen = self.unseen_handlers();
        self.cpus.or_insert_with(&cpu, || unseen)
    }

    /// The register of a thread.
    #[inline]
    fn slot(&mut self, tid: Tid) -> Slot {
        let is_idle = self.is_idle();
        let Self { threads, trail, lost, ended, begin, .. } = self;
        threads.slot(&tid, || {
            if ended.contains(tid) {
                return Register::ended(*begin);
            }
            let Some(at) = *lost else { return Register::UNSEEN };
            let path = if is_idle { NOWHERE } else { trail.push(Node::Left(tid)) };
            let tail = Tail::Known(Stretch { since: at, state: State::Unknown(None), path });
            Register { first: Some(First { at, how: How::Lost }), wake: None, tail }
        })
    }

    /// Adds a node to the trail, if somebody may follow a path there.
    fn push(&mut self, node: Node) -> Id {
        if self.is_idle() { NOWHERE } else { self.trail.push(node) }
    }

    /// The path of a thread to now; `None` when it is nobody's.
    fn split(&mut self, tid: Tid, at: Timestamp) -> Option<Id> {
        let is_idle = self.is_idle();
        let Self { threads, trail, .. } = self;
        let Tail::Known(Stretch { since, state, path }) = &mut threads.get_mut(&tid)?.tail else {
            return None;
        };
        let what = match state {
            State::Running => What::Running,
            State::Unknown(None) => What::Unknown,
            _ => return None,
        };
        *path = match is_idle {
            true => NOWHERE,
            false => trail.step(Step { before: *path, tid, what, begin: *since, end: at }),
        };
        *since = at;
        Some(*path)
    }

    /// What a thread did ends here; the path of it.
    fn step(&mut self, slot: Slot, tid: Tid, first: First) -> Id {
        let is_idle = self.is_idle();
        let Self { threads, trail, waits, .. } = self;
        let register = threads.at(slot);
        let Tail::Known(Stretch { since, state, path }) = &register.tail else {
            register.first = Some(first);
            return self.push(Node::Left(tid));
        };
        if let State::Asleep(class) = state
            && matches!(first.how, How::GotCpu | How::Seen)
        {
            waits.count(tid, class, Waker::Unknown, (*since, first.at));
        }
        if is_idle {
            return NOWHERE;
        }
        let goes_on = |what| Step { before: *path, tid, what, begin: *since, end: first.at };
        match state {
            State::Running => trail.step(goes_on(What::Running)),
            State::Ready | State::New => trail.step(goes_on(What::Ready)),
            State::Unknown(Some(wake)) if first.how == How::GotCpu => {
                let (wake, slept) = (*wake, goes_on(What::Unknown));
                let ready = Step { begin: wake.at, ..goes_on(What::Ready) };
                let before = self.woken_path(tid, slept, wake);
                self.trail.step(Step { before, ..ready })
            }
            State::Unknown(_) => trail.step(goes_on(What::Unknown)),
            State::Ended => trail.push(Node::Origin(tid)),
            State::Asleep(class) => {
                trail.step(goes_on(What::Asleep(Box::new(class.clone()), Waker::Unknown)))
            }
        }
    }

    /// A thread does something else from now on.
    fn go_on(&mut self, slot: Slot, tid: Tid, stretch: Stretch) {
        self.running.retain(|(_, known)| *known != tid);
        self.threads.at(slot).tail = Tail::Known(stretch);
    }

    fn run(&mut self, (slot, tid): (Slot, Tid), since: Timestamp, path: Id, cpu: CpuId) {
        self.go_on(slot, tid, Stretch { since, state: State::Running, path });
        self.running.retain(|(on, _)| *on != cpu);
        self.running.push((cpu, tid));
    }

    fn woken(&mut self, slot: Slot, tid: Tid, wake: Wake) {
        let is_idle = self.is_idle();
        let Self { threads, waits, .. } = self;
        let register = threads.at(slot);
        let Tail::Known(Stretch { since, state, path }) = &mut register.tail else {
            register.wake.get_or_insert(wake);
            return;
        };
        let slept = |what| Step { before: *path, tid, what, begin: *since, end: wake.at };
        let slept = match state {
            State::Running | State::Ready => return,
            State::Ended => {
                let since = *since;
                let path = self.push(Node::Origin(tid));
                let state = State::Unknown(Some(wake));
                return self.go_on(slot, tid, Stretch { since, state, path });
            }
            State::Unknown(pending) => {
                pending.get_or_insert(wake);
                return;
            }
            State::New => slept(What::Ready),
            State::Asleep(class) => {
                waits.count(tid, class, wake.by, (*since, wake.at));
                match is_idle {
                    true => slept(What::Ready),
                    false => slept(What::Asleep(Box::new(class.clone()), wake.by)),
                }
            }
        };
        let path = if is_idle { NOWHERE } else { self.woken_path(tid, slept, wake) };
        self.go_on(slot, tid, Stretch { since: wake.at, state: State::Ready, path });
    }

    /// The path of a thread to its wake-up: its waker's, or through the wait where no thread woke it. A clock wakes in
    /// a handler, also where nobody recorded it.
    fn woken_path(&mut self, tid: Tid, slept: Step, wake: Wake) -> Id {
        let (Waker::Thread(_) | Waker::LeftHandler(..), Some(mut waker)) = (wake.by, wake.path)
        else {
            return self.trail.step(Step { tid, end: wake.at, ..slept });
        };
        let class = match &slept.what {
            What::Asleep(class, _) => Some((**class).clone()),
            _ => None,
        };
        let own = self.trail.step(Step { tid, end: wake.at, ..slept });
        match class {
            Some(ClassTerm::Known(Class::Timer)) => return own,
            Some(class @ ClassTerm::LeftCall(..)) => {
                let condition = Condition::Clock(class);
                waker = self.trail.push(Node::Either { condition, own, waker });
            }
            _ => {}
        }
        match wake.by {
            Waker::LeftHandler(on_left, _) => {
                let condition = Condition::Handler(on_left);
                self.trail.push(Node::Either { condition, own, waker })
            }
            _ => waker,
        }
    }

    /// A request ends of which [`Self::take`] has seen the end, or that a merge brings together.
    pub(crate) fn end_request(&mut self, ended: Ended) {
        let Some(path) = self.ending.get(&ended.tid).copied() else { return };
        self.conclude(ended, path);
    }

    /// The end of this thread's request waits for the left part.
    pub(crate) fn end_at_left(&mut self, tid: Tid) {
        if let Some(path) = self.ending.get(&tid) {
            self.ends.insert(tid, *path);
        }
    }

    fn conclude(&mut self, ended: Ended, path: Id) {
        if self.asked.request.is_some_and(|asked| ended.request != Some(asked)) {
            return;
        }
        match self.trail.walk(path, ended.tid, ended.begin, ended.end, self.most_hops()) {
            Some(walked) => self.requests.push(ended, walked),
            None => self.requests.pending.push((ended, path)),
        }
    }

    /// How many stretches of a path are kept to be drawn.
    fn most_hops(&self) -> usize {
        let is_asked = self.asked != Asked::default();
        if is_asked { MAX_ASKED_HOPS } else { MAX_HOPS }
    }

    /// The window, or the merge, is complete. Where requests of the left may be open, all of it may yet be drawn.
    pub(crate) fn settle(&mut self, of_left: bool) {
        self.running.clear();
        self.ending.clear();
        self.ended_by = None;
        self.most = 0;
        self.requests.keep_slowest();
        (self.is_outside, self.requests_open) = (false, 0);
        self.cut_down(self.needed_from(of_left));
    }

    /// From when on somebody may follow the path of a thread.
    fn needed_from(&self, of_left: bool) -> Timestamp {
        // A request whose path leads to the left boundary may go on there with any wake-up that waits for what comes before.
        let pending = self.requests.pending.iter().map(|(ended, _)| ended.begin);
        let open = self.open.values().copied().flatten();
        let begun = open.chain(pending).chain(self.asked.since).min();
        if of_left { Timestamp::MIN } else { begun.unwrap_or(Timestamp::MAX) }
    }

    /// Keeps of the trail what somebody may still follow.
    fn cut_down(&mut self, drawn_from: Timestamp) {
        let most = self.most_hops();
        let Self { trail, threads, ends, ending, requests, open, asked, .. } = self;
        let mut begins: Vec<Timestamp> =
            open.values().copied().flatten().chain(asked.since).collect();
        begins.extend(requests.pending.iter().map(|(ended, _)| ended.begin));
        begins.sort_unstable();
        begins.dedup();
        let of_threads = threads.values_mut().flat_map(Register::paths_mut);
        let of_threads = of_threads.map(|path| (path, drawn_from));
        let of_ends = ends.values_mut().chain(ending.values_mut());
        let of_ends = of_ends.map(|path| (path, Timestamp::MIN));
        let of_pending = requests.pending.iter_mut().map(|(ended, path)| (path, ended.begin));
        let mut uses: Vec<(&mut Id, Timestamp)> =
            of_threads.chain(of_ends).chain(of_pending).collect();
        let leaves: Vec<Leaf> =
            uses.iter().map(|(path, from)| Leaf { path: **path, drawn_from: *from }).collect();
        let ids = trail.keep(&leaves, &begins, most);
        for (path, _) in &mut uses {
            **path = renumbered(&ids, **path);
        }
    }

    /// Puts the left boundary's calls and files in.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.waits.resolve(left);
        self.threads.values_mut().for_each(|register| register.resolve(left));
        for node in &mut self.trail.0 {
            if let Node::Either { condition: Condition::Clock(class), .. } = node {
                *class = class.resolved(left);
            }
        }
        self.change(&|what| {
            if let What::Asleep(class, _) = what {
                **class = class.resolved(left);
            }
        });
    }

    /// Changes causes of waits that have ended where they are known to be others.
    pub(crate) fn settle_causes(&mut self, known: &impl Fn(&ClassTerm) -> Option<ClassTerm>) {
        self.waits.settle_causes(known);
        self.change(&|what| {
            if let What::Asleep(class, _) = what
                && let Some(known) = known(class)
            {
                **class = known;
            }
        });
    }

    fn change(&mut self, change: &impl Fn(&mut What)) {
        for node in &mut self.trail.0 {
            match node {
                Node::Step(step) => change(&mut step.what),
                Node::Sum { costs, .. } => change_costs(costs, change),
                Node::Left(_) | Node::Origin(_) | Node::Either { .. } => {}
            }
        }
        self.requests.change(change);
    }

    /// What the end of this says about who woke.
    fn told(&self, by: Waker) -> Waker {
        let Waker::LeftHandler(on_left, thread) = by else { return by };
        waker(self.doing(on_left), thread)
    }

    fn doing(&self, on_left: handlers::OnLeft) -> Doing {
        let unseen = self.unseen_handlers();
        self.cpus.get(&on_left.cpu).unwrap_or(&unseen).told(on_left, self.begin)
    }

    /// Whether nothing is known of a thread but that whatever had its number at the left boundary has ended.
    pub(crate) fn is_ended(&self, tid: Tid) -> bool {
        self.threads.get(&tid).is_some_and(Register::is_ended) && !self.ends.contains_key(&tid)
    }

    /// Forgets these threads, of which nothing else is known.
    pub(crate) fn forget_ended(&mut self, tids: &[Tid]) {
        for tid in tids {
            self.ended.insert(*tid);
            self.open.remove(tid);
        }
        let mut gone = tids.to_vec();
        gone.sort_unstable();
        self.threads.retain(|tid, _| gone.binary_search(tid).is_err());
        self.waits.drop_empty();
    }

    /// What wakers of the right part are called with this to the left.
    pub(crate) fn told_by<'s>(&'s self) -> impl Fn(Waker) -> Waker + use<'s> {
        |by| self.told(by)
    }

    /// Appends the window to the right. Its terms must have been resolved already. What requests end at waits for
    /// [`Self::end_request`]. Numbers that had another life at the left boundary than their last one go on with that; what
    /// was counted of their last ones comes back.
    pub(crate) fn append(
        &mut self,
        mut right: Self,
        had_another: impl Fn(Tid) -> bool,
    ) -> Keyed<Tid, WaitsOf> {
        right.waits.resolve_wakers(|by| self.told(by));
        right.change(&|what| {
            if let What::Asleep(_, by) = what {
                *by = self.told(*by);
            }
        });
        for wake in right.threads.values_mut().flat_map(Register::wakes_mut) {
            wake.by = self.told(wake.by);
        }
        let later = right.waits.take_later(had_another);
        self.waits.append(right.waits);
        for tid in right.ended.iter() {
            if let Some(mine) = self.threads.get_mut(&tid) {
                mine.end(right.begin);
                self.open.insert(tid, None);
            }
        }
        if let Some(at) = right.lost {
            let mine = self.threads.keys().filter(|tid| !right.threads.contains_key(tid));
            let unseen: Vec<Tid> = mine.copied().collect();
            unseen.into_iter().for_each(|tid| self.lose_thread(tid, at));
        }
        let ids = self.graft(right.trail, &mut right.threads);
        for (tid, mut more) in right.threads.into_entries() {
            self.replay(tid, &mut more, &ids);
            if more.tail != Tail::AsLeft {
                more.paths_mut().for_each(|path| *path = renumbered(&ids, *path));
                let slot = self.slot(tid);
                self.threads.at(slot).tail = more.tail;
            }
        }
        if right.lost.is_some() {
            self.cpus.retain(|cpu, _| right.cpus.contains_key(cpu));
        }
        for (cpu, more) in right.cpus.into_entries() {
            self.handlers(cpu).append(more);
        }
        self.lost = self.lost.or(right.lost);
        if right.are_spans_lost {
            self.open.clear();
        }
        self.are_spans_lost |= right.are_spans_lost;
        self.open.extend(right.open);
        self.asked.since = self.asked.since.or(right.asked.since);
        self.asked.request = self.asked.request.or(right.asked.request);
        self.ending = right.ends;
        self.ending.values_mut().for_each(|path| *path = renumbered(&ids, *path));
        let pending = std::mem::take(&mut right.requests.pending);
        self.requests.append(right.requests);
        for (ended, path) in pending {
            self.conclude(ended, renumbered(&ids, path));
        }
        later
    }

    /// Whether a condition of the right part holds; what must be asked further left if this part does not know.
    fn decide(&self, condition: Condition) -> Result<bool, Condition> {
        match condition {
            Condition::Handler(on_left) => match self.doing(on_left) {
                Doing::Handles(_) => Ok(true),
                Doing::Runs => Ok(false),
                Doing::AsLeft(on_left) => Err(Condition::Handler(on_left)),
            },
            Condition::Clock(ClassTerm::Known(class)) => Ok(class == Class::Timer),
            Condition::Clock(ClassTerm::File(_)) => Ok(false),
            Condition::Clock(class @ ClassTerm::LeftCall(..)) => Err(Condition::Clock(class)),
        }
    }

    /// Puts the right part's paths on top of those here, and says where each of its nodes is.
    fn graft(&mut self, right: Trail, threads: &mut Keyed<Tid, Register>) -> Vec<Option<Id>> {
        let mut ids: Vec<Option<Id>> = Vec::with_capacity(right.0.len());
        for node in right.0 {
            let id = match node {
                Node::Left(tid) => match threads.get_mut(&tid) {
                    Some(more) => self.replay(tid, more, &ids),
                    None => None,
                },
                Node::Origin(_) => Some(self.trail.push(node)),
                Node::Step(step) => {
                    let before = renumbered(&ids, step.before);
                    Some(self.trail.step(Step { before, ..step }))
                }
                Node::Sum { before, begin, end, costs } => {
                    let before = renumbered(&ids, before);
                    Some(self.trail.push(Node::Sum { before, begin, end, costs }))
                }
                Node::Either { condition, own, waker } => {
                    let (own, waker) = (renumbered(&ids, own), renumbered(&ids, waker));
                    Some(match self.decide(condition) {
                        Ok(true) => own,
                        Ok(false) => waker,
                        Err(condition) => self.trail.push(Node::Either { condition, own, waker }),
                    })
                }
            };
            ids.push(id);
        }
        ids
    }

    /// Takes what the right part waits for of a thread behind what this one knows of it; the path to where that ends.
    fn replay(&mut self, tid: Tid, more: &mut Register, ids: &[Option<Id>]) -> Option<Id> {
        if let Some(mut wake) = more.wake.take() {
            wake.path = wake.path.map(|path| renumbered(ids, path));
            let slot = self.slot(tid);
            self.woken(slot, tid, wake);
        }
        let first = more.first.take()?;
        let slot = self.slot(tid);
        Some(self.step(slot, tid, first))
    }

    #[cfg(feature = "law")]
    pub(crate) fn leave_out(&mut self, part: crate::Part) {
        use crate::Part;
        match part {
            Part::WaitFirst => self.threads.values_mut().for_each(|register| register.first = None),
            Part::WaitWake => self.threads.values_mut().for_each(|register| register.wake = None),
            Part::WaitState => {
                self.threads.values_mut().for_each(|register| register.tail = Tail::AsLeft);
            }
            Part::WaitLost => self.lost = None,
            Part::Handlers => self.cpus.clear(),
            Part::Paths => self.trail.0.clear(),
            Part::RequestEnds => self.ends.clear(),
            Part::RequestsPending => self.requests.pending.clear(),
            Part::RequestsOpen => self.open.clear(),
            Part::LeftWaits => self.waits.of_left.clear(),
            Part::Ended => self.ended.clear(),
            _ => {}
        }
    }

    /// The same with nothing to the left: nobody knows what any thread did.
    pub(crate) fn closed(&self) -> Self {
        self.closed_with(|_| false)
    }

    /// The waits with nothing to the left. Numbers that had another life at the left boundary than their last one are told
    /// apart.
    pub(crate) fn closed_waits(&self, had_another: impl Fn(Tid) -> bool) -> Waits {
        self.closed_with(had_another).waits
    }

    fn closed_with(&self, had_another: impl Fn(Tid) -> bool) -> Self {
        let mut nothing = Self { lost: Some(self.begin), ..Self::new(self.begin) };
        for tid in self.threads.keys() {
            let path = nothing.trail.push(Node::Origin(*tid));
            let since = self.begin;
            let slot = nothing.slot(*tid);
            nothing.go_on(slot, *tid, Stretch { since, state: State::Unknown(None), path });
        }
        let mut rest = self.clone();
        for node in &mut rest.trail.0 {
            // No call was in flight there.
            if let Node::Either { condition: Condition::Clock(class), .. } = node {
                *class = ClassTerm::Known(Class::Other);
            }
        }
        let later = nothing.append(rest, had_another);
        for (tid, waits) in later.into_entries() {
            let of_left = nothing.waits.take_life(tid);
            nothing.waits.of_left.insert(tid, of_left);
            nothing.waits.now.insert(tid, waits);
        }
        // Those whose path led to the left boundary have come last.
        nothing.requests.keep_slowest();
        nothing
    }

    /// Who is asleep at the end, since when and for what.
    pub(crate) fn asleep(&self) -> impl Iterator<Item = (Tid, Timestamp, &ClassTerm)> {
        self.threads.iter().filter_map(|(tid, register)| match &register.tail {
            Tail::Known(Stretch { since, state: State::Asleep(class), .. }) => {
                Some((*tid, *since, class))
            }
            _ => None,
        })
    }

    /// The path of a thread from the end, at `until`, back to a time. `None` when it is as at the left boundary or ended.
    pub(crate) fn of_thread(
        mut self,
        tid: Tid,
        from: Timestamp,
        until: Timestamp,
    ) -> Option<Walked> {
        let slot = self.threads.find(&tid)?;
        match &self.threads.at(slot).tail {
            Tail::AsLeft | Tail::Known(Stretch { state: State::Ended, .. }) => return None,
            Tail::Known(_) => {}
        }
        let path = self.step(slot, tid, First { at: until, how: How::Lost });
        self.trail.walk(path, tid, from, until, self.most_hops())
    }
}

/// The number that a node has after it was moved; one that no node has when it is not there.
fn renumbered(ids: &[Option<Id>], id: Id) -> Id {
    let n = usize::try_from(id).ok();
    n.and_then(|n| ids.get(n).copied().flatten()).unwrap_or(NOWHERE)
}

fn waker(doing: Doing, thread: Option<Tid>) -> Waker {
    match doing {
        Doing::Handles(line) => Waker::Handler(line),
        Doing::AsLeft(on_left) => Waker::LeftHandler(on_left, thread),
        Doing::Runs => Waker::of(thread),
    }
}
