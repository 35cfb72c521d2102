//! The metadata stream: text, or packets of text.
//!
//! ```text
//! packet  0 magic u32 = 0x75D11D57, in the byte order of the whole header
//!         4 uuid 16 bytes
//!        20 checksum u32
//!        24 content size u32, bits, with this header
//!        28 total size u32, bits
//!        32 compression u8, encryption u8, checksum scheme u8, major u8 = 1, minor u8 = 8
//!        37 text, up to the content size; then padding up to the total size
//! ```
//!
//! Source: CTF 1.8.3, section 7.1; CTF 2 has the same packets with version 2.0 (CTF2-PMETA-1.0). Statements may be cut
//! by packets anywhere. Text of CTF 2 begins with the separator of a JSON text sequence.

mod fields;
mod json;
mod lexer;
mod lower;
mod parser;
mod reference;
mod scope;
mod stream;
mod types;
mod warning;

use std::borrow::Cow;

use crate::bits;
use crate::class::{ByteOrder, TraceClass};
use crate::clock::Uuid;
use crate::error::{Error, MetadataPacketProblem, TextProblem};
pub(crate) use parser::KEYWORDS;
use parser::Parser;
pub use stream::{MAX_METADATA_BYTES, MetadataProgress, MetadataStream};
pub(crate) use warning::Warnings;
pub use warning::{MetadataWarning, WarningKind};

const MAGIC: u32 = 0x75D1_1D57;
const HEADER_BYTES: usize = 37;

pub(crate) fn parse(metadata: &[u8]) -> Result<TraceClass, Error> {
    let text = text_of(metadata)?;
    parse_text(&text, matches!(text, Cow::Owned(_))).map_err(Failure::into_error)
}

/// Why text makes no trace class.
enum Failure {
    /// More text could mend it: something that is required or named is not there.
    Missing(Error),
    /// Nothing could.
    Wrong(Error),
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Self::Missing(error) | Self::Wrong(error) => error,
        }
    }
}

/// Reads text that was or was not in packets.
fn parse_text(text: &[u8], is_packetised: bool) -> Result<TraceClass, Failure> {
    if text.first() == Some(&json::RECORD_SEPARATOR) {
        return json::parse(text).map_err(|error| match &error {
            Error::MetadataJson { problem, .. } if may_mend(problem) => Failure::Missing(error),
            _ => Failure::Wrong(error),
        });
    }
    let is_signed = is_packetised || is_signed_text(text);
    // Text without the signature that cannot be read is more likely something else.
    let explain = |(offset_bytes, problem)| {
        if is_signed {
            text_error(text, offset_bytes, problem)
        } else {
            Error::NotMetadata { found: text.iter().take(8).copied().collect() }
        }
    };
    let document = Parser::new(text)
        .and_then(Parser::document)
        .map_err(|problem| Failure::Wrong(explain(problem)))?;
    let lowered = lower::trace_class(document).map_err(|problem| {
        let missing = may_mend(&problem.1);
        let error = explain(problem);
        if missing { Failure::Missing(error) } else { Failure::Wrong(error) }
    });
    let (mut trace, mut warnings) = lowered?;
    if !is_signed {
        warnings.add(0, WarningKind::NoSignature);
    }
    trace.warnings = warnings.locate(text);
    Ok(trace)
}

/// Whether further declarations could mend a problem of declarations that are whole.
const fn may_mend(problem: &TextProblem) -> bool {
    // How many fields are taken depends on the size of the text.
    matches!(
        problem,
        TextProblem::Missing(_)
            | TextProblem::Unknown { .. }
            | TextProblem::Reference { .. }
            | TextProblem::TooMany { .. }
    )
}

/// The byte order of packetised metadata.
fn order_of(metadata: &[u8]) -> Option<ByteOrder> {
    let magic = |order| bits::read_uint(metadata, 0, 32, order);
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| magic(*order) == Some(MAGIC.into()))
}

/// The text, without the packets it came in.
fn text_of(metadata: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    match order_of(metadata) {
        Some(order) => unpack(metadata, order).map(Cow::Owned),
        None => Ok(Cow::Borrowed(metadata)),
    }
}

