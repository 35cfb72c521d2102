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

use super::cache::Programs;
use super::fields::{Fields, Hidden, Level, Style};
use super::number::signed_decimal;
pub use super::options::{Color, HeaderFields, Names, TextOptions, TimeStyle};
use super::output::{Output, Piece};
use super::program::{self, Builder, Compound, Form, Load, Op, What};
use super::quote::{self, escaped};
use super::stream::StreamText;
use super::time::TimeWriter;
pub use super::time::ZoneOffset;
use crate::class::{Base, EventRecordClass, TraceClass};
use crate::event::EventRecord;
use crate::layout::Integer;
use crate::log_level;
use crate::value::{Field, Scope, Value};

/// Writes lines; keeps the time of the line before.
#[derive(Debug)]
pub struct TextWriter {
    options: TextOptions,
    form: TextForm,
    time: TimeWriter,
    programs: Programs,
    /// The context of a packet, while it is written.
    scratch: Output,
}

impl TextWriter {
    /// A writer of lines in the given form and zone. `|_| 0` is UTC.
    #[must_use]
    pub fn new(options: TextOptions, zone: ZoneOffset) -> Self {
        Self {
            options,
            form: TextForm::new(&options),
            time: TimeWriter::new(&options, zone),
            programs: Programs::default(),
            scratch: Output::new(),
        }
    }

    /// Takes note of a packet that the stream comes to. `visit` shows the fields of the packet's context, which all
    /// lines of the packet show: without what the reader itself uses, and nothing at all when there is nothing else.
    pub fn enter_packet(&mut self, stream: &mut StreamText, visit: impl FnOnce(&mut Fields<'_>)) {
        let out = &mut self.scratch;
        out.clear();
        self.form.scope_name(out, "stream.packet.context");
        let empty = out.len() + 1;
        self.form.fields(out, Scope::PacketContext).structure(visit);
        if out.as_bytes().get(empty..) == Some(b" }") {
            out.clear();
        }
        stream.packet = Piece::new(out.as_bytes());
    }

    /// Appends the line of one event record of `stream`, with its line feed.
    pub fn write(&mut self, record: &EventRecord<'_>, stream: &StreamText, out: &mut Output) {
        if let (Some(nanos), Some(cycles)) = (record.timestamp_ns(), record.clock_value()) {
            self.time.write(nanos, cycles, out);
        }
        let Self { options, form, programs, .. } = self;
        let ops = programs.get(record, stream, || compile(options, form, record));
        program::run(ops, form, record, stream, out);
    }
}

/// All of a line behind the time.
fn compile(options: &TextOptions, form: &TextForm, record: &EventRecord<'_>) -> Box<[Op]> {
    const SCOPES: [(Scope, &str); 3] = [
        (Scope::EventCommonContext, "stream.event.context"),
        (Scope::EventSpecificContext, "event.context"),
        (Scope::Payload, "event.fields"),
    ];
    let names = options.names.contains(Names::HEADER);
    let fresh = !names || record.timestamp_ns().is_none();
    let mut head = Head { names, fresh, tagged: false, style: &form.style };
    let mut builder = Builder::default();
    head.environment(options.header, record, &mut builder);
    head.name(record.class().name(), &mut builder.literal);
    let shown: Vec<_> = SCOPES.iter().filter(|(scope, _)| record.has(*scope)).collect();
    builder.emit_bare(What::Packet { more: !shown.is_empty() });
    for (at, (scope, name)) in shown.into_iter().enumerate() {
        builder.literal.push_bytes(if at > 0 { b", " } else { b"" });
        form.scope_name(&mut builder.literal, name);
        if let Some(part) = record.part(*scope) {
            builder.scope(form, *scope, part.layout);
        }
    }
    builder.literal.push(b'\n');
    builder.finish()
}

/// What stands between values, and how values look.
#[derive(Debug)]
struct TextForm {
    style: Style,
    names: Names,
    levels: Vec<Level>,
}

impl TextForm {
    const fn new(options: &TextOptions) -> Self {
        Self { style: Style::new(options), names: options.names, levels: Vec::new() }
    }

    fn scope_name(&self, out: &mut Output, name: &str) {
        if self.names.contains(Names::SCOPE) {
            self.style.name(out, name);
        }
    }

    fn names_in(&self, scope: Scope) -> bool {
        let names = if scope == Scope::Payload { Names::PAYLOAD } else { Names::CONTEXT };
        self.names.contains(names)
    }

    fn fields<'o>(&'o mut self, out: &'o mut Output, scope: Scope) -> Fields<'o> {
        let names = self.names_in(scope);
        let hidden = match scope {
            Scope::PacketContext => Hidden::Structural,
            _ => Hidden::Nothing,
        };
        Fields { out, levels: &mut self.levels, style: &self.style, names, hidden }
    }
}

impl Form for TextForm {
    type Fields<'o> = Fields<'o>;
    type Escapes = quote::C;

