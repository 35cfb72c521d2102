//! The thread that reads rings.
//!
//! Each turn reads all rings once, puts what it finds into the journal, and releases it. Between turns it waits, the shorter the
//! fuller rings were: so that they are a quarter full at the next, if it goes on like that.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use journal::{Journal, Position};
use records::{EntryKind, Process, RingBatch, RingId};
use rings::{Connection, Door, Refused, Ring, Rings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracepoint::layout::Mode;

use crate::clock::{self, Follower};
use crate::error::{Error, Result};
use crate::known::{Adds, Known};
use crate::ledger::Troubles;
use crate::notifications::Notifications;

/// Processes at a time; those that come later are let in when others have gone.
const MAX_PROCESSES: usize = 1024;
/// What is read of a ring at a time, in bytes. One entry of the journal.
const READ: usize = 1 << 20;
/// Between turns.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
/// Applications look for an agent every two seconds, and say who they are at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the thread shares with others.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) journal: Arc<Journal>,
    /// Where that is kept.
    pub(crate) known_path: PathBuf,
    pub(crate) known: Mutex<Known>,
    pub(crate) troubles: Mutex<Troubles>,
    pub(crate) notifications: Notifications,
    pub(crate) stopped: AtomicBool,
    /// Flight recorders are to be read once.
    pub(crate) flight: AtomicBool,
}

/// Reads rings.
pub(crate) struct Intake {
    shared: Arc<Shared>,
    door: Door,
    /// Those that have not said anything yet, and since when.
    waiting: Vec<(Connection, Instant)>,
    applications: Vec<Application>,
    /// Those that were there when this program began, and have not come again.
    awaited: Vec<Process>,
    began: Instant,
    pause: Duration,
    /// The journal could not be written: processes that are gone are not looked at before the pause is over.
    is_failing: bool,
}

struct Application {
    connection: Connection,
    rings: Rings,
    process: Process,
    clock: Follower,
    /// By place: rings that are read, and [`None`] for those that were given up.
    read: BTreeMap<u32, Option<Ring>>,
    /// Of each place, the ring that was given up.
    given_up: BTreeMap<u32, u32>,
}

/// How full the fullest ring was, of 1,000.
type Fill = u64;

impl Intake {
    pub(crate) fn new(shared: Arc<Shared>, socket: &Path, is_open_to_all: bool) -> Result<Self> {
        let door = Door::bind(socket, is_open_to_all)
            .map_err(|source| Error::Listen { path: socket.to_owned(), source })?;
        let awaited = shared.known.lock().unwrap_or_else(PoisonError::into_inner).processes();
        Ok(Self {
            shared,
            door,
            waiting: Vec::new(),
            applications: Vec::new(),
            awaited,
            began: Instant::now(),
            pause: SHORTEST,
            is_failing: false,
        })
    }

    /// Until it is stopped; what was published until then is in the journal.
    pub(crate) fn run(mut self) {
        loop {
            // Before the turn, so that it sees all that was published when it was stopped.
            let is_last = self.shared.stopped.load(Ordering::Acquire);
            let begin = Instant::now();
            self.let_in();
            self.look_after_awaited();
            let fill = self.turn();
            if is_last {
                return;
            }
            self.pause = next_pause(self.pause + begin.elapsed(), fill);
            self.wait();
        }
    }

    fn wait(&self) {
        let files = self.applications.len() + self.waiting.len();
        let mut wanted = Vec::with_capacity(files + 1);
        if self.applications.len() < MAX_PROCESSES {
            wanted.push(PollFd::new(&self.door, PollFlags::IN));
        }
        wanted.extend(self.waiting.iter().map(|(it, _)| PollFd::new(it, PollFlags::IN)));
        let hung_up = self.applications.iter().filter(|_| !self.is_failing);
        wanted.extend(hung_up.map(|it| PollFd::new(&it.connection, PollFlags::IN)));
        let nanos = self.pause.subsec_nanos().into();
        // A signal only makes the turn come early.
        match poll(&mut wanted, Some(&Timespec { tv_sec: 0, tv_nsec: nanos })) {
            Ok(_) | Err(_) => {}
        }
    }

    /// Takes in who has come.
    fn let_in(&mut self) {
        while self.applications.len() + self.waiting.len() < MAX_PROCESSES {
            match self.door.accept() {
                Ok(Some(connection)) => self.waiting.push((connection, Instant::now())),
                Ok(None) => break,
                Err(error) => {
                    self.shared.trouble("accept", &error.to_string());
                    break;
                }
            }
        }
        for (connection, since) in std::mem::take(&mut self.waiting) {
            match connection.memory_file() {
                // Who says nothing takes nobody's place for ever.
                Ok(None) if since.elapsed() >= PATIENCE => {
                    self.shared.trouble("greeting", "nothing was said");
                }
                Ok(None) => self.waiting.push((connection, since)),
                Ok(Some(file)) => match Application::new(connection, &file) {
                    Ok(application) => self.applications.push(application),
                    Err(error) => self.shared.trouble("memory_file", &error.to_string()),
                },
                Err(Refused::Lost(_)) => {}
                Err(refused) => self.shared.trouble("greeting", &refused.to_string()),
            }
        }
    }

