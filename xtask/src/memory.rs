//! Memory of processes.

use std::fs;

/// Memory of a process that is nobody else's (proc_pid_smaps(5)).
pub(crate) fn private_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kilobytes = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kilobytes.sum::<u64>() * 1024)
}
