//! One thread: what it does with its time, the call it is in, its open spans.
//!
//! Each register is either known in the window or "as at the left boundary". Time is counted when a stretch ends: the
//! stretch that lies across the left boundary is counted when the left part is appended to, and what the window knows
//! about its end (who came, who had the CPU since the boundary) waits in [`First`] and [`Wake`].

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{Class, ClassTerm, InFlight, Sleep};
use crate::cpu::{ByCpu, CpuSwitches, Occupancy, SwitchLog};
use crate::fact::LeftAs;
use crate::fold::Counted;
use crate::ident::Left;
use crate::lives::{Begin, LeftLife};
use crate::spent::{Doing, add_ns};
use crate::stack::{Outcome, Stack};
use crate::taint::Taint;

/// What a window knows about a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thread {
    /// The end of the stretch that lies across the left boundary.
    first: Option<Box<First>>,
    /// The first wake-up before `first`: it counts if the thread was blocked at the left boundary.
    wake: Option<Box<Wake>>,
    state: State,
    /// When it was last seen on a CPU, or born.
    seen: Option<Timestamp>,
    pub(crate) call: InFlight,
    pub(crate) stack: Stack,
    /// The last command name of the number's last life; `None` when nothing tells.
    pub(crate) comm: Option<Arc<str>>,
    /// What was counted of the last life.
    pub(crate) counted: Counted,
    /// When the last life began.
    pub(crate) begin: Begin,
    /// The life of the left boundary, when that is another one.
    pub(crate) left_life: Option<Box<LeftLife>>,
}

/// CPUs whose events were lost while the left part's thread was on them, and when.
pub(crate) type LostOn = BTreeMap<CpuId, Timestamp>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct First {
    at: Timestamp,
    how: How,
    /// CPUs whose events were lost, before this, while the thread last seen on them was one of the left part.
    after_loss_on: Vec<CpuId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum How {
    /// The thread got this CPU, which others had since the first switch of the window as given.
    GotCpu(CpuId, Occupancy),
    /// The thread was seen running.
    Seen,
    /// A switch took this CPU from it; what it did until then nobody knows if events of the CPU were lost before.
    LeftCpu(CpuId),
    /// Nobody knows what the thread did until now.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wake {
    since: Timestamp,
    /// Who had each CPU since then: the CPU that the thread got, or all when it got none in the window.
    by_cpu: ByCpu,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    AsLeft,
    Running {
        since: Timestamp,
        cpu: CpuId,
    },
    Waiting {
        since: Timestamp,
        /// Who had each CPU since then, complete at the end of a window; while it is read, as far as the switches are not kept. Bound: CPUs times threads that ran.
        by_cpu: ByCpu,
    },
    Blocked {
        since: Timestamp,
        class: ClassTerm,
    },
    Unknown {
        since: Timestamp,
    },
}

/// The switches of two neighbouring windows and the losses of the left one.
pub(crate) struct Neighbours<'a> {
    pub(crate) left: &'a BTreeMap<CpuId, CpuSwitches>,
    pub(crate) right: &'a BTreeMap<CpuId, CpuSwitches>,
    pub(crate) lost_in_left: &'a LostOn,
}

impl Thread {
    /// A thread as it was at the left boundary, with these spans open.
    pub(crate) fn as_left(stack: Stack, counted: Counted) -> Self {
        Self {
            first: None,
            wake: None,
            state: State::AsLeft,
            seen: None,
            call: InFlight::AS_LEFT,
            stack,
            comm: None,
            counted,
            begin: Begin::AsLeft,
            left_life: None,
        }
    }

    /// Of a number whose thread ended further left, or further left in the window, and that nobody has since.
    pub(crate) fn ended(stack: Stack, counted: Counted, at: Timestamp) -> Self {
        let mut thread = Self::as_left(stack, counted);
        thread.begin = Begin::Seen(at);
        thread.lose(at, &LostOn::new());
        thread.end(at);
        thread
    }

    /// The thread ends. What was counted of it must have been taken out.
    pub(crate) fn end(&mut self, at: Timestamp) -> Outcome {
        self.call = InFlight::Nothing;
        self.state = State::Unknown { since: at };
        // So that it is found in no time in which events of a CPU are missing.
        self.seen = Some(Timestamp::MIN);
        self.counted.latencies.off();
        self.stack.abandon()
    }

