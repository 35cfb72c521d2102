//! What the chunks so far have told of rings, for the next one: kept in the newest chunk, so that both are there or neither.

use std::collections::BTreeMap;
use std::path::Path;

use records::RingBatch;
use serde::{Deserialize, Serialize};
use tracepoint::layout::DROP_PLACES;

use crate::error::{On, Result};
use crate::known::{checked, write_checked};

/// Hidden from readers of traces.
const FILE: &str = ".told";
/// Processes that are known at a time; of others it is told again what they dropped.
const MAX_PROCESSES: usize = 4096;
/// Offsets that differ by less are one, which was read twice.
const SAME_OFFSET_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// By memory file.
    processes: BTreeMap<(u64, u64), OfProcess>,
    /// From `CLOCK_MONOTONIC` to the epoch: one for all chunks while nobody sets the time of day, so that times of
    /// a thread do not step back between two.
    epoch_offset_ns: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfProcess {
    /// The last entry that was seen of it.
    entry: u64,
    /// Records that came to no ring.
    dropped: u64,
    /// By place, which has one ring at a time.
    rings: BTreeMap<u32, OfRing>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfRing {
    generation: u32,
    dropped: u64,
    /// When its last record was.
    last_ns: u64,
}

impl Told {
    /// What a chunk says; nothing when that cannot be read.
    pub(super) fn read(chunk: &Path) -> Self {
        let path = chunk.join(FILE);
        let told = std::fs::read(&path).ok();
        let told = told.as_deref().and_then(checked);
        told.and_then(|told| postcard::from_bytes(told).ok()).unwrap_or_else(|| {
            tracing::warn!(path = %path.display(), "what was told of rings is damaged: losses may be told again");
            Self::default()
        })
    }

    pub(super) fn write(&self, chunk: &Path) -> Result<()> {
        let path = chunk.join(FILE);
        let bytes = postcard::to_allocvec(self).map_err(std::io::Error::other);
        bytes.on("write", &path).and_then(|bytes| write_checked(&path, &bytes))
    }

    /// Takes in what a batch says was dropped. Gives the time before which no record of its ring is, since those before are in other chunks, and how
    /// many records are missing that were not told.
    pub(super) fn news(&mut self, entry: u64, batch: &RingBatch) -> (u64, u64) {
        let file = batch.process.file;
        self.make_room(file);
        let process = self.processes.entry(file).or_default();
        process.entry = entry;
        let ring = process.rings.entry(batch.ring.place).or_default();
        if ring.generation != batch.ring.generation {
            *ring = OfRing { generation: batch.ring.generation, ..OfRing::default() };
        }
        let of_ring = more(&mut ring.dropped, &batch.dropped);
        let of_process = more(&mut process.dropped, &batch.dropped_of_process);
        let lost = of_ring.saturating_add(of_process).saturating_add(batch.overwritten);
        (ring.last_ns.saturating_add(1), lost)
    }

    fn make_room(&mut self, file: (u64, u64)) {
        if self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&file) {
            return;
        }
        let longest_ago = self.processes.iter().min_by_key(|(_, process)| process.entry);
        if let Some(longest_ago) = longest_ago.map(|(file, _)| *file) {
            self.processes.remove(&longest_ago);
        }
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, file: (u64, u64)) {
        self.processes.remove(&file);
    }

    pub(super) fn note_last(
        &mut self,
        file: (u64, u64),
        place: u32,
        generation: u32,
        last_ns: u64,
    ) {
        let process = self.processes.get_mut(&file);
        let ring = process.and_then(|process| process.rings.get_mut(&place));
        if let Some(ring) = ring.filter(|ring| ring.generation == generation) {
            ring.last_ns = last_ns;
        }
    }

    pub(super) fn note_offset(&mut self, epoch_offset_ns: i64) {
        let known = self.epoch_offset_ns.get_or_insert(epoch_offset_ns);
        if known.abs_diff(epoch_offset_ns) >= SAME_OFFSET_NS {
            *known = epoch_offset_ns;
        }
    }

    pub(super) fn epoch_offset_ns(&self) -> u64 {
        self.epoch_offset_ns.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0)
    }
}

/// What is more than before; counts never go back, but for those of a hostile process.
fn more(before: &mut u64, now: &[u64; DROP_PLACES]) -> u64 {
    let now = now.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let more = now.saturating_sub(*before);
    *before = now.max(*before);
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_stays_until_the_time_of_day_is_set() {
        let mut told = Told::default();
        let mut offset = |offset| {
            told.note_offset(offset);
            told.epoch_offset_ns()
        };
        assert_eq!(
            [5_000_000, 5_000_300, 4_100_000, 6_000_000].map(&mut offset),
            [5_000_000, 5_000_000, 5_000_000, 6_000_000]
        );
    }

    #[test]
    fn what_was_told_is_read_from_the_chunk_and_damage_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let mut told = Told::default();
        told.note_offset(7);
        told.processes.entry((1, 2)).or_default().rings.insert(3, OfRing::default());
        told.note_last((1, 2), 3, 0, 99);
        told.write(folder.path()).unwrap();
        assert_eq!(Told::read(folder.path()), told);
        let path = folder.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Told::read(folder.path()), Told::default());
    }
}
