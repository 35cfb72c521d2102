//! What is remembered of the packets that wait. Knows no files.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use bytes::Bytes;

use super::{Bounds, Levels, MAX_PACKETS};
use crate::ledger::{Counts, Kind, Loss, Reason};
use crate::name::PacketName;

/// Queues of one spool: the bits of a mask.
pub(super) const MAX_QUEUES: usize = 64;

/// A packet that waits in at least one queue.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// Bytes of its file.
    length: u64,
    /// Its content, while it is in no file.
    pub(super) memory: Option<Bytes>,
    /// Queues that it waits in, one bit for each.
    waiting: u64,
    /// Of these, those whose driver has it in its hands.
    flying: u64,
}

/// A packet that some queues have to give up.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) name: PacketName,
    pub(super) reason: Reason,
    pub(super) memory: Option<Bytes>,
    mask: u64,
}

impl Victim {
    pub(super) fn queues(&self) -> impl Iterator<Item = usize> + use<> {
        queues(self.mask)
    }
}

/// All queues together.
#[derive(Debug)]
pub(super) struct State {
    packets: BTreeMap<PacketName, Kept>,
    bytes: u64,
    memory: u64,
    /// Begin of the packet that came last, in nanoseconds since the epoch: what ages are measured by. Those that were found may be of a time when
    /// the clock was wrong.
    last_unix_ns: Option<u64>,
    counts: Vec<Counts>,
    /// Losses that no packet has told yet.
    pub(super) untold: BTreeMap<Loss, u64>,
    /// Losses that a packet tells that did not come yet.
    telling: BTreeMap<Loss, u64>,
    /// Whether these differ from what is written down.
    pub(super) is_untold_new: bool,
    /// Whether the last packet could not be written.
    pub(super) is_failing: bool,
}

impl State {
    pub(super) fn new(queues: usize) -> Self {
        Self {
            packets: BTreeMap::new(),
            bytes: 0,
            memory: 0,
            last_unix_ns: None,
            counts: vec![Counts::default(); queues],
            untold: BTreeMap::new(),
            telling: BTreeMap::new(),
            is_untold_new: false,
            is_failing: false,
        }
    }

    /// Calls `f` with the ledger of each queue of a mask.
    pub(super) fn count(&mut self, mask: u64, mut f: impl FnMut(&mut Counts)) {
        for queue in queues(mask) {
            if let Some(counts) = self.counts.get_mut(queue) {
                f(counts);
            }
        }
    }

    /// A packet came whose window begins here.
    pub(super) fn came(&mut self, begin_unix_ns: u64) {
        self.last_unix_ns = Some(begin_unix_ns);
    }

    /// Adds a packet to queues. Gives those that it was not in already.
    pub(super) fn insert(
        &mut self,
        name: PacketName,
        length: u64,
        mask: u64,
        memory: Option<Bytes>,
    ) -> u64 {
        let added = match self.packets.entry(name) {
            btree_map::Entry::Occupied(mut known) => {
                let known = known.get_mut();
                let added = mask & !known.waiting;
                known.waiting |= mask;
                added
            }
            btree_map::Entry::Vacant(place) => {
                *(if memory.is_some() { &mut self.memory } else { &mut self.bytes }) += length;
                place.insert(Kept { length, memory, waiting: mask, flying: 0 });
                mask
            }
        };
        self.count(added, |counts| counts.waiting += 1);
        added
    }

    /// Hands a packet of a queue out: the first behind `after`, or else the first.
    pub(super) fn lend(
        &mut self,
        queue: usize,
        after: Option<&PacketName>,
    ) -> Option<(PacketName, Option<Bytes>)> {
        let bit = 1 << queue;
        let is_free = |kept: &Kept| kept.waiting & bit != 0 && kept.flying & bit == 0;
        let behind = after.and_then(|after| {
            let mut behind = self.packets.range((Bound::Excluded(*after), Bound::Unbounded));
            behind.find(|(_, kept)| is_free(kept)).map(|(name, _)| *name)
        });
        let first = || self.packets.iter().find(|(_, kept)| is_free(kept)).map(|(name, _)| *name);
        let name = behind.or_else(first)?;
        let kept = self.packets.get_mut(&name)?;
        kept.flying |= bit;
        Some((name, kept.memory.clone()))
    }

    /// Takes a packet back that stays in its queue.
    pub(super) fn give_back(&mut self, queue: usize, name: &PacketName) {
        if let Some(kept) = self.packets.get_mut(name) {
            kept.flying &= !(1 << queue);
        }
    }

    /// Takes a packet out of a queue. Says whether it has a file there.
    pub(super) fn leave(&mut self, queue: usize, name: &PacketName) -> bool {
        let has_file = self.packets.get(name).is_some_and(|kept| kept.memory.is_none());
        self.take_out(name, 1 << queue);
        has_file
    }

