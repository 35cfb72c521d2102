//! What it costs to keep records: CPU time of a recorder for each record that it puts into its journal, without targets.
//!
//! `drain [RECORDS [PER_SECOND]]`: so many records of two integers, by two threads of another process, as fast as the recorder takes them or at a rate.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement fails by panicking, and waits"
)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recorder::{Recorder, Settings};
use tracepoint::{Options, tracepoint};

const THREADS: u64 = 2;
const SOCKET: &str = "DRAIN_SOCKET";

fn main() {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |it| it.parse().unwrap())
    };
    let (records, per_second) = (number(1, 20_000_000), number(2, 0));
    if let Ok(socket) = std::env::var(SOCKET) {
        return write(&socket, records, per_second);
    }
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(Settings {
        folder: folder.path().join("journal"),
        bounds: journal::Bounds { bytes: 256 << 20, ..journal::Bounds::default() },
        socket: folder.path().join("rings.sock"),
        is_open_to_all: false,
        targets: Vec::new(),
        machine: Vec::new(),
        redis: None,
    })
    .unwrap();
    let begin = Instant::now();
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args([records.to_string(), per_second.to_string()]);
    writer.env(SOCKET, folder.path().join("rings.sock")).stdout(Stdio::null());
    assert!(writer.status().unwrap().success());
    let ledger = recorder.stop(Duration::from_secs(60)).unwrap();
    let (elapsed, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds());
    assert!(ledger.adds_up());
    let stored = ledger.stored as f64;
    let emitted: u64 = ledger.services.values().map(recorder::ServiceLedger::emitted).sum();
    println!(
        "stored {stored} of {emitted} in {elapsed:.2} s, CPU {cpu:.2} s ({:.2} % of one)",
        cpu * 100.0 / elapsed
    );
    println!(
        "{:.1} ns a record, {:.2} million records a second and core",
        cpu * 1e9 / stored,
        stored / cpu / 1e6
    );
}

/// User and system time of this process (`/proc/self/stat`, fields 14 and 15, in hundredths of a second).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit(") ").next().unwrap();
    let fields = behind_name.split(' ').skip(11).take(2);
    fields.map(|it| it.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn write(socket: &str, records: u64, per_second: u64) {
    let options = Options { socket: socket.into(), ring_len: 4 << 20, ..Options::default() };
    assert!(tracepoint::start(options));
    let writers = (0..THREADS).map(|_| {
        std::thread::spawn(move || {
            let begin = Instant::now();
            for number in 0..records / THREADS {
                tracepoint!("tick", number: u64 = number, other: u64 = number);
                if per_second > 0 && number % 100 == 0 {
                    let due =
                        Duration::from_secs_f64((number * THREADS) as f64 / per_second as f64);
                    std::thread::sleep(due.saturating_sub(begin.elapsed()));
                }
            }
        })
    });
    writers.collect::<Vec<_>>().into_iter().for_each(|it| it.join().unwrap());
}
