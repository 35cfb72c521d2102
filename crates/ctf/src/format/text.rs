//! The default text of Babeltrace 2 (`sink.text.pretty` of version 2.1), byte for byte.
//!
//! ```text
//! [16:44:07.736468450] (+0.000012345) host name: { cpu_id = 1 }, { vtid = 7 }, { a = 0x2A, b = "text" }
//! ```
//!
//! A line is: time, difference to the line before, environment, name, packet context, common context, specific
//! context, payload. Structures are `{ a = 1, b = 2 }`, arrays `[ [0] = 1, [1] = 2 ]`, variants `{ value }`.

use super::number::{decimal, digits, general, padded, signed_decimal};
use crate::class::{Base, EventRecordClass, TraceClass};
use crate::event::EventRecord;
use crate::value::{EnumValue, Field, Scope, Shape, Value, Visitor};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds east of UTC at a second since the epoch: the zone in which times of day are shown.
pub type ZoneOffset = Box<dyn Fn(i64) -> i32 + Send>;

/// How times are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeStyle {
    /// `16:44:07.736468450`, in the zone of the writer.
    #[default]
    TimeOfDay,
    /// `1795193047.736468450`: seconds since the clock's origin (`--clock-seconds`).
    Seconds,
}

/// Which names are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Those of fields.
    #[default]
    Fields,
    /// Those of fields, of scopes and of what precedes them (`--names=all`).
    All,
}

/// Which parts stand before an event record's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderFields {
    /// Host name, process name and process id of the environment, where there are any.
    #[default]
    Usual,
    /// Also the tracing domain, the log level and the EMF URI
    /// (`--fields=trace:hostname,trace:domain,trace:procname,trace:vpid,loglevel,emf`).
    Extended,
}

/// What a line looks like; the default is Babeltrace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// How times are shown.
    pub time: TimeStyle,
    /// Whether the difference to the line before is shown.
    pub delta: bool,
    /// Which names are shown.
    pub names: Names,
    /// Which parts stand before the name.
    pub header: HeaderFields,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            time: TimeStyle::TimeOfDay,
            delta: true,
            names: Names::Fields,
            header: HeaderFields::Usual,
        }
    }
}

/// Writes lines; keeps the time of the line before.
pub struct TextWriter {
    options: TextOptions,
    zone: ZoneOffset,
    /// Time of the line before, nanoseconds.
    before: Option<i64>,
    /// The second whose time of day is kept, and `hh:mm:ss`.
    day: Option<(i64, [u8; 8])>,
    levels: Vec<Level>,
}

impl std::fmt::Debug for TextWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextWriter").field("options", &self.options).finish_non_exhaustive()
    }
}

impl TextWriter {
    /// A writer of lines in the given form and zone. `|_| 0` is UTC.
    #[must_use]
    pub fn new(options: TextOptions, zone: ZoneOffset) -> Self {
        Self { options, zone, before: None, day: None, levels: Vec::new() }
    }

    /// Appends the line of one event record, with its line feed. `packet_context` is the context of its packet, as
    /// [`Self::packet_context`] wrote it.
    pub fn write(&mut self, record: &EventRecord<'_>, packet_context: &[u8], out: &mut Vec<u8>) {
        let mut head = Head { names: self.options.names, fresh: true, tagged: false };
        if let Some(at) = record.timestamp_ns() {
            self.time(at, out);
            head.fresh = self.options.names == Names::Fields;
        }
        self.environment(record, &mut head, out);
        head.name(record.class().name(), out);
        self.scopes(record, packet_context, out);
        out.push(b'\n');
    }

