//! Lives of threads that began and ended: the ones with the most CPU time one by one, the others by name.
//!
//! A number is a thread's name only while the thread lives: fork may give it to another one. A life ends where its thread
//! leaves its last CPU, or where fork gives its number away; what is seen of the number after that is another life.
//!
//! A life both of whose ends lie in a window changes no more, but for terms over the left boundary, which its rank does not
//! depend on. So the greatest of all are among the greatest of each part, a life that was folded into its name never comes
//! back, and sums by name add up in any order: merging stays associative, and every total is exact.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::ClassTerm;
use crate::fold::{CallStats, Counted};
use crate::ident::Left;
use crate::numbers::Numbers;
use crate::path::{WaitsOf, Waker};

/// How many lives that ended are kept one by one: those with the most CPU time. As many as requests are listed; a life is
/// some hundred bytes, and a machine that starts a thousand threads a second needs hundreds of events for each.
pub const MAX_LIVES: usize = 10_000;

/// When a life began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Begin {
    /// It was under way at the left boundary, as far as the window knows.
    AsLeft,
    /// After another one of its number had ended; nobody saw how.
    Seen(Timestamp),
    Born(Timestamp),
}

impl Begin {
    /// Whether it began after that.
    pub(crate) fn is_after(self, time: Timestamp) -> bool {
        match self {
            Self::AsLeft => false,
            Self::Seen(at) | Self::Born(at) => at > time,
        }
    }
}

/// The life that a number had at the left boundary, when another one follows it in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftLife {
    pub(crate) comm: Option<Arc<str>>,
    pub(crate) pid: Option<Pid>,
    pub(crate) counted: Counted,
}

impl LeftLife {
    pub(crate) fn is_empty(&self) -> bool {
        self.comm.is_none() && self.counted.is_empty()
    }
}

/// A life that began and ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    pub(crate) tid: Tid,
    pub(crate) pid: Option<Pid>,
    pub(crate) comm: Option<Arc<str>>,
    /// When it was born; `None` when nobody saw it.
    pub(crate) born: Option<Timestamp>,
    pub(crate) counted: Counted,
    pub(crate) waits: WaitsOf,
}

/// Lives of one command name, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folded {
    pub(crate) lives: u64,
    /// The numbers that they had.
    pub(crate) numbers: Numbers,
    pub(crate) counted: Counted,
    pub(crate) waits: WaitsOf,
}

/// All lives that began and ended in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lives {
    /// How many are kept one by one.
    most: usize,
    /// Unsorted while a window is read; an eighth more than are kept, or a thousand.
    #[expect(clippy::vec_box, reason = "lives are large, and sorting moves them")]
    kept: Vec<Box<Life>>,
    /// Of the last one that is kept, once there are so many: what comes after it is folded at once.
    #[serde(skip)]
    bar: Option<Rank>,
    /// Those in which a call returned that another thread had in flight at the left boundary. Bound: such calls.
    unsettled: Vec<Life>,
    /// Bound: command names.
    pub(crate) folded: BTreeMap<Arc<str>, Folded>,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            most: MAX_LIVES,
            kept: Vec::new(),
            bar: None,
            unsettled: Vec::new(),
            folded: BTreeMap::new(),
        }
    }
}

/// The most CPU time first; equal ones by number and birth.
type Rank = (Reverse<u64>, Tid, Option<Timestamp>);

impl Life {
    fn rank(&self) -> Rank {
        let ns = self.counted.cpu.map_or(0, |cpu| cpu.ns);
        (Reverse(ns), self.tid, self.born)
    }
}

impl Folded {
    fn add(&mut self, life: &Life) {
        self.lives = self.lives.saturating_add(1);
        self.numbers.insert(life.tid);
        self.counted.add(&life.counted);
        self.waits.append(&life.waits);
    }

    fn append(&mut self, more: &Self) {
        self.lives = self.lives.saturating_add(more.lives);
        self.numbers.append(&more.numbers);
        self.counted.add(&more.counted);
        self.waits.append(&more.waits);
    }
}

impl Lives {
    /// Keeps so many one by one.
    pub(crate) fn keep(&mut self, most: usize) {
        self.most = most;
    }

    /// The same limit, and no lives.
    pub(crate) fn emptied(&self) -> Self {
        Self { most: self.most, ..Self::default() }
    }

    /// All that are kept one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Life> {
        self.kept.iter().map(Box::as_ref).chain(&self.unsettled)
    }

    /// A life has ended. One in which nothing was counted is not kept.
    pub(crate) fn push(&mut self, mut life: Life) {
        if life.counted.is_empty() && life.waits.is_empty() {
            return;
        }
        if !life.counted.calls.heads.is_empty() {
            self.unsettled.push(life);
            return;
        }
        if self.bar.is_some_and(|bar| bar < life.rank()) {
            return self.fold(&life);
        }
        life.counted.calls.shrink();
        life.waits.shrink();
        self.kept.push(Box::new(life));
        if self.kept.len() >= self.most + (self.most / 8).max(1_000) {
            self.keep_first();
            self.bar = self.kept.last().map(|life| life.rank());
        }
    }

    /// The window, or the merge, is complete.
    pub(crate) fn settle(&mut self) {
        self.keep_first();
        self.bar = None;
    }

    fn keep_first(&mut self) {
        self.kept.sort_by_key(|life| life.rank());
        let rest = self.kept.split_off(self.most.min(self.kept.len()));
        rest.iter().for_each(|life| self.fold(life));
    }

    fn fold(&mut self, life: &Life) {
        let name = life.comm.clone().unwrap_or_else(|| "".into());
        self.folded.entry(name).or_default().add(life);
    }

    /// Puts in the calls and files of the left boundary. What they are counted as is told by `calls`.
    pub(crate) fn resolve(&mut self, calls: &mut CallStats, left: &impl Left) {
        for waits in self.waits_mut() {
            waits.resolve(left);
        }
        for mut life in std::mem::take(&mut self.unsettled) {
            calls.resolve(&mut life.counted.calls, left);
            self.push(life);
        }
    }

    /// Puts in who woke where the left boundary's handlers decide.
    pub(crate) fn resolve_wakers(&mut self, told: impl Fn(Waker) -> Waker) {
        self.waits_mut().for_each(|waits| waits.resolve_wakers(&told));
    }

    /// Changes causes of waits that are known to be others.
    pub(crate) fn settle_causes(&mut self, known: &impl Fn(&ClassTerm) -> Option<ClassTerm>) {
        self.waits_mut().for_each(|waits| waits.settle_causes(known));
    }

    fn waits_mut(&mut self) -> impl Iterator<Item = &mut WaitsOf> {
        let Self { kept, unsettled, folded, .. } = self;
        let lives = kept.iter_mut().map(Box::as_mut).chain(unsettled);
        let lives = lives.map(|life| &mut life.waits);
        lives.chain(folded.values_mut().map(|folded| &mut folded.waits))
    }

    /// Appends those of the window to the right, after those that ended where it begins.
    pub(crate) fn append(&mut self, right: Self) {
        self.most = self.most.min(right.most);
        self.kept.extend(right.kept);
        self.unsettled.extend(right.unsettled);
        for (name, more) in &right.folded {
            self.folded.entry(Arc::clone(name)).or_default().append(more);
        }
        self.settle();
    }
}
