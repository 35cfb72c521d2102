//! The text of Babeltrace 2 (`sink.text.pretty` of version 2.1), byte for byte.
//!
//! ```text
//! [16:44:07.736468450] (+0.000012345) host name: { cpu_id = 1 }, { vtid = 7 }, { a = 0x2A, b = "text" }
//! ```
//!
//! A line is: time, difference to the line before, environment, name, packet context, common context, specific
//! context, payload. Structures are `{ a = 1, b = 2 }`, arrays `[ [0] = 1, [1] = 2 ]`, variants `{ value }`, optional
//! fields `{ value }` or `<none>`.
//!
//! Two things differ on purpose. Times before the clock's origin are always shown in seconds: Babeltrace does so for
//! the first of them and shows the distance to the origin as a time of day afterwards. Several labels of one value
//! are in the order of the metadata: Babeltrace 2.1 has them in the order of a hash table.

use super::fields::{Fields, Hidden, Level, Style};
pub use super::options::{Color, HeaderFields, Names, TextOptions, TimeStyle};
use super::output::Output;
use super::stream::StreamText;
use super::time::TimeWriter;
pub use super::time::ZoneOffset;
use crate::class::{EventRecordClass, TraceClass};
use crate::event::EventRecord;
use crate::value::Scope;

/// Writes lines; keeps the time of the line before.
#[derive(Debug)]
pub struct TextWriter {
    options: TextOptions,
    style: Style,
    time: TimeWriter,
    levels: Vec<Level>,
}

impl TextWriter {
    /// A writer of lines in the given form and zone. `|_| 0` is UTC.
    #[must_use]
    pub fn new(options: TextOptions, zone: ZoneOffset) -> Self {
        let time = TimeWriter::new(&options, zone);
        Self { options, style: Style::new(&options), time, levels: Vec::new() }
    }

    /// Takes note of a packet that the stream comes to. `visit` shows the fields of the packet's context, which all
    /// lines of the packet show: without what the reader itself uses, and nothing at all when there is nothing else.
    pub fn enter_packet(&mut self, stream: &mut StreamText, visit: impl FnOnce(&mut Fields<'_>)) {
        let out = &mut stream.packet;
        out.clear();
        if self.options.names.contains(Names::SCOPE) {
            self.style.name(out, "stream.packet.context");
        }
        let empty = out.len() + 1;
        let names = self.options.names.contains(Names::CONTEXT);
        let (levels, style) = (&mut self.levels, &self.style);
        Fields { out, levels, style, names, hidden: Hidden::Structural }.structure(visit);
        if out.as_bytes().get(empty..) == Some(b" }") {
            out.clear();
        }
    }

    /// Appends the line of one event record of `stream`, with its line feed.
    pub fn write(&mut self, record: &EventRecord<'_>, stream: &StreamText, out: &mut Output) {
        let names = self.options.names.contains(Names::HEADER);
        let mut head = Head { names, fresh: true, tagged: false, style: &self.style };
        if let (Some(nanos), Some(cycles)) = (record.timestamp_ns(), record.clock_value()) {
            times(&mut self.time, &self.options, &self.style, (nanos, cycles), out);
            head.fresh = !names;
        }
        environment(self.options.header, record, &stream.folder, &mut head, out);
        head.name(record.class().name(), out);
        self.scopes(record, stream, out);
        out.push(b'\n');
    }

    fn scopes(&mut self, record: &EventRecord<'_>, stream: &StreamText, out: &mut Output) {
        const SHOWN: [(Scope, Names, &str); 3] = [
            (Scope::EventCommonContext, Names::CONTEXT, "stream.event.context"),
            (Scope::EventSpecificContext, Names::CONTEXT, "event.context"),
            (Scope::Payload, Names::PAYLOAD, "event.fields"),
        ];
        out.push_bytes(stream.packet.as_bytes());
        let mut separator: &[u8] = if stream.packet.is_empty() { b"" } else { b", " };
        for (scope, names, name) in SHOWN.into_iter().filter(|(scope, ..)| record.has(*scope)) {
            out.push_bytes(std::mem::replace(&mut separator, b", "));
            if self.options.names.contains(Names::SCOPE) {
                self.style.name(out, name);
            }
            let names = self.options.names.contains(names);
            let (levels, style) = (&mut self.levels, &self.style);
            Fields { out, levels, style, names, hidden: Hidden::Nothing }
                .structure(|fields| record.visit(scope, fields));
        }
    }
}

/// The time of a line in nanoseconds and cycles, and the difference to the line before.
fn times(
    writer: &mut TimeWriter,
    options: &TextOptions,
    style: &Style,
    (nanos, cycles): (i64, u64),
    out: &mut Output,
) {
    let named = options.names.contains(Names::HEADER);
    let delta = writer.step(nanos, cycles);
    if named {
        style.name(out, "timestamp");
    } else {
        out.push(b'[');
    }
    out.push_bytes(style.palette.time.as_bytes());
    writer.time(nanos, cycles, out);
    out.push_bytes(style.palette.reset.as_bytes());
    out.push_bytes(if named { b"" } else { b"] " });
    if options.delta {
        if named {
            out.fixed(b", ");
            style.name(out, "delta");
        } else {
            out.push(b'(');
        }
        writer.delta(delta, out);
        out.push_bytes(if named { b"" } else { b") " });
    }
}

/// What precedes the name: separators between the parts.
struct Head<'s> {
    names: bool,
    /// No separator is needed.
    fresh: bool,
    /// A part was written.
    tagged: bool,
    style: &'s Style,
}

