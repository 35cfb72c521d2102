//! The same event records over few or many streams of one trace.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, OpenPacket, Schema, TraceClass,
};
use ctf::{ClockClass, ClockOrigin, Uuid};

/// Event records in all streams together.
pub(super) const EVENTS: u64 = 2_000_000;

/// Length of a packet, as a tracer's sub-buffer.
const PACKET_BYTES: usize = 16 << 10;

const UUID: [u8; 16] = *b"many streams one";

/// Writes [`EVENTS`] event records, one each microsecond, each into a stream that a fixed pseudo-random sequence names.
pub(super) fn make(path: &Path, streams: u32) -> anyhow::Result<()> {
    fs::create_dir_all(path)?;
    let context = vec![Field::new("vtid", FieldClass::Int(IntClass::I32))];
    let events = vec![EventClass::new(
        0,
        "work",
        vec![
            Field::new("item", FieldClass::Int(IntClass::U64)),
            Field::new("size", FieldClass::Int(IntClass::U32)),
            Field::new("name", FieldClass::STRING),
        ],
    )];
    let clock = ClockClass {
        uuid: Some(Uuid(UUID)),
        offset: 1_795_132_800_000_000_000,
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    };
    let trace = TraceClass::per_cpu(Uuid(UUID), clock, Vec::new(), context, events);
    let schema = Schema::new(trace)?;
    fs::write(path.join("metadata"), schema.metadata())?;
    let mut open: Vec<Stream<'_>> = (0..streams)
        .map(|number| {
            let packet = schema.open_cpu(number, 0, PACKET_BYTES)?;
            Ok(Stream { path: path.join(format!("work_{number}")), packet })
        })
        .collect::<anyhow::Result<_>>()?;
    let mut state = 1_u64;
    for item in 0..EVENTS {
        // Knuth's MMIX generator; the upper half is the better one.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let stream = usize::try_from((state >> 32) % u64::from(streams.max(1)))?;
        if let Some(stream) = open.get_mut(stream) {
            stream.append(item)?;
        }
    }
    open.iter_mut().try_for_each(|stream| stream.seal(EVENTS * 1_000))
}

struct Stream<'a> {
    path: std::path::PathBuf,
    packet: OpenPacket<'a>,
}

impl Stream<'_> {
    fn append(&mut self, item: u64) -> anyhow::Result<()> {
        let time = item * 1_000;
        for _ in 0..2 {
            let appended = self.packet.append(0, time, |record| {
                record.signed(4242)?;
                record.unsigned(item)?;
                record.unsigned(item % 4096)?;
                record.string(b"a piece of work")
            })?;
            if appended == Appended::Yes {
                return Ok(());
            }
            self.seal(time)?;
        }
        anyhow::bail!("no event record fits into a packet")
    }

    fn seal(&mut self, end: u64) -> anyhow::Result<()> {
        let packet = self.packet.roll(end, 0);
        let mut file = File::options().create(true).append(true).open(&self.path)?;
        Ok(file.write_all(&packet.bytes)?)
    }
}
