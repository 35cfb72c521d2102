//! Carries sealed packets from the thread that reads the rings to the thread that writes the output.
//!
//! The queue between them is bounded by [`QUEUE_PACKETS`]: when the output is slow the reader waits, the rings fill,
//! and the programs count what they cannot store. So memory is bounded and loss is told where it happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ctf::writer::SealedPacket;

use super::Output;
use super::sink::{self, Recording, Sink};
use crate::error::{Error, Result};

/// Packets that may wait for the output.
const QUEUE_PACKETS: usize = 32;

enum Delivery {
    Packet { stream: usize, packet: SealedPacket },
    Rotate { at_unix_s: u64, next: Vec<u64> },
    Finish { at_unix_s: u64, next: Vec<u64> },
}

/// The reader's end.
pub(super) struct Courier {
    queue: SyncSender<Delivery>,
    writer: JoinHandle<Result<()>>,
    delivered: Arc<AtomicU64>,
    began_chunk: Arc<AtomicBool>,
    sent: u64,
}

/// The output has failed; [`Courier::finish`] tells why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost;

impl Courier {
    /// Opens the output and starts its thread.
    ///
    /// # Errors
    /// What opening the output says.
    pub(super) fn start(
        output: &Output,
        recording: Recording,
        reconnect: Duration,
    ) -> Result<Self> {
        let began_chunk = Arc::default();
        let sink = sink::open(output, recording, reconnect, Arc::clone(&began_chunk))?;
        let (queue, deliveries) = sync_channel(QUEUE_PACKETS);
        let delivered = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&delivered);
        let writer = thread::Builder::new()
            .name("capture-output".to_owned())
            .spawn(move || deliver(sink, &deliveries, &counter))
            .map_err(Error::os("start the output's thread"))?;
        Ok(Self { queue, writer, delivered, began_chunk, sent: 0 })
    }

    /// Whether the output began a chunk by itself since the last question.
    pub(super) fn began_chunk(&self) -> bool {
        self.began_chunk.swap(false, Ordering::Relaxed)
    }

    pub(super) fn packet(
        &mut self,
        stream: usize,
        packet: SealedPacket,
    ) -> std::result::Result<(), Lost> {
        self.sent += packet.records;
        self.send(Delivery::Packet { stream, packet })
    }

    pub(super) fn rotate(&self, at_unix_s: u64, next: Vec<u64>) -> std::result::Result<(), Lost> {
        self.send(Delivery::Rotate { at_unix_s, next })
    }

    /// Ends the recording and waits for it. `recorded` is how many event records were written into packets.
    ///
    /// # Errors
    /// [`Error::Undelivered`] with the output's failure.
    pub(super) fn finish(self, at_unix_s: u64, next: Vec<u64>, recorded: u64) -> Result<()> {
        match self.send(Delivery::Finish { at_unix_s, next }) {
            // A lost output has ended its thread, whose result says why.
            Ok(()) | Err(Lost) => {}
        }
        drop(self.queue);
        let outcome = match self.writer.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let delivered = self.delivered.load(Ordering::Relaxed);
        outcome.map_err(|source| Error::Undelivered {
            undelivered: recorded.saturating_sub(delivered),
            source: Box::new(source),
        })
    }

    fn send(&self, delivery: Delivery) -> std::result::Result<(), Lost> {
        self.queue.send(delivery).map_err(|_returned| Lost)
    }
}

fn deliver(
    mut sink: Box<dyn Sink>,
    deliveries: &Receiver<Delivery>,
    delivered: &AtomicU64,
) -> Result<()> {
    for delivery in deliveries {
        match delivery {
            Delivery::Packet { stream, packet } => {
                sink.packet(stream, &packet)?;
                delivered.fetch_add(packet.records, Ordering::Relaxed);
            }
            Delivery::Rotate { at_unix_s, next } => sink.rotate(at_unix_s, &next)?,
            Delivery::Finish { at_unix_s, next } => return sink.finish(at_unix_s, &next),
        }
    }
    Ok(())
}
