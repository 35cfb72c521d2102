//! The law of stitching: facts cut anywhere, summarised piece by piece and merged in any order give the bytes of the whole.
//!
//! The facts come from a small kernel that shares no code with what is tried, the cuts from [`case`]. A case is told by its
//! seed alone; one that fails is shown with the fewest steps that still fail.

mod case;
pub(crate) mod dice;
mod export;
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a generator that fails is a failure of the run"
)]
#[path = "../../../crates/stitch/tests/it/kernel_like.rs"]
mod kernel_like;
mod profile;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use stitch::Part;

use case::Case;

/// Cases tried for a part that is left out. The rarest is missed once in some thousands: it takes a thread that is seen
/// after events of its CPU were lost, and a cut between.
const MUTANT_CASES: u64 = 20_000;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// How many cases to try
    #[arg(long, default_value_t = 100_000)]
    cases: u64,
    /// The seed of the first; the others follow it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many threads try them [default: one for each CPU]
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Leave each part of the summaries out in turn, and tell which case notices
    #[arg(long, conflicts_with = "cases")]
    mutate: bool,
}

/// Laws of other things than stitching.
#[derive(clap::Subcommand)]
enum Other {
    /// What it means that a packet of samples needs nothing else, over minutes; needs root. Exit code 1: a law is broken
    Profile(profile::Args),
    /// What a store exports is what it stores, exactly once, while it, Prometheus and requests between them are killed and failed at, and
    /// rules are made, changed and deleted. Exit code 1: it is not; 2: nothing was compared
    Export(export::Args),
}

/// Tries a law; whether it holds.
///
/// # Errors
/// When it cannot be tried; the law of stitching also when a case breaks it.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    match &args.other {
        Some(Other::Profile(args)) => profile::run(args),
        Some(Other::Export(args)) => export::run(args),
        None => of_stitching(args).map(|()| true),
    }
}

fn of_stitching(args: &Args) -> anyhow::Result<()> {
    if args.mutate {
        // What a summary without a part runs into may be a panic; it is told here.
        std::panic::set_hook(Box::new(|_| {}));
        return mutate(args.seed);
    }
    let begin = Instant::now();
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok());
    let facts = many(args.seed, args.cases, jobs.map_or(1, NonZero::get))?;
    let last = args.seed.saturating_add(args.cases).saturating_sub(1);
    say(&format!(
        "seeds {} to {last}: the law holds; {facts} facts, {:.1} s",
        args.seed,
        begin.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn mutate(first: u64) -> anyhow::Result<()> {
    let mut unnoticed = Vec::new();
    for part in Part::ALL {
        match notice(part, first) {
            Some((seed, found)) => {
                say(&format!("{:<16} seed {seed:>4}: {found}", format!("{part:?}")));
            }
            None => unnoticed.push(part),
        }
    }
    if unnoticed.is_empty() {
        return Ok(());
    }
    bail!("not missed in {MUTANT_CASES} cases: {unnoticed:?}")
}

/// Tries cases on several threads; gives how many facts they had.
fn many(first: u64, cases: u64, jobs: usize) -> anyhow::Result<u64> {
    let end = first.checked_add(cases).context("there are not as many seeds")?;
    let next = AtomicU64::new(first);
    let work = || -> Result<u64, u64> {
        let mut facts = 0;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return Ok(facts);
            }
            let case = Case::new(seed);
            if tried(&case, None).is_err() {
                next.store(end, Ordering::Relaxed);
                return Err(seed);
            }
            facts += case.facts();
        }
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut facts = 0;
    for thread in done {
        match thread {
            Ok(Ok(seen)) => facts += seen,
            Ok(Err(seed)) => return Err(smallest(seed)),
            Err(_) => bail!("a thread ended early"),
        }
    }
    Ok(facts)
}

/// What is wrong with a case; a panic is wrong as well.
fn tried(case: &Case, without: Option<Part>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| case.check(without))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref().copied()).unwrap_or("?")))
    })
}

/// The first case that notices that a part is missing, and how.
fn notice(part: Part, first: u64) -> Option<(u64, String)> {
    let mut seeds = first..first.saturating_add(MUTANT_CASES);
    seeds.find_map(|seed| Some((seed, tried(&Case::new(seed), Some(part)).err()?)))
}

/// Leaves steps out for as long as the case goes on to fail, and tells it.
fn smallest(seed: u64) -> anyhow::Error {
    let mut case = Case::new(seed);
    let mut stride = case.steps.len().div_ceil(2);
    while stride > 0 {
        let mut at = 0;
        while at < case.steps.len() {
            let mut less = case.clone();
            less.steps.drain(at..(at + stride).min(case.steps.len()));
            if tried(&less, None).is_err() {
                case = less;
            } else {
                at += stride;
            }
        }
        stride /= 2;
    }
    let found = tried(&case, None).err().unwrap_or_default();
    anyhow::anyhow!("seed {seed}: {found}\n{}", case.show())
}

#[expect(clippy::print_stdout, reason = "this is the command line of a development tool")]
fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_thousand_cases_cut_and_merged_at_random_give_the_bytes_of_the_whole() {
        let facts = many(0, 2_000, 2).unwrap();
        assert!(facts > 100_000, "{facts} facts");
    }

    #[test]
    fn every_part_of_a_summary_is_missed_where_it_is_left_out() {
        let unnoticed: Vec<Part> =
            Part::ALL.into_iter().filter(|part| notice(*part, 0).is_none()).collect();
        assert_eq!(unnoticed, []);
    }
}
