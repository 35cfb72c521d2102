//! Remote write requests: any bytes are understood or refused, compressed or as a message, in memory that is bounded.
#![no_main]

use wire::remote_write::{Error, MAX_TEXT_LEN, Received, Version, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let packed = snap::raw::Encoder::new().compress_vec(bytes);
    for version in [Version::V1, Version::V2] {
        check(decode(version, bytes));
        if let Ok(packed) = &packed {
            check(decode(version, packed));
        }
    }
});

fn check(received: Result<Received, Error>) {
    let Ok(received) = received else { return };
    let labels = received.series.iter().flat_map(|series| &series.labels);
    let len: usize = labels.map(|(name, value)| name.len() + value.len()).sum();
    assert!(len <= MAX_TEXT_LEN);
}
