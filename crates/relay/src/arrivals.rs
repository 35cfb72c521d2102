//! What a relay session's control connection knows of its data connection, and when it reads that itself.
//!
//! lttng-consumerd sends a packet's header, then its bytes, then its index entry on the control connection, and waits for
//! the reply. To wake up for each of the first two costs as much as all the rest, and the entry cannot be answered before
//! both are read. So, when enough entries in a row came after their packets, the data connection lends its socket: the
//! control connection reads what lies in it whenever a request comes. It goes back as soon as an entry comes whose packet
//! is not there, and when nothing was read for [`LOOK_AFTER`]. Packets that do not fit into the sockets' buffers would be
//! held up as long each time, so large ones are never read this way, and each time that something lay there meanwhile it
//! takes eight times as many entries to lend it again.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::intake::Intake;

/// How often a data connection looks after the socket it lent.
pub(crate) const LOOK_AFTER: Duration = Duration::from_millis(20);
/// So many entries in a row after their packets make the control connection read them.
const STREAK: u32 = 32;
/// The largest packet of theirs, bytes.
const LARGEST: u64 = 64 << 10;
/// How often eight times as many are needed.
const MAX_SETBACKS: u32 = 8;
/// Reads of one request, each of [`Intake::room`] bytes at most.
const MAX_READS: usize = 64;

/// Between the connections of one relay session.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Counts arrivals; odd while something is being written.
    mark: AtomicU64,
    /// Entries in a row whose packets were there.
    streak: AtomicU32,
    /// How often something lay there unread for so long.
    setbacks: AtomicU32,
    is_lent: AtomicBool,
    lent: Mutex<Loan>,
    wanted: Notify,
    unwanted: Notify,
}

#[derive(Debug, Default)]
struct Loan {
    reader: Option<Reader>,
    has_read: bool,
    failure: Option<Error>,
}

/// A data connection's socket, which does not block, and what takes its bytes.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) socket: TcpStream,
    pub(crate) intake: Intake,
}

impl Arrivals {
    /// Bytes came; they are being written until [`Arrivals::wait`].
    pub(crate) fn came(&self) {
        self.mark.fetch_or(1, Ordering::Relaxed);
    }

    /// All that came is written, and more is waited for.
    pub(crate) fn wait(&self) {
        if self.mark.load(Ordering::Relaxed) & 1 == 1 {
            self.mark.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A number that differs after bytes came; odd while they are being written.
    pub(crate) fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    /// For the control connection, before it does what a request asks: reads the data connection if that was lent.
    pub(crate) fn read(&self) {
        if !self.is_lent.load(Ordering::Relaxed) {
            return;
        }
        let mut loan = self.loan();
        let Some(reader) = &mut loan.reader else { return };
        self.came();
        let outcome = reader.read();
        self.wait();
        match outcome {
            Ok(read) => loan.has_read |= read > 0,
            Err(error) => {
                loan.failure = Some(error);
                self.unwanted.notify_one();
            }
        }
    }

    /// For the control connection: an entry came for a packet of so many bytes, which was there or was not.
    pub(crate) fn entry_came(&self, packet_bytes: u64, was_there: bool) {
        if !was_there || packet_bytes > LARGEST {
            self.streak.store(0, Ordering::Relaxed);
            if self.is_lent.load(Ordering::Relaxed) {
                self.unwanted.notify_one();
            }
            return;
        }
        let needed = STREAK << (3 * self.setbacks.load(Ordering::Relaxed));
        if self.streak.fetch_add(1, Ordering::Relaxed) == needed {
            self.wanted.notify_one();
        }
    }

    /// For the data connection: waits until the control connection had better read.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// For the data connection: waits until it had better read itself.
    pub(crate) async fn unwanted(&self) {
        self.unwanted.notified().await;
    }

    /// For the data connection: lets the control connection read.
    pub(crate) fn lend(&self, reader: Reader) {
        *self.loan() = Loan { reader: Some(reader), has_read: true, failure: None };
        self.is_lent.store(true, Ordering::Relaxed);
    }

    /// For the data connection: gives the socket back if it `has_to`, or if nothing was read since the last look. A failure
    /// ends the connection.
    pub(crate) fn look(&self, has_to: bool) -> Result<Option<Reader>> {
        let mut loan = self.loan();
        let Some(mut reader) = loan.reader.take() else { return Ok(None) };
        let failure = loan.failure.take();
        if std::mem::take(&mut loan.has_read) && !has_to && failure.is_none() {
            loan.reader = Some(reader);
            return Ok(None);
        }
        self.is_lent.store(false, Ordering::Relaxed);
        self.streak.store(0, Ordering::Relaxed);
        drop(loan);
        match failure.map_or_else(|| reader.read(), Err) {
            Ok(lay_there) => {
                let setbacks = self.setbacks.load(Ordering::Relaxed);
                if lay_there > 0 && !has_to && setbacks < MAX_SETBACKS {
                    self.setbacks.store(setbacks + 1, Ordering::Relaxed);
                }
                Ok(Some(reader))
            }
            Err(error) => reader.intake.give_up().and(Err(error)),
        }
    }

    /// It is whole between any two steps of the above.
    fn loan(&self) -> MutexGuard<'_, Loan> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Reads what lies in the socket as long as a packet is not whole; gives how many bytes that was. The end of the
    /// connection is left to be seen by whoever gets it back.
    fn read(&mut self) -> Result<usize> {
        let mut all = 0;
        for _ in 0..MAX_READS {
            let room = self.intake.room();
            let capacity = room.len();
            let read = match self.socket.read(room) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.intake.take(read)?;
            all += read;
            if read < capacity && !self.intake.is_within() {
                break;
            }
        }
        Ok(all)
    }
}