    /// Appends a packet's context as all lines of the packet show it: without what the reader itself uses, and
    /// nothing at all when there is nothing else. `visit` shows the context's fields.
    pub fn packet_context(&mut self, visit: impl FnOnce(&mut Fields<'_>), out: &mut Vec<u8>) {
        let begin = out.len();
        let name = match self.options.names {
            Names::Fields => "",
            Names::All => "stream.packet.context = ",
        };
        out.extend_from_slice(name.as_bytes());
        let empty = out.len() + 1;
        self.structure(Hidden::Structural, visit, out);
        if out.get(empty..) == Some(b" }") {
            out.truncate(begin);
        }
    }

    fn time(&mut self, at: i64, out: &mut Vec<u8>) {
        let delta = self.before.replace(at).map(|before| at.wrapping_sub(before).cast_unsigned());
        let named = self.options.names == Names::All;
        out.extend_from_slice(if named { b"timestamp = " } else { b"[" });
        match self.options.time {
            TimeStyle::TimeOfDay if at >= 0 => self.time_of_day(at, out),
            _ => seconds(at, out),
        }
        out.extend_from_slice(if named { b"" } else { b"] " });
        if self.options.delta {
            out.extend_from_slice(if named { b", delta = +" } else { b"(+" });
            match delta {
                Some(delta) => unsigned_seconds(delta, out),
                None => out.extend_from_slice(b"?.?????????"),
            }
            out.extend_from_slice(if named { b"" } else { b") " });
        }
    }

    /// `hh:mm:ss.nnnnnnnnn` of a time that is not negative.
    fn time_of_day(&mut self, at: i64, out: &mut Vec<u8>) {
        let second = at / NANOS_PER_SECOND;
        let clock = match self.day {
            Some((kept, clock)) if kept == second => clock,
            _ => self.clock_of(second),
        };
        self.day = Some((second, clock));
        out.extend_from_slice(&clock);
        out.push(b'.');
        padded(out, (at % NANOS_PER_SECOND).unsigned_abs(), 9);
    }

    fn clock_of(&self, second: i64) -> [u8; 8] {
        let local = second + i64::from((self.zone)(second));
        let of_day = local.rem_euclid(SECONDS_PER_DAY);
        let two = |number: i64| {
            let digit = |value: i64| b'0' + u8::try_from(value % 10).unwrap_or(0);
            [digit(number / 10), digit(number)]
        };
        let ([h1, h0], [m1, m0], [s1, s0]) =
            (two(of_day / 3_600), two(of_day / 60 % 60), two(of_day % 60));
        [h1, h0, b':', m1, m0, b':', s1, s0]
    }

    fn environment(&self, record: &EventRecord<'_>, head: &mut Head, out: &mut Vec<u8>) {
        let trace = record.trace_class();
        let extended = self.options.header == HeaderFields::Extended;
        let mut text = |key: &str, label: &str, out: &mut Vec<u8>| {
            if let Some(value) = trace.env(key).and_then(|value| value.as_str()) {
                head.part(label, out);
                out.extend_from_slice(value.as_bytes());
            }
        };
        text("hostname", "trace:hostname", out);
        if extended {
            text("domain", "trace:domain", out);
        }
        text("procname", "trace:procname", out);
        process_id(trace, head, out);
        if extended {
            class_properties(record.class(), head, out);
        }
    }

    fn scopes(&mut self, record: &EventRecord<'_>, packet_context: &[u8], out: &mut Vec<u8>) {
        const SHOWN: [(Scope, &str); 3] = [
            (Scope::EventCommonContext, "stream.event.context = "),
            (Scope::EventSpecificContext, "event.context = "),
            (Scope::Payload, "event.fields = "),
        ];
        out.extend_from_slice(packet_context);
        let mut separator: &[u8] = if packet_context.is_empty() { b"" } else { b", " };
        for (scope, name) in SHOWN.into_iter().filter(|(scope, _)| record.has(*scope)) {
            out.extend_from_slice(std::mem::replace(&mut separator, b", "));
            if self.options.names == Names::All {
                out.extend_from_slice(name.as_bytes());
            }
            self.structure(Hidden::Nothing, |fields| record.visit(scope, fields), out);
        }
    }

    /// A scope's root structure, whose members `visit` shows.
    fn structure(
        &mut self,
        hidden: Hidden,
        visit: impl FnOnce(&mut Fields<'_>),
        out: &mut Vec<u8>,
    ) {
        self.levels.clear();
        self.levels.push(Level { shape: Shape::Structure, count: 0 });
        out.push(b'{');
        visit(&mut Fields { out, levels: &mut self.levels, hidden });
        out.extend_from_slice(b" }");
    }
}

/// What precedes the name: separators between the parts.
struct Head {
    names: Names,
    /// No separator is needed.
    fresh: bool,
    /// A part was written.
    tagged: bool,
}

impl Head {
    fn part(&mut self, label: &str, out: &mut Vec<u8>) {
        if !self.fresh {
            out.extend_from_slice(b", ");
        }
        if self.names == Names::All {
            out.extend_from_slice(label.as_bytes());
            out.extend_from_slice(b" = ");
        } else if self.tagged {
            out.push(b':');
        }
        self.tagged = true;
    }

    fn name(&self, name: &str, out: &mut Vec<u8>) {
        if self.tagged && self.names == Names::Fields {
            out.push(b' ');
        }
        if !self.fresh {
            out.extend_from_slice(b", ");
        }
        let shown = if name.is_empty() { "<unknown>" } else { name };
        let (before, after) = match self.names {
            Names::Fields => ("", ": "),
            Names::All => ("name = ", ", "),
        };
        for text in [before, shown, after] {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn process_id(trace: &TraceClass, head: &mut Head, out: &mut Vec<u8>) {
    let id = trace.env("vpid").and_then(|value| value.as_integer());
    if let Some(id) = id.and_then(|id| i64::try_from(id).ok()) {
        head.part("trace:vpid", out);
        out.push(b'(');
        signed_decimal(out, id);
        out.push(b')');
    }
}

fn class_properties(class: &EventRecordClass, head: &mut Head, out: &mut Vec<u8>) {
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
    if let Some((level, name)) = known {
        head.part("loglevel", out);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b" (");
        signed_decimal(out, level);
        out.push(b')');
    }
    if let Some(uri) = class.emf_uri() {
        head.part("model.emf.uri", out);
        out.extend_from_slice(uri.as_bytes());
    }
}

fn seconds(at: i64, out: &mut Vec<u8>) {
    if at < 0 {
        out.push(b'-');
    }
    unsigned_seconds(at.unsigned_abs(), out);
}

fn unsigned_seconds(nanos: u64, out: &mut Vec<u8>) {
    let second = NANOS_PER_SECOND.unsigned_abs();
    decimal(out, nanos / second);
    out.push(b'.');
    padded(out, nanos % second, 9);
}

/// A compound that is being written.
#[derive(Debug, Clone, Copy)]
struct Level {
    shape: Shape,
    /// Members or elements written.
    count: u64,
}

/// Which members of a scope's root are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// Those that the packet reader itself uses.
    Structural,
}

/// Writes the fields of one scope as they are shown to it.
#[derive(Debug)]
pub struct Fields<'o> {
    out: &'o mut Vec<u8>,
    levels: &'o mut Vec<Level>,
    hidden: Hidden,
}

impl Fields<'_> {
    fn is_hidden(&self, field: &Field<'_>) -> bool {
        self.hidden == Hidden::Structural && self.levels.len() == 1 && field.is_structural()
    }

    /// The separator and the name or number before a member.
    fn label(&mut self, field: &Field<'_>) {
        let Some(level) = self.levels.last_mut() else { return };
        if matches!(level.shape, Shape::Variant | Shape::Optional { .. }) {
            return;
        }
        self.out.extend_from_slice(if level.count == 0 { b" " } else { b", " });
        if level.shape == Shape::Structure {
            self.out.extend_from_slice(field.name().as_bytes());
        } else {
            self.out.push(b'[');
            decimal(self.out, level.count);
            self.out.push(b']');
        }
        self.out.extend_from_slice(b" = ");
        level.count += 1;
    }
}

impl<'a> Visitor<'a> for Fields<'_> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if self.is_hidden(&field) {
            return;
        }
        self.label(&field);
        match value {
            Value::Unsigned(number) => integer(self.out, &field, number, false),
            Value::Signed(number) => integer(self.out, &field, number.cast_unsigned(), true),
            Value::Float(number) => general(self.out, number),
            Value::Str(text) => quoted(self.out, text),
            Value::WideStr(text) => quoted(self.out, text.chars().collect::<String>().as_bytes()),
            Value::Enum(value) => enumeration(self.out, &field, &value),
            Value::Bool(truth) => {
                self.out.extend_from_slice(if truth { b"true" } else { b"false" })
            }
            Value::Bits(bits) => {
                self.out.extend_from_slice(b"0x");
                digits(self.out, bits.raw(), 16, 1);
            }
            Value::Blob(bytes) => blob(self.out, bytes),
            Value::Compound(_) => {}
        }
    }

    fn enter(&mut self, field: Field<'a>, shape: Shape) {
        self.label(&field);
        self.out.extend_from_slice(match shape {
            Shape::Structure => b"{",
            Shape::Array { .. } => b"[",
            Shape::Variant | Shape::Optional { .. } => b"{ ",
        });
        self.levels.push(Level { shape, count: 0 });
    }

    fn leave(&mut self, _: Field<'a>, shape: Shape) {
        self.levels.pop();
        let array = matches!(shape, Shape::Array { .. });
        self.out.extend_from_slice(if array { b" ]" } else { b" }" });
    }
}

