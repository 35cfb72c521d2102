//! Bytes of batches: as they are, and with something else in them.

use records::{Assembler, Limits, RingBatch, ring_notifications, write_lines};

use crate::{at, batch_of, trace};

fn lines(batch: &RingBatch) -> Vec<u8> {
    let mut lines = Vec::new();
    write_lines(batch, &mut lines).unwrap();
    lines
}

#[test]
fn a_batch_says_the_same_when_it_is_read_again() {
    let batch = batch_of(trace);
    let bytes = batch.encode().unwrap();
    let again = RingBatch::decode(&bytes).unwrap();
    assert_eq!((again.records().unwrap(), batch.records().unwrap()), (6, 6));
    assert_eq!(lines(&again), lines(&batch));
    assert_eq!((&again.process, &again.ring), (&batch.process, &batch.ring));
    assert_eq!((again.begin, again.end), (batch.begin, batch.end));
    assert_eq!(again.encode().unwrap(), bytes);
}

#[test]
fn no_bytes_are_more_than_an_error() {
    let bytes = batch_of(trace).encode().unwrap();
    for len in 0..bytes.len() {
        assert!(RingBatch::decode(&bytes[..len]).is_err(), "{len}");
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut other = bytes.clone();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(..other.len());
            other[place] = random.u8(..);
        }
        let Ok(batch) = RingBatch::decode(&other) else { continue };
        read += 1;
        let is_whole = write_lines(&batch, &mut Vec::new()).is_ok();
        assert_eq!(Assembler::new(Limits::default()).add(&batch, at(0)).is_ok(), is_whole);
        assert_eq!(batch.records().is_ok(), is_whole);
        // What has no notifications need not be gone through.
        assert!(ring_notifications(&batch).is_ok_and(|it| it.is_empty()) || !is_whole);
    }
    assert!(read > 1_000, "{read}");
}
