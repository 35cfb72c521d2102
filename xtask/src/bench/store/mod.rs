//! What the store of profiles costs: taking pushes in, merging, bytes of a sample by column, and answering questions.
//!
//! | part | input | what is measured |
//! |---|---|---|
//! | push | a made fleet of 1,000 series, each pod sends two profiles every 15 s | CPU time to decode a push, and to write it into a block |
//! | merge | the blocks that came of it, merged as the store does | CPU time by sample and by byte read, peak memory |
//! | size | those blocks at level 0 and after all merges; the same of an agent's packets | bytes of a sample, by column |
//! | ask | all of them | CPU time of a flame graph of everything, of 1 % of the time, of one service, of both |
//!
//! CPU time is that of all threads of this process; making the pushes is not counted.

mod columns;
mod made;
pub(super) mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use flame::{CallTree, Sums, Walk};
use intake::{Encoding, Limits};
use model::Timestamp;
use model::samples::Series;
use nix::sys::resource::{UsageWho, getrusage};
use objects::Io;
use store::block::{Detail, Selection};
use store::lake::name::{BlockName, Tenant};
use store::lake::{Lake, Settings, Ticket};

use self::columns::Columns;
use self::made::{EPOCH_NS, Fleet, PUSH_EVERY_NS};
use super::measure::Rounds;
use super::table::{self, Bar, Row};

const SECOND_NS: i64 = 1_000_000_000;
/// How often what came is written: the store's own default.
const FLUSH_NS: i64 = SECOND_NS / 2;
/// How often the store looks for what is to be merged.
const MERGE_NS: i64 = 10 * SECOND_NS;

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Samples that are pushed, at least
    #[arg(long, default_value_t = 10_000_000)]
    samples: u64,
    /// Services, each with its own program
    #[arg(long, default_value_t = 50)]
    services: usize,
    /// Pods of each service: each has two series
    #[arg(long, default_value_t = 10)]
    pods: usize,
    /// Samples of an agent, at least
    #[arg(long, default_value_t = 1_000_000)]
    agent_samples: u64,
    /// Rounds of each question
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// What the made profiles depend on
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rounds > 0 && args.services > 0 && args.pods > 0, "nothing to measure");
    table::print_head(&[
        table::machine()?,
        format!(
            "{} services × {} pods × 2 series, {} samples and more",
            args.services, args.pods, args.samples
        ),
    ]);
    let folder = tempfile::tempdir()?;
    let mut bench = Bench::open(&folder.path().join("pprof"), args)?;
    bench.pushes()?;
    bench.print("Pushes of pprof")?;
    bench.questions()?;
    drop(bench);
    let mut bench = Bench::open(&folder.path().join("agent"), args)?;
    bench.packets()?;
    bench.print("Packets of an agent: each sample has its own time")
}

/// What a kind of work cost.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    cpu: Duration,
    samples: u64,
    bytes: u64,
}

struct Bench<'a> {
    args: &'a Args,
    folder: std::path::PathBuf,
    lake: Lake,
    tenant: Tenant,
    fleet: Fleet,
    now_ns: i64,
    tickets: Vec<Ticket>,
    pushes: u64,
    samples: u64,
    decoding: Work,
    writing: Work,
    merging: Work,
    fresh: Columns,
    /// Blocks that were looked at, and their samples.
    known: BTreeMap<String, u64>,
}

