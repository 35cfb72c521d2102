//! Bytes as a flight recording of Java, with labels before it as long as the first byte says: refused, or profiles that were taken or not.
#![no_main]

use intake::{Ingest, Limits, ingest};
use libfuzzer_sys::fuzz_target;
use model::Timestamp;

fuzz_target!(|bytes: &[u8]| {
    let Some((&length, rest)) = bytes.split_first() else { return };
    let Some((labels, recording)) = rest.split_at_checked(length.into()) else { return };
    let head = |name| format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    let (labels_head, recording_head) = (head("labels"), head("jfr"));
    let form = [
        labels_head.as_bytes(),
        labels,
        b"\r\n",
        recording_head.as_bytes(),
        recording,
        b"\r\n--x--",
    ];
    let form = form.concat();
    let (query, content_type, body) = match length {
        0 => ("name=a&format=jfr", "", recording),
        _ => ("name=a&format=jfr", "multipart/form-data; boundary=x", form.as_slice()),
    };
    let limits = Limits { body_bytes: 1 << 20, oldest: None, newest: None, ..Limits::default() };
    if let Ok(taken) = ingest(Ingest { query, content_type, body }, &limits, Timestamp::from_nanos(0)) {
        throughline_fuzz::check(&taken);
    }
});
