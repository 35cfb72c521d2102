//! A private LTTng session daemon with one user-space session.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

const SOURCES: [(&str, &str); 2] = [
    ("tick.h", include_str!("../../assets/tick.h")),
    ("tick.c", include_str!("../../assets/tick.c")),
];

/// A started session; the daemon ends with it.
pub(super) struct Session {
    folder: PathBuf,
}

impl Session {
    /// Builds the program that records `bench:tick` events.
    pub(super) fn compile_tick(folder: &Path) -> anyhow::Result<PathBuf> {
        for (name, text) in SOURCES {
            fs::write(folder.join(name), text).with_context(|| name.to_owned())?;
        }
        let program = folder.join("tick");
        let output = Command::new("cc")
            .current_dir(folder)
            .args(["-O2", "-I.", "-o"])
            .arg(&program)
            .args(["tick.c", "-llttng-ust", "-ldl"])
            .output()
            .context("cc")?;
        ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        Ok(program)
    }

    /// Starts a daemon of its own (its sockets lie in `folder`) and a session that records all
    /// user-space events of blocking applications into `output`.
    pub(super) fn start(folder: &Path, output: &Path) -> anyhow::Result<Self> {
        let session = Self { folder: folder.to_owned() };
        let status = Command::new("lttng-sessiond")
            .args(["--daemonize", "--no-kernel"])
            .envs(session.environment())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("lttng-sessiond")?;
        ensure!(status.success(), "lttng-sessiond ended with {status}");
        session.lttng(
            ["create", "bench", "--output"].map(OsStr::new).into_iter().chain([output.as_os_str()]),
        )?;
        session.lttng(
            [
                "enable-channel",
                "--userspace",
                "--blocking-timeout=inf",
                "--subbuf-size=1M",
                "--num-subbuf=8",
                "c",
            ]
            .map(OsStr::new),
        )?;
        session.lttng(["enable-event", "--userspace", "--channel=c", "bench:*"].map(OsStr::new))?;
        session.lttng(["start"].map(OsStr::new))?;
        Ok(session)
    }

    /// What the traced program needs in its environment to find the daemon.
    pub(super) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LTTNG_HOME", self.folder.clone()), ("LTTNG_RUNDIR", self.folder.join("run"))]
    }

    /// Stops the session; the trace is complete afterwards.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.lttng(["destroy", "bench"].map(OsStr::new))
    }

    fn lttng<'a>(&self, arguments: impl IntoIterator<Item = &'a OsStr>) -> anyhow::Result<()> {
        let mut command = Command::new("lttng");
        command.arg("--no-sessiond").args(arguments).envs(self.environment());
        let output = command.output().context("lttng")?;
        if !output.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let pid_file = self.folder.join("run/lttng-sessiond.pid");
        if let Ok(pid) = fs::read_to_string(pid_file) {
            drop(Command::new("kill").arg(pid.trim()).status());
        }
    }
}
