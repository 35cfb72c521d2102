//! `cargo xtask bench capture`: how much slower a loop of system calls runs while something watches.
//!
//! The loop reads one byte from `/dev/zero`, as cheap as a system call with an argument gets, so the ratios are upper
//! bounds. Watchers: nobody, `throughline capture kernel` (everything of all processes, written to a folder),
//! bpftrace that counts calls by number, and `perf trace -s`. All of them in turn in each round; needs root.
//! perf takes so long for each call that its loop is shorter; what is compared is the time of one call.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use super::measure::Rounds;

/// The loop under perf is so many times shorter.
const PERF_SHARE: u64 = 16;

const LOOP_SOURCE: &str = include_str!("../../assets/reads.c");

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Calls in the loop
    #[arg(long, default_value_t = 1_600_000)]
    calls: u64,
    /// Rounds of each watcher
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Size of each CPU's ring buffer
    #[arg(long, default_value = "8MiB")]
    buffer: String,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let folder = tempfile::tempdir()?;
    let bench = Bench { args, program: compile(folder.path())? };
    let mut times: [Vec<f64>; 4] = Default::default();
    let mut ratios: [Vec<f64>; 4] = Default::default();
    let mut summaries = Vec::new();
    for round in 0..args.rounds {
        let (ours, summary) = bench.captured(&folder.path().join(round.to_string()))?;
        let round = [bench.alone()?, ours, bench.counted()?, bench.perf_traced()?];
        summaries.push(summary);
        for (place, (all, times)) in ratios.iter_mut().zip(&mut times).enumerate() {
            let time = round.get(place).copied().unwrap_or(f64::NAN);
            times.push(time);
            all.push(time / round.first().copied().unwrap_or(f64::NAN));
        }
    }
    report(args, times, ratios, &summaries)
}

struct Bench<'a> {
    args: &'a Args,
    program: PathBuf,
}

impl Bench<'_> {
    /// The loop with nobody watching; nanoseconds a call.
    fn alone(&self) -> anyhow::Result<f64> {
        run_loop(&mut Command::new(&self.program), self.args.calls)
    }

    /// The loop under our capture, and what the capture says at its end.
    fn captured(&self, folder: &Path) -> anyhow::Result<(f64, String)> {
        let mut command = Command::new(&self.args.binary);
        command.args(["capture", "kernel", "--buffer", &self.args.buffer, "--output"]).arg(folder);
        let mut watcher = Watcher::start(command.stderr(Stdio::piped()), |child| {
            child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read>)
        })?;
        let time = self.alone()?;
        let summary = watcher.finish()?;
        std::fs::remove_dir_all(folder)?;
        Ok((time, summary))
    }

    /// The loop while bpftrace counts calls.
    fn counted(&self) -> anyhow::Result<f64> {
        let program = "tracepoint:raw_syscalls:sys_enter { @[args->id] = count(); } \
                       interval:ms:50 { printf(\"counting\\n\"); }";
        let mut command = testkit::bpftrace();
        command.args(["-q", "-B", "line", "-e", program]).stdout(Stdio::piped());
        let mut watcher = Watcher::start(command.stderr(Stdio::null()), |child| {
            child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>)
        })?;
        let time = self.alone()?;
        watcher.finish()?;
        Ok(time)
    }

    /// The loop as a child of `perf trace -s`.
    fn perf_traced(&self) -> anyhow::Result<f64> {
        let mut command = Command::new("perf");
        run_loop(
            command.args(["trace", "-s", "--"]).arg(&self.program),
            self.args.calls / PERF_SHARE,
        )
    }
}

/// Nanoseconds for each of so many calls, as the loop itself measures them.
fn run_loop(command: &mut Command, calls: u64) -> anyhow::Result<f64> {
    let calls = calls.max(1);
    let output = command.arg(calls.to_string()).output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let nanoseconds: f64 = text.trim().parse().with_context(|| format!("{command:?}: {text}"))?;
    Ok(nanoseconds / calls as f64)
}

/// A program that watches; it says a line once it does.
struct Watcher {
    child: Child,
    output: BufReader<Box<dyn Read>>,
}

impl Watcher {
    fn start(
        command: &mut Command,
        pipe: impl FnOnce(&mut Child) -> Option<Box<dyn Read>>,
    ) -> anyhow::Result<Self> {
        let name = command.get_program().to_owned();
        let name = name.display();
        let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        let pipe = pipe(&mut child).context("no pipe to the watcher")?;
        let mut output = BufReader::new(pipe);
        let mut line = String::new();
        ensure!(output.read_line(&mut line)? > 0, "{name} ended early");
        ensure!(child.try_wait()?.is_none(), "{name}: {line}");
        Ok(Self { child, output })
    }

    /// Ends it as Ctrl-C does and returns the last line it said.
    fn finish(&mut self) -> anyhow::Result<String> {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status()?;
        ensure!(killed.success(), "cannot signal the watcher");
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        self.child.wait()?;
        Ok(said.lines().last().unwrap_or_default().to_owned())
    }
}

fn compile(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, program) = (folder.join("reads.c"), folder.join("reads"));
    std::fs::write(&source, LOOP_SOURCE)?;
    let status = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&source).status()?;
    ensure!(status.success(), "cc ended with {status}");
    Ok(program)
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn report(
    args: &Args,
    times: [Vec<f64>; 4],
    ratios: [Vec<f64>; 4],
    summaries: &[String],
) -> anyhow::Result<()> {
    println!(
        "{} reads of one byte, {} rounds; ratio to nobody watching in the same round",
        args.calls, args.rounds
    );
    let names =
        ["nobody", "throughline capture kernel", "bpftrace, count by number", "perf trace -s"];
    for (name, (times, ratios)) in names.into_iter().zip(times.into_iter().zip(ratios)) {
        let (times, ratios) = (Rounds::new(times)?, Rounds::new(ratios)?);
        let (low, high) = ratios.spread();
        println!(
            "  {name:<27} {:>6.0} ns a call  ratio {:>6.2} (from {low:.2} to {high:.2})",
            times.median(),
            ratios.median(),
        );
    }
    for summary in summaries {
        println!("  our capture: {summary}");
    }
    Ok(())
}
