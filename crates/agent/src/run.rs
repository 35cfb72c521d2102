//! The agent: a writer and a driver for each target.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use profile::{MAX_PACKET_BYTES, Packet};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use webclient::Backoff;

use crate::driver::{Attempt, Sender, Sending};
use crate::error::{Error, Result};
use crate::ledger::{Counts, Loss, Reason};
use crate::spool::{Bounds, Loan, Spool};
use crate::target::Target;

/// Bytes of packets that wait for the writer: as much as the largest packet.
const MAX_INBOX: usize = MAX_PACKET_BYTES;

/// What an agent is to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of the spool; made when it is not there.
    pub spool: PathBuf,
    /// What may wait in it.
    pub bounds: Bounds,
    /// Who takes packets, and how they are sent there.
    pub targets: Vec<(Target, Sending)>,
    /// Counts the bytes of packets, in gzip, each once.
    pub sealed: Arc<AtomicU64>,
}

/// An agent that runs.
#[derive(Debug)]
pub struct Agent {
    spool: Arc<Spool>,
    labels: Vec<String>,
    inbox: mpsc::Sender<Packet>,
    /// Bytes in the inbox.
    queued: Arc<AtomicUsize>,
    writer: JoinHandle<()>,
    drivers: JoinHandle<()>,
    /// When drivers have to end; nothing while they run on.
    until: watch::Sender<Option<Instant>>,
}

/// What was done, and what is left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The ledger of each target, by its label, in the order of the settings.
    pub targets: Vec<(String, Counts)>,
    /// Packets that wait for any target.
    pub waiting: usize,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// Their bytes in memory.
    pub memory: u64,
}

impl Agent {
    /// Opens the spool and goes on with what is in it.
    ///
    /// # Errors
    /// Any that [`Error`] has.
    pub fn start(settings: Settings) -> Result<Self> {
        let Settings { spool, bounds, targets, sealed } = settings;
        let count = targets.len();
        if count == 0 || count > Target::MAX {
            return Err(Error::Targets { count });
        }
        for (at, (target, _)) in targets.iter().enumerate() {
            if targets.iter().take(at).any(|(other, _)| other == target) {
                return Err(Error::Twice { name: target.to_string() });
            }
        }
        let senders: Vec<Sender> = targets
            .iter()
            .map(|(target, sending)| Sender::new(target, sending))
            .collect::<Result<_>>()?;
        let names: Vec<&Target> = targets.iter().map(|(target, _)| target).collect();
        let labels = names.iter().map(|target| target.label().to_owned()).collect();
        let urls = names.iter().map(|target| target.to_string()).collect::<Vec<_>>();
        let spool = Arc::new(Spool::open(&spool, bounds, &names)?);
        let (until, stopped) = watch::channel(None);
        let drivers = Drivers { spool: Arc::clone(&spool), stopped };
        let drivers = drivers.start(senders.into_iter().zip(urls).collect())?;
        let (inbox, packets) = mpsc::channel::<Packet>();
        let queued = Arc::new(AtomicUsize::new(0));
        let (left, writes) = (Arc::clone(&queued), Arc::clone(&spool));
        let write = move || {
            for packet in packets {
                sealed.fetch_add(writes.store(&packet), Ordering::Relaxed);
                left.fetch_sub(packet.bytes.len(), Ordering::Relaxed);
            }
        };
        let writer = thread::Builder::new().name("spool".to_owned()).spawn(write);
        let writer = writer.map_err(Error::Thread)?;
        Ok(Self { spool, labels, inbox, queued, writer, drivers, until })
    }

    /// Takes a packet, at once: what finds no room, because the disk does not answer, is dropped and counted.
    pub fn offer(&self, packet: Packet) {
        let length = packet.bytes.len();
        let before = self.queued.fetch_add(length, Ordering::Relaxed);
        if before + length > MAX_INBOX {
            self.queued.fetch_sub(length, Ordering::Relaxed);
            self.spool.lose(&packet);
        } else if let Err(mpsc::SendError(packet)) = self.inbox.send(packet) {
            // The writer is gone.
            self.spool.lose(&packet);
        }
    }

    /// Gives losses that no packet has told yet, and how many samples they are, to `tell`, which puts them into a packet that
    /// will be offered.
    pub fn tell(&self, tell: impl FnMut(&Loss, u64)) {
        self.spool.tell(tell);
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        status(&self.spool, &self.labels)
    }

