//! Event record classes for `ctf info`: what their fields are, and how many event records there are of each.

use std::collections::HashMap;

use ctf::{EventRecordClass, FieldClass, FieldClassKind, IntegerClass, LengthClass, Meaning};
use model::TimeRange;
use serde_json::{Value, json};
use tracedir::{Findings, Item, LogicalTrace, Recording, StreamSurvey};

use crate::command::read::summary;
use crate::table::{Align, Table};

/// The deepest structures, arrays and variants that are shown.
const MAX_DEPTH: usize = 8;

/// How many event records there are.
#[derive(Default)]
pub(super) struct Events {
    /// By position of the stream.
    pub(super) of_stream: Vec<u64>,
    /// By position of the trace, data stream class id and event record class id.
    of_class: HashMap<(usize, u64, u64), u64>,
}

impl Events {
    /// Reads all event records; gives also whether all could be read.
    pub(super) fn count(recording: &Recording, streams: &[StreamSurvey]) -> (Self, bool) {
        let mut events = Self { of_stream: vec![0; streams.len()], ..Self::default() };
        let mut merged = recording.merged(TimeRange::ALL);
        while let Some(item) = merged.next_item() {
            let Item::Event(event) = item else { continue };
            if let Some(count) = events.of_stream.get_mut(event.stream_index) {
                *count += 1;
            }
            let survey = streams.get(event.stream_index);
            if let Some(trace) = survey.and_then(|survey| survey.trace_index) {
                let class = event.record.class();
                let key = (trace, class.stream_class_id(), class.id());
                *events.of_class.entry(key).or_default() += 1;
            }
        }
        let findings: &Findings = merged.findings();
        (events, !summary::tell(findings))
    }

    fn of(&self, trace: usize, class: &EventRecordClass) -> u64 {
        let key = (trace, class.stream_class_id(), class.id());
        self.of_class.get(&key).copied().unwrap_or(0)
    }
}

/// The classes of a trace that are shown: all of them with their fields, else those that occur, the most frequent first.
fn shown<'t>(
    trace: &'t LogicalTrace,
    index: usize,
    events: Option<&Events>,
    fields: bool,
) -> Vec<(&'t EventRecordClass, Option<u64>)> {
    let classes = trace.class().event_record_classes().iter();
    let mut shown: Vec<_> =
        classes.map(|class| (class, events.map(|events| events.of(index, class)))).collect();
    shown.retain(|(_, count)| fields || *count != Some(0));
    shown.sort_by(|(a, m), (b, n)| {
        n.cmp(m).then_with(|| (a.stream_class_id(), a.id()).cmp(&(b.stream_class_id(), b.id())))
    });
    shown
}

pub(super) fn table(
    trace: &LogicalTrace,
    index: usize,
    events: Option<&Events>,
    fields: bool,
    out: &mut String,
) {
    let counted = if events.is_some() { "events" } else { "" };
    let heading = ["class", "id", counted, "name", if fields { "fields" } else { "" }];
    let align = [Align::Right, Align::Right, Align::Right, Align::Left, Align::Left];
    let mut table = Table::new(heading, align);
    for (class, count) in shown(trace, index, events, fields) {
        table.row([
            class.stream_class_id().to_string(),
            class.id().to_string(),
            count.map_or_else(String::new, |count| count.to_string()),
            class.name().to_owned(),
            if fields { members(class.payload_class(), 0) } else { String::new() },
        ]);
    }
    out.push('\n');
    table.render("  ", out);
}

pub(super) fn documents(
    trace: &LogicalTrace,
    index: usize,
    events: Option<&Events>,
    fields: bool,
) -> Vec<Value> {
    let document = |(class, count): (&EventRecordClass, Option<u64>)| {
        let mut document = json!({
            "stream_class_id": class.stream_class_id(),
            "id": class.id(),
            "name": class.name(),
            "log_level": class.log_level(),
            "emf_uri": class.emf_uri(),
        });
        if let Some(object) = document.as_object_mut() {
            object.extend(count.map(|count| ("event_records".to_owned(), json!(count))));
            object
                .extend(fields.then(|| ("fields".to_owned(), json!(pairs(class.payload_class())))));
        }
        document
    };
    shown(trace, index, events, fields).into_iter().map(document).collect()
}

fn pairs(class: Option<FieldClass<'_>>) -> Vec<Value> {
    let members = class.into_iter().flat_map(|class| class.children());
    members.map(|field| json!({ "name": field.name(), "class": shape(field, 0) })).collect()
}

/// `a: u8, b: text`.
fn members(class: Option<FieldClass<'_>>, depth: usize) -> String {
    let members = class.into_iter().flat_map(|class| class.children());
    let members = members.map(|field| format!("{}: {}", field.name(), shape(field, depth)));
    members.collect::<Vec<_>>().join(", ")
}

/// A field class in few words: `u32`, `enum i8`, `text`, `[u8; 4]`, `{ a: u8 }`.
fn shape(class: FieldClass<'_>, depth: usize) -> String {
    if depth >= MAX_DEPTH {
        return "…".to_owned();
    }
    let element = || {
        let child = class.children().next();
        child.map_or_else(String::new, |child| shape(child, depth + 1))
    };
    match class.kind() {
        FieldClassKind::Integer(int) => integer(int),
        FieldClassKind::Float { bits, .. } => format!("f{bits}"),
        FieldClassKind::Text(_) | FieldClassKind::TextArray(..) => "text".to_owned(),
        FieldClassKind::Blob(LengthClass::Fixed(length), _) => format!("blob of {length} bytes"),
        FieldClassKind::Blob(LengthClass::Field(_), _) => "blob".to_owned(),
        FieldClassKind::Structure => format!("{{ {} }}", members(Some(class), depth + 1)),
        FieldClassKind::Array(LengthClass::Fixed(length)) => format!("[{}; {length}]", element()),
        FieldClassKind::Array(LengthClass::Field(_)) => format!("[{}]", element()),
        FieldClassKind::Variant(_) => format!("one of {{ {} }}", members(Some(class), depth + 1)),
        FieldClassKind::Optional(_) => format!("optional {}", element()),
        _ => "?".to_owned(),
    }
}

fn integer(int: IntegerClass<'_>) -> String {
    let sign = if int.is_signed() { 'i' } else { 'u' };
    let bits = if int.is_variable_length() { "var".to_owned() } else { int.bits().to_string() };
    match int.meaning() {
        Meaning::Boolean => "bool".to_owned(),
        Meaning::Bits => format!("bits{bits}"),
        Meaning::Number if int.has_mappings() => format!("enum {sign}{bits}"),
        Meaning::Number => format!("{sign}{bits}"),
    }
}
