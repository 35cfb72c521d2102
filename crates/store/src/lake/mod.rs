//! The blocks of all tenants in one place: samples come in and are durable, blocks are merged and deleted, questions are answered.
//!
//! ```text
//! push ─▶ pending, by tenant ─ flush ─▶ blocks of level 0 ─ compact ─▶ blocks of level 1 to 4 ─ expire ─▶ nothing
//!         (a push is acknowledged when its block is on the disk)           │
//!                                       select ◀───── all of them ─────────┘
//! ```
//!
//! There is no other state: the place is listed at the start, and names say all that finding blocks needs. A merged block says which
//! blocks it stands for, so it takes their place at the moment that it is there, whenever the process ends.
//!
//! One process at a time writes to a place.

mod cache;
pub mod name;
mod pending;
pub mod plan;

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::samples::{Batch, Series};
use model::{Nanos, Timestamp};
use objects::{Io, Store, Sync};

use self::cache::Cache;
use self::name::{BlockName, Tenant};
pub use self::pending::Ticket;
use self::pending::{Incoming, Pending};
use self::plan::{Keep, Merge};
use crate::block::{self, Selection, read_into, series_into};
use crate::content::Digest;
use crate::error::Error;

/// A block is no longer than this: a merge's bound, and what one flush may have.
const MAX_BLOCK_BYTES: u64 = 256 << 20;
/// Bytes of blocks that are kept in memory.
const CACHE_BYTES: usize = 128 << 20;

/// How a [`Lake`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A profile that comes again within this time is stored once.
    pub retries: Nanos,
    /// Bytes of samples in memory that wait to be written, more or less; what comes then is refused.
    pub pending_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { retries: Nanos::new(3_600 * 1_000_000_000), pending_bytes: 64 << 20 }
    }
}

/// Blocks in one place.
#[derive(Debug)]
pub struct Lake {
    store: Store,
    /// Held as long as this process has the folder.
    _lock: Option<File>,
    blocks: Mutex<BTreeSet<Arc<BlockName>>>,
    /// Blocks that are to be removed once no question reads them.
    leaving: Mutex<Vec<Arc<BlockName>>>,
    incoming: Mutex<Incoming>,
    cache: Mutex<Cache>,
    /// Whoever writes what waits.
    flushing: Mutex<()>,
    /// Whoever writes blocks in place of others.
    compacting: Mutex<()>,
    settings: Settings,
}

/// What a round of compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Blocks that were made.
    pub made: usize,
    /// Blocks that they stand for.
    pub replaced: usize,
}

impl Lake {
    /// Opens a folder or a bucket, and looks at what is there.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`]; what reading blocks meets.
    pub fn open(url: &str, io: &Io, settings: Settings, now: Timestamp) -> Result<Self, Error> {
        let store = Store::open(url, io)?;
        let lock = store.lock()?;
        let names = store.list("")?;
        let blocks = names.iter().filter_map(|name| name.parse().ok().map(Arc::new)).collect();
        let lake = Self {
            store,
            _lock: lock,
            blocks: Mutex::new(blocks),
            leaving: Mutex::default(),
            incoming: Mutex::new(Incoming::new(settings)),
            cache: Mutex::new(Cache::new(CACHE_BYTES)),
            flushing: Mutex::new(()),
            compacting: Mutex::new(()),
            settings,
        };
        lake.finish_merges()?;
        lake.remember_profiles(now)?;
        Ok(lake)
    }

    /// Takes in samples of a tenant, which are stored when their ticket says so. Profiles that came before are not taken again.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] when too much waits to be written.
    pub fn push(&self, tenant: &Tenant, samples: &Batch) -> Result<Ticket, Error> {
        lock(&self.incoming).push(tenant, samples)
    }

