//! A recorded trace, several times one after the other: long enough to be measured well.
//!
//! Packets are copied with their times moved on. Only whole multiples of 2^32 cycles are added, so that time stamps
//! of fewer bits stay as they are; full ones are found in the packet context and in the event headers and rewritten.
//! For traces in little endian whose packet header, packet context and event header are made of whole bytes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ctf::packet::{EventReader, Outcome, Packets};
use ctf::{Field, Scope, Shape, TraceClass, Value, Visitor};

/// Event headers with a full time stamp are not longer.
const HEADER_BYTES: usize = 16;

/// Times that are not whole multiples of this would have to be added to shortened time stamps too.
const STEP_BITS: u32 = 32;

/// Writes the trace of the folder `from` into the folder `to`, `copies` times over.
pub(super) fn in_time(from: &Path, to: &Path, copies: u32) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    let metadata = fs::read(from.join("metadata"))?;
    let trace = Arc::new(TraceClass::parse(&metadata)?);
    fs::write(to.join("metadata"), &metadata)?;
    let mut streams = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "metadata" {
            let bytes = fs::read(entry.path())?;
            let times =
                Times::of(&trace, &bytes).with_context(|| entry.path().display().to_string())?;
            streams.push((to.join(entry.file_name()), bytes, times));
        }
    }
    let first = streams.iter().filter_map(|(.., times)| times.first()).min();
    let last = streams.iter().filter_map(|(.., times)| times.last()).max();
    let (Some(first), Some(last)) = (first, last) else { bail!("no packets") };
    let step = (((last - first) >> STEP_BITS) + 1) << STEP_BITS;
    for (path, bytes, times) in &mut streams {
        let mut file = File::create(path)?;
        for _ in 0..copies {
            file.write_all(bytes)?;
            times.move_on(bytes, step)?;
        }
    }
    Ok(())
}

/// Where a stream has full time stamps and counters.
struct Times {
    /// Byte offsets of time stamps.
    times: Vec<usize>,
    /// Byte offsets of packet sequence numbers.
    numbers: Vec<usize>,
    packets: u64,
    bounds: Option<(u64, u64)>,
}

impl Times {
    fn of(trace: &Arc<TraceClass>, bytes: &[u8]) -> anyhow::Result<Self> {
        let mut found = Self { times: Vec::new(), numbers: Vec::new(), packets: 0, bounds: None };
        for packet in Packets::new(trace, bytes) {
            let packet = packet?;
            let start = usize::try_from(packet.offset_bytes)?;
            let Outcome::Ready(mut events) = EventReader::open(Arc::clone(trace), packet.bytes)?
            else {
                bail!("a packet at byte {start} is cut");
            };
            found.packet(&events, start)?;
            while let Some(event) = events.next_event()? {
                let time = event.clock_value().context("an event record without a time")?;
                found.cover(time);
                let begin = usize::try_from(event.begin_bits() / 8)?;
                let header = packet.bytes.get(begin..).unwrap_or_default();
                let full = time.to_le_bytes();
                let at = header.windows(full.len()).take(HEADER_BYTES).position(|w| w == full);
                found.times.extend(at.map(|at| start + begin + at));
            }
        }
        Ok(found)
    }

    fn packet(&mut self, events: &EventReader<&[u8]>, start: usize) -> anyhow::Result<()> {
        let mut places = Places::default();
        events.visit_packet(Scope::PacketHeader, &mut places);
        events.visit_packet(Scope::PacketContext, &mut places);
        let info = events.packet();
        ensure!(places.bits == info.header_end_bits, "the packet context has gaps");
        ensure!(info.events_discarded.is_none_or(|count| count == 0), "discarded event records");
        self.times.extend(places.times.iter().map(|at| start + at));
        self.numbers.extend(places.number.map(|at| start + at));
        self.packets += 1;
        [info.begin, info.end].into_iter().flatten().for_each(|time| self.cover(time));
        Ok(())
    }

    fn cover(&mut self, time: u64) {
        let (first, last) = self.bounds.unwrap_or((time, time));
        self.bounds = Some((first.min(time), last.max(time)));
    }

    fn first(&self) -> Option<u64> {
        self.bounds.map(|(first, _)| first)
    }

    fn last(&self) -> Option<u64> {
        self.bounds.map(|(_, last)| last)
    }

    fn move_on(&self, bytes: &mut [u8], step: u64) -> anyhow::Result<()> {
        self.times.iter().try_for_each(|at| add(bytes, *at, step))?;
        self.numbers.iter().try_for_each(|at| add(bytes, *at, self.packets))
    }
}

/// Adds to the 64-bit number at a byte offset.
fn add(bytes: &mut [u8], at: usize, amount: u64) -> anyhow::Result<()> {
    let place = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut).context("beyond the end")?;
    *place = (u64::from_le_bytes(*place) + amount).to_le_bytes();
    Ok(())
}

/// Byte offsets of a packet's own time stamps and number.
#[derive(Default)]
struct Places {
    bits: u64,
    times: Vec<usize>,
    number: Option<usize>,
}

impl<'a> Visitor<'a> for Places {
    fn scalar(&mut self, field: Field<'a>, _: Value<'a>) {
        let at = usize::try_from(self.bits / 8).unwrap_or(usize::MAX);
        match (field.name(), field.bits()) {
            ("timestamp_begin" | "timestamp_end", 64) => self.times.push(at),
            ("packet_seq_num", 64) => self.number = Some(at),
            _ => {}
        }
        self.bits += u64::from(field.bits());
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

#[cfg(test)]
mod tests {
    use model::TimeRange;
    use tracedir::{Item, Recording};

    use super::*;

    /// Names and times of all event records.
    fn events(path: &Path) -> Vec<(String, i64)> {
        let recording = Recording::open(&[path]).unwrap();
        let mut merged = recording.merged(TimeRange::ALL);
        let mut events = Vec::new();
        while let Some(item) = merged.next_item() {
            let Item::Event(event) = item else { panic!("a loss that was not recorded") };
            events.push((event.record.name().to_owned(), event.timestamp.nanos()));
        }
        assert!(merged.findings().is_empty());
        events
    }

    #[test]
    fn every_copy_is_the_whole_trace_at_a_later_time() {
        for name in super::super::read::KERNEL_TRACES {
            let Some(trace) = testkit::unpacked_trace(name) else {
                testkit::skip(name);
                return;
            };
            let from = trace.join("trace");
            let folder = tempfile::tempdir().unwrap();
            in_time(&from, folder.path(), 2).unwrap();
            let (once, twice) = (events(&from), events(folder.path()));
            let (first, second) = twice.split_at(once.len());
            assert_eq!(first, once);
            let step = second[0].1 - first[0].1;
            assert_eq!(step % (1 << STEP_BITS), 0);
            assert!(step > once.last().unwrap().1 - once[0].1);
            let moved: Vec<_> =
                once.iter().map(|(name, time)| (name.clone(), time + step)).collect();
            assert!(second == moved, "{name}");
        }
    }
}
