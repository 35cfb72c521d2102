//! Bytes as the body of a call of gRPC, as its deadline and as the words of an error: what is framed is read again, and words are visible
//! characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::pyroscope::grpc::{frame, timeout, trailers, unframe};
use wire::pyroscope::{Code, Error};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((is_compressed, message)) = unframe(bytes) {
        assert_eq!(frame(message, is_compressed), bytes);
    }
    assert_eq!(unframe(&frame(bytes, false)), Ok((false, bytes)));
    let text = String::from_utf8_lossy(bytes);
    let _deadline = timeout(&text);
    for (_, value) in trailers(Some(&Error::new(Code::Internal, text))) {
        assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
});
