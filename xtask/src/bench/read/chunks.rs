//! A session of many chunks that repeat the same large metadata, as a kernel's does.

use std::fs;
use std::path::Path;

use ctf::index::{IndexVersion, PacketIndex};
use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, Schema, SealedPacket, TraceClass,
};
use ctf::{ClockClass, ClockOrigin, EnvValue, Uuid};

/// Length of the metadata of an LTTng kernel session with every event enabled.
const METADATA_BYTES: usize = 463_000;

/// CPUs, and so streams of a chunk.
const CPUS: u32 = 2;

/// Event records of one stream of one chunk.
const EVENTS: u64 = 50;

/// Time that one chunk covers, in nanoseconds.
const CHUNK_NS: u64 = 30_000_000_000;

/// When the session began: nanoseconds since the epoch, and the same as its folders' names say it.
const BEGIN_NS: u64 = 1_795_132_800_000_000_000;

const UUID: [u8; 16] = *b"one uuid for all";

/// What was made.
pub(super) struct Made {
    pub(super) events: u64,
    pub(super) metadata_bytes: usize,
}

/// Writes `count` chunk folders into the session folder `path`.
pub(super) fn make(path: &Path, count: u32) -> anyhow::Result<Made> {
    let schema = schema(METADATA_BYTES)?;
    let text = schema.metadata();
    for number in 0..count {
        let begin_ns = u64::from(number) * CHUNK_NS;
        let folder = path.join("archives").join(name(number)).join("kernel");
        fs::create_dir_all(folder.join("index"))?;
        fs::write(folder.join("metadata"), text)?;
        for cpu in 0..CPUS {
            let packet = packet(&schema, cpu, begin_ns)?;
            fs::write(folder.join(format!("channel0_{cpu}")), &packet.bytes)?;
            let index = folder.join("index").join(format!("channel0_{cpu}.idx"));
            let entries = vec![packet.index_entry(0)];
            let content = PacketIndex { version: IndexVersion::V1_1, entries };
            fs::write(index, content.encode())?;
        }
    }
    Ok(Made { events: u64::from(count) * u64::from(CPUS) * EVENTS, metadata_bytes: text.len() })
}

/// `<begin>-<end>-<number>`, as LTTng names a chunk; the second day of the session goes on in the first's hours.
fn name(number: u32) -> String {
    let second = u64::from(number) * CHUNK_NS / 1_000_000_000;
    let stamp = |second: u64| {
        let (day, second) = (20 + second / 86_400, second % 86_400);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        format!("202611{day:02}T{hour:02}{minute:02}{:02}+0000", second % 60)
    };
    format!("{}-{}-{number}", stamp(second), stamp(second + CHUNK_NS / 1_000_000_000))
}

/// As many event record classes of a few usual fields as make the metadata at least so long, and no more than 16 over.
fn schema(metadata_bytes: usize) -> anyhow::Result<Schema> {
    let mut events = Vec::new();
    loop {
        let schema = Schema::new(trace_class(&events))?;
        if schema.metadata().len() >= metadata_bytes {
            return Ok(schema);
        }
        let from = events.len() as u64;
        events.extend((from..from + 16).map(event_class));
    }
}

fn trace_class(events: &[EventClass]) -> TraceClass {
    let env = [("hostname", "bench"), ("domain", "kernel"), ("tracer_name", "lttng-modules")];
    let env = env.map(|(name, value)| (name.to_owned(), EnvValue::Text(value.to_owned())));
    let int = |name| Field::new(name, FieldClass::Int(IntClass::I32));
    let clock = ClockClass {
        uuid: Some(Uuid(UUID)),
        offset: BEGIN_NS,
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    };
    let context = vec![int("pid"), int("tid")];
    TraceClass::per_cpu(Uuid(UUID), clock, env.to_vec(), context, events.to_vec())
}

fn event_class(number: u64) -> EventClass {
    EventClass::new(
        number,
        format!("syscall_entry_{number:04}"),
        vec![
            Field::new("fd", FieldClass::Int(IntClass::I32)),
            Field::new("buffer", FieldClass::Int(IntClass::HEX64)),
            Field::new("count", FieldClass::Int(IntClass::U64)),
            Field::new("filename", FieldClass::STRING),
        ],
    )
}

fn packet(schema: &Schema, cpu: u32, begin_ns: u64) -> anyhow::Result<SealedPacket> {
    let mut packet = schema.open_cpu(cpu, begin_ns, 64 << 10)?;
    let classes =
        schema.class().streams.iter().map(|stream| stream.events.len() as u64).sum::<u64>();
    for number in 0..EVENTS {
        let event = (number * 37 + u64::from(cpu)) % classes;
        let time = begin_ns + number * (CHUNK_NS / EVENTS) + u64::from(cpu);
        let appended = packet.append(event, time, |record| {
            record.signed(1000 + i64::from(cpu))?;
            record.signed(1000 + i64::from(cpu))?;
            record.signed(3)?;
            record.unsigned(0x7fff_0000_0000 + number)?;
            record.unsigned(4096)?;
            record.string(b"/var/lib/data/file")
        })?;
        anyhow::ensure!(appended == Appended::Yes, "a packet takes {EVENTS} event records");
    }
    Ok(packet.seal(begin_ns + CHUNK_NS - 1, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracedir::Recording;

    #[test]
    fn chunks_are_one_trace_with_every_event_record() {
        let folder = tempfile::tempdir().unwrap();
        let made = make(folder.path(), 3).unwrap();
        assert!((METADATA_BYTES..METADATA_BYTES + 16 * 512).contains(&made.metadata_bytes));
        let recording = Recording::open(&[folder.path()]).unwrap();
        assert_eq!((recording.traces().len(), recording.streams().len()), (1, 2));
        assert!(recording.findings().is_empty());
        let mut merged = recording.merged(model::TimeRange::ALL);
        let mut events = 0;
        while merged.next_item().is_some() {
            events += 1;
        }
        assert_eq!(events, made.events);
        assert!(merged.findings().is_empty());
    }

    #[test]
    fn chunk_names_are_lttngs() {
        assert_eq!(name(0), "20261120T000000+0000-20261120T000030+0000-0");
        assert_eq!(name(2879), "20261120T235930+0000-20261121T000000+0000-2879");
    }
}
