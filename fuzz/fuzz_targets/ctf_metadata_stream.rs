//! Metadata in pieces: the same outcome as in one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ctf::fuzz_metadata_stream(bytes));
