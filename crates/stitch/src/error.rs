//! What can go wrong.

use std::{fmt, io};

use model::{CpuId, Pid, Tid, Timestamp};

use crate::fact::TableKey;
use crate::file::columns::ColumnError;

/// Why summaries do not merge or a summary file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Both parts hold the same stretch of time, or a piece of it.
    #[error(
        "the same time is covered twice: one part ends at {left_end:?}, the other begins at {right_begin:?}"
    )]
    CoveredTwice {
        /// Where the left part ends.
        left_end: Timestamp,
        /// Where the right part begins.
        right_begin: Timestamp,
    },
    /// Something is missing between the parts; a gap must say so.
    #[error("nothing covers the time from {left_end:?} to {right_begin:?}")]
    NotAdjacent {
        /// Where the left part ends.
        left_end: Timestamp,
        /// Where the right part begins.
        right_begin: Timestamp,
    },
    /// The parts come from different hosts.
    #[error("a summary of host {left} does not merge with one of host {right}")]
    OtherHost {
        /// The left part's host.
        left: String,
        /// The right part's host.
        right: String,
    },
    /// The right part was mapped behind another left part than this one.
    #[error("mapped behind another neighbour: {who} there")]
    StaleAssumption {
        /// What it took from there.
        who: Assumption,
    },
    /// The file does not begin as a summary does.
    #[error("not a summary: the first eight bytes are {found:02x?}")]
    Magic {
        /// What is there; shorter when the file is.
        found: Vec<u8>,
    },
    /// The file was written by another version.
    #[error("summary version {found} at offset 8; this program reads {expected}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The version this program writes and reads.
        expected: u32,
    },
    /// The announced length and the length of the file differ.
    #[error("summary body of {announced} bytes announced at offset 12, {present} present")]
    Length {
        /// What the header says.
        announced: u64,
        /// What follows the header, without the checksum.
        present: u64,
    },
    /// The bytes are not those that were written.
    #[error("summary checksum is {found:08x}, the bytes give {computed:08x}")]
    Checksum {
        /// The checksum in the file.
        found: u32,
        /// The checksum of the bytes before it.
        computed: u32,
    },
    /// The lengths of the body do not fit how it is stored, or it would take more memory than its bytes are worth.
    #[error("summary body of {body} bytes in form {form} cannot stand for {columns} bytes")]
    Form {
        /// How the header says it is stored.
        form: u32,
        /// Its length.
        body: u64,
        /// The length it announces.
        columns: u64,
    },
    /// The body is not what a compressor wrote.
    #[error("summary body cannot be unpacked")]
    Compressor(#[source] io::Error),
    /// The body is not what a summary is made of.
    #[error("summary body cannot be decoded")]
    Body(#[source] ColumnError),
}

/// Who is who, as a window took it from what precedes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assumption {
    /// The thread on a CPU; `None`: nobody knew.
    OnCpu {
        /// The CPU.
        cpu: CpuId,
        /// The thread.
        tid: Option<Tid>,
    },
    /// A thread was inside no span, nor was any other that is not known to have begun one.
    OutsideSpans {
        /// The thread; `None`: one of those without an event.
        tid: Option<Tid>,
    },
    /// The process of a thread; `None`: nobody knew.
    ProcessOf {
        /// The thread.
        tid: Tid,
        /// The process.
        pid: Option<Pid>,
    },
    /// The process of a descriptor table; `None`: nobody knew.
    TableOf {
        /// The table.
        table: TableKey,
        /// The process.
        pid: Option<Pid>,
    },
    /// Which processes share a descriptor table.
    Sharing,
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnCpu { cpu, tid: Some(tid) } => write!(f, "CPU {cpu} had thread {tid}"),
            Self::OnCpu { cpu, tid: None } => write!(f, "nobody knew the thread on CPU {cpu}"),
            Self::OutsideSpans { tid: Some(tid) } => write!(f, "thread {tid} was inside no span"),
            Self::OutsideSpans { tid: None } => write!(f, "other threads were inside no span"),
            Self::ProcessOf { tid, pid: Some(pid) } => {
                write!(f, "thread {tid} was of process {pid}")
            }
            Self::ProcessOf { tid, pid: None } => {
                write!(f, "nobody knew the process of thread {tid}")
            }
            Self::Sharing => f.write_str("other processes shared descriptor tables"),
            Self::TableOf { table, pid } => {
                let address = table.address();
                match pid {
                    Some(pid) => write!(f, "table {address:#x} was of process {pid}"),
                    None => write!(f, "nobody knew the process of table {address:#x}"),
                }
            }
        }
    }
}
