//! Answers as plain data. All times are integers in nanoseconds, points in time since the Unix epoch.
//!
//! Everything is ordered, so equal answers are equal byte for byte as JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The `format` of [`Phases`].
pub const PHASES_FORMAT: &str = "throughline-phases/1";
/// The `format` of [`PathAnswer`].
pub const PATH_FORMAT: &str = "throughline-path/1";
/// The `format` of [`Syscalls`].
pub const SYSCALLS_FORMAT: &str = "throughline-syscalls/1";
/// How many rows a list of files or threads has at most; one more row `(other)` holds the rest.
pub const MAX_ROWS: usize = 1_000;

/// Where the time of requests went, by phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// [`PHASES_FORMAT`].
    pub format: Arc<str>,
    /// The traced host.
    pub host: Arc<str>,
    /// The first moment covered.
    pub begin_ns: i64,
    /// The first moment after.
    pub end_ns: i64,
    /// Requests in numbers.
    pub requests: RequestCount,
    /// How long complete requests took.
    #[serde(default)]
    pub durations: Durations,
    /// Complete requests over time.
    #[serde(default)]
    pub timeline: Timeline,
    /// Phases, the one with most time first; `(between)` is request time in no phase. A phase's time excludes phases in it.
    pub phases: Vec<Phase>,
    /// The slowest requests, slowest first.
    pub request_list: Vec<Request>,
    /// Files that calls inside requests worked on, most time first.
    pub files: Vec<File>,
    /// What is missing or made no sense.
    pub loss: Loss,
}

/// Requests in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    /// Begun and ended.
    pub complete: u64,
    /// Cut off by the begin or end of the recording, by loss, or by another request of the same thread. Counted nowhere else.
    pub partial: u64,
    /// The wall time of all complete ones.
    pub wall_ns: u64,
    /// How many the list holds.
    pub listed: u64,
    /// How many complete ones it does not hold.
    pub unlisted: u64,
}

/// How long complete requests took. A time is known up to 1/32 of itself: by the buckets of a histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Which time that share of requests does not exceed: half, 95 % and 99 %.
    pub percentiles: Vec<Percentile>,
    /// Buckets with requests, the shortest times first.
    pub buckets: Vec<DurationBucket>,
}

/// The time that a share of requests does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentile {
    /// The share.
    pub percent: u8,
    /// The time is no less,
    pub low_ns: u64,
    /// and no more.
    pub high_ns: u64,
}

/// Requests that took about as long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationBucket {
    /// No less than this,
    pub low_ns: u64,
    /// and no more.
    pub high_ns: u64,
    /// How many.
    pub requests: u64,
    /// Their time.
    #[serde(flatten)]
    pub split: Split,
}

/// Complete requests by when they ended, in slots of equal width.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The width of a slot. Slots begin at multiples of it.
    pub slot_ns: u64,
    /// Slots in which requests ended, in order.
    pub slots: Vec<TimelineSlot>,
}

/// Requests that ended within a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineSlot {
    /// When it begins.
    pub begin_ns: i64,
    /// How many.
    pub requests: u64,
    /// How long the slowest of them took.
    pub longest_ns: u64,
    /// Their time, also what lies before the slot.
    #[serde(flatten)]
    pub split: Split,
}

/// Time by what the thread did: `wall = running + waiting + all of blocked + unknown`, exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// All of it.
    pub wall_ns: u64,
    /// On a CPU.
    pub running_ns: u64,
    /// Ready to run, without a CPU.
    pub waiting_ns: u64,
    /// Asleep.
    pub blocked_ns: Blocked,
    /// Not covered by scheduler events, or lost.
    pub unknown_ns: u64,
}

/// Time asleep by what the thread slept for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// A file system or page.
    pub disk: u64,
    /// A socket.
    pub network: u64,
    /// A futex.
    pub lock: u64,
    /// A clock.
    pub timer: u64,
    /// A pipe.
    pub pipe: u64,
    /// A child.
    pub child: u64,
    /// Anything else.
    pub other: u64,
}

/// All spans of one phase in complete requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The path below the request: `decode`, `decode/scale`; or `(between)`.
    pub name: Arc<str>,
    /// How many; for `(between)`, how many requests.
    pub spans: u64,
    /// Their time.
    #[serde(flatten)]
    pub split: Split,
    /// Who had the CPU while they waited for one, most time first.
    pub waited_for: Vec<WaitedFor>,
    /// Their system calls, most time first.
    pub syscalls: Vec<Syscall>,
}

/// A thread that had the CPU somebody else waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// Its command name; `idle` when the CPU did nothing, `(other)` for the rest of a long list.
    pub comm: Arc<str>,
    /// Its thread id.
    pub tid: i32,
    /// For how long.
    pub ns: u64,
}

/// Complete system calls of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syscall {
    /// The call's name.
    pub name: Arc<str>,
    /// How many.
    pub calls: u64,
    /// From entry to exit, summed.
    pub ns: u64,
    /// Positive return values of calls that move data.
    pub bytes: u64,
    /// Negative return values, but for calls that the kernel starts again by itself.
    pub errors: u64,
    /// Returns that events were lost before, so that it is uncertain of which call of this name they are; in no other figure.
    #[serde(default)]
    pub uncertain: u64,
    /// The files they worked on, most time first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<File>>,
}

/// Complete system calls that worked on one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its path, or what it is; `(fd 5)` when nothing names it.
    pub name: Arc<str>,
    /// How many calls.
    pub calls: u64,
    /// From entry to exit, summed.
    pub ns: u64,
    /// Positive return values of calls that move data.
    pub bytes: u64,
    /// Negative return values, but for calls that the kernel starts again by itself.
    pub errors: u64,
}

