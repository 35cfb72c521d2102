//! `cargo xtask bench profile`: what being profiled costs a program, and what profiling costs beside it.
//!
//! Two programs run at the same time, a native one that calls the kernel all the time and a Python one, the same work in each run, while
//! nobody watches, `perf record` with frame pointers and with copied stacks, py-spy, and `throughline profile`, in turn in each
//! round. The slowdown is CPU time for the same work against nobody watching in the same round. Then programs that live for 30 ms
//! of CPU time, and how long profiling takes to begin with many processes there. Needs root.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::profile::request::Location;
use ::profile::view::Weights;
use ::profile::{Limits, Request, Unnamed, ungzip};
use anyhow::{Context, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};

use super::measure::Rounds;
use super::table::{self, Bar, Row};
use crate::memory::private_bytes;

const NATIVE: &str = include_str!("../../assets/profiled.c");
const PYTHON: &str = include_str!("../../assets/profiled.py");

/// How often a second all of them look.
const FREQUENCY: u32 = 99;
/// CPU time of a short life.
const LIFE_MS: u32 = 30;
/// Lives that are sampled in one round.
const LIVES: u32 = 100;
/// Processes that are there when profiling begins, and what they do.
const CROWD: usize = 100;
const CROWD_SCRIPT: &str = "\
import json, time
print(flush=True)
while True:
    time.sleep(0.02)
    json.dumps(list(range(500)))
";

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Thousands of rounds of the native program
    #[arg(long, default_value_t = 20_000)]
    native: u32,
    /// Rounds of the Python program
    #[arg(long, default_value_t = 2_800)]
    python: u32,
    /// Rounds of each watcher
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
    /// py-spy, if it is there
    #[arg(long, default_value = "py-spy")]
    py_spy: PathBuf,
}

/// Who looks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watcher {
    Nobody,
    Throughline,
    FramePointers,
    CopiedStacks,
    PySpy,
}

impl Watcher {
    const ALL: [Self; 5] =
        [Self::Nobody, Self::Throughline, Self::FramePointers, Self::CopiedStacks, Self::PySpy];

    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Throughline => "throughline profile",
            Self::FramePointers => "perf record -g",
            Self::CopiedStacks => "perf record --call-graph dwarf",
            Self::PySpy => "py-spy record, of Python alone",
        }
    }

    /// Events of the kernel that it has open when it has begun. Ours follows what processes map on each CPU before it opens the clocks.
    fn events(self) -> anyhow::Result<usize> {
        let cpus = std::thread::available_parallelism()?.get();
        Ok(if self == Self::Throughline { cpus + 1 } else { 1 })
    }
}

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Run {
    native_ns: f64,
    python_ns: f64,
    /// CPU time of the watcher, begin and end with it.
    watcher: Duration,
    /// Memory of the watcher that is nobody else's, at the end.
    private_bytes: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let folder = tempfile::tempdir()?;
    let bench = Bench::new(args, folder.path())?;
    let watchers: Vec<Watcher> =
        Watcher::ALL.into_iter().filter(|it| bench.is_there(*it)).collect();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); watchers.len()];
    for _ in 0..args.rounds.max(1) {
        for (watcher, runs) in watchers.iter().zip(&mut runs) {
            runs.push(bench.watched(*watcher)?);
        }
    }
    table::print_head(&[table::machine()?, format!("{} rounds, {FREQUENCY} Hz", args.rounds)]);
    let alone = runs.first().context("nobody watched")?;
    for (watcher, runs) in watchers.iter().zip(&runs).skip(1) {
        table::print(watcher.name(), "", &rows(*watcher, runs, alone)?);
    }
    let rounds = 0..args.rounds.max(1);
    let whole = rounds.clone().map(|_| bench.whole()).collect::<anyhow::Result<_>>()?;
    let known = rounds.clone().map(|_| bench.short_lives(false)).collect::<anyhow::Result<_>>()?;
    let unknown = rounds.clone().map(|_| bench.short_lives(true)).collect::<anyhow::Result<_>>()?;
    let begin = rounds.map(|_| bench.begin()).collect::<anyhow::Result<_>>()?;
    let row = |name: &str, found: Vec<f64>, unit, bar| {
        let (ours, theirs) = (String::new(), String::new());
        anyhow::Ok(Row {
            name: name.to_owned(),
            found: Rounds::new(found)?,
            unit,
            bar,
            ours,
            theirs,
        })
    };
    let rows = [
        row("stacks of the two to their root", whole, " %", Some(Bar::AtLeast(99.9)))?,
        row("30 ms, of one file: samples with names", known, " %", Some(Bar::AtLeast(95.0)))?,
        row("30 ms, each of its own file", unknown, " %", Some(Bar::AtLeast(80.0)))?,
        row("more time than was asked for, 100 there", begin, " s", Some(Bar::AtMost(1.0)))?,
    ];
    table::print("throughline profile", "", &rows);
    Ok(())
}

