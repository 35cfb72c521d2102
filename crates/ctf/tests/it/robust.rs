//! Damaged and hostile bytes: an error that says where, never a panic, never memory for what is only announced.

use std::fs;
use std::sync::{Arc, OnceLock};

use ctf::packet::{EventReader, Outcome, decode_packet_header};
use ctf::{DecodeErrorKind, Error, TextProblem, TraceClass};
use proptest::prelude::*;

use crate::support::{Tally, read_stream, stream_files, trace_folders};

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; } := u32;
typealias integer { size = 64; } := u64;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };
clock { name = c; };
stream {
    packet.context := struct { u64 content_size; u64 packet_size; };
    event.header := struct { enum : u8 { small = 0 ... 254, big = 255 } id;
        variant <id> { struct { integer { size = 32; map = clock.c.value; } timestamp; } small;
                       struct { u32 id; integer { size = 64; map = clock.c.value; } timestamp; } big; } v; };
    event.context := struct { u32 _vtid; };
};
event { id = 0; name = "many"; fields := struct { u64 _n; u64 _all[_n]; string _end; }; };
event { id = 1; name = "nothing"; fields := struct { u64 _n; struct {} _all[_n]; }; };
event { id = 2; name = "deep"; fields := struct {
    u8 _n; struct { enum : u8 { a, b = 7 } _t; variant <_t> { u32 a; string b; } _v; u8 _l; u8 _x[_l]; } _s[_n]; }; };
"#;

fn trace() -> Arc<TraceClass> {
    static TRACE: OnceLock<Arc<TraceClass>> = OnceLock::new();
    let parse = || Arc::new(TraceClass::parse(METADATA.as_bytes()).expect("metadata"));
    Arc::clone(TRACE.get_or_init(parse))
}

/// A packet of these event records that announces its real length, or `announced` bits.
fn packet(records: &[u8], announced: Option<u64>) -> Vec<u8> {
    let bits =
        announced.unwrap_or_else(|| u64::try_from((20 + records.len()) * 8).expect("length"));
    let header =
        [&0xC1FC_1FC1_u32.to_le_bytes() as &[u8], &bits.to_le_bytes(), &bits.to_le_bytes()];
    [&header.concat(), records].concat()
}

/// An event record of class `id` with this payload.
fn record(id: u8, payload: &[u8]) -> Vec<u8> {
    [&[id, 1, 0, 0, 0, 9, 0, 0, 0], payload].concat()
}

fn first_error(bytes: &[u8]) -> Option<Error> {
    read_stream(&trace(), bytes, &mut Tally::default(), |_| ()).err()
}

fn kind_of(bytes: &[u8]) -> Option<(u64, DecodeErrorKind)> {
    match first_error(bytes)? {
        Error::Decode(error) => Some((error.offset_bits, error.kind)),
        _ => None,
    }
}

#[test]
fn ten_gigabytes_announced_are_ten_gigabytes_missing() {
    let announced_bits = 80 << 30;
    let bytes = packet(&record(0, &[1, 0, 0, 0, 0, 0, 0, 0]), Some(announced_bits));
    let truncated = DecodeErrorKind::Truncated { announced_bits, available_bits: 37 * 8 };
    assert_eq!(kind_of(&bytes), Some((37 * 8, truncated)));

    let Ok(Outcome::Ready(info)) = decode_packet_header(&trace(), &bytes) else {
        panic!("a whole header")
    };
    assert_eq!(info.total_bytes(), Some(10 << 30));
}

#[test]
fn a_length_beyond_the_content_is_refused_before_its_elements() {
    let bytes = packet(&record(0, &u64::MAX.to_le_bytes()), None);
    let length = DecodeErrorKind::Length { length: u64::MAX, remaining_bits: 0 };
    assert_eq!(kind_of(&bytes), Some((37 * 8, length)));
}

#[test]
fn elements_of_no_size_are_bounded() {
    let bytes = packet(&record(1, &(1_u64 << 60).to_le_bytes()), None);
    let limit = (1 << 16) + u64::try_from(bytes.len() * 8).expect("length");
    assert_eq!(kind_of(&bytes), Some((37 * 8, DecodeErrorKind::EmptyElements { limit })));
}

