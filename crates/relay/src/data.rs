//! A data connection: reads from the socket what [`crate::intake`] takes, or lends the socket to its control connection
//! ([`crate::arrivals`]).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use crate::arrivals::{LOOK_AFTER, Reader};
use crate::doors::{Lent, Socket, Who};
use crate::error::Result;
use crate::intake::Intake;
use crate::registry::Registry;

/// A data connection.
pub(crate) struct Data<S> {
    stream: S,
    intake: Intake,
    stop: watch::Receiver<bool>,
}

/// Why reading paused.
enum Pause {
    /// The end of the connection, or the relay stops.
    End,
    /// The control connection had better read.
    Lend,
}

impl<S: Socket> Data<S> {
    pub(crate) fn new(
        registry: Arc<Registry>,
        stream: S,
        who: Who,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self { stream, intake: Intake::new(registry, who), stop }
    }

    /// Takes packets until the connection's end, or until `stop` says so.
    pub(crate) async fn serve(mut self) -> Result<()> {
        loop {
            match self.take().await {
                Ok(Pause::End) => {
                    let finished = self.intake.finish();
                    self.stream.say_goodbye().await;
                    return finished;
                }
                Ok(Pause::Lend) => match self.lend().await {
                    Ok(data) => self = data,
                    Err(error) => return Err(error),
                },
                Err(error) => {
                    let cut = self.intake.give_up();
                    self.stream.say_goodbye().await;
                    return cut.and(Err(error));
                }
            }
        }
    }

    async fn take(&mut self) -> Result<Pause> {
        loop {
            let arrivals = self.intake.arrivals().map(Arc::clone);
            if let Some(arrivals) = &arrivals {
                arrivals.wait();
            }
            let wanted = async {
                match &arrivals {
                    Some(arrivals) if S::CAN_LEND => arrivals.wanted().await,
                    _ => std::future::pending().await,
                }
            };
            let read = tokio::select! {
                biased;
                read = poll_fn(|cx| poll_read(&mut self.stream, &mut self.intake, cx)) => read?,
                () = wanted => return Ok(Pause::Lend),
                _ = self.stop.wait_for(|stop| *stop) => 0,
            };
            if let Some(arrivals) = &arrivals {
                arrivals.came();
            }
            if read == 0 {
                return Ok(Pause::End);
            }
            self.intake.take(read)?;
            // A header that came alone has its packet behind it: the producer's kernel sends that when the header is read.
            if self.intake.is_within()
                && let Ok(read) = self.stream.read_now(self.intake.room())
            {
                self.intake.take(read)?;
            }
        }
    }

    /// Lets the control connection read until it had better be read here. Whatever fails ends the connection.
    async fn lend(self) -> Result<Self> {
        let Self { stream, intake, mut stop } = self;
        let Some(arrivals) = intake.arrivals().map(Arc::clone) else {
            return Ok(Self { stream, intake, stop });
        };
        let socket = match stream.lend() {
            Ok(Lent::Socket(socket)) => socket,
            Ok(Lent::Not(stream)) => return Ok(Self { stream, intake, stop }),
            Err(error) => return intake.give_up().and(Err(error.into())),
        };
        arrivals.lend(Reader { socket, intake });
        loop {
            let is_stopping = tokio::select! {
                () = tokio::time::sleep(LOOK_AFTER) => false,
                () = arrivals.unwanted() => true,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            if let Some(Reader { socket, intake }) = arrivals.look(is_stopping)? {
                return match S::returned(socket) {
                    Ok(stream) => Ok(Self { stream, intake, stop }),
                    Err(error) => intake.give_up().and(Err(error.into())),
                };
            }
        }
    }
}

/// Reads behind what is there; 0 at the end of the connection.
fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    intake: &mut Intake,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(intake.room());
    ready!(Pin::new(stream).poll_read(cx, &mut room))?;
    Poll::Ready(Ok(room.filled().len()))
}
