//! Waits that have ended: how long each thread slept for which cause, and who ended it.

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::handlers::OnLeft;
use crate::call::ClassTerm;
use crate::fact::Line;
use crate::fold::{Histogram, Item, Sieve, Stat};
use crate::ident::Left;
use crate::keyed::Keyed;
use crate::select::Logged;

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Waker {
    /// The thread on the CPU where it happened; [`Tid::IDLE`] for a CPU that had nothing to do.
    Thread(Tid),
    /// The innermost handler of the CPU where it happened.
    Handler(Line),
    /// A handler of the left boundary, and if there was none this thread, if it is known.
    LeftHandler(OnLeft, Option<Tid>),
    /// Nobody saw the wake-up, or nobody knows its thread.
    Unknown,
}

impl Waker {
    pub(super) fn of(thread: Option<Tid>) -> Self {
        thread.map_or(Self::Unknown, Self::Thread)
    }
}

/// Waits of one thread for one cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitRow {
    pub(crate) ns: Stat,
    pub(crate) lengths: Histogram,
}

/// Waits of one life of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitsOf {
    /// Bound: causes; one that is still a file without a name is one of its own.
    pub(crate) causes: Keyed<ClassTerm, WaitRow>,
    /// Bound: threads that woke this one.
    pub(crate) wakers: Keyed<Waker, Stat>,
}

/// Waits by thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waits {
    /// Of the last life of each number. Bound: threads.
    pub(crate) now: Keyed<Tid, WaitsOf>,
    /// Of the life that a number had at the left boundary, when that is another one. Bound: threads that lived there.
    pub(crate) of_left: Keyed<Tid, WaitsOf>,
    /// What is logged is given away before a summary is written.
    #[serde(skip)]
    pub(crate) sieve: Sieve<Wait>,
}

/// One wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) tid: Tid,
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) class: ClassTerm,
    pub(crate) waker: Waker,
}

impl Item for Wait {
    fn begin(&self) -> Timestamp {
        self.begin
    }

    fn end(&self) -> Timestamp {
        self.end
    }

    fn is_in(&self, log: Logged) -> bool {
        log == Logged::Waits
    }

    fn tid(&self) -> Option<Tid> {
        Some(self.tid)
    }
}

impl WaitRow {
    pub(crate) fn append(&mut self, more: &Self) {
        self.ns.append(&more.ns);
        self.lengths.append(&more.lengths);
    }
}

impl WaitsOf {
    pub(crate) fn is_empty(&self) -> bool {
        self.causes.is_empty() && self.wakers.is_empty()
    }

    fn count(&mut self, class: &ClassTerm, waker: Waker, ns: u64) {
        let row = self.causes.or_default(class);
        row.ns.take(ns);
        row.lengths.take(ns);
        self.wakers.or_default(&waker).take(ns);
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        let is_settled = |class: &ClassTerm| matches!(class, ClassTerm::Known(_));
        let add = |row: &mut WaitRow, more: WaitRow| row.append(&more);
        self.causes.rekey(is_settled, |class| *class = class.resolved(left), add);
    }

    /// Takes no more room than it needs.
    pub(crate) fn shrink(&mut self) {
        self.causes.shrink();
        self.wakers.shrink();
    }

    /// Changes causes that are known to be others.
    pub(crate) fn settle_causes(&mut self, known: &impl Fn(&ClassTerm) -> Option<ClassTerm>) {
        let add = |row: &mut WaitRow, more: WaitRow| row.append(&more);
        let change = |class: &mut ClassTerm| {
            if let Some(known) = known(class) {
                *class = known;
            }
        };
        self.causes.rekey(|class| known(class).is_none(), change, add);
    }

    /// Puts in who woke where the left boundary's handlers decide.
    pub(crate) fn resolve_wakers(&mut self, told: impl Fn(Waker) -> Waker) {
        let is_settled = |waker: &Waker| !matches!(waker, Waker::LeftHandler(..));
        let add = |stat: &mut Stat, more: Stat| stat.append(&more);
        self.wakers.rekey(is_settled, |waker| *waker = told(*waker), add);
    }

    pub(crate) fn append(&mut self, more: &Self) {
        for (class, row) in more.causes.iter_unordered() {
            self.causes.or_default(class).append(row);
        }
        for (waker, stat) in more.wakers.iter_unordered() {
            self.wakers.or_default(waker).append(stat);
        }
    }
}

impl Waits {
    pub(super) fn count(
        &mut self,
        tid: Tid,
        class: &ClassTerm,
        waker: Waker,
        (begin, end): (Timestamp, Timestamp),
    ) {
        self.sieve.note(Logged::Waits, || Wait { tid, begin, end, class: class.clone(), waker });
        self.now.or_default(&tid).count(class, waker, end.since(begin).get());
    }

    /// The same, and nothing counted.
    pub(super) fn emptied(&self) -> Self {
        Self { sieve: self.sieve.emptied(), ..Self::default() }
    }

    pub(super) fn resolve(&mut self, left: &impl Left) {
        for wait in self.sieve.logged_mut() {
            wait.class = wait.class.resolved(left);
        }
        self.all_mut().for_each(|waits| waits.resolve(left));
    }

    pub(super) fn resolve_wakers(&mut self, told: impl Fn(Waker) -> Waker) {
        for wait in self.sieve.logged_mut() {
            wait.waker = told(wait.waker);
        }
        self.all_mut().for_each(|waits| waits.resolve_wakers(&told));
    }

    pub(super) fn settle_causes(&mut self, known: &impl Fn(&ClassTerm) -> Option<ClassTerm>) {
        self.all_mut().for_each(|waits| waits.settle_causes(known));
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut WaitsOf> {
        self.now.values_mut().chain(self.of_left.values_mut())
    }

    /// Forgets numbers of which nothing was counted.
    pub(super) fn drop_empty(&mut self) {
        self.now.retain(|_, waits| !waits.is_empty());
    }

    /// Takes out what was counted of a life that ends.
    pub(crate) fn take_life(&mut self, tid: Tid) -> WaitsOf {
        self.now.get_mut(&tid).map(std::mem::take).unwrap_or_default()
    }

    /// Takes out what was counted of the last lives of those numbers that had another one at the left boundary; what is left
    /// continues lives of the left.
    pub(super) fn take_later(&mut self, had_another: impl Fn(Tid) -> bool) -> Keyed<Tid, WaitsOf> {
        let mut later = Keyed::new();
        for (tid, waits) in self.now.iter_mut().filter(|(tid, _)| had_another(**tid)) {
            later.insert(*tid, std::mem::take(waits));
        }
        for (tid, waits) in std::mem::take(&mut self.of_left).into_entries() {
            self.now.insert(tid, waits);
        }
        later
    }

    pub(super) fn append(&mut self, right: Self) {
        self.sieve.append(right.sieve);
        let mut now = right.now;
        now.retain(|_, waits| !waits.is_empty());
        self.now.add_all(now, |waits, more| waits.append(&more));
    }
}
