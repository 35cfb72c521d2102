//! Writes a small trace that every CTF reader opens: `cargo run --example write -- FOLDER`.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, OpenPacket, Schema, TraceClass,
};
use ctf::{ClockClass, ClockOrigin, EnvValue, Uuid};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("usage: write FOLDER")?;
    write(Path::new(&folder), 1_000)
}

/// Writes `count` event records, one each microsecond, into packets of 4 KiB at the most.
pub(crate) fn write(folder: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    let request = EventClass::new(
        0,
        "request",
        vec![
            Field::new("size", FieldClass::Int(IntClass::U32)),
            Field::new("path", FieldClass::STRING),
        ],
    );
    let clock = ClockClass {
        uuid: Some(Uuid(*b"an example clock")),
        offset: 1_795_132_800_000_000_000,
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    };
    let env = vec![("hostname".to_owned(), EnvValue::Text("example".to_owned()))];
    let context = vec![Field::new("vtid", FieldClass::Int(IntClass::I32))];
    let uuid = Uuid(*b"an example trace");
    let schema = Schema::new(TraceClass::per_cpu(uuid, clock, env, context, vec![request]))?;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("metadata"), schema.metadata())?;

    let mut packet = schema.open_cpu(0, 0, 4096)?;
    let mut bytes = Vec::new();
    let mut time = 0;
    for number in 0..count {
        time = u64::from(number) * 1_000;
        let append = |packet: &mut OpenPacket<'_>| {
            packet.append(0, time, |record| {
                record.signed(42)?;
                record.unsigned(number.into())?;
                record.string(b"/index.html")
            })
        };
        if append(&mut packet)? == Appended::Full {
            bytes.extend(packet.roll(time, 0).bytes);
            // An empty packet has room for it, or `append` would have been an error.
            let _appended = append(&mut packet)?;
        }
    }
    bytes.extend(packet.seal(time, 0).bytes);
    fs::write(folder.join("stream_0"), bytes)?;
    Ok(())
}
