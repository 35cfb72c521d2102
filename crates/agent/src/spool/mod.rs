//! Packets that wait, on the disk.
//!
//! ```text
//! SPOOL/lock                        held by the agent that has the spool
//! SPOOL/losses                      what is still to be told of losses: lines `COUNT KIND CLASS`
//! SPOOL/incoming/NAME.part          being written; removed at the start
//! SPOOL/incoming/NAME               whole, not yet in all queues; put there at the start
//! SPOOL/queues/TARGET/NAME          waits for one target; the same file linked once for each target
//! ```
//! A file is durable in all queues before a driver sees it, and removed from a queue after the target has it. A queue whose target
//! is no longer asked for stays, and is bounded with the others.

pub(crate) mod files;
mod state;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use profile::{Limits, Packet, Request, ungzip};
use tokio::sync::Notify;

use self::files::{Folders, Lock};
use self::state::{State, Victim, queues};
use crate::error::Result;
use crate::ledger::{Counts, Loss, Reason};
use crate::name::PacketName;
use crate::target::Target;

/// Packets that may wait, whatever their size: what is remembered of each takes about a hundred bytes of memory.
pub(crate) const MAX_PACKETS: usize = 100_000;

/// Begin of the classes of losses that the spool tells of.
const UNDELIVERED: &str = "undelivered.";

/// What may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes on the disk, of all queues together; a packet in several queues counts once.
    pub bytes: u64,
    /// From a packet's begin to that of the one that came last.
    pub age: Duration,
    /// Bytes in memory, while the disk cannot be written.
    pub memory: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: 1 << 30, age: Duration::from_secs(24 * 60 * 60), memory: 16 << 20 }
    }
}

/// The packets of all queues.
#[derive(Debug)]
pub(crate) struct Spool {
    folders: Folders,
    bounds: Bounds,
    /// How the losses of each target are told.
    labels: Vec<String>,
    /// Rung when a packet comes to a queue.
    bells: Vec<Notify>,
    state: Mutex<State>,
    /// Held while losses are written down; taken before `state`.
    losses: Mutex<()>,
    _lock: Lock,
}

/// A packet that a driver has in its hands: it is not dropped meanwhile.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) name: PacketName,
    queue: usize,
    memory: Option<Bytes>,
}

/// What is left and what was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) counts: Vec<Counts>,
    /// Packets, in any queue.
    pub(crate) packets: usize,
    pub(crate) bytes: u64,
    pub(crate) memory: u64,
}

impl Spool {
    /// Opens a spool, and goes on with what is in it.
    pub(crate) fn open(root: &Path, bounds: Bounds, targets: &[&Target]) -> Result<Self> {
        let names: Vec<String> = targets.iter().map(|target| target.folder_name()).collect();
        let (folders, lock) = Folders::open(root, &names)?;
        let mut state = State::new(folders.count());
        for queue in 0..folders.count() {
            for (name, length) in folders.list(queue)? {
                let added = state.insert(name, length, 1 << queue, None);
                state.count(added, |counts| counts.found += 1);
            }
        }
        state.untold = folders.read_losses()?;
        let label = |target: &&Target| match targets.len() {
            1 => String::new(),
            _ => format!(".{}", target.label()),
        };
        let spool = Self {
            labels: targets.iter().map(label).collect(),
            bells: targets.iter().map(|_| Notify::new()).collect(),
            folders,
            bounds,
            state: Mutex::new(state),
            losses: Mutex::new(()),
            _lock: lock,
        };
        spool.enforce(&bounds);
        Ok(spool)
    }

