//! `cargo xtask law profile`: what it means that a packet of samples needs nothing else, over minutes, with the released binary and the
//! kernel of this machine. What takes seconds is in the tests of `capture`, `profile` and `cli`, under the same names.

mod away;
mod executables;
mod packets;
mod restarts;
mod reuse;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use testkit::executables::MAX_EXECUTABLES;

use super::say;

/// What is tried, and for how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Try these laws alone; all of them else
    #[arg(long, value_enum)]
    only: Vec<Law>,
    /// The binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
    /// Executables of S11, each of a file of its own
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_EXECUTABLES)))]
    executables: u32,
    /// Private memory that the agent of S11 may have besides unwind rows, in MiB
    #[arg(long, default_value_t = 32)]
    memory: u64,
    /// Seconds of S4, and of S6 with each CPython
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds for which the collector of S12 is away
    #[arg(long, default_value_t = 600)]
    away: u64,
}

/// The laws by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Law {
    /// Packets of an agent that is started every two seconds lack no name
    S4,
    /// Code objects of CPython that are used again: no wrong name
    S6,
    /// More executables than there are tables: no name is missing, and memory stays within its bound
    S11,
    /// A collector that is away: packets once each, memory flat, the disk within its bound
    S12,
}

/// What came of trying a law.
enum Verdict {
    Holds,
    Broken(Vec<String>),
    Skipped,
}

/// A law that was tried: figures, and what is not as it should be.
struct Tried {
    figures: String,
    broken: Vec<String>,
}

impl Tried {
    fn new(figures: String) -> Self {
        Self { figures, broken: Vec::new() }
    }

    /// Notes what is wrong unless this is so.
    fn expect(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(wrong());
        }
    }
}

/// Tries the laws; whether all hold.
///
/// # Errors
/// When one cannot be tried.
pub(super) fn run(args: &Args) -> anyhow::Result<bool> {
    if let Err(reason) = capture::kernel::preflight() {
        say(&format!("skipped: {reason}"));
        return Ok(true);
    }
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let binary = args.binary.canonicalize()?;
    let mut all_hold = true;
    for law in Law::value_variants() {
        if !args.only.is_empty() && !args.only.contains(law) {
            continue;
        }
        let (name, begin) = (format!("{law:?}"), Instant::now());
        let progress = Progress::new(&name);
        let seconds = Duration::from_secs(args.seconds);
        let tried = match law {
            Law::S4 => restarts::try_it(&binary, seconds, &progress).map(Some),
            Law::S6 => reuse::try_it(seconds, &progress),
            Law::S11 => {
                let memory_bytes = args.memory << 20;
                executables::try_it(&binary, args.executables, memory_bytes, &progress).map(Some)
            }
            Law::S12 => away::try_it(&binary, Duration::from_secs(args.away), &progress).map(Some),
        };
        drop(progress);
        let (verdict, figures) = match tried.with_context(|| name.clone())? {
            None => (Verdict::Skipped, "there is no CPython of 3.8 or later".to_owned()),
            Some(Tried { figures, broken }) if broken.is_empty() => (Verdict::Holds, figures),
            Some(Tried { figures, broken }) => (Verdict::Broken(broken), figures),
        };
        let took = begin.elapsed().as_secs();
        match verdict {
            Verdict::Holds => say(&format!("{name} holds: {figures}; {took} s")),
            Verdict::Skipped => say(&format!("{name} skipped: {figures}")),
            Verdict::Broken(broken) => {
                all_hold = false;
                say(&format!("{name} IS BROKEN: {figures}; {took} s"));
                broken.iter().for_each(|wrong| say(&format!("    {wrong}")));
            }
        }
    }
    Ok(all_hold)
}

/// A line on a terminal, which goes when it is dropped; nothing in a pipe.
struct Progress(ProgressBar);

impl Progress {
    fn new(law: &str) -> Self {
        // It draws on standard error, and only when that is a terminal.
        let bar = ProgressBar::new_spinner().with_prefix(law.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{prefix} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn tell(&self, text: String) {
        self.0.set_message(text);
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
