//! What was counted of each life of a thread, with nothing to the left, and of those that were folded together.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Pid, Tid};

use super::Make;
use crate::call::InFlight;
use crate::fold::{Counted, CpuTime, Latencies};
use crate::lives::{Begin, Life as Ended};
use crate::name::CallName;
use crate::path::WaitsOf;
use crate::table::Cell;

/// One life, or those of one name that were folded together.
pub(super) struct Life {
    /// `None` of several.
    pub(super) tid: Option<Tid>,
    pub(super) pid: Option<Pid>,
    /// Without the words that say that it stands for several.
    pub(super) comm: Arc<str>,
    pub(super) counted: Counted,
    pub(super) waits: WaitsOf,
    /// The call that it is in at the end.
    pub(super) open: Option<CallName>,
}

impl Life {
    pub(super) fn cell(&self) -> Cell {
        Cell::Process { tid: self.tid, pid: self.pid, comm: self.name() }
    }

    pub(super) fn name(&self) -> Arc<str> {
        match self.tid {
            Some(_) => Arc::clone(&self.comm),
            None => folded(&self.comm),
        }
    }

    /// Whether nothing was seen of it but when it begins and ends.
    fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.waits.is_empty() && self.open.is_none()
    }

    /// Its process; a thread of which nothing says it is one by itself.
    pub(super) fn process(&self) -> Process {
        match (self.pid, self.tid) {
            (Some(pid), _) => Process::Of(pid),
            (None, Some(tid)) => Process::Of(Pid::new(tid.get())),
            (None, None) => Process::Folded(Arc::clone(&self.comm)),
        }
    }

    /// In this order rows stand that are equal in everything else.
    pub(super) fn order(&self) -> (bool, Option<Tid>) {
        (self.tid.is_none(), self.tid)
    }
}

/// The process of a life.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Process {
    Of(Pid),
    /// Of several of this name.
    Folded(Arc<str>),
}

/// What several lives of a name are called that ended.
pub(super) fn folded(name: &str) -> Arc<str> {
    format!("(ended) {name}").into()
}

/// All lives, and what is counted beside them.
pub(super) struct Closed {
    /// By thread number, the earlier life first; then those that were folded.
    pub(super) lives: Vec<Life>,
    pub(super) latencies: Latencies,
    pub(super) cpu: CpuTime,
}

/// Puts nothing to the left of a summary.
pub(super) fn closed(make: &Make<'_>) -> Closed {
    let summary = make.summary;
    let (cpu, at_begin, at_end) = summary.folds.cpu.closed();
    let registers = summary.threads.iter().map(|(tid, thread)| (*tid, &thread.counted.latencies));
    let (latencies, crossing) = summary.folds.latencies.closed(registers);
    let is_another =
        |tid| summary.threads.get(&tid).is_some_and(|thread| thread.begin != Begin::AsLeft);
    let mut waits = summary.paths.closed_waits(is_another);
    let mut lives: BTreeMap<Tid, Vec<Life>> = BTreeMap::new();
    let mut ended: Vec<&Ended> = summary.lives.iter().collect();
    ended.sort_by_key(|life| life.born);
    for ended in ended {
        lives.entry(ended.tid).or_default().push(of_ended(ended));
    }
    for (tid, thread) in summary.threads.iter() {
        let of_number = lives.entry(*tid).or_default();
        let mut first = Counted::default();
        if let Some(crossing) = crossing.get(tid) {
            first.latencies.all = *crossing;
        }
        for share in at_begin.iter().filter(|share| share.tid == *tid) {
            first.cpu.get_or_insert_default().had(share.ns);
        }
        let mut last = thread.counted.clone();
        for share in at_end.iter().filter(|share| share.tid == *tid) {
            if !thread.begin.is_after(share.since()) {
                last.cpu.get_or_insert_default().had(share.ns);
            }
        }
        let life = |comm: &Option<Arc<str>>, pid, counted, waits| Life {
            tid: Some(*tid),
            pid,
            comm: comm.clone().unwrap_or_else(|| make.finish.comm(*tid)),
            counted,
            waits,
            open: None,
        };
        if thread.begin == Begin::AsLeft {
            last.add(&first);
        } else {
            let of_left = thread.left_life.as_deref();
            if let Some(of_left) = of_left {
                first.add(&of_left.counted);
            }
            let waits = waits.of_left.get(tid).cloned().unwrap_or_default();
            let (comm, pid) = of_left.map_or((None, None), |life| (life.comm.clone(), life.pid));
            let of_left = life(&comm, pid, first, waits);
            if !of_left.is_empty() {
                of_number.insert(0, of_left);
            }
        }
        let pid = summary.who.process(*tid);
        let waits = waits.take_life(*tid);
        let open = match &thread.call {
            InFlight::Call(call) => Some(call.name.clone()),
            InFlight::AsLeft(_) | InFlight::Nothing | InFlight::Birth => None,
        };
        let last = Life { open, ..life(&thread.comm, pid, last, waits) };
        if !last.is_empty() || !matches!(thread.begin, Begin::Seen(_)) {
            of_number.push(last);
        }
    }
    let folded = summary.lives.folded.iter().map(|(name, folded)| Life {
        tid: None,
        pid: None,
        comm: Arc::clone(name),
        counted: folded.counted.clone(),
        waits: folded.waits.clone(),
        open: None,
    });
    let lives = lives.into_values().flatten().chain(folded);
    let wanted = lives.filter(|life| make.wants_who(life.tid, &life.comm)).collect();
    Closed { lives: wanted, latencies, cpu }
}

fn of_ended(ended: &Ended) -> Life {
    let Ended { tid, pid, comm, counted, waits, .. } = ended.clone();
    let comm = comm.unwrap_or_else(|| "".into());
    Life { tid: Some(tid), pid, comm, counted, waits, open: None }
}
