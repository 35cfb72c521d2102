//! Tables of every analysis but the phases.

mod blocked;
mod cpu;
mod disk;
mod irq;
mod lives;
mod log;
mod operations;
mod path;
mod sched;
mod spans;
mod syscalls;
mod usage;

use std::sync::Arc;

use model::{CpuId, Pid, Tid, TimeRange};

pub(super) use irq::irq as irq_cell;

use super::Finish;
use crate::fact::Line;
use crate::fold::{Histogram, Stat};
use crate::range::Log;
use crate::select::Logged;
use crate::spans::{FileRow, Span, ThreadRow};
use crate::summary::Summary;
use crate::table::{Bound, Cell, Class, Column, Kind, Table};
use lives::Closed;

/// What is asked of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// System calls by thread and by name.
    Syscallstats,
    /// Scheduling latencies by thread.
    Schedstats,
    /// The longest scheduling latencies.
    Schedtop,
    /// Scheduling latencies by length.
    Schedfreq,
    /// Interrupts by line.
    Irqstats,
    /// Interrupts by length.
    Irqfreq,
    /// CPU time by thread and by CPU.
    Cputop,
    /// Latencies of block devices.
    Iolatencystats,
    /// Calls and block device requests by length.
    Iolatencyfreq,
    /// The longest requests to block devices.
    Iolatencytop,
    /// Bytes read and written by process, file and device.
    Iousagetop,
    /// Pages of memory by thread.
    Memtop,
    /// Waits by cause and by who ended them.
    Blocked,
    /// Last-waker critical paths of requests.
    CriticalPath,
    /// Every interrupt.
    Irqlog,
    /// Every scheduling latency.
    Schedlog,
    /// Every call that opens, closes, reads, writes or syncs a file.
    Iolog,
    /// Every call.
    Syscalllog,
    /// Every request to a block device.
    Disklog,
}

/// Which rows are wanted. An empty list asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// At most so many rows of each table.
    pub limit: Option<usize>,
    /// Rows of these threads; tables whose rows are no threads' keep all rows.
    pub tids: Vec<Tid>,
    /// Rows of threads with these command names.
    pub comms: Vec<String>,
    /// Rows of these CPUs.
    pub cpus: Vec<CpuId>,
    /// Rows of these interrupts.
    pub lines: Vec<Line>,
}

impl Subject {
    /// All that totals answer.
    pub const ALL: [Self; 14] = [
        Self::Syscallstats,
        Self::Schedstats,
        Self::Schedtop,
        Self::Schedfreq,
        Self::Irqstats,
        Self::Irqfreq,
        Self::Cputop,
        Self::Iolatencystats,
        Self::Iolatencytop,
        Self::Iolatencyfreq,
        Self::Iousagetop,
        Self::Memtop,
        Self::Blocked,
        Self::CriticalPath,
    ];

    /// All that are a log: one row for everything that ended, in order. A summary answers them only where its
    /// [`Selection`](crate::Selection) asked for [`Self::logged`].
    pub const LOGS: [Self; 5] =
        [Self::Irqlog, Self::Schedlog, Self::Iolog, Self::Syscalllog, Self::Disklog];

    /// What the log is of; `None` for subjects that are none.
    #[must_use]
    pub const fn logged(self) -> Option<Logged> {
        match self {
            Self::Irqlog => Some(Logged::Interrupts),
            Self::Schedlog => Some(Logged::Latencies),
            Self::Iolog => Some(Logged::Operations),
            Self::Syscalllog => Some(Logged::Calls),
            Self::Disklog => Some(Logged::Requests),
            _ => None,
        }
    }

