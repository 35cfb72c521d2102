//! Tells a program of a chunk.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::Failure;

/// Runs the program with the chunk's folder as argument and the manifest on standard input; waits for its end. It gets a
/// process group of its own, which is killed when it takes longer than `timeout` or nobody waits any more. Its messages go where
/// the relay's go, its output nowhere.
pub(super) async fn run(
    program: &Path,
    folder: &Path,
    manifest: File,
    timeout: Duration,
) -> Result<(), Failure> {
    // The file itself and not a pipe: one that reads nothing holds nobody up.
    let mut child = Command::new(program)
        .arg(folder)
        .stdin(Stdio::from(manifest))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(Failure::Start)?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = Group(pid);
    let status = match tokio::time::timeout(timeout, child.wait()).await {
        Ok(status) => status.map_err(Failure::Start)?,
        Err(_elapsed) => return Err(Failure::Timeout),
    };
    group.0 = None;
    if status.success() { Ok(()) } else { Err(Failure::Ended(status)) }
}

/// Kills the process group that it holds.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0
            && let Err(error) = kill_process_group(pid, Signal::KILL)
        {
            tracing::warn!(%error, "cannot end a program that was told of a chunk");
        }
    }
}
