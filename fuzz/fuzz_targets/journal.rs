//! A segment of a journal, any bytes: it opens or is refused, what is read ends, and entries follow each other.
#![no_main]

use journal::{Bounds, Journal};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("00000000000000000000.seg"), bytes).unwrap();
    let Ok(journal) = Journal::open(folder.path(), Bounds::default()) else { return };
    let mut len = 0;
    let replayed = journal.replay(0, |header, payload| {
        assert_eq!(header.len, payload.len());
        len += payload.len();
    });
    assert!(replayed.is_ok() && len <= bytes.len());
});
