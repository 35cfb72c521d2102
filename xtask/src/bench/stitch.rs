//! `cargo xtask bench stitch`: what analysing costs, beside decoding alone in the same run.
//!
//! | part | input | what is measured |
//! |---|---|---|
//! | speed | kernel traces repeated in time | CPU time of decoding and all analyses on one thread, by event record; `babeltrace2 -o dummy` beside |
//! | cores | the repeated traces, one window for each copy | wall time on one thread to that on two |
//! | memory | the traces once and repeated | peak memory of one to the other |
//! | size | every kernel trace as it is | bytes of the summary's file to bytes of the trace |
//! | merge | made facts | CPU time to merge the summaries of two windows |
//!
//! CPU time is user and system time of a whole process, so starting up and reading metadata count.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use mapper::{Options, Windows};
use model::{CpuId, Fd, Pid, Tid, Timestamp};
use stitch::fact::{CallArgs, Effect, Fact, FactKind, LeftAs};
use stitch::{Cover, Identities, Summary, Window};
use tracedir::Recording;

use super::measure::{Rounds, Run, Usage, cpu_of_this_thread};
use super::read::KERNEL_TRACES;
use super::repeat;
use super::table::{self, Bar, Row};

/// Kernel traces of the shared folder.
const ALL: [&str; 4] =
    ["kernel-perf", "kernel-many-threads", "kernel-basic-lttng210", "kernel-uneven-1cpu"];

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<Part>,
    /// How often the traces are repeated in time
    #[arg(long, default_value_t = 8)]
    repeats: u32,
    /// Threads of each of the two summaries that are merged
    #[arg(long, default_value_t = 2_000)]
    threads: i32,
    /// Rounds of each program
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Make the inputs in this folder and keep them, instead of a temporary one
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Speed,
    Cores,
    Memory,
    Size,
    Merge,
}

/// Decodes and analyses once, in a process that does nothing else.
#[derive(clap::Args)]
pub(crate) struct Pass {
    /// How many threads
    #[arg(long, default_value_t = NonZero::<usize>::MIN)]
    threads: NonZero<usize>,
    /// How many windows, equally long
    #[arg(long, default_value_t = 1)]
    windows: u32,
    /// The recording
    path: PathBuf,
}

impl Pass {
    /// Gives how many event records were read, and the summary of all.
    fn go(&self) -> anyhow::Result<(u64, Summary)> {
        let windows = match self.windows {
            0 | 1 => Windows::Whole,
            count => Windows::At(cuts(&self.path, count)?),
        };
        let options = Options { windows, threads: Some(self.threads), ..Options::default() };
        let analysis = mapper::analyse(&[&self.path], &options)?;
        ensure!(analysis.findings.is_empty(), "{}: {:?}", self.path.display(), analysis.findings);
        Ok((analysis.events, analysis.summary))
    }

    pub(crate) fn run(&self) -> anyhow::Result<()> {
        black_box(self.go()?);
        Ok(())
    }
}

/// The times that divide a recording into so many equally long parts.
fn cuts(path: &Path, count: u32) -> anyhow::Result<Vec<Timestamp>> {
    let covers = Recording::open(&[path])?.covers();
    let begin = covers.iter().filter_map(|cover| cover.begin).min().context("no time")?;
    let end = covers.iter().filter_map(|cover| cover.end).max().context("no time")?;
    let length = end.since(begin).get();
    (1..count)
        .map(|n| {
            let after = i64::try_from(length / u64::from(count) * u64::from(n))?;
            Ok(Timestamp::from_nanos(begin.nanos() + after))
        })
        .collect()
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rounds > 0 && args.repeats > 0, "nothing to measure");
    let temporary = tempfile::tempdir()?;
    let folder = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    fs::create_dir_all(&folder)?;
    let bench = Bench { args, folder };
    table::print_head(&[
        table::machine()?,
        format!("{} rounds in turn; median (lowest to highest)", args.rounds),
    ]);
    bench.repeated()?;
    if bench.wants(Part::Size) {
        bench.sizes()?;
    }
    if bench.wants(Part::Merge) {
        let title = format!("Summaries of {} threads each", args.threads);
        table::print(&title, "", &[bench.merge()?]);
    }
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    folder: PathBuf,
}

/// A trace that is long in time.
struct Input {
    once: PathBuf,
    path: PathBuf,
    events: u64,
}