/// Whether the text begins with `/* CTF 1.8`, with any white space.
fn is_signed_text(text: &[u8]) -> bool {
    let begin = text.trim_ascii_start();
    let Some(comment) = begin.strip_prefix(b"/*") else { return false };
    let words = comment.trim_ascii_start().strip_prefix(b"CTF").map(<[u8]>::trim_ascii_start);
    let version = words.and_then(|words| words.strip_prefix(b"1.8"));
    version.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_digit))
}

fn unpack(metadata: &[u8], order: ByteOrder) -> Result<Vec<u8>, Error> {
    let mut text = Vec::with_capacity(metadata.len());
    let (mut offset_bytes, mut uuid) = (0, None);
    while let Some(packet) = metadata.get(offset_bytes..).filter(|rest| !rest.is_empty()) {
        let (content, total) = unpack_one(packet, order, &mut uuid)
            .map_err(|problem| Error::MetadataPacket { offset_bytes, problem })?;
        text.extend_from_slice(content);
        offset_bytes += total;
    }
    Ok(text)
}

/// The text of the packet at the beginning of `rest`, and the packet's bytes.
fn unpack_one<'a>(
    rest: &'a [u8],
    order: ByteOrder,
    uuid: &mut Option<Uuid>,
) -> Result<(&'a [u8], usize), MetadataPacketProblem> {
    let available = u64::try_from(rest.len()).unwrap_or(u64::MAX);
    let truncated = |needed| MetadataPacketProblem::Truncated { needed, available };
    let number = |byte: u64| {
        let raw =
            bits::read_uint(rest, byte * 8, 32, order).and_then(|raw| u32::try_from(raw).ok());
        raw.ok_or(truncated(37))
    };
    let found = number(0)?;
    if found != MAGIC {
        return Err(MetadataPacketProblem::Magic { found });
    }
    let header: &[u8; HEADER_BYTES] = rest.first_chunk().ok_or(truncated(37))?;
    let [.., compression, encryption, scheme, major, minor] = *header;
    if (major, minor) != (1, 8) && major != 2 {
        return Err(MetadataPacketProblem::Version { major, minor });
    }
    if (compression, encryption, scheme) != (0, 0, 0) {
        return Err(MetadataPacketProblem::Scheme);
    }
    let found =
        header.get(4..).and_then(|rest| rest.first_chunk()).map_or(Uuid([0; 16]), |raw| Uuid(*raw));
    let expected = *uuid.get_or_insert(found);
    if found != expected {
        return Err(MetadataPacketProblem::OtherTrace { expected, found });
    }
    let (content_bits, total_bits) = (number(24)?, number(28)?);
    let sizes = MetadataPacketProblem::Sizes { content_bits, total_bits };
    let whole_bytes = |bits: u32| {
        bits.is_multiple_of(8).then(|| usize::try_from(bits / 8).ok()).flatten().ok_or(sizes)
    };
    let (content, total) = (whole_bytes(content_bits)?, whole_bytes(total_bits)?);
    if content < HEADER_BYTES || content > total {
        return Err(sizes);
    }
    let packet = rest.get(..total).ok_or(truncated(u64::from(total_bits / 8)))?;
    Ok((packet.get(HEADER_BYTES..content).unwrap_or(&[]), total))
}

fn text_error(text: &[u8], offset_bytes: usize, problem: TextProblem) -> Error {
    let before = text.get(..offset_bytes).unwrap_or(text);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    Error::MetadataText { offset_bytes, line, problem }
}

#[cfg(test)]
mod tests {
    use crate::work::steps_of;

    use super::*;

    const HEAD: &str = "/* CTF 1.8 */ typealias integer { size = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; };";

    fn all(count: usize, each: impl Fn(usize) -> String) -> String {
        (0..count).map(each).collect()
    }

