//! Whether this machine and user may load programs into the kernel at all.

use std::fs;
use std::path::Path;

use rustix::process::geteuid;

/// Why there are no programs in the kernel, and so no kernel half of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// Loading tracing programs needs `CAP_BPF` and `CAP_PERFMON`, or `CAP_SYS_ADMIN`.
    #[error("it needs root, or the capabilities CAP_BPF and CAP_PERFMON")]
    Privilege,
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no type information (/sys/kernel/btf/vmlinux is missing; CONFIG_DEBUG_INFO_BTF)"
    )]
    NoTypeInformation,
    /// The programs read registers of these processors.
    #[error("only x86-64 and aarch64 are supported")]
    Architecture,
    /// The table of system calls is that of x86-64.
    #[error("the kernel is traced on x86-64 only, whose system calls are known")]
    SystemCalls,
}

/// Bits of the effective capability set, include/uapi/linux/capability.h.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// Says whether programs can be loaded here, without loading any: whether [`sample`](crate::profile::sample) has more than copies of
/// stacks. [`kernel::preflight`](crate::kernel::preflight) asks for more.
///
/// # Errors
/// The first reason found why not.
pub fn preflight() -> Result<(), Unavailable> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err(Unavailable::Architecture);
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Unavailable::NoTypeInformation);
    }
    let capable = effective_capabilities().map_or(geteuid().is_root(), allows_tracing);
    if capable { Ok(()) } else { Err(Unavailable::Privilege) }
}

fn allows_tracing(capabilities: u64) -> bool {
    let has = |bits| capabilities & bits == bits;
    has(CAP_SYS_ADMIN) || has(CAP_BPF | CAP_PERFMON)
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_takes_both_narrow_capabilities_or_the_wide_one() {
        assert!(allows_tracing(CAP_SYS_ADMIN));
        assert!(allows_tracing(CAP_BPF | CAP_PERFMON));
        assert!(!allows_tracing(CAP_BPF));
        assert!(!allows_tracing(0));
    }
}
