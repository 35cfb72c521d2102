//! Where time went: the sums that one span, or the part of it that lies in the window, collects.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Nanos, Tid};
use serde::{Deserialize, Serialize};

use crate::call::{Calls, ClassTerm, InFlight, resolve_keys};
use crate::ident::Left;

/// What a thread did for a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing<'c> {
    Running,
    Waiting,
    Blocked(&'c ClassTerm),
    Unknown,
}

/// Time by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) running_ns: u64,
    pub(crate) waiting_ns: u64,
    pub(crate) unknown_ns: u64,
    /// Bound: classes, and files of which it is not yet known what they are.
    pub(crate) blocked_ns: BTreeMap<ClassTerm, u64>,
}

/// Time by state, who had the CPU meanwhile, and calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) times: Times,
    /// Who ran on the CPU that the thread was waiting for. Bound: threads that ran.
    pub(crate) waited_for_ns: BTreeMap<Tid, u64>,
    pub(crate) calls: Calls,
}

impl Times {
    pub(crate) fn time(&mut self, doing: Doing<'_>, length: Nanos) {
        let ns = length.get();
        match doing {
            Doing::Running => self.running_ns = self.running_ns.saturating_add(ns),
            Doing::Waiting => self.waiting_ns = self.waiting_ns.saturating_add(ns),
            Doing::Unknown => self.unknown_ns = self.unknown_ns.saturating_add(ns),
            Doing::Blocked(class) => match self.blocked_ns.get_mut(class) {
                Some(sum) => *sum = sum.saturating_add(ns),
                None => {
                    self.blocked_ns.insert(class.clone(), ns);
                }
            },
        }
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.blocked_ns
            .values()
            .chain([&self.running_ns, &self.waiting_ns, &self.unknown_ns])
            .fold(0_u64, |sum, ns| sum.saturating_add(*ns))
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
        self.waiting_ns = self.waiting_ns.saturating_add(other.waiting_ns);
        self.unknown_ns = self.unknown_ns.saturating_add(other.unknown_ns);
        add_ns(&mut self.blocked_ns, other.blocked_ns);
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.change_causes(|class| *class = class.resolved(left));
    }

    /// Changes causes that are known to be others.
    pub(crate) fn settle_causes(&mut self, known: impl Fn(&ClassTerm) -> Option<ClassTerm>) {
        self.change_causes(|class| {
            if let Some(known) = known(class) {
                *class = known;
            }
        });
    }

    fn change_causes(&mut self, change: impl Fn(&mut ClassTerm)) {
        resolve_keys(&mut self.blocked_ns, change, |sum, ns| *sum = sum.saturating_add(ns));
    }
}

impl Spent {
    pub(crate) fn add(&mut self, other: Self) {
        self.times.add(other.times);
        add_ns(&mut self.waited_for_ns, other.waited_for_ns);
        self.calls.add(other.calls);
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.times.resolve(left);
        self.calls.resolve(left);
    }
}

/// Adds nanoseconds key by key.
pub(crate) fn add_ns<K: Ord>(sums: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
    for (key, ns) in more {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }
}

impl ClassTerm {
    pub(crate) fn resolved(&self, left: &impl Left) -> Self {
        match self {
            Self::Known(class) => Self::Known(*class),
            Self::LeftCall(tid, sleep) => left.in_flight(*tid).class(*tid, *sleep),
            Self::File(ident) => {
                let mut ident = ident.clone();
                ident.resolve(left);
                Self::File(ident).settled()
            }
        }
    }
}

impl InFlight {
    /// What the thread waits for when it falls asleep in this call.
    pub(crate) fn class(&self, tid: Tid, sleep: crate::call::Sleep) -> ClassTerm {
        match self {
            Self::AsLeft(left) => ClassTerm::LeftCall(left.of.unwrap_or(tid), sleep),
            Self::Nothing | Self::Birth => crate::call::class_in(None, sleep),
            Self::Call(call) => crate::call::class_in(Some(call), sleep),
        }
    }
}

/// What a span collects by itself, and what the phases inside it collected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) own: Spent,
    /// By path below this span: `decode`, `decode/scale`. Bound: paths the program has.
    pub(crate) phases: BTreeMap<Arc<str>, Phase>,
}

/// All spans of one path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) spans: u64,
    pub(crate) spent: Spent,
}

impl Phase {
    pub(crate) fn add(&mut self, other: Self) {
        self.spans = self.spans.saturating_add(other.spans);
        self.spent.add(other.spent);
    }
}

impl Body {
    /// Takes in what a phase inside this one collected.
    pub(crate) fn fold(&mut self, name: &Arc<str>, inner: Self) {
        let phase = Phase { spans: 1, spent: inner.own };
        self.phases.entry(Arc::clone(name)).or_default().add(phase);
        for (path, phase) in inner.phases {
            let path: Arc<str> = format!("{name}/{path}").into();
            self.phases.entry(path).or_default().add(phase);
        }
    }

    /// All of its time, that of phases too.
    pub(crate) fn times(&self) -> Times {
        let mut times = self.own.times.clone();
        for phase in self.phases.values() {
            times.add(phase.spent.times.clone());
        }
        times
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.own.add(other.own);
        for (path, phase) in other.phases {
            self.phases.entry(path).or_default().add(phase);
        }
    }

    /// What it and the phases inside it collected.
    pub(crate) fn spent_mut(&mut self) -> impl Iterator<Item = &mut Spent> {
        let phases = self.phases.values_mut().map(|phase| &mut phase.spent);
        std::iter::once(&mut self.own).chain(phases)
    }

    /// Drops what a list of single requests does not show: files, and who had the CPU.
    pub(crate) fn strip(&mut self) {
        for spent in self.spent_mut() {
            spent.waited_for_ns.clear();
            for total in spent.calls.total.values_mut() {
                total.files.clear();
            }
        }
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.own.resolve(left);
        for phase in self.phases.values_mut() {
            phase.spent.resolve(left);
        }
    }
}
