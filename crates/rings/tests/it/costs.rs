//! What a record does not do: ask the kernel, or take memory.

use rings::Door;
use tracepoint::DropReason;

use crate::peer::{App, Language, comes, drain_all};

#[global_allocator]
static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;

/// Records that the applications write after their first.
pub(crate) const RECORDS: u64 = 100_000;

#[test]
fn records_make_no_system_call_whether_there_is_room_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    let lens = |language| ["16777216", "16384"].map(|ring_bytes| (language, ring_bytes));
    for (language, ring_bytes) in Language::ALL.into_iter().flat_map(lens) {
        let mut app = language.start("silent", &path, &[("TRACEPOINTS_RING_BYTES", ring_bytes)]);
        let (_connection, rings) = comes(&door);
        // A thread that asks the kernel for anything but to write this is killed with its process.
        app.hears("no system calls");
        let read = drain_all(&rings).remove(0);
        let ring = rings.ring(0).unwrap().unwrap();
        let dropped = rings.dropped_in(&ring)[DropReason::Full as usize];
        assert_eq!(read.records.len() as u64 + dropped, RECORDS + 1);
        assert_eq!(dropped > 0, ring_bytes == "16384");
        app.ends();
    }
}

#[test]
fn records_take_no_memory_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let mut app = App::start("lean", &path, &[]);
    assert_eq!(app.hears("bytes held: "), "0");
    app.ends();
}
