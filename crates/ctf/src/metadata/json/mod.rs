//! CTF 2: a sequence of JSON objects, the fragments, each after a record separator (RFC 7464).
//!
//! ```text
//! 1E {"type": "preamble", "version": 2, …}     first
//! 1E {"type": "field-class-alias", …}          names a field class for later fragments
//! 1E {"type": "trace-class", …}                at most one, before data stream classes
//! 1E {"type": "clock-class", …}
//! 1E {"type": "data-stream-class", …}          after the clock class it names
//! 1E {"type": "event-record-class", …}         after its data stream class
//! ```
//!
//! Source: CTF2-SPEC-2.0. Objects are closed: a member that their kind does not have is an error, except in
//! `attributes`, which belong to whoever wrote them; of those only log level and URI of event record classes are read.

mod classes;
mod fragments;
mod reader;
mod scope;

use std::str;

use crate::class::TraceClass;
use crate::error::{Error, TextProblem};
use crate::metadata::lexer::Problem;
use fragments::Document;
use reader::Json;

/// Begins each fragment.
pub(super) const RECORD_SEPARATOR: u8 = 0x1E;

/// Reads a whole text sequence.
pub(super) fn parse(sequence: &[u8]) -> Result<TraceClass, Error> {
    trace_class(sequence).map_err(|problem| explain(sequence, problem))
}

fn trace_class(sequence: &[u8]) -> Result<TraceClass, Problem> {
    let text = str::from_utf8(sequence)
        .map_err(|error| (error.valid_up_to(), TextProblem::Literal("UTF-8 text")))?;
    let mut document = Document::new(text.len());
    for (begin, fragment) in fragments_of(text) {
        let json = Json::read(fragment, begin)?;
        document.add(json.root())?;
    }
    document.finish(text.len())
}

/// The fragments, each with where it begins. Separators in a row enclose none.
fn fragments_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let parts = text.split(char::from(RECORD_SEPARATOR));
    let with_place = parts.scan(0, |at, part| {
        let begin = *at;
        *at += part.len() + 1;
        Some((begin, part))
    });
    with_place.filter(|(_, part)| !part.trim_ascii().is_empty())
}

/// Names the fragment and the member at a place.
fn explain(sequence: &[u8], (offset_bytes, problem): Problem) -> Error {
    let before = sequence.get(..offset_bytes).unwrap_or(sequence);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let text = str::from_utf8(sequence).unwrap_or("");
    let (mut fragment, mut path) = (0, String::new());
    for (begin, part) in fragments_of(text).take_while(|(begin, _)| *begin <= offset_bytes) {
        fragment += 1;
        if offset_bytes < begin + part.len() {
            path = Json::read(part, begin).map_or(String::new(), |json| json.path(offset_bytes));
        }
    }
    Error::MetadataJson { offset_bytes, line, fragment, path, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::GeneralPlan;

    /// The header that LTTng 2.16 writes: an id with an extended form, and a variant by its ranges.
    const LTTNG: &str = r#"
        \u{1E}{"type": "preamble", "version": 2}
        \u{1E}{"type": "clock-class", "id": "c", "frequency": 1000000000}
        \u{1E}{"type": "field-class-alias", "name": "u16", "field-class":
            {"type": "fixed-length-unsigned-integer", "length": 16, "byte-order": "little-endian", "alignment": 8}}
        \u{1E}{"type": "field-class-alias", "name": "id", "field-class":
            {"type": "fixed-length-unsigned-integer", "length": 16, "byte-order": "little-endian", "alignment": 8,
             "mappings": {"compact": [[0, 65534]], "extended": [[65535, 65535]]}, "roles": ["event-record-class-id"]}}
        \u{1E}{"type": "field-class-alias", "name": "time", "field-class":
            {"type": "fixed-length-unsigned-integer", "length": 32, "byte-order": "little-endian", "alignment": 8,
             "roles": ["default-clock-timestamp"]}}
        \u{1E}{"type": "data-stream-class", "default-clock-class-id": "c", "event-record-header-field-class":
            {"type": "structure", "member-classes": [
                {"name": "id", "field-class": "id"},
                {"name": "v", "field-class": {"type": "variant",
                    "selector-field-location": {"origin": "event-record-header", "path": ["id"]},
                    "options": [
                        {"name": "compact", "selector-field-ranges": [[0, 65534]], "field-class":
                            {"type": "structure", "member-classes": [{"name": "timestamp", "field-class": "time"}]}},
                        {"name": "extended", "selector-field-ranges": [[65535, 65535]], "field-class":
                            {"type": "structure", "member-classes": [{"name": "id", "field-class": "id"},
                                {"name": "timestamp", "field-class": "time"}]}}]}}]}}
    "#;

    #[test]
    fn the_header_of_lttng_is_read_by_a_short_cut() {
        let text = LTTNG.replace("\\u{1E}", "\u{1E}");
        let trace = parse(text.as_bytes()).expect("right");
        let plan = &trace.streams[0].header_plan.general;
        assert!(matches!(plan, GeneralPlan::Selected(_)), "{plan:?}");
    }
}
