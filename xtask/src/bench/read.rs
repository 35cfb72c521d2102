//! `cargo xtask bench read`: events per CPU second, ours against babeltrace2 with its dummy sink.
//!
//! Two inputs: the trace given by `--trace` (a large kernel trace is the interesting one), and 500 MB
//! of user-space events that real LTTng tools record for the occasion.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::lttng::record_ticks;
use super::measure::{self, Rounds};

/// Stream bytes of one recorded event: 4 of header, 8 and 20 of payload, and packet headers and padding.
const BYTES_PER_EVENT: u64 = 32;

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A trace folder to read; may be given several times
    #[arg(long)]
    trace: Vec<PathBuf>,
    /// Size of the user-space trace to record, in MB; 0 records none
    #[arg(long, default_value_t = 500)]
    record_mb: u32,
    /// Rounds of each program
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    for trace in &args.trace {
        compare(args, trace, &trace.display().to_string())?;
    }
    if args.record_mb > 0 {
        let folder = tempfile::tempdir()?;
        let count = u64::from(args.record_mb) * 1_000_000 / BYTES_PER_EVENT;
        record_ticks(count, folder.path())?;
        compare(args, folder.path(), &format!("{} MB of user-space events", args.record_mb))?;
    }
    Ok(())
}

fn compare(args: &Args, trace: &Path, name: &str) -> anyhow::Result<()> {
    let counted = Command::new(&args.binary).args(["read", "--count"]).arg(trace).output()?;
    let events: f64 = String::from_utf8_lossy(&counted.stdout)
        .trim()
        .parse()
        .with_context(|| format!("{name}: {}", String::from_utf8_lossy(&counted.stderr).trim()))?;
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..args.rounds {
        let mut read = Command::new(&args.binary);
        let cost = measure::run(read.args(["read", "--format", "none"]).arg(trace))?;
        ours.push(events / cost.cpu.as_secs_f64());
        let mut peer = Command::new("babeltrace2");
        let cost = measure::run(peer.args(["-o", "dummy"]).arg(trace))?;
        theirs.push(events / cost.cpu.as_secs_f64());
    }
    report(name, events, &Rounds::new(ours)?, &Rounds::new(theirs)?);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn report(name: &str, events: f64, ours: &Rounds, theirs: &Rounds) {
    println!("{name}: {events:.0} events, every field decoded, nothing printed");
    for (who, rounds) in [("throughline read", ours), ("babeltrace2 -o dummy", theirs)] {
        let (low, high) = rounds.spread();
        println!(
            "  {who:<22} {:>7.2} million events per CPU second (from {:.2} to {:.2})",
            rounds.median() / 1e6,
            low / 1e6,
            high / 1e6
        );
    }
    println!("  ratio {:.1}", ours.median() / theirs.median());
}