    /// Who was there before, and is gone or does not come, has ended.
    fn look_after_awaited(&mut self) {
        if self.awaited.is_empty() {
            return;
        }
        let has_waited = self.began.elapsed() >= PATIENCE;
        let (shared, applications) = (&self.shared, &self.applications);
        self.awaited.retain(|process| {
            if applications.iter().any(|it| it.process == *process) {
                return false;
            }
            let is_gone =
                process.pid != 0 && !Path::new(&format!("/proc/{}", process.pid)).exists();
            if !is_gone && !has_waited {
                return true;
            }
            shared.trouble("not_back", &process.service);
            !shared.end(process)
        });
    }

    /// Reads all rings; gives how full the fullest was.
    fn turn(&mut self) -> Fill {
        let is_flight = self.shared.flight.swap(false, Ordering::AcqRel);
        let begin_ns = clock::monotonic_ns();
        let (mut fullest, mut is_failing) = (0, false);
        let shared = &self.shared;
        self.applications.retain_mut(|application| {
            // Before its rings, so that what it wrote last is read.
            let is_over = application.connection.is_over();
            let is_read = is_over || is_flight || application.rings.about().mode == Mode::Drop;
            let read = if is_read { application.read(shared) } else { Ok(0) };
            match read {
                Ok(fill) => fullest = fullest.max(fill),
                // What cannot be written stays where it is, also of a process that is gone.
                Err(error) => {
                    shared.trouble("journal", &model::with_causes(&error));
                    is_failing = true;
                    return true;
                }
            }
            let is_gone = is_over && shared.end(&application.process);
            is_failing |= is_over && !is_gone;
            !is_gone
        });
        self.is_failing = is_failing;
        if !is_failing {
            shared.notifications.release(begin_ns);
        }
        fullest
    }
}

/// When rings are a quarter full again, if they fill as they did.
fn next_pause(since: Duration, fill: Fill) -> Duration {
    let quarter = since.saturating_mul(250) / u32::try_from(fill.max(1)).unwrap_or(u32::MAX);
    quarter.clamp(SHORTEST, LONGEST)
}

impl Shared {
    /// Appends an entry. Where that needs room which entries have that were counted in memory only, those are noted first.
    pub(crate) fn append(
        &self,
        known: &Known,
        kind: EntryKind,
        records: u32,
        payload: &[u8],
    ) -> std::result::Result<Position, journal::Error> {
        let append = || self.journal.append(kind as u16, records, payload, clock::now());
        match append() {
            Err(journal::Error::Full { .. }) if known.save(&self.known_path).is_ok() => {
                self.journal.hold(known.entry());
                append()
            }
            appended => appended,
        }
    }

    /// Says that a process has ended. Gives whether that is in the journal.
    fn end(&self, process: &Process) -> bool {
        let Ok(bytes) = process.encode() else { return true };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match self.append(&known, EntryKind::ProcessEnded, 0, &bytes) {
            Ok(position) => {
                known.end(position.entry, process);
                true
            }
            Err(_) => false,
        }
    }

    /// Something that is no loss of what is in a journal, counted; the first of its kind is told.
    pub(crate) fn trouble(&self, what: &'static str, why: &str) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let count = troubles.counts.entry(what).or_default();
        if *count == 0 {
            tracing::warn!(what, why, "an application is not served, or not now");
        }
        *count += 1;
    }
}