    /// Whether anything waits to be written.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !lock(&self.incoming).is_empty()
    }

    /// Writes what waits: a block for each tenant. Who waits for a block that cannot be written learns why.
    pub fn flush(&self, now: Timestamp) {
        let _only = lock(&self.flushing);
        let all = lock(&self.incoming).take();
        for (tenant, pending) in all {
            let written = self.write(&tenant, &pending);
            if let Ok(Some(name)) = &written {
                lock(&self.blocks).insert(Arc::new(name.clone()));
            }
            lock(&self.incoming).is_written(&tenant, &pending, written.is_ok(), now);
            pending.tell(written.map(drop));
        }
    }

    fn write(&self, tenant: &Tenant, pending: &Pending) -> Result<Option<BlockName>, Error> {
        let Some((header, bytes)) = block::encode_as(&pending.batch, &[])? else { return Ok(None) };
        self.put(tenant, 0, &header, bytes).map(Some)
    }

    fn put(
        &self,
        tenant: &Tenant,
        level: u8,
        header: &block::Header,
        bytes: Vec<u8>,
    ) -> Result<BlockName, Error> {
        let name = BlockName {
            tenant: tenant.clone(),
            begin: Timestamp::from_nanos(header.begin_unix_ns),
            end: Timestamp::from_nanos(header.end_unix_ns),
            level,
            bytes: bytes.len() as u64,
            digest: Digest::of(&bytes),
        };
        // Whoever put the same name put the same bytes.
        self.store.create(&name.to_string(), bytes, Sync::AtOnce)?;
        Ok(name)
    }

    /// The blocks of all tenants.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockName> {
        lock(&self.blocks).iter().map(|name| BlockName::clone(name)).collect()
    }

    /// All that is selected of a tenant's samples that were acknowledged.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`], [`Error::Block`].
    pub fn select(&self, tenant: &Tenant, selection: &Selection<'_>) -> Result<Batch, Error> {
        let mut batch = Batch::new();
        for name in self.blocks_of(tenant, selection.times) {
            let bytes = self.read(&name)?;
            read_into(&bytes, selection, &mut batch).map_err(|error| error.of(&name))?;
        }
        Ok(batch)
    }

    /// A tenant's series that were sampled from the first to the last of these times.
    ///
    /// # Errors
    ///
    /// As [`Self::select`].
    pub fn series(
        &self,
        tenant: &Tenant,
        times: (Timestamp, Timestamp),
    ) -> Result<BTreeSet<Series>, Error> {
        let mut found = BTreeSet::new();
        for name in self.blocks_of(tenant, times) {
            let bytes = self.read(&name)?;
            series_into(&bytes, times, &mut found).map_err(|error| error.of(&name))?;
        }
        Ok(found)
    }

    /// Whoever merges them meanwhile leaves them until they are read.
    fn blocks_of(
        &self,
        tenant: &Tenant,
        (first, last): (Timestamp, Timestamp),
    ) -> Vec<Arc<BlockName>> {
        let blocks = lock(&self.blocks);
        let of_tenant = blocks.iter().filter(|it| it.tenant == *tenant);
        of_tenant.filter(|it| it.begin <= last && it.end >= first).cloned().collect()
    }

    /// The bytes of a block, which are what its name says.
    fn read(&self, name: &BlockName) -> Result<Bytes, Error> {
        if let Some(known) = lock(&self.cache).get(name) {
            return Ok(known);
        }
        let found = self.store.get(&name.to_string(), MAX_BLOCK_BYTES)?;
        let bytes = found.ok_or_else(|| Error::Gone { name: Box::new(name.clone()) })?;
        if bytes.len() as u64 != name.bytes || Digest::of(&bytes) != name.digest {
            return Err(Error::Changed { name: Box::new(name.clone()) });
        }
        let bytes = Bytes::from(bytes);
        lock(&self.cache).put(name.clone(), bytes.clone());
        Ok(bytes)
    }

    /// Merges what is due.
    ///
    /// # Errors
    ///
    /// What reading and writing blocks meets first; all other merges were done.
    pub fn compact(&self, now: Timestamp) -> Result<Compacted, Error> {
        let _only = lock(&self.compacting);
        self.sweep()?;
        let mut done = Compacted::default();
        let mut first = None;
        for merge in plan::merges(&self.blocks(), now) {
            match self.merge(&merge) {
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

    fn merge(&self, merge: &Merge) -> Result<(), Error> {
        let Some(first) = merge.sources.first() else { return Ok(()) };
        let mut all = Batch::new();
        for source in &merge.sources {
            let bytes = self.read(source)?;
            read_into(&bytes, &Selection::all(), &mut all).map_err(|error| error.of(source))?;
        }
        let sources: Vec<Digest> = merge.sources.iter().map(|source| source.digest).collect();
        let Some((header, bytes)) = block::encode_as(&all, &sources)? else { return Ok(()) };
        let name = self.put(&first.tenant, merge.level, &header, bytes)?;
        self.replace(&merge.sources, Some(name));
        self.sweep()
    }

    /// Has a block take the place of others at once.
    fn replace(&self, others: &[BlockName], by: Option<BlockName>) {
        let others: BTreeSet<&BlockName> = others.iter().collect();
        let mut blocks = lock(&self.blocks);
        let (leaving, mut staying): (Vec<_>, BTreeSet<_>) = (
            blocks.iter().filter(|name| others.contains(name.as_ref())).cloned().collect(),
            blocks.iter().filter(|name| !others.contains(name.as_ref())).cloned().collect(),
        );
        staying.extend(by.map(Arc::new));
        *blocks = staying;
        lock(&self.leaving).extend(leaving);
    }

    /// Removes blocks that have left, but for those that a question still reads.
    fn sweep(&self) -> Result<(), Error> {
        let mut leaving = lock(&self.leaving);
        // Nobody takes one that has left.
        while let Some(at) = leaving.iter().position(|name| Arc::strong_count(name) == 1)
            && let Some(name) = leaving.get(at)
        {
            lock(&self.cache).remove(name);
            self.store.remove(&name.to_string())?;
            leaving.swap_remove(at);
        }
        Ok(())
    }

    /// Deletes what is not kept; says which blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`].
    pub fn expire(&self, keep: Keep, now: Timestamp) -> Result<Vec<BlockName>, Error> {
        let _only = lock(&self.compacting);
        let expired = plan::expired(&self.blocks(), keep, now);
        self.replace(&expired, None);
        self.sweep()?;
        Ok(expired)
    }

    /// Removes blocks that a merged one stands for: the process that merged them ended before it could.
    fn finish_merges(&self) -> Result<(), Error> {
        let blocks = self.blocks();
        for merged in blocks.iter().filter(|it| it.level > 0) {
            let below: Vec<&BlockName> = blocks
                .iter()
                .filter(|it| it.tenant == merged.tenant && it.level < merged.level)
                .filter(|it| it.begin >= merged.begin && it.end <= merged.end)
                .collect();
            if below.is_empty() {
                continue;
            }
            let header = block::header(&self.read(merged)?).map_err(|error| error.of(merged))?;
            let sources: BTreeSet<String> = header.replaces.into_iter().collect();
            let is_source = |it: &&&BlockName| sources.contains(&it.digest.to_string());
            let left: Vec<BlockName> =
                below.iter().filter(is_source).map(|it| (*it).clone()).collect();
            self.replace(&left, None);
        }
        self.sweep()
    }

    /// Learns which profiles were stored a short while ago.
    fn remember_profiles(&self, now: Timestamp) -> Result<(), Error> {
        for name in self.blocks() {
            if now.since(name.end) > self.settings.retries {
                continue;
            }
            let mut batch = Batch::new();
            let bytes = self.read(&name)?;
            read_into(&bytes, &Selection::all(), &mut batch).map_err(|error| error.of(&name))?;
            let profiles: BTreeSet<u128> =
                batch.samples().iter().map(|it| it.profile).filter(|id| *id != 0).collect();
            let mut incoming = lock(&self.incoming);
            profiles
                .into_iter()
                .for_each(|profile| incoming.remember(&name.tenant, profile, name.end));
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
