//! `cargo xtask bench cluster`: what having a job done by `throughline worker` processes costs, and what killing one of them does.
//!
//! Sessions of so many chunks are written for it, of records that say which thread they are of, so that windows are read once.
//! Each is analysed by one process with one thread and with two, and by one to three workers of one thread each, which listen on the
//! loopback interface of this machine; each time from nothing, blocks in a folder. Then workers are killed with SIGKILL: at the start,
//! while windows are read, and when runs of them are merged. The answer must be the same bytes, at once or, after an error with the
//! worker's name, when it is asked for again.

mod kills;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use testkit::Chunked;

use super::measure::{Cost, Rounds, cpu_of_process};
use super::table::machine;
use workers::{Worker, addresses};

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many chunks sessions have
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    chunks: Vec<u64>,
    /// Event records of each of the two CPUs in each chunk
    #[arg(long, default_value_t = 20_000)]
    events: u64,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How often a worker is killed in each phase of a job
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// Where the random moments begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let binary = args.binary.canonicalize()?;
    say(&machine()?);
    for chunks in &args.chunks {
        cost(args, &binary, *chunks).with_context(|| format!("{chunks} chunks"))?;
    }
    if args.kills > 0 {
        kills::run(args, &binary)?;
    }
    Ok(())
}

/// Who does a job.
#[derive(Clone, Copy)]
enum Who {
    Threads(u32),
    Workers(usize),
}

impl Who {
    const ALL: [Self; 5] =
        [Self::Threads(1), Self::Threads(2), Self::Workers(1), Self::Workers(2), Self::Workers(3)];

    fn name(self) -> String {
        match self {
            Self::Threads(count) => format!("one process, threads: {count}"),
            Self::Workers(count) => format!("workers of one thread: {count}"),
        }
    }
}

/// A session in a folder of its own.
struct Session {
    _scratch: tempfile::TempDir,
    folder: PathBuf,
    traces: PathBuf,
    events: u64,
}

impl Session {
    fn write(chunks: u64, events: u64) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let folder = scratch.path().to_owned();
        let traces = folder.join("traces");
        let written = Chunked { chunks, events, seed: 1 }.write_with_threads(&traces).len();
        ensure!(written as u64 == chunks, "{written} chunks were written");
        Ok(Self { _scratch: scratch, folder, traces, events: 2 * chunks * events })
    }

    fn bytes(&self) -> anyhow::Result<u64> {
        bytes_below(&self.traces)
    }

    /// A job on it, which keeps blocks in `kept`.
    fn job(&self, binary: &Path, kept: &Path) -> Command {
        let mut command = Command::new(binary);
        command.args(["analyze", "all", "--format", "json"]).arg(&self.traces);
        command.arg("--blocks").arg(kept).stdin(Stdio::null());
        command
    }
}

fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// What a job cost: its own process and the workers.
struct Measured {
    coordinator: Cost,
    workers_s: f64,
    answer: Vec<u8>,
}

fn measure(mut command: Command, workers: &[Worker]) -> anyhow::Result<Measured> {
    let spent = || {
        workers
            .iter()
            .map(|worker| cpu_of_process(worker.id()))
            .sum::<anyhow::Result<std::time::Duration>>()
    };
    let (before, begin) = (spent()?, Instant::now());
    let own = workers::children()?;
    let output = command.output().context("the binary")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let coordinator = Cost { cpu: workers::children()?.saturating_sub(own), wall: begin.elapsed() };
    let workers_s = spent()?.saturating_sub(before).as_secs_f64();
    Ok(Measured { coordinator, workers_s, answer: output.stdout })
}

#[derive(Default)]
struct Figures {
    wall_s: Vec<f64>,
    coordinator_s: Vec<f64>,
    workers_s: Vec<f64>,
    again_s: Vec<f64>,
}

/// The same job, done by all of them in turn, as many rounds as are asked for.
fn cost(args: &Args, binary: &Path, chunks: u64) -> anyhow::Result<()> {
    let session = Session::write(chunks, args.events)?;
    let workers: Vec<Worker> = (0..3).map(|_| Worker::start(binary)).collect::<Result<_, _>>()?;
    let mut figures: Vec<Figures> = Who::ALL.iter().map(|_| Figures::default()).collect();
    let mut truth: Option<Vec<u8>> = None;
    let mut kept_bytes = 0;
    for round in 0..args.rounds.max(1) {
        for (n, (who, figures)) in Who::ALL.into_iter().zip(&mut figures).enumerate() {
            let kept = session.folder.join(format!("kept-{round}-{n}"));
            let (mut command, crew) = (session.job(binary, &kept), workers.as_slice());
            let crew = match who {
                Who::Threads(count) => {
                    command.args(["--threads", &count.to_string()]);
                    crew.get(..0)
                }
                Who::Workers(count) => crew.get(..count),
            };
            let crew = crew.unwrap_or_default();
            if !crew.is_empty() {
                command.args(["--workers", &addresses(crew)]);
            }
            let measured = measure(command, crew)?;
            figures.wall_s.push(measured.coordinator.wall.as_secs_f64());
            figures.coordinator_s.push(measured.coordinator.cpu.as_secs_f64());
            figures.workers_s.push(measured.workers_s);
            let truth = truth.get_or_insert_with(|| measured.answer.clone());
            ensure!(*truth == measured.answer, "{} answered differently", who.name());
            let again = measure(session.job(binary, &kept), &[])?;
            ensure!(*truth == again.answer, "blocks of {} answered differently", who.name());
            figures.again_s.push(again.coordinator.wall.as_secs_f64());
            kept_bytes = bytes_below(&kept)?;
            fs::remove_dir_all(&kept)?;
        }
    }
    let megabytes = session.bytes()? as f64 / 1e6;
    let percent = kept_bytes as f64 / 1e4 / megabytes;
    say(&format!(
        "\n{chunks} chunks, {} event records, {megabytes:.1} MB; blocks are {percent:.1} % of that; medians of {} rounds (lowest to highest)\n",
        session.events,
        args.rounds.max(1)
    ));
    say(
        "| who | wall s | CPU s, coordinator | CPU s, workers | CPU, to one thread | asked again, wall s |",
    );
    say("|---|---|---|---|---|---|");
    let mut one = None;
    for (who, figures) in Who::ALL.into_iter().zip(figures) {
        let rounds = |figures: Vec<f64>| Rounds::new(figures);
        let (wall, own) = (rounds(figures.wall_s)?, rounds(figures.coordinator_s)?);
        let (theirs, again) = (rounds(figures.workers_s)?, rounds(figures.again_s)?);
        let all = own.median() + theirs.median();
        let ratio = all / *one.get_or_insert(all);
        let (low, high) = wall.spread();
        say(&format!(
            "| {} | {:.2} ({low:.2} to {high:.2}) | {:.2} | {:.2} | {ratio:.2}× | {:.2} |",
            who.name(),
            wall.median(),
            own.median(),
            theirs.median(),
            again.median()
        ));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
