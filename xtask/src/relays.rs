//! Relays in processes of their own, ours and lttng-relayd, each on free ports of this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::lttng::RelayDaemon;

/// Longer than a relay that was told to end takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// `throughline relay`; killed when dropped.
pub(crate) struct OwnRelay {
    process: Child,
    pub(crate) control: SocketAddr,
    pub(crate) data: SocketAddr,
    pub(crate) viewers: SocketAddr,
}

impl OwnRelay {
    /// Starts the binary as a relay that writes below `root`; with port 0 it takes a free one.
    pub(crate) fn start(
        binary: &Path,
        root: &Path,
        control: SocketAddr,
        data: SocketAddr,
    ) -> anyhow::Result<Self> {
        let mut process = Command::new(binary)
            .args(["relay", "--live", "127.0.0.1:0"])
            .args(["--control", &control.to_string(), "--data", &data.to_string(), "--output"])
            .arg(root)
            .env("RUST_LOG", "error")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| binary.display().to_string())?;
        let mut lines = BufReader::new(process.stderr.take().context("no standard error")?).lines();
        let mut said = Vec::new();
        let line = loop {
            let line = lines.next().with_context(|| said.join("\n"))??;
            if line.contains("control ") && line.contains("data ") {
                break line;
            }
            said.push(line);
        };
        // What it says later is read away, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        let address = |name: &str| -> anyhow::Result<SocketAddr> {
            let rest = line.split_once(name).with_context(|| line.clone())?.1;
            rest.split(',').next().unwrap_or(rest).trim().parse().with_context(|| line.clone())
        };
        let (control, data) = (address("control ")?, address("data ")?);
        Ok(Self { process, control, data, viewers: address("viewers ")? })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its resident memory in KiB.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.context("no VmRSS")?;
        Ok(words.split_whitespace().next().context("no number")?.parse()?)
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        signal(&self.process, "-TERM")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait()? {
                ensure!(status.success(), "relay: {status}");
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the relay does not end");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for OwnRelay {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Sends a signal to a child, named as `kill` names it.
pub(crate) fn signal(child: &Child, signal: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status()?;
    ensure!(status.success(), "kill {signal}: {status}");
    Ok(())
}

/// Which relay is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    /// This binary.
    Ours(&'a Path),
    /// Debian's lttng-relayd.
    Reference,
}

impl Which<'_> {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours(_) => "throughline relay",
            Self::Reference => "lttng-relayd",
        }
    }
}

/// One of the relays, writing to a folder of its own. Both end with this value.
pub(crate) enum Running {
    Ours(OwnRelay, tempfile::TempDir),
    Reference(RelayDaemon),
}

impl Running {
    pub(crate) fn start(which: Which<'_>) -> anyhow::Result<Self> {
        Ok(match which {
            Which::Ours(binary) => {
                let folder = tempfile::tempdir()?;
                let any = "127.0.0.1:0".parse()?;
                Self::Ours(OwnRelay::start(binary, folder.path(), any, any)?, folder)
            }
            Which::Reference => Self::Reference(RelayDaemon::start()?),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Ours(relay, _) => relay.pid(),
            Self::Reference(daemon) => daemon.pid(),
        }
    }

    /// Where control and data connections are taken.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        match self {
            Self::Ours(relay, _) => (relay.control, relay.data),
            Self::Reference(daemon) => (daemon.control(), daemon.data()),
        }
    }

    /// What `lttng create --set-url` takes.
    pub(crate) fn url(&self) -> String {
        let (control, data) = self.addresses();
        format!("net://127.0.0.1:{}:{}", control.port(), data.port())
    }

    /// Where viewers are taken.
    pub(crate) fn viewers(&self) -> SocketAddr {
        match self {
            Self::Ours(relay, _) => relay.viewers,
            Self::Reference(daemon) => daemon.live(),
        }
    }

    /// The folder that it writes below.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Ours(_, folder) => folder.path(),
            Self::Reference(daemon) => daemon.folder(),
        }
    }
}
