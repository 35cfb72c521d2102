//! What CTF 2 metadata say of the fields in packets, and what is said when they cannot be right.

use std::fs;
use std::sync::Arc;

use ctf::format::text::{TextOptions, TextWriter};
use ctf::format::{Output, StreamText};
use ctf::packet::{EventReader, Outcome, Packets};
use ctf::{ClockOrigin, CtfVersion, DecodeErrorKind, Error, Role, TextProblem, TraceClass, Value};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::support::{Tally, read_stream, stream_files, trace_folders};

const DEFAULT: &str = "fixed-length-unsigned-integer";

/// Fragments as a text sequence.
fn sequence(fragments: &[Json]) -> Vec<u8> {
    fragments.iter().flat_map(|fragment| format!("\x1e{fragment}\n").into_bytes()).collect()
}

fn parse(fragments: &[Json]) -> Result<Arc<TraceClass>, Error> {
    TraceClass::parse(&sequence(fragments)).map(Arc::new)
}

fn preamble() -> Json {
    json!({"type": "preamble", "version": 2})
}

/// An unsigned integer of `length` bits, least significant byte first, with further members.
fn uint(length: u32, more: Json) -> Json {
    with(json!({"type": DEFAULT, "length": length, "byte-order": "little-endian"}), more)
}

fn with(mut class: Json, more: Json) -> Json {
    let members = class.as_object_mut().expect("an object");
    if let Json::Object(more) = more {
        members.extend(more);
    }
    class
}

fn structure(members: &[(&str, Json)]) -> Json {
    let member = |(name, class): &(&str, Json)| json!({"name": name, "field-class": class});
    json!({"type": "structure", "member-classes": members.iter().map(member).collect::<Vec<_>>()})
}

/// One data stream class, and one event record class with this payload.
fn payload(members: &[(&str, Json)]) -> [Json; 3] {
    let class = json!({"type": "event-record-class", "name": "e", "payload-field-class": structure(members)});
    [preamble(), json!({"type": "data-stream-class"}), class]
}

/// A text of as many bytes as the field at this path says.
fn text_of(path: &[&str]) -> Json {
    let path: Vec<Json> =
        path.iter().map(|name| if *name == "^" { Json::Null } else { json!(name) }).collect();
    json!({"type": "dynamic-length-string", "length-field-location": {"path": path}})
}

fn variant(selector: &str, options: &[(&str, Json, Json)]) -> Json {
    let option = |(name, class, ranges): &(&str, Json, Json)| json!({"name": name, "field-class": class, "selector-field-ranges": ranges});
    let options: Vec<_> = options.iter().map(option).collect();
    json!({"type": "variant", "selector-field-location": {"path": [selector]}, "options": options})
}

fn optional(selector: &str, class: Json, ranges: Json) -> Json {
    json!({"type": "optional", "selector-field-location": {"path": [selector]},
        "field-class": class, "selector-field-ranges": ranges})
}

/// The event records of a stream in one line.
fn shown(trace: &Arc<TraceClass>, stream: &[u8]) -> String {
    let mut writer = TextWriter::new(TextOptions::default(), Box::new(|_utc| 0));
    let (mut lines, stream_text) = (Output::new(), StreamText::new(""));
    for packet in Packets::new(trace, stream) {
        let bytes = packet.expect("a packet").bytes;
        let Ok(Outcome::Ready(mut events)) = EventReader::open(Arc::clone(trace), bytes) else {
            panic!("the packet's header was read before")
        };
        while let Some(event) = events.next_event().expect("an event record") {
            writer.write(&event, &stream_text, &mut lines);
        }
    }
    String::from_utf8_lossy(lines.as_bytes()).trim_end().replace('\n', " | ")
}

/// The fields of the event records of a stream, by metadata of one payload.
fn fields(members: &[(&str, Json)], stream: &[u8]) -> String {
    let trace = parse(&payload(members)).expect("right");
    shown(&trace, stream).replace("e: ", "")
}

/// Path of the place and what is wrong there.
fn refusal(fragments: &[Json]) -> (usize, String, TextProblem) {
    match parse(fragments) {
        Err(Error::MetadataJson { fragment, path, problem, .. }) => (fragment, path, problem),
        other => panic!("{other:?}"),
    }
}

