//! Chunks of the Common Trace Format (1.8): `FOLDER/chunk-FIRST_ENTRY-LAST_ENTRY-JOURNAL/SERVICE-PID/{metadata, stream}`.
//!
//! Entries stay in the journal until there are enough for a chunk, or the oldest has waited long enough; a chunk is written whole or not at all, and
//! its name says which entries it has. So the chunks themselves tell a driver that was killed where it was.
//!
//! A process's records are one stream, merged by time. A chunk needs no other to be read: each trace has a UUID of its own, its packets are numbered
//! from 0, and its counter of discarded event records begins at 0.

mod chunks;
mod classes;
mod told;
mod trace;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::path::Path;
use std::time::Duration;

use ctf::Uuid;
use journal::Entry;
use records::{EntryKind, Process, RingBatch};

use self::chunks::{Chunks, Part};
use self::told::Told;
use self::trace::{Clock, Lane, Trace};
use super::{Driver, Outcome, Portion};
use crate::error::{Error, On, Result};

/// What a chunk is made of at most, in bytes of entries; one entry more may be in it.
const CHUNK_LEN: usize = 16 << 20;
/// How long entries wait for others unless it is said otherwise.
pub(super) const CHUNK_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Ctf {
    chunks: Chunks,
    told: Told,
    clock: Clock,
    wait: Duration,
}

impl Ctf {
    pub(super) fn open(
        folder: &Path,
        journal: [u8; 16],
        keep_bytes: u64,
        wait: Duration,
    ) -> Result<Self> {
        let chunks = Chunks::open(folder, journal, keep_bytes)?;
        let told = chunks.newest().map_or_else(Told::default, |newest| Told::read(&newest));
        Ok(Self { chunks, told, clock: Clock { boot: boot()? }, wait })
    }

    fn write(&mut self, entries: &[Entry]) -> Result<()> {
        let next = self.chunks.next();
        let new = entries.iter().filter(|it| it.header.position.entry >= next);
        let new: Vec<&Entry> = new.collect();
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(()) };
        let (first, last) = (first.header.position.entry, last.header.position.entry);
        let mut told = self.told.clone();
        let traces = gathered(&new, &mut told);
        if traces.is_empty() {
            self.told = told;
            return Ok(());
        }
        let part = self.chunks.begin(first, last)?;
        let mut names = Names::default();
        for trace in traces {
            let name = names.free(&trace.process);
            write_trace(&part, &name, trace, self.clock, &mut told)?;
        }
        told.write(&part.path)?;
        self.chunks.seal(part)?;
        self.told = told;
        self.chunks.let_go()
    }
}

impl Driver for Ctf {
    fn portion(&self) -> Portion {
        Portion { bytes: CHUNK_LEN, wait: self.wait }
    }

    fn deliver(&mut self, entries: &[Entry]) -> Outcome {
        match self.write(entries) {
            Ok(()) => Outcome::Taken,
            Err(error) => Outcome::Again(None, model::with_causes(&error)),
        }
    }
}

/// Batches by process and ring, of processes that have anything to tell.
fn gathered(entries: &[&Entry], told: &mut Told) -> Vec<Trace> {
    let mut traces: BTreeMap<(u64, u64), Trace> = BTreeMap::new();
    for entry in entries {
        let number = entry.header.position.entry;
        let gathered = match EntryKind::from_code(entry.header.kind) {
            Some(EntryKind::Ring) => RingBatch::decode(&entry.payload)
                .map(|batch| gather(number, batch, told, &mut traces)),
            Some(EntryKind::ProcessEnded) => {
                Process::decode(&entry.payload).map(|process| told.forget(process.file))
            }
            Some(EntryKind::Notified) | None => Ok(()),
        };
        if let Err(error) = gathered {
            tracing::warn!(
                entry = number,
                error = model::with_causes(&error),
                "an entry cannot be read"
            );
        }
    }
    traces.into_values().filter(Trace::tells_anything).collect()
}

fn gather(entry: u64, batch: RingBatch, told: &mut Told, traces: &mut BTreeMap<(u64, u64), Trace>) {
    told.note_offset(batch.times.epoch_offset_ns);
    let (begin_ns, lost) = told.news(entry, &batch);
    let trace = match traces.entry(batch.process.file) {
        Place::Occupied(trace) => trace.into_mut(),
        Place::Vacant(place) => place.insert(Trace::new(batch.process.clone())),
    };
    let ring = (batch.ring.place, batch.ring.generation);
    let lane = trace.lanes.entry(ring).or_insert_with(|| Lane::new(batch.ring.clone(), begin_ns));
    lane.batches.push((batch, lost));
}

fn write_trace(part: &Part, name: &str, trace: Trace, clock: Clock, told: &mut Told) -> Result<()> {
    let folder = part.path.join(name);
    let lasts = trace.write(&folder, clock.class(told.epoch_offset_ns()))?;
    for (place, generation, last_ns) in lasts {
        told.note_last(trace.process.file, place, generation, last_ns);
    }
    Ok(())
}

/// Folders of a chunk: two processes may be called alike where their numbers cannot be seen.
#[derive(Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    fn free(&mut self, process: &Process) -> String {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        let plain = process.service.chars().map(|it| if is_plain(it) { it } else { '-' });
        // Readers pass over what begins with a dot.
        let plain: String = plain.skip_while(|it| *it == '.').take(60).collect();
        let pid = if process.pid == 0 { process.own_pid } else { process.pid };
        let name = format!("{plain}-{pid}");
        let before = self.0.entry(name.clone()).or_default();
        *before += 1;
        // A dot, which no number has: it cannot be the name of another process.
        if *before == 1 { name } else { format!("{name}.{before}") }
    }
}

/// What names the clock of this boot, as LTTng names it.
fn boot() -> Result<Option<Uuid>> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).on("read", path)?;
    match Uuid::parse(text.trim()) {
        Some(uuid) => Ok(Some(uuid)),
        None => Err(Error::Damaged { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_chunk_have_names_that_differ_and_lead_nowhere() {
        let process = |service: &str, pid, own_pid| Process {
            file: (1, 2),
            pid,
            own_pid,
            service: service.to_owned(),
        };
        let mut names = Names::default();
        assert_eq!(names.free(&process("shop", 7, 1)), "shop-7");
        assert_eq!(names.free(&process("shop", 0, 7)), "shop-7.2");
        assert_eq!(names.free(&process("../a b", 1, 1)), "-a-b-1");
        assert_eq!(names.free(&process("", 1, 1)), "-1");
    }
}
