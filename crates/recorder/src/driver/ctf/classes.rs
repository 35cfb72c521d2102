//! Call sites as event record classes, and their records' values.
//!
//! | call site | name | context of its own |
//! |---|---|---|
//! | event | `NAME` | |
//! | begin of a span | `NAME_begin` | `trace_id`, `span_id`, `parent_span_id` |
//! | end of a span | `NAME_end` | `trace_id`, `span_id`, `status` |
//! | event in a span | `NAME` | `trace_id`, `span_id` |
//! | more fields of a span | `NAME_record` | `trace_id`, `span_id` |
//!
//! Each event record has the contexts `vpid`, `vtid` and `procname`, as LTTng gives them. Ids are texts of hexadecimal digits, empty where there is none.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use ctf::Base;
use ctf::writer::{
    EventClass, Field, FieldClass, IntClass, Key, Length, Mapping, Record as Out, Structure,
    WriteError,
};
use records::{Process, RingId};
use rings::{Record, SiteInfo, Value};
use tracepoint::layout::{FieldType, Severity, SiteKind, Status};

/// Bytes of a thread's name and the NUL behind it (`LTTNG_UST_ABI_PROCNAME_LEN`).
const PROCNAME_LEN: u64 = 17;
/// As readers are to show bytes.
const BYTE: IntClass = IntClass { base: Base::Hexadecimal, ..IntClass::U8 };

/// The contexts of all event records.
pub(super) fn context() -> Structure {
    Structure::new(vec![
        Field::new("vpid", FieldClass::Int(IntClass::I32)),
        Field::new("vtid", FieldClass::Int(IntClass::I32)),
        Field::new("procname", FieldClass::text(PROCNAME_LEN)),
    ])
}

/// Event record classes by call site.
#[derive(Default)]
pub(super) struct Classes {
    ids: HashMap<Vec<u8>, u64>,
    pub(super) events: Vec<EventClass>,
}

impl Classes {
    /// The class of a call site, made when there is none.
    pub(super) fn id(&mut self, site: &SiteInfo) -> u64 {
        // Behind its length and the site's number, which a process that lies may give to several.
        let key = site.description.get(4..).unwrap_or_default();
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let id = self.events.len() as u64;
        self.ids.insert(key.to_owned(), id);
        self.events.push(class(id, site));
        id
    }
}

fn class(id: u64, site: &SiteInfo) -> EventClass {
    let suffix = match site.kind {
        SiteKind::Event | SiteKind::SpanEvent => "",
        SiteKind::SpanBegin => "_begin",
        SiteKind::SpanEnd => "_end",
        SiteKind::SpanRecord => "_record",
    };
    let name = format!("{}{suffix}", printable(&site.name));
    EventClass {
        log_level: log_level(site.severity),
        context: span_context(site.kind),
        ..EventClass::new(id, name, members(site))
    }
}

/// A text for metadata, which have no way to write some characters that every reader knows.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{FFFD}")
}

/// LTTng's numbers (`lttng/tracepoint.h`, `TRACE_ERR` to `TRACE_DEBUG`).
const fn log_level(severity: Severity) -> Option<i64> {
    match severity {
        Severity::Unspecified => None,
        Severity::Error => Some(3),
        Severity::Warn => Some(4),
        Severity::Info => Some(6),
        Severity::Debug => Some(7),
        Severity::Trace => Some(14),
    }
}

fn span_context(kind: SiteKind) -> Option<Structure> {
    let last = match kind {
        SiteKind::Event => return None,
        SiteKind::SpanEvent | SiteKind::SpanRecord => None,
        SiteKind::SpanBegin => Some(Field::new("parent_span_id", FieldClass::STRING)),
        SiteKind::SpanEnd => {
            let statuses = [("unset", Status::Unset), ("ok", Status::Ok), ("error", Status::Error)];
            let labels = statuses.map(|(label, status)| Mapping::one(label, status as u64));
            Some(Field::new("status", FieldClass::Enum(IntClass::U8, labels.into())))
        }
    };
    let ids = ["trace_id", "span_id"].map(|name| Field::new(name, FieldClass::STRING));
    Some(Structure::new(ids.into_iter().chain(last).collect()))
}

