//! Reading whole trace folders in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::packet::{EventReader, Outcome, Packets};
use ctf::{Error, EventRecord, Field, Scope, Shape, TraceClass, Value, Visitor};

/// All folders below `root` that hold a metadata file.
pub(crate) fn trace_folders(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_owned()];
    while let Some(folder) = queue.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                queue.push(path);
            } else if path.file_name().is_some_and(|name| name == "metadata") {
                found.push(folder.clone());
            }
        }
    }
    found.sort();
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> =
        fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path()).collect();
    all.sort();
    all
}

/// The data stream files of a trace folder.
pub(crate) fn stream_files(folder: &Path) -> Vec<PathBuf> {
    let is_stream = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        path.is_file() && name != "metadata" && !name.starts_with('.')
    };
    entries(folder).into_iter().filter(is_stream).collect()
}

/// Touches every field that is shown, and remembers enough of each to notice a change.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    pub(crate) fields: u64,
    pub(crate) bytes: u64,
    depth: usize,
}

impl<'a> Visitor<'a> for Tally {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        self.fields += 1;
        self.bytes += match value {
            Value::Str(text) => u64::try_from(text.len()).expect("length"),
            Value::Enum(value) => u64::try_from(value.labels().count()).expect("count"),
            _ => u64::from(field.bits() / 8),
        };
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {
        self.depth += 1;
    }

    fn leave(&mut self, _: Field<'a>, _: Shape) {
        self.depth -= 1;
    }
}

pub(crate) const EVENT_SCOPES: [Scope; 4] =
    [Scope::EventHeader, Scope::EventCommonContext, Scope::EventSpecificContext, Scope::Payload];

/// Decodes every field of every event record of one stream.
pub(crate) fn read_stream(
    trace: &Arc<TraceClass>,
    bytes: &[u8],
    tally: &mut Tally,
    mut each: impl FnMut(&EventRecord<'_>),
) -> Result<(), Error> {
    for packet in Packets::new(trace, bytes) {
        let Outcome::Ready(mut events) = EventReader::open(Arc::clone(trace), packet?.bytes)?
        else {
            panic!("the packet's header was read before");
        };
        events.visit_packet(Scope::PacketHeader, tally);
        events.visit_packet(Scope::PacketContext, tally);
        while let Some(event) = events.next_event()? {
            tally.events += 1;
            for scope in EVENT_SCOPES {
                event.visit(scope, tally);
            }
            assert_eq!(tally.depth, 0);
            each(&event);
        }
    }
    Ok(())
}

pub(crate) fn read_trace(folder: &Path) -> Result<Arc<TraceClass>, Error> {
    TraceClass::parse(&fs::read(folder.join("metadata")).expect("metadata")).map(Arc::new)
}
