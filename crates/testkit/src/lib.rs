//! What tests share: traces, real peers, temporary folders.
//!
//! Vocabulary:
//! - **shared folder**: data too large for the repository, beside it or where `THROUGHLINE_SHARED` says;
//! - **trace folder**: one named recording there: `data.tar.xz` packed, with its `expected.json`;
//! - **skip**: a test whose data is absent says so and passes, so that the suite runs on any machine.
//!
//! A test tool only: never a normal dependency of another crate.

use std::process::{Command, Stdio};

pub mod agent;
pub mod alloc;
mod bpftrace;
#[expect(
    clippy::indexing_slicing,
    reason = "what is absent of a JSON value is null, which the next step refuses"
)]
pub mod browser;
mod child;
mod chunked;
pub mod duckdb;
pub mod executables;
pub mod exporting;
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the file is small, and each place in it is known"
)]
pub mod go;
mod http;
pub mod lttng;
pub mod machines;
pub mod osprofiler;
pub mod pki;
pub mod postgres;
pub mod prometheus;
pub mod python;
mod running;
pub mod s3;
mod traces;
pub mod viewer;

pub use bpftrace::bpftrace;
pub use child::TestProcess;
pub use chunked::Chunked;
pub use running::{Running, wait_for};
pub use traces::{CTF_1_8_TRACES, packed_trace, shared_dir, skip, unpacked_trace};

/// Whether a program can be started at all.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
