//! One entry per decoder for arbitrary bytes: they end, without a panic, whatever the bytes are, and hold no more memory
//! than the bytes account for.

use std::sync::{Arc, OnceLock};

use crate::class::TraceClass;
use crate::error::Error;
use crate::format::json::JsonWriter;
use crate::format::text::{TextOptions, TextWriter};
use crate::format::{Output, StreamText};
use crate::metadata::MetadataStream;
use crate::packet::{EventReader, Outcome, Packets};
use crate::value::Scope;

/// Reading `n` bytes of metadata holds at most this and [`METADATA_FACTOR`] times `n` bytes of memory.
///
/// The constant part is that of the fields which short metadata can make of aliases.
pub const METADATA_BASE_BYTES: usize = 8 << 20;

/// See [`METADATA_BASE_BYTES`]: eight fields for each byte, and what one field takes while it is compiled.
pub const METADATA_FACTOR: usize = 8 * 256;

/// Has every kind of field class, both byte orders and both ways to read an event header.
const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; byte_order = be; } := be32;
typealias integer { size = 64; } := u64;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u8 stream_id; }; };
clock { name = c; freq = 3; offset = 5; };
stream {
    id = 0;
    packet.context := struct { u64 content_size; u64 packet_size; u64 timestamp_begin; };
    event.header := struct { enum : integer { size = 5; } { small = 0 ... 30, big = 31 } id;
        variant <id> { struct { integer { size = 27; map = clock.c.value; } timestamp; } small;
                       struct { u8 id; integer { size = 64; map = clock.c.value; } timestamp; } big; } v; };
};
stream { id = 1; event.header := struct { u8 id; integer { size = 16; map = clock.c.value; } timestamp; }; };
event { id = 0; stream_id = 0; name = "scalars"; fields := struct { be32 _a; integer { size = 3; signed = true; } _b;
    floating_point { exp_dig = 11; mant_dig = 53; } _c; string _d; integer { size = 8; encoding = UTF8; } _e[5];
    floating_point { exp_dig = 5; mant_dig = 11; } _f; }; };
event { id = 1; stream_id = 0; name = "compounds"; fields := struct {
    u8 _n; struct { enum : u8 { a, b = 7 ... 9 } _t; variant <_t> { be32 a; string b; } _v; u8 _l; u8 _x[_l]; } _s[_n];
    u64 _m; struct {} _nothing[_m]; integer { size = 8; encoding = UTF8; } _text[_m]; }; };
event { id = 2; stream_id = 1; name = "odd"; fields := struct { integer { size = 7; byte_order = be; } _a; u8 _b[3]; }; };
event { id = 3; stream_id = 1; name = "options"; fields := struct { enum : u8 { x, y } t;
    variant <t> { struct { u8 n; u8 a[v.n]; } x; struct { string s; u8 n; } y; } v; u8 b[v.n]; u8 c[event.fields.v.x.n]; }; };
"#;

/// Reads arbitrary bytes as metadata.
pub fn fuzz_metadata(bytes: &[u8]) {
    // The outcome is either a trace class or an error; that there is one is what is fuzzed.
    drop(TraceClass::parse(bytes));
}

/// Reads arbitrary bytes as metadata that arrive in pieces, whose sizes depend on the bytes.
///
/// # Panics
/// When that ends otherwise than reading the bytes in one.
pub fn fuzz_metadata_stream(bytes: &[u8]) {
    let mut stream = MetadataStream::new();
    let mut rest = bytes;
    let mut len = 1 + bytes.len() % 61;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        if let Err(Error::MetadataStream(_)) = stream.push(piece) {
            return;
        }
        (rest, len) = (after, (len * 7 + 3) % 509 + bytes.len() / 8);
    }
    let (whole, pieces) = (TraceClass::parse(bytes), stream.finish());
    assert_eq!(whole.is_ok(), pieces.is_ok(), "{:?} and {:?}", whole.err(), pieces.err());
}

