//! Drivers: who gets records, each on a thread and at a place in the journal of its own.
//!
//! A driver takes entries in order. What it took is acknowledged, and comes again only to a driver that was killed before it could note that it
//! has it: `tests/it/killed.rs` tries that.

mod ctf;
mod json;
mod otlp;
mod points;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use http::Uri;
use journal::{Entry, Journal, Position, Reader, Reason};
use webclient::{Backoff, Headers};

use self::ctf::Ctf;
use self::json::JsonLines;
use self::otlp::Otlp;
use crate::error::Result;
use crate::run::spawn;

/// What is given to a driver at a time, in bytes.
const MOST: usize = 4 << 20;
/// How often a driver without entries looks after what it has in its hands.
const IDLE: Duration = Duration::from_millis(200);

/// How often it is looked whether entries that wait for others have waited long enough.
const LOOK: Duration = Duration::from_secs(1);

/// What came of entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The driver has them.
    Taken,
    /// It has them, but for so many records that its target will never take.
    Rejected(u64),
    /// It may have them another time, not before this is over if its target says so.
    Again(Option<Duration>, String),
}

/// What a driver is given at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portion {
    /// About as many bytes of entries at most.
    bytes: usize,
    /// How long entries wait in the journal for others, while nothing is behind them.
    wait: Duration,
}

/// Delivers entries.
pub(super) trait Driver: Send {
    /// What it is given at a time.
    fn portion(&self) -> Portion {
        Portion { bytes: MOST, wait: Duration::ZERO }
    }

    /// Delivers these. The same may come again after [`Outcome::Again`], and others behind them.
    fn deliver(&mut self, entries: &[Entry]) -> Outcome;

    /// Delivers what was held back of entries that it took.
    fn idle(&mut self) -> Outcome {
        Outcome::Taken
    }
}

/// Who gets records.
#[derive(Debug, Clone)]
pub struct Target {
    text: String,
    kind: Kind,
    /// What goes with every request of OTLP.
    pub headers: Headers,
    /// The oldest files or chunks of a folder are deleted while all together are larger, in bytes.
    pub keep_bytes: u64,
    /// How long records wait for others to be in one chunk with them.
    pub chunk_every: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Json(PathBuf),
    Ctf(PathBuf),
    Otlp(Uri),
}

/// A text that names nobody who gets records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Nothing that is known.
    #[error("expected json:FOLDER, ctf:FOLDER or http://HOST[:PORT][/PATH]")]
    Kind,
    /// It cannot be the address of a collector.
    #[error("no address of a collector")]
    Address,
    /// A name or password, which everybody who lists processes could read.
    #[error("a name or password in an address can be read by others")]
    Secret,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> std::result::Result<Self, TargetError> {
        let kind = match text.split_once(':') {
            Some(("json", folder)) if !folder.is_empty() => Kind::Json(folder.into()),
            Some(("ctf", folder)) if !folder.is_empty() => Kind::Ctf(folder.into()),
            Some(("http" | "https", _)) => {
                let uri: Uri = text.parse().map_err(|_no_uri| TargetError::Address)?;
                let authority = uri.authority().ok_or(TargetError::Address)?;
                if authority.as_str().contains('@') {
                    return Err(TargetError::Secret);
                }
                if uri.query().is_some() {
                    return Err(TargetError::Address);
                }
                Kind::Otlp(uri)
            }
            _ => return Err(TargetError::Kind),
        };
        let headers = Headers::default();
        let (text, keep_bytes, chunk_every) = (text.to_owned(), 10 << 30, ctf::CHUNK_EVERY);
        Ok(Self { text, kind, headers, keep_bytes, chunk_every })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// A name for files: what may not be in one is a dash, and a checksum tells those apart that look the same then.
    fn file_name(&self) -> String {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        let plain = self.text.chars().map(|it| if is_plain(it) { it } else { '-' });
        let plain: String = plain.take(60).collect();
        format!("{plain}-{:08x}", crc32c::crc32c(self.text.as_bytes()))
    }

    fn driver(
        &self,
        folder: &Path,
        journal: [u8; 16],
        machine: &[(String, String)],
    ) -> Result<Box<dyn Driver>> {
        let state = folder.join(format!("{}.driver", self.file_name()));
        Ok(match &self.kind {
            Kind::Json(into) => Box::new(JsonLines::open(into, state, self.keep_bytes)?),
            Kind::Ctf(into) => {
                Box::new(Ctf::open(into, journal, self.keep_bytes, self.chunk_every)?)
            }
            Kind::Otlp(uri) => Box::new(Otlp::open(uri, self.headers.clone(), state, machine)?),
        })
    }
}