    /// The name for programs and the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscallstats => "syscallstats",
            Self::Schedstats => "schedstats",
            Self::Schedtop => "schedtop",
            Self::Schedfreq => "schedfreq",
            Self::Irqstats => "irqstats",
            Self::Irqfreq => "irqfreq",
            Self::Cputop => "cputop",
            Self::Iolatencystats => "iolatencystats",
            Self::Iolatencytop => "iolatencytop",
            Self::Iolatencyfreq => "iolatencyfreq",
            Self::Iousagetop => "iousagetop",
            Self::Memtop => "memtop",
            Self::Blocked => "blocked",
            Self::CriticalPath => "critical-path",
            Self::Irqlog => "irqlog",
            Self::Schedlog => "schedlog",
            Self::Iolog => "iolog",
            Self::Syscalllog => "syscalllog",
            Self::Disklog => "disklog",
        }
    }

    /// What it says, in one line.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Syscallstats => "System call statistics",
            Self::Schedstats => "Scheduling latency statistics",
            Self::Schedtop => "Longest scheduling latencies",
            Self::Schedfreq => "Scheduling latency distribution",
            Self::Irqstats => "Interrupt statistics",
            Self::Irqfreq => "Interrupt duration distribution",
            Self::Cputop => "CPU usage",
            Self::Iolatencystats => "I/O latency statistics",
            Self::Iolatencytop => "Longest I/O latencies",
            Self::Iolatencyfreq => "I/O latency distribution",
            Self::Iousagetop => "I/O usage",
            Self::Memtop => "Memory usage",
            Self::Blocked => "Waits by cause and waker",
            Self::CriticalPath => "Critical paths of requests",
            Self::Irqlog => "Interrupts",
            Self::Schedlog => "Scheduling latencies",
            Self::Iolog => "I/O operations",
            Self::Syscalllog => "System calls",
            Self::Disklog => "Requests to block devices",
        }
    }

    /// The kinds of table its answer has.
    #[must_use]
    pub const fn classes(self) -> &'static [&'static Class] {
        match self {
            Self::Syscallstats => syscalls::CLASSES,
            Self::Schedstats => sched::STATS,
            Self::Schedtop => sched::TOP,
            Self::Schedfreq => sched::FREQ,
            Self::Irqstats => irq::STATS,
            Self::Irqfreq => irq::FREQ,
            Self::Cputop => cpu::CPUTOP,
            Self::Iolatencystats => disk::STATS,
            Self::Iolatencytop => disk::TOP,
            Self::Iolatencyfreq => disk::FREQ,
            Self::Iousagetop => usage::USAGE,
            Self::Memtop => cpu::MEMTOP,
            Self::Blocked => blocked::BLOCKED,
            Self::CriticalPath => path::PATHS,
            Self::Irqlog => log::INTERRUPTS,
            Self::Schedlog => log::LATENCIES,
            Self::Iolog | Self::Syscalllog => log::CALLS,
            Self::Disklog => log::REQUESTS,
        }
    }
}

/// The tables that answer a question about a subject.
#[must_use]
pub fn tables(summary: &Summary, subject: Subject, question: &Question) -> Vec<Table> {
    Tables::new(summary, question).of(subject)
}

/// The tables of a summary, for one question.
pub struct Tables<'a>(Make<'a>);

impl<'a> Tables<'a> {
    /// Of this summary, with names as it knows them.
    #[must_use]
    pub fn new(summary: &'a Summary, question: &'a Question) -> Self {
        Self(Make { finish: Finish::new(summary), summary, question })
    }

    /// Those that answer the question about a subject.
    #[must_use]
    pub fn of(&self, subject: Subject) -> Vec<Table> {
        let make = &self.0;
        match subject {
            Subject::Syscallstats => make.syscallstats(),
            Subject::Schedstats => make.schedstats(),
            Subject::Schedtop => make.schedtop(),
            Subject::Schedfreq => make.schedfreq(),
            Subject::Irqstats => make.irqstats(),
            Subject::Irqfreq => make.irqfreq(),
            Subject::Cputop => make.cputop(),
            Subject::Iolatencystats => make.iolatencystats(),
            Subject::Iolatencytop => make.iolatencytop(),
            Subject::Iolatencyfreq => make.iolatencyfreq(),
            Subject::Iousagetop => make.iousagetop(),
            Subject::Memtop => make.memtop(),
            Subject::Blocked => make.blocked(),
            Subject::CriticalPath => make.critical_paths(),
            Subject::Irqlog
            | Subject::Schedlog
            | Subject::Iolog
            | Subject::Syscalllog
            | Subject::Disklog => {
                let log = make.summary.clone().take_log();
                log.iter().zip(subject.logged()).map(|(log, of)| make.log(of, log)).collect()
            }
        }
    }

    /// The rows of a log, which may be one of another summary of the same time or of a part of it.
    #[must_use]
    pub fn log(&self, of: Logged, log: &Log) -> Table {
        self.0.log(of, log)
    }

    /// Everything that a log holds, also what is not certain, kind by kind, each in the order of its ends.
    pub fn spans(&self, log: &Log, give: &mut dyn FnMut(Span)) {
        self.0.spans(log, give);
    }

    /// What lies across the begin or the end of the summary, of these kinds; interrupts and requests to block devices,
    /// which are over at once, are left out.
    pub fn open_spans(&self, of: &[Logged], give: &mut dyn FnMut(Span)) {
        self.0.open_spans(of, give);
    }

    /// The process of a thread, when it is known.
    #[must_use]
    pub fn process(&self, tid: Tid) -> Option<Pid> {
        self.0.summary.who.process(tid)
    }

    /// The last command name of a thread; empty when it is unknown.
    #[must_use]
    pub fn comm(&self, tid: Tid) -> Arc<str> {
        self.0.finish.comm(tid)
    }

