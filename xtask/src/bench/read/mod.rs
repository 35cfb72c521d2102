//! `cargo xtask bench read`: every speed that `throughline read` is held to, beside babeltrace2 in the same run.
//!
//! | part | input | what is compared |
//! |---|---|---|
//! | count, decode, text | user-space events recorded for the occasion, kernel traces repeated in time, `--trace` | CPU time |
//! | inspect | the same | CPU time of `--grep`, `ctf info --events` and `ctf check`, which the peer has not |
//! | seek | the user-space trace | CPU time for its last 2,000 event records |
//! | chunks | folders of one session that repeat the same large metadata | wall time and peak memory |
//! | streams | the same events in 2 streams and in 944 | CPU time per event record of one to the other |
//! | memory | user-space traces of two lengths | peak memory of one to the other |
//! | limit | the user-space trace | CPU time per event record against a loop that knows the one layout |
//!
//! CPU time is user and system time of the whole process, so starting up and reading metadata count. The programs
//! take turns in each round; a figure is the median over the rounds, with the lowest and the highest. The peer has one
//! round of chunks and of streams, where it takes minutes.

mod by_hand;
mod chunks;
mod streams;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use model::TimeRange;
use tracedir::{Item, Recording};

use super::lttng::record_ticks;
use super::measure::{Rounds, Run, Usage};
use super::table::{Bar, Row};
use super::{repeat, table};

const PEER: &str = "babeltrace2";

/// Event records that the last of a long trace are.
const LAST: usize = 2_000;

/// Kernel traces of the shared folder that are repeated in time, and how often.
pub(super) const KERNEL_TRACES: [&str; 2] = ["kernel-perf", "kernel-many-threads"];

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<Part>,
    /// Another trace folder to count, decode and print; may be given several times
    #[arg(long, value_name = "PATH")]
    trace: Vec<PathBuf>,
    /// User-space events to record, of 64 bytes each
    #[arg(long, default_value_t = 8_200_000)]
    events: u64,
    /// How often the kernel traces are repeated in time; 0 leaves them out
    #[arg(long, default_value_t = 8)]
    repeats: u32,
    /// Chunk folders
    #[arg(long, default_value_t = 2_880)]
    chunks: u32,
    /// Chunk folders for the peer, which would take minutes and more memory than there is for all
    #[arg(long, default_value_t = 48)]
    peer_chunks: u32,
    /// The larger number of streams, compared with 2
    #[arg(long, default_value_t = 944)]
    streams: u32,
    /// Rounds of each program
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Make the inputs in this folder and keep them, instead of a temporary one
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Count,
    Decode,
    Text,
    Inspect,
    Seek,
    Chunks,
    Streams,
    Memory,
    Limit,
}

/// What is measured on each long trace.
const OF_EACH: [Part; 4] = [Part::Count, Part::Decode, Part::Text, Part::Inspect];

/// An expression that some event records of the user-space trace fit, by name and field.
const TICKS: &str = "*tick && code == -7";

/// The same for kernel traces.
const SWITCHES: &str = "*sched_switch && prev_prio < 120";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    ensure!(args.rounds > 0, "no rounds");
    let temporary = tempfile::tempdir()?;
    let folder = args.keep.as_deref().unwrap_or(temporary.path());
    let bench = Bench { args, folder };
    table::print_head(&bench.head()?);
    let long = [Part::Seek, Part::Memory, Part::Limit];
    if bench.wants(&OF_EACH) || bench.wants(&long) {
        bench.long_traces()?;
    }
    if bench.wants(&[Part::Chunks]) {
        table::print(&format!("{} chunk folders", args.chunks), PEER, &bench.chunks()?);
    }
    if bench.wants(&[Part::Streams]) {
        let title =
            format!("{} event records in 2 and in {} streams", streams::EVENTS, args.streams);
        table::print(&title, PEER, &bench.streams()?);
    }
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    /// Takes the inputs that are made.
    folder: &'a Path,
}

/// A trace to read.
struct Input {
    name: String,
    path: PathBuf,
    events: u64,
    /// An expression for `--grep`, when one is known that fits.
    grep: Option<&'static str>,
}

