//! Doing the steps of others.
//!
//! One task is done at a time, by all threads. The others wait in turn, undecoded, in so many places; where there is no place, a
//! task waits at its coordinator ([`Gate`]). So a worker refuses nobody because it is busy, and what it holds is bounded:
//! connections, streams of each, bytes of a message, tasks. A coordinator that goes away takes its tasks with it: a step that is
//! being done is finished and its block committed, nothing more.

use std::io;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use blocks::{EngineError, Hands, MAX_TASK_BYTES, Report, Stop, Task};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
use futures_util::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::channel::{ANSWER_WITHIN, ASK_EVERY};
use crate::codec::Codec;
use crate::error::Error;
use crate::gate::Gate;
use crate::plan::{external, only_steps, row, schema};
use crate::version;

/// Connections at a time; the next ones wait to be taken.
pub const MAX_CONNECTIONS: usize = 256;
/// Tasks at a time, with the one that is being done; the next ones wait where they come from.
pub const MAX_TASKS: usize = 16;
/// Requests that bring a task and are read at a time.
const MAX_READ: usize = 4;
/// Requests at a time of one connection: two for each of [`MAX_TASKS`], because a plan has no more at one worker, and some that
/// are short.
const MAX_REQUESTS: u32 = 40;
const _: () = assert!(MAX_REQUESTS as usize > 2 * MAX_TASKS);
/// How much of a request may come before it is read. Those of a connection that are not read leave room for the one that is.
const WINDOW: u32 = 64 << 10;
/// What a message has besides a task.
const ENVELOPE: usize = 1 << 20;
/// Rows that wait to be sent.
const ROWS: usize = 8;

/// Takes connections until `stop`, and does the tasks that come over them on so many threads; one for each CPU when absent.
/// Whoever reaches the listener can have any folder read that looks like a recording, and blocks written below any folder, with the
/// rights of this process.
///
/// # Errors
///
/// [`Error::Server`], [`Error::Blocks`].
pub async fn serve(
    listener: TcpListener,
    hands: Arc<Hands>,
    threads: Option<NonZeroUsize>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let (closing, closed) = watch::channel(false);
    let shop = Arc::new(Shop {
        hands,
        threads,
        turn: Arc::new(Semaphore::new(1)),
        places: Arc::new(Semaphore::new(MAX_TASKS)),
        closed: closed.clone(),
    });
    let sessions = move |context: WorkerQueryContext| {
        let shop = Arc::clone(&shop);
        async move {
            let place = Some(shop.place().await);
            let builder = context
                .builder
                .with_distributed_user_codec(Codec { place })
                .with_distributed_worker_plan_rewrite_handler(only_steps);
            Ok::<_, DataFusionError>(builder.build())
        }
    };
    let worker = Worker::from_session_builder(sessions).with_version(version()?);
    let service = worker.into_worker_server().max_decoding_message_size(MAX_TASK_BYTES + ENVELOPE);
    let server = Server::builder()
        .max_concurrent_streams(MAX_REQUESTS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * MAX_REQUESTS)
        .http2_keepalive_interval(Some(ASK_EVERY))
        .http2_keepalive_timeout(Some(ANSWER_WITHIN))
        .add_service(Gate::new(service, MAX_READ))
        .serve_with_incoming(guests(listener));
    tokio::select! {
        ended = server => Ok(ended?),
        () = stop => {
            // Tasks that are being done end after their steps; who gave them is told.
            closing.send_replace(true);
            Ok(())
        }
    }
}

/// What all tasks of a worker share.
#[derive(Debug)]
pub(crate) struct Shop {
    hands: Arc<Hands>,
    threads: Option<NonZeroUsize>,
    /// Whose turn it is.
    turn: Arc<Semaphore>,
    /// Places for tasks.
    places: Arc<Semaphore>,
    closed: watch::Receiver<bool>,
}

/// A second task, or a task a second time.
#[derive(Debug, thiserror::Error)]
#[error("a plan brings one task, and it is done once")]
pub(crate) struct Again;

