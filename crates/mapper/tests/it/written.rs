//! A small kernel trace of any tracer: its event records' names and fields, and what happens.

use std::fs;
use std::path::Path;

use ctf::writer::{
    EventClass, Field, FieldClass, IntClass, Length, PacketStart, Record, TraceClass,
};
use ctf::{ClockClass, EnvValue, Uuid};
use mapper::{Analysis, Options, Windows, analyse};
use model::Timestamp;

use crate::compare::{answers, same};

/// A value of an event record's field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Is {
    Int(i64),
    /// An address or a set of flags: 64 bits.
    Bits(u64),
    /// A command name: 16 bytes.
    Comm(&'static str),
    Text(&'static str),
    /// Two descriptors.
    Pair(i32, i32),
    /// The registers of a call that only its number tells.
    Registers([u64; 6]),
    /// The flags of clone, as LTTng has them since 2.11: a signal in the low bits, the options above.
    CloneFlags(u64),
}

use Is::{Bits, CloneFlags, Comm, Int, Pair, Registers, Text};

type Fields = Vec<(&'static str, Is)>;

/// An event record.
#[derive(Debug, Clone)]
pub(crate) struct Happens {
    cpu: u32,
    name: &'static str,
    fields: Fields,
    /// What all event records of the trace carry.
    context: Fields,
    /// When, if not 1,000 ns after the one before.
    at: Option<u64>,
}

impl Happens {
    pub(crate) fn on(self, cpu: u32) -> Self {
        Self { cpu, ..self }
    }

    pub(crate) fn at(self, ns: u64) -> Self {
        Self { at: Some(ns), ..self }
    }

    pub(crate) fn with<const N: usize>(self, context: [(&'static str, Is); N]) -> Self {
        Self { context: context.to_vec(), ..self }
    }
}

/// An event record on CPU 0.
pub(crate) fn event<const N: usize>(
    name: &'static str,
    fields: [(&'static str, Is); N],
) -> Happens {
    Happens { cpu: 0, name, fields: fields.to_vec(), context: Vec::new(), at: None }
}

/// A thread leaves CPU 0 to another.
pub(crate) fn switch(prev: i64, next: i64) -> Happens {
    let fields = [
        ("prev_comm", Comm("prev")),
        ("prev_tid", Int(prev)),
        ("prev_state", Int(1)),
        ("next_comm", Comm("next")),
        ("next_tid", Int(next)),
    ];
    event("sched_switch", fields)
}

impl Is {
    fn class(self) -> FieldClass {
        let byte = IntClass { bits: 8, ..IntClass::U64 };
        let options = IntClass { bits: 56, ..IntClass::U64 };
        match self {
            Int(_) => FieldClass::Int(IntClass::I64),
            Bits(_) => FieldClass::Int(IntClass::U64),
            Comm(_) => FieldClass::text(16),
            Text(_) => FieldClass::STRING,
            Pair(..) => FieldClass::array(FieldClass::Int(IntClass::I32), Length::Fixed(2)),
            Registers(_) => FieldClass::array(FieldClass::Int(IntClass::U64), Length::Fixed(6)),
            CloneFlags(_) => FieldClass::Structure(ctf::writer::Structure::new(vec![
                Field::new("exit_signal", FieldClass::Int(byte)),
                Field::new("options", FieldClass::Int(options)),
            ])),
        }
    }

    fn write(self, out: &mut Record<'_>) -> Result<(), ctf::writer::WriteError> {
        match self {
            Int(value) => out.signed(value),
            Bits(value) => out.unsigned(value),
            Comm(text) | Text(text) => out.string(text.as_bytes()),
            Pair(one, other) => {
                out.elements(&[i64::from(one), i64::from(other)].map(i64::cast_unsigned))
            }
            Registers(registers) => out.elements(&registers),
            CloneFlags(flags) => {
                out.unsigned(flags & 0xff)?;
                out.unsigned(flags >> 8)
            }
        }
    }
}

/// A piece of a trace: the events from the first to before the second, and how many its tracer had discarded until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) sequence_number: u64,
    pub(crate) discarded: u64,
}

/// Writes the trace: its events are 1,000 ns apart, in one stream for each CPU, which loses so many events before a moment.
pub(crate) fn write(folder: &Path, events: &[Happens], lost: &[(u32, usize, u64)]) {
    let piece = Piece { first: 0, end: events.len(), sequence_number: 0, discarded: 0 };
    write_piece(folder, events, lost, piece);
}

/// Writes a piece of that trace.
pub(crate) fn write_piece(
    folder: &Path,
    events: &[Happens],
    lost: &[(u32, usize, u64)],
    piece: Piece,
) {
    let fields = |fields: &Fields| -> Vec<Field> {
        fields.iter().map(|(name, is)| Field::new(*name, is.class())).collect()
    };
    let mut classes: Vec<EventClass> = Vec::new();
    for happens in events {
        if classes.iter().all(|class| class.name != happens.name) {
            let id = classes.len() as u64;
            classes.push(EventClass::new(id, happens.name, fields(&happens.fields)));
        }
    }
    let context = events.first().map(|first| fields(&first.context)).unwrap_or_default();
    let id = |name: &str| classes.iter().position(|class| class.name == name).unwrap() as u64;
    let clock = ClockClass::new("monotonic");
    let environment = vec![
        ("hostname".to_owned(), EnvValue::Text("host".to_owned())),
        ("domain".to_owned(), EnvValue::Text("kernel".to_owned())),
    ];
    let class = TraceClass::per_cpu(Uuid([7; 16]), clock, environment, context, classes.clone());
    let schema = ctf::writer::Schema::new(class).unwrap();
    fs::write(folder.join("metadata"), schema.metadata()).unwrap();
    let at = |n: usize| 1_000 * (n as u64 + 1);
    let mut cpus: Vec<u32> = events.iter().map(|happens| happens.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    for cpu in cpus {
        let start = PacketStart {
            stream_class: 0,
            instance: cpu.into(),
            sequence_number: piece.sequence_number,
            begin: at(piece.first) - 500,
            max_bytes: 1 << 20,
        };
        let mut packet = schema.open(start, |context| context.unsigned(cpu.into())).unwrap();
        let (mut bytes, mut discarded) = (Vec::new(), piece.discarded);
        let events = events.iter().enumerate().take(piece.end).skip(piece.first);
        for (n, happens) in events {
            for (_, _, count) in lost.iter().filter(|(on, before, _)| (*on, *before) == (cpu, n)) {
                bytes.extend(packet.roll(at(n) - 500, discarded).bytes);
                discarded += count;
                bytes.extend(packet.roll(at(n) - 400, discarded).bytes);
            }
            if happens.cpu == cpu {
                let values = happens.context.iter().chain(&happens.fields);
                let write = |out: &mut Record<'_>| {
                    values.map(|(_, is)| *is).try_for_each(|is| is.write(out))
                };
                let appended =
                    packet.append(id(happens.name), happens.at.unwrap_or(at(n)), write).unwrap();
                assert!(matches!(appended, ctf::writer::Appended::Yes));
            }
        }
        bytes.extend(packet.seal(at(piece.end) - 600, discarded).bytes);
        fs::write(folder.join(format!("kernel_{cpu}")), bytes).unwrap();
    }
}

/// The analysis of what happens; checked to be the same with a window for every event, mapped in a row and side by side.
pub(crate) fn analysis(events: &[Happens], lost: &[(u32, usize, u64)]) -> Analysis {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), events, lost);
    let with = |windows, threads| {
        let threads = std::num::NonZeroUsize::new(threads);
        analyse(&[folder.path()], &Options { windows, threads, ..Options::default() }).unwrap()
    };
    let whole = with(Windows::Whole, 1);
    assert_eq!(whole.findings, Vec::<String>::new());
    let expected = answers(&whole.summary);
    let cuts =
        || (0..=events.len()).map(|n| Timestamp::from_nanos(1_000 * n as i64 + 700)).collect();
    for threads in [1, 2] {
        let found = answers(&with(Windows::At(cuts()), threads).summary);
        same(&expected.0, &found.0);
        same(&expected.1, &found.1);
    }
    whole
}

/// Bytes read by file name, over all processes.
pub(crate) fn bytes_read(analysis: &Analysis) -> Vec<(String, u64)> {
    let answer = stitch::syscalls(&analysis.summary);
    let calls = answer.processes.iter().flat_map(|process| &process.syscalls);
    let reads = calls.filter(|call| &*call.name == "read");
    let files = reads.flat_map(|call| call.files.iter().flatten());
    let mut bytes: Vec<_> = files.map(|file| (file.name.to_string(), file.bytes)).collect();
    bytes.sort();
    bytes
}