fn reference_problem(members: &[(&str, Json)]) -> String {
    match refusal(&payload(members)).2 {
        TextProblem::Reference { path, problem } => format!("{path} {problem}"),
        other => panic!("{other}"),
    }
}

#[test]
fn locations_lead_through_variants_optional_fields_and_current_elements() {
    let byte = || uint(8, Json::Null);
    let with_len = |bits| structure(&[("len", uint(bits, Json::Null))]);
    let either =
        variant("s", &[("a", with_len(8), json!([[0, 0]])), ("b", with_len(16), json!([[1, 1]]))]);
    let through_variant = [("s", byte()), ("v", either), ("t", text_of(&["v", "len"]))];
    assert_eq!(
        fields(&through_variant, b"\x00\x01A\x01\x02\x00BC"),
        "{ s = 0, v = { { len = 1 } }, t = \"A\" } | { s = 1, v = { { len = 2 } }, t = \"BC\" }"
    );

    let maybe = optional("s", with_len(8), json!([[1, 1], [3, 9]]));
    let through_optional = [("s", byte()), ("o", maybe), ("t", text_of(&["o", "len"]))];
    assert_eq!(
        fields(&through_optional, b"\x05\x02AB"),
        "{ s = 5, o = { { len = 2 } }, t = \"AB\" }"
    );

    let element =
        structure(&[("len", byte()), ("in", structure(&[("t", text_of(&["^", "len"]))]))]);
    let array = json!({"type": "static-length-array", "length": 2, "element-field-class": element});
    assert_eq!(
        fields(&[("a", array)], b"\x01A\x02BC"),
        "{ a = [ [0] = { len = 1, in = { t = \"A\" } }, [1] = { len = 2, in = { t = \"BC\" } } ] }"
    );

    let location = json!({"origin": "event-record-payload", "path": ["a", "len"]});
    let text = with(text_of(&["len"]), json!({"length-field-location": location}));
    let element = structure(&[("len", byte()), ("t", text)]);
    let array = json!({"type": "static-length-array", "length": 2, "element-field-class": element});
    assert_eq!(
        fields(&[("a", array)], b"\x01A\x02BC"),
        "{ a = [ [0] = { len = 1, t = \"A\" }, [1] = { len = 2, t = \"BC\" } ] }"
    );
}

#[test]
fn locations_that_lead_nowhere_are_refused_with_their_path() {
    let byte = || uint(8, Json::Null);
    let inner = || structure(&[("x", byte())]);
    let array = json!({"type": "static-length-array", "length": 2, "element-field-class": inner()});
    let either = variant("n", &[("a", inner(), json!([[0, 0]])), ("b", byte(), json!([[1, 1]]))]);
    let mixed = variant(
        "n",
        &[
            ("a", byte(), json!([[0, 0]])),
            ("b", with(byte(), json!({"type": "fixed-length-signed-integer"})), json!([[1, 1]])),
        ],
    );
    let check = |before: (&str, Json), path: &[&str], problem: &str| {
        let found = reference_problem(&[("n", byte()), before, ("t", text_of(path))]);
        assert_eq!(found, format!("{} {problem}", path.join(".")));
    };
    check(("s", inner()), &["later"], "leads to no earlier field");
    check(("s", inner()), &["t"], "leads to no earlier field");
    check(("s", inner()), &["s", "y"], "leads to no earlier field");
    check(("s", inner()), &["s"], "leads to a structure");
    check(("s", inner()), &["n", "x"], "leads into a field without members");
    check(("s", inner()), &["^", "n"], "goes up further than its scope");
    check(("a", array), &["a", "x"], "leads into an array");
    check(("v", either), &["v", "x"], "leads into a field without members");
    check(("v", mixed), &["v"], "leads to fields of different kinds");
    let bits = with(byte(), json!({"type": "fixed-length-bit-array"}));
    check(("b", bits), &["b"], "leads to a bit array, which has no value");
    let truth = with(byte(), json!({"type": "fixed-length-boolean"}));
    check(("b", truth), &["b"], "leads to something other than an unsigned integer");
}

