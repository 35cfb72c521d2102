//! bpftrace, the witness of what the kernel's tracepoints saw.

use std::process::Command;

/// `bpftrace` with the file systems it reads: it looks for tracepoints below `/sys/kernel/debug/tracing`, which not
/// every machine has mounted. They are mounted for this process alone; its id is bpftrace's own.
#[must_use]
pub fn bpftrace() -> Command {
    const MOUNTED: &str = r#"
        trace=/sys/kernel/debug/tracing
        [ -d "$trace/events" ] || mount -t debugfs debugfs /sys/kernel/debug
        [ -d "$trace/events" ] || mount -t tracefs tracefs "$trace"
        exec bpftrace "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MOUNTED, "bpftrace"]);
    command
}
