//! Everything that begins and ends, and what threads and files come to, as plain data for programs that ask for rows.
//!
//! A begin or an end is *hard* where it was seen; where it was not there is none, as whatever is known of it is the begin or
//! the end of the recording. What is *uncertain* has a loss of events between its begin and its end, and stands in no sum of
//! an answer.

use std::sync::Arc;

use model::{CpuId, Fd, Pid, Tid, Timestamp};

use crate::fact::{Dev, Line};

/// What a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpanKind {
    /// A system call, from entry to exit.
    Syscall,
    /// A thread has a CPU, from one switch of the CPU to the next.
    Running,
    /// A thread that was woken waits for a CPU.
    Waiting,
    /// A thread waits for something else.
    Blocked,
    /// A handler of a hardware interrupt.
    Irq,
    /// A handler of a software interrupt.
    Softirq,
    /// A request to a block device, from issue to completion.
    Disk,
}

impl SpanKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Syscall,
        Self::Running,
        Self::Waiting,
        Self::Blocked,
        Self::Irq,
        Self::Softirq,
        Self::Disk,
    ];

    /// What people and programs call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Irq => "irq",
            Self::Softirq => "softirq",
            Self::Disk => "disk",
        }
    }
}

/// Something with a begin and an end. What means nothing for its kind, and what nobody knows, is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub kind: SpanKind,
    /// The call; the cause of a wait; the names of the interrupt; what a request does.
    pub name: Option<Arc<str>>,
    /// When it began, where that was seen.
    pub begin: Option<Timestamp>,
    /// When it ended, where that was seen.
    pub end: Option<Timestamp>,
    /// Whether events were lost between its begin and its end, which may then be that of another span.
    pub is_uncertain: bool,
    /// Whose it is; of a request to a block device, who issued it.
    pub tid: Option<Tid>,
    /// Where it ended.
    pub cpu: Option<CpuId>,
    /// What a call returned.
    pub ret: Option<i64>,
    /// The descriptor that a call made or worked on.
    pub fd: Option<Fd>,
    /// What that stood for.
    pub path: Option<Arc<str>>,
    /// Bytes that a call moved or a request asked for.
    pub bytes: Option<u64>,
    /// The thread that ended a wait.
    pub waker: Option<Tid>,
    /// The interrupt; of a wait, the one that ended it.
    pub line: Option<Line>,
    /// When a software interrupt was raised.
    pub raised: Option<Timestamp>,
    /// The device of a request.
    pub device: Option<(Dev, Arc<str>)>,
    /// The first sector of a request.
    pub sector: Option<u64>,
}

impl Span {
    pub(crate) const fn new(kind: SpanKind) -> Self {
        Self {
            kind,
            name: None,
            begin: None,
            end: None,
            is_uncertain: false,
            tid: None,
            cpu: None,
            ret: None,
            fd: None,
            path: None,
            bytes: None,
            waker: None,
            line: None,
            raised: None,
            device: None,
            sector: None,
        }
    }

    /// How many nanoseconds it took, where both ends are certain.
    #[must_use]
    pub fn ns(&self) -> Option<u64> {
        let (begin, end) = self.begin.zip(self.end).filter(|_| !self.is_uncertain)?;
        Some(end.since(begin).get())
    }
}

/// What a life of a thread comes to, or several that ended and have one command name; as in the tables, what was cut off by an
/// end of the recording is in no sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRow {
    /// The thread; `None` of several that ended.
    pub tid: Option<Tid>,
    /// Its process, when it is known.
    pub pid: Option<Pid>,
    /// Its last command name; empty when it is unknown.
    pub comm: Arc<str>,
    /// Nanoseconds on CPUs, up to the first and from the last switch too.
    pub running_ns: u64,
    /// Moves to another CPU.
    pub migrations: u64,
    /// Waits for a CPU, from a wake-up on.
    pub latencies: u64,
    /// Nanoseconds of these.
    pub waiting_ns: u64,
    /// Waits for something else.
    pub waits: u64,
    /// Nanoseconds of these.
    pub blocked_ns: u64,
    /// Complete system calls.
    pub calls: u64,
    /// Nanoseconds in these.
    pub calls_ns: u64,
    /// Of these, those that failed, but for those that the kernel begins again by itself.
    pub errors: u64,
    /// Returns that events were lost before, in no other figure.
    pub uncertain_calls: u64,
}

/// Complete calls of one name by one process on one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// The process.
    pub pid: Pid,
    /// Its command name; empty when it is unknown.
    pub comm: Arc<str>,
    /// The path, or what it is; `(fd 5)` when nothing names it.
    pub path: Arc<str>,
    /// `file`, `socket`, `pipe` or `other`; `None` when nothing names it.
    pub kind: Option<&'static str>,
    /// The call.
    pub syscall: Arc<str>,
    /// How many.
    pub calls: u64,
    /// Nanoseconds from entry to exit.
    pub ns: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Those that failed, but for those that the kernel begins again by itself.
    pub errors: u64,
}
