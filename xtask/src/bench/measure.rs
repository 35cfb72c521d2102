//! What a command costs, and how several rounds of it are summed up.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// What one run of a command cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// User and system CPU time of the process and of the children it waited for; in steps of 10 ms.
    pub(super) cpu: Duration,
    /// From start to end.
    pub(super) wall: Duration,
}

/// Runs `command` to its end with its output thrown away; fails when it does.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Cost> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let before = cpu_of_waited_children()?;
    let begin = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let wall = begin.elapsed();
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(Cost { cpu: cpu_of_waited_children()?.saturating_sub(before), wall })
}

/// CPU time that a running process has used so far, all its threads together.
pub(super) fn cpu_of_process(pid: u32) -> anyhow::Result<Duration> {
    stat_ticks(&format!("/proc/{pid}/stat"), UTIME)
}

fn cpu_of_waited_children() -> anyhow::Result<Duration> {
    stat_ticks("/proc/self/stat", CUTIME)
}

/// Positions after the command name in `/proc/PID/stat` (proc_pid_stat(5), fields 14 and 16).
const UTIME: usize = 11;
const CUTIME: usize = 13;

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

    #[test]
    fn a_busy_child_is_charged_for_its_cpu_time() {
        let cost =
            run(Command::new("sh")
                .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]));
        let cost = cost.unwrap();
        assert!(cost.cpu >= Duration::from_millis(10), "{cost:?}");
        assert!(cost.wall >= Duration::from_millis(10), "{cost:?}");
    }

    #[test]
    fn a_failing_command_is_an_error() {
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("/nonexistent/program")).is_err());
    }

    #[test]
    fn rounds_give_their_median_and_spread() {
        let rounds = Rounds::new(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((rounds.median(), rounds.spread()), (2.0, (1.0, 3.0)));
        assert!(Rounds::new(Vec::new()).is_err());
    }
}
