//! Memory of processes.

use std::fs;

/// Memory of a process that is nobody else's (proc_pid_smaps(5)).
pub(crate) fn private_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kilobytes = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kilobytes.sum::<u64>() * 1024)
}

/// The part of [`private_bytes`] that lies in maps of eBPF programs (proc_pid_smaps(5)): of the profiler, unwind rows.
pub(crate) fn private_map_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut is_map, mut kilobytes) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            is_map = line.ends_with("anon_inode:bpf-map");
        } else if is_map && first.starts_with("Private_") {
            kilobytes += words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(kilobytes * 1024)
}