/// The rounds of our program and of the peer, in turn.
type Pair = (Vec<Usage>, Vec<Usage>);

impl Bench<'_> {
    fn wants(&self, parts: &[Part]) -> bool {
        let only = &self.args.only;
        only.is_empty() || parts.iter().any(|part| only.contains(part))
    }

    fn ours(&self, words: &[&str], path: &Path) -> Run {
        Run::new([&self.args.binary]).arg("read").args(words).arg(path)
    }

    fn theirs(words: &[&str], path: &Path) -> Run {
        Run::new([PEER]).args(words).arg(path)
    }

    fn rounds(&self, ours: &Run, theirs: &Run) -> anyhow::Result<Pair> {
        self.rounds_of(self.args.rounds, ours, theirs)
    }

    /// As [`Self::rounds`], with fewer rounds of a peer that takes minutes.
    fn rounds_of(&self, of_peer: u32, ours: &Run, theirs: &Run) -> anyhow::Result<Pair> {
        let mut pair = Pair::default();
        for round in 0..self.args.rounds {
            pair.0.push(ours.measure()?);
            if round < of_peer {
                pair.1.push(theirs.measure()?);
            }
        }
        Ok(pair)
    }

    /// What is measured, where.
    fn head(&self) -> anyhow::Result<Vec<String>> {
        let first_line = |program: &Path| -> anyhow::Result<String> {
            let output = Command::new(program).arg("--version").output();
            let output = output.with_context(|| format!("cannot run {}", program.display()))?;
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(text.lines().next().unwrap_or_default().to_owned())
        };
        Ok(vec![
            table::machine()?,
            format!("{}, beside {}", first_line(&self.args.binary)?, first_line(Path::new(PEER))?),
            format!(
                "{} rounds in turn; median (lowest to highest); CPU time is user + system",
                self.args.rounds
            ),
        ])
    }

    /// The traces that are long in time, and everything that is measured on them.
    fn long_traces(&self) -> anyhow::Result<()> {
        let ust = Input { grep: Some(TICKS), ..self.record("ust", self.args.events)? };
        let mut rows = self.compared(&ust)?;
        if self.wants(&[Part::Seek]) {
            rows.push(self.seek(&ust)?);
        }
        if self.wants(&[Part::Memory]) {
            rows.extend(self.memory(&ust)?);
        }
        if self.wants(&[Part::Limit]) {
            rows.extend(self.limit(&ust)?);
        }
        table::print(&ust.title()?, PEER, &rows);

        if !self.wants(&OF_EACH) {
            return Ok(());
        }
        let mut inputs = Vec::new();
        for name in KERNEL_TRACES.iter().filter(|_| self.args.repeats > 0) {
            let Some(trace) = testkit::unpacked_trace(name) else {
                testkit::skip(&format!("{name} is not in the shared folder"));
                continue;
            };
            let path = self.folder.join(name);
            repeat::in_time(&trace.join("trace"), &path, self.args.repeats)
                .with_context(|| format!("repeating {name}"))?;
            let input = self.input(format!("{name} × {} in time", self.args.repeats), path)?;
            inputs.push(Input { grep: Some(SWITCHES), ..input });
        }
        for trace in &self.args.trace {
            inputs.push(self.input(trace.display().to_string(), trace.clone())?);
        }
        for input in inputs {
            table::print(&input.title()?, PEER, &self.compared(&input)?);
        }
        Ok(())
    }

    fn record(&self, name: &str, events: u64) -> anyhow::Result<Input> {
        let path = self.folder.join(name);
        record_ticks(events, &path)?;
        let input = self.input("user-space trace".to_owned(), path)?;
        ensure!(input.events == events, "{} of {events} events recorded", input.events);
        Ok(input)
    }

    fn input(&self, name: String, path: PathBuf) -> anyhow::Result<Input> {
        let events = self.count(&["--count"], &path).with_context(|| name.clone())?;
        let theirs = peer_count(&path).with_context(|| name.clone())?;
        ensure!(theirs == events, "{name}: {events} event records here, {theirs} by {PEER}");
        Ok(Input { name, path, events, grep: None })
    }

    fn count(&self, words: &[&str], path: &Path) -> anyhow::Result<u64> {
        let output = Command::new(&self.args.binary).arg("read").args(words).arg(path).output()?;
        let (text, complaint) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        text.trim().parse().with_context(|| complaint.trim().to_owned())
    }

    fn compared(&self, input: &Input) -> anyhow::Result<Vec<Row>> {
        let kinds: [(_, _, _, &[&str], &[&str]); 3] = [
            (Part::Count, "count", 20.0, &["--count"], &["--component=sink.utils.counter"]),
            (
                Part::Decode,
                "decode all fields",
                10.0,
                &["--format=none"],
                &["--output-format=dummy"],
            ),
            (Part::Text, "text", 10.0, &[], &[]),
        ];
        let mut rows = Vec::new();
        for (part, name, bar, ours, theirs) in kinds {
            if !self.wants(&[part]) {
                continue;
            }
            let ours = self.ours(ours, &input.path);
            let pair = self.rounds(&ours, &Self::theirs(theirs, &input.path))?;
            rows.push(Row {
                name: name.to_owned(),
                found: ratios(&pair.1, &pair.0, cpu_s)?,
                unit: "×",
                bar: Some(Bar::AtLeast(bar)),
                ours: input.per_event(&pair.0)?,
                theirs: input.per_event(&pair.1)?,
            });
        }
        if self.wants(&[Part::Inspect]) {
            rows.extend(self.inspected(input)?);
        }
        Ok(rows)
    }

    /// What the peer has no counterpart for.
    fn inspected(&self, input: &Input) -> anyhow::Result<Vec<Row>> {
        let grep =
            input.grep.map(|grep| (format!("--grep '{grep}'"), vec!["read", "--grep", grep]));
        let info = ("ctf info --events".to_owned(), vec!["ctf", "info", "--events"]);
        let check = ("ctf check".to_owned(), vec!["ctf", "check"]);
        let mut rows = Vec::new();
        for (name, words) in grep.into_iter().chain([info, check]) {
            let run = Run::new([&self.args.binary]).args(&words).arg(&input.path);
            let usages = (0..self.args.rounds).map(|_| run.measure());
            let usages = usages.collect::<anyhow::Result<Vec<Usage>>>()?;
            let per_event = usages.iter().map(|usage| cpu_s(usage) * 1e9 / input.events as f64);
            rows.push(Row {
                name,
                found: Rounds::new(per_event.collect())?,
                unit: " ns",
                bar: None,
                ours: input.per_event(&usages)?,
                theirs: "has none".to_owned(),
            });
        }
        Ok(rows)
    }

    /// The last event records by `--begin`.
    fn seek(&self, input: &Input) -> anyhow::Result<Row> {
        let begin = time_of_last(&input.path, LAST)?;
        let seconds = format!("{}.{:09}", begin / 1_000_000_000, begin % 1_000_000_000);
        let found = self.count(&["--count", "--begin", &seconds], &input.path)?;
        ensure!(found.abs_diff(LAST as u64) < 10, "{found} event records from {seconds} on");
        let pair = self.rounds(
            &self.ours(&["--begin", &seconds], &input.path),
            &Self::theirs(&["--begin", &seconds], &input.path),
        )?;
        Ok(Row {
            name: format!("text of the last {LAST}"),
            found: Rounds::new(pair.0.iter().map(|usage| cpu_s(usage) * 1e3).collect())?,
            unit: " ms",
            bar: Some(Bar::Below(50.0)),
            ours: format!("{:.3} s", median(&pair.0, cpu_s)?),
            theirs: format!("{:.3} s", median(&pair.1, cpu_s)?),
        })
    }

    /// Peak memory of a trace and of one a tenth as long.
    fn memory(&self, long: &Input) -> anyhow::Result<Vec<Row>> {
        let short = self.record("short", self.args.events / 10)?;
        let mut rows = Vec::new();
        for (name, ours, theirs) in [
            ("decode", "--format=none", "--output-format=dummy"),
            ("text", "--format=text", "--output-format=text"),
        ] {
            let of = |input: &Input| {
                self.rounds(&self.ours(&[ours], &input.path), &Self::theirs(&[theirs], &input.path))
            };
            let ((long_ours, long_theirs), (short_ours, short_theirs)) = (of(long)?, of(&short)?);
            let both = |short: &[Usage], long: &[Usage]| -> anyhow::Result<String> {
                Ok(format!("{:.1}, {:.1} MB", median(short, peak_mb)?, median(long, peak_mb)?))
            };
            rows.push(Row {
                name: format!("peak memory, {name}, to a tenth's"),
                found: ratios(&long_ours, &short_ours, peak_mb)?,
                unit: "×",
                bar: Some(Bar::AtMost(1.1)),
                ours: both(&short_ours, &long_ours)?,
                theirs: both(&short_theirs, &long_theirs)?,
            });
        }
        Ok(rows)
    }

    /// How far from a loop that knows the layout, with and without the time for getting the bytes.
    fn limit(&self, input: &Input) -> anyhow::Result<Vec<Row>> {
        let mut walks = Vec::new();
        let mut reads = Vec::new();
        let mut decodes = Vec::new();
        let mut counts = Vec::new();
        for _ in 0..self.args.rounds {
            let by_hand = by_hand::read(&input.path, input.events)?;
            walks.push(by_hand.walk.as_secs_f64());
            reads.push(by_hand.total.as_secs_f64());
            decodes.push(self.ours(&["--format=none"], &input.path).measure()?);
            counts.push(self.ours(&["--count"], &input.path).measure()?);
        }
        let per_event = 1e9 / input.events as f64;
        let (walk, read) = (Rounds::new(walks)?.median(), Rounds::new(reads.clone())?.median());
        let by_hand = format!(
            "by hand {:.1} ns, {:.1} without reading the file",
            read * per_event,
            walk * per_event
        );
        let row = |name: &str, usages: &[Usage]| -> anyhow::Result<Row> {
            let found = usages.iter().zip(&reads).map(|(usage, read)| cpu_s(usage) / read);
            Ok(Row {
                name: name.to_owned(),
                found: Rounds::new(found.collect())?,
                unit: "×",
                bar: None,
                ours: input.per_event(usages)?,
                theirs: by_hand.clone(),
            })
        };
        Ok(vec![row("decode, to a loop by hand", &decodes)?, row("count, to the same", &counts)?])
    }

    fn chunks(&self) -> anyhow::Result<Vec<Row>> {
        let (all, few) = (self.folder.join("chunks"), self.folder.join("few-chunks"));
        let made = chunks::make(&all, self.args.chunks)?;
        chunks::make(&few, self.args.peer_chunks)?;
        let found = self.count(&["--count"], &all)?;
        ensure!(found == made.events, "{found} of {} event records in chunks", made.events);
        let ours = self.ours(&["--count"], &all);
        let (ours, theirs) =
            self.rounds_of(1, &ours, &Self::theirs(&["--component=sink.utils.counter"], &few))?;
        let scale = f64::from(self.args.chunks) / f64::from(self.args.peer_chunks.max(1));
        let row = |name: &str, unit, bar, figure: fn(&Usage) -> f64| -> anyhow::Result<Row> {
            Ok(Row {
                name: name.to_owned(),
                found: Rounds::new(ours.iter().map(figure).collect())?,
                unit,
                bar,
                ours: format!("{:.3}{unit}", median(&ours, figure)?),
                theirs: format!(
                    "{:.2}{unit} for {}: {:.0}{unit} for all",
                    median(&theirs, figure)?,
                    self.args.peer_chunks,
                    median(&theirs, figure)? * scale
                ),
            })
        };
        let metadata = format!("of {} kB metadata each: wall time", made.metadata_bytes / 1000);
        Ok(vec![
            row(&metadata, " s", Some(Bar::Below(1.0)), |usage| usage.cost.wall.as_secs_f64())?,
            row("CPU time", " s", None, cpu_s)?,
            row("peak memory", " MB", Some(Bar::Below(200.0)), peak_mb)?,
        ])
    }

    fn streams(&self) -> anyhow::Result<Vec<Row>> {
        let (few, many) = (self.folder.join("few-streams"), self.folder.join("many-streams"));
        for (path, streams) in [(&few, 2), (&many, self.args.streams)] {
            streams::make(path, streams)?;
            let found = self.count(&["--count"], path)?;
            ensure!(found == streams::EVENTS, "{found} event records in {streams} streams");
        }
        let of = |path: &Path| {
            let theirs = Self::theirs(&["--output-format=dummy"], path);
            self.rounds_of(1, &self.ours(&["--format=none"], path), &theirs)
        };
        let ((few_ours, few_theirs), (many_ours, many_theirs)) = (of(&few)?, of(&many)?);
        let both = |few: &[Usage], many: &[Usage]| -> anyhow::Result<String> {
            let per_event = 1e9 / streams::EVENTS as f64;
            let (few, many) = (median(few, cpu_s)?, median(many, cpu_s)?);
            Ok(format!("{:.0}, {:.0} ns/event", few * per_event, many * per_event))
        };
        let row = |name: &str, found, bar| -> anyhow::Result<Row> {
            Ok(Row {
                name: name.to_owned(),
                found,
                unit: "×",
                bar,
                ours: both(&few_ours, &many_ours)?,
                theirs: both(&few_theirs, &many_theirs)?,
            })
        };
        Ok(vec![
            row(
                "cost of the many to the few",
                ratios(&many_ours, &few_ours, cpu_s)?,
                Some(Bar::AtMost(2.0)),
            )?,
            row(
                "the same of babeltrace2, one round",
                ratios(&many_theirs, &few_theirs, cpu_s)?,
                None,
            )?,
        ])
    }
}