#[test]
fn a_length_in_an_absent_field_is_no_length() {
    let maybe = optional("s", uint(8, Json::Null), json!([[1, 1]]));
    let members = [("s", uint(8, Json::Null)), ("o", maybe), ("t", text_of(&["o"]))];
    let trace = parse(&payload(&members)).expect("right");
    assert_eq!(shown(&trace, b"\x01\x02AB"), "e: { s = 1, o = { 2 }, t = \"AB\" }");
    // The length of the event record before says nothing of this one.
    let error = read_stream(&trace, b"\x01\x01A\x00BCDE", &mut Tally::default(), |_| ())
        .expect_err("no length");
    let length = DecodeErrorKind::Length { length: u64::MAX, remaining_bits: 32 };
    assert!(matches!(&error, Error::Decode(error) if error.kind == length), "{error}");
}

#[test]
fn names_with_ranges_that_overlap_are_given_once() {
    let named = json!({"mappings": {"x": [[1, 5], [3, 9], [4, 4]], "y": [[5, 6]]}});
    let members = [("a", uint(8, named))];
    assert_eq!(
        fields(&members, b"\x04\x05"),
        "{ a = ( \"x\" : container = 4 ) } | { a = ( { \"x\", \"y\" } : container = 5 ) }"
    );
}

#[test]
fn every_kind_of_field_is_read() {
    let reversed = json!({"bit-order": "last-to-first"});
    assert_eq!(
        fields(
            &[
                ("low", uint(4, Json::Null)),
                ("turned", uint(4, reversed)),
                (
                    "half",
                    json!({"type": "fixed-length-floating-point-number", "length": 16, "byte-order": "big-endian"})
                ),
                (
                    "leb",
                    json!({"type": "variable-length-signed-integer", "mappings": {"least": [[-5, -1]]}})
                ),
                ("wide", json!({"type": "null-terminated-string", "encoding": "utf-16le"})),
                ("blob", json!({"type": "static-length-blob", "length": 2})),
                ("part", json!({"type": "static-length-string", "length": 4})),
            ],
            b"\x13\x3E\x00\x7Da\x00\xAC\x20\x00\x00\xCA\xFEhi\x00?"
        ),
        "{ low = 3, turned = 8, half = 1.5, leb = ( \"least\" : container = -3 ), \
         wide = \"a€\", blob = { ca fe }, part = \"hi\" }"
    );
}

#[test]
fn bits_of_a_map_have_the_names_of_their_ranges() {
    let flags =
        json!({"type": "fixed-length-bit-map", "flags": {"x": [[0, 1], [7, 7]], "y": [[3, 3]]}});
    let trace = parse(&payload(&[("map", uint(8, flags))])).expect("right");
    let names = |byte: u8| {
        let bytes = [byte];
        let Ok(Outcome::Ready(mut events)) = EventReader::open(Arc::clone(&trace), &bytes) else {
            panic!("no header")
        };
        let event = events.next_event().expect("right").expect("one");
        let Some(Value::Bits(bits)) = event.field("map") else { panic!("{event:?}") };
        bits.flags().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(0x00), [""; 0]);
    assert_eq!(names(0x04), [""; 0]);
    assert_eq!(names(0x82), ["x"]);
    assert_eq!(names(0x0A), ["x", "y"]);
}

/// A clock, a packet context of one begin time and this header.
fn clocked(begin: Json, header: Json) -> [Json; 4] {
    [
        preamble(),
        json!({"type": "clock-class", "id": "c", "name": "mono", "frequency": 1_000_000_000,
            "origin": {"name": "boot", "uid": "7"}, "offset-from-origin": {"seconds": -1, "cycles": 9}, "accuracy": 3}),
        json!({"type": "data-stream-class", "default-clock-class-id": "c",
            "packet-context-field-class": structure(&[("begin", begin)]),
            "event-record-header-field-class": structure(&[("time", header)])}),
        json!({"type": "event-record-class"}),
    ]
}

