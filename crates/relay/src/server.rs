//! The running relay: its listeners, a task for the disk work, one for expiry.
//!
//! Connections run on threads of their own, see [`crate::workers`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use door::Role;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::after::{After, Outbox};
use crate::config::{Config, Limits};
use crate::counters::{Counters, Totals};
use crate::doors::listen::{Inside, accept_plain, accept_tls};
use crate::doors::tls::Gate;
use crate::doors::{Network, Peers};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::names::Names;
use crate::recover::{Recovered, recover};
use crate::registry::Registry;
use crate::root::Root;

/// Recording sessions whose chunks are sealed at a time. A large chunk takes as long as the disk needs for it.
const SEALERS: usize = 4;
/// How often what has waited too long is looked for.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);
/// File descriptors that are not streams': listeners, folders, the rest of the process.
const SPARE_DESCRIPTORS: u64 = 256;

/// A relay that runs until [`Relay::shutdown`].
#[derive(Debug)]
pub struct Relay {
    registry: Arc<Registry>,
    control: SocketAddr,
    data: SocketAddr,
    viewers: SocketAddr,
    tls: Option<SocketAddr>,
    gate: Option<Arc<Gate>>,
    recovered: Recovered,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
    inside: Arc<Inside>,
    housekeeping: JoinHandle<()>,
    sealer: JoinHandle<()>,
    sealer_stop: watch::Sender<bool>,
    after: After,
}

/// What the network lost of the sessions that are recorded now, for who shows it. Cloning shares it.
#[derive(Debug, Clone)]
pub struct NetworkLosses(Arc<Registry>);

impl NetworkLosses {
    /// Packets lost since the session began, by the path of the stream's file in each chunk; only streams that lost some, and
    /// nothing once the session is over.
    #[must_use]
    pub fn of(&self, host: &str, session: &str) -> BTreeMap<PathBuf, u64> {
        let feeds = self.0.feeds.sessions();
        let mut losses = BTreeMap::new();
        for feed in feeds.iter().filter(|feed| feed.hostname == host && feed.name == session) {
            for (path, packets) in feed.network_losses() {
                let count = losses.entry(path.as_path().to_owned()).or_insert(0_u64);
                *count = count.saturating_add(packets);
            }
        }
        losses
    }
}

impl Relay {
    /// Opens the root folder, finishes what a relay that was killed there left half done, opens the ports and
    /// serves them in the background. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::OpenAddress`] for an address that others reach without [`Config::peers`]; [`Error::Unguarded`] and
    /// [`Error::Tls`] for what [`Config::tls`] lacks; [`Error::File`] when the folder cannot be used,
    /// [`Error::RootInUse`], [`Error::Listen`].
    pub fn start(config: Config) -> Result<Self> {
        let Config { root, control, data, viewers, peers, time_zone, announce, .. } = config;
        let Config { tls, compress, keep, release, mut limits, .. } = config;
        for address in [control, data, viewers] {
            Peers::of_port(address, peers.as_deref())?;
        }
        let tls_peers = Peers(peers.clone().unwrap_or_else(|| vec![Network::ANY]));
        let peers = Arc::new(Peers(peers.unwrap_or_default()));
        let tls_address = tls.as_ref().map(|tls| tls.address);
        let gate = tls.map(Gate::open).transpose()?.map(Arc::new);
        lower_to_descriptors(&mut limits, 3 + usize::from(gate.is_some()));
        let root = Root::open(&root)?;
        let names = Names::new(time_zone);
        let mut found = recover(&root, &names)?;
        let (control, control_address) = listen(control)?;
        let (data, data_address) = listen(data)?;
        let (viewers, viewers_address) = listen(viewers)?;
        let tls = tls_address.map(listen).transpose()?;
        let counters = Counters::default();
        let outbox = Outbox::open(&root, announce, compress.is_some(), &counters)?;
        let env = Env::new(root, names, limits, counters, outbox, found.next_number);
        let again = found.seal(&env);
        let registry = Arc::new(Registry::new(env, found.known));
        registry.try_again(again);
        let inside = Arc::new(Inside::new(Arc::clone(&registry))?);
        let (stop, stopped) = watch::channel(false);
        let (sealer_stop, sealer_stopped) = watch::channel(false);
        let plain = |listener, role| {
            let inside = Arc::clone(&inside);
            tokio::spawn(accept_plain(listener, role, inside, Arc::clone(&peers), stopped.clone()))
        };
        let mut listeners = vec![
            plain(control, Role::Control),
            plain(data, Role::Data),
            plain(viewers, Role::Viewer),
        ];
        let tls = tls.zip(gate.clone()).map(|((listener, address), gate)| {
            let (inside, peers) = (Arc::clone(&inside), Arc::new(tls_peers));
            listeners.push(tokio::spawn(accept_tls(
                listener,
                gate,
                inside,
                peers,
                stopped.clone(),
            )));
            address
        });
        Ok(Self {
            control: control_address,
            data: data_address,
            viewers: viewers_address,
            tls,
            gate,
            recovered: found.recovered,
            listeners,
            housekeeping: tokio::spawn(expire(Arc::clone(&registry), stopped.clone())),
            sealer: tokio::spawn(seal(Arc::clone(&registry), sealer_stopped)),
            after: After::start(&registry, compress, keep, release),
            registry,
            inside,
            stop,
            sealer_stop,
        })
    }