    /// A row for each thread number, in their order.
    pub fn threads(&self, give: &mut dyn FnMut(ThreadRow)) {
        self.0.threads(give);
    }

    /// A row for each process, file and name of calls that worked on it.
    pub fn files(&self, give: &mut dyn FnMut(FileRow)) {
        self.0.files(give);
    }
}

/// What every table is made with.
struct Make<'a> {
    finish: Finish<'a>,
    summary: &'a Summary,
    question: &'a Question,
}

impl Make<'_> {
    fn table(&self, class: &'static Class, mut rows: Vec<Vec<Cell>>) -> Table {
        let (_, begin, end) = self.finish.cover();
        let limit = self.question.limit.unwrap_or(usize::MAX);
        let left_out = rows.len().saturating_sub(limit) as u64;
        rows.truncate(limit);
        Table { class, range: TimeRange { begin, end }, rows, left_out }
    }

    /// What was counted with nothing to the left, by life of a thread.
    fn closed(&self) -> Closed {
        lives::closed(self)
    }

    fn thread(&self, tid: Tid) -> Cell {
        let pid = self.summary.who.process(tid);
        Cell::Process { tid: Some(tid), pid, comm: self.finish.comm(tid) }
    }

    /// Whether rows of this thread are wanted.
    fn wants(&self, tid: Tid) -> bool {
        self.wants_who(Some(tid), &self.finish.comm(tid))
    }

    /// Whether rows of a thread, or of all of a name, are wanted.
    fn wants_who(&self, tid: Option<Tid>, comm: &str) -> bool {
        let Question { tids, comms, .. } = self.question;
        (tids.is_empty() || tid.is_some_and(|tid| tids.contains(&tid)))
            && (comms.is_empty() || comms.iter().any(|wanted| **wanted == *comm))
    }

    /// Figures of all threads together, where all or the wanted ones alone were counted.
    fn if_all<const N: usize>(&self, cells: [Cell; N]) -> [Cell; N] {
        let selection = self.summary.folds.calls.sieve.selection();
        let selects = selection.is_some_and(|selection| selection.tids.is_some());
        let everyone = self.question.tids.is_empty() && self.question.comms.is_empty();
        if selects || everyone { cells } else { cells.map(|_| Cell::Unknown) }
    }

    fn wants_cpu(&self, cpu: CpuId) -> bool {
        self.question.cpus.is_empty() || self.question.cpus.contains(&cpu)
    }
}

/// Count, least, mean, greatest and deviation, as five cells.
pub(crate) fn moments(stat: &Stat) -> [Cell; 5] {
    let Stat { count: n, sum, squares, min, max } = *stat;
    let deviation = if n > 1 { Cell::Deviation { n, sum, squares } } else { Cell::Unknown };
    if n == 0 {
        return [Cell::count(0), Cell::Unknown, Cell::Unknown, Cell::Unknown, Cell::Unknown];
    }
    [Cell::count(n), Cell::ns(min), Cell::Mean { sum, n }, Cell::ns(max), deviation]
}

/// The percentiles 50, 95 and 99, each as the interval of its bucket.
pub(crate) fn percentiles(lengths: &Histogram) -> [Cell; 3] {
    [50, 95, 99].map(|percent| match lengths.percentile(percent) {
        Some((low, high)) => Cell::Ns(Bound { low, high: Some(high) }),
        None => Cell::Unknown,
    })
}

/// Rows of a histogram: from, to, how many.
pub(crate) fn frequencies(lengths: &Histogram) -> impl Iterator<Item = [Cell; 3]> {
    lengths.buckets().map(|(low, high, count)| [Cell::ns(low), Cell::ns(high), Cell::count(count)])
}

pub(crate) const fn column(
    name: &'static str,
    title: &'static str,
    kind: Kind,
    unit: Option<&'static str>,
) -> Column {
    Column { name, title, kind, unit }
}

pub(crate) const fn number(name: &'static str, title: &'static str, unit: &'static str) -> Column {
    column(name, title, Kind::Number, Some(unit))
}

pub(crate) const fn duration(name: &'static str, title: &'static str) -> Column {
    column(name, title, Kind::Duration, None)
}

pub(crate) const P50: Column = duration("p50", "Median");
pub(crate) const P95: Column = duration("p95", "95 %");
pub(crate) const P99: Column = duration("p99", "99 %");

/// Names joined.
fn joined<'n>(names: impl IntoIterator<Item = &'n Arc<str>>) -> Arc<str> {
    let names: Vec<&str> = names.into_iter().map(|name| &**name).collect();
    names.join(", ").into()
}
