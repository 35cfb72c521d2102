//! Metadata up to the first NUL, then packets that are read by it and shown as text and as JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ctf::fuzz_format(bytes));
