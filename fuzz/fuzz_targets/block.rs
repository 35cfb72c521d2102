//! Bytes as a block of samples: refused, or samples that become a block which says the same.
//!
//! The decoder of Parquet panics on some bytes, and the store makes errors of that. The fuzzer's own hook would end the process at any
//! panic: here one does that leaves the store.
#![no_main]

use std::collections::BTreeSet;
use std::panic::{catch_unwind, set_hook};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use model::Timestamp;
use model::samples::Batch;
use store::block::{Detail, Selection, encode, header, read_into, series_into};

fuzz_target!(
    init: set_hook(Box::new(|_panic| {})),
    |bytes: &[u8]| {
        if catch_unwind(|| read(bytes.to_vec().into())).is_err() {
            std::process::abort();
        }
    }
);

fn read(bytes: Bytes) {
    let all = Selection::all();
    let _header = header(&bytes);
    let mut series = BTreeSet::new();
    let _refused = series_into(&bytes, all.times, &mut series);
    let middle = (Timestamp::from_nanos(2), Timestamp::from_nanos(3));
    let some = Selection { times: middle, detail: Detail::Totals, ..all };
    let _refused = read_into(&bytes, &some, &mut Batch::new());
    let mut batch = Batch::new();
    if read_into(&bytes, &all, &mut batch).is_err() {
        return;
    }
    let Some(block) = encode(&batch).expect("what was read can be written") else { return };
    let block = Bytes::from(block);
    let mut again = Batch::new();
    read_into(&block, &all, &mut again).expect("what was written can be read");
    assert_eq!(again.samples().len(), batch.samples().len());
    assert_eq!(encode(&again).ok().flatten().map(Bytes::from), Some(block));
}
