//! The running relay: three listeners, a task for each connection, one for the disk work, one for expiry.
//!
//! Connections run on threads of their own, see [`crate::workers`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::after::{After, Outbox};
use crate::config::{Config, Limits};
use crate::control::Control;
use crate::counters::{Counters, Totals};
use crate::data::Data;
use crate::doors::{Complaints, First, Gone, Hosts, Lobby, Peers, Place};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::names::Names;
use crate::recover::{Recovered, recover};
use crate::registry::Registry;
use crate::root::Root;
use crate::viewer;
use crate::workers::Workers;

/// How often what has waited too long is looked for.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);
/// File descriptors that are not streams': listeners, folders, the rest of the process.
const SPARE_DESCRIPTORS: u64 = 256;
/// How long the listener rests after it could not accept, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A relay that runs until [`Relay::shutdown`].
#[derive(Debug)]
pub struct Relay {
    registry: Arc<Registry>,
    control: SocketAddr,
    data: SocketAddr,
    viewers: SocketAddr,
    recovered: Recovered,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
    workers: Arc<Workers>,
    viewer_workers: Arc<Workers>,
    housekeeping: JoinHandle<()>,
    sealer: JoinHandle<()>,
    sealer_stop: watch::Sender<bool>,
    after: After,
}

/// Which of the ports.
#[derive(Debug, Clone, Copy)]
enum Port {
    Control,
    Data,
    Viewers,
}

