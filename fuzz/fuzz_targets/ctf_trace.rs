//! Metadata up to the first NUL, then packets that are read by it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ctf::fuzz_trace(bytes));
