//! Traces made for a question.

use std::fs;
use std::path::Path;

use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, OpenPacket, Schema, TraceClass,
};
use ctf::{ClockClass, ClockOrigin, EnvValue, Uuid};

/// The epoch's nanosecond at which the clock of [`two_classes`] begins.
pub(crate) const BEGIN: i64 = 1_795_132_800_000_000_000;

/// Two streams, CPU 0 and 1, of `count` event records each, one a microsecond: `even { size, path }` and `odd { ret }` by
/// turns, in packets of 4 KiB.
pub(crate) fn two_classes(folder: &Path, host: &str, count: u32) {
    let even = vec![
        Field::new("size", FieldClass::Int(IntClass::U32)),
        Field::new("path", FieldClass::STRING),
    ];
    let odd = vec![Field::new("ret", FieldClass::Int(IntClass::I64))];
    let classes = vec![EventClass::new(0, "even", even), EventClass::new(1, "odd", odd)];
    let clock = ClockClass {
        uuid: Some(Uuid(*b"clock of a query")),
        offset: BEGIN.cast_unsigned(),
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    };
    let env = vec![("hostname".to_owned(), EnvValue::Text(host.to_owned()))];
    let context = vec![Field::new("vtid", FieldClass::Int(IntClass::I32))];
    let mut uuid = *b"trace of a query";
    uuid[15] = host.len().try_into().expect("short");
    let schema = Schema::new(TraceClass::per_cpu(Uuid(uuid), clock, env, context, classes))
        .expect("a right schema");
    fs::create_dir_all(folder).expect("writable");
    fs::write(folder.join("metadata"), schema.metadata()).expect("writable");
    for cpu in [0, 1] {
        fs::write(folder.join(format!("stream_{cpu}")), stream(&schema, cpu, count))
            .expect("writable");
    }
}

fn stream(schema: &Schema, cpu: u32, count: u32) -> Vec<u8> {
    let mut packet = schema.open_cpu(cpu, 0, 4096).expect("fits");
    let mut bytes = Vec::new();
    for number in 0..count {
        let time = u64::from(number) * 1_000;
        let append = |packet: &mut OpenPacket<'_>| {
            packet.append((number % 2).into(), time, |record| {
                record.signed(i64::from(cpu) + 100)?;
                if number % 2 == 0 {
                    record.unsigned(number.into())?;
                    record.string(format!("/p{}", number % 7).as_bytes())
                } else {
                    record.signed(-i64::from(number))
                }
            })
        };
        if append(&mut packet).expect("fits") == Appended::Full {
            bytes.extend(packet.roll(time, 0).bytes);
            assert_ne!(append(&mut packet).expect("fits"), Appended::Full);
        }
    }
    bytes.extend(packet.seal(u64::from(count) * 1_000, 0).bytes);
    bytes
}