/// An integer by its base; `raw` is sign-extended when `signed`.
fn integer(out: &mut Vec<u8>, field: &Field<'_>, raw: u64, signed: bool) {
    let bits = u32::from(field.bits()).clamp(1, 64);
    let low = |bits: u32| raw & (u64::MAX >> (64 - bits.clamp(1, 64)));
    match field.base() {
        Base::Decimal if signed => signed_decimal(out, raw.cast_signed()),
        Base::Decimal => decimal(out, raw),
        Base::Hexadecimal => {
            out.extend_from_slice(b"0x");
            digits(out, low(bits.next_multiple_of(4)), 16, 1);
        }
        Base::Octal => {
            out.push(b'0');
            digits(out, low(bits.next_multiple_of(3)), 8, 1);
        }
        Base::Binary => {
            out.extend_from_slice(b"0b");
            digits(out, low(bits), 2, usize::from(field.bits()));
        }
    }
}

/// `( "LABEL" : container = 3 )`.
fn enumeration(out: &mut Vec<u8>, field: &Field<'_>, value: &EnumValue<'_>) {
    out.extend_from_slice(b"( ");
    let labels = out.len();
    separated(out, value.labels(), b", ");
    if out.len() == labels && !flags(out, value) {
        out.truncate(labels);
        out.extend_from_slice(b"<unknown>");
    }
    out.extend_from_slice(b" : container = ");
    integer(out, field, value.raw, value.signed);
    out.extend_from_slice(b" )");
}

