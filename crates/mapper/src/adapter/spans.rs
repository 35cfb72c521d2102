//! Which application events are begins and ends of spans.

use ctf::{EventRecordClass, FieldHandle};

/// How spans are told from their events.
///
/// An event `provider:NAME_begin` (or `_start`) begins a span called NAME, `provider:NAME_end` (or `_stop`) ends it. An
/// event `phase_begin` or `span_begin` with a field `phase` or `name` takes the name from that field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanRules {
    /// Names of spans that are requests; spans of all other names are phases inside them.
    pub requests: Vec<String>,
    /// Fields that hold the request's number, the first that an event has.
    pub id_fields: Vec<String>,
}

impl Default for SpanRules {
    fn default() -> Self {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            requests: texts(&["request", "req"]),
            id_fields: texts(&["request_id", "req_id", "id", "req"]),
        }
    }
}

/// An event that begins or ends a span.
#[derive(Debug)]
pub(super) struct SpanRule {
    pub(super) begins: bool,
    pub(super) name: String,
    /// The field that holds the name instead.
    pub(super) label: Option<FieldHandle>,
    pub(super) id: Option<FieldHandle>,
    pub(super) is_request: bool,
}

impl SpanRule {
    pub(super) fn of(class: &EventRecordClass, rules: &SpanRules) -> Option<Self> {
        const SUFFIXES: [(&str, bool); 4] =
            [("_begin", true), ("_start", true), ("_end", false), ("_stop", false)];
        let event = class.name().rsplit(':').next()?;
        let (name, begins) = SUFFIXES
            .iter()
            .find_map(|(suffix, begins)| Some((event.strip_suffix(suffix)?, *begins)))?;
        let named_by_field = matches!(name, "phase" | "span");
        let label = ["phase", "name"]
            .iter()
            .find_map(|field| class.field_handle(field))
            .filter(|_| named_by_field);
        Some(Self {
            begins,
            name: name.to_owned(),
            label,
            id: rules.id_fields.iter().find_map(|field| class.field_handle(field)),
            is_request: rules.requests.iter().any(|request| request == name),
        })
    }
}
