//! Bytes as a profile in pprof, plain or compressed: refused whole, or samples that all have a value, a series and a stack.
#![no_main]

use intake::{Limits, PprofSource, pprof};
use libfuzzer_sys::fuzz_target;
use model::Timestamp;

fuzz_target!(|bytes: &[u8]| {
    let labels = vec![("__name__".to_owned(), "process_cpu".to_owned())];
    let limits = Limits { profile_bytes: 1 << 20, oldest: None, newest: None, ..Limits::default() };
    let source = PprofSource { id: 1, labels };
    throughline_fuzz::check(&pprof(bytes, source, &limits, Timestamp::from_nanos(0)));
});
