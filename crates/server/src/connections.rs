//! Accepts connections and bounds what each may cost.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::endpoints::{Answers, router};
use crate::live::endpoints::Live;
use crate::{AnswerSource, Error, LiveSource};

/// Bytes of request line and fields together.
const MAX_HEAD_BYTES: u16 = 16 << 10;
/// Time for the next request's head to arrive, and so also for a connection to stay idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests of one connection at once, over HTTP/2.
const MAX_STREAMS: u32 = 32;
/// A peer over HTTP/2 that does not answer within this time of being asked is gone.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection is closed after its current reply when it is this old: a client that reads slowly cannot hold its place. One
/// whose reply goes on by itself is asked again after as long: such replies have places of their own.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);
/// Time to finish the current reply at the end of a connection's life or of the server's.
const LAST_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept: the peer has left or files are short (accept(2)), neither says anything about the listener.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Serves the page, the answers and, with `live`, what is being recorded on `listener` until `shutdown` is ready, then finishes
/// the replies under way.
///
/// `admits` is asked of each connection, with the address it comes from and that it goes to; others are closed without a reply.
/// On a loopback address only requests that name the loopback are answered.
///
/// # Errors
/// [`Error::Listener`] when the listener does not know its address.
pub async fn serve(
    listener: TcpListener,
    source: Arc<dyn AnswerSource>,
    live: Option<Arc<dyn LiveSource>>,
    admits: impl Fn(IpAddr, IpAddr) -> bool + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let (closing, stop) = watch::channel(false);
    let answers = Answers::new(source);
    let live = live.map(|live| Live::new(live, answers.run(), stop.clone()));
    let services =
        |local, going: &_| router(answers.clone(), live.as_ref().map(|live| live.on(going)), local);
    serve_until(listener, Port::PAGE, services, admits, shutdown, (closing, stop)).await
}

/// What a port takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    /// Connections served at once; further ones wait in the system's backlog.
    connections: usize,
    /// Whether those who begin with HTTP/2 (RFC 9113, section 3.3) are understood.
    has_http2: bool,
}

impl Port {
    /// For browsers.
    pub(crate) const PAGE: Self = Self { connections: 128, has_http2: false };
    /// For programs, each of which keeps a connection: some 20 KB when it is idle. gRPC needs HTTP/2.
    pub(crate) const STORE: Self = Self { connections: 4_096, has_http2: true };
}

/// Serves each connection with a service of its own, given the address that it came to and a count of replies that go on by themselves.
pub(crate) async fn serve_services(
    listener: TcpListener,
    port: Port,
    services: impl Fn(SocketAddr, &Arc<AtomicUsize>) -> Router + Send,
    admits: impl Fn(IpAddr, IpAddr) -> bool + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    serve_until(listener, port, services, admits, shutdown, watch::channel(false)).await
}

async fn serve_until(
    listener: TcpListener,
    port: Port,
    services: impl Fn(SocketAddr, &Arc<AtomicUsize>) -> Router + Send,
    admits: impl Fn(IpAddr, IpAddr) -> bool + Send,
    shutdown: impl Future<Output = ()> + Send,
    (closing, stop): (watch::Sender<bool>, watch::Receiver<bool>),
) -> Result<(), Error> {
    let address = listener.local_addr().map_err(|source| Error::Listener { source })?;
    let mut connections = JoinSet::new();
    tokio::select! {
        () = shutdown => {}
        () = accept_all((&listener, address), port, admits, services, &mut connections, &stop) => {}
    }
    drop(listener);
    closing.send_replace(true);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn accept_all(
    (listener, address): (&TcpListener, SocketAddr),
    port: Port,
    admits: impl Fn(IpAddr, IpAddr) -> bool,
    services: impl Fn(SocketAddr, &Arc<AtomicUsize>) -> Router,
    connections: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(port.connections));
    loop {
        // The semaphore is never closed, so a place is always given in the end.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%address, %error, "a connection was not accepted");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        // A wildcard listener has loopback connections too; each is judged by the address it came to.
        let local = stream.local_addr().unwrap_or(address);
        if !admits(peer.ip(), local.ip()) {
            tracing::warn!(%address, %peer, "not served: its address is not allowed");
            continue;
        }
        let going = Arc::default();
        let service = services(local, &going);
        let stop = stop.clone();
        connections.spawn(async move {
            serve_connection(stream, port, service, &going, stop).await;
            drop(place);
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    port: Port,
    service: Router,
    going: &AtomicUsize,
    mut stop: watch::Receiver<bool>,
) {
    // Whoever connects and says nothing is not kept while it is not known what it speaks.
    if !matches!(timeout(HEAD_TIMEOUT, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
    let builder = builder(port);
    let mut connection =
        pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        _ = stop.wait_for(|closing| *closing) => None,
        () = end_of_life(going) => None,
    };
    let ended = match ended {
        Some(ended) => Ok(ended),
        None => {
            connection.as_mut().graceful_shutdown();
            timeout(LAST_REPLY_TIMEOUT, connection).await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
        Err(_) => tracing::debug!("a client did not read its last reply in time"),
    }
}

/// What each version may cost.
fn builder(port: Port) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES.into());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES.into())
        .keep_alive_interval(HEAD_TIMEOUT)
        .keep_alive_timeout(PING_TIMEOUT);
    if port.has_http2 { builder } else { builder.http1_only() }
}

async fn end_of_life(going: &AtomicUsize) {
    loop {
        sleep(CONNECTION_LIFETIME).await;
        if going.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
}
