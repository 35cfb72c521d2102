//! Workers and coordinators that are killed while they have a job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::site::{COUNT, Session, Site};
use super::workers::{Deeds, TELL, Worker, addresses};
use super::{Args, Rounds, crew, say};
use crate::law::dice::Dice;

/// Windows of the job: nine runs of eight, eight of those runs, and all.
const WINDOWS: u64 = 72;
const BLOCKS: usize = 72 + 9 + 1 + 1;
/// Merges of a run of eight by the worker that read it.
const MERGES_OF_ONE: usize = 3;
/// The command's exit code after a loss.
const LOST: i32 = 3;
/// How long a job may take; only one that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(300);
/// A kill that comes too late is not counted; so many are tried for each that is.
const TRIES: u32 = 6;

/// When a worker is killed.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Before it has made a block.
    Start,
    /// When it has made so many, and has more to make.
    Map(usize),
    /// In the midst of its merge of that number.
    Merge(usize),
}

impl When {
    fn has_come(self, deeds: &Deeds) -> bool {
        match self {
            Self::Start => true,
            Self::Map(enough) => deeds.made.len() >= enough,
            Self::Merge(number) => deeds.merges.len() > number,
        }
    }

    /// Whether what a worker did before it was killed is what it was to be killed in.
    fn was_met(self, deeds: &Deeds) -> bool {
        match self {
            Self::Start => deeds.made.is_empty(),
            Self::Map(_) => !deeds.made.is_empty(),
            Self::Merge(_) => deeds.is_merging(),
        }
    }
}

/// What came of it.
#[derive(Default)]
struct Tally {
    /// The answer came from those who were left, after the loss was told.
    survived: u32,
    /// An error with the worker's name; then the answer.
    again: u32,
    /// The job was over, or no longer there.
    too_late: u32,
    wall_s: Vec<f64>,
}

/// Kills a worker as often as is asked for in each phase; fails at the first wrong answer.
pub(super) fn run(args: &Args, site: &Site) -> anyhow::Result<()> {
    let session = site.session(WINDOWS, args.events)?;
    let truth = site.job(&session, "truth").output()?;
    ensure!(truth.status.success(), "{}", String::from_utf8_lossy(&truth.stderr));
    let job = Job { site, session, truth: truth.stdout, blocks: site.committed("truth")? };
    ensure!(job.blocks.len() == BLOCKS, "{} blocks", job.blocks.len());
    let mut dice = Dice::new(args.seed);
    say(&format!(
        "\n{WINDOWS} chunks, {} event records; {}; three workers of one thread, one of them killed (SIGKILL) {} times in each phase\n",
        job.session.events,
        site.name(),
        args.kills
    ));
    say(
        "| killed | same bytes from those left, who say who was lost | error with its name, then the same bytes | wall s, median (lowest to highest) | kills that came too late |",
    );
    say("|---|---|---|---|---|");
    let mut tally = Tally::default();
    for _ in 0..5 {
        job.undisturbed(&mut tally)?;
    }
    row("nobody", &tally)?;
    for phase in ["at the start", "while windows are read", "in a merge"] {
        let mut tally = Tally::default();
        while tally.survived + tally.again < args.kills {
            ensure!(tally.too_late <= TRIES * args.kills, "most kills come too late");
            let when = match phase {
                "at the start" => When::Start,
                "in a merge" => When::Merge(dice.below(MERGES_OF_ONE)),
                _ => When::Map(1 + dice.below(20)),
            };
            let later = Duration::from_micros(match when {
                When::Merge(_) => 0,
                When::Start | When::Map(_) => dice.roll() % 20_000,
            });
            let victim = dice.below(COUNT);
            job.disturbed(when, later, victim, &mut tally)
                .with_context(|| format!("{when:?}, worker {victim}, {later:?} later"))?;
        }
        row(phase, &tally)?;
    }
    site.forget(KEPT)?;
    site.forget("truth")?;
    site.remove(&job.session)
}

fn row(name: &str, tally: &Tally) -> anyhow::Result<()> {
    let rounds = Rounds::new(tally.wall_s.clone())?;
    let (low, high) = rounds.spread();
    let Tally { survived, again, too_late, .. } = tally;
    let median = rounds.median();
    say(&format!(
        "| {name} | {survived} | {again} | {median:.2} ({low:.2} to {high:.2}) | {too_late} |"
    ));
    Ok(())
}

/// The same job again and again.
struct Job<'s> {
    site: &'s Site,
    session: Session,
    /// What one process says.
    truth: Vec<u8>,
    /// The blocks that one process makes.
    blocks: BTreeMap<String, String>,
}

/// The name of the blocks of a round.
const KEPT: &str = "kept";