fn rows(watcher: Watcher, runs: &[Run], alone: &[Run]) -> anyhow::Result<Vec<Row>> {
    let is_ours = watcher == Watcher::Throughline;
    let slower = |of: fn(&Run) -> f64| {
        let pairs = runs.iter().zip(alone);
        Rounds::new(pairs.map(|(run, alone)| 100.0 * (of(run) / of(alone) - 1.0)).collect())
    };
    let row = |name: &str, found, unit, bar: Option<Bar>| Row {
        name: name.to_owned(),
        found,
        unit,
        bar: bar.filter(|_| is_ours),
        ours: String::new(),
        theirs: String::new(),
    };
    let share =
        |run: &Run| 100.0 * run.watcher.as_secs_f64() * 1e9 / (run.native_ns + run.python_ns);
    let memory = |run: &Run| run.private_bytes as f64 / f64::from(1 << 20);
    Ok(vec![
        row("slower: native", slower(|run| run.native_ns)?, " %", Some(Bar::AtMost(0.3))),
        row("slower: Python", slower(|run| run.python_ns)?, " %", None),
        row(
            "CPU time to the programs'",
            Rounds::new(runs.iter().map(share).collect())?,
            " %",
            Some(Bar::AtMost(0.5)),
        ),
        row(
            "private memory",
            Rounds::new(runs.iter().map(memory).collect())?,
            " MiB",
            Some(Bar::AtMost(32.0)),
        ),
    ])
}

