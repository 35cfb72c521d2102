//! Memory that hostile bytes can take: in proportion to their number, and for packets that of their metadata alone.

use std::sync::Arc;

use ctf::packet::{EventReader, Outcome};
use ctf::{METADATA_BASE_BYTES, METADATA_FACTOR, MetadataStream, TraceClass};
use testkit::alloc::most_held;

const HEAD: &str = "/* CTF 1.8 */ typealias integer { size = 8; } := u8; trace { major = 1; minor = 8; byte_order = le; };";

fn all(count: usize, each: impl Fn(usize) -> String) -> String {
    (0..count).map(each).collect()
}

fn event(fields: &str) -> String {
    format!("event {{ name = e; fields := struct {{ {fields} }}; }};")
}

/// Texts that ask for much with few bytes, by what they do.
fn greedy() -> Vec<(&'static str, String)> {
    let doubling = all(40, |i| {
        let before = if i == 0 { "u8".to_owned() } else { format!("t{}", i - 1) };
        format!("typealias struct {{ {before} a; {before} b; }} := t{i};")
    });
    let wide = format!("typealias struct {{ {} }} := w;", all(500, |i| format!("u8 a{i};")));
    let labels = all(300, |i| format!("l{i},"));
    vec![
        ("doubling aliases as far as they are taken", format!("{doubling}{}", event("t12 x;"))),
        ("doubling aliases too far", format!("{doubling}{}", event("t39 x;"))),
        (
            "one wide alias in many members",
            format!("{wide}{}", event(&all(200, |i| format!("w m{i};")))),
        ),
        ("event classes", all(2000, |i| format!("event{{name=a;id={i};}};"))),
        ("sparse ids", all(2000, |i| format!("event{{name=a;id={};}};", i * 1_000_003))),
        ("clocks", all(2000, |i| format!("clock{{name=a{i};}};"))),
        ("empty structures", event(&all(4000, |i| format!("struct{{}}a{i};")))),
        ("alignments", event(&all(2000, |i| format!("struct{{}}align({})a{i};", 1 << (i % 20))))),
        ("deep structures", event(&format!("{} {}", "struct{".repeat(3000), "}a;".repeat(3000)))),
        ("deep arrays", event(&format!("u8 a{};", "[1]".repeat(3000)))),
        ("too deep", event(&"struct{".repeat(20_000))),
        (
            "labels in many variants",
            event(&format!(
                "enum:integer{{size=32;}}{{{labels}}}t;{}",
                all(300, |i| format!("variant<t>{{u8 l0;}}v{i};"))
            )),
        ),
        (
            "references to many options",
            event(&format!(
                "enum:integer{{size=32;}}{{{labels}}}t;variant<t>{{{}}}v;{}",
                all(300, |i| format!("u8 l{i};")),
                all(300, |i| format!("u8 a{i}[v];"))
            )),
        ),
        ("a long name", event(&format!("u8 {};", "n".repeat(100_000)))),
        ("unfinished text", format!("env {{ a = \"{}", "x".repeat(100_000))),
    ]
}

#[test]
fn metadata_hold_no_more_memory_than_their_size_accounts_for() {
    for (what, text) in greedy() {
        let text = format!("{HEAD}{text}");
        let (_, most) = most_held(|| drop(TraceClass::parse(text.as_bytes())));
        let bound = METADATA_BASE_BYTES + METADATA_FACTOR * text.len();
        assert!(most > 0 && most <= bound, "{what}: {} bytes take {most}", text.len());
    }
}

#[test]
fn metadata_in_pieces_hold_twice_that_at_most() {
    let text = format!("{HEAD}{}", all(300, |i| format!("event {{ name = a; id = {i}; }};")));
    let (classes, most) = most_held(|| {
        let mut stream = MetadataStream::new();
        for piece in text.as_bytes().chunks(100) {
            stream.push(piece).expect("metadata");
        }
        stream.finish().expect("metadata").event_record_classes().len()
    });
    assert_eq!(classes, 300);
    // The trace class before is held until the grown one is there.
    assert!(most <= 2 * (METADATA_BASE_BYTES + METADATA_FACTOR * text.len()), "{most}");
}

#[test]
fn packets_hold_no_memory_for_what_they_only_announce() {
    let fields = "integer { size = 64; } n; string s[n]; integer { size = 8; encoding = UTF8; } t[n]; struct {} e[n];";
    let trace = TraceClass::parse(format!("{HEAD}{}", event(fields)).as_bytes()).expect("metadata");
    let trace = Arc::new(trace);
    let read = |bytes: &[u8]| {
        let Ok(Outcome::Ready(mut events)) = EventReader::open(Arc::clone(&trace), bytes) else {
            return;
        };
        while let Ok(Some(event)) = events.next_event() {
            event.visit(ctf::Scope::Payload, &mut ());
        }
    };
    let small = most_held(|| read(&[0; 64])).1;
    for length in [2, 1 << 20, 1 << 40, u64::MAX] {
        let bytes = [&length.to_le_bytes() as &[u8], &[0; 4096]].concat();
        let (_, most) = most_held(|| read(&bytes));
        assert!(most <= small + 4096, "{length} elements take {most} bytes, none take {small}");
    }
}
