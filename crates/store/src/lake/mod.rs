//! The blocks of all tenants in one place: samples come in and are durable, blocks are merged and deleted, questions are answered.
//!
//! ```text
//! push ─▶ pending, by tenant ─ flush ─▶ blocks of level 0 ─ compact ─▶ level 1 ─ compact ─▶ level 2 to 4 ─ expire ─▶ nothing
//!         (a push is acknowledged when its block is in the           │ sums by rules, in the same transaction
//!         catalogue)                                                 └─▶ cells ─ close ─▶ outbox
//! ```
//!
//! Which blocks there are is what the [`Catalogue`] says. If it is lost, it is made anew of the blocks themselves: their names say all
//! that finding them needs, and a merged block says which blocks it stands for.
//!
//! One process at a time writes: a folder is locked, and a catalogue takes the commits of whoever opened it last.

mod board;
mod cache;
mod clock;
mod compaction;
mod flush;
mod job;
mod merge;
pub mod name;
mod pending;
pub mod plan;
mod reader;
mod start;
pub mod tenants;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use export::Prefix;
use model::samples::{Batch, Series};
use model::{Nanos, Timestamp};
use objects::{Io, Store};
use rules::{Book, SeriesLimits};

use self::board::Board;
pub use self::board::{LEASE, NoToken, Tally, Token};
use self::cache::Cache;
use self::clock::Clock;
pub use self::compaction::{Compacted, ENDED_STAY};
use self::flush::Unsettled;
pub use self::job::{Counting, Done, Job, Symbolize};
pub use self::merge::Refusal;
use self::name::{BlockName, Tenant};
use self::pending::Incoming;
pub use self::pending::Ticket;
pub use self::reader::{Block, Reader};
use self::tenants::PerTenant;
use crate::block::{Selection, read_into, read_parts_into, series_into};
use crate::catalogue::{self, Catalogue, Elsewhere};
use crate::cells::Grid;
use crate::error::Error;

/// A block is no longer than this: a merge's bound, and what one flush may have.
const MAX_BLOCK_BYTES: u64 = 256 << 20;
/// Bytes of blocks that are kept in memory.
const CACHE_BYTES: usize = 128 << 20;
/// Versions of rules are known for so long after their last cell, for those who compare what was exported.
const RULES_STAY_MS: i64 = 3_600_000;
/// Samples, or sums of rows, that a question looks at together, 80 bytes each. One row group may be more.
pub const VISITED: usize = 1 << 20;
/// A folder's catalogue, in it.
const CATALOGUE: &str = "catalogue.sqlite";

/// How a [`Lake`] works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A profile that comes again within this time is stored once.
    pub retries: Nanos,
    /// Bytes of samples in memory that wait to be written, more or less; what comes then is refused.
    pub pending_bytes: usize,
    /// The cells in which samples come.
    pub grid: Grid,
    /// Whether sums are made for export, and how.
    pub export: Option<Exporting>,
    /// The URL of the catalogue; a folder has it inside when it is not said.
    pub catalogue: Option<String>,
    /// Blocks of the catalogue that are not there are forgotten, and do not keep the store from starting.
    pub forgets_missing: bool,
}

/// How sums are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exporting {
    /// What metrics' names begin with.
    pub prefix: Prefix,
    /// How many series each tenant may have.
    pub limits: PerTenant<SeriesLimits>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retries: Nanos::new(3_600 * 1_000_000_000),
            pending_bytes: 64 << 20,
            grid: Grid::default(),
            export: None,
            catalogue: None,
            forgets_missing: false,
        }
    }
}

/// Blocks in one place.
#[derive(Debug)]
pub struct Lake {
    store: Store,
    /// Held as long as this process has the folder.
    _lock: Option<File>,
    catalogue: Arc<Catalogue>,
    /// Those that the catalogue has.
    blocks: Mutex<BTreeSet<Arc<BlockName>>>,
    /// Blocks that ended, and when, the first in front: their files are to be removed.
    leaving: Mutex<VecDeque<(Arc<BlockName>, Timestamp)>>,
    /// Blocks that cannot be read: they are neither merged nor counted.
    damaged: Mutex<BTreeSet<BlockName>>,
    /// Files that may be there of blocks that never were.
    orphans: Mutex<BTreeSet<BlockName>>,
    /// Whether something was asked of the catalogue whose answer was lost, so that it may have other blocks.
    is_unsure: AtomicBool,
    /// When the catalogue was told last what it may forget.
    forgot: Mutex<Option<Timestamp>>,
    incoming: Mutex<Incoming>,
    /// What was written last, as long as it is not known whether the catalogue has it.
    unsettled: Mutex<Option<Unsettled>>,
    clock: Mutex<Clock>,
    cache: Mutex<Cache>,
    /// Whoever writes what waits.
    flushing: Mutex<()>,
    /// Whoever looks at all blocks to merge or delete some.
    compacting: Mutex<()>,
    /// Whoever has blocks take the place of others, in the catalogue and in memory.
    changing: Mutex<()>,
    board: Mutex<Board>,
    /// Of each tenant that has metrics.
    elsewhere: Mutex<BTreeMap<Tenant, Elsewhere>>,
    /// Whoever makes jobs reads rules; whoever changes them does that between.
    ruling: RwLock<()>,
    symbols: Option<Arc<dyn Symbolize>>,
    settings: Settings,
}

impl Lake {
    /// Opens a folder or a bucket and its catalogue, and looks at what is there.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`], [`Error::Catalogue`], [`Error::NoCatalogue`], [`Error::Missing`].
    pub fn open(url: &str, io: &Io, settings: Settings, now: Timestamp) -> Result<Self, Error> {
        Self::over(Store::open(url, io)?, settings, now)
    }