impl Head<'_> {
    fn part(&mut self, label: &str, out: &mut Output) {
        if !self.fresh {
            out.fixed(b", ");
        }
        if self.names {
            self.style.name(out, label);
        } else if self.tagged {
            out.push(b':');
        }
        self.tagged = true;
    }

    /// The trace's name is a part without separators, but with names a comma follows it.
    fn trace(&self, trace: &TraceClass, folder: &str, out: &mut Output) {
        if !self.fresh {
            out.fixed(b", ");
        }
        if self.names {
            self.style.name(out, "trace");
        }
        let host = trace.env("hostname").and_then(|host| host.as_str()).unwrap_or("");
        let slash = if host.is_empty() || folder.is_empty() { "" } else { "/" };
        let after = if self.names { ", " } else { "" };
        [host, slash, folder, after].iter().for_each(|piece| out.push_bytes(piece.as_bytes()));
    }

    fn name(&self, name: &str, out: &mut Output) {
        if self.tagged && !self.names {
            out.push(b' ');
        }
        if !self.fresh {
            out.fixed(b", ");
        }
        if self.names {
            self.style.name(out, "name");
        }
        let palette = &self.style.palette;
        let (color, shown) = match name {
            "" => (palette.unknown, "<unknown>"),
            name => (palette.event_name, name),
        };
        let after = if self.names { ", " } else { ": " };
        [color, shown, palette.reset, after].iter().for_each(|p| out.push_bytes(p.as_bytes()));
    }
}

fn environment(
    shown: HeaderFields,
    record: &EventRecord<'_>,
    folder: &str,
    head: &mut Head<'_>,
    out: &mut Output,
) {
    let trace = record.trace_class();
    if shown.contains(HeaderFields::TRACE) {
        head.trace(trace, folder, out);
    }
    for (field, key, label) in [
        (HeaderFields::HOSTNAME, "hostname", "trace:hostname"),
        (HeaderFields::DOMAIN, "domain", "trace:domain"),
        (HeaderFields::PROCNAME, "procname", "trace:procname"),
    ] {
        let value = trace.env(key).and_then(|value| value.as_str());
        if let Some(value) = value.filter(|_| shown.contains(field)) {
            head.part(label, out);
            out.push_bytes(value.as_bytes());
        }
    }
    if shown.contains(HeaderFields::VPID) {
        process_id(trace, head, out);
    }
    class_properties(shown, record.class(), head, out);
}

fn process_id(trace: &TraceClass, head: &mut Head<'_>, out: &mut Output) {
    let id = trace.env("vpid").and_then(|value| value.as_integer());
    if let Some(id) = id.and_then(|id| i64::try_from(id).ok()) {
        head.part("trace:vpid", out);
        out.push(b'(');
        super::number::signed_decimal(out, id);
        out.push(b')');
    }
}

fn class_properties(
    shown: HeaderFields,
    class: &EventRecordClass,
    head: &mut Head<'_>,
    out: &mut Output,
) {
    /// LTTng's log levels, by number.
    const LOG_LEVELS: [&str; 15] = [
        "TRACE_EMERG",
        "TRACE_ALERT",
        "TRACE_CRIT",
        "TRACE_ERR",
        "TRACE_WARNING",
        "TRACE_NOTICE",
        "TRACE_INFO",
        "TRACE_DEBUG_SYSTEM",
        "TRACE_DEBUG_PROGRAM",
        "TRACE_DEBUG_PROCESS",
        "TRACE_DEBUG_MODULE",
        "TRACE_DEBUG_UNIT",
        "TRACE_DEBUG_FUNCTION",
        "TRACE_DEBUG_LINE",
        "TRACE_DEBUG",
    ];
    let known = class.log_level().and_then(|level| {
        let name = LOG_LEVELS.get(usize::try_from(level).ok()?)?;
        Some((level, name))
    });
    if let Some((level, name)) = known.filter(|_| shown.contains(HeaderFields::LOG_LEVEL)) {
        head.part("loglevel", out);
        out.push_bytes(name.as_bytes());
        out.fixed(b" (");
        super::number::signed_decimal(out, level);
        out.push(b')');
    }
    if let Some(uri) = class.emf_uri().filter(|_| shown.contains(HeaderFields::EMF)) {
        head.part("model.emf.uri", out);
        out.push_bytes(uri.as_bytes());
    }
}