/// One complete request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The id its events carry.
    pub id: Option<u64>,
    /// The span's name.
    pub name: Arc<str>,
    /// The command name of the process.
    pub process: Arc<str>,
    /// The thread that served it.
    pub tid: i32,
    /// When it began.
    pub begin_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// Its time.
    #[serde(flatten)]
    pub split: Split,
    /// Its phases, most time first, with `(between)`; their times add up to the request's.
    pub phases: Vec<RequestPhase>,
    /// Its system calls, most time first, without files.
    pub syscalls: Vec<Syscall>,
    /// What it waited for, through all threads; of the slowest requests, where the scheduler was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_path: Option<CriticalPath>,
}

/// The path of one request or thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathAnswer {
    /// [`PATH_FORMAT`].
    pub format: Arc<str>,
    /// The traced host.
    pub host: Arc<str>,
    /// The request's name; `None` for a thread.
    pub request: Option<Arc<str>>,
    /// The id that the request's events carry.
    pub id: Option<u64>,
    /// The command name of the thread that the path ends in.
    pub comm: Arc<str>,
    /// That thread.
    pub tid: i32,
    /// Where the path begins.
    pub begin_ns: i64,
    /// Where it ends.
    pub end_ns: i64,
    /// The path.
    #[serde(flatten)]
    pub path: CriticalPath,
    /// What is missing or made no sense.
    pub loss: Loss,
}

/// A last-waker critical path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalPath {
    /// Time by thread and state, most time first; together the time from begin to end.
    pub totals: Vec<PathTotal>,
    /// What was done when, in order and without a hole.
    pub hops: Vec<PathHop>,
    /// Whether the path has more hops before these.
    pub is_longer: bool,
}

/// Time of a path in one thread and state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTotal {
    /// The thread's command name.
    pub comm: Arc<str>,
    /// The thread.
    pub tid: i32,
    /// What it did.
    pub state: PathState,
    /// For how long.
    pub ns: u64,
}

/// A stretch of a path: one thread in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHop {
    /// How long after the begin of the path it begins.
    pub offset_ns: u64,
    /// How long it takes.
    pub ns: u64,
    /// The thread's command name.
    pub comm: Arc<str>,
    /// The thread.
    pub tid: i32,
    /// What it does.
    pub state: PathState,
    /// What ended the wait, when it is one: an interrupt, or a CPU without a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<Arc<str>>,
    /// The thread that woke this one, when the path comes from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<Arc<str>>,
}

/// What a thread does on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// On a CPU.
    Running,
    /// Ready to run, without a CPU.
    Waiting,
    /// Asleep for a file system or page.
    Disk,
    /// Asleep for a socket.
    Network,
    /// Asleep for a futex.
    Lock,
    /// Asleep for a clock.
    Timer,
    /// Asleep for a pipe.
    Pipe,
    /// Asleep for a child.
    Child,
    /// Asleep for something that an interrupt brought.
    Interrupt,
    /// Asleep for anything else.
    Other,
    /// Nobody knows.
    Unknown,
}

impl PathState {
    /// What people and programs call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Lock => "lock",
            Self::Timer => "timer",
            Self::Pipe => "pipe",
            Self::Child => "child",
            Self::Interrupt => "interrupt",
            Self::Other => "other",
            Self::Unknown => "unknown",
        }
    }
}

/// All spans of one phase in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestPhase {
    /// The path below the request, or `(between)`.
    pub name: Arc<str>,
    /// How many.
    pub spans: u64,
    /// Their time.
    #[serde(flatten)]
    pub split: Split,
}

/// What is missing or made no sense.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Events the tracers had no room for.
    pub events_discarded: u64,
    /// Packets that are missing from the recording.
    pub packets_lost: u64,
    /// Stretches of time whose recording is missing.
    pub gaps: u64,
    /// Span ends without a begin.
    pub unmatched_span_ends: u64,
    /// Phases without an end, counted up to the end of what encloses them.
    pub abandoned_phases: u64,
    /// Phases that lie in no request.
    pub phases_outside_requests: u64,
    /// Returns from system calls whose entry was not seen.
    pub calls_without_begin: u64,
    /// Bytes that those calls moved: nobody knows of which file.
    #[serde(default)]
    pub bytes_without_begin: u64,
    /// Returns from system calls that events were lost before, of a thread that was on the CPU that lost them: of the call
    /// that was seen to begin, or of a later one of its name. Counted in no other figure.
    #[serde(default)]
    pub uncertain_calls: u64,
    /// Operations that were given to io_uring rings by calls: no event shows them.
    #[serde(default)]
    pub ring_operations: u64,
    /// Calls and spans of which nobody knows the thread.
    pub without_thread: u64,
    /// Events whose time goes back inside their stream.
    pub backward_times: u64,
}

/// Complete system calls by process and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syscalls {
    /// [`SYSCALLS_FORMAT`].
    pub format: Arc<str>,
    /// The traced host.
    pub host: Arc<str>,
    /// The first moment covered.
    pub begin_ns: i64,
    /// The first moment after.
    pub end_ns: i64,
    /// Processes, the one with most calls first.
    pub processes: Vec<Process>,
    /// What is missing or made no sense.
    pub loss: Loss,
}

/// Complete system calls of one process number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process.
    pub pid: i32,
    /// Its last known command name; empty when nothing tells.
    pub comm: Arc<str>,
    /// Its calls, most time first.
    pub syscalls: Vec<Syscall>,
}
