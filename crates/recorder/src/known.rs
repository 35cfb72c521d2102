//! What is known of applications by what the journal has of them: how far each ring was read, and counts by service. A fold over entries, kept from
//! time to time, so that a start goes through those only that came since.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use journal::{Header, Journal};
use records::{EntryKind, Process, RingBatch, RingId};
use rings::Cursor;
use serde::{Deserialize, Serialize};
use tracepoint::DropReason;
use tracepoint::layout::DROP_PLACES;

use crate::error::{Error, On, Result};
use crate::notifications;

/// Services that are counted by themselves; all others are one more.
const MAX_SERVICES: usize = 256;
/// What those others are called.
const OTHERS: &str = "(others)";

/// Of an application's service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfService {
    /// Records in the journal.
    pub(crate) stored: u64,
    /// Records that never came there, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Processes that were seen, and that have ended.
    pub(crate) processes: u64,
    pub(crate) ended: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfRing {
    position: u64,
    number: u64,
    dropped: [u64; DROP_PLACES],
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfProcess {
    process: Option<Process>,
    dropped: [u64; DROP_PLACES],
    /// By place and generation.
    rings: BTreeMap<(u32, u32), OfRing>,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Entries before this one are counted.
    entry: u64,
    pub(crate) services: BTreeMap<String, OfService>,
    /// By memory file: processes that have not ended.
    processes: BTreeMap<(u64, u64), OfProcess>,
}

/// What a batch adds, so that it need not be decoded again.
#[derive(Debug)]
pub(crate) struct Adds<'a> {
    pub(crate) process: &'a Process,
    pub(crate) ring: &'a RingId,
    pub(crate) end: Cursor,
    pub(crate) records: u32,
    pub(crate) dropped: [u64; DROP_PLACES],
    pub(crate) dropped_of_process: [u64; DROP_PLACES],
    pub(crate) overwritten: u64,
}

impl<'a> Adds<'a> {
    pub(crate) fn of(batch: &'a RingBatch, records: u32) -> Self {
        Self {
            process: &batch.process,
            ring: &batch.ring,
            end: batch.end,
            records,
            dropped: batch.dropped,
            dropped_of_process: batch.dropped_of_process,
            overwritten: batch.overwritten,
        }
    }
}

