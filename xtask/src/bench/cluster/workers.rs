//! Workers of a benchmark.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};

/// A worker of one thread on the loopback interface; killed with this.
pub(super) struct Worker {
    child: Child,
    address: String,
}

impl Worker {
    /// Starts one and waits until it listens.
    pub(super) fn start(binary: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(binary);
        command.args(["worker", "--listen", "127.0.0.1:0", "--threads", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("a worker")?;
        let stdout = child.stdout.take().context("a pipe")?;
        let first =
            BufReader::new(stdout).lines().next().context("a worker that says nothing")??;
        let Some(address) = first.strip_prefix("listening at ") else { bail!("{first}") };
        let address = address.to_owned();
        Ok(Self { child, address })
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
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
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
