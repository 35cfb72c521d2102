//! Prints all event records of a trace folder, merged in time, as Babeltrace 2 prints them:
//! `cargo run --example cat -- FOLDER`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use ctf::format::text::{TextOptions, TextWriter};
use ctf::format::{Output, StreamText};
use ctf::packet::{EventReader, Outcome, Packets};
use ctf::{Scope, TraceClass};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("usage: cat FOLDER")?;
    cat(Path::new(&folder), &mut io::stdout().lock())
}

/// Writes the lines of all streams beside the folder's `metadata`.
pub(crate) fn cat(folder: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let trace = Arc::new(TraceClass::parse(&fs::read(folder.join("metadata"))?)?);
    let files = stream_files(folder)?;
    let mut streams: Vec<_> = files.iter().map(|bytes| Stream::new(&trace, bytes)).collect();

    // The next event record of each stream, the earliest on top.
    let mut next = BinaryHeap::new();
    for (place, stream) in streams.iter_mut().enumerate() {
        next.extend(stream.advance()?.map(|time| Reverse((time, place))));
    }
    let mut writer = TextWriter::new(TextOptions::default(), Box::new(|_utc| 0));
    let mut lines = Output::new();
    while let Some(Reverse((_, place))) = next.pop() {
        let Some(stream) = streams.get_mut(place) else { continue };
        stream.print(&mut writer, &mut lines);
        lines.flush_to(out)?;
        next.extend(stream.advance()?.map(|time| Reverse((time, place))));
    }
    Ok(())
}

fn stream_files(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "metadata" {
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths.into_iter().map(fs::read).collect()
}

/// One stream, at one of its event records.
struct Stream<'a> {
    trace: &'a Arc<TraceClass>,
    packets: Packets<'a, 'a>,
    events: Option<EventReader<&'a [u8]>>,
    /// What its lines have in common, once the packet's context is in it.
    text: StreamText,
    entered: bool,
}

impl<'a> Stream<'a> {
    fn new(trace: &'a Arc<TraceClass>, bytes: &'a [u8]) -> Self {
        let packets = Packets::new(trace, bytes);
        Self { trace, packets, events: None, text: StreamText::new(""), entered: false }
    }

    /// Moves to the next event record, over packets without any; gives its time in nanoseconds.
    fn advance(&mut self) -> Result<Option<i64>, ctf::Error> {
        loop {
            if let Some(events) = &mut self.events
                && let Some(event) = events.next_event()?
            {
                return Ok(Some(event.timestamp_ns().unwrap_or(0)));
            }
            let Some(packet) = self.packets.next() else { return Ok(None) };
            // A file's packet is all there or cut, and a cut one gives what it has.
            self.events = match EventReader::open(Arc::clone(self.trace), packet?.bytes)? {
                Outcome::Ready(events) => Some(events),
                Outcome::NeedMore { .. } => None,
            };
            self.entered = false;
        }
    }

    fn print(&mut self, writer: &mut TextWriter, lines: &mut Output) {
        let Some(events) = &self.events else { return };
        if !std::mem::replace(&mut self.entered, true) {
            writer.enter_packet(&mut self.text, |fields| {
                events.visit_packet(Scope::PacketContext, fields);
            });
        }
        if let Some(event) = events.event() {
            writer.write(&event, &self.text, lines);
        }
    }
}
