//! From samples that wait to blocks of level 0.

use std::collections::BTreeSet;
use std::sync::Arc;

use ducklake::Numbers;
use model::Timestamp;
use model::samples::Batch;
use objects::Sync;

use super::name::{BlockName, Tenant};
use super::pending::{Pending, Ticket};
use super::{Lake, lock};
use crate::block::{self, Header};
use crate::catalogue::Change;
use crate::content::Digest;
use crate::error::Error;

/// How often a commit whose answer was lost is asked for again at once.
const ATTEMPTS: usize = 3;

/// Blocks of which it is not known whether the catalogue has them, and their profiles.
#[derive(Debug)]
pub(super) struct Unsettled(Vec<(BlockName, BTreeSet<u128>)>);

impl Lake {
    /// Takes in samples of a tenant, which are stored when their ticket says so. Profiles that came before are not taken again.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] when too much waits to be written; [`Error::Unsettled`] as long as it is not known what of the last was stored.
    pub fn push(&self, tenant: &Tenant, samples: &Batch) -> Result<Ticket, Error> {
        if lock(&self.unsettled).is_some() {
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
        let came = lock(&self.clock).begin(now);
        let (mut written, mut failed) = (Vec::new(), Vec::new());
        for (tenant, pending) in all {
            let block = match is_settled {
                true => self.write(&tenant, &pending, came),
                false => Err(Error::Unsettled),
            };
            match block {
                Ok(Some(block)) => written.push((tenant, pending, block)),
                Ok(None) => failed.push((tenant, pending, None)),
                Err(error) => failed.push((tenant, pending, Some(error))),
            }
        }
        for (tenant, pending, error) in failed {
            lock(&self.incoming).is_written(&tenant, &pending, false, now);
            pending.tell(error.map_or(Ok(()), |error| Err(Arc::new(error))));
        }
        let outcome = self.begin(&written, now).map_err(|error| Arc::new(Error::from(error)));
        for (tenant, pending, _) in &written {
            lock(&self.incoming).is_written(tenant, pending, outcome.is_ok(), now);
            pending.tell(outcome.clone());
        }
    }

    fn write(
        &self,
        tenant: &Tenant,
        pending: &Pending,
        came: Timestamp,
    ) -> Result<Option<(BlockName, Numbers)>, Error> {
        let Some((header, bytes)) = block::encode_as(&pending.batch, &[])? else { return Ok(None) };
        self.put(tenant, 0, came, &header, bytes).map(Some)
    }

    pub(super) fn put(
        &self,
        tenant: &Tenant,
        level: u8,
        came: Timestamp,
        header: &Header,
        bytes: Vec<u8>,
    ) -> Result<(BlockName, Numbers), Error> {
        let name = BlockName {
            tenant: tenant.clone(),
            begin: Timestamp::from_nanos(header.begin_unix_ns),
            end: Timestamp::from_nanos(header.end_unix_ns),
            came,
            level,
            bytes: bytes.len() as u64,
            digest: Digest::of(&bytes),
        };
        let numbers = Numbers::read(&bytes).map_err(crate::catalogue::Error::from)?;
        // Whoever put the same name put the same bytes.
        self.store.create(&name.to_string(), bytes, Sync::AtOnce)?;
        Ok((name, numbers))
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
            Err(_) => self.discard(&names),
        }
        lock(&self.clock).end();
        outcome
    }

    /// Learns whether the catalogue has what was written last; says whether that is known.
    fn settle(&self, now: Timestamp) -> bool {
        let Some(Unsettled(blocks)) = lock(&self.unsettled).take() else { return true };
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
            Err(_) => {
                *lock(&self.unsettled) = Some(Unsettled(blocks));
                return false;
            }
        }
        lock(&self.clock).end();
        true
    }

    /// Removes files of blocks that never were. Those that stay are found at the next start.
    fn discard(&self, names: &[BlockName]) {
        for name in names {
            if let Err(error) = self.store.remove(&name.to_string()) {
                tracing::warn!(%name, %error, "a block that was not stored cannot be removed");
            }
        }
    }
}
