//! `cargo xtask bench relay`: what a relay costs, ours against lttng-relayd, fed by one producer that does what
//! lttng-consumerd does: packet on the data connection, index entry on the control connection, wait for its reply.
//!
//! Two figures: CPU seconds of the relay's process per GB of 64 KiB packets, and microseconds from one 4 KiB packet to the
//! next. Sealing and destroying are outside.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use wire::live::NetSeqNum;

use super::measure::{self, Rounds};
use crate::producer::{Producer, STREAMS};
use crate::relays::{Running, Which};

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packets of 64 KiB, in MB
    #[arg(long, default_value_t = 2000)]
    megabytes: u64,
    /// Packets of 4 KiB
    #[arg(long, default_value_t = 50_000)]
    packets: u64,
    /// Rounds of each program
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let large = args.megabytes * 1_000_000 / (64 << 10);
    let mut figures: [[Vec<f64>; 3]; 2] = Default::default();
    for round in 0..args.rounds {
        let relays = [Which::Ours(&args.binary), Which::Reference];
        let mut turns: Vec<_> = figures.iter_mut().zip(relays).collect();
        // Who comes second may find memory that the first has used; neither always does.
        if round % 2 == 1 {
            turns.reverse();
        }
        for ([per_gb, per_packet, cpu_per_packet], which) in turns {
            let cost = feed(&Running::start(which)?, 64 << 10, large)?;
            let gigabytes = (large * (64 << 10)) as f64 / 1e9;
            per_gb.push(cost.cpu.as_secs_f64() / gigabytes);
            let cost = feed(&Running::start(which)?, 4 << 10, args.packets)?;
            per_packet.push(cost.wall.as_secs_f64() * 1e6 / args.packets as f64);
            cpu_per_packet.push(cost.cpu.as_secs_f64() * 1e6 / args.packets as f64);
        }
    }
    let [ours, theirs] = figures;
    let names = [
        "CPU seconds per GB at 64 KiB",
        "µs per 4 KiB packet, end to end",
        "µs of CPU per 4 KiB packet",
    ];
    for ((name, ours), theirs) in names.iter().zip(ours).zip(theirs) {
        report(name, &Rounds::new(ours)?, &Rounds::new(theirs)?);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn report(name: &str, ours: &Rounds, theirs: &Rounds) {
    println!("{name}");
    for (who, rounds) in [("throughline relay", ours), ("lttng-relayd", theirs)] {
        let (low, high) = rounds.spread();
        println!("  {who:<20} {:>8.3} (from {low:.3} to {high:.3})", rounds.median());
    }
    println!("  ratio {:.2}", ours.median() / theirs.median());
}

/// Sends `count` packets of `size` bytes; gives the relay's CPU time and the wall time for them.
fn feed(relay: &Running, size: usize, count: u64) -> anyhow::Result<measure::Cost> {
    let (control, data) = relay.addresses();
    let mut producer = Producer::connect(control, data)?;
    let streams = producer.open(1)?;
    let mut packet = vec![0x5a; wire::live::DATA_HEADER_LEN + size];
    measure::warm_memory(count * size as u64)?;
    let before = measure::cpu_of_process(relay.pid())?;
    let begin = Instant::now();
    for number in 0..count {
        let stream = streams.get(usize::try_from(number % STREAMS)?).context("a stream")?;
        producer.send(*stream, number / STREAMS, &mut packet)?;
    }
    for (stream, place) in streams.iter().zip(0..) {
        let sent = (count + STREAMS - 1 - place) / STREAMS;
        producer.wait_for(*stream, NetSeqNum::new(sent.wrapping_sub(1)))?;
    }
    let wall = begin.elapsed();
    let cpu = measure::cpu_of_process(relay.pid())?.saturating_sub(before);
    Ok(measure::Cost { cpu, wall })
}
