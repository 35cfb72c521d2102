//! Recorded traces, found beside the repository and unpacked once per machine.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// Every recorded CTF 1.8 trace of the shared folder.
pub const CTF_1_8_TRACES: [&str; 15] = [
    "kernel-basic-lttng210",
    "kernel-big-endian",
    "kernel-many-threads",
    "kernel-perf",
    "kernel-perf-ctf-old",
    "kernel-picotrace",
    "kernel-uneven-1cpu",
    "otf2-mpi",
    "pair-ust-chunks-and-kernel",
    "ust-60-processes",
    "ust-cyg-profile",
    "ust-libc-memory",
    "ust-lost-events",
    "ust-ros2",
    "ust-statedump",
];

/// The folder of shared test data: `$THROUGHLINE_SHARED`, else `../shared` beside the repository.
///
/// `None` when there is no such folder; the caller then skips with [`skip`].
#[must_use]
pub fn shared_dir() -> Option<PathBuf> {
    let named = env::var_os("THROUGHLINE_SHARED").map(PathBuf::from);
    named.or_else(|| Some(repository_root()?.parent()?.join("shared"))).filter(|dir| dir.is_dir())
}

/// The packed folder of the trace `name` (it holds `expected.json` and `data.tar.xz`), when the data is there.
#[must_use]
pub fn packed_trace(name: &str) -> Option<PathBuf> {
    let packed = shared_dir()?.join("traces").join(name);
    packed.join("data.tar.xz").is_file().then_some(packed)
}

/// The unpacked folder of the trace `name`, with its `expected.json` copied in; `None` when the data is absent.
///
/// Unpacked once into the repository's `target/traces`. Parallel tests are safe: each unpacks into a folder of its
/// own and the first to rename it into place wins.
///
/// # Panics
/// When the data is there but `tar` cannot unpack it or the disk refuses: that is a broken machine, not absence.
#[must_use]
pub fn unpacked_trace(name: &str) -> Option<PathBuf> {
    let packed = packed_trace(name)?;
    let cache = repository_root()?.join("target").join("traces");
    let unpacked = cache.join(name);
    if !unpacked.is_dir() {
        unpack(&packed, &cache, &unpacked)
            .unwrap_or_else(|error| panic!("unpacking {}: {error}", packed.display()));
    }
    Some(unpacked)
}

/// Says on standard error why a test did nothing.
#[expect(clippy::print_stderr, reason = "the only way to tell the reader of a test run")]
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

fn unpack(packed: &Path, cache: &Path, unpacked: &Path) -> io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = cache.join(format!(".{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&own)?;
    let status = Command::new("tar")
        .arg("xJf")
        .arg(packed.join("data.tar.xz"))
        .arg("-C")
        .arg(&own)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("tar ended with {status}")));
    }
    fs::copy(packed.join("expected.json"), own.join("expected.json"))?;
    match fs::rename(&own, unpacked) {
        Ok(()) => Ok(()),
        Err(_) if unpacked.is_dir() => fs::remove_dir_all(&own),
        Err(error) => Err(error),
    }
}

/// Of the crate whose test runs: a build folder may be shared by several checkouts.
fn repository_root() -> Option<PathBuf> {
    let of_test = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = of_test.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    package.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).map(Path::to_owned)
}
