//! What a sample costs: bytes and CPU time, on a stream with the proportions of a real one, or on recorded profiles.
//!
//! `cargo run --release -p profile --example cost`: 7,890 samples of 40 s of 74 processes, about 21 frames each, 4,200 distinct stacks
//! of 5,800 addresses. Names, paths and build IDs look like those of C, C++, Rust and Python programs.
//! `cargo run --release -p profile --example cost -- profile.otlp.gz`: the samples of that file, in windows of these lengths.
//!
//! Whoever adds samples keeps the numbers of processes and of frames by address for a packet's time, as the agent does; that is
//! part of the time measured.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement")]

use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use profile::{Builder, FrameId, Limits, ProcessId, Sample, SampleKind, Status, Window, ungzip};
use rustix::time::{ClockId, clock_gettime};

mod recording;
#[path = "../../tests/it/stream.rs"]
mod stream;

use recording::Recording;

/// Samples, by time, and what they are made of, by number.
trait Source {
    fn events(&self) -> &[Event<'_>];
    /// Frames, leaf first.
    fn stack(&self, stack: usize) -> &[u32];
    fn process(&self, builder: &mut Builder, process: usize) -> ProcessId;
    /// With a name or, of native code, without.
    fn frame(&self, builder: &mut Builder, frame: u32, named: bool) -> FrameId;
}

/// A sample.
#[derive(Debug, Clone, Copy)]
struct Event<'a> {
    /// Nanoseconds after the stream's begin.
    at: u64,
    process: usize,
    stack: usize,
    tid: u32,
    thread_name: &'a str,
    cpu: u32,
    status: Status,
}

fn main() {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        let stream = stream::Stream::like_a_real_one();
        tell("a stream made up", &Made::of(&stream));
    }
    for file in files {
        let bytes = std::fs::read(&file).expect("a file");
        let bytes = ungzip(&bytes, Limits::default()).expect("a profile");
        tell(&file.to_string_lossy(), &Recording::of(&bytes));
    }
}

fn tell(name: &str, source: &impl Source) {
    println!("{name}: {}", describe(source));
    println!("window  B/sample raw  gzip  add µs  finish µs  gzip µs  together µs");
    for (seconds, named) in [(1, true), (5, true), (5, false), (15, true), (60, true)] {
        // The best of several runs: caches that others filled show in the rest.
        let best = (0..25)
            .map(|_| measure(source, seconds, named))
            .min_by_key(|cost| cost.add + cost.finish + cost.gzip)
            .unwrap_or_default();
        let count = f64::from(u32::try_from(source.events().len()).unwrap_or(u32::MAX));
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
fn describe(source: &impl Source) -> String {
    let of = |event: &Event<'_>| source.stack(event.stack);
    let events = source.events();
    let frames: usize = events.iter().map(|event| of(event).len()).sum();
    let stacks: HashSet<usize> = events.iter().map(|event| event.stack).collect();
    let processes: HashSet<usize> = events.iter().map(|event| event.process).collect();
    let addresses =
        |events: &[Event<'_>]| events.iter().flat_map(of).copied().collect::<HashSet<u32>>().len();
    let (mut count, mut in_window, mut of_window) = (0, 0, 0);
    for events in events.chunk_by(|a, b| a.at / 5_000_000_000 == b.at / 5_000_000_000) {
        count += 1;
        in_window += addresses(events);
        of_window += events.iter().map(|event| event.process).collect::<HashSet<_>>().len();
    }
    format!(
        "{} samples, {} processes, {}.{} frames each, {} stacks, {} addresses; in 5 s {} addresses of {} processes",
        events.len(),
        processes.len(),
        frames / events.len(),
        frames * 10 / events.len() % 10,
        stacks.len(),
        addresses(events),
        in_window / count,
        of_window / count
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

fn measure(source: &impl Source, seconds: u64, named: bool) -> Cost {
    let mut cost = Cost::default();
    let duration_ns = seconds * 1_000_000_000;
    for events in source.events().chunk_by(|a, b| a.at / duration_ns == b.at / duration_ns) {
        let begun = cpu_time();
        let at = events.first().map_or(0, |event| event.at);
        let window =
            Window { begin_unix_ns: stream::BEGIN + at / duration_ns * duration_ns, duration_ns };
        let empty = Builder::new(window, SampleKind::OnCpu { period_ns: 10_101_010 });
        let builder = fill(empty, source, events, named);
        let added = cpu_time();
        let packet = builder.finish();
        let finished = cpu_time();
        let compressed = packet.gzip();
        cost.gzip += cpu_time() - finished;
        cost.finish += finished - added;
        cost.add += added - begun;
        cost.raw += packet.bytes.len();
        cost.compressed += compressed.len();
    }
    cost
}

/// Of this thread: what others do meanwhile does not count.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn fill(mut builder: Builder, source: &impl Source, events: &[Event<'_>], named: bool) -> Builder {
    let mut known: HashMap<u32, FrameId> = HashMap::new();
    let mut processes: HashMap<usize, ProcessId> = HashMap::new();
    let mut frames = Vec::new();
    for event in events {
        let process = *processes
            .entry(event.process)
            .or_insert_with(|| source.process(&mut builder, event.process));
        frames.clear();
        for &frame in source.stack(event.stack) {
            frames.push(match known.get(&frame) {
                Some(id) => *id,
                None => *known.entry(frame).insert(source.frame(&mut builder, frame, named)).get(),
            });
        }
        let sample = Sample {
            process,
            tid: event.tid,
            thread_name: event.thread_name,
            cpu: event.cpu,
            at_unix_ns: stream::BEGIN + event.at,
            value: 1,
            link: None,
            frames: &frames,
            status: event.status,
        };
        builder.add(&sample).expect("room");
    }
    builder
}

/// The stream that is made up.
struct Made<'a> {
    stream: &'a stream::Stream,
    events: Vec<Event<'a>>,
}

impl<'a> Made<'a> {
    fn of(stream: &'a stream::Stream) -> Self {
        let event = |event: &stream::Event| Event {
            at: event.at,
            process: event.process,
            stack: event.stack,
            tid: event.tid,
            thread_name: stream.processes.get(event.process).map_or("", |owner| &owner.name),
            cpu: event.cpu,
            status: Status::Root,
        };
        Self { stream, events: stream.events.iter().map(event).collect() }
    }
}

impl Source for Made<'_> {
    fn events(&self) -> &[Event<'_>] {
        &self.events
    }

    fn stack(&self, stack: usize) -> &[u32] {
        self.stream.stacks.get(stack).map_or(&[], Vec::as_slice)
    }

    fn process(&self, builder: &mut Builder, process: usize) -> ProcessId {
        let owner = self.stream.processes.get(process).expect("of the stream");
        owner.with(|process| builder.process(process)).expect("room")
    }

    fn frame(&self, builder: &mut Builder, frame: u32, named: bool) -> FrameId {
        self.stream.frame(builder, frame, named)
    }
}