impl Application {
    fn new(connection: Connection, file: impl AsFd) -> std::result::Result<Self, rings::Error> {
        let stat = rustix::fs::fstat(&file).map_err(|error| rings::Error::Map(error.into()))?;
        let rings = Rings::open(&file)?;
        let about = rings.about();
        let process = Process {
            file: (stat.st_ino, about.made_monotonic_ns),
            pid: connection.pid,
            own_pid: about.pid,
            service: about.service.clone(),
        };
        let clock = Follower::new(about.clock, about.made, about.made_monotonic_ns);
        let (read, given_up) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { connection, rings, process, clock, read, given_up })
    }

    /// Reads what its rings have.
    fn read(&mut self, shared: &Shared) -> std::result::Result<Fill, journal::Error> {
        let mut fullest = 0;
        for place in 0..self.rings.touched() {
            if let Some(fill) = self.read_place(place, shared)? {
                fullest = fullest.max(fill);
            }
        }
        Ok(fullest)
    }

    fn read_place(
        &mut self,
        place: u32,
        shared: &Shared,
    ) -> std::result::Result<Option<Fill>, journal::Error> {
        let ring = match self.read.remove(&place) {
            Some(ring) => ring,
            None => match self.rings.ring(place) {
                Ok(Some(mut ring)) if self.given_up.get(&place) != Some(&ring.generation) => {
                    self.catch_up(&mut ring, shared);
                    Some(ring)
                }
                Ok(_) => return Ok(None),
                Err(error) => {
                    self.give_up(place, 0, &error, shared);
                    return Ok(None);
                }
            },
        };
        let Some(mut ring) = ring else { return Ok(None) };
        let generation = ring.generation;
        match self.drain(&mut ring, shared) {
            Ok(Drained::Goes(fill)) => {
                self.read.insert(place, Some(ring));
                Ok(Some(fill))
            }
            Ok(Drained::Over(fill)) => Ok(Some(fill)),
            Err(Trouble::Journal(error)) => {
                self.read.insert(place, Some(ring));
                Err(error)
            }
            Err(Trouble::Ring(error)) => {
                self.give_up(place, generation, &error, shared);
                Ok(None)
            }
        }
    }

    /// What the journal has of a ring was released, or was to be when this program ended.
    fn catch_up(&self, ring: &mut Ring, shared: &Shared) {
        let known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        let cursor = known.cursor(&self.process, ring.place, ring.generation);
        if let Some(cursor) = cursor.filter(|it| it.position > ring.cursor().position) {
            self.rings.release(ring, cursor);
        }
    }

    /// A ring that says what cannot be is not looked at any more.
    fn give_up(&mut self, place: u32, generation: u32, error: &rings::Error, shared: &Shared) {
        self.given_up.insert(place, generation);
        let service = &self.process.service;
        shared.trouble("ring", &format!("{service}, process {}: {error}", self.process.pid));
    }

    /// Reads a ring to what is its end now.
    fn drain(&mut self, ring: &mut Ring, shared: &Shared) -> std::result::Result<Drained, Trouble> {
        let id = RingId {
            place: ring.place,
            generation: ring.generation,
            tid: ring.tid,
            thread: ring.name.clone(),
        };
        let ring_len = self.rings.about().shape.ring_len;
        let mut all = 0;
        loop {
            self.clock.look();
            let dropped = [self.rings.dropped_in(ring), self.rings.dropped()];
            let read = self.rings.read(ring, READ).map_err(Trouble::Ring)?;
            let (len, is_last) = (read.len() as u64, read.is_last);
            let is_news = || {
                let known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.dropped(&self.process, &id) != dropped
            };
            if len > 0 || read.overwritten > 0 || is_news() {
                let shape = self.rings.about().shape;
                let (process, times) = (self.process.clone(), self.clock.times());
                let batch = RingBatch::new(process, id.clone(), times, &read, shape, dropped);
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(records::Error::Records { position, what }) => {
                        return Err(Trouble::Ring(rings::Error::Ring {
                            ring: ring.place,
                            position,
                            what,
                        }));
                    }
                    Err(_) => return Ok(Drained::Over(all)),
                };
                let end = batch.end;
                self.keep(&batch, shared)?;
                self.rings.release(ring, end);
            }
            all += len * 1000 / ring_len;
            if is_last {
                // A ring that another thread has taken by now is looked at anew.
                let _is_free = self.rings.free(ring);
                return Ok(Drained::Over(all));
            }
            if len < READ as u64 {
                return Ok(Drained::Goes(all));
            }
        }
    }

    /// Puts a batch into the journal.
    fn keep(&self, batch: &RingBatch, shared: &Shared) -> std::result::Result<(), Trouble> {
        let (Ok(records), Ok(bytes)) = (batch.records(), batch.encode()) else { return Ok(()) };
        let mut known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        let position = shared.append(&known, EntryKind::Ring, records, &bytes);
        let position = position.map_err(Trouble::Journal)?;
        known.add(position.entry, &Adds::of(batch, records));
        drop(known);
        shared.notifications.hold(batch);
        Ok(())
    }
}

/// What came of reading a ring.
enum Drained {
    /// It goes on.
    Goes(Fill),
    /// Its thread has ended.
    Over(Fill),
}

enum Trouble {
    Ring(rings::Error),
    Journal(journal::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuller_rings_are_looked_at_sooner() {
        let turn = Duration::from_millis(20);
        assert_eq!(next_pause(turn, 250), turn);
        assert_eq!(next_pause(turn, 1000), turn / 4);
        assert_eq!(next_pause(turn, 1), LONGEST);
        assert_eq!(next_pause(turn, 0), LONGEST);
        assert_eq!(next_pause(Duration::from_millis(2), 1000), SHORTEST);
    }
}
