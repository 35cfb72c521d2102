//! Workers that are killed while they have a job.

use std::fs::{self, File};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::workers::{Worker, addresses};
use super::{Args, Rounds, Session, say};
use crate::law::dice::Dice;

/// Windows of the job: nine runs of eight, eight of those runs, and all.
const WINDOWS: u64 = 72;
const BLOCKS: usize = 72 + 9 + 1 + 1;
/// The command's exit code after a loss.
const LOST: i32 = 3;
/// How long a job may take; only one that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(300);

/// When a worker is killed.
#[derive(Debug, Clone, Copy)]
enum When {
    Start,
    Map,
    Merge,
}

/// What came of it.
#[derive(Default)]
struct Tally {
    /// The answer came from those who were left, after the loss was told.
    survived: u32,
    /// The job was over, or did not need the worker any more.
    unnoticed: u32,
    /// An error with the worker's name; then the answer.
    again: u32,
    wall_s: Vec<f64>,
}

/// Kills a worker as often as is asked for in each phase; fails at the first wrong answer.
pub(super) fn run(args: &Args, binary: &Path) -> anyhow::Result<()> {
    let session = Session::write(WINDOWS, args.events)?;
    let kept = session.folder.join("truth");
    let truth = session.job(binary, &kept).output()?;
    ensure!(truth.status.success(), "{}", String::from_utf8_lossy(&truth.stderr));
    ensure!(committed(&kept) == BLOCKS, "{} blocks", committed(&kept));
    let mut dice = Dice::new(args.seed);
    say(&format!(
        "\n{WINDOWS} chunks, {} event records, three workers of one thread, one of them killed (SIGKILL) {} times in each phase\n",
        session.events, args.kills
    ));
    say(
        "| killed | same bytes from those left | same bytes, loss not noticed | error with its name, then same bytes | wall s, median (lowest to highest) |",
    );
    say("|---|---|---|---|---|");
    let undisturbed: Vec<f64> = (0..5)
        .map(|_| {
            let (mut tally, mut nobody) = (Tally::default(), None);
            round(binary, &session, &truth.stdout, &mut nobody, &mut tally)?;
            Ok(tally.wall_s.first().copied().unwrap_or(f64::NAN))
        })
        .collect::<anyhow::Result<_>>()?;
    row("nobody", &Tally { unnoticed: 5, wall_s: undisturbed, ..Tally::default() })?;
    for when in [When::Start, When::Map, When::Merge] {
        let mut tally = Tally::default();
        for n in 0..args.kills {
            let enough = match when {
                When::Start => 0,
                When::Map => 1 + dice.below(50),
                When::Merge => 64 + dice.below(BLOCKS - 66),
            };
            let mut moment =
                Some(Moment { enough, victim: dice.below(3), later_ms: dice.roll() % 40 });
            round(binary, &session, &truth.stdout, &mut moment, &mut tally)
                .with_context(|| format!("{when:?}, kill {n}, {enough} blocks"))?;
        }
        row(&format!("{when:?}"), &tally)?;
    }
    Ok(())
}

fn row(name: &str, tally: &Tally) -> anyhow::Result<()> {
    let rounds = Rounds::new(tally.wall_s.clone())?;
    let (low, high) = rounds.spread();
    let Tally { survived, unnoticed, again, .. } = tally;
    let median = rounds.median();
    say(&format!(
        "| {name} | {survived} | {unnoticed} | {again} | {median:.2} ({low:.2} to {high:.2}) |"
    ));
    Ok(())
}

/// Which worker is killed, and when.
struct Moment {
    /// So many blocks are committed…
    enough: usize,
    /// …and a little later.
    later_ms: u64,
    victim: usize,
}

fn round(
    binary: &Path,
    session: &Session,
    truth: &[u8],
    moment: &mut Option<Moment>,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let mut workers: Vec<Worker> =
        (0..3).map(|_| Worker::start(binary)).collect::<Result<_, _>>()?;
    let kept = session.folder.join("kept");
    if kept.exists() {
        fs::remove_dir_all(&kept)?;
    }
    let (answer, log) = (session.folder.join("answer"), session.folder.join("log"));
    let names = addresses(&workers);
    let job = || -> anyhow::Result<Child> {
        let mut command = session.job(binary, &kept);
        command.args(["--workers", &names]).stdout(File::create(&answer)?);
        Ok(command.stderr(File::create(&log)?).spawn()?)
    };
    let begin = Instant::now();
    let mut running = job()?;
    let mut before = 0;
    let mut name = String::new();
    if let Some(Moment { enough, later_ms, victim }) = moment.take() {
        wait(&mut running, || committed(&kept) >= enough)?;
        std::thread::park_timeout(Duration::from_millis(later_ms));
        let victim = workers.get_mut(victim).context("a victim")?;
        name = victim.address().to_owned();
        victim.kill()?;
        before = committed(&kept);
    }
    wait(&mut running, || false)?;
    let status = running.wait()?;
    let said = fs::read_to_string(&log)?;
    match status.code() {
        Some(0) if said.contains(&name) && !name.is_empty() => tally.survived += 1,
        Some(0) => tally.unnoticed += 1,
        Some(LOST) => {
            ensure!(said.contains(&name), "an error without the worker's name: {said}");
            ensure!(fs::metadata(&answer)?.len() == 0, "an error, and an answer");
            let mut again = job()?;
            wait(&mut again, || false)?;
            ensure!(again.wait()?.success(), "{}", fs::read_to_string(&log)?);
            tally.again += 1;
        }
        code => bail!("it ended with {code:?}: {said}"),
    }
    tally.wall_s.push(begin.elapsed().as_secs_f64());
    ensure!(fs::read(&answer)? == truth, "a wrong answer: {said}");
    ensure!(committed(&kept) == BLOCKS && before <= BLOCKS, "{} blocks", committed(&kept));
    // Only what was not committed was made after the kill; a worker whose report was lost has made more than is told.
    if let Some(made) = made(&said) {
        ensure!(made <= BLOCKS, "{made} blocks were made");
    }
    Ok(())
}

/// How many blocks the command says that it made.
fn made(said: &str) -> Option<usize> {
    said.lines().find_map(|line| line.strip_prefix("blocks: ")?.split(' ').next()?.parse().ok())
}

/// How many blocks are there.
fn committed(kept: &Path) -> usize {
    let Ok(entries) = fs::read_dir(kept.join("host")) else { return 0 };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".block")).count()
}

/// Waits until a condition holds or the child has ended.
fn wait(child: &mut Child, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !holds() && child.try_wait()?.is_none() {
        ensure!(begin.elapsed() < PATIENCE, "the job hangs");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    Ok(())
}