impl Shop {
    /// A place for a task; waits until one is free.
    async fn place(self: &Arc<Self>) -> Place {
        // Without a permit only when the semaphore is closed, which nobody does.
        let permit = Arc::clone(&self.places).acquire_owned().await.ok();
        Place { shop: Arc::clone(self), permit: Mutex::new(permit) }
    }

    /// Does a task; its place is free afterwards.
    fn work(
        &self,
        waiting: Waiting,
        stop: &Stop,
        give: &mut dyn FnMut(Report) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let Waiting { bytes, _permit } = waiting;
        let task = Task::decode(&bytes)?;
        drop(bytes);
        self.hands.work(task, self.threads, stop, give)
    }
}

/// Where a task waits, and is while it is done.
#[derive(Debug)]
pub(crate) struct Place {
    shop: Arc<Shop>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    /// Puts the one task into it that a plan brings.
    pub(crate) fn accept(&self, bytes: &[u8]) -> Result<Accepted, Again> {
        let permit = once(&self.permit)?;
        let waiting = Waiting { bytes: bytes.to_vec(), _permit: permit };
        Ok(Accepted { waiting: Mutex::new(Some(waiting)), shop: Arc::clone(&self.shop) })
    }
}

/// A task that is there. Its place is free when its stream ends, or when it goes.
#[derive(Debug)]
pub(crate) struct Accepted {
    waiting: Mutex<Option<Waiting>>,
    shop: Arc<Shop>,
}

/// A task as it came, in its place.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

fn once<T>(what: &Mutex<Option<T>>) -> Result<T, Again> {
    what.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(Again)
}

/// Stops what is being done when nobody wants it any more.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Accepted {
    /// Does the task when it is its turn; what it reports, a row each. It ends with the stream.
    pub(crate) fn reports(&self) -> Result<SendableRecordBatchStream> {
        let waiting = once(&self.waiting).map_err(external)?;
        let shop = Arc::clone(&self.shop);
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema(), ROWS);
        let rows = builder.tx();
        builder.spawn(async move {
            let mut closed = shop.closed.clone();
            let turn = Arc::clone(&shop.turn).acquire_owned().await.map_err(external)?;
            let stop = StopOnDrop(Stop::default());
            let told = stop.0.clone();
            let doing = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                shop.work(waiting, &told, &mut |report| match rows.blocking_send(row(&report)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_nobody_listens) => ControlFlow::Break(()),
                })
            });
            tokio::select! {
                done = doing => match done {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => Err(external(error)),
                    Err(panicked) => Err(external(panicked)),
                },
                _ = closed.wait_for(|closed| *closed) => {
                    Err(DataFusionError::Execution("the worker ends".to_owned()))
                }
            }
        });
        Ok(builder.build())
    }
}

/// Connections, at most [`MAX_CONNECTIONS`] at a time.
fn guests(listener: TcpListener) -> impl futures_util::Stream<Item = io::Result<Guest>> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    stream::unfold((listener, places), |(listener, places)| async move {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let guest = listener.accept().await.and_then(|(socket, _)| {
            socket.set_nodelay(true)?;
            Ok(Guest { socket, _place: place })
        });
        Some((guest, (listener, places)))
    })
}

/// A connection and its place.
struct Guest {
    socket: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for Guest {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.socket.connect_info()
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(context, into)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use blocks::CacheOptions;
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_task_goes_and_is_for_one() {
        let shop = Arc::new(Shop {
            hands: Arc::new(Hands::new(&CacheOptions::default()).unwrap()),
            threads: None,
            turn: Arc::new(Semaphore::new(1)),
            places: Arc::new(Semaphore::new(1)),
            closed: watch::channel(false).1,
        });
        let free = || shop.places.available_permits();
        let place = shop.place().now_or_never().unwrap();
        assert!(shop.place().now_or_never().is_none());
        let accepted = place.accept(b"a task").unwrap();
        assert!(place.accept(b"another").is_err());
        drop(place);
        assert_eq!(free(), 0);
        drop(accepted);
        assert_eq!(free(), 1);
        // A plan that brings no task takes no place with it.
        drop(shop.place().now_or_never().unwrap());
        assert_eq!(free(), 1);
    }
}