    /// Takes a packet in, for all targets, and gives its bytes. What cannot be written stays in memory.
    pub(crate) fn store(&self, packet: &Packet) -> u64 {
        let (name, bytes) = (PacketName::of(packet), packet.gzip());
        let targets = (1 << self.bells.len()) - 1;
        let written = self.folders.write(&name, &bytes, targets);
        let length = bytes.len() as u64;
        let memory = written.is_err().then(|| Bytes::from(bytes));
        let mut state = self.lock();
        if state.is_telling() {
            state.told(name.kind, &told_in(&packet.bytes));
        }
        state.came(name.begin_unix_ns);
        let added = state.insert(name, length, targets, memory);
        state.count(added, |counts| counts.sealed += 1);
        let was_failing = std::mem::replace(&mut state.is_failing, written.is_err());
        drop(state);
        self.bells.iter().for_each(Notify::notify_one);
        match written {
            Ok(()) => self.write_down(),
            Err(_) if was_failing => {}
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the spool cannot be written: packets stay in memory"
            ),
        }
        self.enforce(&self.bounds);
        self.keep_losses();
        length
    }

    /// A packet for which there was no room before it could be stored.
    pub(crate) fn lose(&self, packet: &Packet) {
        let (name, told) = (PacketName::of(packet), told_in(&packet.bytes));
        let mut state = self.lock();
        let targets = (1 << self.bells.len()) - 1;
        state.told(name.kind, &told);
        state.count(targets, |counts| counts.sealed += 1);
        queues(targets)
            .for_each(|queue| self.count_drop(&mut state, queue, &name, Reason::Memory, &told));
    }

    /// Writes what is in memory only, while that works.
    fn write_down(&self) {
        loop {
            let Some((name, bytes, mask)) = self.lock().oldest_in_memory() else { return };
            if self.folders.write(&name, &bytes, mask).is_err() {
                return;
            }
            let gone = self.lock().has_file(&name, mask);
            queues(gone).for_each(|queue| self.folders.remove(queue, &name));
        }
    }

    /// The packet of a queue that is to be sent: the oldest behind `after`, or else the oldest.
    pub(crate) fn lend(&self, queue: usize, after: Option<&PacketName>) -> Option<Loan> {
        let (name, memory) = self.lock().lend(queue, after)?;
        Some(Loan { name, queue, memory })
    }

    /// Waits until a packet comes to a queue.
    pub(crate) async fn wait(&self, queue: usize) {
        match self.bells.get(queue) {
            Some(bell) => bell.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The bytes of a packet, in gzip.
    pub(crate) async fn read(&self, loan: &Loan) -> io::Result<Bytes> {
        match &loan.memory {
            Some(bytes) => Ok(bytes.clone()),
            None => Ok(tokio::fs::read(self.folders.path(loan.queue, &loan.name)).await?.into()),
        }
    }

    /// Gives a packet back that is to be sent later; `failed`: because an attempt failed.
    pub(crate) fn give_back(&self, loan: &Loan, failed: bool) {
        let mut state = self.lock();
        state.give_back(loan.queue, &loan.name);
        state.count(1 << loan.queue, |counts| counts.failed_attempts += u64::from(failed));
    }

    /// A target has taken a packet, but for some profiles.
    pub(crate) fn delivered(&self, loan: &Loan, rejected_profiles: u64) {
        let mut state = self.lock();
        state.count(1 << loan.queue, |counts| {
            counts.delivered += 1;
            counts.rejected_profiles += rejected_profiles;
        });
        let has_file = state.leave(loan.queue, &loan.name);
        drop(state);
        if has_file {
            self.folders.remove(loan.queue, &loan.name);
        }
    }

    /// A target never gets a packet; `bytes` are its content, in gzip, as far as it can be read.
    pub(crate) fn dropped(&self, loan: &Loan, reason: Reason, bytes: &[u8]) {
        let told = told_in_gzip(bytes);
        let mut state = self.lock();
        self.count_drop(&mut state, loan.queue, &loan.name, reason, &told);
        let has_file = state.leave(loan.queue, &loan.name);
        drop(state);
        self.keep_losses();
        if has_file {
            self.folders.remove(loan.queue, &loan.name);
        }
    }

    /// Gives losses that were not told yet to `tell`, which puts them into a packet that will come.
    pub(crate) fn tell(&self, tell: impl FnMut(&Loss, u64)) {
        self.lock().tell(tell);
    }

    /// What is left and what was done, for each target.
    pub(crate) fn levels(&self) -> Levels {
        self.lock().levels(self.bells.len())
    }

    /// Drops what is too much, the oldest first.
    fn enforce(&self, bounds: &Bounds) {
        let victims = self.lock().victims(bounds);
        for victim in &victims {
            let told = self.told_in_victim(victim);
            let mut state = self.lock();
            for queue in victim.queues() {
                self.count_drop(&mut state, queue, &victim.name, victim.reason, &told);
            }
        }
        if !victims.is_empty() {
            // Before they are gone: killed in between, they are told to be lost and delivered after all.
            self.keep_losses();
        }
        for victim in victims.iter().filter(|victim| victim.memory.is_none()) {
            victim.queues().for_each(|queue| self.folders.remove(queue, &victim.name));
        }
    }

    fn told_in_victim(&self, victim: &Victim) -> BTreeMap<String, u64> {
        let read = |queue| fs::read(self.folders.path(queue, &victim.name)).ok();
        match &victim.memory {
            Some(bytes) => told_in_gzip(bytes),
            None => victim.queues().find_map(read).map(|it| told_in_gzip(&it)).unwrap_or_default(),
        }
    }

    /// Counts a packet of a queue as dropped, and has its samples, and the losses that it told, told by a later packet.
    fn count_drop(
        &self,
        state: &mut State,
        queue: usize,
        name: &PacketName,
        reason: Reason,
        told: &BTreeMap<String, u64>,
    ) {
        state.count(1 << queue, |counts| *counts.dropped.entry(reason).or_default() += 1);
        // Nobody listens to what concerns a queue without a target.
        let Some(label) = self.labels.get(queue) else { return };
        // What another target did not get does not concern this one.
        let concerns = |class: &str| {
            class.strip_prefix(UNDELIVERED).is_none_or(|rest| {
                rest.strip_suffix(label.as_str()).is_some_and(|reason| !reason.contains('.'))
            })
        };
        let told = told.iter().filter(|(class, _)| concerns(class)).map(|(_, samples)| *samples);
        let samples = told.fold(name.samples, u64::saturating_add);
        let class = format!("{UNDELIVERED}{}{label}", reason.as_str());
        let count = state.untold.entry(Loss { kind: name.kind, class }).or_default();
        *count = count.saturating_add(samples);
        state.is_untold_new = true;
    }

    /// Writes down what is still to be told, for the next start.
    fn keep_losses(&self) {
        let _alone = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if !std::mem::take(&mut state.is_untold_new) {
            return;
        }
        let untold = state.all_untold();
        drop(state);
        if let Err(error) = self.folders.write_losses(&untold) {
            self.lock().is_untold_new = true;
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "losses are remembered in memory only"
            );
        }
    }

    /// Writes down what the next start has to know; what cannot be written is dropped.
    pub(crate) fn close(&self) {
        self.write_down();
        self.enforce(&Bounds { memory: 0, ..self.bounds });
        self.keep_losses();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Losses that a packet tells of.
fn told_in(bytes: &[u8]) -> BTreeMap<String, u64> {
    let losses = Request::decode(bytes, Limits::default()).map(|request| request.losses());
    losses.unwrap_or_default().into_iter().collect()
}

fn told_in_gzip(bytes: &[u8]) -> BTreeMap<String, u64> {
    ungzip(bytes, Limits::default()).map(|bytes| told_in(&bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
