//! What a record costs here, in nanoseconds, one line for each way: `records [COUNT [all|visit]]`.
//!
//! `bare`: the same words and the same time into memory of the same size, by a loop that knows neither call sites nor rings that are
//! full: what no tracepoint can be cheaper than. `record`: a [`tracepoint!`] with two integers. `text`: one with a text of 64 bytes. `off`: one that is
//! off. `span`: a span's begin and end. `layer_event`: an event of crate `tracing` with two integers. `layer_span`: a span of that, entered, too. `read`: reading records from a ring, with their fields, and giving them back. `visit`
//! has only `layer_visit`: events as those of `layer_event`, of which a layer looks at the values and does nothing else: what no layer can be cheaper than.
//! `cargo xtask bench tracepoint` compares them with others.
#![expect(unsafe_code, reason = "the loop that the others are compared with")]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for one measurement")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rings::{Connection, Door, Item, Ring, Rings, Value};
use tracepoint::{Options, Tracepoints, span, tracepoint};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Bytes of a record with two integers.
const RECORD: u64 = 32;
const RING: u64 = 64 << 20;
/// Rounds of each way, of which the shortest counts: what interrupts a round makes it longer.
const ROUNDS: usize = 9;

const WAYS: [&str; 8] =
    ["bare", "record", "text", "off", "read", "span", "layer_event", "layer_span"];

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(400_000);
    match std::env::args().nth(2).as_deref() {
        Some("visit") => visit(count),
        _ => all(count),
    }
}

fn all(count: u64) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("rings.sock");
    let door = Door::bind(&socket, false).unwrap();
    assert!(tracepoint::start(Options { socket, ring_len: RING, ..Options::default() }));
    let (connection, rings) = comes(&door);
    let mut bare = Bare {
        words: vec![0; usize::try_from(RING / 8).unwrap()],
        head: AtomicU64::new(0),
        position: 0,
    };
    connection.tell_rules("-off\n").unwrap();
    // All pages of both have been touched.
    bare.write(RING / RECORD);
    record(RING / RECORD);
    let mut ring = rings.ring(0).unwrap().unwrap();
    read(&rings, &mut ring);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Tracepoints))
        .unwrap();
    let mut best = [Duration::MAX; WAYS.len()];
    for _ in 0..ROUNDS {
        let mut in_ring = 0;
        let mut found = [Duration::ZERO; WAYS.len()];
        found[0] = timed(|| bare.write(count));
        found[1] = timed(|| record(count));
        found[4] = timed(|| in_ring = read(&rings, &mut ring));
        assert_eq!(in_ring, count, "the ring was not full");
        found[2] = timed(|| text(count / 4)) * 4;
        read(&rings, &mut ring);
        found[3] = timed(|| off(count));
        let acts: [fn(u64); 3] = [spans, layer_events, layer_spans];
        for (found, act) in found.iter_mut().skip(5).zip(acts) {
            *found = timed(|| act(count / 4)) * 4;
            read(&rings, &mut ring);
        }
        best.iter_mut().zip(found).for_each(|(best, found)| *best = found.min(*best));
    }
    assert_eq!(rings.dropped_in(&ring).iter().sum::<u64>(), 0);
    for (way, took) in WAYS.iter().zip(best) {
        println!("{way} {:.3}", took.as_nanos() as f64 / count as f64);
    }
}

fn timed(act: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    act();
    begin.elapsed()
}

fn comes(door: &Door) -> (Connection, Rings) {
    loop {
        if let Some(connection) = door.accept().unwrap() {
            loop {
                if let Some(file) = connection.memory_file().unwrap() {
                    return (connection, Rings::open(file).unwrap());
                }
            }
        }
    }
}

struct Bare {
    words: Vec<u64>,
    head: AtomicU64,
    position: u64,
}

impl Bare {
    #[inline(never)]
    fn write(&mut self, count: u64) {
        let mask = self.words.len() - 1;
        for number in 0..count {
            let at = usize::try_from(self.position / 8).unwrap_or_default() & mask;
            // SAFETY: the position is a multiple of the record's length, which the ring's is too.
            unsafe {
                let at = self.words.as_mut_ptr().add(at);
                at.write(black_box(number) << 32 | 1 << 16 | 4);
                at.add(1).write(core::arch::x86_64::_rdtsc());
                at.add(2).write(number);
                at.add(3).write(number ^ 7);
            }
            self.position += RECORD;
            self.head.store(self.position, Ordering::Release);
        }
    }
}

#[inline(never)]
fn record(count: u64) {
    for number in 0..count {
        tracepoint!("pair", first: u64 = black_box(number), second: u64 = number ^ 7);
    }
}

#[inline(never)]
fn text(count: u64) {
    let text = "a text of sixty-four bytes, as a path or a short query may be...";
    for number in 0..count {
        tracepoint!("text", number: u64 = number, text: str = black_box(text));
    }
}

#[inline(never)]
fn off(count: u64) {
    for number in 0..count {
        tracepoint!("off", number: u64 = black_box(number));
    }
}

#[inline(never)]
fn spans(count: u64) {
    for number in 0..count {
        let _span = span!(parent: None, "span", number: u64 = black_box(number));
    }
}

#[inline(never)]
fn layer_events(count: u64) {
    for number in 0..count {
        tracing::info!(first = black_box(number), second = number ^ 7);
    }
}

#[inline(never)]
fn layer_spans(count: u64) {
    for number in 0..count {
        let _span = tracing::info_span!("span", number = black_box(number)).entered();
    }
}

fn visit(count: u64) {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Looks)).unwrap();
    let best = (0..ROUNDS).map(|_| timed(|| layer_events(count / 4)) * 4).min();
    println!("layer_visit {:.3}", best.unwrap_or_default().as_nanos() as f64 / count as f64);
}

/// A layer that looks at the values of events.
struct Looks;

impl<S: Subscriber> Layer<S> for Looks {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen(0);
        event.record(&mut seen);
        black_box(seen.0);
    }
}

struct Seen(u64);

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0 ^= value ^ field.index() as u64;
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// How many records there were.
fn read(rings: &Rings, ring: &mut Ring) -> u64 {
    let (mut count, mut sum) = (0, 0);
    loop {
        let batch = rings.read(ring, 1 << 20).unwrap();
        if batch.is_empty() {
            black_box(sum);
            return count;
        }
        let mut items = batch.items();
        while let Some(item) = items.next_item().unwrap() {
            if let Item::Record(record) = item {
                count += 1;
                for value in record.values() {
                    if let Value::Unsigned(value) = value {
                        sum ^= value;
                    }
                }
            }
        }
        let cursor = items.cursor();
        rings.release(ring, cursor);
    }
}
