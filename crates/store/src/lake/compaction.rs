//! Blocks take the place of others, and what came in them is counted; cells close; files of blocks that ended are removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Nanos, Timestamp};

use super::name::{BlockName, Tenant};
use super::plan::{self, Retention};
use super::{Lake, lock};
use crate::catalogue::{Change, Made};
use crate::error::Error;

/// Files of blocks that ended stay for so long: others who read them by the catalogue are in the middle of it.
pub const ENDED_STAY: Nanos = Nanos::new(10 * 60 * 1_000_000_000);
/// Names of blocks that ended are refused for so long: a commit comes again within seconds, and no two blocks have one name.
const NAMES_STAY_NS: i64 = 3_600 * 1_000_000_000;
/// How often the catalogue is told what to forget.
const FORGET_EVERY: Nanos = Nanos::new(60 * 1_000_000_000);

/// What a round of compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Blocks that were made.
    pub made: usize,
    /// Blocks that they stand for.
    pub replaced: usize,
}

impl Lake {
    /// Merges what is due and is not left to workers ([`Self::take`]).
    ///
    /// # Errors
    ///
    /// What reading and writing blocks meets first; all other merges were done.
    pub fn compact(&self, now: Timestamp) -> Result<Compacted, Error> {
        self.compact_for(now, |_| true)
    }

