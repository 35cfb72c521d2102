//! The examples do what they say, each on what the first of them writes.

#![expect(dead_code, reason = "each example's main belongs to the command line")]

use std::fs;

use ctf::TraceClass;

#[path = "../../examples/cat.rs"]
mod cat;
#[path = "../../examples/live.rs"]
mod live;
#[path = "../../examples/typed.rs"]
mod typed;
#[path = "../../examples/write.rs"]
mod write;

const COUNT: u32 = 500;

#[test]
fn a_written_trace_is_printed_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    write::write(folder.path(), COUNT).unwrap();
    let mut text = Vec::new();
    cat::cat(folder.path(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count(), COUNT as usize);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        "[00:00:00.000001000] (+0.000001000) example request: { cpu_id = 0 }, { vtid = 42 }, \
         { size = 1, path = \"/index.html\" }"
    );
}

#[test]
fn several_streams_are_printed_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    write::write(folder.path(), COUNT).unwrap();
    fs::copy(folder.path().join("stream_0"), folder.path().join("stream_1")).unwrap();
    let mut text = Vec::new();
    cat::cat(folder.path(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let times: Vec<_> = text.lines().map(|line| &line[..20]).collect();
    assert_eq!(times.len(), 2 * COUNT as usize);
    assert!(times.is_sorted());
}

#[test]
fn one_field_is_added_up_by_its_handle() {
    let folder = tempfile::tempdir().unwrap();
    write::write(folder.path(), COUNT).unwrap();
    let expected = typed::Sum { events: COUNT.into(), total: (0..i128::from(COUNT)).sum() };
    assert_eq!(typed::sum(folder.path(), "request", "size").unwrap(), expected);
    assert!(typed::sum(folder.path(), "request", "absent").is_err());
    assert!(typed::sum(folder.path(), "absent", "size").is_err());
}

#[test]
fn a_stream_in_pieces_gives_the_event_records_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    write::write(folder.path(), COUNT).unwrap();
    let metadata = fs::read(folder.path().join("metadata")).unwrap();
    let stream = fs::read(folder.path().join("stream_0")).unwrap();
    for piece_bytes in [1, 7, 4096, stream.len()] {
        let mut live = live::Live::new(TraceClass::parse(&metadata).unwrap());
        let mut sizes = Vec::new();
        for piece in stream.chunks(piece_bytes) {
            live.feed(piece, |event| sizes.extend(event.field("size").and_then(|v| v.as_u64())))
                .unwrap();
            assert!(live.waiting() <= 4096 + piece_bytes);
        }
        assert_eq!(live.waiting(), 0);
        assert_eq!(sizes, (0..u64::from(COUNT)).collect::<Vec<_>>(), "pieces of {piece_bytes}");
    }
}