#[test]
fn elements_of_no_size_are_bounded_in_a_packet_as_a_whole() {
    let each = record(1, &30_000_u64.to_le_bytes());
    let records = each.repeat(10);
    let bytes = packet(&records, None);
    let bits = |len: usize| u64::try_from(len * 8).expect("length");
    // The limit is 65,536 and some more by the packet's size: two event records fit.
    let kind = DecodeErrorKind::EmptyElements { limit: (1 << 16) + bits(bytes.len()) };
    assert_eq!(kind_of(&bytes), Some((bits(20 + 3 * each.len()), kind)));
    let two = packet(&each.repeat(2), None);
    assert_eq!(kind_of(&two), None);
    // The next packet has its own.
    assert_eq!(kind_of(&[two.clone(), two].concat()), None);
}

#[test]
fn an_error_names_the_event_record_and_the_field() {
    let good = record(2, &[0]);
    let bad = record(2, &[2, 0, 1, 0, 0, 0, 0, 3]);
    let Some(Error::Decode(error)) = first_error(&packet(&[good, bad].concat(), None)) else {
        panic!("no error")
    };
    assert_eq!(error.event_index, Some(1));
    assert_eq!(error.field, "payload.s[].v");
    assert_eq!(error.kind, DecodeErrorKind::NoOption { selector: 3 });
    assert_eq!(error.offset_bits, (20 + 10 + 9 + 8) * 8);
}

#[test]
fn a_packet_header_that_is_not_there_yet_is_waited_for() {
    let bytes = packet(&[], None);
    let trace = trace();
    for len in 0..bytes.len() {
        let outcome = decode_packet_header(&trace, &bytes[..len]).expect("nothing wrong so far");
        let Outcome::NeedMore { at_least_bytes } = outcome else {
            panic!("{len} bytes are enough")
        };
        assert!(at_least_bytes > len && at_least_bytes <= bytes.len());
    }
    assert!(matches!(decode_packet_header(&trace, &bytes), Ok(Outcome::Ready(_))));
}

#[test]
fn lengths_that_contradict_each_other_and_a_wrong_magic_are_refused() {
    for announced in [0, 7 * 8, 20 * 8 + 1] {
        let kind = decode_packet_header(&trace(), &packet(&[], Some(announced)))
            .map_err(|error| error.kind);
        assert!(matches!(kind, Err(DecodeErrorKind::PacketSizes { .. })), "{announced}: {kind:?}");
    }
    let kind = decode_packet_header(&trace(), b"12345678").map_err(|error| error.kind);
    assert_eq!(kind, Err(DecodeErrorKind::Magic { found: 0x3433_3231 }));
}

#[test]
fn metadata_cut_anywhere_inside_a_statement_says_where_it_ends() {
    let end = METADATA.rfind('}').expect("brace");
    for len in (20..end).step_by(7) {
        if let Err(error) = TraceClass::parse(&METADATA.as_bytes()[..len]) {
            let Error::MetadataText { offset_bytes, line, .. } = error else { panic!("{error}") };
            assert!(offset_bytes <= len);
            assert!(line <= METADATA[..len].lines().count() + 1);
        }
    }
    let error = TraceClass::parse(&METADATA.as_bytes()[..end - 10]).expect_err("cut");
    assert!(
        matches!(error, Error::MetadataText { problem: TextProblem::Unfinished(_), .. }),
        "{error}"
    );
}

#[test]
fn aliases_that_double_at_each_step_are_refused() {
    let mut text = "/* CTF 1.8 */ typealias integer { size = 8; } := t0;\n".to_owned();
    for step in 1..64 {
        text.push_str(&format!("typealias struct {{ t{0} a; t{0} b; }} := t{step};\n", step - 1));
    }
    text.push_str("trace { major = 1; minor = 8; byte_order = le; }; stream {}; event { name = e; fields := struct { t63 x; }; };");
    let error = TraceClass::parse(text.as_bytes()).expect_err("2 to the power of 63 fields");
    assert!(
        matches!(error, Error::MetadataText { problem: TextProblem::TooMany { .. }, .. }),
        "{error}"
    );
}

