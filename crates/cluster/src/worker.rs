//! Doing the steps of others.
//!
//! What a worker takes on is bounded: connections, streams of each, bytes of a message, tasks that wait. One task is done at a time, by
//! all threads; the others wait in turn. A coordinator that goes away takes its tasks with it: a step that is being done is finished
//! and its block committed, nothing more.

use std::io;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use blocks::{Hands, MAX_TASK_BYTES, Stop, Task};
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
use crate::plan::{external, only_steps, row, schema};
use crate::version;

/// Connections at a time; the next ones wait to be taken.
pub const MAX_CONNECTIONS: usize = 64;
/// Tasks at a time, with the one that is being done; more are refused.
pub const MAX_TASKS: usize = 16;
/// Requests at a time of one connection.
const MAX_REQUESTS: u32 = 64;
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
        let builder = context
            .builder
            .with_distributed_user_codec(Codec { shop: Some(Arc::clone(&shop)) })
            .with_distributed_worker_plan_rewrite_handler(only_steps);
        async move { Ok::<_, DataFusionError>(builder.build()) }
    };
    let worker = Worker::from_session_builder(sessions).with_version(version()?);
    let service = worker.into_worker_server().max_decoding_message_size(MAX_TASK_BYTES + ENVELOPE);
    let server = Server::builder()
        .max_concurrent_streams(MAX_REQUESTS)
        .http2_keepalive_interval(Some(ASK_EVERY))
        .http2_keepalive_timeout(Some(ANSWER_WITHIN))
        .add_service(service)
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

/// Why a task is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("{most} tasks are there already", most = MAX_TASKS)]
    Busy,
    #[error(transparent)]
    Bad(#[from] blocks::Error),
}

impl Shop {
    /// Takes a task, if it is one and there is a place for it.
    pub(crate) fn accept(self: &Arc<Self>, bytes: &[u8]) -> Result<Accepted, NotTaken> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(NotTaken::Busy);
        };
        let task = Arc::new(Task::decode(bytes)?);
        Ok(Accepted { task, shop: Arc::clone(self), _place: place })
    }
}

/// A task that is there.
#[derive(Debug)]
pub(crate) struct Accepted {
    task: Arc<Task>,
    shop: Arc<Shop>,
    _place: OwnedSemaphorePermit,
}

/// Stops what is being done when nobody wants it any more.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Accepted {
    pub(crate) fn task(&self) -> &Task {
        &self.task
    }

    /// Does the task when it is its turn; what it reports, a row each. It ends with the stream.
    pub(crate) fn reports(&self) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema(), ROWS);
        let rows = builder.tx();
        let (task, shop) = (Arc::clone(&self.task), Arc::clone(&self.shop));
        builder.spawn(async move {
            let mut closed = shop.closed.clone();
            let turn = Arc::clone(&shop.turn).acquire_owned().await.map_err(external)?;
            let stop = StopOnDrop(Stop::default());
            let told = stop.0.clone();
            let doing = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                shop.hands.work(&task, shop.threads, &told, &mut |report| match rows
                    .blocking_send(row(&report))
                {
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
        builder.build()
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
