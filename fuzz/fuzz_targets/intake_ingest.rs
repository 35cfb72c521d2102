//! Bytes as a body of `/ingest` in the format that the first byte says, and as an address: refused, or profiles that were taken or not.
#![no_main]

use intake::{Ingest, Limits, Query, ingest};
use libfuzzer_sys::fuzz_target;
use model::Timestamp;

const KINDS: [(&str, &str); 7] = [
    ("name=a&format=pprof&spyName=pyspy", ""),
    ("name=a", "multipart/form-data; boundary=x"),
    ("name=a", ""),
    ("name=a&format=lines", ""),
    ("name=a&format=trie", ""),
    ("name=a&format=tree", ""),
    ("name=a&format=speedscope", ""),
];

fuzz_target!(|bytes: &[u8]| {
    let received = Timestamp::from_nanos(0);
    let Some((&kind, body)) = bytes.split_first() else { return };
    if let Ok(text) = std::str::from_utf8(body) {
        let _query = Query::parse(text, received);
    }
    let (query, content_type) = KINDS[usize::from(kind) % KINDS.len()];
    let limits = Limits { body_bytes: 1 << 20, oldest: None, newest: None, ..Limits::default() };
    if let Ok(taken) = ingest(Ingest { query, content_type, body }, &limits, received) {
        throughline_fuzz::check(&taken);
    }
});
