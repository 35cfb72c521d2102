//! Every message of the viewer connection, read from arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::live::viewer::decode_any(bytes));
