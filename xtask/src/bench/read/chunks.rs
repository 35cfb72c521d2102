//! A session of many chunks that repeat the same large metadata, as a kernel's does.

use std::fs;
use std::path::Path;

use ctf::index::{IndexEntry, IndexVersion, PacketIndex, StreamPosition};
use ctf::writer::{
    Appended, ClockClass, EnvValue, EventClass, Field, FieldClass, IntClass, PacketBuilder,
    SealedPacket, StreamClass, StreamId, TraceClass, metadata,
};

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
    let class = stream_class(METADATA_BYTES);
    let text = metadata(&trace_class(), &class);
    for number in 0..count {
        let begin_ns = u64::from(number) * CHUNK_NS;
        let folder = path.join("archives").join(name(number)).join("kernel");
        fs::create_dir_all(folder.join("index"))?;
        fs::write(folder.join("metadata"), &text)?;
        for cpu in 0..CPUS {
            let packet = packet(&class, cpu, begin_ns)?;
            fs::write(folder.join(format!("channel0_{cpu}")), &packet.bytes)?;
            let index = folder.join("index").join(format!("channel0_{cpu}.idx"));
            fs::write(index, index_of(&packet).encode())?;
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

fn trace_class() -> TraceClass {
    let env = [("hostname", "bench"), ("domain", "kernel"), ("tracer_name", "lttng-modules")];
    TraceClass {
        uuid: UUID,
        clock: ClockClass::nanoseconds("monotonic", UUID, BEGIN_NS),
        env: env.map(|(name, value)| (name.to_owned(), EnvValue::Text(value.to_owned()))).to_vec(),
    }
}

/// As many event record classes of a few usual fields as make the metadata at least so long, and no more than 16 over.
fn stream_class(metadata_bytes: usize) -> StreamClass {
    let mut class = StreamClass {
        context: vec![
            Field::new("pid", FieldClass::Int(IntClass::I32)),
            Field::new("tid", FieldClass::Int(IntClass::I32)),
        ],
        events: Vec::new(),
    };
    while metadata(&trace_class(), &class).len() < metadata_bytes {
        let from = class.events.len();
        class.events.extend((from..from + 16).map(event_class));
    }
    class
}

fn event_class(number: usize) -> EventClass {
    EventClass::new(
        format!("syscall_entry_{number:04}"),
        vec![
            Field::new("fd", FieldClass::Int(IntClass::I32)),
            Field::new("buffer", FieldClass::Int(IntClass::HEX64)),
            Field::new("count", FieldClass::Int(IntClass::U64)),
            Field::new("filename", FieldClass::String),
        ],
    )
}

fn packet(class: &StreamClass, cpu: u32, begin_ns: u64) -> anyhow::Result<SealedPacket> {
    let id = StreamId { trace: UUID, instance: u64::from(cpu), cpu };
    let mut builder = PacketBuilder::new(class, id, 64 << 10, begin_ns);
    for number in 0..EVENTS {
        let event = u16::try_from((number * 37 + u64::from(cpu)) % class.events.len() as u64)?;
        let time = begin_ns + number * (CHUNK_NS / EVENTS) + u64::from(cpu);
        let appended = builder.append(event, time, |record| {
            record.signed(1000 + i64::from(cpu))?;
            record.signed(1000 + i64::from(cpu))?;
            record.signed(3)?;
            record.unsigned(0x7fff_0000_0000 + number)?;
            record.unsigned(4096)?;
            record.string(b"/var/lib/data/file")
        })?;
        anyhow::ensure!(appended == Appended::Yes, "a packet takes {EVENTS} event records");
    }
    Ok(builder.seal(begin_ns + CHUNK_NS - 1, 0))
}

fn index_of(packet: &SealedPacket) -> PacketIndex {
    let entry = IndexEntry {
        offset_bytes: 0,
        total_length_bits: packet.content_bits,
        content_length_bits: packet.content_bits,
        timestamp_begin: packet.begin,
        timestamp_end: packet.end,
        events_discarded: packet.discarded,
        stream_class_id: 0,
        position: Some(StreamPosition {
            stream_instance_id: packet.instance,
            packet_seq_num: packet.sequence_number,
        }),
    };
    PacketIndex { version: IndexVersion::V1_1, entries: vec![entry] }
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
