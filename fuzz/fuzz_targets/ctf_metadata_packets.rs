//! Packetised metadata, in either byte order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| throughline_fuzz::bounded_metadata(bytes));
