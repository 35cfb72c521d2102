//! `cargo xtask bench two_sessions`: what two saturating recording sessions get done against one.
//!
//! Each session has a producer of its own that sends windows of packets ahead of the replies, made before the clock starts,
//! so that the relay always has work and producers cost as little as they can. They run on the same cores nevertheless, and
//! so does the network's work, which the kernel charges to whoever sends. What is measured:
//!
//! - packets a second of both sessions together against one session's, in wall time;
//! - how much of it there could be: with every core busy and no packet dearer than one session's alone;
//! - cores the relay used: two sessions on one thread cannot use more than one;
//! - packets for each CPU second of the relay, which falls when sessions get in each other's way.

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use wire::live::NetSeqNum;

use super::measure::{self, Rounds};
use crate::producer::{Producer, STREAMS, Windows};
use crate::relays::{Running, Which};

/// Packets that are sent ahead of their replies are two windows at most.
const WINDOW: usize = 128;

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packets of each session
    #[arg(long, default_value_t = 60_000)]
    packets: u64,
    /// Bytes of a packet
    #[arg(long, default_value_t = 4096)]
    size: usize,
    /// Rounds of each program
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let cores = std::thread::available_parallelism()?.get();
    say(&format!("{} packets of {} bytes a session, {cores} cores", args.packets, args.size));
    let relays = [Which::Ours(&args.binary), Which::Reference];
    let mut figures = [Figures::default(), Figures::default()];
    for round in 0..args.rounds {
        let mut turns: Vec<_> = figures.iter_mut().zip(relays).collect();
        // Who comes second may find memory that the first has used; neither always does.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (figures, which) in turns {
            let one = measure(&Running::start(which)?, 1, args)?;
            let two = measure(&Running::start(which)?, 2, args)?;
            figures.add(&one, &two, cores as f64);
        }
    }
    for (figures, which) in figures.into_iter().zip(relays) {
        say(which.name());
        figures.report()?;
    }
    Ok(())
}

/// What some sessions at a time cost and got done.
struct Outcome {
    packets: f64,
    wall: f64,
    /// CPU seconds of the relay and of the producers.
    relay: f64,
    producers: f64,
}

fn measure(relay: &Running, sessions: u64, args: &Args) -> anyhow::Result<Outcome> {
    let start = Arc::new(Barrier::new(usize::try_from(sessions)? + 1));
    let mut threads = Vec::new();
    for number in 1..=sessions {
        let (control, data) = relay.addresses();
        let mut producer = Producer::connect(control, data)?;
        let streams = producer.open(number)?;
        let windows = Windows::new(&streams, args.packets, WINDOW, args.size)?;
        let (start, packets) = (Arc::clone(&start), args.packets);
        threads.push(std::thread::spawn(move || -> anyhow::Result<Duration> {
            start.wait();
            let before = measure::cpu_of_this_thread()?;
            producer.send_windows(windows)?;
            for (stream, place) in streams.iter().zip(0..) {
                let sent = (packets + STREAMS - 1 - place) / STREAMS;
                producer.wait_for(*stream, NetSeqNum::new(sent.wrapping_sub(1)))?;
            }
            Ok(measure::cpu_of_this_thread()?.saturating_sub(before))
        }));
    }
    measure::warm_memory(sessions * args.packets * args.size as u64)?;
    let before = measure::cpu_of_process(relay.pid())?;
    start.wait();
    let begin = Instant::now();
    let mut producers = Duration::ZERO;
    for thread in threads {
        producers += thread.join().ok().context("a producer failed")??;
    }
    let wall = begin.elapsed();
    let relay = measure::cpu_of_process(relay.pid())?.saturating_sub(before);
    Ok(Outcome {
        packets: (args.packets * sessions) as f64,
        wall: wall.as_secs_f64(),
        relay: relay.as_secs_f64(),
        producers: producers.as_secs_f64(),
    })
}

/// The figures of all rounds of one relay.
#[derive(Default)]
struct Figures {
    rates: [Vec<f64>; 2],
    ratio: Vec<f64>,
    possible: Vec<f64>,
    cores: [Vec<f64>; 2],
    producers: [Vec<f64>; 2],
    per_cpu: [Vec<f64>; 2],
    per_cpu_ratio: Vec<f64>,
}

impl Figures {
    fn add(&mut self, one: &Outcome, two: &Outcome, cores: f64) {
        let rate = |outcome: &Outcome| outcome.packets / outcome.wall;
        let per_cpu = |outcome: &Outcome| outcome.packets / outcome.relay;
        for (place, outcome) in [one, two].into_iter().enumerate() {
            let add = |figures: &mut [Vec<f64>; 2], figure| {
                if let Some(figures) = figures.get_mut(place) {
                    figures.push(figure);
                }
            };
            add(&mut self.rates, rate(outcome));
            add(&mut self.cores, outcome.relay / outcome.wall);
            add(&mut self.producers, outcome.producers / outcome.wall);
            add(&mut self.per_cpu, per_cpu(outcome));
        }
        self.ratio.push(rate(two) / rate(one));
        self.possible.push(cores * one.wall / (one.relay + one.producers));
        self.per_cpu_ratio.push(per_cpu(two) / per_cpu(one));
    }

    fn report(self) -> anyhow::Result<()> {
        let pair = |[one, two]: [Vec<f64>; 2]| -> anyhow::Result<[Rounds; 2]> {
            Ok([Rounds::new(one)?, Rounds::new(two)?])
        };
        let [one, two] = pair(self.rates)?;
        let (ratio, possible) = (Rounds::new(self.ratio)?, Rounds::new(self.possible)?);
        let (low, high) = ratio.spread();
        let (one, two) = (one.median(), two.median());
        say(&format!("  packets/s       one {one:>8.0}  two {two:>8.0}"));
        say(&format!("    ratio         {:.2} (from {low:.2} to {high:.2})", ratio.median()));
        say(&format!("    possible here {:.2}", possible.median()));
        let ([one, two], [p1, p2]) = (pair(self.cores)?, pair(self.producers)?);
        let (one, two, p1, p2) = (one.median(), two.median(), p1.median(), p2.median());
        say(&format!(
            "  cores of the relay (of producers)  one {one:.2} ({p1:.2})  two {two:.2} ({p2:.2})"
        ));
        let [one, two] = pair(self.per_cpu)?;
        let (one, two) = (one.median(), two.median());
        let kept = Rounds::new(self.per_cpu_ratio)?;
        let (low, high) = kept.spread();
        say(&format!("  packets per CPU second of the relay  one {one:>8.0}  two {two:>8.0}"));
        say(&format!("    ratio         {:.2} (from {low:.2} to {high:.2})", kept.median()));
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
