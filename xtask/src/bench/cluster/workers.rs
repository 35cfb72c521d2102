//! Workers of a benchmark, and what processes say that they made.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};

/// What has processes say which blocks they make.
pub(super) const TELL: (&str, &str) = ("RUST_LOG", "blocks=debug");

/// A worker of one thread; killed with this.
pub(super) struct Worker {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Worker {
    /// Starts one, whose standard error is its log, and waits until it listens.
    pub(super) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        command.env(TELL.0, TELL.1).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a worker")?;
        let stdout = child.stdout.take().context("a pipe")?;
        let first =
            BufReader::new(stdout).lines().next().context("a worker that says nothing")??;
        let Some(address) = first.strip_prefix("listening at ") else { bail!("{first}") };
        let address = address.to_owned();
        Ok(Self { child, address, log: log.to_owned() })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// What it has said that it did.
    pub(super) fn deeds(&self) -> anyhow::Result<Deeds> {
        Ok(Deeds::of(&fs::read_to_string(&self.log)?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a process says that it did, from its log.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    /// The blocks that it made, by name, as often as it did.
    pub(super) made: Vec<String>,
    /// The merges that it began.
    pub(super) merges: Vec<String>,
}

impl Deeds {
    pub(super) fn of(log: &str) -> Self {
        let mut deeds = Self::default();
        // A last line may be cut short by a kill.
        for line in log.lines() {
            let Some((_, rest)) = line.split_once("block=") else { continue };
            let Some(name) = rest.split_whitespace().next() else { continue };
            if line.contains(" merging ") {
                deeds.merges.push(name.to_owned());
            } else if line.contains(" made ") {
                deeds.made.push(name.to_owned());
            }
        }
        deeds
    }

    /// Whether it is in the midst of a merge.
    pub(super) fn is_merging(&self) -> bool {
        self.merges.iter().any(|merge| !self.made.contains(merge))
    }
}

/// As `--workers` takes them.
pub(super) fn addresses(workers: &[Worker]) -> String {
    workers.iter().map(Worker::address).collect::<Vec<_>>().join(",")
}

/// CPU time of all children that have ended.
pub(super) fn children() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let times = [usage.user_time(), usage.system_time()];
    let micros: i64 = times.iter().map(|time| time.tv_sec() * 1_000_000 + time.tv_usec()).sum();
    Ok(Duration::from_micros(u64::try_from(micros)?))
}