    fn take_out(&mut self, name: &PacketName, mask: u64) {
        let Some(kept) = self.packets.get_mut(name) else { return };
        let left = mask & kept.waiting;
        kept.waiting &= !mask;
        kept.flying &= !mask;
        if kept.waiting == 0 {
            *(if kept.memory.is_some() { &mut self.memory } else { &mut self.bytes }) -=
                kept.length;
            self.packets.remove(name);
        }
        self.count(left, |counts| counts.waiting -= 1);
    }

    /// Takes out what is too much, the oldest first; never what a driver has in its hands.
    pub(super) fn victims(&mut self, bounds: &Bounds) -> Vec<Victim> {
        let age_ns = u64::try_from(bounds.age.as_nanos()).unwrap_or(u64::MAX);
        let oldest_ns = self.last_unix_ns.map_or(0, |last| last.saturating_sub(age_ns));
        let is_enough = |state: &Self| {
            state.bytes <= bounds.bytes
                && state.memory <= bounds.memory
                && state.packets.len() <= MAX_PACKETS
        };
        let mut victims = Vec::new();
        let mut next = self.packets.first_key_value().map(|(name, _)| *name);
        while let Some(name) = next {
            let is_old = name.begin_unix_ns < oldest_ns;
            if !is_old && is_enough(self) {
                break;
            }
            let behind = (Bound::Excluded(name), Bound::Unbounded);
            next = self.packets.range(behind).next().map(|(name, _)| *name);
            let Some(kept) = self.packets.get(&name) else { continue };
            let has_room = self.bytes <= bounds.bytes && self.packets.len() <= MAX_PACKETS;
            let reason = match &kept.memory {
                _ if is_old => Reason::Age,
                Some(_) if self.memory > bounds.memory => Reason::Memory,
                _ if has_room => continue,
                _ => Reason::Size,
            };
            let mask = kept.waiting & !kept.flying;
            if mask != 0 {
                let memory = kept.memory.clone();
                self.take_out(&name, mask);
                victims.push(Victim { name, reason, memory, mask });
            }
        }
        victims
    }

    /// The oldest packet that is in no file, and the queues that it waits in.
    pub(super) fn oldest_in_memory(&self) -> Option<(PacketName, Bytes, u64)> {
        let in_memory =
            |(name, kept): (&PacketName, &Kept)| Some((*name, kept.memory.clone()?, kept.waiting));
        if self.memory == 0 { None } else { self.packets.iter().find_map(in_memory) }
    }

    /// A packet that was in no file has one. Gives the queues that it has left meanwhile.
    pub(super) fn has_file(&mut self, name: &PacketName, mask: u64) -> u64 {
        let Some(kept) = self.packets.get_mut(name) else { return mask };
        if kept.memory.take().is_some() {
            self.memory -= kept.length;
            self.bytes += kept.length;
        }
        mask & !kept.waiting
    }

    /// Has losses told that no packet has told yet.
    pub(super) fn tell(&mut self, mut tell: impl FnMut(&Loss, u64)) {
        for (loss, samples) in std::mem::take(&mut self.untold) {
            tell(&loss, samples);
            *self.telling.entry(loss).or_default() += samples;
        }
    }

    /// Whether a packet that tells losses is awaited.
    pub(super) fn is_telling(&self) -> bool {
        !self.telling.is_empty()
    }

    /// A packet came that tells these losses, by class.
    pub(super) fn told(&mut self, kind: Kind, told: &BTreeMap<String, u64>) {
        self.is_untold_new |= self.is_telling();
        self.telling.retain(|loss, samples| {
            let told = told.get(&loss.class).filter(|_| loss.kind == kind);
            *samples = samples.saturating_sub(told.copied().unwrap_or(0));
            *samples != 0
        });
    }

    /// Losses that no packet tells which has come.
    pub(super) fn all_untold(&self) -> BTreeMap<Loss, u64> {
        let mut all = self.untold.clone();
        for (loss, samples) in &self.telling {
            *all.entry(loss.clone()).or_default() += samples;
        }
        all
    }

    /// What is left and what was done for the first queues.
    pub(super) fn levels(&self, targets: usize) -> Levels {
        Levels {
            counts: self.counts.iter().take(targets).cloned().collect(),
            packets: self.packets.len(),
            bytes: self.bytes,
            memory: self.memory,
        }
    }
}

/// The queues of a mask.
pub(super) fn queues(mask: u64) -> impl Iterator<Item = usize> + use<> {
    (0..MAX_QUEUES).filter(move |queue| mask & (1 << queue) != 0)
}