impl Input {
    fn title(&self) -> anyhow::Result<String> {
        let megabytes = folder_bytes(&self.path)? as f64 / 1e6;
        Ok(format!("{}: {} event records, {megabytes:.0} MB", self.name, self.events))
    }

    fn per_event(&self, usages: &[Usage]) -> anyhow::Result<String> {
        let seconds = median(usages, cpu_s)?;
        Ok(format!("{seconds:.3} s, {:.1} ns/event", seconds * 1e9 / self.events as f64))
    }
}

/// How many event records the peer finds.
fn peer_count(path: &Path) -> anyhow::Result<u64> {
    let output = Command::new(PEER).arg("--component=sink.utils.counter").arg(path).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rev().find_map(|line| line.trim().strip_suffix(" Event messages"));
    let count = last.with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    count.parse().with_context(|| count.to_owned())
}

fn cpu_s(usage: &Usage) -> f64 {
    usage.cost.cpu.as_secs_f64()
}

fn peak_mb(usage: &Usage) -> f64 {
    usage.peak_bytes as f64 / 1e6
}

fn median(usages: &[Usage], figure: fn(&Usage) -> f64) -> anyhow::Result<f64> {
    Ok(Rounds::new(usages.iter().map(figure).collect())?.median())
}

/// The figure of each round of `these` to that of the same round of `those`.
fn ratios(these: &[Usage], those: &[Usage], figure: fn(&Usage) -> f64) -> anyhow::Result<Rounds> {
    Rounds::new(these.iter().zip(those).map(|(this, that)| figure(this) / figure(that)).collect())
}

/// Nanoseconds since the epoch of the event record that has so many from itself to the end.
fn time_of_last(path: &Path, count: usize) -> anyhow::Result<i64> {
    let recording = Recording::open(&[path])?;
    let mut merged = recording.merged(TimeRange::ALL);
    let mut last = VecDeque::with_capacity(count + 1);
    while let Some(item) = merged.next_item() {
        let Item::Event(event) = item else { continue };
        last.push_back(event.timestamp.nanos());
        if last.len() > count {
            last.pop_front();
        }
    }
    ensure!(last.len() == count, "{} has only {} event records", path.display(), last.len());
    last.front().copied().context("no event record")
}

fn folder_bytes(path: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        sum += if kind.is_dir() { folder_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}
