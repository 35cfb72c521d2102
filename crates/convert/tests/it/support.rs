//! Traces as text, and traces to convert.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::CtfVersion;
use ctf::format::text::{TextOptions, TextWriter};
use ctf::format::{Output, StreamText};
use ctf::writer::{
    Appended, EventClass, EventHeader, Field, FieldClass, IntClass, Key, Length, OptionalClass,
    PacketStart, Schema, StreamClass, TraceClass, VariantClass,
};
use ctf::{ClockClass, Encoding, Uuid};
use model::TimeRange;
use tempfile::TempDir;
use tracedir::{ClassCache, Correlate, Item, PacketEnds, ReadOptions, Recording};

/// All event records below a folder as lines of text, and the losses between them. All can be read.
pub(crate) fn read(path: &Path, range: TimeRange) -> (String, Vec<u64>) {
    let (text, losses, findings) = read_what_can_be(path, range).expect("a trace");
    assert_eq!(findings, 0);
    (text, losses)
}

/// As [`read`], and how much cannot be read; `None` when nothing can.
pub(crate) fn read_what_can_be(path: &Path, range: TimeRange) -> Option<(String, Vec<u64>, usize)> {
    let options = ReadOptions { correlate: Correlate::Unchecked, ..ReadOptions::default() };
    let recording = Recording::open_as(&[path], &options, &mut ClassCache::default()).ok()?;
    let mut merged = recording.merged_with(range, PacketEnds::Awaited);
    let mut writer = TextWriter::new(TextOptions::default(), Box::new(|_| 0));
    let (mut text, mut losses) = (Output::new(), Vec::new());
    let mut streams = vec![(u64::MAX, StreamText::default()); recording.streams().len()];
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => {
                let (packet, stream) = &mut streams[event.stream_index];
                if std::mem::replace(packet, event.packet_index) != event.packet_index {
                    writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
                }
                writer.write(&event.record, stream, &mut text);
            }
            Item::Loss(loss) => losses.push(loss.count),
        }
    }
    let findings = merged.findings().kept().len() + recording.findings().kept().len();
    Some((String::from_utf8_lossy(text.as_bytes()).into_owned(), losses, findings))
}

/// The parts of a recorded trace.
pub(crate) fn recorded(name: &str) -> Option<PathBuf> {
    let path = testkit::unpacked_trace(name);
    if path.is_none() {
        testkit::skip(&format!("no shared trace {name}"));
    }
    path
}

/// A CTF 2 trace with all that CTF 1.8 has no form for: three event records, one each second.
pub(crate) fn modern() -> TempDir {
    let [length, truth, choice] = [Key(1), Key(2), Key(3)];
    let wide = FieldClass::String(Encoding::Utf16Le);
    let fields = vec![
        Field::keyed("there", FieldClass::Bool(IntClass::U8), truth),
        Field::new(
            "maybe",
            FieldClass::Optional(Box::new(OptionalClass {
                selector: truth,
                ranges: vec![],
                class: FieldClass::Int(IntClass::I32),
            })),
        ),
        Field::keyed("n", FieldClass::Int(IntClass::U8), length),
        Field::new("raw", FieldClass::Blob(Length::Of(length), String::new())),
        Field::new("wide text", wide),
        Field::new("flags", FieldClass::Bits(IntClass::U16, vec![])),
        Field::keyed("which", FieldClass::Int(IntClass::U8), choice),
        Field::new(
            "one",
            FieldClass::Variant(VariantClass {
                selector: choice,
                options: vec![
                    (Field::new("int", FieldClass::Int(IntClass::U8)), vec![(0, 9)]),
                    (Field::new("text", FieldClass::STRING), vec![(10, 19)]),
                ],
            }),
        ),
    ];
    let mut stream = StreamClass::new(0, EventHeader::Large, vec![EventClass::new(0, "e", fields)]);
    stream.clock = Some(0);
    let mut class = TraceClass::new(CtfVersion::V2, vec![stream]);
    (class.uuid, class.clocks) = (Some(Uuid([3; 16])), vec![ClockClass::new("monotonic")]);
    let schema = Schema::new(class).expect("classes are right");
    let second = 1_000_000_000;
    let start = PacketStart {
        stream_class: 0,
        instance: 0,
        sequence_number: 0,
        begin: second,
        max_bytes: 4096,
    };
    let mut packet = schema.open(start, |_| Ok(())).expect("room");
    for number in 0..3_u64 {
        let appended = packet.append(0, (number + 1) * second, |record| {
            record.boolean(number == 1)?;
            if number == 1 {
                record.signed(-7)?;
            }
            record.unsigned(number)?;
            record.bytes(&[0xAB, 0xCD][..usize::try_from(number).expect("small")])?;
            let text: Vec<u8> = "é".encode_utf16().flat_map(u16::to_le_bytes).collect();
            record.string(&text)?;
            record.unsigned(0x8001)?;
            record.unsigned(number * 9)?;
            if number * 9 < 10 { record.unsigned(1) } else { record.string(b"so") }
        });
        assert_eq!(appended, Ok(Appended::Yes));
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("metadata"), schema.metadata()).expect("written");
    fs::write(folder.path().join("stream"), packet.seal(4 * second, 0).bytes).expect("written");
    folder
}