impl<'a> Bench<'a> {
    fn open(folder: &Path, args: &'a Args) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let now_ns = EPOCH_NS;
        let path = folder.to_str().context("a folder's name is no text")?;
        let now = Timestamp::from_nanos(now_ns);
        Ok(Self {
            args,
            folder: folder.to_owned(),
            lake: Lake::open(path, &Io::start()?, Settings::default(), now)?,
            tenant: Tenant::new("bench").context("no tenant")?,
            fleet: Fleet::new(args.services, args.pods, args.seed)?,
            now_ns,
            tickets: Vec::new(),
            pushes: 0,
            samples: 0,
            decoding: Work::default(),
            writing: Work::default(),
            merging: Work::default(),
            fresh: Columns::default(),
            known: BTreeMap::new(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_ns)
    }

    /// Has pods send until there are enough samples; blocks are written and merged in between as the store does.
    fn pushes(&mut self) -> anyhow::Result<()> {
        let mut round = 0;
        while self.samples < self.args.samples {
            for pod in 0..self.fleet.pods() {
                let begin_ns = self.fleet.begin_ns(round, pod);
                let body = self.fleet.push(begin_ns, pod)?;
                self.pass(begin_ns + PUSH_EVERY_NS)?;
                let begin = cpu()?;
                let taken =
                    intake::push(&body, Encoding::Protobuf, &Limits::default(), self.now())?;
                self.decoding.cpu += cpu()?.saturating_sub(begin);
                self.decoding.bytes += body.len() as u64;
                let refused = taken.profiles.iter().find_map(|profile| profile.as_ref().err());
                ensure!(refused.is_none(), "{refused:?}");
                let begin = cpu()?;
                self.tickets.push(self.lake.push(&self.tenant, &taken.batch)?);
                self.writing.cpu += cpu()?.saturating_sub(begin);
                self.samples += taken.batch.samples().len() as u64;
                self.pushes += 1;
            }
            round += 1;
        }
        self.finish()
    }

    /// The same for packets of agents, one for every tenth pod.
    fn packets(&mut self) -> anyhow::Result<()> {
        let mut number = 0;
        while self.samples < self.args.agent_samples {
            for machine in 0..self.fleet.pods().div_ceil(10) {
                let batch = self.fleet.packet(number, machine)?;
                let end = batch.samples().iter().map(|sample| sample.at).max();
                self.pass(end.map_or(self.now_ns, Timestamp::nanos))?;
                let begin = cpu()?;
                self.tickets.push(self.lake.push(&self.tenant, &batch)?);
                self.writing.cpu += cpu()?.saturating_sub(begin);
                self.samples += batch.samples().len() as u64;
                self.pushes += 1;
            }
            number += 1;
        }
        self.finish()
    }

    /// Lets the time pass, in which the store works.
    fn pass(&mut self, to_ns: i64) -> anyhow::Result<()> {
        let turns = |every: i64, from: i64| to_ns.div_euclid(every) > from.div_euclid(every);
        let (is_flush, is_merge) = (turns(FLUSH_NS, self.now_ns), turns(MERGE_NS, self.now_ns));
        self.now_ns = self.now_ns.max(to_ns);
        if is_flush {
            self.flush()?;
        }
        if is_merge {
            self.merge()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let begin = cpu()?;
        self.lake.flush(self.now());
        self.writing.cpu += cpu()?.saturating_sub(begin);
        self.tickets.drain(..).try_for_each(|ticket| ticket.wait())?;
        for (name, bytes) in self.new_blocks()? {
            let columns = Columns::of(&bytes)?;
            self.known.insert(name, columns.samples);
            self.fresh.add(&columns);
        }
        Ok(())
    }

    /// Says whether there was anything to merge.
    fn merge(&mut self) -> anyhow::Result<bool> {
        let before = self.lake.blocks();
        let begin = cpu()?;
        let made = self.lake.compact(self.now())?.made;
        if made == 0 {
            return Ok(false);
        }
        self.merging.cpu += cpu()?.saturating_sub(begin);
        let after: std::collections::BTreeSet<String> =
            self.lake.blocks().iter().map(BlockName::to_string).collect();
        for gone in before.iter().filter(|name| !after.contains(&name.to_string())) {
            self.merging.bytes += gone.bytes;
            self.merging.samples += self.known.remove(&gone.to_string()).unwrap_or(0);
        }
        for (name, bytes) in self.new_blocks()? {
            self.known.insert(name, Columns::of(&bytes)?.samples);
        }
        Ok(true)
    }

    /// Merges whatever may be merged.
    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.now_ns += 3 * 86_400 * SECOND_NS;
        while self.merge()? {}
        Ok(())
    }

    /// Those that were not looked at.
    fn new_blocks(&self) -> anyhow::Result<Vec<(String, Bytes)>> {
        let names = self.lake.blocks().into_iter().map(|name| name.to_string());
        let new = names.filter(|name| !self.known.contains_key(name));
        new.map(|name| Ok((name.clone(), self.bytes_of(&name)?))).collect()
    }

    fn bytes_of(&self, name: &str) -> anyhow::Result<Bytes> {
        Ok(fs::read(self.folder.join(name)).with_context(|| name.to_owned())?.into())
    }

    fn print(&self, title: &str) -> anyhow::Result<()> {
        let mut merged = Columns::default();
        for name in self.lake.blocks() {
            merged.add(&Columns::of(&self.bytes_of(&name.to_string())?)?);
        }
        ensure!(
            merged.samples == self.samples,
            "{} samples of {} are there",
            merged.samples,
            self.samples
        );
        let figure = |name: &str, found: f64, unit, bar, ours: String| -> anyhow::Result<Row> {
            let (found, theirs) = (Rounds::new(vec![found])?, String::new());
            Ok(Row { name: name.to_owned(), found, unit, bar, ours, theirs })
        };
        let micros = |cpu: Duration, of: u64| cpu.as_secs_f64() * 1e6 / of.max(1) as f64;
        let per_second = |count: u64, cpu: Duration| count as f64 / cpu.as_secs_f64();
        let (decoding, writing) = (self.decoding.cpu, self.writing.cpu);
        let mut rows = vec![
            figure(
                "pushes taken in on one core",
                per_second(self.pushes, decoding + writing),
                " /s",
                None,
                format!("{} pushes, {} samples", self.pushes, self.samples),
            )?,
            figure(
                "of it decoding, by push",
                micros(decoding, self.pushes),
                " µs",
                None,
                format!("{} kB in", self.decoding.bytes / 1_000),
            )?,
            figure(
                "of it writing blocks, by push",
                micros(writing, self.pushes),
                " µs",
                None,
                String::new(),
            )?,
        ];
        if self.merging.samples > 0 {
            let Work { cpu, samples, bytes } = self.merging;
            rows.push(figure(
                "merging on one core",
                per_second(samples, cpu) / 1e6,
                " M/s",
                None,
                format!("{samples} samples in"),
            )?);
            rows.push(figure(
                "the same in bytes read",
                per_second(bytes, cpu) / 1e6,
                " MB/s",
                None,
                String::new(),
            )?);
        }
        let size = |columns: &Columns| columns.bytes as f64 / columns.samples as f64;
        rows.push(figure(
            "bytes of a sample at level 0",
            size(&self.fresh),
            " B",
            None,
            format!("{} blocks", self.fresh.blocks),
        )?);
        rows.push(figure(
            "bytes of a sample when merged",
            size(&merged),
            " B",
            Some(Bar::AtMost(3.0)),
            format!("{} blocks", merged.blocks),
        )?);
        rows.push(figure("peak memory", peak_bytes()? as f64 / 1e6, " MB", None, String::new())?);
        table::print(&format!("{title}, {} series", self.fleet.series()), "", &rows);
        columns::print(&self.fresh, &merged);
        Ok(())
    }

    /// Flame graphs of more and less of it.
    fn questions(&self) -> anyhow::Result<()> {
        let length_ns =
            self.lake.blocks().iter().map(|name| name.end.nanos()).max().unwrap_or(EPOCH_NS)
                - EPOCH_NS;
        let all = (Timestamp::MIN, Timestamp::MAX);
        let middle = EPOCH_NS + length_ns / 2;
        let hundredth =
            (Timestamp::from_nanos(middle), Timestamp::from_nanos(middle + length_ns / 100));
        let any = |_: &Series| true;
        let one = |series: &Series| store::service(series) == Some("svc7");
        let ask = |name, times, series| Question { name, times, series };
        let questions = [
            ask("everything", all, &any as &dyn Fn(&Series) -> bool),
            ask("1 % of the time", hundredth, &any),
            ask("one service", all, &one),
            ask("1 % of the time of one service", hundredth, &one),
        ];
        let mut rows = Vec::new();
        reset_peak()?;
        for Question { name, times, series } in questions {
            let selection = Selection { profile_type: None, series, times, detail: Detail::Totals };
            let (mut found, mut answer) = (Vec::new(), (0, 0));
            for _ in 0..self.args.rounds {
                let begin = cpu()?;
                let (mut tree, mut sums) = (CallTree::new(), 0);
                self.lake.visit(&self.tenant, &selection, |batch| {
                    tree.add(batch, &Sums::of(batch, batch.samples()), Walk::default());
                    sums += batch.samples().len();
                })?;
                let graph = tree.flame_graph(8_192);
                found.push(cpu()?.saturating_sub(begin).as_secs_f64() * 1e3);
                answer = (sums, tree.len());
                black_box(graph);
            }
            rows.push(Row {
                name: name.to_owned(),
                found: Rounds::new(found)?,
                unit: " ms",
                bar: None,
                ours: format!("{} sums, {} nodes", answer.0, answer.1),
                theirs: String::new(),
            });
        }
        let title = format!(
            "Flame graph of {} samples, CPU time; peak memory {:.0} MB",
            self.samples,
            peak_bytes()? as f64 / 1e6
        );
        table::print(&title, "", &rows);
        Ok(())
    }
}

/// What is asked for.
struct Question<'q> {
    name: &'static str,
    times: (Timestamp, Timestamp),
    series: &'q dyn Fn(&Series) -> bool,
}

/// User and system time of all threads of this process so far.
fn cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    Ok(Duration::from_micros(u64::try_from(micros.iter().sum::<i64>())?))
}

/// The most memory that was resident since [`reset_peak`] (proc_pid_status(5)).
fn peak_bytes() -> anyhow::Result<u64> {
    peak_bytes_of("self")
}

/// The same of a process.
fn peak_bytes_of(process: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}

/// Lets the peak begin at what is resident (proc_pid_clear_refs(5)).
fn reset_peak() -> anyhow::Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}
