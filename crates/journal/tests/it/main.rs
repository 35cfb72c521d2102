//! Journals in folders: order, restarts, bounds, damage.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod bounds;
mod damage;
mod order;

use std::path::Path;
use std::sync::Arc;

use journal::{Bounds, Journal, Reader};
use model::Timestamp;

const SECOND: i64 = 1_000_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000 * SECOND + seconds * SECOND)
}

fn open(folder: &Path, bounds: Bounds) -> Arc<Journal> {
    Journal::open(folder, bounds).unwrap()
}

/// An entry of a record that says its number, and as many bytes more.
fn append(journal: &Journal, number: u64, more: usize, seconds: i64) {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + more, 7);
    let position = journal.append(1, 1, &payload, at(seconds)).unwrap();
    assert_eq!((position.entry, position.records), (number, number));
}

/// Numbers of what is given next, all of which is acknowledged.
fn take(reader: &mut Reader, most: usize) -> Vec<u64> {
    let entries = reader.next(most).unwrap();
    let Some(last) = entries.last() else { return Vec::new() };
    reader.acknowledge(last.header.end()).unwrap();
    entries.iter().map(|it| u64::from_le_bytes(it.payload[..8].try_into().unwrap())).collect()
}

fn take_all(reader: &mut Reader) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let some = take(reader, 1000);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}
