//! A user-space recording session of a private LTTng daemon, and a program that fills it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::lttng::SessionDaemon;

use super::measure;

const SOURCES: [(&str, &str); 2] = [
    ("tick.h", include_str!("../../assets/tick.h")),
    ("tick.c", include_str!("../../assets/tick.c")),
];

/// Bytes of a recorded event, header included.
const EVENT_BYTES: u64 = 64;

/// How many threads record; each has a CPU of its own where there are enough.
const THREADS: usize = 2;

/// Records `count` events of `bench:tick` with the contexts `vpid` and `vtid` into `output`, an absolute path:
/// 64 bytes each, header included. The tracer waits for room rather than discard.
pub(super) fn record_ticks(count: u64, output: &Path) -> anyhow::Result<()> {
    let output = output.to_str().context("the output folder's name is not UTF-8")?;
    let channel = ["--blocking-timeout=inf", "--subbuf-size=1M", "--num-subbuf=8"];
    Ticks {
        count,
        threads: THREADS,
        pause_ns: 0,
        channel: &channel,
        destination: &["--output", output],
    }
    .record(&SessionDaemon::start()?)
}

/// One recording session of a program that does nothing but record events.
pub(super) struct Ticks<'a> {
    pub(super) count: u64,
    pub(super) threads: usize,
    /// From one event of a thread to its next; with 0 it records as fast as it can.
    pub(super) pause_ns: u64,
    /// Options of its only channel.
    pub(super) channel: &'a [&'a str],
    /// Options of `lttng create`.
    pub(super) destination: &'a [&'a str],
}

impl Ticks<'_> {
    /// Creates the session, runs the program and destroys the session.
    pub(super) fn record(&self, daemon: &SessionDaemon) -> anyhow::Result<()> {
        let program = compile(daemon.folder(), "tick", &SOURCES)?;
        daemon.lttng([&["create", "bench"], self.destination].concat())?;
        let channel = ["enable-channel", "--userspace", "ticks"];
        daemon.lttng([&channel, self.channel].concat())?;
        daemon.lttng(["enable-event", "--userspace", "--channel=ticks", "bench:*"])?;
        let context = ["--channel=ticks", "--type=vpid", "--type=vtid"];
        daemon.lttng([&["add-context", "--userspace"], &context[..]].concat())?;
        daemon.lttng(["start"])?;
        measure::warm_memory(self.count * EVENT_BYTES)?;
        let status = daemon
            .command(program)
            .args([self.count, self.threads as u64, self.pause_ns].map(|number| number.to_string()))
            .env("LTTNG_UST_ALLOW_BLOCKING", "1")
            .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
            .status()
            .context("the traced program")?;
        ensure!(status.success(), "the traced program ended with {status}");
        daemon.lttng(["destroy", "bench"])?;
        Ok(())
    }
}

/// Compiles a traced program of one source file, `NAME.c`, which lies in `folder` afterwards.
pub(super) fn compile(
    folder: &Path,
    name: &str,
    sources: &[(&str, &str)],
) -> anyhow::Result<PathBuf> {
    for (name, text) in sources {
        fs::write(folder.join(name), text).with_context(|| (*name).to_owned())?;
    }
    let program = folder.join(name);
    let output = Command::new("cc")
        .current_dir(folder)
        .args(["-O2", "-I.", "-o"])
        .arg(&program)
        .arg(format!("{name}.c"))
        .args(["-pthread", "-llttng-ust", "-ldl"])
        .output()
        .context("cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}
