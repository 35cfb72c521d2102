//! What bodies that are made to take memory do take.

use intake::{Encoding, Ingest, Limits, PprofSource, Taken, ingest, otlp, pprof, push};
use model::Timestamp;
use testkit::alloc::{Counting, most_held};
use wire::proto::Writer;

use crate::support::NOW;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BYTES: usize = 1 << 18;

/// Fails where work on a body of [`BYTES`] holds more than so many times its size.
fn check(what: &str, factor: usize, work: impl FnOnce(&Limits, Timestamp)) {
    let limits =
        Limits { body_bytes: BYTES, profile_bytes: BYTES, text_bytes: BYTES, ..Limits::default() };
    let ((), most) = most_held(|| work(&limits, Timestamp::from_nanos(NOW)));
    assert!(
        (1..=factor * BYTES).contains(&most),
        "{what}: {most} bytes, {} times its own",
        most / BYTES
    );
}

/// As many of a field as a body holds.
fn filled(mut write: impl FnMut(&mut Writer, u64)) -> Vec<u8> {
    let mut out = Writer::default();
    out.blob(6, b"");
    let mut at = 1;
    while out.bytes.len() < BYTES - 64 {
        write(&mut out, at);
        at += 1;
    }
    out.bytes
}

#[test]
fn tables_of_pprof_have_a_bound() {
    let profile = |body: &[u8], limits: &Limits, at| {
        let labels = vec![("__name__".to_owned(), "memory".to_owned())];
        let Taken { profiles, .. } = pprof(body, PprofSource { id: 1, labels }, limits, at);
        assert_eq!(profiles.len(), 1);
    };
    let mut bodies = vec![
        ("mappings", filled(|out, _| out.message(3, |_| ()))),
        ("locations", filled(|out, at| out.message(4, |out| out.uint(1, at)))),
        ("functions", filled(|out, at| out.message(5, |out| out.uint(1, at)))),
        ("strings", filled(|out, _| out.blob(6, b""))),
        (
            "lines",
            filled(|out, _| out.message(4, |out| (0..1_000).for_each(|_| out.message(4, |_| ())))),
        ),
        ("samples", filled(|out, _| out.message(2, |_| ()))),
        ("values", filled(|out, _| out.message(2, |out| out.packed(2, [1; 10_000])))),
    ];
    // One stack of one location with very many functions, in each sample.
    let mut inlined = filled(|out, _| out.message(2, |out| out.packed(1, [1; 60])));
    inlined.truncate(BYTES / 2);
    bodies.push(("cut", inlined));
    for (what, body) in bodies {
        check(what, 32, |limits, at| profile(&body, limits, at));
    }
}

#[test]
fn json_has_a_bound() {
    for piece in ["0,", "[],", "{},", "\"\",", "{\"a\":0},", "null,", "[[0]],"] {
        let body = format!("{{\"series\":[{}0]}}", piece.repeat((BYTES - 64) / piece.len()));
        check(piece, 8, |limits, at| {
            push(body.as_bytes(), Encoding::Json, limits, at).unwrap_err();
        });
        check(piece, 8, |limits, at| {
            otlp(body.as_bytes(), Encoding::Json, limits, at).unwrap();
        });
    }
}

#[test]
fn text_and_trees_have_a_bound() {
    let bodies = [
        ("", "a 1\n".repeat(BYTES / 4)),
        ("", (0..BYTES / 8).map(|at| format!("{at:05x} 1\n")).collect()),
        ("", format!("{} 1\n", "a;".repeat(BYTES / 2 - 2))),
        ("lines", (0..BYTES / 8).map(|at| format!("{at:06x}\n")).collect()),
        ("trie", "\x01a\x01\x01".repeat(BYTES / 4)),
        ("tree", "\x01a\x01\x01".repeat(BYTES / 4)),
    ];
    let file = |frames: &str, samples: &str| {
        let schema = "https://www.speedscope.app/file-format-schema.json";
        let frames = frames.repeat((BYTES - 512) / frames.len().max(1));
        let samples = samples.repeat((BYTES - 512) / samples.len().max(1));
        format!(
            r#"{{"$schema":"{schema}","shared":{{"frames":[{frames}{{"name":"a"}}]}},"profiles":[{{"type":"sampled","unit":"none","samples":[{samples}[0]],"weights":[1]}}]}}"#
        )
    };
    let files = [
        ("speedscope", file("", "[],")),
        ("speedscope", file("", "[0],")),
        ("speedscope", file("{\"name\":\"\"},", "")),
    ];
    for (format, body) in bodies.into_iter().chain(files) {
        let query = format!("name=a&format={format}");
        check(&query, 32, |limits, at| {
            let request = Ingest { query: &query, content_type: "", body: body.as_bytes() };
            assert_eq!(ingest(request, limits, at).unwrap().profiles.len(), 1);
        });
    }
}