    /// Writes what was offered, sends what it can within this time, and ends. What is left waits for the next start.
    #[must_use]
    pub fn stop(self, patience: Duration) -> Status {
        let Self { spool, labels, inbox, writer, drivers, until, .. } = self;
        drop(inbox);
        join(writer);
        until.send_replace(Some(Instant::now() + patience));
        join(drivers);
        spool.close();
        status(&spool, &labels)
    }
}

fn status(spool: &Spool, labels: &[String]) -> Status {
    let levels = spool.levels();
    Status {
        targets: labels.iter().cloned().zip(levels.counts).collect(),
        waiting: levels.packets,
        bytes: levels.bytes,
        memory: levels.memory,
    }
}

fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// What all drivers share.
#[derive(Clone)]
struct Drivers {
    spool: Arc<Spool>,
    stopped: watch::Receiver<Option<Instant>>,
}

impl Drivers {
    /// Runs a driver for each target on a thread of their own.
    fn start(self, senders: Vec<(Sender, String)>) -> Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let run = move || {
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for (queue, (sender, url)) in senders.into_iter().enumerate() {
                    tasks.spawn(self.clone().drive(queue, sender, url));
                }
                while let Some(ended) = tasks.join_next().await {
                    if let Err(panic) = ended.map_err(tokio::task::JoinError::into_panic) {
                        std::panic::resume_unwind(panic);
                    }
                }
            });
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("drivers".to_owned()).spawn(run).map_err(Error::Thread)
    }

    /// Sends what is in a queue until the end.
    async fn drive(mut self, queue: usize, sender: Sender, url: String) {
        let mut backoff = Backoff::default();
        // A packet that fails does not keep the others waiting.
        let mut after = None;
        let mut ending = self.clone();
        let end = ending.end();
        tokio::pin!(end);
        loop {
            let Some(loan) = self.spool.lend(queue, after.as_ref()) else {
                if self.is_stopping() {
                    return;
                }
                tokio::select! {
                    () = self.spool.wait(queue) => {}
                    () = stop(&mut self.stopped) => {}
                }
                continue;
            };
            let wait = tokio::select! {
                wait = self.deliver(&sender, &loan, &mut backoff, &url) => wait,
                () = &mut end => {
                    self.spool.give_back(&loan, false);
                    return;
                }
            };
            after = wait.map(|_| loan.name);
            let Some(wait) = wait else { continue };
            let was_stopping = self.is_stopping();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Once more at once, for a target that is back.
                () = stop(&mut self.stopped), if !was_stopping => {}
                () = &mut end => return,
            }
        }
    }

    /// Sends one packet once. Gives how long to wait when it failed.
    async fn deliver(
        &self,
        sender: &Sender,
        loan: &Loan,
        backoff: &mut Backoff,
        url: &str,
    ) -> Option<Duration> {
        let bytes = match self.spool.read(loan).await {
            Ok(bytes) => bytes,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(packet = %loan.name, error, "a packet cannot be read: it is dropped");
                self.spool.dropped(loan, Reason::Unreadable, &[]);
                return None;
            }
        };
        match sender.send(&loan.name, bytes.clone()).await {
            Attempt::Delivered { rejected_profiles } => {
                if backoff.is_failing() {
                    tracing::warn!(to = url, "packets are delivered again");
                }
                backoff.reset();
                self.spool.delivered(loan, rejected_profiles);
                None
            }
            Attempt::Refused { why } => {
                tracing::warn!(to = url, packet = %loan.name, why, "a packet was refused: it is dropped");
                backoff.reset();
                self.spool.dropped(loan, Reason::Refused, &bytes);
                None
            }
            Attempt::Again { after, why } => {
                if !backoff.is_failing() {
                    tracing::warn!(to = url, why, "cannot deliver; it is tried again");
                }
                self.spool.give_back(loan, true);
                Some(backoff.after_failure(after, fastrand::f64()))
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopped.borrow().is_some() || self.stopped.has_changed().is_err()
    }

    /// Waits until drivers have to end.
    async fn end(&mut self) {
        stop(&mut self.stopped).await;
        let until = *self.stopped.borrow();
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// Waits until drivers shall come to an end. The sender going away means the same.
async fn stop(stopped: &mut watch::Receiver<Option<Instant>>) {
    drop(stopped.wait_for(Option::is_some).await);
}