impl Job<'_> {
    fn workers(&self) -> anyhow::Result<Vec<Worker>> {
        self.site.forget(KEPT)?;
        crew(self.site)
    }

    fn start(&self, workers: &str) -> anyhow::Result<Child> {
        let folder = self.site.scratch();
        let mut command = self.site.job(&self.session, KEPT);
        command.args(["--workers", workers]).env(TELL.0, TELL.1);
        command.stdout(File::create(folder.join("answer"))?);
        Ok(command.stderr(File::create(folder.join("log"))?).spawn()?)
    }

    fn said(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.site.scratch().join("log"))?)
    }

    fn answer(&self) -> anyhow::Result<Vec<u8>> {
        Ok(fs::read(self.site.scratch().join("answer"))?)
    }

    /// The answer is that of one process, and so are the blocks.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.answer()? == self.truth, "a wrong answer: {}", self.said()?);
        let there = self.site.committed(KEPT)?;
        ensure!(there.keys().eq(self.blocks.keys()), "{} blocks", there.len());
        Ok(())
    }

    fn undisturbed(&self, tally: &mut Tally) -> anyhow::Result<()> {
        let workers = self.workers()?;
        let begin = Instant::now();
        let mut running = self.start(&addresses(&workers))?;
        wait(&mut running, || Ok(false))?;
        ensure!(running.wait()?.success(), "{}", self.said()?);
        tally.wall_s.push(begin.elapsed().as_secs_f64());
        self.check()
    }

    fn disturbed(
        &self,
        when: When,
        later: Duration,
        victim: usize,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let mut workers = self.workers()?;
        let names = addresses(&workers);
        let begin = Instant::now();
        let mut running = self.start(&names)?;
        let victim = workers.get_mut(victim).context("a victim")?;
        wait(&mut running, || Ok(when.has_come(&victim.deeds()?)))?;
        std::thread::park_timeout(later);
        victim.kill()?;
        let before = self.site.committed(KEPT)?;
        let is_met = when.was_met(&victim.deeds()?);
        let name = victim.address().to_owned();
        wait(&mut running, || Ok(false))?;
        let status = running.wait()?;
        let said = self.said()?;
        let is_told = said.contains(&name);
        let mut logs = said.clone();
        match status.code() {
            Some(0) if is_told && is_met => tally.survived += 1,
            Some(0) => tally.too_late += 1,
            Some(LOST) => {
                ensure!(is_told, "an error without the worker's name: {said}");
                ensure!(self.answer()?.is_empty(), "an error, and an answer");
                let mut again = self.start(&names)?;
                wait(&mut again, || Ok(false))?;
                ensure!(again.wait()?.success(), "{}", self.said()?);
                logs.push_str(&self.said()?);
                tally.again += 1;
            }
            code => bail!("it ended with {code:?}: {said}"),
        }
        tally.wall_s.push(begin.elapsed().as_secs_f64());
        self.check()?;
        let mut made = Deeds::of(&logs).made;
        for worker in &workers {
            made.extend(worker.deeds()?.made);
        }
        once(&before, &self.site.committed(KEPT)?, &made)
    }
}

/// What was committed before is as it was, and nobody made it a second time. The last word of one that was killed may be missing.
fn once(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    made: &[String],
) -> anyhow::Result<()> {
    for (name, stamp) in before {
        ensure!(after.get(name) == Some(stamp), "block {name} was written again");
        let times = made.iter().filter(|made| *made == name).count();
        ensure!(times <= 1, "block {name} was made {times} times");
    }
    Ok(())
}

/// A job that is killed as a whole, as often as is asked for, and resumed.
pub(super) fn resume(args: &Args, site: &Site) -> anyhow::Result<()> {
    let chunks = args.resume;
    let session = site.session(chunks, args.events.min(2_000))?;
    let truth = site.job(&session, "truth").output()?;
    ensure!(truth.status.success(), "{}", String::from_utf8_lossy(&truth.stderr));
    let job = Job { site, session, truth: truth.stdout, blocks: site.committed("truth")? };
    let (all, windows) = (job.blocks.len(), usize::try_from(chunks)?);
    ensure!(windows >= 8 * RESUMED, "too few chunks to be killed {RESUMED} times on the way");
    say(&format!(
        "\n{chunks} chunks, {} event records, {all} blocks; {}; three workers of one thread; all processes killed (SIGKILL) and started again\n",
        job.session.events,
        site.name()
    ));
    say("| killed with so many blocks committed | of these written or made again |");
    say("|---|---|");
    let mut dice = Dice::new(args.seed);
    let (mut made, mut committed) = (Vec::new(), BTreeMap::new());
    for round in 1..=RESUMED {
        let workers = crew(site)?;
        let mut running = job.start(&addresses(&workers))?;
        // A part of the way on, each time.
        let enough = windows * round / (RESUMED + 1) + dice.below(windows / (4 * RESUMED));
        let count = || -> anyhow::Result<usize> {
            let deeds = workers.iter().map(|worker| Ok(worker.deeds()?.made.len()));
            let now: usize = deeds.sum::<anyhow::Result<usize>>()?;
            Ok(now + committed.len())
        };
        wait(&mut running, || Ok(count()? >= enough))?;
        ensure!(running.try_wait()?.is_none(), "the job was over: {}", job.said()?);
        running.kill()?;
        running.wait()?;
        made.extend(job.end(workers)?);
        let there = site.committed(KEPT)?;
        once(&committed, &there, &made)?;
        ensure!(there.len() < all, "all {all} blocks were there");
        say(&format!("| {} | 0 |", there.len()));
        committed = there;
    }
    let workers = crew(site)?;
    let mut running = job.start(&addresses(&workers))?;
    wait(&mut running, || Ok(false))?;
    ensure!(running.wait()?.success(), "{}", job.said()?);
    made.extend(job.end(workers)?);
    job.check()?;
    once(&committed, &site.committed(KEPT)?, &made)?;
    say(&format!("\nThen {all} blocks and the answer of one process."));
    site.forget(KEPT)?;
    site.forget("truth")?;
    site.remove(&job.session)
}

/// How often a job is killed before it may end.
const RESUMED: usize = 4;

impl Job<'_> {
    /// Kills workers; what they and the last coordinator say that they made.
    fn end(&self, mut workers: Vec<Worker>) -> anyhow::Result<Vec<String>> {
        workers.iter_mut().try_for_each(Worker::kill)?;
        let mut made = Deeds::of(&self.said()?).made;
        for worker in &workers {
            made.extend(worker.deeds()?.made);
        }
        Ok(made)
    }
}

/// Waits until a condition holds or the child has ended.
fn wait(child: &mut Child, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !holds()? && child.try_wait()?.is_none() {
        ensure!(begin.elapsed() < PATIENCE, "the job hangs");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}
