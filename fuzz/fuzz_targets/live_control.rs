//! Every message of the LTTng relay protocol, read from arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::live::decode_any(bytes));
