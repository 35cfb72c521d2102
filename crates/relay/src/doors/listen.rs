//! From a listener to a connection that is served.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use door::Role;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::tls::{Gate, Refused, Visitor};
use super::{
    Complaints, First, Gone, Hosts, Lobby, Peers, Place, Socket, Who, end_when_gone, end_when_mute,
};
use crate::control::Control;
use crate::counters::Counters;
use crate::data::Data;
use crate::error::Result;
use crate::registry::Registry;
use crate::server::ended;
use crate::viewer;
use crate::workers::Workers;

/// How long the listener rests after it could not accept, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What serves connections, whichever port they came to.
#[derive(Debug)]
pub(crate) struct Inside {
    registry: Arc<Registry>,
    hosts: Arc<Hosts>,
    producers: Desk,
    /// Apart from producers, which must not wait for a file that a viewer reads.
    viewers: Desk,
}

/// Threads, and how many connections they serve at most.
#[derive(Debug)]
struct Desk {
    places: Arc<Semaphore>,
    workers: Workers,
}

impl Inside {
    pub(crate) fn new(registry: Arc<Registry>) -> Result<Self> {
        let limits = &registry.env.limits;
        let desk = |name, places| -> Result<Desk> {
            Ok(Desk { places: Arc::new(Semaphore::new(places)), workers: Workers::start(name)? })
        };
        Ok(Self {
            producers: desk("relay", limits.connections)?,
            viewers: desk("viewers", limits.viewers)?,
            hosts: Arc::default(),
            registry,
        })
    }

    /// Ends the threads. Every task must have ended before.
    pub(crate) fn stop(&self) {
        self.producers.workers.stop();
        self.viewers.workers.stop();
    }

    const fn desk(&self, role: Role) -> &Desk {
        match role {
            Role::Control | Role::Data => &self.producers,
            Role::Viewer => &self.viewers,
        }
    }

    /// A place among the connections that are served.
    fn seat(&self, role: Role) -> Option<OwnedSemaphorePermit> {
        let seat = Arc::clone(&self.desk(role).places).try_acquire_owned().ok();
        if seat.is_none() {
            let counters = self.counters();
            match role {
                Role::Control | Role::Data => counters.connections_refused.add(1),
                Role::Viewer => counters.viewers_refused.add(1),
            }
        }
        seat
    }

    fn counters(&self) -> &Counters {
        &self.registry.env.counters
    }

    fn lobby(&self, first: Option<First>) -> Arc<Lobby> {
        let limits = &self.registry.env.limits;
        let hosts = Arc::clone(&self.hosts);
        Arc::new(Lobby::new(first, hosts, limits.half_open, limits.first_message))
    }
}

/// What a listener needs to take its connections in.
struct Door {
    port: &'static str,
    peers: Arc<Peers>,
    lobby: Arc<Lobby>,
    inside: Arc<Inside>,
    complaints: Complaints,
}

/// A connection that was just accepted.
struct Guest {
    /// How many were accepted before it.
    number: usize,
    place: Place,
    stream: TcpStream,
    peer: SocketAddr,
}

/// Takes connections of a plain port and owns their tasks.
pub(crate) async fn accept_plain(
    listener: TcpListener,
    role: Role,
    inside: Arc<Inside>,
    peers: Arc<Peers>,
    stop: watch::Receiver<bool>,
) {
    let port = match role {
        Role::Control => "control",
        Role::Data => "data",
        Role::Viewer => "viewers",
    };
    let lobby = inside.lobby(Some(First::of(role)));
    let door = Door { port, peers, lobby, inside, complaints: Complaints::default() };
    let stopped = stop.clone();
    door.take(listener, stop, move |door, guest, tasks| {
        let workers = &door.inside.desk(role).workers;
        let Guest { number, place, stream, peer } = guest;
        let visit = visit(Arc::clone(door), role, place, stream.into_std(), peer, stopped.clone());
        // All listeners count from 0: the n-th control and the n-th data connection are most often one producer's, and
        // cost least on one thread.
        tasks.spawn_on(visit, workers.pick(number));
    })
    .await;
}

/// Takes connections of the encrypted port and owns their tasks.
pub(crate) async fn accept_tls(
    listener: TcpListener,
    gate: Arc<Gate>,
    inside: Arc<Inside>,
    peers: Arc<Peers>,
    stop: watch::Receiver<bool>,
) {
    let lobby = inside.lobby(None);
    let door = Door { port: "tls", peers, lobby, inside, complaints: Complaints::default() };
    let stopped = stop.clone();
    door.take(listener, stop, move |door, guest, tasks| {
        let (door, gate) = (Arc::clone(door), Arc::clone(&gate));
        tasks.spawn(visit_encrypted(door, gate, guest, stopped.clone()));
    })
    .await;
}

