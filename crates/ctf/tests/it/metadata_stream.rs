//! Metadata that arrive piece by piece.

use std::fs;
use std::sync::Arc;

use ctf::{
    Error, MetadataProgress, MetadataStream, MetadataStreamProblem, TextProblem, TraceClass,
};

use crate::support::trace_folders;

const TEXT: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8; // ; not here
event { name = "a;}"; id = 0; stream_id = 0; fields := struct { u8 x; }; };
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u8 stream_id; }; };
stream { id = 0; event.header := struct { u8 id; }; };
event { name = b; id = 1; stream_id = 0; };
stream { id = 1; };
event { name = c; id = 0; stream_id = 1; };
"#;

/// Names of event record classes, in order, after each piece that brought something.
fn grown(pieces: &[&[u8]]) -> Vec<String> {
    let mut stream = MetadataStream::new();
    let mut all = Vec::new();
    for piece in pieces {
        if let MetadataProgress::Grown(trace) = stream.push(piece).expect("right so far") {
            all.push(trace.event_record_classes().iter().map(|class| class.name()).collect());
        }
    }
    let trace = stream.finish().expect("whole");
    assert_eq!(trace.event_record_classes().len(), 3);
    all
}

/// One metadata packet.
fn packet(text: &[u8], padding: usize) -> Vec<u8> {
    let bits = |bytes: usize| u32::try_from(bytes * 8).expect("size").to_le_bytes();
    let head: [&[u8]; 6] = [
        &0x75D1_1D57_u32.to_le_bytes(),
        &[7; 16],
        &[0; 4],
        &bits(37 + text.len()),
        &bits(37 + text.len() + padding),
        &[0, 0, 0, 1, 8],
    ];
    [&head.concat(), text, &vec![0; padding]].concat()
}

#[test]
fn declarations_count_when_they_are_whole_and_what_they_need_is_there() {
    let bytes: Vec<&[u8]> = TEXT.as_bytes().chunks(1).collect();
    // With the trace block there is no stream for the event yet; then each declaration brings itself.
    assert_eq!(grown(&bytes), ["a;}", "a;}b", "a;}b", "a;}bc"]);
    assert_eq!(grown(&[TEXT.as_bytes()]), ["a;}bc"]);
}

#[test]
fn packets_cut_anywhere_give_the_same() {
    let stream: Vec<u8> =
        TEXT.as_bytes().chunks(50).flat_map(|text| packet(text, text.len() % 7)).collect();
    let whole = TraceClass::parse(&stream).expect("packets");
    for len in [1, 3, 37, 64, 1000] {
        let pieces: Vec<&[u8]> = stream.chunks(len).collect();
        assert_eq!(grown(&pieces).last().map(String::as_str), Some("a;}bc"));
    }
    assert_eq!(whole.event_record_classes().len(), 3);
}

#[test]
fn what_is_missing_is_said_and_waited_for() {
    let mut stream = MetadataStream::new();
    let (before, after) = TEXT.split_at(TEXT.find("stream {").expect("there"));
    assert!(matches!(stream.push(before.as_bytes()), Ok(MetadataProgress::NeedMore)));
    assert!(matches!(
        stream.waiting_for(),
        Some(Error::MetadataText { problem: TextProblem::Unknown { what: "stream", .. }, .. })
    ));
    assert!(matches!(stream.push(after.as_bytes()), Ok(MetadataProgress::Grown(_))));
    assert_eq!(stream.waiting_for(), None);
}

#[test]
fn what_nothing_can_mend_stays_an_error() {
    let mut stream = MetadataStream::new();
    let error = stream.push(b"/* CTF 1.8 */ trace { major = }; ").expect_err("no value");
    assert!(matches!(error, Error::MetadataText { problem: TextProblem::Unexpected { .. }, .. }));
    assert_eq!(stream.push(TEXT.as_bytes()).expect_err("still"), error);

    let mut stream = MetadataStream::new();
    let whole = packet(TEXT.as_bytes(), 0);
    stream.push(&whole).expect("a packet");
    let error = stream.push(&[0; 40]).expect_err("no magic");
    assert!(
        matches!(error, Error::MetadataPacket { offset_bytes, .. } if offset_bytes == whole.len())
    );
}