    /// The same, where what came is merged of those tenants only of whom this is said: their rules are known, by which it is counted.
    ///
    /// # Errors
    ///
    /// As [`Self::compact`].
    pub fn compact_for(
        &self,
        now: Timestamp,
        are_rules_known: impl Fn(&Tenant) -> bool,
    ) -> Result<Compacted, Error> {
        let _only = lock(&self.compacting);
        let mut first = self.tidy(now).err();
        // Before the blocks are looked at: what comes after is later.
        let low = lock(&self.clock).low(now);
        let damaged = lock(&self.damaged).clone();
        let mut board = lock(&self.board);
        board.expire(now);
        let busy = board.busy();
        let blocks = self.blocks();
        let may_merge = |it: &&BlockName| {
            let is_free = !damaged.contains(*it) && !busy.contains(*it);
            is_free && (it.level > 0 || are_rules_known(&it.tenant))
        };
        let due = plan::merges(blocks.iter().filter(may_merge), self.settings.grid, low, now);
        board.plan(due, now);
        drop(board);
        let mut done = Compacted::default();
        while let Some((made, replaced)) = self.merge_next(now) {
            match made {
                Ok(()) => {
                    done.made += 1;
                    done.replaced += replaced;
                }
                // One that cannot be read does not keep the others from being merged.
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(done), Err)
    }

    /// Closes the cells of all tenants that are complete: what came in them is counted, and nothing comes in them any more.
    ///
    /// # Errors
    ///
    /// [`Error::Catalogue`].
    pub fn close(&self, now: Timestamp) -> Result<Made, Error> {
        let Some(export) = &self.settings.export else { return Ok(Made::default()) };
        let low = lock(&self.clock).low(now);
        let damaged = lock(&self.damaged).clone();
        let mut open: BTreeMap<Tenant, Timestamp> = BTreeMap::new();
        let waiting = self.blocks().into_iter().filter(|it| it.level == 0 && !damaged.contains(it));
        for block in waiting {
            let first = open.entry(block.tenant).or_insert(block.came);
            *first = block.came.min(*first);
        }
        let (mut made, mut first) = (Made::default(), None);
        for tenant in self.catalogue.exporting()? {
            let until = open.get(&tenant).map_or(low, |first| low.min(*first));
            let until_ms = until.nanos().div_euclid(1_000_000);
            loop {
                match self.catalogue.close(&tenant, until_ms, self.settings.grid, &export.prefix) {
                    Ok((more, is_all)) => {
                        made.cells += more.cells;
                        made.lost += more.lost;
                        made.elsewhere += more.elsewhere;
                        *lock(&self.elsewhere).entry(tenant.clone()).or_default() += more.elsewhere;
                        if is_all {
                            break;
                        }
                    }
                    // The others' cells close all the same.
                    Err(error) => {
                        first = first.or(Some(error.into()));
                        break;
                    }
                }
            }
        }
        first.map_or(Ok(made), Err)
    }

    /// Learns what the catalogue did, removes files that are not needed, and has the catalogue forget them.
    fn tidy(&self, now: Timestamp) -> Result<(), Error> {
        let learned = self.learn(now);
        learned.and(self.sweep(now))
    }

    /// After a commit whose answer was lost: blocks are those that the catalogue has.
    fn learn(&self, now: Timestamp) -> Result<(), Error> {
        if !self.is_unsure.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _only = lock(&self.changing);
        let known = self.catalogue.blocks()?;
        let has_ended = |name: &BlockName| matches!(known.get(name), Some(Some(_)));
        let ended: Vec<BlockName> = self.blocks().into_iter().filter(has_ended).collect();
        self.replace(&ended, None, now);
        let live = known.into_iter().filter(|(_, ended)| ended.is_none());
        lock(&self.blocks).extend(live.map(|(name, _)| Arc::new(name)));
        self.is_unsure.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Removes files of blocks that ended a while ago, in that order, up to one that a question still reads, and of those that never were.
    fn sweep(&self, now: Timestamp) -> Result<(), Error> {
        let mut removed = Ok(());
        let mut leaving = lock(&self.leaving);
        // Nobody takes one that has left.
        while let Some((name, ended)) = leaving.front()
            && now.since(*ended) >= ENDED_STAY
            && Arc::strong_count(name) == 1
        {
            lock(&self.cache).remove(name);
            removed = self.store.remove(&name.to_string());
            if removed.is_err() {
                break;
            }
            leaving.pop_front();
        }
        let oldest = leaving.front().map_or(now, |(_, ended)| *ended);
        let waiting = leaving.iter().map(|(name, _)| name.to_string()).collect();
        drop(leaving);
        self.discard_orphans();
        let mut forgot = lock(&self.forgot);
        if forgot.is_none_or(|before| now.since(before) >= FORGET_EVERY) {
            let ago = |ns: i64| Timestamp::from_nanos(now.nanos().saturating_sub(ns));
            let shown = ago(i64::try_from(ENDED_STAY.get()).unwrap_or(i64::MAX));
            let named = oldest.min(ago(NAMES_STAY_NS));
            self.catalogue.forget(shown, named, waiting, now)?;
            *forgot = Some(now);
        }
        Ok(removed?)
    }

    /// Removes files of blocks that never were, unless somebody is making one of that name at this moment.
    fn discard_orphans(&self) {
        let _only = lock(&self.changing);
        if !lock(&self.board).is_idle() {
            return;
        }
        let mut orphans = std::mem::take(&mut *lock(&self.orphans));
        // A merge that was made again has the same name.
        let blocks = lock(&self.blocks);
        orphans.retain(|name| !blocks.contains(name));
        drop(blocks);
        let leaving = lock(&self.leaving);
        orphans.retain(|name| !leaving.iter().any(|(left, _)| **left == *name));
        drop(leaving);
        self.discard(&Vec::from_iter(orphans));
    }

    /// Deletes what is not kept; says which blocks. What was not counted yet is kept until it is.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`], [`Error::Catalogue`].
    pub fn expire(&self, keep: &Retention, now: Timestamp) -> Result<Vec<BlockName>, Error> {
        let _only = lock(&self.compacting);
        self.tidy(now)?;
        let mut expired = plan::expired(&self.blocks(), keep, now);
        let damaged = lock(&self.damaged).clone();
        let busy = lock(&self.board).busy();
        expired.retain(|block| block.level > 0 || damaged.contains(block));
        // A worker has it for a short while only.
        expired.retain(|block| !busy.contains(block));
        if !expired.is_empty() {
            let _only = lock(&self.changing);
            let change = Change { begin: Vec::new(), end: expired.clone() };
            self.catalogue.commit(change, None, now).inspect_err(|error| {
                self.is_unsure.fetch_or(error.is_unknown(), Ordering::Relaxed);
            })?;
            self.replace(&expired, None, now);
        }
        Ok(expired)
    }
}
