//! An executable file of any bytes, where it has a variable, and what its debug information says of some addresses; asked again when all was dropped, it says
//! the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use symbols::{Lines, TlsVariable};

fuzz_target!(|bytes: &[u8]| {
    let _variable = TlsVariable::of(bytes, b"otel_thread_ctx_v1");
    let Ok(mut kept) = Lines::of(bytes, Some(bytes)) else { return };
    let Ok(mut dropped) = Lines::with_room(bytes, Some(bytes), 0) else { panic!("once it could") };
    // Where linkers put the code of small programs.
    for address in (0x1000..0x1400).step_by(97) {
        let first = kept.find(bytes, Some(bytes), address);
        assert_eq!(first, dropped.find(bytes, Some(bytes), address));
        assert_eq!(first, kept.find(bytes, Some(bytes), address));
    }
});