impl Bench<'_> {
    fn wants(&self, part: Part) -> bool {
        self.args.only.is_empty() || self.args.only.contains(&part)
    }

    fn ours(path: &Path, threads: &str, windows: u32) -> anyhow::Result<Run> {
        let run = Run::new([std::env::current_exe()?]).args(&["pass", "--threads", threads]);
        Ok(run.args(&["--windows".to_owned(), windows.to_string()]).arg(path))
    }

    /// Both in turn, as often as there are rounds.
    fn rounds(&self, one: &Run, other: &Run) -> anyhow::Result<(Vec<Usage>, Vec<Usage>)> {
        let mut usages = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            usages.0.push(one.measure()?);
            usages.1.push(other.measure()?);
        }
        Ok(usages)
    }

    /// What is measured on traces that are long in time.
    fn repeated(&self) -> anyhow::Result<()> {
        if ![Part::Speed, Part::Cores, Part::Memory].into_iter().any(|part| self.wants(part)) {
            return Ok(());
        }
        for name in KERNEL_TRACES {
            let Some(trace) = testkit::unpacked_trace(name) else {
                testkit::skip(&format!("{name} is not in the shared folder"));
                continue;
            };
            let (once, path) = (trace.join("trace"), self.folder.join(name));
            repeat::in_time(&once, &path, self.args.repeats)
                .with_context(|| format!("repeating {name}"))?;
            let one = NonZero::<usize>::MIN;
            let (events, _) = Pass { threads: one, windows: 1, path: path.clone() }.go()?;
            let input = Input { once, path, events };
            let mut rows = Vec::new();
            if self.wants(Part::Speed) {
                rows.extend(self.speed(&input)?);
            }
            if self.wants(Part::Cores) {
                rows.push(self.cores(&input)?);
            }
            if self.wants(Part::Memory) {
                rows.push(self.memory(&input)?);
            }
            let title = format!("{name} × {} in time, {events} event records", self.args.repeats);
            table::print(&title, "babeltrace2", &rows);
        }
        Ok(())
    }

    fn speed(&self, input: &Input) -> anyhow::Result<Vec<Row>> {
        let ours = Self::ours(&input.path, "1", 1)?;
        let theirs = Run::new(["babeltrace2", "--output-format=dummy"]).arg(&input.path);
        let (ours, theirs) = self.rounds(&ours, &theirs)?;
        let per_event = |usages: &[Usage]| -> anyhow::Result<String> {
            let cpu = Rounds::new(usages.iter().map(cpu_s).collect())?.median();
            Ok(format!("{cpu:.3} s, {:.1} ns/event", cpu * 1e9 / input.events as f64))
        };
        let rate = ours.iter().map(|usage| input.events as f64 / cpu_s(usage) / 1e6);
        let ratio = ours.iter().zip(&theirs).map(|(ours, theirs)| cpu_s(theirs) / cpu_s(ours));
        let row = |name: &str, found: Vec<f64>, unit, bar| -> anyhow::Result<Row> {
            Ok(Row {
                name: name.to_owned(),
                found: Rounds::new(found)?,
                unit,
                bar,
                ours: per_event(&ours)?,
                theirs: per_event(&theirs)?,
            })
        };
        Ok(vec![
            row("events on one core", rate.collect(), " M/s", Some(Bar::AtLeast(3.0)))?,
            row("to the peer's decoding alone", ratio.collect(), "×", None)?,
        ])
    }

    fn cores(&self, input: &Input) -> anyhow::Result<Row> {
        let run = |threads| Self::ours(&input.path, threads, self.args.repeats);
        let (one, two) = self.rounds(&run("1")?, &run("2")?)?;
        let found = one.iter().zip(&two).map(|(one, two)| wall_s(one) / wall_s(two));
        let wall = |usages: &[Usage]| -> anyhow::Result<f64> {
            Ok(Rounds::new(usages.iter().map(wall_s).collect())?.median())
        };
        Ok(Row {
            name: "wall time on one core to two".to_owned(),
            found: Rounds::new(found.collect())?,
            unit: "×",
            bar: Some(Bar::AtLeast(1.8)),
            ours: format!("{:.3} s, {:.3} s", wall(&one)?, wall(&two)?),
            theirs: "has one".to_owned(),
        })
    }

    fn memory(&self, input: &Input) -> anyhow::Result<Row> {
        let of = |path| Self::ours(path, "1", 1);
        let (short, long) = self.rounds(&of(&input.once)?, &of(&input.path)?)?;
        let found = short.iter().zip(&long).map(|(short, long)| peak_mb(long) / peak_mb(short));
        let peak = |usages: &[Usage]| -> anyhow::Result<f64> {
            Ok(Rounds::new(usages.iter().map(peak_mb).collect())?.median())
        };
        Ok(Row {
            name: format!("peak memory, {}× to once", self.args.repeats),
            found: Rounds::new(found.collect())?,
            unit: "×",
            bar: Some(Bar::AtMost(1.1)),
            ours: format!("{:.1} MB, {:.1} MB", peak(&short)?, peak(&long)?),
            theirs: String::new(),
        })
    }

    fn sizes(&self) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for name in ALL {
            let Some(trace) = testkit::unpacked_trace(name) else {
                testkit::skip(&format!("{name} is not in the shared folder"));
                continue;
            };
            let path = trace.join("trace");
            let (_, summary) =
                Pass { threads: NonZero::<usize>::MIN, windows: 1, path: path.clone() }.go()?;
            let bytes = summary.to_bytes()?.len();
            let whole = folder_bytes(&path)?;
            let seconds = summary.cover().map_or(0, |cover| cover.end.since(cover.begin).get());
            rows.push(Row {
                name: format!("{name}, {:.1} s", seconds as f64 / 1e9),
                found: Rounds::new(vec![100.0 * bytes as f64 / whole as f64])?,
                unit: " %",
                bar: Some(Bar::AtMost(2.0)),
                ours: format!("{bytes} bytes"),
                theirs: format!("{whole} bytes"),
            });
        }
        table::print("Files of summaries", "the trace", &rows);
        Ok(())
    }

    fn merge(&self) -> anyhow::Result<Row> {
        let left = made(self.args.threads, 0, Identities::default().outside_spans());
        let right = made(self.args.threads, 1, left.identities());
        let mut found = Vec::new();
        for _ in 0..4 * self.args.rounds {
            let (left, right) = (left.clone(), right.clone());
            let begin = cpu_of_this_thread()?;
            let merged = left.merge(right)?;
            found.push(cpu_of_this_thread()?.saturating_sub(begin).as_secs_f64() * 1e3);
            black_box(merged);
        }
        Ok(Row {
            name: "CPU time to merge two".to_owned(),
            found: Rounds::new(found)?,
            unit: " ms",
            bar: Some(Bar::AtMost(5.0)),
            ours: format!("{} bytes each", left.to_bytes()?.len()),
            theirs: String::new(),
        })
    }
}

