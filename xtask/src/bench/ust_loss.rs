//! `cargo xtask bench ust_loss`: events that a saturating user-space producer loses while it streams to a relay.
//!
//! A program that does nothing but record events fills four sub-buffers of 32 KiB for each CPU; lttng-consumerd sends each
//! one that is full and waits for the relay's reply before it sends the next. What finds no room is discarded. Rounds of
//! our relay and lttng-relayd take turns. What is in the trace is counted by reading it, so that discarded = recorded by the
//! program - read.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::lttng::SessionDaemon;

use super::lttng::Ticks;
use super::measure::{self, Rounds};
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
    /// Rounds of each relay
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let relays = [Which::Ours(&args.binary), Which::Reference];
    let mut discarded: [Vec<f64>; 2] = Default::default();
    let mut cpu: [Vec<f64>; 2] = Default::default();
    for round in 0..args.rounds {
        let mut turns: Vec<_> = relays.into_iter().zip(&mut discarded).zip(&mut cpu).collect();
        // Who comes second may find memory that the first has used; neither always does.
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((which, discarded), cpu) in turns {
            let (lost, used) = discarded_by(which, args)?;
            discarded.push(lost as f64);
            cpu.push(used);
        }
    }
    let [ours, theirs] = &discarded;
    let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    say(&format!(
        "{} events of 64 bytes from {} threads, 4 sub-buffers of 32 KiB a CPU",
        args.events, args.threads
    ));
    for ((which, discarded), cpu) in relays.into_iter().zip(discarded).zip(cpu) {
        let (discarded, cpu) = (Rounds::new(discarded)?, Rounds::new(cpu)?);
        let (low, high) = discarded.spread();
        let percent = 100.0 * discarded.median() / args.events as f64;
        say(&format!(
            "  {:<18} {:>9.0} discarded ({percent:.1} %; from {low:.0} to {high:.0}); {:.2} CPU s",
            which.name(),
            discarded.median(),
            cpu.median()
        ));
    }
    let ratios = Rounds::new(ratios)?;
    let (low, high) = ratios.spread();
    say(&format!("  ratio {:.2} (from {low:.2} to {high:.2})", ratios.median()));
    Ok(())
}

/// Events that one recording lost, and CPU seconds that the relay used.
fn discarded_by(which: Which<'_>, args: &Args) -> anyhow::Result<(u64, f64)> {
    let relay = Running::start(which)?;
    let daemon = SessionDaemon::start()?;
    let url = format!("--set-url={}", relay.url());
    let channel = ["--discard", "--subbuf-size=32K", "--num-subbuf=4"];
    let Args { events, threads, .. } = *args;
    Ticks { count: events, threads, channel: &channel, destination: &[&url] }.record(&daemon)?;
    drop(daemon);
    let used = measure::cpu_of_process(relay.pid())?.as_secs_f64();
    let mut read = Command::new(&args.binary);
    let output = read.args(["read", "--count"]).arg(relay.folder()).output()?;
    ensure!(output.status.success(), "read: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let number: String = said.trim().chars().take_while(char::is_ascii_digit).collect();
    let found: u64 = number.parse().with_context(|| said.into_owned())?;
    ensure!(found > 0, "nothing was recorded");
    Ok((events.saturating_sub(found), used))
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
