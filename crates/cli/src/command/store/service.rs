//! A store at work: what clients reach, and what is done again and again beside it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use export::Prefix;
use model::{Nanos, Timestamp};
use objects::Io;
use rules::Config;
use server::profiles::Profiles;
use store::cells::Grid;
use store::lake::plan::Retention;
use store::lake::tenants::PerTenant;
use store::lake::{Exporting, Lake, Settings, Symbolize};

use super::exports::Exports;
use super::limits::Share;
use super::metrics;
use super::receivers::Receiver;
use super::symbols::Names;
use crate::outcome::complain;

/// How often blocks are looked at, at least: which are merged, which are deleted.
const LOOK: Duration = Duration::from_secs(5);

/// How a store works.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where its blocks are: a folder or a bucket.
    pub(super) data: String,
    /// The URL of their catalogue, when it is not in the folder.
    pub(super) catalogue: Option<String>,
    /// It starts although blocks of the catalogue are not there.
    pub(super) forgets_missing: bool,
    pub(super) are_tenants_told: bool,
    /// What was pushed is on the disk after so long.
    pub(super) flush: Duration,
    /// What each tenant may have.
    pub(super) shares: PerTenant<Share>,
    /// Bytes that are kept of all tenants together.
    pub(super) keep_bytes: Option<u64>,
    pub(super) rules: Option<Config>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) grid: Grid,
    /// What metrics' names begin with.
    pub(super) prefix: Prefix,
    /// What names frames in merges.
    pub(super) symbols: Option<Arc<Names>>,
}

impl Options {
    /// One tenant, nothing is deleted, no metrics.
    pub(super) fn new(data: String) -> Self {
        Self {
            data,
            catalogue: None,
            forgets_missing: false,
            are_tenants_told: false,
            flush: Duration::from_millis(500),
            shares: PerTenant::default(),
            keep_bytes: None,
            rules: None,
            receivers: Vec::new(),
            grid: Grid::default(),
            prefix: Prefix::default(),
            symbols: None,
        }
    }
}

/// A store at work. It ends with [`Self::finish`].
pub(crate) struct Service {
    profiles: Profiles,
    lake: Arc<Lake>,
    keeper: Keeper,
}

impl Service {
    /// Opens the place and begins.
    ///
    /// # Errors
    ///
    /// Why it cannot keep profiles there.
    pub(crate) fn start(options: Options) -> anyhow::Result<Self> {
        let io = Io::start().context("cannot start threads")?;
        let Options { shares, .. } = options;
        let series = shares.map(|share| share.series);
        let exporting = Exporting { prefix: options.prefix.clone(), limits: series };
        let settings = Settings {
            retries: remembered(&shares),
            grid: options.grid,
            export: (!options.receivers.is_empty()).then_some(exporting),
            catalogue: options.catalogue,
            forgets_missing: options.forgets_missing,
            ..Settings::default()
        };
        let lake = Lake::open(&options.data, &io, settings, now());
        let lake = lake.with_context(|| format!("cannot keep profiles in {}", options.data))?;
        let symbols = options.symbols.clone();
        let lake = lake.with_symbols(symbols.map(|symbols| symbols as Arc<dyn Symbolize>));
        let lake = Arc::new(lake);
        let limits = shares.map(|share| share.limits.clone());
        let told = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&told);
        let names = options.symbols.clone();
        let are_tenants_told = options.are_tenants_told;
        let profiles = Profiles::new(Arc::clone(&lake), limits, are_tenants_told, now)
            .with_metric_prefix(options.prefix)
            .with_metrics(Arc::new(move || {
                let told = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                names.iter().fold(told, |told, names| told + &metrics::of_symbols(names))
            }));
        let exports =
            Exports::new(Arc::clone(&lake), options.receivers, are_tenants_told, options.rules);
        let look = LOOK.min(Duration::from_millis(options.grid.cell_ms().unsigned_abs()));
        let tenants = shares.map(|share| share.keep);
        let retention = Retention { tenants, bytes: options.keep_bytes };
        let asked = profiles.clone();
        let keeper =
            Keeper::start(Arc::clone(&lake), exports, asked, told, options.flush, look, retention);
        Ok(Self { profiles, lake, keeper })
    }

    /// What clients reach.
    pub(crate) fn profiles(&self) -> Profiles {
        self.profiles.clone()
    }

    /// The blocks.
    pub(super) fn lake(&self) -> Arc<Lake> {
        Arc::clone(&self.lake)
    }

    /// Writes what waits, and ends.
    pub(crate) fn finish(self) {
        self.keeper.finish();
    }
}

/// Writes what waits, and merges and deletes blocks.
struct Keeper {
    ends: Vec<mpsc::Sender<()>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Keeper {
    fn start(
        lake: Arc<Lake>,
        mut exports: Exports,
        profiles: Profiles,
        told: Arc<Mutex<String>>,
        flush: Duration,
        look: Duration,
        retention: Retention,
    ) -> Self {
        let mut keeper = Self { ends: Vec::new(), threads: Vec::new() };
        let other = Arc::clone(&lake);
        keeper.every(flush, move || {
            if other.is_pending() {
                other.flush(now());
            }
        });
        let mut troubles =
            [Trouble::of("blocks are not merged or deleted"), Trouble::of("metrics are not made")];
        keeper.every(look, move || {
            let [blocks, metrics_of] = &mut troubles;
            // Rules come before what is counted by them.
            let provisioned = exports.provision(now());
            let merged = lake.compact_for(now(), |tenant| exports.is_provisioned(tenant));
            let expired = lake.expire(&retention, now());
            blocks.tell(merged.map(drop).and(expired.map(drop)).map_err(anyhow::Error::from));
            let closed = provisioned.and(exports.close(now()));
            let text = metrics::text(&lake, &exports, &profiles.left_out(), now());
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            // Nothing rather than what is not true any more.
            metrics_of.tell(closed.and(match text {
                Ok(text) => {
                    *told = text;
                    Ok(())
                }
                Err(error) => {
                    told.clear();
                    Err(error)
                }
            }));
        });
        keeper
    }

    /// Does something again and again, and once more at the end.
    fn every(&mut self, pause: Duration, mut work: impl FnMut() + Send + 'static) {
        let (end, ends) = mpsc::channel::<()>();
        self.ends.push(end);
        self.threads.push(thread::spawn(move || {
            while ends.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                work();
            }
            work();
        }));
    }

    fn finish(self) {
        drop(self.ends);
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// What does not go well is said once, until it does.
pub(crate) struct Trouble {
    what: &'static str,
    is_said: bool,
}

impl Trouble {
    pub(crate) const fn of(what: &'static str) -> Self {
        Self { what, is_said: false }
    }

    pub(crate) fn tell(&mut self, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.is_said = false,
            Err(error) if !std::mem::replace(&mut self.is_said, true) => {
                complain(&format!("{}: {error:#}", self.what));
            }
            Err(_) => {}
        }
    }
}

/// How long profiles are remembered: a retry that is taken, of samples that were of a time ahead at first, was not forgotten.
fn remembered(shares: &PerTenant<Share>) -> Nanos {
    let limits = shares.all().map(|share| &share.limits);
    let times = limits.map(|limits| {
        let times = [limits.oldest, limits.newest].map(|time| time.map_or(u64::MAX, Nanos::get));
        times.into_iter().fold(0, u64::saturating_add)
    });
    Nanos::new(times.max().unwrap_or_default())
}

pub(super) fn nanos(time: Duration) -> Nanos {
    Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "what is pushed is from now")]
pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    Timestamp::from_nanos(nanos)
}