struct Bench<'a> {
    args: &'a Args,
    folder: &'a Path,
    native: PathBuf,
    python: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args, folder: &'a Path) -> anyhow::Result<Self> {
        let (source, native) = (folder.join("profiled.c"), folder.join("profiled"));
        fs::write(&source, NATIVE)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o"]);
        let status = compiler.arg(&native).arg(&source).status()?;
        ensure!(status.success(), "cc ended with {status}");
        let python = folder.join("profiled.py");
        fs::write(&python, PYTHON)?;
        Ok(Self { args, folder, native, python })
    }

    fn is_there(&self, watcher: Watcher) -> bool {
        let answers = |program: &OsStr| {
            let mut command = Command::new(program);
            let silent = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            silent.status().is_ok_and(|status| status.success())
        };
        match watcher {
            Watcher::Nobody | Watcher::Throughline => true,
            Watcher::FramePointers | Watcher::CopiedStacks => answers(OsStr::new("perf")),
            Watcher::PySpy => answers(self.args.py_spy.as_os_str()),
        }
    }

    /// The two programs, while someone watches.
    fn watched(&self, watcher: Watcher) -> anyhow::Result<Run> {
        let mut watching = match self.command(watcher) {
            Some(command) if watcher != Watcher::PySpy => {
                Some(Watching::start(command, watcher.events()?)?)
            }
            _ => None,
        };
        let native = self.work(Command::new(&self.native).arg(self.args.native.to_string()))?;
        let mut python = Command::new("python3");
        let python = self.work(python.arg(&self.python).arg(self.args.python.to_string()))?;
        if watcher == Watcher::PySpy {
            let mut command = self.command(watcher).context("py-spy has a command")?;
            command.arg("--pid").arg(python.id().to_string());
            watching = Some(Watching { child: command.spawn()? });
        }
        let (native_ns, python_ns) = (cpu_ns(native)?, cpu_ns(python)?);
        let (mut memory, before) = (0, children_cpu()?);
        if let Some(watching) = watching {
            memory = private_bytes(watching.child.id()).unwrap_or_default();
            watching.finish()?;
        }
        Ok(Run {
            native_ns,
            python_ns,
            watcher: children_cpu()?.saturating_sub(before),
            private_bytes: memory,
        })
    }

    fn work(&self, command: &mut Command) -> anyhow::Result<Child> {
        Ok(command.current_dir(self.folder).stdout(Stdio::piped()).spawn()?)
    }

    fn command(&self, watcher: Watcher) -> Option<Command> {
        let frequency = FREQUENCY.to_string();
        // This process and those it starts: what else runs on the machine is not part of the measurement.
        let own = std::process::id().to_string();
        let mut command = match watcher {
            Watcher::Nobody => return None,
            Watcher::Throughline => {
                let mut command = Command::new(&self.args.binary);
                command.args(["profile", "--frequency", &frequency, "--pid", &own, "--output"]);
                command.arg(self.output());
                command
            }
            Watcher::FramePointers | Watcher::CopiedStacks => {
                let mut command = Command::new("perf");
                command.args(["record", "-q", "-p", &own, "-e", "cpu-clock", "-F", &frequency]);
                let how = if watcher == Watcher::CopiedStacks { "dwarf" } else { "fp" };
                command.args(["--call-graph", how, "-o"]).arg(self.folder.join("perf.data"));
                command
            }
            Watcher::PySpy => {
                let mut command = Command::new(&self.args.py_spy);
                command.args(["record", "--rate", &frequency, "--duration", "unlimited"]);
                command.args(["--format", "raw", "--output"]).arg(self.folder.join("py-spy.txt"));
                command
            }
        };
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Some(command)
    }

    fn output(&self) -> PathBuf {
        self.folder.join("profile.otlp.gz")
    }

    /// Percent of the samples of the two programs that reach their root.
    fn whole(&self) -> anyhow::Result<f64> {
        self.watched(Watcher::Throughline)?;
        let (mut all, mut whole) = (0_u32, 0_u32);
        self.samples(|process, _, is_whole| {
            if process == "profiled" || process.starts_with("python3") {
                all += 1;
                whole += u32::from(is_whole);
            }
        })?;
        ensure!(all > 0, "no sample");
        Ok(100.0 * f64::from(whole) / f64::from(all))
    }

    /// Percent of the samples that programs of 30 ms of CPU time should have that are there to the root with all names that
    /// their files tell.
    fn short_lives(&self, of_own_files: bool) -> anyhow::Result<f64> {
        let command = self.command(Watcher::Throughline).context("ours has a command")?;
        let files: Vec<PathBuf> = if of_own_files {
            (0..LIVES).map(|life| self.folder.join(format!("profiled{life}"))).collect()
        } else {
            vec![self.native.clone()]
        };
        // A file of its own has a build id of its own as well.
        for (life, file) in files.iter().enumerate().filter(|_| of_own_files) {
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o"]);
            compiler
                .arg(file)
                .arg(format!("-DLIFE={life}"))
                .arg(format!("-Wl,--build-id=0x{life:040x}"));
            let status = compiler.arg(self.folder.join("profiled.c")).status()?;
            ensure!(status.success(), "cc ended with {status}");
        }
        let before = children_cpu()?;
        let watching = Watching::start(command, Watcher::Throughline.events()?)?;
        for file in files.iter().cycle().take(LIVES as usize) {
            let mut life = Command::new(file);
            let status = life.args(["0", &LIFE_MS.to_string()]).stdout(Stdio::null()).status()?;
            ensure!(status.success(), "{} ended with {status}", file.display());
        }
        let expected = children_cpu()?.saturating_sub(before).as_secs_f64() * f64::from(FREQUENCY);
        watching.finish()?;
        let mut good = 0_u32;
        self.samples(|process, are_named, is_whole| {
            good += u32::from(process.starts_with("profiled") && are_named && is_whole);
        })?;
        Ok((100.0 * f64::from(good) / expected).min(100.0))
    }

    /// Seconds that a profile of a second takes beyond it, while many processes are there.
    fn begin(&self) -> anyhow::Result<f64> {
        let mut crowd = Crowd(Vec::new());
        let mut command = self.command(Watcher::Throughline).context("ours has a command")?;
        for _ in 0..CROWD {
            let mut process = Command::new("python3");
            let process = process.args(["-c", CROWD_SCRIPT]).stdout(Stdio::piped());
            crowd.0.push(process.spawn()?);
        }
        for process in &mut crowd.0 {
            let said = process.stdout.as_mut().context("a pipe to it")?;
            said.read_exact(&mut [0])?;
            command.arg("--pid").arg(process.id().to_string());
        }
        let begin = Instant::now();
        let status = command.args(["--for", "1s"]).status()?;
        ensure!(status.success(), "{} ended with {status}", self.args.binary.display());
        Ok((begin.elapsed().saturating_sub(Duration::from_secs(1))).as_secs_f64())
    }

    /// Calls `each` with the executable's name of each sample, whether all frames have the names
    /// that their files tell, and whether it reaches the root.
    fn samples(&self, mut each: impl FnMut(&str, bool, bool)) -> anyhow::Result<()> {
        let bytes = ungzip(&fs::read(self.output())?, Limits::default())?;
        let request = Request::decode(&bytes, Limits::default())?;
        let mut weights = Weights::new();
        ensure!(weights.add(&request), "the profile is empty");
        let d = &request.dictionary;
        for resource in &request.resources {
            let process =
                resource.find_text(d, ::profile::keys::EXECUTABLE_NAME).unwrap_or_default();
            for sample in resource.profiles.iter().flat_map(|profile| &profile.samples) {
                // Of a library without symbols there are none to tell.
                let is_named = |location: &Location| {
                    let why = d.find_text(&location.attributes, ::profile::keys::UNNAMED);
                    !location.lines.is_empty() || why == Some(Unnamed::NoSymbol.as_str())
                };
                let are_named = d.stack(sample.stack).all(is_named);
                let status = d.find_text(&sample.attributes, ::profile::keys::STATUS);
                for _ in sample.events() {
                    each(process, are_named, status == Some("root"));
                }
            }
        }
        Ok(())
    }
}

