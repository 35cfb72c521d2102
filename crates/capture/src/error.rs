//! What can go wrong.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::kernel::{EncodeError, RelayError};
use crate::preflight::Unavailable;

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine or user cannot trace the kernel.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The kernel refused a step of loading, attaching or reading the eBPF programs.
    #[error("cannot {step}")]
    Bpf {
        /// What was tried.
        step: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// This user may sample nothing.
    #[error(
        "sampling {} is not allowed: {}",
        if *of_all { "the whole machine" } else { "processes" },
        if *of_all {
            "it needs root, or CAP_PERFMON and better CAP_BPF, too; a command or own processes need less"
        } else {
            "it needs root, or CAP_PERFMON and better CAP_BPF, too, or kernel.perf_event_paranoid of at most 2"
        }
    )]
    NotAllowed {
        /// Whether it was to be of all processes.
        of_all: bool,
        /// Why no program of the kernel was taken.
        #[source]
        refused: Option<Arc<Error>>,
    },
    /// A system call failed.
    #[error("cannot {step}")]
    Os {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A file of the output folder could not be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A name that the output cannot carry.
    #[error("{what} {name:?} cannot be used as a name of files")]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The relay refused, was lost or did not answer in time.
    #[error("relay {address}")]
    Relay {
        /// Its control connection.
        address: String,
        /// What happened.
        source: RelayError,
    },
    /// A record could not be written as an event record: our own fault.
    #[error("cannot write a record of CPU {cpu}")]
    Encode {
        /// The CPU.
        cpu: u32,
        /// What was wrong.
        source: EncodeError,
    },
    /// The output failed in mid-run; what was sealed before is there.
    #[error("{undelivered} events were captured and not delivered")]
    Undelivered {
        /// Event records that the output has not taken.
        undelivered: u64,
        /// Why.
        source: Box<Error>,
    },
}

impl Error {
    pub(crate) fn bpf(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| Self::Bpf { step, source }
    }

    pub(crate) fn os<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { step, source: source.into() }
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