    fn label(&self, out: &mut Output, scope: Scope, number: u64, name: Option<&str>) {
        self.style.label(out, self.names_in(scope), number, name);
    }

    fn open(&self, out: &mut Output, compound: Compound) {
        out.push(if compound == Compound::Array { b'[' } else { b'{' });
    }

    fn close(&self, out: &mut Output, compound: Compound) {
        out.push_bytes(if compound == Compound::Array { b" ]" } else { b" }" });
    }

    fn number(&self, out: &mut Output, int: &Integer, load: Load) -> Option<What> {
        let what = match (int.base, int.signed) {
            (Base::Decimal, true) => What::Signed(load),
            (Base::Decimal, false) => What::Unsigned(load),
            (Base::Hexadecimal, false) => What::Hexadecimal(load),
            _ => return None,
        };
        out.push_bytes(self.style.palette.value.as_bytes());
        out.push_bytes(if int.base == Base::Hexadecimal { b"0x" } else { b"" });
        Some(what)
    }

    fn float(&self, out: &mut Output, load: Load) -> Option<What> {
        out.push_bytes(self.style.palette.value.as_bytes());
        Some(What::General(load))
    }

    fn after_number(&self, out: &mut Output) {
        out.push_bytes(self.style.palette.reset.as_bytes());
    }

    fn before_text(&self, out: &mut Output) {
        out.push_bytes(self.style.palette.value.as_bytes());
        out.push(b'"');
    }

    fn after_text(&self, out: &mut Output) {
        out.push(b'"');
        out.push_bytes(self.style.palette.reset.as_bytes());
    }

    #[inline]
    fn text(&self, out: &mut Output, text: &[u8]) {
        escaped::<quote::C>(out, text);
    }

    fn scalar(&self, out: &mut Output, field: &Field<'_>, value: Value<'_>) {
        self.style.scalar(out, field, value);
    }

    fn value<'o>(&'o mut self, out: &'o mut Output, scope: Scope) -> Fields<'o> {
        self.fields(out, scope).unlabelled()
    }

    fn structure(&mut self, out: &mut Output, scope: Scope, visit: impl FnOnce(&mut Fields<'_>)) {
        self.fields(out, scope).structure(visit);
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
    fn trace(&self, trace: &TraceClass, builder: &mut Builder) {
        let out = &mut builder.literal;
        if !self.fresh {
            out.fixed(b", ");
        }
        if self.names {
            self.style.name(out, "trace");
        }
        let host = trace.env("hostname").and_then(|host| host.as_str()).unwrap_or("");
        out.push_bytes(host.as_bytes());
        builder.emit_bare(What::Folder { slash: !host.is_empty() });
        builder.literal.push_bytes(if self.names { b", " } else { b"" });
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

impl Head<'_> {
    fn environment(
        &mut self,
        shown: HeaderFields,
        record: &EventRecord<'_>,
        builder: &mut Builder,
    ) {
        let trace = record.trace_class();
        if shown.contains(HeaderFields::TRACE) {
            self.trace(trace, builder);
        }
        let out = &mut builder.literal;
        for (field, key, label) in [
            (HeaderFields::HOSTNAME, "hostname", "trace:hostname"),
            (HeaderFields::DOMAIN, "domain", "trace:domain"),
            (HeaderFields::PROCNAME, "procname", "trace:procname"),
        ] {
            let value = trace.env(key).and_then(|value| value.as_str());
            if let Some(value) = value.filter(|_| shown.contains(field)) {
                self.part(label, out);
                out.push_bytes(value.as_bytes());
            }
        }
        if shown.contains(HeaderFields::VPID) {
            self.process_id(trace, out);
        }
        self.class_properties(shown, record.class(), out);
    }

    fn process_id(&mut self, trace: &TraceClass, out: &mut Output) {
        let id = trace.env("vpid").and_then(|value| value.as_integer());
        if let Some(id) = id.and_then(|id| i64::try_from(id).ok()) {
            self.part("trace:vpid", out);
            out.push(b'(');
            signed_decimal(out, id);
            out.push(b')');
        }
    }

    fn class_properties(
        &mut self,
        shown: HeaderFields,
        class: &EventRecordClass,
        out: &mut Output,
    ) {
        let level = class.log_level().filter(|_| shown.contains(HeaderFields::LOG_LEVEL));
        if let Some((level, name)) = level.and_then(|level| Some((level, log_level::name(level)?)))
        {
            self.part("loglevel", out);
            out.push_bytes(name.as_bytes());
            out.fixed(b" (");
            signed_decimal(out, level);
            out.push(b')');
        }
        if let Some(uri) = class.emf_uri().filter(|_| shown.contains(HeaderFields::EMF)) {
            self.part("model.emf.uri", out);
            out.push_bytes(uri.as_bytes());
        }
    }
}
