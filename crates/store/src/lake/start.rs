//! What a process finds when it starts: blocks, a catalogue, and what the process before did not finish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ducklake::Numbers;
use model::Timestamp;
use model::samples::Batch;

use super::name::BlockName;
use super::{Lake, lock};
use crate::block::{self, Selection, read_into};
use crate::catalogue::Change;
use crate::error::Error;

impl Lake {
    /// Makes the catalogue and the place agree.
    ///
    /// - A file that the catalogue does not have, of level 0: its push was not acknowledged, or the catalogue is an older one, or lost. It is taken in, unless its
    ///   profiles came again.
    /// - One of a higher level: a merge that was not committed, which is done again, if blocks that it stands for are there. Otherwise it is
    ///   taken in, and they are not.
    /// - A block whose file is not there is an error, unless one that stands for it was taken in.
    pub(super) fn reconcile(&self, now: Timestamp) -> Result<(), Error> {
        let files: BTreeSet<BlockName> =
            self.store.list("")?.iter().filter_map(|name| name.parse().ok()).collect();
        let known = self.catalogue.blocks()?;
        let mut live: BTreeSet<BlockName> = BTreeSet::new();
        let mut ended: Vec<(Timestamp, BlockName)> = Vec::new();
        for (name, end) in &known {
            match end {
                None => drop(live.insert(name.clone())),
                Some(at) if files.contains(name) => ended.push((*at, name.clone())),
                Some(_) => {}
            }
        }
        ended.sort_unstable();
        let leaving = ended.into_iter().map(|(at, name)| (Arc::new(name), at));
        lock(&self.leaving).extend(leaving);
        let unknown: Vec<BlockName> =
            files.iter().filter(|name| !known.contains_key(*name)).cloned().collect();
        let first = unknown.iter().filter(|name| name.level == 0).map(|name| name.came).min();
        self.remember_profiles(&live, first, now)?;
        let last = live.iter().chain(&unknown).map(|name| name.came).max();
        let closed_ms = self.catalogue.closed_ms()?.unwrap_or_default();
        let closed = Timestamp::from_nanos(closed_ms.saturating_mul(1_000_000));
        lock(&self.clock).resume(last.map_or(closed, |last| last.max(closed)));

        let ended = known.iter().filter(|(_, end)| end.is_some());
        let ended: BTreeSet<String> = ended.map(|(name, _)| name.id().to_string()).collect();
        let change = self.taken_in(unknown, &live, &ended, &files)?;
        let missing: Vec<&BlockName> = live.difference(&files).collect();
        let replaced: BTreeSet<&BlockName> = change.end.iter().collect();
        let lost: Vec<BlockName> =
            missing.into_iter().filter(|name| !replaced.contains(name)).cloned().collect();
        let mut end = change.end.clone();
        if let Some(first) = lost.first() {
            let count = lost.len();
            if !self.settings.forgets_missing {
                return Err(Error::Missing { count, first: Box::new(first.clone()) });
            }
            tracing::warn!(count, %first, "blocks are not there and are forgotten");
            end.extend(lost);
        }
        for name in &end {
            live.remove(name);
        }
        live.extend(change.begin.iter().map(|(name, _)| name.clone()));
        if !(change.begin.is_empty() && end.is_empty()) {
            self.catalogue.commit(Change { begin: change.begin, end }, None, now)?;
        }
        *lock(&self.blocks) = live.into_iter().map(Arc::new).collect();
        Ok(())
    }