    /// Four times the size must not take more than five times the steps.
    fn linear(what: &str, size: usize, text: impl Fn(usize) -> String) {
        let steps = |size| {
            let text = text(size);
            let head = if text.starts_with(HEAD.get(..11).unwrap_or_default()) { "" } else { HEAD };
            let text = format!("{head}{text}");
            let (parsed, steps) = steps_of(|| parse(text.as_bytes()));
            assert!(parsed.is_ok(), "{what}: {:?}", parsed.err());
            steps
        };
        let (small, large) = (steps(size), steps(4 * size));
        assert!(large <= 5 * small, "{what}: {small} steps for {size}, {large} for {}", 4 * size);
    }

    fn fields(fields: &str) -> String {
        format!("event {{ name = e; fields := struct {{ {fields} }}; }};")
    }

    #[test]
    fn declarations_cost_the_same_however_many_there_are() {
        linear("event classes", 4096, |n| {
            all(n, |i| format!("event {{ name = e{i}; id = {i}; }};\n"))
        });
        linear("stream classes", 512, |n| {
            let head = HEAD.replace("le;", "le; packet.header := struct { u8 stream_id; };");
            head + &all(n, |i| format!("stream {{ id = {i}; }};"))
        });
        linear("clocks and environment entries", 512, |n| {
            all(n, |i| format!("clock {{ name = c{i}; }}; env {{ e{i} = {i}; }};"))
        });
        linear("aliases", 4096, |n| {
            all(n, |i| format!("typealias u8 := t{i}; typedef u8 d{i};")) + &fields("t0 a;")
        });
        linear("callsites", 1024, |n| all(n, |i| format!("callsite {{ name = c{i}; }};")));
    }

    #[test]
    fn options_and_labels_cost_the_same_however_many_there_are() {
        linear("options", 1024, |n| {
            let labels = all(n, |i| format!("l{i}, "));
            let options = all(n, |i| format!("u8 l{i}; "));
            fields(&format!(
                "enum : integer {{ size = 32; }} {{ {labels} }} t; variant <t> {{ {options} }} v;"
            ))
        });
        linear("ranges over ranges", 1024, |n| {
            let labels = all(n, |i| format!("a = {i} ... {}, ", 2 * n - i));
            fields(&format!(
                "enum : integer {{ size = 32; }} {{ {labels} }} t; variant <t> {{ u8 a; }} v;"
            ))
        });
    }

    #[test]
    fn references_cost_the_same_however_many_fields_there_are() {
        linear("to members beside", 1024, |n| {
            fields(&all(n, |i| format!("u8 n{i}; u8 a{i}[n{i}]; ")))
        });
        linear("by absolute names", 1024, |n| {
            fields(&all(n, |i| format!("u8 n{i}; u8 a{i}[event.fields.n{i}]; ")))
        });
        linear("into another structure", 1024, |n| {
            let members = all(n, |i| format!("u8 n{i}; "));
            let arrays = all(n, |i| format!("u8 a{i}[s.n{i}]; "));
            fields(&format!("struct {{ {members} }} s; {arrays}"))
        });
        linear("of many event classes into the stream's context", 1024, |n| {
            let members = all(64, |i| format!("u8 n{i}; "));
            let event = |i| {
                let field = format!("u8 a[stream.event.context.n{}];", i % 64);
                format!("event {{ name = e{i}; id = {i}; fields := struct {{ {field} }}; }};")
            };
            format!("stream {{ event.context := struct {{ {members} }}; }};") + &all(n, event)
        });
        linear("into the options of one variant", 256, |n| {
            let labels = all(8, |i| format!("l{i}, "));
            let options = all(8, |i| format!("struct {{ u8 n; }} l{i}; "));
            let arrays = all(n, |i| format!("u8 a{i}[v.n]; "));
            fields(&format!("enum : u8 {{ {labels} }} t; variant <t> {{ {options} }} v; {arrays}"))
        });
    }

    #[test]
    fn nesting_costs_the_same_at_any_depth() {
        linear("structures with names and references at each level", 1000, |n| {
            let open =
                all(n - 2, |i| format!("u8 n{i}; typedef u8 t{i}; struct {{ t{i} m; u8 a[n{i}]; "));
            fields(&format!("u8 x; {open} u8 y[x]; {}", "} s; ".repeat(n - 2)))
        });
        linear("arrays", 1000, |n| fields(&format!("u8 a{};", "[1]".repeat(n - 2))));
    }
}