impl Relay {
    /// Opens the root folder, finishes what a relay that was killed there left half done, opens the ports and
    /// serves them in the background. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::OpenAddress`] for an address that others reach without [`Config::peers`]; [`Error::File`] when the folder
    /// cannot be used, [`Error::RootInUse`], [`Error::Listen`].
    pub fn start(config: Config) -> Result<Self> {
        let Config { root, control, data, viewers, peers, time_zone, announce, .. } = config;
        let Config { keep, release, mut limits, .. } = config;
        for address in [control, data, viewers] {
            if peers.is_none() && !address.ip().to_canonical().is_loopback() {
                return Err(Error::OpenAddress { address });
            }
        }
        let peers = Arc::new(Peers(peers.unwrap_or_default()));
        let hosts = Arc::new(Hosts::default());
        lower_to_descriptors(&mut limits);
        let (half_open, patience) = (limits.half_open, limits.first_message);
        let root = Root::open(&root)?;
        let names = Names::new(time_zone);
        let mut found = recover(&root, &names)?;
        let connections = Arc::new(Semaphore::new(limits.connections));
        let (control, control_address) = listen(control)?;
        let (data, data_address) = listen(data)?;
        let (viewers, viewers_address) = listen(viewers)?;
        let viewer_connections = Arc::new(Semaphore::new(limits.viewers));
        let counters = Counters::default();
        let outbox = Outbox::open(&root, announce, &counters)?;
        let env = Env::new(root, names, limits, counters, outbox, found.next_number);
        found.seal(&env);
        let registry = Arc::new(Registry::new(env, found.known));
        let workers = Arc::new(Workers::start("relay")?);
        // Apart from producers, which must not wait for a file that a viewer reads.
        let viewer_workers = Arc::new(Workers::start("viewers")?);
        let (stop, stopped) = watch::channel(false);
        let (sealer_stop, sealer_stopped) = watch::channel(false);
        let open = |listener, port| {
            let (connections, workers) = match port {
                Port::Control | Port::Data => (&connections, &workers),
                Port::Viewers => (&viewer_connections, &viewer_workers),
            };
            let first = match port {
                Port::Control => First::Command,
                Port::Data => First::Packet,
                Port::Viewers => First::Viewer,
            };
            let lobby = Lobby::new(first, Arc::clone(&hosts), half_open, patience);
            let door = Door {
                port,
                peers: Arc::clone(&peers),
                lobby: Arc::new(lobby),
                registry: Arc::clone(&registry),
                connections: Arc::clone(connections),
                workers: Arc::clone(workers),
                complaints: Complaints::default(),
            };
            tokio::spawn(accept(listener, door, stopped.clone()))
        };
        Ok(Self {
            control: control_address,
            data: data_address,
            viewers: viewers_address,
            recovered: found.recovered,
            listeners: vec![
                open(control, Port::Control),
                open(data, Port::Data),
                open(viewers, Port::Viewers),
            ],
            housekeeping: tokio::spawn(expire(Arc::clone(&registry), stopped.clone())),
            sealer: tokio::spawn(seal(Arc::clone(&registry), sealer_stopped)),
            after: After::start(&registry, keep, release),
            registry,
            workers,
            viewer_workers,
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
        self.workers.stop();
        self.viewer_workers.stop();
        self.registry.end_all();
        self.sealer_stop.send_replace(true);
        ended(self.sealer.await);
        self.after.stop().await;
    }
}

/// What a listener needs to serve its connections.
struct Door {
    port: Port,
    peers: Arc<Peers>,
    lobby: Arc<Lobby>,
    registry: Arc<Registry>,
    connections: Arc<Semaphore>,
    workers: Arc<Workers>,
    complaints: Complaints,
}

/// Takes connections and owns their tasks.
async fn accept(listener: TcpListener, door: Door, mut stop: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    let door = Arc::new(door);
    // All listeners count from 0: the n-th control and the n-th data connection are most often one producer's, and
    // cost least on one thread.
    for number in 0.. {
        let accepted = loop {
            tokio::select! {
                accepted = door.accept(&listener) => break Some(accepted),
                Some(done) = tasks.join_next() => ended(done),
                _ = stop.wait_for(|stop| *stop) => break None,
            }
        };
        let (stream, peer) = match accepted {
            Some(Ok(accepted)) => accepted,
            Some(Err(error)) => {
                tracing::warn!(port = ?door.port, %error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            None => break,
        };
        let counters = &door.registry.env.counters;
        if !door.peers.allow(peer.ip()) {
            counters.peers_refused.add(1);
            door.complain(peer, &"its address is not allowed");
            continue;
        }
        let visit = visit(
            Arc::clone(&door),
            door.lobby.enter(peer.ip()),
            stream.into_std(),
            peer,
            stop.clone(),
        );
        tasks.spawn_on(visit, door.workers.pick(number));
    }
    while let Some(done) = tasks.join_next().await {
        ended(done);
    }
}

impl Door {
    /// The next connection, when the lobby has room for it.
    async fn accept(&self, listener: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
        self.lobby.has_room().await;
        listener.accept().await
    }

    /// Logs that a connection was not served, at most once a second.
    fn complain(&self, peer: SocketAddr, why: &dyn std::fmt::Display) {
        if let Some(connections) = self.complaints.due(Instant::now()) {
            tracing::warn!(port = ?self.port, %peer, connections, %why, "not served");
        }
    }
}

/// Lets a connection wait until it has spoken, and serves it when there is a place for it.
async fn visit(
    door: Arc<Door>,
    place: Place,
    stream: std::io::Result<std::net::TcpStream>,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    let counters = &door.registry.env.counters;
    let stream = match stream.and_then(TcpStream::from_std) {
        Ok(stream) => stream,
        Err(error) => return door.complain(peer, &error),
    };
    let spoken = tokio::select! {
        spoken = place.wait(&stream) => spoken,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    let known = match spoken {
        Ok(known) => known,
        Err(Gone::Ended) => return,
        Err(gone) => {
            counters.half_open_dropped.add(1);
            return door.complain(peer, &gone);
        }
    };
    let Ok(permit) = Arc::clone(&door.connections).try_acquire_owned() else {
        match door.port {
            Port::Control | Port::Data => counters.connections_refused.add(1),
            Port::Viewers => counters.viewers_refused.add(1),
        }
        return door.complain(peer, &"too many connections");
    };
    // On the heap: those who wait need none of it.
    Box::pin(serve(door.port, stream, peer, Arc::clone(&door.registry), stop)).await;
    drop((permit, known));
}

/// Serves one connection on the worker this runs on.
async fn serve(
    port: Port,
    stream: TcpStream,
    peer: SocketAddr,
    registry: Arc<Registry>,
    stop: watch::Receiver<bool>,
) {
    let result = match port {
        Port::Control => Control::new(registry).serve(stream, stop).await,
        Port::Data => Data::new(registry, stream, stop).serve().await,
        Port::Viewers => viewer::Connection::new(registry, stream).serve(stop).await,
    };
    if let Err(error) = result {
        tracing::warn!(?port, %peer, error = &error as &dyn std::error::Error, "connection closed");
    }
}

/// Does the work that syncs and deletes, apart from the connections, until stopped and done.
async fn seal(registry: Arc<Registry>, mut stop: watch::Receiver<bool>) {
    loop {
        let stopping = tokio::select! {
            () = registry.job_added.notified() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        let registry = Arc::clone(&registry);
        ended(tokio::task::spawn_blocking(move || registry.run_jobs()).await);
        if stopping {
            return;
        }
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

/// Raises the process's bound of open files as far as it may, and lowers the bound of streams' files to what fits.
fn lower_to_descriptors(limits: &mut Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = if raised.is_ok() { maximum } else { current };
    let Some(allowed) = allowed else { return };
    // Each of the three ports may have twice as many for a moment.
    let half_open = usize::try_from(allowed / 64).unwrap_or(usize::MAX).max(1);
    limits.half_open = limits.half_open.min(half_open);
    // A file of a stream that is being used may be closed for another one: two for each connection. Where connections
    // could use up all, a quarter is for files nevertheless.
    let connections = (limits.connections + limits.viewers) as u64;
    let left = allowed
        .saturating_sub(SPARE_DESCRIPTORS)
        .saturating_sub(6 * limits.half_open as u64)
        .saturating_sub(3 * connections)
        .max(allowed / 4);
    let files = usize::try_from(left).unwrap_or(usize::MAX).max(1);
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
