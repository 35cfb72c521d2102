//! Merges are done, by this process and by workers, and their results take the place of blocks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use model::Timestamp;

use super::board::{Token, Who};
use super::job::{Counting, Done, Job};
use super::name::BlockName;
use super::plan::Merge;
use super::{Lake, Tally, lock};
use crate::catalogue::{self, Change, Summed};
use crate::error::Error;

/// Why the result of a job is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its lease ended, and somebody else does it or has done it.
    #[error("the lease on the job has ended")]
    Late,
    /// It is not what it should be, or cannot be committed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Lake {
    /// Gives a worker something to do, which has a lease on it ([`super::LEASE`]).
    ///
    /// # Errors
    ///
    /// [`Error::Catalogue`].
    pub fn take(&self, now: Timestamp) -> Result<Option<(Token, Job)>, Error> {
        let Some((token, merge)) = lock(&self.board).take(Who::Worker, now) else {
            return Ok(None);
        };
        match self.job(merge) {
            Ok(job) => {
                lock(&self.board).told(token, job.clone());
                Ok(Some((token, job)))
            }
            Err(error) => {
                lock(&self.board).failed(token, now);
                Err(error)
            }
        }
    }

    /// Renews a lease; says whether there still is one.
    pub fn renew(&self, token: Token, now: Timestamp) -> bool {
        lock(&self.board).renew(token, now)
    }

    /// A worker that ends gives a job back; one that could not do it leaves it to this process.
    pub fn give_back(&self, token: Token, could_not: bool, now: Timestamp) {
        lock(&self.board).give_back(token, could_not, now);
    }

    /// Has the result of a worker take the place of the blocks.
    ///
    /// # Errors
    ///
    /// Why it does not. The job is done again then.
    pub fn finish(&self, token: Token, done: &Done, now: Timestamp) -> Result<(), Refusal> {
        let Some(job) = lock(&self.board).settle(token, now) else {
            lock(&self.board).refused();
            // Whoever does it now may be about to put the same bytes.
            self.is_orphan(&done.block);
            return Err(Refusal::Late);
        };
        let outcome = self.settle_merge(&job, done, now);
        let mut board = lock(&self.board);
        match &outcome {
            Ok(()) => board.done(token, Who::Worker),
            Err(_) => {
                board.refused();
                board.failed(token, now);
            }
        }
        Ok(outcome?)
    }

    /// How jobs fare.
    #[must_use]
    pub fn tally(&self) -> Tally {
        lock(&self.board).tally()
    }

    /// Does what is to be done first and is not left to workers; says how many blocks it was of.
    pub(super) fn merge_next(&self, now: Timestamp) -> Option<(Result<(), Error>, usize)> {
        let (token, merge) = lock(&self.board).take(Who::Owner, now)?;
        let count = merge.sources.len();
        let merged = self.merge(merge, now);
        let mut board = lock(&self.board);
        match &merged {
            Ok(()) => board.done(token, Who::Owner),
            Err(_) => board.failed(token, now),
        }
        Some((merged, count))
    }

    fn merge(&self, merge: Merge, now: Timestamp) -> Result<(), Error> {
        let job = self.job(merge)?;
        let mut name = None;
        let ran = job.run(&self.store, self.symbols.as_deref(), |it| {
            name = Some(it.clone());
            true
        });
        match ran {
            Ok(done) => done.map_or(Ok(()), |done| self.settle_merge(&job, &done, now)),
            Err(error) => {
                self.found(&job, &error);
                // It may be there although the answer was no.
                name.iter().for_each(|name| self.is_orphan(name));
                Err(error)
            }
        }
    }

    /// Blocks that cannot be read are left alone from then on.
    fn found(&self, job: &Job, error: &Error) {
        let (Error::Changed { name } | Error::Gone { name } | Error::Block { name, .. }) = error
        else {
            return;
        };
        if job.sources.contains(name) {
            self.is_damaged(name, error);
        }
    }

    /// All that doing a merge needs.
    fn job(&self, Merge { sources, level }: Merge) -> Result<Job, Error> {
        let mut job = Job { level, sources, counting: None };
        if let (1, Some(export)) = (level, &self.settings.export) {
            let tenant = job.tenant()?;
            let cell_ms = self.settings.grid.cell_of(job.came());
            let _ruled = self.ruling.read().unwrap_or_else(PoisonError::into_inner);
            let book = self.catalogue.rules(tenant)?;
            let rules = book.at(cell_ms);
            if !rules.is_empty() {
                let rules = rules.into_iter().cloned().collect();
                let known = self.catalogue.known(tenant)?.into_keys();
                let limits = *export.limits.of(tenant);
                job.counting = Some(Counting::new(rules, &export.prefix, limits, known));
            }
        }
        Ok(job)
    }

    /// Has what came of a job take the place of its blocks, if it is that.
    fn settle_merge(&self, job: &Job, done: &Done, now: Timestamp) -> Result<(), Error> {
        let numbers = job.check(&self.store, done)?;
        let summed = match (&job.counting, &done.sums) {
            (Some(counting), Some(sums)) => Some(Summed {
                tenant: job.tenant()?.clone(),
                cell_ms: self.settings.grid.cell_of(job.came()),
                sums: sums.clone(),
                bounds: counting.bounds(),
            }),
            _ => None,
        };
        let name = &done.block;
        let change = Change { begin: vec![(name.clone(), numbers)], end: job.sources.clone() };
        let _only = lock(&self.changing);
        if let Err(error) = self.catalogue.commit(change, summed, now) {
            let is_there = match error.is_unknown() {
                true => self.catalogue.has(name),
                false => Ok(false),
            };
            match (is_there, &error) {
                (Ok(true), _) => {}
                // Whoever has the catalogue does with the file as it likes.
                (_, catalogue::Error::Taken) => return Err(error.into()),
                // Otherwise it would be taken in at the next start, when others were merged of the same.
                (Ok(false), _) => {
                    self.discard(std::slice::from_ref(name));
                    return Err(error.into());
                }
                (Err(_), _) => {
                    self.is_unsure.store(true, Ordering::Relaxed);
                    return Err(error.into());
                }
            }
        }
        self.replace(&job.sources, Some(name.clone()), now);
        Ok(())
    }

    /// Has a block take the place of others in memory, as the catalogue has it.
    pub(super) fn replace(&self, others: &[BlockName], by: Option<BlockName>, now: Timestamp) {
        let mut blocks = lock(&self.blocks);
        let leaving: Vec<_> = others.iter().filter_map(|it| blocks.take(it)).collect();
        blocks.extend(by.map(Arc::new));
        lock(&self.damaged).retain(|name| !leaving.iter().any(|left| **left == *name));
        lock(&self.leaving).extend(leaving.into_iter().map(|name| (name, now)));
    }
}
