//! `throughline analyze NAME PATH…`: where the time of requests went, and what threads, CPUs and devices did.

mod filter;
pub(crate) mod kept;
mod log;
mod path;
pub(crate) mod periods;
mod tables;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use mapper::{Analysis, Options, SpanRules, Windows, analyse};
use report::text;
use stitch::{Subject, Summary};

use crate::outcome::{Outcome, complain};

const EXAMPLES: &str = "\
Examples:
  throughline analyze phases throughline-data/traces/       all sessions of a host, as tables
  throughline analyze phases --format html session/ > page.html
  throughline analyze syscalls --format json kernel/
  throughline analyze schedstats --procname firefox kernel/
  throughline analyze all --format json kernel/             every table, from one pass
  throughline analyze critical-path --request 1948 session/ kernel/
  throughline analyze schedlog --min 1ms --begin 16:44:07 --end 16:44:08 kernel/
  throughline analyze phases --blocks kept/ session/        again, and with more chunks, only what is missing is read
  throughline analyze phases --blocks s3://traces/blocks s3://traces/fleet/HOST
  throughline analyze all --workers w1,w2,w3 --blocks s3://traces/blocks s3://traces/fleet/HOST

Exit code 1: some of the data cannot be read; the rest was. 3: workers were lost; run again, it goes on from what is kept.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Where the time of requests went, by phase
    Phases(PhasesArgs),
    /// Complete system calls by process, name and file
    Syscalls(SyscallsArgs),
    /// System calls by thread and by name: counts, durations, how they returned
    Syscallstats(tables::Args),
    /// Scheduling latencies by thread: from a wake-up to a CPU
    Schedstats(tables::Args),
    /// The longest scheduling latencies
    Schedtop(tables::Args),
    /// Scheduling latencies by length
    Schedfreq(tables::Args),
    /// Interrupts: how long handlers ran, how long soft ones waited
    Irqstats(tables::Args),
    /// Interrupts by length
    Irqfreq(tables::Args),
    /// CPU time by thread and by CPU
    Cputop(tables::Args),
    /// Latencies of operations on files and of block devices
    Iolatencystats(tables::Args),
    /// The longest operations on files and requests to block devices
    Iolatencytop(tables::Args),
    /// Operations on files and requests to block devices by length
    Iolatencyfreq(tables::Args),
    /// Bytes read and written by process, file, device and network interface
    Iousagetop(tables::Args),
    /// Pages of memory by thread
    Memtop(tables::Args),
    /// What threads waited for, how long, and who ended it: by cause, by process, by thread, by waker
    Blocked(tables::Args),
    /// Through which threads the time of requests went: last-waker critical paths
    CriticalPath(path::Args),
    /// All of the tables above, from one pass
    All(tables::Args),
    /// Every interrupt, in the order in which they ended
    Irqlog(log::Args),
    /// Every scheduling latency
    Schedlog(log::Args),
    /// Every call that opens, closes, reads, writes or syncs a file
    Iolog(log::Args),
    /// Every system call
    Syscalllog(log::Args),
    /// Every request to a block device
    Disklog(log::Args),
    /// How long it took from events to others that you define
    Periodstats(periods::Args),
    /// The same by length
    Periodfreq(periods::Args),
    /// The longest of these periods
    Periodtop(periods::Args),
    /// Every such period, in the order in which they ended
    Periodlog(periods::Args),
}

#[derive(clap::Args)]
struct PhasesArgs {
    #[command(flatten)]
    input: Input,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = PageFormat::Table)]
    format: PageFormat,
    /// Spans of this name are requests, all others phases in them; may be repeated [default: request, req]
    #[arg(long = "request", value_name = "NAME")]
    requests: Vec<String>,
}

#[derive(clap::Args)]
struct SyscallsArgs {
    #[command(flatten)]
    input: Input,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(clap::Args)]
struct Input {
    /// Folders with traces of one host in or below them: sessions, chunks, single traces; or s3://BUCKET[/PREFIX] with
    /// sealed chunks
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read everything as one piece instead of chunk by chunk; the answer is the same
    #[arg(long, conflicts_with = "blocks")]
    whole: bool,
    /// How many threads read [default: one for each CPU]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    kept: kept::Args,
}