#[test]
fn the_end_inside_something_is_an_error() {
    let mut stream = MetadataStream::new();
    let whole = packet(TEXT.as_bytes(), 0);
    stream.push(&whole[..whole.len() - 1]).expect("not enough yet");
    assert!(matches!(stream.finish(), Err(Error::MetadataPacket { offset_bytes: 0, .. })));

    let mut stream = MetadataStream::new();
    stream.push(TEXT.as_bytes()).expect("whole");
    stream.push(b"event {").expect("not enough yet");
    let end = stream.finish().expect_err("a block is open");
    assert!(
        matches!(end, Error::MetadataText { problem: TextProblem::Unfinished(_), .. }),
        "{end}"
    );
}

#[test]
fn an_end_while_something_is_waited_for_is_an_error() {
    let mut stream = MetadataStream::new();
    stream.push(TEXT.as_bytes()).expect("whole");
    let progress = stream.push(b"event { name = d; id = 0; stream_id = 9; };");
    assert!(matches!(progress, Ok(MetadataProgress::NeedMore)));
    let end = stream.finish().expect_err("no stream 9");
    assert!(
        matches!(end, Error::MetadataText { problem: TextProblem::Unknown { .. }, .. }),
        "{end}"
    );
}

#[test]
fn classes_never_move() {
    let mut stream = MetadataStream::new();
    let head = "/* CTF 1.8 */ typealias integer { size = 8; } := u8; trace { major = 1; minor = 8; byte_order = le;
        packet.header := struct { u8 stream_id; }; }; stream { id = 5; };";
    stream.push(head.as_bytes()).expect("metadata");
    let error = stream.push(b"stream { id = 3; };").expect_err("5 was first");
    assert_eq!(error, Error::MetadataStream(MetadataStreamProblem::Moved { stream_class_id: 5 }));
}

#[test]
fn json_fragments_count_when_they_are_whole() {
    let text =
        "\u{1e}{\"type\": \"preamble\", \"version\": 2}\n\u{1e}{\"type\": \"data-stream-class\"}
\u{1e}{\"type\": \"event-record-class\", \"name\": \"}\\\"\"}";
    let mut stream = MetadataStream::new();
    let mut counts = Vec::new();
    for piece in text.as_bytes().chunks(3) {
        if let MetadataProgress::Grown(trace) = stream.push(piece).expect("right so far") {
            counts.push(trace.event_record_classes().len());
        }
    }
    assert_eq!(counts, [0, 1]);
}

#[test]
fn recorded_metadata_in_pieces_declare_what_they_declare_in_one() {
    let Some(root) = testkit::unpacked_trace("kernel-picotrace") else {
        return testkit::skip("no recorded trace");
    };
    for folder in trace_folders(&root).into_iter().take(2) {
        let bytes = fs::read(folder.join("metadata")).expect("metadata");
        let whole = TraceClass::parse(&bytes).expect("metadata");
        let mut stream = MetadataStream::new();
        let mut last: Option<Arc<TraceClass>> = None;
        for piece in bytes.chunks(50_000) {
            if let MetadataProgress::Grown(trace) = stream.push(piece).expect("right so far") {
                let names = |trace: &TraceClass, count| -> Vec<String> {
                    let classes = trace.event_record_classes().iter().take(count);
                    classes.map(|class| class.name().to_owned()).collect()
                };
                if let Some(last) = &last {
                    let count = last.event_record_classes().len();
                    assert_eq!(names(last, count), names(&trace, count));
                }
                last = Some(trace);
            }
        }
        let trace = stream.finish().expect("whole");
        assert_eq!(trace.event_record_classes().len(), whole.event_record_classes().len());
    }
}