    /// Where the control port listens.
    #[must_use]
    pub const fn control_addr(&self) -> SocketAddr {
        self.control
    }

    /// Where the data port listens.
    #[must_use]
    pub const fn data_addr(&self) -> SocketAddr {
        self.data
    }

    /// Where the port for viewers listens.
    #[must_use]
    pub const fn viewers_addr(&self) -> SocketAddr {
        self.viewers
    }

    /// Where the encrypted port listens, if there is one.
    #[must_use]
    pub const fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls
    }

    /// Reads the files of the encrypted port anew, certificates and tokens: who comes from now on is judged by them; who is
    /// there stays. When one of them cannot be used, all remains as it was.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn reload(&self) -> Result<()> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate.reload())
    }

    /// The root folder, absolute.
    #[must_use]
    pub fn root(&self) -> &std::path::Path {
        self.registry.env.root.path()
    }

    /// What was found in the root folder at the start.
    #[must_use]
    pub const fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Events from now on. A subscriber that falls behind by more than [`Limits::event_backlog`] is told how many it lost.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.registry.subscribe()
    }

    /// What the network lost of the sessions that are recorded now.
    #[must_use]
    pub fn network_losses(&self) -> NetworkLosses {
        NetworkLosses(Arc::clone(&self.registry))
    }

    /// What was counted since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.registry.env.counters.totals()
    }

    /// Closes the ports and every connection, seals what is open where it stands, and returns when all of it is on
    /// the disk and announced.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        for task in self.listeners {
            ended(task.await);
        }
        ended(self.housekeeping.await);
        self.inside.stop();
        self.registry.end_all();
        self.sealer_stop.send_replace(true);
        ended(self.sealer.await);
        self.after.stop().await;
    }
}

/// Does the work that syncs and deletes, apart from the connections, until stopped and done.
async fn seal(registry: Arc<Registry>, mut stop: watch::Receiver<bool>) {
    let mut sealers = JoinSet::new();
    loop {
        let is_stopping = tokio::select! {
            () = registry.job_added.notified(), if sealers.len() < SEALERS => false,
            () = rested(registry.next_rested()), if sealers.len() < SEALERS => false,
            Some(done) = sealers.join_next() => {
                ended(done);
                continue;
            }
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if is_stopping {
            registry.end_rests();
        }
        let worker = Arc::clone(&registry);
        sealers.spawn_blocking(move || worker.run_jobs());
        if is_stopping {
            while let Some(done) = sealers.join_next().await {
                ended(done);
            }
            return;
        }
    }
}

/// Waits until a job has rested, for ever if none does.
async fn rested(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

async fn expire(registry: Arc<Registry>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EXPIRY_PERIOD) => registry.expire(Instant::now()),
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let open = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|source| Error::Listen { address, source })
}

/// Raises the process's bound of open files as far as it may, and lowers the bounds of kept files to what fits: half of it
/// for what producers write, half for what viewers read.
fn lower_to_descriptors(limits: &mut Limits, ports: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = if raised.is_ok() { maximum } else { current };
    let Some(allowed) = allowed else { return };
    // Each port may have twice as many for a moment.
    let half_open = usize::try_from(allowed / 64).unwrap_or(usize::MAX).max(1);
    limits.half_open = limits.half_open.min(half_open);
    // A file of a stream that is being used may be closed for another one: two for each connection. Where connections
    // could use up all, a quarter is for files nevertheless.
    let connections = (limits.connections + limits.viewers) as u64;
    let left = allowed
        .saturating_sub(SPARE_DESCRIPTORS)
        .saturating_sub(2 * (ports * limits.half_open) as u64)
        .saturating_sub(3 * connections)
        .max(allowed / 4);
    let files = usize::try_from(left / 2).unwrap_or(usize::MAX).max(1);
    limits.viewed_open_files = limits.viewed_open_files.min(files);
    if files < limits.open_files {
        tracing::info!(
            files,
            open_files = allowed,
            "files of streams bounded by the limit of open files"
        );
        limits.open_files = files;
    }
}

/// A panic of a task is a bug that must be seen, but the other tasks go on.
pub(crate) fn ended(result: std::result::Result<(), tokio::task::JoinError>) {
    if let Err(error) = result {
        tracing::error!(%error, "a task of the relay failed");
    }
}