fn members(site: &SiteInfo) -> Vec<Field> {
    let mut taken = HashSet::new();
    let mut members = Vec::new();
    for ((name, kind), key) in site.fields.iter().zip(0..) {
        let names = |name: &str| {
            let counted = (*kind == FieldType::Bytes).then(|| format!("_{name}_length"));
            [Some(name.to_owned()), counted].into_iter().flatten().collect::<Vec<_>>()
        };
        let name =
            free(member_name(name), |name| names(name).iter().all(|name| !taken.contains(name)));
        taken.extend(names(&name));
        let class = match kind {
            FieldType::Unsigned => FieldClass::Int(IntClass::U64),
            FieldType::Signed => FieldClass::Int(IntClass::I64),
            FieldType::Float => FieldClass::Float(ctf::writer::FloatClass::F64),
            FieldType::Bool => {
                let labels = vec![Mapping::one("false", 0), Mapping::one("true", 1)];
                FieldClass::Enum(IntClass::U8, labels)
            }
            FieldType::Text | FieldType::Tagged => FieldClass::STRING,
            FieldType::Bytes => {
                let count = FieldClass::Int(IntClass::U32);
                members.push(Field::keyed(format!("_{name}_length"), count, Key(key)));
                FieldClass::array(FieldClass::Int(BYTE), Length::Of(Key(key)))
            }
        };
        members.push(Field::new(name, class));
    }
    members
}

/// A name that CTF 1.8 can spell, from which this one can be made again: an ASCII letter or digit stays, and an underscore before one or at the
/// end. Of all else each byte is `__` and its two hexadecimal digits, so that `http.method` is `http__2emethod`.
fn member_name(name: &str) -> String {
    let mut spelled = String::new();
    let mut bytes = name.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let is_before_word = bytes.peek().is_none_or(u8::is_ascii_alphanumeric);
        if byte.is_ascii_alphanumeric() || (byte == b'_' && is_before_word) {
            spelled.push(char::from(byte));
        } else {
            let written = write!(spelled, "__{byte:02x}");
            debug_assert!(written.is_ok(), "a text takes what is written to it");
        }
    }
    // No other name is spelled so.
    if spelled.is_empty() { "__".to_owned() } else { spelled }
}

