//! Waits that have ended: how long each thread slept for which cause, and who ended it.

use std::collections::BTreeMap;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use super::handlers::OnLeft;
use crate::call::{ClassTerm, resolve_keys};
use crate::fact::Line;
use crate::fold::{Histogram, Item, Sieve, Stat};
use crate::ident::Left;
use crate::keyed::Keyed;
use crate::select::Logged;

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// Waits by thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waits {
    /// Bound: threads times causes; a cause that is still a file without a name is one of its own.
    pub(crate) causes: Keyed<Tid, BTreeMap<ClassTerm, WaitRow>>,
    /// Bound: pairs of threads of which one woke the other.
    pub(crate) wakers: Keyed<Tid, BTreeMap<Waker, Stat>>,
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

impl Waits {
    pub(super) fn count(
        &mut self,
        tid: Tid,
        class: &ClassTerm,
        waker: Waker,
        (begin, end): (Timestamp, Timestamp),
    ) {
        let ns = end.since(begin).get();
        self.sieve.note(Logged::Waits, || Wait { tid, begin, end, class: class.clone(), waker });
        let causes = self.causes.or_default(&tid);
        let row = match causes.get_mut(class) {
            Some(row) => row,
            None => causes.entry(class.clone()).or_default(),
        };
        row.ns.take(ns);
        row.lengths.take(ns);
        self.wakers.or_default(&tid).entry(waker).or_default().take(ns);
    }

    /// The same, and nothing counted.
    pub(super) fn emptied(&self) -> Self {
        Self { sieve: self.sieve.emptied(), ..Self::default() }
    }

    pub(super) fn resolve(&mut self, left: &impl Left) {
        for wait in self.sieve.logged_mut() {
            wait.class = wait.class.resolved(left);
        }
        for causes in self.causes.values_mut() {
            let add = |row: &mut WaitRow, more: WaitRow| row.append(&more);
            resolve_keys(causes, |class| *class = class.resolved(left), add);
        }
    }

    /// Puts in who woke where the left boundary's handlers decide.
    pub(super) fn resolve_wakers(&mut self, told: impl Fn(Waker) -> Waker) {
        for wait in self.sieve.logged_mut() {
            wait.waker = told(wait.waker);
        }
        for wakers in self.wakers.values_mut() {
            let add = |stat: &mut Stat, more: Stat| stat.append(&more);
            resolve_keys(wakers, |waker| *waker = told(*waker), add);
        }
    }

    pub(super) fn append(&mut self, right: Self) {
        self.sieve.append(right.sieve);
        for (tid, causes) in right.causes.into_entries() {
            let mine = self.causes.or_default(&tid);
            for (class, row) in causes {
                mine.entry(class).or_default().append(&row);
            }
        }
        for (tid, wakers) in right.wakers.into_entries() {
            let mine = self.wakers.or_default(&tid);
            for (waker, stat) in wakers {
                mine.entry(waker).or_default().append(&stat);
            }
        }
    }
}