#[test]
fn a_time_of_variable_length_is_as_wide_as_it_is_in_the_packet() {
    let stamp = json!({"roles": ["default-clock-timestamp"]});
    let leb = with(json!({"type": "variable-length-unsigned-integer"}), stamp.clone());
    let trace = parse(&clocked(uint(16, stamp), leb)).expect("right");
    let mut times = Vec::new();
    // From 640: 14 bits that say 133, 7 bits that say 5 (after a wrap), 14 bits that say 138 and 70 that say 7.
    let stream = b"\x80\x02\x85\x01\x04\x8A\x01\x87\x80\x80\x80\x80\x80\x80\x80\x80\x00";
    read_stream(&trace, stream, &mut Tally::default(), |event| times.extend(event.clock_value()))
        .expect("right");
    assert_eq!(times, [16_384 + 133, 16_384 + 256 + 4, 32_768 + 138, 7]);
    let clock = &trace.clock_classes()[0];
    let origin = ClockOrigin::Custom { namespace: None, name: "boot".into(), uid: "7".into() };
    assert_eq!((clock.name.as_str(), &clock.origin, clock.accuracy), ("mono", &origin, Some(3)));
    assert_eq!((clock.offset_s, clock.offset, clock.to_ns(1)), (-1, 9, Ok(-999_999_990)));
    assert_eq!(trace.version(), CtfVersion::V2);
}

#[test]
fn a_field_can_have_several_roles() {
    let both = json!({"roles": ["packet-end-default-clock-timestamp", "default-clock-timestamp"]});
    let stamp = json!({"roles": ["default-clock-timestamp"]});
    let trace = parse(&clocked(uint(16, both), uint(8, stamp))).expect("right");
    let Ok(Outcome::Ready(events)) = EventReader::open(Arc::clone(&trace), b"\x80\x02\x85") else {
        panic!("no header")
    };
    assert_eq!((events.packet().begin, events.packet().end), (Some(640), Some(640)));
    let context = trace.stream_classes()[0].packet_context_class().expect("declared");
    let roles: Vec<_> = context.child("begin").expect("declared").roles().collect();
    assert_eq!(roles, [Role::PacketEnd, Role::ClockTimestamp]);
}

#[test]
fn handles_reach_into_variants_and_optional_fields() {
    let byte = || uint(8, Json::Null);
    let pair = structure(&[("x", byte()), ("y", byte())]);
    let unnamed =
        json!({"field-class": structure(&[("z", byte())]), "selector-field-ranges": [[2, 2]]});
    let mut either =
        variant("s", &[("one", pair, json!([[0, 1]])), ("two", byte(), json!([[3, 3]]))]);
    either["options"].as_array_mut().expect("options").push(unnamed);
    let maybe = optional("s", structure(&[("w", byte())]), json!([[0, 0]]));
    let trace = parse(&payload(&[("s", byte()), ("v", either), ("o", maybe)])).expect("right");
    let class = &trace.event_record_classes()[0];
    let handles =
        ["v.one.y", "v.two", "v.z", "v.y", "o.w"].map(|name| class.field_handle(name).expect(name));
    assert_eq!(class.field_handle("v.nothing"), None);

    let mut found = Vec::new();
    let stream = b"\x00\x0A\x0B\x0C\x01\x0D\x0E\x02\x0F\x03\x10";
    read_stream(&trace, stream, &mut Tally::default(), |event| {
        found.push(handles.map(|handle| event.get(handle).and_then(|value| value.as_u64())));
    })
    .expect("right");
    assert_eq!(found[0], [Some(0x0B), None, None, Some(0x0B), Some(0x0C)]);
    assert_eq!(found[1], [Some(0x0E), None, None, Some(0x0E), None]);
    assert_eq!(found[2], [None, None, Some(0x0F), None, None]);
    assert_eq!(found[3], [None, Some(0x10), None, None, None]);
}