/// A program that watches.
struct Watching {
    child: Child,
}

impl Watching {
    /// Starts it, and waits until it has opened so many events of the kernel.
    fn start(mut command: Command, events: usize) -> anyhow::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let begin = Instant::now();
        let folder = format!("/proc/{}/fd", child.id());
        let is_event = |entry: &fs::DirEntry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            target.as_os_str().as_encoded_bytes().ends_with(b"[perf_event]")
        };
        let opened = || {
            let all = fs::read_dir(&folder).into_iter().flatten().flatten();
            all.filter(is_event).count()
        };
        while opened() < events {
            if child.try_wait()?.is_some() || begin.elapsed() > PATIENCE {
                bail!("{command:?} does not begin");
            }
            std::thread::yield_now();
        }
        Ok(Self { child })
    }

    /// Ends it as Ctrl-C does.
    fn finish(mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            let killed =
                Command::new("kill").args(["-INT", &self.child.id().to_string()]).status()?;
            ensure!(killed.success(), "cannot signal the watcher");
            self.child.wait()?;
        }
        Ok(())
    }
}

/// Processes that end with the measurement.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// What a program said that its work took.
fn cpu_ns(child: Child) -> anyhow::Result<f64> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "a program ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| text.into_owned())
}

/// CPU time of all children that were waited for.
fn children_cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    Ok(Duration::from_micros(u64::try_from(micros.iter().sum::<i64>())?))
}
