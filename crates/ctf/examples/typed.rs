//! Adds up one integer field of one kind of event record, without looking at anything else:
//! `cargo run --example typed -- FOLDER EVENT FIELD`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use ctf::TraceClass;
use ctf::packet::{EventReader, Outcome, Packets};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, event, field] = arguments.as_slice() else {
        return Err("usage: typed FOLDER EVENT FIELD".into());
    };
    let sum = sum(Path::new(folder), event, field)?;
    let report = format!("{} event records, {} in all\n", sum.events, sum.total);
    std::io::Write::write_all(&mut std::io::stdout(), report.as_bytes())?;
    Ok(())
}

/// What was added up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) events: u64,
    pub(crate) total: i128,
}

pub(crate) fn sum(folder: &Path, event: &str, field: &str) -> Result<Sum, Box<dyn Error>> {
    let trace = Arc::new(TraceClass::parse(&fs::read(folder.join("metadata"))?)?);

    // Asked once. A handle belongs to one class: with it, `get` goes straight to the field's place.
    let class = trace
        .event_record_classes()
        .iter()
        .find(|class| class.name() == event)
        .ok_or_else(|| format!("no event record class {event}"))?;
    let handle = class.field_handle(field).ok_or_else(|| format!("{event} has no {field}"))?;

    let mut sum = Sum::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() || entry.file_name() == "metadata" {
            continue;
        }
        let stream = fs::read(entry.path())?;
        for packet in Packets::new(&trace, &stream) {
            let packet = packet?;
            let Outcome::Ready(mut events) = EventReader::open(Arc::clone(&trace), packet.bytes)?
            else {
                continue;
            };
            while let Some(event) = events.next_event()? {
                // `None` for event records of other classes.
                if let Some(number) = event.get(handle).and_then(|value| value.as_i64()) {
                    sum.events += 1;
                    sum.total += i128::from(number);
                }
            }
        }
    }
    Ok(sum)
}
