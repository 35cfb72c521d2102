//! TSDL text. Without the signature most inputs would end at their first byte.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    throughline_fuzz::bounded_metadata(&[b"/* CTF 1.8 */", bytes].concat());
});