    /// Whether nothing is known but that whatever had the number at the left boundary has ended.
    pub(crate) fn is_ended(&self) -> bool {
        let Self { first, wake, state, seen, call, stack, comm, counted, begin, left_life } = self;
        *begin != Begin::AsLeft
            && left_life.as_ref().is_none_or(|life| life.is_empty())
            && comm.is_none()
            && counted.is_empty()
            && counted.latencies.is_forgotten()
            && *call == InFlight::Nothing
            && *seen == Some(Timestamp::MIN)
            && matches!(state, State::Unknown { .. })
            && first.as_ref().is_some_and(|first| first.how == How::Lost)
            && wake.is_none()
            && stack.is_ended()
    }

    /// When it was last seen on a CPU, or born, in the window.
    pub(crate) fn seen(&self) -> Option<Timestamp> {
        self.seen
    }

    /// Whether it is on that CPU, as far as the window knows.
    pub(crate) fn runs_on(&self, on: CpuId) -> bool {
        matches!(self.state, State::Running { cpu, .. } if cpu == on)
    }

    /// Whether the loss of events on `cpu` came before anything this window saw the thread do.
    pub(crate) fn first_is_after_loss_on(&self, cpu: CpuId) -> bool {
        self.first.as_ref().is_none_or(|first| first.after_loss_on.contains(&cpu))
    }

    pub(crate) fn got_cpu(&mut self, at: Timestamp, cpu: CpuId, log: &SwitchLog, lost: &LostOn) {
        match &mut self.state {
            State::AsLeft => {
                let is_counted = self.stack.collects();
                let so_far = if is_counted { log.so_far(cpu) } else { Occupancy::new() };
                self.arrive_first(at, How::GotCpu(cpu, so_far), lost);
                if let Some(wake) = self.wake.as_mut().filter(|_| is_counted) {
                    let mut occupancy = wake.by_cpu.remove(&cpu).unwrap_or_default();
                    log.add_since(cpu, wake.since, &mut occupancy);
                    wake.by_cpu = ByCpu::from([(cpu, occupancy)]);
                }
            }
            State::Waiting { since, by_cpu } if self.stack.collects() => {
                let mut occupancy = by_cpu.remove(&cpu).unwrap_or_default();
                log.add_since(cpu, *since, &mut occupancy);
                self.blame(occupancy);
                self.spend_until(at);
            }
            _ => self.spend_until(at),
        }
        self.state = State::Running { since: at, cpu };
        self.seen = Some(at);
    }

    /// Seen running; on no CPU when no scheduler events cover this moment.
    pub(crate) fn see(&mut self, at: Timestamp, cpu: Option<CpuId>, lost: &LostOn) {
        self.seen = Some(at);
        self.end_stretch(at, lost);
        self.state = match cpu {
            Some(cpu) => State::Running { since: at, cpu },
            None => State::Unknown { since: at },
        };
    }

    /// A switch takes a CPU from it. `taint`: whether events of that CPU are missing in which it may have got there.
    pub(crate) fn left_cpu(
        &mut self,
        (tid, taint): (Tid, Taint),
        at: Timestamp,
        left_as: LeftAs,
        lost: &LostOn,
    ) {
        match (taint, &self.state) {
            (Taint::Certain, _) => self.lose(at, lost),
            (Taint::IfLostOn(cpu), State::AsLeft) => {
                self.arrive_first(at, How::LeftCpu(cpu), lost);
                self.call.taint_as(taint);
            }
            (Taint::None | Taint::IfLostOn(_), _) => self.end_stretch(at, lost),
        }
        self.seen = Some(at);
        self.state = match left_as {
            LeftAs::Preempted => State::Waiting { since: at, by_cpu: ByCpu::new() },
            LeftAs::Interruptible | LeftAs::Uninterruptible if self.stack.collects() => {
                State::Blocked { since: at, class: self.call.class(tid, Sleep::of(left_as)) }
            }
            // Nobody asks for what: a stretch counts in spans, and none can begin while the thread sleeps.
            LeftAs::Interruptible | LeftAs::Uninterruptible | LeftAs::Dead => {
                State::Blocked { since: at, class: ClassTerm::Known(Class::Other) }
            }
        };
    }

    pub(crate) fn woken(&mut self, at: Timestamp) {
        match &self.state {
            State::AsLeft => {
                self.wake.get_or_insert_with(|| Box::new(Wake { since: at, by_cpu: ByCpu::new() }));
            }
            State::Blocked { .. } => {
                self.spend_until(at);
                self.state = State::Waiting { since: at, by_cpu: ByCpu::new() };
            }
            State::Running { .. } | State::Waiting { .. } | State::Unknown { .. } => {}
        }
    }

