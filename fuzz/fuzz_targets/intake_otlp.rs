//! Bytes as a request of OTLP, as bytes of Protocol Buffers and as JSON: refused, or profiles that were taken or not.
#![no_main]

use intake::{Encoding, Limits, otlp};
use libfuzzer_sys::fuzz_target;
use model::Timestamp;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { body_bytes: 1 << 20, oldest: None, newest: None, ..Limits::default() };
    for encoding in [Encoding::Protobuf, Encoding::Json] {
        if let Ok(taken) = otlp(bytes, encoding, &limits, Timestamp::from_nanos(0)) {
            throughline_fuzz::check(&taken);
        }
    }
});
