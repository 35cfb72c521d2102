//! The recordings that are asked, and what asking them came to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tracedir::{Findings, Loss, LossKind, Recording};

/// How far reading is: bytes of packets that were entered. Scans of several threads add to it.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
}

impl Progress {
    /// Bytes of packets that were entered so far; those of a table that a question reads twice count twice.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What was lost when the traces were recorded, in what a question read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Event records for which the tracer had no room.
    pub event_records: u64,
    /// Packets that never arrived.
    pub packets: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, loss: &Loss<'_>) {
        match loss.kind {
            LossKind::EventRecords => self.event_records += loss.count,
            LossKind::Packets => self.packets += loss.count,
        }
    }
}

/// Opened recordings.
#[derive(Debug)]
pub(crate) struct Recordings {
    pub(crate) recording: Recording,
    pub(crate) progress: Arc<Progress>,
    seen: Mutex<Seen>,
}

/// By stream: what the scan of it found that found most, as a question may read a stream more than once.
#[derive(Debug, Default)]
struct Seen {
    lost: BTreeMap<usize, Lost>,
    findings: BTreeMap<usize, Vec<String>>,
    /// Findings that were counted only.
    more: BTreeMap<usize, u64>,
    /// What reading all streams together found. Bound: as many findings as one reading keeps.
    of_all: Lost,
    findings_of_all: BTreeSet<String>,
    more_of_all: u64,
}

impl Recordings {
    pub(crate) fn new(recording: Recording) -> Self {
        Self { recording, progress: Arc::default(), seen: Mutex::default() }
    }

    /// Takes note of what a scan of a stream came to.
    pub(crate) fn note(&self, stream: usize, lost: Lost, findings: &Findings) {
        if lost == Lost::default() && findings.is_empty() {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.lost.entry(stream).or_default();
        known.event_records = known.event_records.max(lost.event_records);
        known.packets = known.packets.max(lost.packets);
        let found: Vec<String> = findings.kept().iter().map(ToString::to_string).collect();
        let known = seen.findings.entry(stream).or_default();
        if found.len() > known.len() {
            *known = found;
        }
        let known = seen.more.entry(stream).or_default();
        *known = findings.more().max(*known);
    }

    /// Takes note of what reading all streams together came to.
    pub(crate) fn note_all(&self, lost: Lost, findings: &[String], more: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.of_all.event_records = seen.of_all.event_records.max(lost.event_records);
        seen.of_all.packets = seen.of_all.packets.max(lost.packets);
        seen.more_of_all = seen.more_of_all.max(more);
        seen.findings_of_all.extend(findings.iter().cloned());
    }

    pub(crate) fn lost(&self) -> Lost {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = seen.lost.values().fold(Lost::default(), |sum, lost| Lost {
            event_records: sum.event_records + lost.event_records,
            packets: sum.packets + lost.packets,
        });
        Lost {
            event_records: sum.event_records.max(seen.of_all.event_records),
            packets: sum.packets.max(seen.of_all.packets),
        }
    }

    /// What could not be opened or read, and how much more there was.
    pub(crate) fn findings(&self) -> (Vec<String>, u64) {
        let opened = self.recording.findings();
        let mut all: Vec<String> = opened.kept().iter().map(ToString::to_string).collect();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(seen.findings.values().flatten().cloned());
        let known: BTreeSet<String> = all.iter().cloned().collect();
        all.extend(seen.findings_of_all.difference(&known).cloned());
        (all, (opened.more() + seen.more.values().sum::<u64>()).max(seen.more_of_all))
    }

    /// Bytes of all stream files.
    pub(crate) fn bytes(&self) -> u64 {
        let files = self.recording.streams().iter().flat_map(tracedir::Stream::files);
        files.map(|file| file.len).sum()
    }
}
