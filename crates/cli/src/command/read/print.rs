//! Event records on their way out, through one buffer.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ctf::format::json::JsonWriter;
use ctf::format::text::TextWriter;
use ctf::format::{Output, StreamText};
use ctf::{Field, Shape, Value, Visitor};
use tracedir::{Event, LogicalTrace, Recording};

/// Output is written in pieces of about this many bytes.
const PIECE: usize = 64 << 10;

/// How event records become bytes.
pub(crate) enum Writer {
    Text(Box<TextWriter>),
    Json(JsonWriter),
    /// Every field is read and none is printed.
    Unseen(Unseen),
    /// They do not.
    Nothing,
}

/// Looks at every field and keeps none.
#[derive(Default)]
pub(crate) struct Unseen;

impl Unseen {
    /// For all that the compiler knows, someone wants it.
    #[inline(always)]
    fn take(number: u64) {
        black_box(number);
    }
}

impl<'a> Visitor<'a> for Unseen {
    #[inline]
    fn scalar(&mut self, _: Field<'a>, value: Value<'a>) {
        let ends = |bytes: &[u8]| u64::from(*bytes.first().unwrap_or(&0));
        Self::take(match value {
            Value::Unsigned(number) => number,
            Value::Signed(number) => number.cast_unsigned(),
            Value::Float(number) => number.to_bits(),
            Value::Str(bytes) | Value::Blob(bytes) => ends(bytes) ^ bytes.len() as u64,
            other => other.as_u64().or_else(|| other.as_bytes().map(ends)).unwrap_or(0),
        });
    }

    #[inline]
    fn enter(&mut self, _: Field<'a>, _: Shape) {
        Self::take(1);
    }

    #[inline]
    fn leave(&mut self, _: Field<'a>, _: Shape) {
        Self::take(2);
    }
}

/// Where results go.
pub(crate) struct Sink {
    target: Box<dyn Write>,
}

impl Sink {
    /// Standard output, or a file that is made or replaced; `-` is standard output.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let target: Box<dyn Write> = match path.filter(|path| *path != Path::new("-")) {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?,
            ),
        };
        Ok(Self { target })
    }

    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        self.target.write_all(text.as_bytes())
    }
}

/// Prints event records.
pub(crate) struct Printer {
    writer: Writer,
    sink: Sink,
    out: Output,
    paths: Vec<PathBuf>,
    /// Of each stream: which packet it is in, and what its lines have in common.
    streams: Vec<Option<(u64, StreamText)>>,
}

impl Printer {
    pub(crate) fn new(writer: Writer, sink: Sink, paths: &[PathBuf]) -> Self {
        let out = Output::with_capacity(2 * PIECE);
        Self { writer, sink, out, paths: paths.to_owned(), streams: Vec::new() }
    }

    /// Takes the names of streams' traces from a recording that is known as a whole.
    pub(crate) fn name_streams(&mut self, recording: &Recording) {
        let folders = (0..recording.streams().len()).map(|index| {
            // A trace of several folders is not named by any of them, nor by babeltrace2.
            match recording.trace_of(index).map(LogicalTrace::folders) {
                Some([only]) => below(only, &self.paths),
                _ => String::new(),
            }
        });
        self.streams = folders.map(|folder| Some((u64::MAX, StreamText::new(&folder)))).collect();
    }

    /// Names the trace of a stream by a folder; before anything of the stream is printed.
    pub(crate) fn name_stream(&mut self, index: usize, folder: &str) {
        if self.streams.len() <= index {
            self.streams.resize(index + 1, None);
        }
        if let Some(stream) = self.streams.get_mut(index) {
            *stream = Some((u64::MAX, StreamText::new(folder)));
        }
    }

    /// Streams that appear while a recording is followed are named by the folder of their first file.
    #[cold]
    fn meet(&mut self, event: &Event<'_>) {
        let folder = event.stream.files().next().and_then(|file| file.path.parent());
        let folder = folder.map_or_else(String::new, |folder| below(folder, &self.paths));
        self.name_stream(event.stream_index, &folder);
    }

    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match &mut self.writer {
            Writer::Nothing => Ok(()),
            Writer::Unseen(unseen) => {
                event.record.visit_all(unseen);
                Ok(())
            }
            Writer::Text(_) | Writer::Json(_) => self.line(event),
        }
    }

    fn line(&mut self, event: &Event<'_>) -> io::Result<()> {
        if !matches!(self.streams.get(event.stream_index), Some(Some(_))) {
            self.meet(event);
        }
        let Some(Some((packet, stream))) = self.streams.get_mut(event.stream_index) else {
            return Ok(());
        };
        let entered = std::mem::replace(packet, event.packet_index) != event.packet_index;
        match &mut self.writer {
            Writer::Text(writer) => {
                if entered {
                    writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
                }
                writer.write(&event.record, stream, &mut self.out);
            }
            Writer::Json(writer) => {
                if entered {
                    writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
                }
                writer.write(&event.record, stream, &mut self.out);
            }
            Writer::Unseen(_) | Writer::Nothing => {}
        }
        if self.out.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush_to(&mut self.sink.target)?;
        self.sink.target.flush()
    }

    /// Writes what is buffered, and gives back where to.
    pub(crate) fn finish(mut self) -> io::Result<Sink> {
        self.flush()?;
        Ok(self.sink)
    }
}

/// `folder` relative to the innermost of `paths` that holds it.
fn below(folder: &Path, paths: &[PathBuf]) -> String {
    let relative = paths.iter().filter_map(|path| folder.strip_prefix(path).ok());
    let shortest = relative.min_by_key(|rest| rest.components().count());
    shortest.unwrap_or(folder).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_from_the_innermost_path() {
        let paths = ["/a", "/a/b", "c/"].map(PathBuf::from);
        for (folder, expected) in [("/a/b/d", "d"), ("/a/e/f", "e/f"), ("/a", ""), ("c/d", "d")] {
            assert_eq!(below(Path::new(folder), &paths), expected, "{folder}");
        }
        assert_eq!(below(Path::new("/elsewhere"), &paths), "/elsewhere");
    }
}