#[derive(Clone, Copy, ValueEnum)]
enum PageFormat {
    /// Aligned columns
    Table,
    /// One JSON document
    Json,
    /// A page that needs nothing else
    Html,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// One JSON document
    Json,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        What::Phases(args) => {
            let mut rules = SpanRules::default();
            if !args.requests.is_empty() {
                rules.requests.clone_from(&args.requests);
            }
            let options = Options { rules, ..args.input.options() };
            let analysis = args.input.analyse(&options)?;
            print(&phases(&analysis.summary, args.format)?)?;
            Ok(tell(&analysis))
        }
        What::Syscalls(args) => {
            let analysis = args.input.analyse(&args.input.options())?;
            let answer = stitch::syscalls(&analysis.summary);
            print(&match args.format {
                Format::Table => text::syscalls(&answer),
                Format::Json => serde_json::to_string(&answer)? + "\n",
            })?;
            Ok(tell(&analysis))
        }
        What::Syscallstats(args) => args.run(&[Subject::Syscallstats]),
        What::Schedstats(args) => args.run(&[Subject::Schedstats]),
        What::Schedtop(args) => args.run(&[Subject::Schedtop]),
        What::Schedfreq(args) => args.run(&[Subject::Schedfreq]),
        What::Irqstats(args) => args.run(&[Subject::Irqstats]),
        What::Irqfreq(args) => args.run(&[Subject::Irqfreq]),
        What::Cputop(args) => args.run(&[Subject::Cputop]),
        What::Iolatencystats(args) => args.run(&[Subject::Iolatencystats]),
        What::Iolatencytop(args) => args.run(&[Subject::Iolatencytop]),
        What::Iolatencyfreq(args) => args.run(&[Subject::Iolatencyfreq]),
        What::Iousagetop(args) => args.run(&[Subject::Iousagetop]),
        What::Memtop(args) => args.run(&[Subject::Memtop]),
        What::Blocked(args) => args.run(&[Subject::Blocked]),
        What::CriticalPath(args) => args.run(),
        What::All(args) => args.run(&Subject::ALL),
        What::Irqlog(args) => args.run(Subject::Irqlog),
        What::Schedlog(args) => args.run(Subject::Schedlog),
        What::Iolog(args) => args.run(Subject::Iolog),
        What::Syscalllog(args) => args.run(Subject::Syscalllog),
        What::Disklog(args) => args.run(Subject::Disklog),
        What::Periodstats(args) => args.run(periods::What::Stats),
        What::Periodfreq(args) => args.run(periods::What::Lengths),
        What::Periodtop(args) => args.run(periods::What::Longest),
        What::Periodlog(args) => args.run(periods::What::Log),
    }
}

fn phases(summary: &Summary, format: PageFormat) -> anyhow::Result<String> {
    let answer = stitch::phases(summary);
    Ok(match format {
        PageFormat::Table => text::phases(&answer),
        PageFormat::Json => serde_json::to_string(&answer)? + "\n",
        PageFormat::Html => server::page::standalone(&serde_json::to_string(&answer)?),
    })
}

pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl Input {
    fn options(&self) -> Options {
        let windows = if self.whole { Windows::Whole } else { Windows::Chunks };
        Options { windows, threads: self.threads, ..Options::default() }
    }

    fn analyse(&self, options: &Options) -> anyhow::Result<Analysis> {
        if self.kept.are_wanted(&self.paths) {
            return self.kept.analyse(&self.paths, options);
        }
        analyse(&self.paths, options).context("cannot analyse")
    }
}

/// Says what could not be read and which chunks were never sealed.
fn tell(analysis: &Analysis) -> Outcome {
    for chunk in &analysis.unsealed {
        complain(&format!("{}: was never sealed; what arrived was read", chunk.path.display()));
        chunk.missing.iter().for_each(|missing| complain(&format!("missing: {missing}")));
    }
    analysis.findings.iter().for_each(|finding| complain(&format!("unreadable: {finding}")));
    if analysis.more_findings > 0 {
        complain(&format!("unreadable: {} more", analysis.more_findings));
    }
    let missing = analysis.unsealed.iter().any(|chunk| !chunk.missing.is_empty());
    let unreadable = missing || !analysis.findings.is_empty() || analysis.more_findings > 0;
    if unreadable { Outcome::No } else { Outcome::Done }
}