/// When drivers have to end; nothing while they go on.
pub(crate) type Until = Arc<Mutex<Option<Instant>>>;

/// Starts the driver of a target.
pub(crate) fn start(
    target: &Target,
    journal: &Arc<Journal>,
    folder: &Path,
    machine: &[(String, String)],
    until: Until,
) -> Result<JoinHandle<()>> {
    let reader = journal.reader(&target.file_name())?;
    let driver = target.driver(folder, journal.id(), machine)?;
    let (to, journal) = (target.to_string(), Arc::clone(journal));
    spawn("driver", move || {
        Running { journal, reader, driver, until, gathers: None, to }.run();
    })
}

struct Running {
    journal: Arc<Journal>,
    reader: Reader,
    driver: Box<dyn Driver>,
    until: Until,
    /// Since when entries wait for others.
    gathers: Option<Instant>,
    to: String,
}

impl Running {
    fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            // Before the turn, which then sees all that was appended before it was to end.
            let is_ending = self.until().is_some();
            let (outcome, is_idle) = match self.turn() {
                Ok(turn) => turn,
                Err(error) => (Outcome::Again(None, model::with_causes(&error)), false),
            };
            if let Outcome::Again(after, why) = outcome {
                if !backoff.is_failing() {
                    tracing::warn!(to = self.to, why, "cannot deliver; it is tried again");
                }
                if !self.rest(backoff.after_failure(after, fastrand::f64())) {
                    return;
                }
                continue;
            }
            if backoff.is_failing() {
                tracing::warn!(to = self.to, "records are delivered again");
            }
            backoff.reset();
            if is_idle && is_ending {
                return;
            }
            if self.until().is_some_and(|until| Instant::now() >= until) {
                return;
            }
        }
    }

    /// Delivers what is next; says whether there was nothing.
    fn turn(&mut self) -> journal::Result<(Outcome, bool)> {
        let portion = self.driver.portion();
        let entries = self.reader.next(portion.bytes)?;
        let Some(last) = entries.last() else {
            let outcome = self.driver.idle();
            self.reject(&outcome)?;
            let is_waited_for = outcome == Outcome::Taken && self.until().is_none();
            if is_waited_for {
                self.reader.wait(IDLE);
            }
            return Ok((outcome, true));
        };
        let end = last.header.end();
        if self.waits(portion.wait, end) {
            return Ok((Outcome::Taken, false));
        }
        let outcome = self.driver.deliver(&entries);
        match &outcome {
            Outcome::Taken | Outcome::Rejected(_) => {
                self.reader.acknowledge(end)?;
                self.gathers = None;
            }
            Outcome::Again(..) => self.reader.give_back(),
        }
        self.reject(&outcome)?;
        Ok((outcome, false))
    }

    /// Gives entries up to a position back, and rests, when they may wait for others that are not there yet.
    fn waits(&mut self, wait: Duration, end: Position) -> bool {
        let left = wait.saturating_sub(self.gathers.map_or(Duration::ZERO, |it| it.elapsed()));
        let is_due =
            left.is_zero() || self.until().is_some() || self.journal.levels().end.entry > end.entry;
        if !is_due {
            self.gathers.get_or_insert_with(Instant::now);
            // Not in anybody's hands: while they wait, the journal may let go of them for want of room.
            self.reader.give_back();
            self.rest(left.min(LOOK));
        }
        !is_due
    }

    fn reject(&mut self, outcome: &Outcome) -> journal::Result<()> {
        let Outcome::Rejected(records) = outcome else { return Ok(()) };
        tracing::warn!(to = self.to, records, "records were refused: they are dropped");
        self.reader.reject(Reason::Refused, *records)
    }

    fn until(&self) -> Option<Instant> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits. Gives whether it is tried once more.
    fn rest(&self, wait: Duration) -> bool {
        let begin = Instant::now();
        let was_ending = self.until().is_some();
        loop {
            let until = self.until();
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
            // Once more at once when the end is near, for a target that is back.
            if begin.elapsed() >= wait || (!was_ending && until.is_some()) {
                return true;
            }
            thread::park_timeout(Duration::from_millis(50).min(wait));
        }
    }
}
