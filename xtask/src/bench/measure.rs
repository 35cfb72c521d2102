//! What a command costs, and how several rounds of it are summed up.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// What a stretch of a process's life cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// User and system CPU time.
    pub(super) cpu: Duration,
    /// From start to end.
    pub(super) wall: Duration,
}

/// What one run of a command cost, with the children it waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Its time.
    pub(super) cost: Cost,
    /// The most memory that was resident at once, in bytes.
    pub(super) peak_bytes: u64,
}

/// A command to measure: a program and its arguments. Its time zone is UTC.
#[derive(Debug, Clone)]
pub(super) struct Run(Vec<OsString>);

impl Run {
    pub(super) fn new<S: Into<OsString>>(words: impl IntoIterator<Item = S>) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }

    pub(super) fn args<S: Into<OsString> + Clone>(mut self, words: &[S]) -> Self {
        self.0.extend(words.iter().cloned().map(Into::into));
        self
    }

    pub(super) fn arg(mut self, word: impl Into<OsString>) -> Self {
        self.0.push(word.into());
        self
    }

    /// Runs it to its end with its output thrown away; fails when it does.
    ///
    /// The kernel counts the memory of the process that starts a program as the program's own, so a fresh
    /// process, which holds next to nothing, starts it and reports.
    pub(super) fn measure(&self) -> anyhow::Result<Usage> {
        let output = Command::new(std::env::current_exe()?)
            .arg("measured")
            .arg("--")
            .args(&self.0)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Usage::parse(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Usage {
    /// Runs a command as the only child of this process.
    fn of(command: &[OsString]) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("no command")?;
        let begin = Instant::now();
        let status = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let wall = begin.elapsed();
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let micros = usage.user_time().tv_sec() * 1_000_000
            + usage.user_time().tv_usec()
            + usage.system_time().tv_sec() * 1_000_000
            + usage.system_time().tv_usec();
        let cpu = Duration::from_micros(u64::try_from(micros)?);
        let peak_bytes = u64::try_from(usage.max_rss())? * 1024;
        Ok(Self { cost: Cost { cpu, wall }, peak_bytes })
    }

    fn print(&self) -> String {
        let Self { cost, peak_bytes } = self;
        format!("{} {} {peak_bytes}", cost.cpu.as_micros(), cost.wall.as_micros())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .with_context(|| format!("not a usage: {text}"))?;
        let &[cpu, wall, peak_bytes] = numbers.as_slice() else { bail!("not a usage: {text}") };
        let cost = Cost { cpu: Duration::from_micros(cpu), wall: Duration::from_micros(wall) };
        Ok(Self { cost, peak_bytes })
    }
}

/// `xtask measured -- COMMAND…`: runs it and prints its CPU time and wall time in microseconds, and its peak
/// memory in bytes.
#[expect(clippy::print_stdout, reason = "the line is what the caller reads")]
pub(crate) fn measured(command: &[OsString]) -> anyhow::Result<()> {
    println!("{}", Usage::of(command)?.print());
    Ok(())
}

/// CPU time that a running process has used so far, all its threads together; in steps of 10 ms.
pub(super) fn cpu_of_process(pid: u32) -> anyhow::Result<Duration> {
    stat_ticks(&format!("/proc/{pid}/stat"), UTIME)
}

/// Makes the machine have so many bytes at hand that a file's pages can be taken from.
///
/// A virtual machine may hand memory that is free for some seconds back to its host. The first write to it afterwards takes
/// four times as long as another one, which would be charged to whoever comes first.
pub(super) fn warm_memory(bytes: u64) -> anyhow::Result<()> {
    const PAGE: usize = 4096;
    let mut memory = vec![0_u8; usize::try_from(bytes)?];
    for page in memory.chunks_mut(PAGE) {
        page.iter_mut().take(1).for_each(|byte| *byte = 1);
    }
    std::hint::black_box(&memory);
    Ok(())
}

/// CPU time that the calling thread has used so far.
pub(super) fn cpu_of_this_thread() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Position after the command name in `/proc/PID/stat` (proc_pid_stat(5), field 14).
const UTIME: usize = 11;

/// The sum of two neighbouring tick counts, user first and system second.
fn stat_ticks(path: &str, first: usize) -> anyhow::Result<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let (_, after_name) = stat.rsplit_once(')').with_context(|| format!("{path}: no name"))?;
    let ticks: Vec<u32> = after_name
        .split_whitespace()
        .skip(first)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("{path}: fields {}", first + 3))?;
    ensure!(ticks.len() == 2, "{path}: too few fields");
    Ok(TICK * ticks.iter().sum())
}

/// The figures of several rounds of one thing.
#[derive(Debug, Clone)]
pub(super) struct Rounds(Vec<f64>);

impl Rounds {
    /// Sorts the figures; there must be one at least.
    pub(super) fn new(mut figures: Vec<f64>) -> anyhow::Result<Self> {
        ensure!(!figures.is_empty(), "no round was measured");
        figures.sort_by(f64::total_cmp);
        Ok(Self(figures))
    }

    /// The middle figure (the upper one of two).
    pub(super) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The lowest and the highest figure.
    pub(super) fn spread(&self) -> (f64, f64) {
        let first = self.0.first().copied().unwrap_or(f64::NAN);
        (first, self.0.last().copied().unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_busy_child_is_charged_for_its_time_and_memory() {
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let usage = Usage::of(&words(&["sh", "-c", busy])).unwrap();
        assert!(usage.cost.cpu >= Duration::from_millis(5), "{usage:?}");
        assert!(usage.cost.wall >= Duration::from_millis(5), "{usage:?}");
        assert!(usage.peak_bytes >= 100_000, "{usage:?}");
        let again = Usage::parse(&usage.print()).unwrap();
        assert_eq!(again.cost.cpu, usage.cost.cpu);
        assert_eq!(again.peak_bytes, usage.peak_bytes);
    }

    #[test]
    fn a_failing_command_is_an_error() {
        assert!(Usage::of(&words(&["false"])).is_err());
        assert!(Usage::of(&words(&["/nonexistent/program"])).is_err());
        assert!(Usage::of(&[]).is_err());
    }

    #[test]
    fn a_threads_own_time_grows_with_its_work() {
        let before = cpu_of_this_thread().unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(cpu_of_this_thread().unwrap() > before);
    }

    #[test]
    fn rounds_give_their_median_and_spread() {
        let rounds = Rounds::new(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((rounds.median(), rounds.spread()), (2.0, (1.0, 3.0)));
        assert!(Rounds::new(Vec::new()).is_err());
    }
}
