//! `cargo xtask bench cluster`: what having a job done by `throughline worker` processes costs, and what killing them does.
//!
//! Sessions of so many chunks are written for it, of records that say which thread they are of, so that windows are read once.
//! Each is analysed by one process with one thread and with two, and by one to three workers of one thread each; each time from
//! nothing. Then a job is cut into tasks in every way that there is. Then workers are killed with SIGKILL: at the start, while
//! windows are read, and in a merge of what a worker read. The answer must be the same bytes, at once or, after an error
//! with the worker's name, when it is asked for again. Then a long job is killed with all its processes, and resumed: no block
//! that was committed may be made again.
//!
//! All processes listen on the loopback interface of this machine, and chunks and blocks lie in folders; or, with `--machines`,
//! each process is in a network namespace of its own, and chunks and blocks are in SeaweedFS, over S3.

mod kills;
mod site;
mod workers;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

use super::measure::{Cost, Rounds, cpu_of_process};
use super::table::machine;
use site::{COUNT, Session, Site};
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
    /// Windows of the job that is cut in every way; 0: it is left out
    #[arg(long, default_value_t = 12)]
    splits: u64,
    /// How often a worker is killed in each phase of a job
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// Chunks of the job that is killed and resumed; 0: it is left out
    #[arg(long, default_value_t = 1_000)]
    resume: u64,
    /// Each process in a network namespace of its own, chunks and blocks in SeaweedFS, over S3; needs root, ip and weed
    #[arg(long)]
    machines: bool,
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
    let site = Site::new(&binary, args.machines)?;
    for chunks in &args.chunks {
        cost(args, &site, *chunks).with_context(|| format!("{chunks} chunks"))?;
    }
    if args.splits > 0 {
        splits(args, &site)?;
    }
    if args.kills > 0 {
        kills::run(args, &site)?;
    }
    if args.resume > 0 {
        kills::resume(args, &site)?;
    }
    Ok(())
}

/// The same job, cut into as many tasks as it has windows at most, and two more, on one worker and on all.
fn splits(args: &Args, site: &Site) -> anyhow::Result<()> {
    let session = site.session(args.splits, args.events.min(2_000))?;
    let truth = site.job(&session, "truth").output()?;
    ensure!(truth.status.success(), "{}", String::from_utf8_lossy(&truth.stderr));
    let blocks = site.committed("truth")?;
    let workers = crew(site)?;
    let mut cuts = 0;
    for crew in [workers.get(..1).unwrap_or_default(), &workers] {
        for tasks in 2..=args.splits + 2 {
            let mut command = site.job(&session, "kept");
            command.args(["--workers", &addresses(crew), "--tasks", &tasks.to_string()]);
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{tasks} tasks: {said}");
            ensure!(!said.contains("lost"), "{tasks} tasks: {said}");
            ensure!(output.stdout == truth.stdout, "{tasks} tasks: another answer");
            ensure!(
                site.committed("kept")?.keys().eq(blocks.keys()),
                "{tasks} tasks: other blocks"
            );
            site.forget("kept")?;
            cuts += 1;
        }
    }
    say(&format!(
        "\n{} chunks; {}: the same bytes and blocks as of one process from {cuts} cuts, into 2 to {} tasks, by one worker and by {COUNT}",
        args.splits,
        site.name(),
        args.splits + 2
    ));
    site.forget("truth")?;
    site.remove(&session)
}

fn crew(site: &Site) -> anyhow::Result<Vec<Worker>> {
    let log = |number: usize| site.scratch().join(format!("worker-{number}"));
    (0..COUNT).map(|number| site.worker(number, &log(number))).collect()
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
fn cost(args: &Args, site: &Site, chunks: u64) -> anyhow::Result<()> {
    let session = site.session(chunks, args.events)?;
    let workers = crew(site)?;
    let mut figures: Vec<Figures> = Who::ALL.iter().map(|_| Figures::default()).collect();
    let mut truth: Option<Vec<u8>> = None;
    let mut kept_bytes = None;
    for round in 0..args.rounds.max(1) {
        for (n, (who, figures)) in Who::ALL.into_iter().zip(&mut figures).enumerate() {
            let kept = format!("kept-{round}-{n}");
            let (mut command, crew) = (site.job(&session, &kept), workers.as_slice());
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
            let again = measure(site.job(&session, &kept), &[])?;
            ensure!(*truth == again.answer, "blocks of {} answered differently", who.name());
            figures.again_s.push(again.coordinator.wall.as_secs_f64());
            kept_bytes = site.kept_bytes(&kept)?;
            site.forget(&kept)?;
        }
    }
    site.remove(&session)?;
    table(args, site, &session, figures, kept_bytes)
}

fn table(
    args: &Args,
    site: &Site,
    session: &Session,
    figures: Vec<Figures>,
    kept_bytes: Option<u64>,
) -> anyhow::Result<()> {
    let megabytes = session.bytes as f64 / 1e6;
    let blocks = kept_bytes.map_or(String::new(), |bytes| {
        format!("blocks are {:.1} % of that; ", bytes as f64 / 1e4 / megabytes)
    });
    say(&format!(
        "\n{} chunks, {} event records, {megabytes:.1} MB; {blocks}{}; medians of {} rounds (lowest to highest)\n",
        session.chunks,
        session.events,
        site.name(),
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
