//! From samples that wait to blocks of level 0.

use std::collections::BTreeSet;
use std::sync::Arc;

use ducklake::Numbers;
use model::Timestamp;
use model::samples::Batch;
use objects::Sync;

use super::name::{BlockName, Tenant};
use super::pending::{Pending, Ticket};
use super::{Lake, job, lock};
use crate::block;
use crate::catalogue::Change;
use crate::error::Error;

/// How often a commit whose answer was lost is asked for again at once.
const ATTEMPTS: usize = 3;

/// Files that wait to be removed; those of more are left to the next start, which takes in none whose profiles came again.
const MAX_ORPHANS: usize = 10_000;

/// Blocks of which it is not known whether the catalogue has them, and their profiles.
#[derive(Debug, Clone)]
pub(super) struct Unsettled(Vec<(BlockName, BTreeSet<u128>)>);

impl Lake {
    /// Takes in samples of a tenant, which are stored when their ticket says so. Profiles that came before are not taken again.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] when too much waits to be written; [`Error::Unsettled`] as long as it is not known what of the last was stored.
    pub fn push(&self, tenant: &Tenant, samples: &Batch) -> Result<Ticket, Error> {
        // Held until it is among what waits: what it repeats is either written yet, or not known.
        let unsettled = lock(&self.unsettled);
        if unsettled.is_some() {
            return Err(Error::Unsettled);
        }
        lock(&self.incoming).push(tenant, samples)
    }

    /// Whether anything waits to be written.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !lock(&self.incoming).is_empty() || lock(&self.unsettled).is_some()
    }

    /// Writes what waits: a block for each tenant, all of them with one commit. Who waits for a block that cannot be written learns why.
    pub fn flush(&self, now: Timestamp) {
        let _only = lock(&self.flushing);
        let is_settled = self.settle(now);
        let all = lock(&self.incoming).take();
        if !is_settled {
            for (tenant, pending) in all {
                self.refuse(&tenant, &pending, Error::Unsettled, now);
            }
            return;
        }
        let came = lock(&self.clock).begin(now);
        let mut written = Vec::new();
        for (tenant, pending) in all {
            match self.write(&tenant, &pending, came) {
                Ok(Some(block)) => written.push((tenant, pending, block)),
                Ok(None) => {
                    lock(&self.incoming).is_written(&tenant, &pending, true, now);
                    pending.tell(Ok(()));
                }
                Err(error) => self.refuse(&tenant, &pending, error, now),
            }
        }
        let outcome = self.begin(&written, now).map_err(|error| Arc::new(Error::from(error)));
        for (tenant, pending, _) in &written {
            lock(&self.incoming).is_written(tenant, pending, outcome.is_ok(), now);
            pending.tell(outcome.clone());
        }
    }

    fn refuse(&self, tenant: &Tenant, pending: &Pending, error: Error, now: Timestamp) {
        lock(&self.incoming).is_written(tenant, pending, false, now);
        pending.tell(Err(Arc::new(error)));
    }

    fn write(
        &self,
        tenant: &Tenant,
        pending: &Pending,
        came: Timestamp,
    ) -> Result<Option<(BlockName, Numbers)>, Error> {
        let Some((header, bytes)) = block::encode_as(&pending.batch, &[])? else { return Ok(None) };
        let name = job::name(tenant, 0, came, &header, &bytes);
        let numbers = Numbers::read(&bytes).map_err(crate::catalogue::Error::from)?;
        // Whoever put the same name put the same bytes.
        let created = self.store.create(&name.to_string(), bytes, Sync::AtOnce);
        // It may be there although the answer was no.
        created.inspect_err(|_| self.is_orphan(&name))?;
        Ok(Some((name, numbers)))
    }

    /// Commits blocks that are written.
    fn begin(
        &self,
        written: &[(Tenant, Pending, (BlockName, Numbers))],
        now: Timestamp,
    ) -> Result<(), crate::catalogue::Error> {
        let begin: Vec<_> = written.iter().map(|(_, _, block)| block.clone()).collect();
        let names: Vec<BlockName> = begin.iter().map(|(name, _)| name.clone()).collect();
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            if begin.is_empty() {
                break;
            }
            let change = Change { begin: begin.clone(), end: Vec::new() };
            outcome = self.catalogue.commit(change, None, now).map(drop);
            match &outcome {
                Err(error) if error.is_unknown() => {}
                Ok(()) | Err(_) => break,
            }
        }
        match &outcome {
            Ok(()) => lock(&self.blocks).extend(names.into_iter().map(Arc::new)),
            Err(error) if error.is_unknown() => {
                let profiles = written.iter().map(|(_, pending, _)| pending.profiles.clone());
                *lock(&self.unsettled) = Some(Unsettled(names.into_iter().zip(profiles).collect()));
                // They may have come: nothing later is complete until that is known.
                return outcome;
            }
            // Whoever has the catalogue has taken them in, or removes them.
            Err(crate::catalogue::Error::Taken) => {}
            Err(_) => self.discard(&names),
        }
        lock(&self.clock).end();
        outcome
    }

    /// Learns whether the catalogue has what was written last; says whether that is known.
    fn settle(&self, now: Timestamp) -> bool {
        // It stays until its profiles are known: they may come again meanwhile.
        let Some(Unsettled(blocks)) = lock(&self.unsettled).clone() else { return true };
        let has = blocks.first().map_or(Ok(false), |(name, _)| self.catalogue.has(name));
        match has {
            Ok(true) => {
                let mut incoming = lock(&self.incoming);
                for (name, profiles) in &blocks {
                    let profiles = profiles.iter().filter(|profile| **profile != 0);
                    profiles.for_each(|profile| incoming.remember(&name.tenant, *profile, now));
                }
                lock(&self.blocks).extend(blocks.into_iter().map(|(name, _)| Arc::new(name)));
            }
            Ok(false) => {
                let names: Vec<BlockName> = blocks.into_iter().map(|(name, _)| name).collect();
                self.discard(&names);
            }
            Err(_) => return false,
        }
        *lock(&self.unsettled) = None;
        lock(&self.clock).end();
        true
    }

    /// Removes files of blocks that never were.
    pub(super) fn discard(&self, names: &[BlockName]) {
        for name in names {
            if let Err(error) = self.store.remove(&name.to_string()) {
                tracing::warn!(%name, %error, "a block that was not stored cannot be removed yet");
                self.is_orphan(name);
            }
        }
    }

    /// The file of a block that never was is to be removed later.
    pub(super) fn is_orphan(&self, name: &BlockName) {
        let mut orphans = lock(&self.orphans);
        if orphans.len() < MAX_ORPHANS {
            orphans.insert(name.clone());
        }
    }
}
