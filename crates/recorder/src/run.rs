//! All threads of a recorder.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use journal::{Bounds, Journal};

use crate::clock;
use crate::driver::{self, Target};
use crate::error::{Error, On, Result};
use crate::intake::{Intake, Shared};
use crate::known::Known;
use crate::ledger::{DriverLedger, Ledger, ServiceLedger, Troubles};
use crate::notifications::Notifications;
use crate::redis::RedisPort;

/// How often the journal is made durable, bounded, and the ledger written.
const TICK: Duration = Duration::from_secs(1);

/// What a recorder is to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of the journal and the ledger; made when it is not there.
    pub folder: PathBuf,
    /// What may wait there.
    pub bounds: Bounds,
    /// Where applications hand their rings over.
    pub socket: PathBuf,
    /// Whether applications of all users may.
    pub is_open_to_all: bool,
    /// Who gets records.
    pub targets: Vec<Target>,
    /// Attributes of all processes of this machine, for targets that know such.
    pub machine: Vec<(String, String)>,
    /// Where clients of Redis write notifications of OSProfiler, and ask for them.
    pub redis: Option<Redis>,
}

/// A port for clients of Redis.
#[derive(Clone)]
pub struct Redis {
    /// Where it listens; port 0 is any that is free.
    pub address: SocketAddr,
    /// What clients must know, if anything.
    pub password: Option<String>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A recorder that runs.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    folder: PathBuf,
    intake: JoinHandle<()>,
    redis: Option<RedisPort>,
    drivers: Vec<JoinHandle<()>>,
    ticker: JoinHandle<()>,
    stop_ticker: mpsc::Sender<()>,
    /// When drivers have to end.
    until: Arc<Mutex<Option<Instant>>>,
}

impl Recorder {
    /// Begins, where an earlier one ended.
    ///
    /// # Errors
    /// Any that [`Error`] has.
    pub fn start(settings: Settings) -> Result<Self> {
        let Settings { folder, bounds, socket, is_open_to_all, targets, machine, redis } = settings;
        let journal = Journal::open(&folder, bounds)?;
        let known_path = folder.join(KNOWN);
        let known = Known::open(&known_path, &journal)?;
        journal.hold(known.entry());
        let notifications =
            Notifications::open(&journal, osprofiler::Limits::default(), redis.is_some())?;
        let shared = Arc::new(Shared {
            journal,
            notifications,
            known_path,
            known: Mutex::new(known),
            troubles: Mutex::new(Troubles::default()),
            stopped: AtomicBool::new(false),
            flight: AtomicBool::new(false),
        });
        let until = Arc::default();
        let drivers = targets.iter().map(|target| {
            driver::start(target, &shared.journal, &folder, &machine, Arc::clone(&until))
        });
        let drivers = drivers.collect::<Result<Vec<_>>>()?;
        let intake = Intake::new(Arc::clone(&shared), &socket, is_open_to_all)?;
        let intake = spawn("rings", move || intake.run())?;
        let redis = redis
            .map(|it| RedisPort::open(it.address, it.password.as_deref(), Arc::clone(&shared)));
        let redis = redis.transpose()?;
        let (stop_ticker, ticks) = mpsc::channel();
        let (ticking, of) = (Arc::clone(&shared), folder.clone());
        let ticker = spawn("ledger", move || {
            while ticks.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = tick(&ticking, &of) {
                    tracing::warn!(
                        error = model::with_causes(&error),
                        "the journal is not kept up"
                    );
                }
            }
        })?;
        Ok(Self { shared, folder, intake, redis, drivers, ticker, stop_ticker, until })
    }

    /// Has flight recorders read when it is asked, also by others.
    #[must_use]
    pub fn flight_recorders(&self) -> FlightRecorders {
        FlightRecorders(Arc::clone(&self.shared))
    }

    /// Where clients of Redis are answered.
    #[must_use]
    pub fn redis_address(&self) -> Option<SocketAddr> {
        self.redis.as_ref().map(|port| port.address)
    }

    /// What became of all records until now.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger()
    }

    /// Reads what applications have published, delivers what it can within this time, and ends. What is left waits for the next start.
    ///
    /// # Errors
    /// The journal or the ledger cannot be written.
    pub fn stop(self, patience: Duration) -> Result<Ledger> {
        let Self { shared, folder, intake, redis, drivers, ticker, stop_ticker, until } = self;
        shared.stopped.store(true, Ordering::Release);
        join(intake);
        redis.into_iter().for_each(RedisPort::close);
        *until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + patience);
        drivers.into_iter().for_each(join);
        drop(stop_ticker);
        join(ticker);
        tick(&shared, &folder)?;
        Ok(shared.ledger())
    }
}

/// Has flight recorders read.
#[derive(Debug, Clone)]
pub struct FlightRecorders(Arc<Shared>);

impl FlightRecorders {
    /// Soon and once: what they have then goes where all records go.
    pub fn ask(&self) {
        self.0.flight.store(true, Ordering::Release);
    }
}

/// What is known of applications.
const KNOWN: &str = "applications";
/// The ledger, for who asks from outside.
const LEDGER: &str = "ledger.json";

impl Ledger {
    /// The ledger in a recorder's folder, as it was at most a second ago while that runs.
    ///
    /// # Errors
    /// There is none that can be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(LEDGER);
        let bytes = std::fs::read(&path).on("read", &path)?;
        serde_json::from_slice(&bytes).map_err(|_no_ledger| Error::Damaged { path })
    }
}

impl Shared {
    fn ledger(&self) -> Ledger {
        // Held, so that what services have stored is what the journal has.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let levels = self.journal.levels();
        let services = known.services.iter().map(|(name, it)| {
            let service = ServiceLedger {
                stored: it.stored,
                dropped: it.dropped.clone(),
                processes: it.processes,
                ended: it.ended,
            };
            (name.clone(), service)
        });
        let services = services.collect();
        drop(known);
        let drivers = levels.readers.into_iter().map(|(name, (seen, counts))| {
            let dropped = counts.dropped.iter();
            let dropped = dropped.map(|(reason, count)| (reason.as_str().to_owned(), *count));
            let driver = DriverLedger {
                seen,
                delivered: counts.acknowledged,
                dropped: dropped.collect(),
                waiting: counts.waiting,
            };
            (name, driver)
        });
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let troubles = troubles.counts.iter().map(|(what, count)| ((*what).to_owned(), *count));
        let forgotten = self.notifications.losses().by_reason().into_iter();
        let forgotten = forgotten.filter(|(_, count)| *count > 0);
        let forgotten = forgotten.map(|(what, count)| (format!("redis_{what}"), count));
        Ledger {
            stored: levels.end.records,
            bytes: levels.bytes,
            services,
            drivers: drivers.collect(),
            troubles: troubles.chain(forgotten).collect(),
        }
    }
}

fn tick(shared: &Shared, folder: &Path) -> Result<()> {
    shared.journal.sync()?;
    // First, so that no entry goes that is not counted there.
    let known = shared.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
    known.save(&shared.known_path)?;
    shared.journal.hold(known.entry());
    shared.journal.enforce(clock::now())?;
    let path = folder.join(LEDGER);
    let part = folder.join(format!("{LEDGER}.part"));
    let json = serde_json::to_vec_pretty(&shared.ledger()).map_err(std::io::Error::from);
    let written = json.and_then(|json| std::fs::write(&part, json));
    written.and_then(|()| std::fs::rename(&part, &path)).on("write", &path)
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(Error::Thread)
}

fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