/// A packed number of so many bytes.
fn packed<const LENGTH: usize>(number: usize) -> [u8; LENGTH] {
    std::array::from_fn(|at| {
        let more = if at + 1 < LENGTH { 0x80 } else { 0 };
        (number >> (7 * at)).to_le_bytes()[0] & 0x7f | more
    })
}

/// A chunk of a flight recording whose events are these, each with its type and bytes.
fn chunk(events: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0; 68];
    for (class, bytes) in events {
        // The size's own four bytes are counted.
        out.extend(packed::<4>(bytes.len() + 5));
        out.push(*class);
        out.extend(bytes);
    }
    let size = out.len() as u64;
    out[..6].copy_from_slice(b"FLR\0\0\x02");
    out[8..16].copy_from_slice(&size.to_be_bytes());
    out[67] = 1;
    out
}

/// Metadata of a class 9 called so, with fields of itself that are no constants, and no others.
fn metadata(name: &str, fields: u8) -> Vec<u8> {
    let texts = ["class", "id", "9", "name", name, "field"];
    let mut out = vec![0, 0, 0];
    out.extend(packed::<1>(texts.len()));
    for text in texts {
        out.push(3);
        out.extend(packed::<1>(text.len()));
        out.extend(text.bytes());
    }
    out.extend([0, 2, 1, 2, 3, 4, fields]);
    (0..fields).for_each(|_| out.extend([5, 2, 3, 4, 0, 2, 0]));
    out
}

#[test]
fn recordings_have_a_bound() {
    let texts = (BYTES - 200) / 2;
    let mut of_texts = vec![0, 0, 0];
    of_texts.extend(packed::<3>(texts));
    of_texts.extend([3, 0].repeat(texts));
    // Elements that are all called by one long text, which is not as it is kept.
    let long = BYTES / 2;
    let mut of_names = vec![0, 0, 0, 4, 3, 5];
    of_names.extend(b"class\x03\x02id\x03\x04name\x05");
    of_names.extend(packed::<3>(long));
    of_names.extend(vec![b'0'; long]);
    // A root of so many classes with this name and this id.
    let classes = (BYTES / 2 - 200) / 7;
    of_names.extend([0, 0]);
    of_names.extend(packed::<3>(classes));
    of_names.extend([0, 2, 1, 3, 2, 3, 0].repeat(classes));
    // Constants of a class without fields: a number each.
    let count = (BYTES - 200) / 3;
    let mut constants = vec![0, 0, 0, 0, 1, 9];
    constants.extend(packed::<3>(count));
    (0..count).for_each(|at| constants.extend(packed::<3>(at)));
    let bodies = [
        ("texts", chunk(&[(0, of_texts)]), "one of 65,536 texts at most"),
        ("names", chunk(&[(0, of_names)]), ""),
        ("constants", chunk(&[(0, metadata("jdk.types.Symbol", 0)), (1, constants)]), ""),
        ("chunks", chunk(&[(0, metadata("a", 0))]).repeat(BYTES / 200), ""),
        // Fields of fields, without a byte: 100^16 values.
        ("deep", chunk(&[(0, metadata("a", 100)), (1, vec![0, 0, 0, 0, 1, 9, 1, 1])]), "more than"),
    ];
    for (what, body, words) in bodies {
        check(what, 32, |limits, at| {
            let query = "name=a&format=jfr";
            let error = match ingest(Ingest { query, content_type: "", body: &body }, limits, at) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            assert!(
                error.contains(words) && error.is_empty() == words.is_empty(),
                "{what}: {error}"
            );
        });
    }
}