/// The name, or where a call site has one twice, `NAME__n2` and so on, as no name is spelled otherwise.
fn free(name: String, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number: u32| format!("{name}__n{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| is_free(name)).unwrap_or(name)
}

/// Gives the values of a record, in the order of its class.
pub(super) fn write(
    record: &Record<'_>,
    process: &Process,
    ring: &RingId,
    out: &mut Out<'_>,
) -> Result<(), WriteError> {
    out.signed(process.own_pid.cast_signed().into())?;
    out.signed(ring.tid.cast_signed().into())?;
    out.string(ring.thread.as_bytes())?;
    write_span(record, out)?;
    let site = record.site;
    if site.fields.iter().any(|(_, kind)| *kind == FieldType::Tagged) {
        return write_tagged(record, out);
    }
    record.fields().try_for_each(|(_, value)| match value {
        Value::Unsigned(value) => out.unsigned(value),
        Value::Signed(value) => out.signed(value),
        Value::Float(value) => out.float(value),
        Value::Bool(value) => out.unsigned(value.into()),
        Value::Text(text) => out.string(whole_text(text.bytes).as_bytes()),
        Value::Bytes(cut) => {
            out.unsigned(cut.bytes.len() as u64)?;
            out.bytes(cut.bytes)
        }
    })
}

fn write_span(record: &Record<'_>, out: &mut Out<'_>) -> Result<(), WriteError> {
    let Some(span) = record.span else { return Ok(()) };
    let id = |id: u64| if id == 0 { String::new() } else { format!("{id:016x}") };
    let trace_id =
        if span.trace_id == 0 { String::new() } else { format!("{:032x}", span.trace_id) };
    out.string(trace_id.as_bytes())?;
    out.string(id(span.span_id).as_bytes())?;
    match record.site.kind {
        SiteKind::SpanBegin => out.string(id(span.parent_id).as_bytes()),
        SiteKind::SpanEnd => out.unsigned(span.status as u64),
        SiteKind::Event | SiteKind::SpanEvent | SiteKind::SpanRecord => Ok(()),
    }
}

/// Values whose record says which fields they are of: a text for each field, empty where there is none. Texts and bytes of one field are put one
/// behind the other, as pieces of what was too long; other values have a space between.
fn write_tagged(record: &Record<'_>, out: &mut Out<'_>) -> Result<(), WriteError> {
    let mut values: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    for (field, value) in record.fields() {
        let told = values.entry(field).or_default();
        let shown = match value {
            Value::Text(cut) | Value::Bytes(cut) => {
                told.extend_from_slice(cut.bytes);
                continue;
            }
            Value::Unsigned(value) => value.to_string(),
            Value::Signed(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Bool(value) => value.to_string(),
        };
        if !told.is_empty() {
            told.push(b' ');
        }
        told.extend_from_slice(shown.as_bytes());
    }
    for field in 0..record.site.fields.len() {
        let told = values.get(&field).map(Vec::as_slice).unwrap_or_default();
        out.string(whole_text(told).as_bytes())?;
    }
    Ok(())
}

/// Bytes as a text that ends at its NUL: what is not UTF-8, and NULs, are U+FFFD.
fn whole_text(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{FFFD}")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other way round: what a reader of the documentation does.
    fn read_name(spelled: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let mut rest = spelled;
        while let Some(first) = rest.chars().next() {
            if let Some(digits) = rest.strip_prefix("__") {
                let Some(two) = digits.get(..2) else { return digits.is_empty().then(String::new) };
                bytes.push(u8::from_str_radix(two, 16).ok()?);
                rest = &digits[2..];
            } else {
                bytes.push(u8::try_from(first).ok()?);
                rest = &rest[1..];
            }
        }
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn names_can_be_spelled_and_read_again() {
        let known = [
            ("path", "path"),
            ("http.method", "http__2emethod"),
            ("_a_", "_a_"),
            ("a__b", "a__5f_b"),
            ("a_.b", "a__5f__2eb"),
            ("__2e", "__5f_2e"),
            ("7", "7"),
            ("ä", "__c3__a4"),
            ("", "__"),
            ("_", "_"),
            ("__", "__5f_"),
        ];
        for (name, spelled) in known {
            assert_eq!(member_name(name), spelled);
            assert_eq!(read_name(spelled).as_deref(), Some(name));
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let name: String = (0..random.usize(0..8))
                .map(|_| random.choice(['_', 'a', '2', 'e', '.', 'f', '5', 'é']).unwrap())
                .collect();
            let spelled = member_name(&name);
            assert!(ctf::writer::is_tsdl_member(&spelled), "{name:?}: {spelled}");
            assert_eq!(read_name(&spelled), Some(name));
        }
    }

    #[test]
    fn fields_of_one_name_are_told_apart() {
        let all: Vec<String> = ["a", "a__n2"].map(str::to_owned).into();
        let is_free = |name: &str| all.iter().all(|it| it != name);
        assert_eq!(free("b".to_owned(), is_free), "b");
        assert_eq!(free("a".to_owned(), is_free), "a__n3");
    }

    #[test]
    fn a_text_is_whole_up_to_its_nul() {
        assert_eq!(whole_text("ä".as_bytes()), "ä");
        assert_eq!(whole_text(b"a\0b\xc3"), "a\u{FFFD}b\u{FFFD}");
    }
}