    /// Events are missing: nobody knows what it did in this stretch, nor whether its call ended.
    pub(crate) fn lose(&mut self, at: Timestamp, lost: &LostOn) {
        if self.state == State::AsLeft {
            self.arrive_first(at, How::Lost, lost);
        } else {
            self.lose_stretch(at);
        }
        self.state = State::Unknown { since: at };
        self.call.taint();
    }

    /// Starts another life under the same number.
    pub(crate) fn born(&mut self, at: Timestamp, lost: &LostOn) -> Outcome {
        let outcome = self.stack.abandon();
        self.lose(at, lost);
        self.state = State::Blocked { since: at, class: ClassTerm::Known(Class::Other) };
        self.call = InFlight::Birth;
        self.seen = Some(at);
        outcome
    }

    /// Notes who had the CPUs up to their last switches for a wait that goes on.
    pub(crate) fn note_cpus(&mut self, log: &SwitchLog) {
        if !self.stack.collects() {
            return;
        }
        match (&mut self.state, self.wake.as_deref_mut()) {
            (State::Waiting { since, by_cpu }, _)
            | (State::AsLeft, Some(Wake { since, by_cpu })) => log.add_all_since(*since, by_cpu),
            _ => {}
        }
    }

    fn arrive_first(&mut self, at: Timestamp, how: How, lost: &LostOn) {
        let after_loss_on = lost.keys().copied().collect();
        self.first = Some(Box::new(First { at, how, after_loss_on }));
    }

    fn end_stretch(&mut self, at: Timestamp, lost: &LostOn) {
        if self.state == State::AsLeft {
            self.arrive_first(at, How::Seen, lost);
        } else {
            self.spend_until(at);
        }
    }

    fn spend_until(&mut self, at: Timestamp) {
        let Some(spent) = self.stack.top() else { return };
        let (since, doing) = match &self.state {
            State::AsLeft => return,
            State::Running { since, .. } => (*since, Doing::Running),
            State::Waiting { since, .. } => (*since, Doing::Waiting),
            State::Blocked { since, class } => (*since, Doing::Blocked(class)),
            State::Unknown { since } => (*since, Doing::Unknown),
        };
        spent.times.time(doing, at.since(since));
    }

    fn lose_stretch(&mut self, at: Timestamp) {
        let since = match &self.state {
            State::AsLeft => return,
            State::Running { since, .. }
            | State::Waiting { since, .. }
            | State::Blocked { since, .. }
            | State::Unknown { since } => *since,
        };
        if let Some(spent) = self.stack.top() {
            spent.times.time(Doing::Unknown, at.since(since));
        }
    }

    fn blame(&mut self, occupancy: Occupancy) {
        if let Some(spent) = self.stack.top() {
            add_ns(&mut spent.waited_for_ns, occupancy);
        }
    }

    #[cfg(feature = "law")]
    pub(crate) fn leave_out(&mut self, part: crate::Part) {
        use crate::Part;
        match (part, &mut self.first, &mut self.state) {
            (Part::FirstSight, first, _) => *first = None,
            (Part::FirstWake, ..) => self.wake = None,
            (Part::LossBeforeSight, Some(first), _) => first.after_loss_on.clear(),
            (Part::State, _, state) => *state = State::AsLeft,
            (Part::LastSeen, ..) => self.seen = None,
            (Part::WaitingFor, _, State::Waiting { by_cpu, .. }) => by_cpu.clear(),
            (Part::CallInFlight, ..) => self.call = InFlight::AS_LEFT,
            (Part::LifeBegins, ..) => self.begin = Begin::AsLeft,
            (Part::LeftLives, ..) => self.left_life = None,
            _ => self.stack.leave_out(part),
        }
    }

    /// Puts the state at the left boundary into the terms.
    pub(crate) fn resolve(&mut self, tid: Tid, left: &impl Left) {
        if let State::Blocked { class, .. } = &mut self.state {
            *class = class.resolved(left);
        }
        self.call.resolve(tid, left);
        if let Some(First { how, .. }) = self.first.as_deref_mut()
            && let How::LeftCpu(cpu) = how
        {
            match left.taint_of(tid, *cpu) {
                Taint::Certain => *how = How::Lost,
                Taint::None => *how = How::Seen,
                Taint::IfLostOn(_) => {}
            }
        }
        self.stack.resolve(left);
    }

