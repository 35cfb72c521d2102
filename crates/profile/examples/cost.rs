//! What a sample costs: bytes and nanoseconds, on a stream with the proportions of a real one.
//!
//! 7,890 samples of 40 s of 74 processes, about 21 frames each, 4,200 distinct stacks of 5,800 addresses; `cargo run --release -p profile --example cost`.
//! Names, paths and build IDs look like those of C, C++, Rust and Python programs. Whoever adds samples keeps the numbers of
//! processes and of frames by address for a packet's time, as the agent does; that is part of the time measured.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement"
)]

use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use profile::{Builder, FrameId, ProcessId, Sample, SampleKind, Status, Window};

#[path = "../tests/it/stream.rs"]
mod stream;

use stream::Stream;

fn main() {
    let stream = Stream::like_a_real_one();
    println!("{}", describe(&stream));
    println!("window  B/sample raw  gzip  add µs  finish µs  gzip µs  together µs");
    for (seconds, named) in [(1, true), (5, true), (5, false), (15, true), (60, true)] {
        // The best of several runs: what the machine does beside shows in the others.
        let best = (0..15)
            .map(|_| measure(&stream, seconds, named))
            .min_by_key(|cost| cost.add + cost.finish + cost.gzip)
            .unwrap_or_default();
        let count = f64::from(u32::try_from(stream.events.len()).unwrap_or(u32::MAX));
        let bytes = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX)) / count;
        let us = |t: Duration| t.as_secs_f64() * 1e6 / count;
        println!(
            "{seconds:>3} s {} {:>9.1} {:>7.1} {:>7.2} {:>10.2} {:>8.2} {:>12.2}",
            if named { "  " } else { "un" },
            bytes(best.raw),
            bytes(best.compressed),
            us(best.add),
            us(best.finish),
            us(best.gzip),
            us(best.add + best.finish + best.gzip)
        );
    }
}

/// The stream's proportions.
fn describe(stream: &Stream) -> String {
    let of =
        |event: &stream::Event| stream.stacks.get(event.stack).map_or(&[] as &[u32], Vec::as_slice);
    let frames: usize = stream.events.iter().map(|event| of(event).len()).sum();
    let stacks: HashSet<usize> = stream.events.iter().map(|event| event.stack).collect();
    let windows = stream.events.chunk_by(|a, b| a.at / 5_000_000_000 == b.at / 5_000_000_000);
    let (mut count, mut addresses, mut processes) = (0, 0, 0);
    for events in windows {
        count += 1;
        addresses += events.iter().flat_map(of).collect::<HashSet<_>>().len();
        processes += events.iter().map(|event| event.process).collect::<HashSet<_>>().len();
    }
    format!(
        "{} samples, {} processes, {}.{} frames each, {} stacks, {} addresses; in 5 s {} addresses of {} processes",
        stream.events.len(),
        stream.processes.len(),
        frames / stream.events.len(),
        frames * 10 / stream.events.len() % 10,
        stacks.len(),
        stream.addresses.len(),
        addresses / count,
        processes / count
    )
}

#[derive(Default)]
struct Cost {
    raw: usize,
    compressed: usize,
    add: Duration,
    finish: Duration,
    gzip: Duration,
}

fn measure(stream: &Stream, seconds: u64, named: bool) -> Cost {
    let mut cost = Cost::default();
    let duration_ns = seconds * 1_000_000_000;
    for events in stream.events.chunk_by(|a, b| a.at / duration_ns == b.at / duration_ns) {
        let begun = Instant::now();
        let at = events.first().map_or(0, |event| event.at);
        let window =
            Window { begin_unix_ns: stream::BEGIN + at / duration_ns * duration_ns, duration_ns };
        let builder = fill(
            Builder::new(window, SampleKind::OnCpu { period_ns: 10_101_010 }),
            stream,
            events,
            named,
        );
        let added = Instant::now();
        let packet = builder.finish();
        let finished = Instant::now();
        let compressed = packet.gzip();
        cost.gzip += finished.elapsed();
        cost.finish += finished - added;
        cost.add += added - begun;
        cost.raw += packet.bytes.len();
        cost.compressed += compressed.len();
    }
    cost
}

fn fill(mut builder: Builder, stream: &Stream, events: &[stream::Event], named: bool) -> Builder {
    let mut known: HashMap<u32, FrameId> = HashMap::new();
    let mut processes: HashMap<usize, ProcessId> = HashMap::new();
    let mut frames = Vec::new();
    for event in events {
        let process = stream.processes.get(event.process).expect("of the stream");
        let id = *processes
            .entry(event.process)
            .or_insert_with(|| process.with(|process| builder.process(process)).expect("room"));
        frames.clear();
        for &address in stream.stacks.get(event.stack).expect("of the stream") {
            frames.push(
                *known.entry(address).or_insert_with(|| stream.frame(&mut builder, address, named)),
            );
        }
        let sample = Sample {
            process: id,
            tid: event.tid,
            thread_name: &process.name,
            cpu: event.cpu,
            at_unix_ns: stream::BEGIN + event.at,
            value: 1,
            link: None,
            frames: &frames,
            status: Status::Root,
        };
        builder.add(&sample).expect("room");
    }
    builder
}
