//! `cargo xtask bench ust_loss`: events that a saturating user-space producer loses while it streams to a relay.
//!
//! A program that does nothing but record events fills four sub-buffers of 32 KiB for each CPU; lttng-consumerd sends each
//! one that is full and waits for the relay's reply before it sends the next. What finds no room is discarded. Rounds of
//! our relay, lttng-relayd and no relay (lttng-consumerd writes files itself) take turns. What is in the trace is counted by reading it, so that discarded = recorded by the
//! program - read.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::lttng::SessionDaemon;

use super::lttng::Ticks;
use super::measure::Rounds;
use crate::relays::{Running, Which};

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events the program records
    #[arg(long, default_value_t = 8_000_000)]
    events: u64,
    /// Its threads, each on a CPU of its own where there are enough
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Events a second; 0 is as fast as the program can. May be repeated
    #[arg(long = "rate", default_values_t = [2_000_000, 3_000_000, 4_000_000, 6_000_000, 0])]
    rates: Vec<u64>,
    /// Rounds of each relay and rate
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let relays = [Some(Which::Ours(&args.binary)), Some(Which::Reference), None];
    say(&format!(
        "{} events of 64 bytes from {} threads, 4 sub-buffers of 32 KiB a CPU",
        args.events, args.threads
    ));
    for rate in &args.rates {
        let mut discarded: [Vec<f64>; 3] = Default::default();
        for round in 0..args.rounds {
            let mut turns: Vec<_> = relays.into_iter().zip(&mut discarded).collect();
            // Who comes second may find memory that the first has used; neither always does.
            if round % 2 == 1 {
                turns.reverse();
            }
            for (which, discarded) in turns {
                discarded.push(discarded_by(which, *rate, args)? as f64);
            }
        }
        report(*rate, args, relays, discarded)?;
    }
    Ok(())
}

fn report(
    rate: u64,
    args: &Args,
    relays: [Option<Which<'_>>; 3],
    discarded: [Vec<f64>; 3],
) -> anyhow::Result<()> {
    match rate {
        0 => say("as fast as it can"),
        rate => say(&format!("{rate} events/s")),
    }
    let mut medians = Vec::new();
    for (which, discarded) in relays.into_iter().zip(discarded) {
        let discarded = Rounds::new(discarded)?;
        let percent = |events: f64| 100.0 * events / args.events as f64;
        let (low, high) = discarded.spread();
        say(&format!(
            "  {:<18} {:>9.0} discarded, {:.1} % (from {:.1} to {:.1})",
            which.map_or("no relay", Which::name),
            discarded.median(),
            percent(discarded.median()),
            percent(low),
            percent(high),
        ));
        medians.push(discarded.median());
    }
    if let &[ours, theirs, _] = medians.as_slice() {
        say(&format!("  ratio {:.2}", ours / theirs));
    }
    Ok(())
}

/// Events that one recording lost.
fn discarded_by(which: Option<Which<'_>>, rate: u64, args: &Args) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir()?;
    let relay = which.map(Running::start).transpose()?;
    let daemon = SessionDaemon::start()?;
    let destination = match &relay {
        Some(relay) => format!("--set-url={}", relay.url()),
        None => format!("--output={}", folder.path().display()),
    };
    let channel = ["--discard", "--subbuf-size=32K", "--num-subbuf=4"];
    let Args { events, threads, .. } = *args;
    // Each thread has its share of the rate.
    let pause_ns = (threads as u64 * 1_000_000_000).checked_div(rate).unwrap_or(0);
    Ticks { count: events, threads, pause_ns, channel: &channel, destination: &[&destination] }
        .record(&daemon)?;
    drop(daemon);
    let written = relay.as_ref().map_or(folder.path(), Running::folder);
    let mut read = Command::new(&args.binary);
    let output = read.args(["read", "--count"]).arg(written).output()?;
    ensure!(output.status.success(), "read: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let number: String = said.trim().chars().take_while(char::is_ascii_digit).collect();
    let found: u64 = number.parse().with_context(|| said.into_owned())?;
    ensure!(found > 0, "nothing was recorded");
    Ok(events.saturating_sub(found))
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
