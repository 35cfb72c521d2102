//! Blocks take the place of others, and what came in them is counted; cells close; files of blocks that ended are removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::samples::Batch;
use model::{Nanos, Timestamp};

use super::name::{BlockName, Tenant};
use super::plan::{self, Keep, Merge};
use super::{Lake, lock};
use crate::block::{self, Selection, read_into};
use crate::catalogue::{self, Change, Made, Summed, bounds};
use crate::content::Digest;
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
    /// Merges what is due.
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
        let blocks = self.blocks();
        let mut done = Compacted::default();
        let may_merge = |it: &&BlockName| {
            !damaged.contains(*it) && (it.level > 0 || are_rules_known(&it.tenant))
        };
        let blocks = blocks.iter().filter(may_merge);
        for merge in plan::merges(blocks, self.settings.grid, low, now) {
            match self.merge(&merge, now) {
                Ok(()) => {
                    done.made += 1;
                    done.replaced += merge.sources.len();
                }
                // One that cannot be read does not keep the others from being merged.
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(done), Err)
    }

    fn merge(&self, merge: &Merge, now: Timestamp) -> Result<(), Error> {
        let Some(first) = merge.sources.first() else { return Ok(()) };
        let mut all = Batch::new();
        for source in &merge.sources {
            let read = self.fetch(source).and_then(|bytes| {
                read_into(&bytes, &Selection::all(), &mut all).map_err(|error| error.of(source))
            });
            read.inspect_err(|error| {
                if error.is_damage() {
                    self.is_damaged(source, error);
                }
            })?;
        }
        let sources: Vec<Digest> = merge.sources.iter().map(BlockName::id).collect();
        let Some((header, bytes)) = block::encode_as(&all, &sources)? else { return Ok(()) };
        let came = merge.sources.iter().map(|source| source.came).max().unwrap_or(first.came);
        let summed = match merge.level {
            1 => self.summed(&first.tenant, came, &all)?,
            _ => None,
        };
        drop(all);
        let (name, numbers) = self.put(&first.tenant, merge.level, came, &header, bytes)?;
        let change = Change { begin: vec![(name.clone(), numbers)], end: merge.sources.clone() };
        if let Err(error) = self.catalogue.commit(change, summed, now) {
            let is_there = match error.is_unknown() {
                true => self.catalogue.has(&name),
                false => Ok(false),
            };
            match (is_there, &error) {
                (Ok(true), _) => {}
                // Whoever has the catalogue does with the file as it likes.
                (_, catalogue::Error::Taken) => return Err(error.into()),
                // Otherwise it would be taken in at the next start, when others were merged of the same.
                (Ok(false), _) => {
                    self.discard(std::slice::from_ref(&name));
                    return Err(error.into());
                }
                (Err(_), _) => {
                    self.is_unsure.store(true, Ordering::Relaxed);
                    return Err(error.into());
                }
            }
        }
        self.replace(&merge.sources, Some(name), now);
        Ok(())
    }

    /// What samples of one cell are by the rules of their tenant.
    fn summed(
        &self,
        tenant: &Tenant,
        came: Timestamp,
        samples: &Batch,
    ) -> Result<Option<Summed>, Error> {
        let Some(export) = &self.settings.export else { return Ok(None) };
        let cell_ms = self.settings.grid.cell_of(came);
        let book = self.catalogue.rules(tenant)?;
        let rules = book.at(cell_ms);
        if rules.is_empty() {
            return Ok(None);
        }
        let bounds = bounds(export.limits, &self.catalogue.known(tenant)?);
        let sums = rules::sums(rules, &export.prefix, samples, &bounds);
        Ok(Some(Summed { tenant: tenant.clone(), cell_ms, sums, bounds }))
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

    /// Has a block take the place of others in memory, as the catalogue has it.
    fn replace(&self, others: &[BlockName], by: Option<BlockName>, now: Timestamp) {
        let mut blocks = lock(&self.blocks);
        let leaving: Vec<_> = others.iter().filter_map(|it| blocks.take(it)).collect();
        blocks.extend(by.map(Arc::new));
        lock(&self.damaged).retain(|name| !leaving.iter().any(|left| **left == *name));
        lock(&self.leaving).extend(leaving.into_iter().map(|name| (name, now)));
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
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        let blocks = self.blocks();
        // A merge that was made again has the same name.
        let orphans: Vec<BlockName> =
            orphans.into_iter().filter(|name| blocks.binary_search(name).is_err()).collect();
        self.discard(&orphans);
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

    /// Deletes what is not kept; says which blocks. What was not counted yet is kept until it is.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`], [`Error::Catalogue`].
    pub fn expire(&self, keep: Keep, now: Timestamp) -> Result<Vec<BlockName>, Error> {
        let _only = lock(&self.compacting);
        self.tidy(now)?;
        let mut expired = plan::expired(&self.blocks(), keep, now);
        let damaged = lock(&self.damaged).clone();
        expired.retain(|block| block.level > 0 || damaged.contains(block));
        if !expired.is_empty() {
            let change = Change { begin: Vec::new(), end: expired.clone() };
            self.catalogue.commit(change, None, now).inspect_err(|error| {
                self.is_unsure.fetch_or(error.is_unknown(), Ordering::Relaxed);
            })?;
            self.replace(&expired, None, now);
        }
        Ok(expired)
    }
}