#[test]
fn errors_name_the_fragment_the_member_and_the_value() {
    let wrong = [("a", uint(8, Json::Null)), ("b", uint(65, Json::Null))];
    let value = |attribute, found: &str| TextProblem::Value { attribute, found: found.to_owned() };
    assert_eq!(
        refusal(&payload(&wrong)),
        (
            3,
            "payload-field-class.member-classes[1].field-class.length".into(),
            value("length", "65")
        )
    );
    // Of several things that are wrong, the first.
    let wrong = [("a", uint(8, json!({"alignment": 6}))), ("b", uint(65, Json::Null))];
    assert_eq!(
        refusal(&payload(&wrong)).1,
        "payload-field-class.member-classes[0].field-class.alignment"
    );
    let unknown = uint(8, json!({"zoom": 1}));
    assert_eq!(
        refusal(&payload(&[("a", unknown)])).1,
        "payload-field-class.member-classes[0].field-class.zoom"
    );
    let extended = with(preamble(), json!({"extensions": {"my.tracer": {"turbo": true}}}));
    let unsupported = TextProblem::Unsupported { what: "extension", name: "my.tracer".into() };
    assert_eq!(refusal(&[extended]), (1, "extensions.my.tracer".into(), unsupported));

    let text = b"\x1e{\"type\": \"preamble\", \"version\": 2}\n\x1e{\"type\":\n  \"trace-class\",}";
    let error = TraceClass::parse(text).expect_err("no JSON");
    let Error::MetadataJson { offset_bytes, line, fragment, path, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*offset_bytes, *line, *fragment, path.as_str()), (62, 3, 2, ""));
    assert_eq!(
        error.to_string(),
        "metadata fragment 2, line 3, byte 62: expected the name of a member, found }"
    );
}

#[test]
fn packets_of_metadata_may_hold_a_text_sequence_cut_anywhere() {
    let text = sequence(&payload(&[("a", uint(8, json!({"mappings": {"é": [[1, 2]]}})))]));
    for cut in [1, 40, text.len() / 2, text.len() - 1] {
        let mut packets = Vec::new();
        for part in [&text[..cut], &text[cut..]] {
            let bits = u32::try_from((37 + part.len()) * 8).expect("short");
            packets.extend(0x75D1_1D57_u32.to_be_bytes());
            packets.extend([7; 16]);
            packets.extend([0; 4]);
            packets.extend(bits.to_be_bytes());
            packets.extend((bits + 80).to_be_bytes());
            packets.extend([0, 0, 0, 2, 0]);
            packets.extend(part);
            packets.extend([0; 10]);
        }
        let trace = Arc::new(TraceClass::parse(&packets).expect("right"));
        assert_eq!(trace.version(), CtfVersion::V2);
        assert_eq!(shown(&trace, b"\x02"), "e: { a = ( \"é\" : container = 2 ) }", "{cut}");
    }
}

#[test]
fn nesting_is_bounded_and_aliases_cannot_multiply_without_end() {
    let nested = |levels: usize| {
        let open =
            r#"{"type":"structure","member-classes":[{"name":"m","field-class":"#.repeat(levels);
        let head = "\x1e{\"type\":\"preamble\",\"version\":2}\x1e{\"type\":\"data-stream-class\"}";
        let class = "\x1e{\"type\":\"event-record-class\",\"payload-field-class\":";
        let leaf = r#"{"type":"null-terminated-string"}"#;
        format!("{head}{class}{open}{leaf}{}}}", "}]}".repeat(levels))
    };
    let deep = Arc::new(TraceClass::parse(nested(4000).as_bytes()).expect("not too deep"));
    let mut tally = Tally::default();
    read_stream(&deep, b"hello\0", &mut tally, |_| ()).expect("right");
    assert_eq!((tally.events, tally.fields), (1, 1));
    for levels in [4096, 100_000] {
        let error = TraceClass::parse(nested(levels).as_bytes()).expect_err("too deep");
        assert!(
            matches!(error, Error::MetadataJson { problem: TextProblem::TooMany { .. }, .. }),
            "{error}"
        );
    }

    let mut fragments = vec![
        preamble(),
        json!({"type": "field-class-alias", "name": "0", "field-class": uint(8, Json::Null)}),
    ];
    for level in 1..40 {
        let before = || json!((level - 1).to_string());
        let twice = structure(&[("a", before()), ("b", before())]);
        fragments.push(
            json!({"type": "field-class-alias", "name": level.to_string(), "field-class": twice}),
        );
    }
    fragments.push(json!({"type": "data-stream-class"}));
    fragments.push(json!({"type": "event-record-class", "payload-field-class": "39"}));
    assert!(matches!(refusal(&fragments).2, TextProblem::TooMany { what: "fields", .. }));
}

