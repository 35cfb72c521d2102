//! What the writer writes, our reader and babeltrace2 read with the same values.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use ctf::packet::{EventReader, Outcome};
use ctf::writer::{
    Appended, Base, ClockClass, EnvValue, EventClass, Field, FieldClass, IntClass, PacketBuilder,
    Record, StreamClass, StreamId, TraceClass, Width, WriteError, metadata,
};

fn trace() -> TraceClass {
    TraceClass {
        uuid: [0xAB; 16],
        clock: ClockClass::nanoseconds("monotonic", [0xCD; 16], 1_700_000_000_000_000_000),
        env: vec![
            ("hostname".to_owned(), EnvValue::Text("a \"host\" \\ name".to_owned())),
            ("tracer_major".to_owned(), EnvValue::Int(-3)),
        ],
    }
}

fn stream() -> StreamClass {
    let int = |name, class| Field::new(name, FieldClass::Int(class));
    let state = IntClass { width: Width::W8, signed: true, base: Base::Decimal };
    let labels = vec![(-1, "gone".to_owned()), (2, "here".to_owned())];
    StreamClass {
        context: vec![int("tid", IntClass::I32), Field::new("comm", FieldClass::Text(6))],
        events: vec![
            EventClass::new("empty", vec![]),
            EventClass::new(
                "all",
                vec![
                    int("small", IntClass::U16),
                    int("large", IntClass::HEX64),
                    Field::new("state", FieldClass::Enum(state, labels)),
                    Field::new("path", FieldClass::String),
                    Field::new("pair", FieldClass::Array(IntClass::I32, 2)),
                    Field::new("bytes", FieldClass::Sequence(IntClass::U8)),
                ],
            ),
        ],
    }
}

fn write_all(record: &mut Record<'_>) -> Result<(), WriteError> {
    record.signed(-5)?;
    record.text(b"shell")?;
    record.unsigned(65_535)?;
    record.unsigned(u64::MAX)?;
    record.signed(2)?;
    record.string(b"/etc/pass wd")?;
    record.elements(&[7, (-8_i64).cast_unsigned()])?;
    record.elements(&[1, 2, 255])
}

fn packet(class: &StreamClass) -> Vec<u8> {
    let id = StreamId { trace: trace().uuid, instance: 1, cpu: 1 };
    let mut packet = PacketBuilder::new(class, id, 4096, 10);
    let empty = packet.append(0, 11, |record| {
        record.signed(1)?;
        record.text(b"longer name")
    });
    assert_eq!(empty, Ok(Appended::Yes));
    assert_eq!(packet.append(1, 12, write_all), Ok(Appended::Yes));
    packet.seal(13, 4).bytes
}

#[test]
fn written_records_are_read_back() {
    let class = stream();
    let text = metadata(&trace(), &class);
    let read = Arc::new(ctf::TraceClass::parse(text.as_bytes()).unwrap());
    let bytes = packet(&class);
    let Outcome::Ready(mut events) = EventReader::open(read, bytes.as_slice()).unwrap() else {
        panic!("the packet is whole");
    };
    let mut seen = Vec::new();
    while let Some(event) = events.next_event().unwrap() {
        let number = |name| event.field(name).and_then(|value| value.as_i64());
        let path = event.field("path").and_then(|value| value.as_bytes().map(<[u8]>::to_vec));
        seen.push((event.name().to_owned(), event.timestamp_ns(), number("small"), path));
    }
    let at = |ns: i64| Some(1_700_000_000_000_000_000 + ns);
    assert_eq!(
        seen,
        [
            ("empty".to_owned(), at(11), None, None),
            ("all".to_owned(), at(12), Some(65_535), Some(b"/etc/pass wd".to_vec())),
        ]
    );
}

#[test]
fn babeltrace_prints_the_values_that_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let class = stream();
    fs::write(folder.path().join("metadata"), metadata(&trace(), &class)).unwrap();
    fs::write(folder.path().join("stream"), packet(&class)).unwrap();
    let Ok(output) = Command::new("babeltrace2").env("TZ", "UTC").arg(folder.path()).output()
    else {
        testkit::skip("babeltrace2 is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let payloads: Vec<&str> =
        text.lines().map(|line| &line[line.find("cpu_id").unwrap()..]).collect();
    assert_eq!(
        payloads,
        [
            r#"cpu_id = 1 }, { tid = 1, comm = "longer" }, { }"#,
            r#"cpu_id = 1 }, { tid = -5, comm = "shell" }, { small = 65535, large = 0xFFFFFFFFFFFFFFFF, state = ( "here" : container = 2 ), path = "/etc/pass wd", pair = [ [0] = 7, [1] = -8 ], _bytes_length = 3, bytes = [ [0] = 1, [1] = 2, [2] = 255 ] }"#,
        ]
    );
}
