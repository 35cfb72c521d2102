//! `cargo xtask bench read`: events per CPU second, ours against babeltrace2 with its dummy sink.
//!
//! Two inputs: the trace given by `--trace` (a large kernel trace is the interesting one), and 500 MB
//! of user-space events that real LTTng tools record for the occasion.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::lttng::Session;
use super::measure::{self, Rounds};

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
        let folder = env::temp_dir().join(format!("throughline-bench-read-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let result = record(&folder, args.record_mb).and_then(|()| {
            compare(
                args,
                &folder.join("trace"),
                &format!("{} MB of user-space events", args.record_mb),
            )
        });
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        result?;
    }
    Ok(())
}

/// A real tracer writes the trace, in blocking mode so that nothing is discarded.
fn record(folder: &Path, megabytes: u32) -> anyhow::Result<()> {
    /// Header, padding-free payload: measured as stream bytes divided by events.
    const BYTES_PER_EVENT: u32 = 36;
    let program = Session::compile_tick(folder)?;
    let session = Session::start(folder, &folder.join("trace"))?;
    let count = u64::from(megabytes) * 1_000_000 / u64::from(BYTES_PER_EVENT);
    let status = Command::new(program)
        .arg(count.to_string())
        .envs(session.environment())
        .env("LTTNG_UST_ALLOW_BLOCKING", "1")
        .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
        .status()
        .context("the traced program")?;
    ensure!(status.success(), "the traced program ended with {status}");
    session.finish()
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