#[test]
fn many_classes_options_and_references_are_read() {
    let byte = || uint(8, Json::Null);
    let mut fragments = vec![
        preamble(),
        json!({"type": "data-stream-class",
        "event-record-header-field-class": structure(&[("id", uint(32, json!({"roles": ["event-record-class-id"]})))])}),
    ];
    for id in 0..20_000 {
        fragments.push(json!({"type": "event-record-class", "id": id, "name": id.to_string()}));
    }
    let names: Vec<_> = (0..3000).map(|n| n.to_string()).collect();
    let options: Vec<_> =
        names.iter().enumerate().map(|(n, name)| (&**name, byte(), json!([[n, n]]))).collect();
    let mut members: Vec<_> = vec![("s", byte()), ("v", variant("s", &options))];
    let lengths: Vec<_> = (0..3000).map(|n| (format!("l{n}"), format!("t{n}"))).collect();
    for (length, text) in &lengths {
        members.extend([(&**length, byte()), (&**text, text_of(&[length]))]);
    }
    fragments.push(with(payload(&members)[2].clone(), json!({"id": 20_000})));
    let trace = parse(&fragments).expect("right");
    assert_eq!(trace.event_record_classes().len(), 20_001);
    let stream = [&20_000_u32.to_le_bytes() as &[u8], &[5, 9], &[0; 3000]].concat();
    let mut tally = Tally::default();
    read_stream(&trace, &stream, &mut tally, |_| ()).expect("right");
    assert_eq!((tally.events, tally.fields), (1, 1 + 2 + 6000));
}

/// Metadata of CTF 2 and the beginning of a stream each.
fn real_inputs() -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = ["ust-ctf2", "conformance"];
    let folders = names
        .iter()
        .filter_map(|name| testkit::unpacked_trace(name))
        .flat_map(|root| trace_folders(&root));
    let read = |folder: std::path::PathBuf| {
        let metadata = fs::read(folder.join("metadata")).expect("metadata");
        let stream = stream_files(&folder).first().map(|file| fs::read(file).expect("stream"));
        (metadata, stream.unwrap_or_default().into_iter().take(4096).collect())
    };
    folders.map(read).filter(|(metadata, _)| metadata.first() == Some(&0x1E)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn damaged_metadata_never_panics(
        which in any::<prop::sample::Index>(),
        bytes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
    ) {
        thread_local! { static INPUTS: Vec<(Vec<u8>, Vec<u8>)> = real_inputs(); }
        let input = INPUTS.with(|all| (!all.is_empty()).then(|| all[which.index(all.len())].clone()));
        let Some((metadata, stream)) = input else {
            testkit::skip("no recorded traces");
            return Ok(());
        };
        // Texts and numbers change places, so that most of what comes out is JSON of the wrong shape.
        let text = String::from_utf8_lossy(&metadata).into_owned();
        let mut words: Vec<String> = text.split_inclusive(['"', ',', ':', ' ']).map(str::to_owned).collect();
        for (left, right) in &swaps {
            let (left, right) = (left.index(words.len()), right.index(words.len()));
            words.swap(left, right);
        }
        let mut damaged = words.concat().into_bytes();
        for (place, byte) in &bytes {
            let place = place.index(damaged.len());
            damaged[place] = *byte;
        }
        match TraceClass::parse(&damaged) {
            Ok(trace) => {
                let ended = read_stream(&Arc::new(trace), &stream, &mut Tally::default(), |_| ());
                prop_assert!(ended.is_ok() || matches!(ended, Err(Error::Decode(_))));
            }
            Err(Error::MetadataJson { offset_bytes, .. }) => prop_assert!(offset_bytes <= damaged.len()),
            Err(error) => prop_assert!(damaged.first() != Some(&0x1E), "{error}"),
        }
    }
}