impl Door {
    /// Takes connections until `stop`, has `begin` start a task for each, and waits for their end.
    async fn take(
        self,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        begin: impl Fn(&Arc<Self>, Guest, &mut JoinSet<()>),
    ) {
        let mut tasks = JoinSet::new();
        let door = Arc::new(self);
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
                    tracing::warn!(port = door.port, %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                None => break,
            };
            let local = stream.local_addr();
            if !local.is_ok_and(|local| door.peers.allow(peer.ip(), local.ip())) {
                door.inside.counters().peers_refused.add(1);
                door.complain(peer, &"its address is not allowed");
                continue;
            }
            if let Err(error) = end_when_gone(&stream) {
                door.complain(peer, &error);
                continue;
            }
            let place = door.lobby.enter(peer.ip());
            begin(&door, Guest { number, place, stream, peer }, &mut tasks);
        }
        while let Some(done) = tasks.join_next().await {
            ended(done);
        }
    }

    /// The next connection, when the lobby has room for it.
    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        self.lobby.has_room().await;
        listener.accept().await
    }

    /// Logs that a connection was not served, at most once a second.
    fn complain(&self, peer: SocketAddr, why: &dyn Display) {
        if let Some(connections) = self.complaints.due(Instant::now()) {
            tracing::warn!(port = self.port, %peer, connections, %why, "not served");
        }
    }

    /// Counts and logs why a connection left the lobby unserved. One that just ended is no news.
    fn turn_away(&self, peer: SocketAddr, gone: Gone) {
        if gone != Gone::Ended {
            self.inside.counters().half_open_dropped.add(1);
            self.complain(peer, &gone);
        }
    }
}

/// Lets a connection wait until it has spoken, and serves it when there is a place for it.
async fn visit(
    door: Arc<Door>,
    role: Role,
    place: Place,
    stream: io::Result<std::net::TcpStream>,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
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
        Err(gone) => return door.turn_away(peer, gone),
    };
    let Some(seat) = door.inside.seat(role) else {
        return door.complain(peer, &"too many connections");
    };
    // On the heap: those who wait need none of it.
    let local = stream.local_addr().ok().map(|local| local.ip());
    Box::pin(serve(&door, role, stream, Who::plain(peer.ip(), local), peer, stop)).await;
    drop((seat, known));
}

/// Lets a connection show who it is, and serves it when there is a place for it, on a thread of its role.
async fn visit_encrypted(
    door: Arc<Door>,
    gate: Arc<Gate>,
    guest: Guest,
    mut stop: watch::Receiver<bool>,
) {
    let Guest { number, place, stream, peer } = guest;
    let admitted = tokio::select! {
        admitted = Box::pin(gate.admit(place, stream)) => admitted,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    let Visitor { socket, role, who, known } = match admitted {
        Ok(visitor) => visitor,
        Err(Refused::Gone(gone)) => return door.turn_away(peer, gone),
        Err(refused) => {
            door.inside.counters().identities_refused.add(1);
            return door.complain(peer, &refused);
        }
    };
    let Some(seat) = door.inside.seat(role) else {
        return door.complain(peer, &"too many connections");
    };
    let at = Arc::clone(&door);
    let serving = async move {
        match socket.move_here() {
            Ok(socket) => serve(&at, role, socket, who, peer, stop).await,
            Err(error) => at.complain(peer, &error),
        }
        drop((seat, known));
    };
    // Of two connections in turn, the first is most often a producer's control connection and the second its data.
    let served: JoinHandle<()> = door.inside.desk(role).workers.pick(number / 2).spawn(serving);
    ended(served.await);
}

/// Serves one connection on the worker this runs on.
async fn serve(
    door: &Door,
    role: Role,
    stream: impl Socket,
    who: Who,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) {
    let registry = Arc::clone(&door.inside.registry);
    let identity = who.identity.clone();
    let watched = match role {
        Role::Control | Role::Data => stream.tcp().and_then(end_when_mute),
        Role::Viewer => Ok(()),
    };
    if let Err(error) = watched {
        return door.complain(peer, &error);
    }
    let result = match role {
        Role::Control => Control::new(registry, who).serve(stream, stop).await,
        Role::Data => Data::new(registry, stream, who, stop).serve().await,
        Role::Viewer => viewer::Connection::new(registry, who, stream).serve(stop).await,
    };
    if let Err(error) = result {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(port = door.port, ?role, %peer, who = %identity, error, "connection closed");
    }
}