/// The labels of each set bit, when each has one; else what was written is of no use.
fn flags(out: &mut Vec<u8>, value: &EnumValue<'_>) -> bool {
    if value.signed || value.raw == 0 {
        return false;
    }
    let set = (0..u64::BITS).map(|bit| 1_u64 << bit).filter(|bit| value.raw & bit != 0);
    for (at, bit) in set.enumerate() {
        if at > 0 {
            out.extend_from_slice(b" | ");
        }
        let flag = EnumValue { raw: bit, ..*value };
        let several = flag.labels().nth(1).is_some();
        let before = out.len();
        out.extend_from_slice(if several { b"{ " } else { b"" });
        let begin = out.len();
        separated(out, flag.labels(), b", ");
        if out.len() == begin {
            out.truncate(before);
            return false;
        }
        out.extend_from_slice(if several { b" }" } else { b"" });
    }
    true
}

fn separated<'a>(out: &mut Vec<u8>, labels: impl Iterator<Item = &'a str>, separator: &[u8]) {
    for (at, label) in labels.enumerate() {
        if at > 0 {
            out.extend_from_slice(separator);
        }
        quoted(out, label.as_bytes());
    }
}

fn blob(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"{ ");
    for byte in bytes {
        digits(out, (*byte).into(), 16, 2);
        out.push(b' ');
    }
    out.push(b'}');
}

/// A string in double quotes, with C's escapes. Bytes from 0x80 on are kept as they are.
fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        let escape = match byte {
            b'\\' | b'\'' | b'"' | b'?' => *byte,
            0x07 => b'a',
            0x08 => b'b',
            0x09 => b't',
            0x0A => b'n',
            0x0B => b'v',
            0x0C => b'f',
            0x0D => b'r',
            0x1B => b'e',
            0x00..=0x1F | 0x7F => {
                out.extend_from_slice(b"\\x");
                let hex = |digit: u8| char::from_digit(digit.into(), 16).map_or(b'?', |c| c as u8);
                out.extend_from_slice(&[hex(byte >> 4), hex(byte & 0xF)]);
                continue;
            }
            _ => {
                out.push(*byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escape]);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_with_the_escapes_of_c() {
        let mut out = Vec::new();
        quoted(&mut out, b"a\\b\"c'd?\n\x01\x7f\x1b\xc3\xa9");
        assert_eq!(out, b"\"a\\\\b\\\"c\\'d\\?\\n\\x01\\x7f\\e\xc3\xa9\"");
    }

    #[test]
    fn times_are_shown_in_the_zone_and_differences_to_the_line_before() {
        let mut writer = TextWriter::new(TextOptions::default(), Box::new(|_| 5 * 3_600 + 1_800));
        let mut shown = |at: i64| {
            let mut out = Vec::new();
            writer.time(at, &mut out);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(shown(1_795_193_047_736_468_450), "[22:14:07.736468450] (+?.?????????) ");
        assert_eq!(shown(1_795_193_048_736_468_451), "[22:14:08.736468451] (+1.000000001) ");
        assert_eq!(
            shown(1_795_193_048_736_468_450),
            "[22:14:08.736468450] (+18446744073.709551615) "
        );
        assert!(shown(-1).starts_with("[-0.000000001] "));
    }
}