/// Reads arbitrary bytes as a data stream, all fields of it, by a fixed trace class.
///
/// # Panics
/// When the fixed metadata cannot be parsed, which a test would find first.
pub fn fuzz_packets(bytes: &[u8]) {
    static TRACE: OnceLock<Arc<TraceClass>> = OnceLock::new();
    let parse =
        || Arc::new(TraceClass::parse(METADATA.as_bytes()).expect("the fixed metadata is right"));
    read_all(TRACE.get_or_init(parse), bytes);
}

/// Reads what stands before the first NUL as metadata and what follows it as a data stream of that.
pub fn fuzz_trace(bytes: &[u8]) {
    if let Some((trace, stream)) = split(bytes) {
        read_all(&trace, stream);
    }
}

/// As [`fuzz_trace`], and writes every event record as text and as JSON.
pub fn fuzz_format(bytes: &[u8]) {
    let Some((trace, stream)) = split(bytes) else { return };
    let mut text = TextWriter::new(TextOptions::default(), Box::new(|_| 0));
    let mut json = JsonWriter::new();
    let (mut text_stream, mut json_stream) = (StreamText::default(), StreamText::default());
    let mut out = Output::new();
    for packet in Packets::new(&trace, stream).map_while(Result::ok) {
        let Ok(Outcome::Ready(mut events)) = EventReader::open(Arc::clone(&trace), packet.bytes)
        else {
            return;
        };
        text.enter_packet(&mut text_stream, |fields| {
            events.visit_packet(Scope::PacketContext, fields);
        });
        json.enter_packet(&mut json_stream, |fields| {
            events.visit_packet(Scope::PacketContext, fields);
        });
        while let Ok(Some(event)) = events.next_event() {
            out.clear();
            text.write(&event, &text_stream, &mut out);
            json.write(&event, &json_stream, &mut out);
            std::hint::black_box(&out);
        }
    }
}

fn split(bytes: &[u8]) -> Option<(Arc<TraceClass>, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (metadata, stream) = bytes.split_at_checked(end)?;
    Some((Arc::new(TraceClass::parse(metadata).ok()?), stream.get(1..)?))
}

fn read_all(trace: &Arc<TraceClass>, stream: &[u8]) {
    for packet in Packets::new(trace, stream).map_while(Result::ok) {
        let Ok(Outcome::Ready(mut events)) = EventReader::open(Arc::clone(trace), packet.bytes)
        else {
            return;
        };
        events.visit_packet(Scope::PacketHeader, &mut ());
        events.visit_packet(Scope::PacketContext, &mut ());
        while let Ok(Some(event)) = events.next_event() {
            assert!(event.end_bits() > event.begin_bits(), "an event record without bits");
            for scope in [
                Scope::EventHeader,
                Scope::EventCommonContext,
                Scope::EventSpecificContext,
                Scope::Payload,
            ] {
                event.visit(scope, &mut ());
            }
            for name in event.class().field_names() {
                std::hint::black_box(event.field(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_of_the_fixed_metadata_are_read() {
        fuzz_packets(&[1, 2, 9, 0, 0x55, 1, 2, 3]);
        fuzz_packets(&[0; 64]);
        fuzz_metadata(METADATA.as_bytes());
        assert_eq!(
            TraceClass::parse(METADATA.as_bytes())
                .map(|trace| trace.event_record_classes().len())
                .ok(),
            Some(4)
        );
    }

    #[test]
    fn metadata_and_stream_are_told_apart_by_the_first_nul() {
        let bytes = [METADATA.as_bytes(), &[0, 1, 2, 9, 0, 0x55, 1, 2, 3]].concat();
        let (trace, stream) = split(&bytes).expect("a NUL");
        assert_eq!((trace.stream_classes().len(), stream.len()), (2, 8));
        fuzz_trace(&bytes);
        fuzz_format(&bytes);
    }
}
