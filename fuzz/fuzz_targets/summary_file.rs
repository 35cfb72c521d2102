//! Bytes as a summary file: an error or a summary that writes the same bytes again and answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stitch::Summary;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(summary) = Summary::from_bytes(bytes) {
        assert_eq!(Summary::from_bytes(&summary.to_bytes().unwrap()).unwrap(), summary);
        let _answer = stitch::phases(&summary);
    }
});
