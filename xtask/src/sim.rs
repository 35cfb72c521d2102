//! Simulated recording sessions against the laws of what viewers are shown ([`relay::simulation`]).

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use relay::simulation::{Broken, Mutant, run as simulate};

/// Lines of a log that are shown of a seed that breaks a law.
const SHOWN: usize = 30;
/// Seeds tried for a rule that is broken on purpose.
const MUTANT_SEEDS: u64 = 1000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many seeds to try
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Simulate this one alone, twice, and print its log
    #[arg(long, conflicts_with_all = ["seeds", "first", "mutants"])]
    seed: Option<u64>,
    /// Break each rule on purpose, and tell which law notices
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    mutants: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // A law that does not hold ends its run with a panic, which is told here.
    std::panic::set_hook(Box::new(|_| {}));
    match args.seed {
        Some(seed) => one(seed),
        None if args.mutants => mutants(),
        None => many(args.first, args.seeds),
    }
}

fn one(seed: u64) -> anyhow::Result<()> {
    let log = simulate(seed, None).map_err(|broken| told(seed, &broken))?;
    if simulate(seed, None).as_ref() != Ok(&log) {
        bail!("seed {seed}: another log the second time");
    }
    say(log.trim_end());
    Ok(())
}

fn many(first: u64, seeds: u64) -> anyhow::Result<()> {
    let begin = Instant::now();
    let end = first.checked_add(seeds).context("there are not as many seeds")?;
    let next = AtomicU64::new(first);
    let try_all = || -> (u64, Option<(u64, Broken)>) {
        let mut lines = 0;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return (lines, None);
            }
            match simulate(seed, None) {
                Ok(log) => lines += log.lines().count() as u64,
                Err(broken) => {
                    next.store(end, Ordering::Relaxed);
                    return (lines, Some((seed, broken)));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(try_all)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut lines = 0;
    for thread in done {
        let Ok((seen, broken)) = thread else { bail!("a thread ended early") };
        lines += seen;
        if let Some((seed, broken)) = broken {
            return Err(told(seed, &broken));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    say(&format!(
        "seeds {first} to {}: all laws hold; {lines} things happened, {seconds:.1} s",
        end.saturating_sub(1)
    ));
    Ok(())
}

fn mutants() -> anyhow::Result<()> {
    for mutant in Mutant::ALL {
        let found = (0..MUTANT_SEEDS)
            .find_map(|seed| simulate(seed, Some(mutant)).err().map(|broken| (seed, broken)));
        let Some((seed, broken)) = found else { bail!("{mutant:?} is not noticed") };
        let law = broken.found.replace('\n', " ");
        say(&format!("{:<18} seed {seed:>3}: {law}", format!("{mutant:?}")));
    }
    Ok(())
}

/// What a seed came to, with the end of its log.
fn told(seed: u64, Broken { found, log }: &Broken) -> anyhow::Error {
    let lines: Vec<&str> = log.lines().collect();
    let world = lines.first().unwrap_or(&"");
    let last = lines.get(lines.len().saturating_sub(SHOWN).max(1)..).unwrap_or(&[]).join("\n");
    anyhow::anyhow!("seed {seed}: {found}\n{world}\n…\n{last}")
}

#[expect(clippy::print_stdout, reason = "this is the command line of a development tool")]
fn say(line: &str) {
    println!("{line}");
}