#[test]
fn nesting_has_a_limit_and_no_call_depth() {
    let nested = |depth: usize| {
        let (open, close) = ("struct { ".repeat(depth), "} x; ".repeat(depth - 1));
        format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }}; stream {{}};
            event {{ name = e; fields := {open} integer {{ size = 8; }} x; {close} }}; }};"
        )
    };
    let trace = Arc::new(TraceClass::parse(nested(4000).as_bytes()).expect("4,000 levels"));
    let mut tally = Tally::default();
    read_stream(&trace, &[1, 2, 3], &mut tally, |_| ()).expect("three event records");
    assert_eq!((tally.events, tally.fields), (3, 3));
    for depth in [5000, 200_000] {
        let error = TraceClass::parse(nested(depth).as_bytes()).expect_err("too deep");
        assert!(
            matches!(error, Error::MetadataText { problem: TextProblem::TooMany { .. }, .. }),
            "{error}"
        );
    }
    let brackets = format!("/* CTF 1.8 */ typedef string s{};", "[2]".repeat(100_000));
    assert!(TraceClass::parse(brackets.as_bytes()).is_err());
}

#[test]
fn what_is_no_metadata_is_refused() {
    assert!(matches!(TraceClass::parse(b"hello"), Err(Error::NotMetadata { .. })));
}

/// Metadata, what it says, and the beginning of a stream.
type RealInput = (Vec<u8>, Arc<TraceClass>, Vec<u8>);

/// The metadata and the first packet's worth of bytes of a few real traces.
fn real_inputs() -> &'static [RealInput] {
    static INPUTS: OnceLock<Vec<RealInput>> = OnceLock::new();
    INPUTS.get_or_init(|| {
        let names = ["kernel-big-endian", "ust-ros2", "kernel-picotrace"];
        let folders = names
            .iter()
            .filter_map(|name| testkit::unpacked_trace(name))
            .flat_map(|root| trace_folders(&root));
        let read = |folder: std::path::PathBuf| {
            let metadata = fs::read(folder.join("metadata")).expect("metadata");
            let trace = Arc::new(TraceClass::parse(&metadata).expect("real metadata"));
            let stream = stream_files(&folder)
                .into_iter()
                .find_map(|file| fs::read(file).ok().filter(|bytes| bytes.len() > 100));
            (
                metadata,
                trace,
                stream.map_or_else(Vec::new, |bytes| bytes.into_iter().take(8192).collect()),
            )
        };
        let inputs: Vec<_> = folders.map(read).collect();
        if inputs.is_empty() {
            testkit::skip("no recorded traces");
        }
        inputs
    })
}

fn damage(bytes: &mut Vec<u8>, changes: &[(prop::sample::Index, u8)], cut: prop::sample::Index) {
    for (place, byte) in changes {
        if !bytes.is_empty() {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
    }
    // Cuts a part of the inputs only.
    let len = cut.index(bytes.len() * 2 + 1);
    bytes.truncate(len);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn damaged_packets_never_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let inputs = real_inputs();
        if inputs.is_empty() {
            return Ok(());
        }
        let (_, trace, bytes) = &inputs[which.index(inputs.len())];
        let mut bytes = bytes.clone();
        damage(&mut bytes, &changes, cut);
        let mut tally = Tally::default();
        // Whether it is an error depends on where the damage is; that it ends, and how, is what counts.
        let ended = read_stream(trace, &bytes, &mut tally, |event| assert!(event.end_bits() > event.begin_bits()));
        prop_assert!(ended.is_ok() || matches!(ended, Err(Error::Decode(_))));
        prop_assert!(tally.events <= u64::try_from(bytes.len() * 8).expect("length"));
    }

    #[test]
    fn damaged_metadata_never_panics(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let inputs = real_inputs();
        if inputs.is_empty() {
            return Ok(());
        }
        let (metadata, _, bytes) = &inputs[which.index(inputs.len())];
        let mut metadata = metadata.clone();
        damage(&mut metadata, &changes, cut);
        if let Ok(trace) = TraceClass::parse(&metadata) {
            let ended = read_stream(&Arc::new(trace), bytes, &mut Tally::default(), |_| ());
            prop_assert!(ended.is_ok() || matches!(ended, Err(Error::Decode(_))));
        }
    }

    #[test]
    fn any_event_bytes_end(records in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = packet(&records, None);
        if let Ok(Outcome::Ready(mut events)) = EventReader::open(trace(), &bytes) {
            let mut last = events.packet().header_end_bits;
            while let Ok(Some(event)) = events.next_event() {
                prop_assert!(event.end_bits() > last);
                last = event.end_bits();
            }
            prop_assert!(!events.advance().expect("an ended packet stays ended"));
        }
    }
}