impl Known {
    /// What was kept, and what a journal has since.
    pub(crate) fn open(path: &Path, journal: &Journal) -> Result<Self> {
        let mut known = match fs::read(path) {
            Ok(bytes) => checked(&bytes)
                .and_then(|known| postcard::from_bytes::<Self>(known).ok())
                .ok_or_else(|| Error::Damaged { path: path.to_owned() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(error).on("read", path),
        };
        let mut unread = 0;
        journal.replay(known.entry, |header, payload| {
            if !known.replay(header, payload) {
                unread += 1;
            }
        })?;
        if unread > 0 {
            tracing::warn!(entries = unread, "entries of the journal cannot be read");
        }
        Ok(known)
    }

    /// Keeps it. What was appended before is in it.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let known = postcard::to_allocvec(self).map_err(io::Error::other).on("write", path)?;
        write_checked(path, &known)
    }

    /// Entries before this one are counted.
    pub(crate) const fn entry(&self) -> u64 {
        self.entry
    }

    /// Counts an entry that was read; `false` when it is none that is known.
    fn replay(&mut self, header: &Header, payload: &[u8]) -> bool {
        let entry = header.position.entry;
        match EntryKind::from_code(header.kind) {
            Some(EntryKind::Ring) => {
                let Ok(batch) = RingBatch::decode(payload) else { return false };
                self.add(entry, &Adds::of(&batch, header.records));
            }
            Some(EntryKind::ProcessEnded) => {
                let Ok(process) = Process::decode(payload) else { return false };
                self.end(entry, &process);
            }
            Some(EntryKind::Notified) => self.count_notified(entry, header.records),
            None => return false,
        }
        true
    }

    /// Counts notifications of connections, which are in the journal.
    pub(crate) fn count_notified(&mut self, entry: u64, records: u32) {
        self.entry = entry + 1;
        self.service(notifications::SERVICE).stored += u64::from(records);
    }

    /// Counts one that is not.
    pub(crate) fn drop_notified(&mut self, reason: &str) {
        self.service(notifications::SERVICE).drop(reason, 1);
    }

    /// Counts a batch, which is in the journal.
    pub(crate) fn add(&mut self, entry: u64, adds: &Adds<'_>) {
        self.entry = entry + 1;
        let file = adds.process.file;
        if !self.processes.contains_key(&file) {
            self.service(&adds.process.service).processes += 1;
        }
        let process = self.processes.entry(file).or_default();
        process.process.get_or_insert_with(|| adds.process.clone());
        let mut news = news(&mut process.dropped, &adds.dropped_of_process);
        let key = (adds.ring.place, adds.ring.generation);
        // A place has one ring at a time.
        if !process.rings.contains_key(&key) {
            process.rings.retain(|(place, _), _| *place != key.0);
        }
        let ring = process.rings.entry(key).or_default();
        (ring.position, ring.number) = (adds.end.position, adds.end.number);
        let of_ring = self::news(&mut ring.dropped, &adds.dropped);
        news.iter_mut().zip(of_ring).for_each(|(sum, more)| *sum += more);
        let service = self.service(&adds.process.service);
        service.stored += u64::from(adds.records);
        for (reason, count) in DropReason::ALL.into_iter().zip(news) {
            service.drop(reason.name(), count);
        }
        service.drop("overwritten", adds.overwritten);
    }

    /// Counts that a process has ended, which is in the journal.
    pub(crate) fn end(&mut self, entry: u64, process: &Process) {
        self.entry = entry + 1;
        self.processes.remove(&process.file);
        self.service(&process.service).ended += 1;
    }

    /// Those that have not ended.
    pub(crate) fn processes(&self) -> Vec<Process> {
        self.processes.values().filter_map(|it| it.process.clone()).collect()
    }

    /// Up to where a ring is in the journal; `None` when nothing of it is.
    pub(crate) fn cursor(&self, process: &Process, place: u32, generation: u32) -> Option<Cursor> {
        let ring = self.processes.get(&process.file)?.rings.get(&(place, generation))?;
        Some(Cursor { position: ring.position, number: ring.number, is_certain: true })
    }

    /// What the journal says was dropped of a ring and of its process.
    pub(crate) fn dropped(&self, process: &Process, ring: &RingId) -> [[u64; DROP_PLACES]; 2] {
        let Some(of) = self.processes.get(&process.file) else { return Default::default() };
        let ring = of.rings.get(&(ring.place, ring.generation));
        [ring.map(|ring| ring.dropped).unwrap_or_default(), of.dropped]
    }

    fn service(&mut self, name: &str) -> &mut OfService {
        let is_full = self.services.len() >= MAX_SERVICES && !self.services.contains_key(name);
        self.services.entry(if is_full { OTHERS } else { name }.to_owned()).or_default()
    }
}

impl OfService {
    fn drop(&mut self, reason: &str, count: u64) {
        if count > 0 {
            *self.dropped.entry(reason.to_owned()).or_default() += count;
        }
    }
}

/// What is more than before; counts never go back, but for those of a hostile process.
fn news(before: &mut [u64; DROP_PLACES], now: &[u64; DROP_PLACES]) -> [u64; DROP_PLACES] {
    let mut news = [0; DROP_PLACES];
    for ((news, before), now) in news.iter_mut().zip(before).zip(now) {
        *news = now.saturating_sub(*before);
        *before = (*before).max(*now);
    }
    news
}

/// What stands behind its checksum in a small file.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (checksum, rest) = bytes.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*checksum) == crc32c::crc32c(rest)).then_some(rest)
}

/// Writes a small file, whole or not at all, with its checksum before it. It survives this process.
pub(crate) fn write_checked(path: &Path, content: &[u8]) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let bytes = [&crc32c::crc32c(content).to_le_bytes(), content].concat();
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).on("write", path)
}
