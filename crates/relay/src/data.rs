//! A data connection: reads from the socket what [`crate::intake`] takes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use crate::doors::{Socket, Who};
use crate::error::Result;
use crate::intake::Intake;
use crate::registry::Registry;
use crate::room;

/// A data connection.
pub(crate) struct Data<S> {
    stream: S,
    intake: Intake,
    stop: watch::Receiver<bool>,
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
        let taken = self.take_all().await;
        let ended = match taken {
            Ok(()) => self.intake.finish(),
            Err(error) => self.intake.give_up().and(Err(error)),
        };
        self.stream.say_goodbye().await;
        ended
    }

    async fn take_all(&mut self) -> Result<()> {
        loop {
            let arrivals = self.intake.arrivals().map(Arc::clone);
            while self.intake.waits_for_room() {
                if let Some(arrivals) = &arrivals {
                    arrivals.came();
                }
                tokio::select! {
                    () = tokio::time::sleep(room::AGAIN) => self.intake.again()?,
                    _ = self.stop.wait_for(|stop| *stop) => return Ok(()),
                }
            }
            if let Some(arrivals) = &arrivals {
                arrivals.wait();
            }
            let read = tokio::select! {
                biased;
                read = poll_fn(|cx| poll_read(&mut self.stream, &mut self.intake, cx)) => read?,
                _ = self.stop.wait_for(|stop| *stop) => 0,
            };
            if let Some(arrivals) = &arrivals {
                arrivals.came();
            }
            if read == 0 {
                return Ok(());
            }
            self.intake.arrived(read);
            // A header that came alone has its packet behind it, and a segment the last bytes of a packet: the producer's
            // kernel sends what is less than a segment when all before it was read. So they are had at once, in one write.
            while self.intake.missing() > 0 && self.read_now() > 0 {}
            self.intake.take()?;
        }
    }

    /// Reads what lies in the socket; whatever fails will be told by the next wait.
    fn read_now(&mut self) -> usize {
        let room = self.intake.room();
        if room.is_empty() {
            return 0;
        }
        let read = self.stream.read_now(room).unwrap_or(0);
        self.intake.arrived(read);
        read
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