    /// What of files that the catalogue does not have begins, and which of its blocks end by that. All other such files are removed.
    fn taken_in(
        &self,
        unknown: Vec<BlockName>,
        live: &BTreeSet<BlockName>,
        ended: &BTreeSet<String>,
        files: &BTreeSet<BlockName>,
    ) -> Result<Change, Error> {
        let by_id: BTreeMap<String, &BlockName> =
            live.iter().map(|name| (name.id().to_string(), name)).collect();
        let (mut change, mut replaced) = (Change::default(), BTreeSet::<String>::new());
        let mut removed = Vec::new();
        let (pushed, merged): (Vec<_>, Vec<_>) =
            unknown.into_iter().partition(|name| name.level == 0);
        let mut read = Vec::new();
        for name in merged {
            let bytes = match self.fetch(&name) {
                Err(Error::Changed { .. }) => {
                    tracing::warn!(%name, "a block whose bytes were changed is not taken in");
                    continue;
                }
                bytes => bytes?,
            };
            let header = block::header(&bytes).map_err(|error| error.of(&name))?;
            let numbers = Numbers::read(&bytes).map_err(crate::catalogue::Error::from)?;
            let profiles = profiles(&bytes).map_err(|error| error.of(&name))?;
            read.push((name, numbers, header.replaces, profiles));
        }
        // Of two that stand for the same blocks the one that stands for more was made later.
        read.sort_by_key(|(name, _, replaces, _)| std::cmp::Reverse((name.level, replaces.len())));
        for (name, numbers, replaces, profiles) in read {
            let sources: Vec<&BlockName> =
                replaces.iter().filter_map(|id| by_id.get(id).copied()).collect();
            let is_replaced = replaced.contains(&name.id().to_string());
            let is_undone = sources.iter().any(|source| files.contains(source));
            // Another merge of them was committed, or is taken in.
            let is_another = replaces.iter().any(|id| ended.contains(id) || replaced.contains(id));
            if is_undone || is_another {
                removed.push(name);
                continue;
            }
            replaced.extend(replaces);
            if is_replaced {
                removed.push(name);
                continue;
            }
            let mut incoming = lock(&self.incoming);
            profiles
                .iter()
                .for_each(|profile| incoming.remember(&name.tenant, *profile, name.came));
            drop(incoming);
            change.end.extend(sources.into_iter().cloned());
            change.begin.push((name, numbers));
        }
        for name in pushed {
            let is_replaced = replaced.contains(&name.id().to_string());
            match self.is_fresh(&name) {
                Ok(Some(numbers)) if !is_replaced => change.begin.push((name, numbers)),
                Ok(_) => removed.push(name),
                Err(Error::Changed { .. } | Error::Block { .. }) => {
                    tracing::warn!(%name, "a block that cannot be read is not taken in");
                }
                Err(error) => return Err(error),
            }
        }
        for name in removed {
            self.store.remove(&name.to_string())?;
        }
        Ok(change)
    }

    /// A pushed block's footer, unless its profiles are in blocks that are known: they came again.
    fn is_fresh(&self, name: &BlockName) -> Result<Option<Numbers>, Error> {
        let bytes = self.fetch(name)?;
        let profiles = profiles(&bytes).map_err(|error| error.of(name))?;
        let mut incoming = lock(&self.incoming);
        if incoming.has_any(&name.tenant, &profiles) {
            return Ok(None);
        }
        profiles.iter().for_each(|profile| incoming.remember(&name.tenant, *profile, name.came));
        Ok(Some(Numbers::read(&bytes).map_err(crate::catalogue::Error::from)?))
    }

    /// Learns which profiles were stored a short while ago, or since the first block came of which it is not known whether they came again.
    fn remember_profiles(
        &self,
        live: &BTreeSet<BlockName>,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let is_recent = |name: &&BlockName| {
            now.since(name.came) <= self.settings.retries
                || since.is_some_and(|since| name.came >= since)
        };
        let mut recent: Vec<&BlockName> = live.iter().filter(is_recent).collect();
        recent.sort_unstable_by_key(|name| name.came);
        for name in recent {
            let found =
                self.fetch(name).and_then(|bytes| profiles(&bytes).map_err(|error| error.of(name)));
            match found {
                Ok(profiles) => {
                    let mut incoming = lock(&self.incoming);
                    profiles
                        .iter()
                        .for_each(|profile| incoming.remember(&name.tenant, *profile, name.came));
                }
                // Whether it is missing is looked at after this.
                Err(Error::Gone { .. }) => {}
                Err(error) if error.is_damage() => self.is_damaged(name, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A block is not looked at again until the next start.
    pub(super) fn is_damaged(&self, name: &BlockName, error: &Error) {
        if lock(&self.damaged).insert(name.clone()) {
            let why = model::with_causes(error);
            tracing::error!(why, "a block cannot be read: it is neither merged nor counted");
        }
    }
}

/// The profiles of a block's samples.
fn profiles(bytes: &[u8]) -> Result<BTreeSet<u128>, Error> {
    let mut batch = Batch::new();
    read_into(&bytes::Bytes::copy_from_slice(bytes), &Selection::all(), &mut batch)?;
    Ok(batch.samples().iter().map(|it| it.profile).filter(|id| *id != 0).collect())
}
