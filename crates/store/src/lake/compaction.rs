//! Blocks take the place of others, and what came in them is counted; cells close; files of blocks that ended are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::samples::Batch;
use model::{Nanos, Timestamp};

use super::name::{BlockName, Tenant};
use super::plan::{self, Keep, Merge};
use super::{Lake, lock};
use crate::block::{self, Selection, read_into};
use crate::catalogue::{Change, Made, Summed, bounds};
use crate::content::Digest;
use crate::error::Error;

/// Files of blocks that ended stay for so long: others who read them by the catalogue are in the middle of it.
pub const ENDED_STAY: Nanos = Nanos::new(10 * 60 * 1_000_000_000);
/// Names of blocks that ended are refused for so long.
const NAMES_STAY_NS: i64 = 25 * 3_600 * 1_000_000_000;

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
        let _only = lock(&self.compacting);
        self.sweep(now)?;
        // Before the blocks are looked at: what comes after is later.
        let low = lock(&self.clock).low(now);
        let damaged = lock(&self.damaged).clone();
        let blocks = self.blocks();
        let mut done = Compacted::default();
        let mut first = None;
        let blocks = blocks.iter().filter(|it| !damaged.contains(it));
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
        match self.catalogue.commit(change, summed, now) {
            Ok(_) => {}
            // Otherwise it is merged again later, to the same.
            Err(error) if error.is_unknown() && self.catalogue.has(&name)? => {}
            Err(error) => return Err(error.into()),
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
        let mut made = Made::default();
        for tenant in self.catalogue.exporting()? {
            let until = open.get(&tenant).map_or(low, |first| low.min(*first));
            let until_ms = until.nanos().div_euclid(1_000_000);
            loop {
                let (more, is_all) =
                    self.catalogue.close(&tenant, until_ms, self.settings.grid, &export.prefix)?;
                made.cells += more.cells;
                made.lost += more.lost;
                if is_all {
                    break;
                }
            }
        }
        Ok(made)
    }

    /// Has a block take the place of others in memory, as the catalogue has it.
    fn replace(&self, others: &[BlockName], by: Option<BlockName>, now: Timestamp) {
        let others: BTreeSet<&BlockName> = others.iter().collect();
        let mut blocks = lock(&self.blocks);
        let (leaving, mut staying): (Vec<_>, BTreeSet<_>) = (
            blocks.iter().filter(|name| others.contains(name.as_ref())).cloned().collect(),
            blocks.iter().filter(|name| !others.contains(name.as_ref())).cloned().collect(),
        );
        staying.extend(by.map(Arc::new));
        *blocks = staying;
        lock(&self.leaving).extend(leaving.into_iter().map(|name| (name, now)));
    }

    /// Removes files of blocks that ended a while ago, in that order, up to one that a question still reads.
    fn sweep(&self, now: Timestamp) -> Result<(), Error> {
        let mut leaving = lock(&self.leaving);
        // Nobody takes one that has left.
        while let Some((name, ended)) = leaving.front()
            && now.since(*ended) >= ENDED_STAY
            && Arc::strong_count(name) == 1
        {
            lock(&self.cache).remove(name);
            self.store.remove(&name.to_string())?;
            leaving.pop_front();
        }
        let oldest = leaving.front().map_or(now, |(_, ended)| *ended);
        let waiting = leaving.iter().map(|(name, _)| name.to_string()).collect();
        drop(leaving);
        let ago = |ns: i64| Timestamp::from_nanos(now.nanos().saturating_sub(ns));
        let shown = ago(i64::try_from(ENDED_STAY.get()).unwrap_or(i64::MAX));
        let named = oldest.min(ago(NAMES_STAY_NS));
        Ok(self.catalogue.forget(shown, named, waiting, now)?)
    }

    /// Deletes what is not kept; says which blocks. What was not counted yet is kept until it is.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`], [`Error::Catalogue`].
    pub fn expire(&self, keep: Keep, now: Timestamp) -> Result<Vec<BlockName>, Error> {
        let _only = lock(&self.compacting);
        let mut expired = plan::expired(&self.blocks(), keep, now);
        let damaged = lock(&self.damaged).clone();
        expired.retain(|block| block.level > 0 || damaged.contains(block));
        if !expired.is_empty() {
            let change = Change { begin: Vec::new(), end: expired.clone() };
            self.catalogue.commit(change, None, now)?;
            self.replace(&expired, None, now);
        }
        self.sweep(now)?;
        Ok(expired)
    }
}