    /// The same of a folder or a bucket that is open.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn over(store: Store, settings: Settings, now: Timestamp) -> Result<Self, Error> {
        let lock = store.lock()?;
        let catalogue = Catalogue::open(&catalogue_url(&store, &settings)?, &data(&store), now)?;
        let board = Mutex::new(Board::new(catalogue.epoch()));
        let lake = Self {
            store,
            _lock: lock,
            catalogue: Arc::new(catalogue),
            blocks: Mutex::default(),
            leaving: Mutex::default(),
            damaged: Mutex::default(),
            orphans: Mutex::default(),
            is_unsure: AtomicBool::new(false),
            forgot: Mutex::default(),
            incoming: Mutex::new(Incoming::new(&settings)),
            unsettled: Mutex::default(),
            clock: Mutex::default(),
            cache: Mutex::new(Cache::new(CACHE_BYTES)),
            flushing: Mutex::new(()),
            compacting: Mutex::new(()),
            changing: Mutex::new(()),
            board,
            elsewhere: Mutex::default(),
            ruling: RwLock::new(()),
            symbols: None,
            settings,
        };
        lake.reconcile(now)?;
        Ok(lake)
    }

    /// The same, which names frames in merges that it does itself.
    #[must_use]
    pub fn with_symbols(mut self, symbols: Option<Arc<dyn Symbolize>>) -> Self {
        self.symbols = symbols;
        self
    }

    /// The catalogue.
    #[must_use]
    pub const fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// When the next cell begins, milliseconds since 1970: rules that are made hold from there on, and all that comes in it comes later.
    #[must_use]
    pub fn next_cell_ms(&self, now: Timestamp) -> i64 {
        let grid = self.settings.grid;
        grid.end_of(grid.cell_of(lock(&self.clock).latest(now)))
    }

    /// Changes a tenant's rules: `change` is told when the next cell begins, from which on what it makes should hold. No merge is begun
    /// meanwhile, so all that is counted of that cell is counted by the new ones. Versions that no block is counted by any more are
    /// forgotten an hour later.
    ///
    /// What `change` refuses is not kept.
    ///
    /// # Errors
    ///
    /// [`catalogue::Error`].
    pub fn change_rules<T, E>(
        &self,
        tenant: &Tenant,
        now: Timestamp,
        change: impl FnOnce(&mut Book, i64) -> Result<T, E>,
    ) -> Result<Result<T, E>, catalogue::Error> {
        let _only = self.ruling.write().unwrap_or_else(PoisonError::into_inner);
        let mut book = self.catalogue.rules(tenant)?;
        let before = book.generation();
        let next_ms = self.next_cell_ms(now);
        let waiting = self.blocks().into_iter().filter(|it| it.level == 0 && it.tenant == *tenant);
        let low = lock(&self.clock).low(now);
        let open = waiting.map(|block| block.came).fold(low, Timestamp::min);
        let looked_at = next_ms.saturating_sub(RULES_STAY_MS);
        book.forget(self.settings.grid.cell_of(open).min(looked_at));
        let changed = match change(&mut book, next_ms) {
            Ok(changed) => changed,
            Err(refused) => return Ok(Err(refused)),
        };
        if book.generation() != before {
            self.catalogue.put_rules(tenant, &book, before)?;
        }
        Ok(Ok(changed))
    }

    /// Samples of a tenant that were counted in other series than they would be, in the cells that this process closed.
    #[must_use]
    pub fn elsewhere(&self, tenant: &Tenant) -> Elsewhere {
        lock(&self.elsewhere).get(tenant).copied().unwrap_or_default()
    }

    /// The blocks of all tenants.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockName> {
        lock(&self.blocks).iter().map(|name| BlockName::clone(name)).collect()
    }

    /// Blocks that cannot be read: they are neither merged nor counted, and questions for their times fail.
    #[must_use]
    pub fn damaged(&self) -> Vec<BlockName> {
        lock(&self.damaged).iter().cloned().collect()
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

    /// The same, batch by batch: `visit` is shown each sample once, and no more than some [`VISITED`] are in memory at a time.
    ///
    /// # Errors
    ///
    /// As [`Self::select`]. What was shown until then is a part.
    pub fn visit(
        &self,
        tenant: &Tenant,
        selection: &Selection<'_>,
        mut visit: impl FnMut(&Batch),
    ) -> Result<(), Error> {
        let mut batch = Batch::new();
        let mut take = |batch: &mut Batch| {
            let is_enough = batch.samples().len() >= VISITED;
            if is_enough {
                visit(&std::mem::take(batch));
            }
            is_enough
        };
        for name in self.blocks_of(tenant, selection.times) {
            let bytes = self.read(&name)?;
            read_parts_into(&bytes, selection, &mut batch, &mut take)
                .map_err(|error| error.of(&name))?;
        }
        visit(&batch);
        Ok(())
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
        let bytes = self.fetch(name)?;
        lock(&self.cache).put(name.clone(), bytes.clone());
        Ok(bytes)
    }

    /// The same past what is kept in memory for questions.
    fn fetch(&self, name: &BlockName) -> Result<Bytes, Error> {
        job::fetch(&self.store, name)
    }
}

fn catalogue_url(store: &Store, settings: &Settings) -> Result<String, Error> {
    match (&settings.catalogue, store.folder()) {
        (Some(url), _) => Ok(url.clone()),
        (None, Some(folder)) => Ok(catalogue::url_of_file(&folder.join(CATALOGUE))),
        (None, None) => Err(Error::NoCatalogue { url: store.url().to_owned() }),
    }
}

/// Where others find the blocks that the catalogue names.
fn data(store: &Store) -> String {
    let folder = store.folder().and_then(|folder| std::path::absolute(folder).ok());
    folder.map_or_else(|| store.url().to_owned(), |folder| folder.display().to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