    /// Appends what the window to the right knows. Its terms must have been resolved already.
    /// What was counted of it is appended beside, and so are lives.
    pub(crate) fn append(&mut self, right: Self, cpus: &Neighbours<'_>) -> Outcome {
        if self.state == State::AsLeft {
            self.append_head(right.first, right.wake, cpus);
            self.state = right.state;
        } else {
            self.cross(right.wake, right.first.as_deref(), cpus);
            if let Some(first) = right.first {
                self.end_crossing(*first);
                self.state = right.state;
            }
        }
        self.call.append(right.call);
        self.seen = right.seen.or(self.seen);
        self.stack.append(right.stack)
    }

    /// Appends a window in which this thread does not occur.
    pub(crate) fn append_absence(&mut self, cpus: &Neighbours<'_>) {
        if !self.stack.collects() {
            return;
        }
        match (&mut self.state, self.wake.as_deref_mut()) {
            (State::Waiting { since, by_cpu }, _)
            | (State::AsLeft, Some(Wake { since, by_cpu })) => {
                cpus.wait_through(*since, None, by_cpu);
            }
            _ => {}
        }
    }

    /// Neither window knows the state at the left boundary: one head of two.
    fn append_head(
        &mut self,
        first: Option<Box<First>>,
        wake: Option<Box<Wake>>,
        cpus: &Neighbours<'_>,
    ) {
        let is_counted = self.stack.collects();
        match &mut self.wake {
            None => self.wake = wake,
            Some(mine) if is_counted => {
                cpus.wait_through(mine.since, first.as_deref(), &mut mine.by_cpu);
            }
            Some(_) => {}
        }
        self.first = first.map(|mut first| {
            if let How::GotCpu(cpu, occupancy) = &mut first.how
                && is_counted
                && let (Some(left), Some(right)) = (cpus.left.get(cpu), cpus.right.get(cpu))
            {
                *occupancy = left.up_to(right, occupancy);
            }
            first.after_loss_on.extend(cpus.lost_in_left.keys());
            first.after_loss_on.sort_unstable();
            first.after_loss_on.dedup();
            first
        });
    }

    /// Carries a stretch that the left window left open on to its end in the right window, or through it.
    fn cross(&mut self, wake: Option<Box<Wake>>, first: Option<&First>, cpus: &Neighbours<'_>) {
        match (&mut self.state, wake) {
            (State::Blocked { .. }, Some(wake)) => {
                self.spend_until(wake.since);
                self.state = State::Waiting { since: wake.since, by_cpu: wake.by_cpu };
            }
            (State::Waiting { since, by_cpu }, _) if self.stack.collects() => {
                cpus.wait_through(*since, first, by_cpu);
            }
            _ => {}
        }
    }

    fn end_crossing(&mut self, first: First) {
        match (first.how, &mut self.state) {
            (How::GotCpu(cpu, _), State::Waiting { by_cpu, .. }) => {
                let occupancy = by_cpu.remove(&cpu).unwrap_or_default();
                self.blame(occupancy);
                self.spend_until(first.at);
            }
            (How::Lost, _) => self.lose_stretch(first.at),
            _ => self.spend_until(first.at),
        }
    }
}

impl Neighbours<'_> {
    /// Adds who had the CPUs in the right window to a wait that began before it: until the thread got one, or all through.
    fn wait_through(&self, since: Timestamp, first: Option<&First>, by_cpu: &mut ByCpu) {
        let mut add = |cpu: &CpuId, switches: &CpuSwitches, until: &Occupancy| {
            let mut occupancy = by_cpu.remove(cpu).unwrap_or_default();
            switches.add_gap(since, self.left.get(cpu), &mut occupancy);
            add_ns(&mut occupancy, until.clone());
            if !occupancy.is_empty() {
                by_cpu.insert(*cpu, occupancy);
            }
        };
        match first.map(|first| &first.how) {
            None => {
                for (cpu, switches) in self.right {
                    add(cpu, switches, switches.between());
                }
            }
            Some(How::GotCpu(cpu, occupancy)) => {
                if let Some(switches) = self.right.get(cpu) {
                    add(cpu, switches, occupancy);
                }
                by_cpu.retain(|other, _| other == cpu);
            }
            Some(How::Seen | How::Lost | How::LeftCpu(_)) => by_cpu.clear(),
        }
    }
}
