//! Who waits for whom: waits by cause and by who ended them.
//!
//! A thread's wait begins when it leaves a CPU asleep and ends with its first wake-up, or where it is seen running without
//! one. The waker is the thread on the CPU where the wake-up happened, unless that CPU was handling an interrupt. What lies
//! across the left boundary is settled by replaying the first wake-up and the first sight of each thread behind the left
//! part: so a merge takes the same steps as a window that holds both.
//!
//! Where kernel events are lost, on any CPU, nobody knows what any thread does until it is seen again: a wait is certain or
//! it is not counted.

mod handlers;
mod register;
mod waits;

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::ClassTerm;
use crate::fact::{Fact, FactKind, LeftAs, Missing};
use crate::ident::Left;

use handlers::{Doing, Handlers};
use register::{First, How, Register, State, Stretch, Tail, Wake};
pub(crate) use waits::{WaitRow, Waits, Waker};

/// Waits of one window, and what it leaves open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Paths {
    pub(crate) waits: Waits,
    /// Bound: threads seen.
    threads: BTreeMap<Tid, Register>,
    cpus: BTreeMap<CpuId, Handlers>,
    /// The left boundary.
    begin: Timestamp,
    /// When kernel events were first lost: no thread or CPU that is not listed is as at the left boundary.
    lost: Option<Timestamp>,
    /// Threads that are known to run, so that most events need no look at their register. Bound: CPUs.
    #[serde(skip)]
    running: Vec<(CpuId, Tid)>,
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
            threads: BTreeMap::new(),
            cpus: BTreeMap::new(),
            begin,
            lost: None,
            running: Vec::new(),
        }
    }

    /// A stretch of time that nobody recorded.
    pub(crate) fn gap(at: Timestamp) -> Self {
        let mut gap = Self::new(at);
        gap.lose(Missing::KernelEverywhere, at);
        gap
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
            (FactKind::Fork { child, .. }, _) => self.born(child, at),
            (FactKind::Wakeup { tid, .. }, Some(cpu)) => {
                let by = self.waker(cpu, at, thread);
                self.woken(tid, Wake { at, by });
            }
            (FactKind::IrqEntry { line, .. }, Some(cpu)) => self.handlers(cpu).enter(line, at),
            (FactKind::IrqExit { .. }, Some(cpu)) => self.handlers(cpu).exit(),
            (FactKind::CallEntry { .. } | FactKind::CallExit { .. }, Some(cpu)) => {
                self.handlers(cpu).clear();
            }
            _ => {}
        }
    }

    /// A thread leaves its CPU.
    pub(crate) fn leave(&mut self, tid: Tid, at: Timestamp, leaves: Leaves) {
        self.step(tid, First { at, how: How::Seen });
        let state = match leaves {
            Leaves::Ready => State::Ready,
            Leaves::Asleep(class) => State::Asleep(class),
            Leaves::Ended => State::Ended,
        };
        self.go_on(tid, at, state);
    }

    /// A CPU goes to a thread, after the one before has left it.
    pub(crate) fn switch(&mut self, cpu: CpuId, at: Timestamp, next: Tid) {
        self.handlers(cpu).clear();
        if next != Tid::IDLE {
            self.step(next, First { at, how: How::GotCpu });
            self.run(next, at, cpu);
        }
    }

    fn see(&mut self, tid: Tid, at: Timestamp, cpu: Option<CpuId>) {
        if cpu.is_some_and(|cpu| self.running.contains(&(cpu, tid))) {
            return;
        }
        self.step(tid, First { at, how: How::Seen });
        match cpu {
            Some(cpu) => self.run(tid, at, cpu),
            None => self.go_on(tid, at, State::Unknown(None)),
        }
    }

    fn born(&mut self, child: Tid, at: Timestamp) {
        self.step(child, First { at, how: How::Born });
        self.go_on(child, at, State::New);
    }

    fn waker(&mut self, cpu: CpuId, at: Timestamp, thread: Option<Tid>) -> Waker {
        let begin = self.begin;
        waker(self.handlers(cpu).doing(cpu, at, begin), thread)
    }

    /// Kernel events are missing.
    fn lose(&mut self, what: Missing, at: Timestamp) {
        if what == Missing::Spans {
            return;
        }
        self.cpus.clear();
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.lose_thread(tid, at));
        self.lost.get_or_insert(at);
    }

    fn lose_thread(&mut self, tid: Tid, at: Timestamp) {
        let register = self.register(tid);
        if matches!(&register.tail, Tail::Known(stretch) if stretch.state == State::Ended) {
            return;
        }
        self.step(tid, First { at, how: How::Lost });
        self.go_on(tid, at, State::Unknown(None));
    }

    fn unseen_handlers(&self) -> Handlers {
        if self.lost.is_some() { Handlers::NONE } else { Handlers::UNSEEN }
    }

    fn handlers(&mut self, cpu: CpuId) -> &mut Handlers {
        let unseen = self.unseen_handlers();
        self.cpus.entry(cpu).or_insert(unseen)
    }

    fn register(&mut self, tid: Tid) -> &mut Register {
        let lost = self.lost;
        self.threads.entry(tid).or_insert_with(|| lost.map_or(Register::UNSEEN, Register::lost))
    }

    /// What a thread did ends here.
    fn step(&mut self, tid: Tid, first: First) {
        let register = self.register(tid);
        let Tail::Known(Stretch { since, state }) = &register.tail else {
            register.first = Some(first);
            return;
        };
        if let (State::Asleep(class), How::GotCpu | How::Seen) = (state, first.how) {
            let ns = first.at.since(*since).get();
            let class = class.clone();
            self.waits.count(tid, &class, Waker::Unknown, ns);
        }
    }

    /// A thread does something else from now on.
    fn go_on(&mut self, tid: Tid, since: Timestamp, state: State) {
        self.running.retain(|(_, known)| *known != tid);
        self.register(tid).tail = Tail::Known(Stretch { since, state });
    }

    fn run(&mut self, tid: Tid, since: Timestamp, cpu: CpuId) {
        self.go_on(tid, since, State::Running);
        self.running.retain(|(on, _)| *on != cpu);
        self.running.push((cpu, tid));
    }

    fn woken(&mut self, tid: Tid, wake: Wake) {
        let register = self.register(tid);
        let Tail::Known(Stretch { since, state }) = &mut register.tail else {
            register.wake.get_or_insert(wake);
            return;
        };
        match state {
            State::Running | State::Ready | State::Ended => {}
            State::Unknown(pending) => {
                pending.get_or_insert(wake);
            }
            State::New => self.go_on(tid, wake.at, State::Ready),
            State::Asleep(class) => {
                let ns = wake.at.since(*since).get();
                let class = class.clone();
                self.waits.count(tid, &class, wake.by, ns);
                self.go_on(tid, wake.at, State::Ready);
            }
        }
    }

    /// The window is complete.
    pub(crate) fn settle(&mut self) {
        self.running.clear();
    }

    /// Puts the left boundary's calls and files in.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.waits.resolve(left);
        self.threads.values_mut().for_each(|register| register.resolve(left));
    }

    /// What the end of this says about who woke.
    fn told(&self, by: Waker) -> Waker {
        let Waker::LeftHandler(on_left, thread) = by else { return by };
        let unseen = self.unseen_handlers();
        let handlers = self.cpus.get(&on_left.cpu).unwrap_or(&unseen);
        waker(handlers.told(on_left, self.begin), thread)
    }

    /// Appends the window to the right. Its terms must have been resolved already.
    pub(crate) fn append(&mut self, mut right: Self) {
        right.waits.resolve_wakers(|by| self.told(by));
        self.waits.append(right.waits);
        for wake in right.threads.values_mut().flat_map(Register::wakes_mut) {
            wake.by = self.told(wake.by);
        }
        if let Some(at) = right.lost {
            let mine = self.threads.keys().filter(|tid| !right.threads.contains_key(tid));
            let unseen: Vec<Tid> = mine.copied().collect();
            unseen.into_iter().for_each(|tid| self.lose_thread(tid, at));
        }
        for (tid, more) in right.threads {
            self.continue_as(tid, more);
        }
        if right.lost.is_some() {
            self.cpus.retain(|cpu, _| right.cpus.contains_key(cpu));
        }
        for (cpu, more) in right.cpus {
            self.handlers(cpu).append(more);
        }
        self.lost = self.lost.or(right.lost);
    }

    fn continue_as(&mut self, tid: Tid, more: Register) {
        if let Some(wake) = more.wake {
            self.woken(tid, wake);
        }
        if let Some(first) = more.first {
            self.step(tid, first);
        }
        if more.tail != Tail::AsLeft {
            self.register(tid).tail = more.tail;
        }
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
            _ => {}
        }
    }

    /// The same with nothing to the left: nobody knows what any thread did.
    pub(crate) fn closed(&self) -> Self {
        let mut nothing = Self { lost: Some(self.begin), ..Self::new(self.begin) };
        nothing.append(self.clone());
        nothing
    }
}

fn waker(doing: Doing, thread: Option<Tid>) -> Waker {
    match doing {
        Doing::Handles(line) => Waker::Handler(line),
        Doing::AsLeft(on_left) => Waker::LeftHandler(on_left, thread),
        Doing::Runs => Waker::of(thread),
    }
}
