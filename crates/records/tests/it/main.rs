//! Batches of a real ring: this process writes, and reads what it wrote.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod damaged;
mod spans;

use std::sync::{LazyLock, Mutex};

use model::Timestamp;
use records::{Pair, Process, RingBatch, RingId, Times};
use rings::{Door, Rings};
use tracepoint::{Options, Status, event, span, tracepoint};

/// Nanoseconds of the monotonic clock are the ticks of these tests.
fn times() -> Times {
    let pair = |at| Pair { ticks: at, monotonic_ns: at };
    Times { early: pair(0), late: pair(1 << 40), epoch_offset_ns: 1_700_000_000_000_000_000 }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos((1_800_000_000 + seconds) * 1_000_000_000)
}

fn process() -> Process {
    Process { file: (7, 8), pid: 1, own_pid: 1, service: "shop".to_owned() }
}

/// This process's rings.
static RINGS: LazyLock<Mutex<Rings>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("rings.sock");
    let door = Door::bind(&socket, false).unwrap();
    assert!(tracepoint::start(Options { socket, ..Options::default() }));
    let connection = loop {
        if let Some(connection) = door.accept().unwrap() {
            break connection;
        }
        std::thread::yield_now();
    };
    let file = loop {
        if let Some(file) = connection.memory_file().unwrap() {
            break file;
        }
        std::thread::yield_now();
    };
    Mutex::new(Rings::open(file).unwrap())
});

/// What a new thread writes, as a batch.
fn batch_of(write: impl FnOnce() + Send + 'static) -> RingBatch {
    let rings = RINGS.lock().unwrap();
    let before = rings.touched();
    std::thread::spawn(write).join().unwrap();
    let mut found = (0..rings.touched()).filter_map(|place| rings.ring(place).unwrap());
    let mut ring = found.next().unwrap_or_else(|| panic!("no ring of {before}"));
    let id = RingId {
        place: ring.place,
        generation: ring.generation,
        tid: ring.tid,
        thread: ring.name.clone(),
    };
    let read = rings.read(&mut ring, 1 << 20).unwrap();
    let shape = rings.about().shape;
    let batch = RingBatch::new(process(), id, times(), &read, shape, Default::default()).unwrap();
    assert!(read.is_last);
    rings.release(&mut ring, batch.end);
    assert!(rings.free(&ring));
    batch
}

/// A request with a phase that fails, and an event beside it.
fn trace() {
    let request = span!("request", path: str = "/a");
    let _entered = request.enter();
    let phase = span!("phase", number: i32 = -7);
    phase.in_scope(|| event!("inside", ratio: f64 = 0.5));
    phase.set_status(Status::Error);
    drop(phase);
    tracepoint!("beside", bytes: [u8] = [1u8, 2]);
}
