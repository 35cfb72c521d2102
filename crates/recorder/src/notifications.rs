//! Notifications of OSProfiler: kept in the journal, and in memory for who asks for them.
//!
//! Those that come over a connection are in the journal before they are answered. Those of rings are read ring after ring; they are held
//! back until each ring was read that could have earlier ones, and take their places by time.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::Journal;
use osprofiler::{Key, Limits, Losses, MemoryTraces, Page, StoreError, TextKey, Traces};
use records::{
    EntryKind, Notified, RingBatch, RingNotification, decode_notified, encode_notified,
    ring_notifications,
};

use crate::error::Result;
use crate::intake::Shared;

/// What notifications that come over connections are counted under.
pub(crate) const SERVICE: &str = "(redis)";

/// Notifications in memory.
#[derive(Debug)]
pub(crate) struct Notifications {
    memory: Mutex<MemoryTraces>,
    /// Of rings, that were read in this turn.
    held: Mutex<Vec<RingNotification>>,
    /// Whether anybody can ask for them: else none are in memory.
    is_asked: bool,
}

impl Notifications {
    /// Those that a journal has, for who asks.
    pub(crate) fn open(journal: &Journal, limits: Limits, is_asked: bool) -> Result<Self> {
        let memory = Mutex::new(MemoryTraces::new(limits));
        let notifications = Self { memory, held: Mutex::default(), is_asked };
        if !is_asked {
            return Ok(notifications);
        }
        // Entries of a second: a turn takes less.
        const WINDOW_NS: i64 = 1_000_000_000;
        let mut horizon = i64::MIN;
        journal.replay(0, |header, payload| match EntryKind::from_code(header.kind) {
            Some(EntryKind::Ring) => {
                let Ok(batch) = RingBatch::decode(payload) else { return };
                notifications.hold(&batch);
                let times = batch.times;
                let now = i64::try_from(times.late.monotonic_ns).unwrap_or(i64::MAX);
                if now - WINDOW_NS > horizon {
                    horizon = now - WINDOW_NS;
                    notifications.release(horizon);
                }
            }
            Some(EntryKind::Notified) => {
                let mut memory = notifications.memory();
                for it in decode_notified(payload).unwrap_or_default() {
                    // What finds no room is counted by the memory itself.
                    drop(keep(&mut memory, &it));
                }
            }
            Some(EntryKind::ProcessEnded) | None => {}
        })?;
        notifications.release(i64::MAX);
        Ok(notifications)
    }

    /// Takes notifications of a batch in.
    pub(crate) fn hold(&self, batch: &RingBatch) {
        if !self.is_asked {
            return;
        }
        let found = ring_notifications(batch).unwrap_or_default();
        if !found.is_empty() {
            self.held.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        }
    }

    /// All rings were read that could have notifications of before this time, by `CLOCK_MONOTONIC`.
    pub(crate) fn release(&self, before_ns: i64) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() {
            return;
        }
        // Stable: those of one ring and time stay in their order.
        held.sort_by_key(|it| it.monotonic_ns);
        let later = held.partition_point(|it| it.monotonic_ns < before_ns);
        let later = held.split_off(later);
        let ready = std::mem::replace(&mut *held, later);
        drop(held);
        let mut memory = self.memory();
        for it in ready {
            drop(keep(&mut memory, &Notified::Push { base_id: &it.base_id, json: &it.json }));
        }
    }

    /// What cannot be asked for any more, or never could: it is in the journal all the same.
    pub(crate) fn losses(&self) -> Losses {
        self.memory().losses()
    }

    fn memory(&self) -> MutexGuard<'_, MemoryTraces> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(
    memory: &mut MemoryTraces,
    notified: &Notified<'_>,
) -> std::result::Result<usize, StoreError> {
    match notified {
        Notified::Push { base_id, json } => memory.push(base_id, json),
        Notified::Set { key, text } => match Key::parse(key.as_bytes()) {
            Some(Key::Text(key)) => memory.set(key, text).map(|()| 0),
            Some(Key::Trace(_)) | None => Ok(0),
        },
    }
}

/// What a connection acts on.
pub(crate) struct Door {
    pub(crate) shared: Arc<Shared>,
}

impl Door {
    /// Keeps one in the journal. A service that it traces must not be told when that cannot be: it would raise that within a request.
    fn append(&self, notified: Notified<'_>) -> bool {
        let Ok(bytes) = encode_notified(&[notified]) else { return false };
        let shared = &self.shared;
        let mut known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.append(&known, EntryKind::Notified, 1, &bytes) {
            Ok(position) => {
                known.count_notified(position.entry, 1);
                true
            }
            Err(error) => {
                known.drop_notified("journal");
                drop(known);
                shared.trouble("journal", &model::with_causes(&error));
                false
            }
        }
    }

    fn memory(&self) -> MutexGuard<'_, MemoryTraces> {
        self.shared.notifications.memory()
    }
}

impl Traces for Door {
    fn push(&mut self, base_id: &str, json: &[u8]) -> std::result::Result<usize, StoreError> {
        let is_kept = self.append(Notified::Push { base_id, json });
        let mut memory = self.memory();
        if is_kept { memory.push(base_id, json) } else { Ok(memory.len(base_id)? + 1) }
    }

    fn set(&mut self, key: TextKey<'_>, text: &[u8]) -> std::result::Result<(), StoreError> {
        let name = Key::Text(key).to_string();
        if self.append(Notified::Set { key: &name, text }) {
            return self.memory().set(key, text);
        }
        Ok(())
    }

    fn get(&self, key: TextKey<'_>) -> std::result::Result<Option<Arc<[u8]>>, StoreError> {
        self.memory().get(key)
    }

    fn len(&self, base_id: &str) -> std::result::Result<usize, StoreError> {
        self.memory().len(base_id)
    }

    fn range(
        &self,
        base_id: &str,
        places: Range<usize>,
    ) -> std::result::Result<Vec<Arc<[u8]>>, StoreError> {
        self.memory().range(base_id, places)
    }

    fn keys(
        &self,
        prefix: &str,
        cursor: u64,
        most: usize,
    ) -> std::result::Result<Page, StoreError> {
        self.memory().keys(prefix, cursor, most)
    }
}