/// The summary of the `n`-th second: each of so many threads, two of a process, is woken, runs, and makes ten calls on two files.
fn made(threads: i32, n: i64, entry: Identities) -> Summary {
    const SECOND: i64 = 1_000_000_000;
    let cover = Cover {
        host: "made".into(),
        begin: Timestamp::from_nanos(n * SECOND),
        end: Timestamp::from_nanos((n + 1) * SECOND),
    };
    let mut window = Window::after(cover, Arc::new(entry));
    let mut now = n * SECOND;
    let files: BTreeMap<i32, String> =
        (1..=threads).map(|tid| (tid, format!("/var/lib/service/{}/data", tid % 100))).collect();
    for (tid, file) in &files {
        let (tid, pid) = (Tid::new(*tid), Pid::new(1 + tid / 2));
        let mut give = |kind| {
            now += 5_000;
            let at = Timestamp::from_nanos(now);
            let cpu = Some(CpuId::new(0));
            window.add(&Fact { at, cpu, tid: Some(tid), pid: Some(pid), kind });
        };
        let switch = |prev, next| FactKind::Switch {
            prev,
            prev_comm: "worker",
            left_as: LeftAs::Interruptible,
            next,
            next_comm: "worker",
        };
        give(FactKind::Wakeup { tid, comm: "worker" });
        give(switch(Tid::IDLE, tid));
        let open = Effect::Open { close_on_exec: true };
        let exit =
            |name, ret| FactKind::CallExit { name, ret, pair: None, address: None, opened: None };
        let args = CallArgs { fd: None, path: Some(&**file), effect: open };
        give(FactKind::CallEntry { name: "openat", args });
        give(exit("openat", 3));
        for name in ["read", "write", "pread64", "futex", "fstat", "lseek", "poll", "mmap", "close"]
        {
            let args = CallArgs { fd: Some(Fd::new(3)), path: None, effect: Effect::Nothing };
            give(FactKind::CallEntry { name, args });
            give(exit(name, 100));
        }
        give(switch(tid, Tid::IDLE));
    }
    window.finish()
}

fn folder_bytes(path: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        bytes += if is_folder { folder_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

fn cpu_s(usage: &Usage) -> f64 {
    usage.cost.cpu.as_secs_f64()
}

fn wall_s(usage: &Usage) -> f64 {
    usage.cost.wall.as_secs_f64()
}

fn peak_mb(usage: &Usage) -> f64 {
    usage.peak_bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_summaries_are_neighbours_with_every_thread() {
        let left = made(20, 0, Identities::default());
        let right = made(20, 1, left.identities());
        let merged = left.merge(right).unwrap();
        let answer = stitch::syscalls(&merged);
        let calls = answer.processes.iter().flat_map(|process| &process.syscalls);
        assert_eq!(calls.map(|call| call.calls).sum::<u64>(), 2 * 20 * 10);
        assert_eq!(answer.processes.len(), 11);
    }
}
