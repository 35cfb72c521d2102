//! CTF 2 metadata: a JSON text sequence.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let begin: &[u8] = if bytes.first() == Some(&0x1E) { b"" } else { b"\x1e" };
    throughline_fuzz::bounded_metadata(&[begin, bytes].concat());
});
