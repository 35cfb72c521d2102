//! What the analysis takes in: one fact per event, free of any trace format.
//!
//! Facts arrive in one total order: time, then stream, then position in the stream. `S` is what texts are: `&str` for
//! facts that borrow from the reader; [`Fact::map`] changes it for facts that are kept.

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ident::Kind;

/// Something that a trace says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact<S> {
    /// When.
    pub at: Timestamp,
    /// The CPU on which it happened; `None` when no scheduler events cover this moment, so that being seen says nothing
    /// about what the thread does afterwards.
    pub cpu: Option<CpuId>,
    /// The thread in whose context it happened. `None` when the record does not say: then it is the thread that has the
    /// CPU, if a CPU is given.
    pub tid: Option<Tid>,
    /// The process of that thread. `None` when the record does not say: then it is what was said about the thread before. A
    /// thread whose process nobody ever tells counts as a process of its own.
    pub pid: Option<Pid>,
    /// What.
    pub kind: FactKind<S>,
}

/// The kinds of fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactKind<S> {
    /// A CPU passes from one thread to another.
    Switch {
        /// The thread that leaves the CPU.
        prev: Tid,
        /// Its command name.
        prev_comm: S,
        /// Why it leaves.
        left_as: LeftAs,
        /// The thread that gets the CPU.
        next: Tid,
        /// Its command name.
        next_comm: S,
    },
    /// A blocked thread becomes runnable.
    Wakeup {
        /// The thread that is woken.
        tid: Tid,
        /// Its command name.
        comm: S,
    },
    /// A thread is born. The thread of the fact is the parent.
    Fork {
        /// The child.
        child: Tid,
        /// The child's process.
        child_pid: Pid,
        /// Whether a child that is a process has the parent's descriptor table and not a copy. `None` when the record does
        /// not say: then the call tells in which it is born.
        shares_table: Option<bool>,
        /// The child's command name.
        comm: S,
    },
    /// The process of the fact starts another program.
    Exec {
        /// The new command name.
        comm: S,
        /// The thread that asked for it, when it took the number of its process's first thread by that. The fact's thread
        /// is the number it has from now on.
        old: Option<Tid>,
    },
    /// A thread ends.
    Exit {
        /// Which one.
        tid: Tid,
        /// Whether this was its process's last thread; `None` when the record does not say: then it is when the thread
        /// gave the process its number.
        is_last: Option<bool>,
    },
    /// A system call begins.
    CallEntry {
        /// Its name without prefix: `openat`.
        name: S,
        /// What of its arguments matters here.
        args: CallArgs<S>,
    },
    /// A system call ends.
    CallExit {
        /// Its name without prefix; empty when the record does not say from which call.
        name: S,
        /// The return value; negative for an error.
        ret: i64,
        /// Two descriptors that the call made besides its return value (`pipe`, `socketpair`).
        pair: Option<(Fd, Fd)>,
        /// The peer's address, for `accept`.
        address: Option<S>,
        /// The absolute path of what the call opened, when the tracer resolved it.
        opened: Option<S>,
    },
    /// A state dump says which process and name a thread has.
    DumpThread {
        /// The thread.
        tid: Tid,
        /// Its process.
        pid: Option<Pid>,
        /// Its descriptor table.
        table: Option<TableKey>,
        /// Its command name.
        comm: S,
    },
    /// A state dump says what a descriptor stands for.
    DumpFd {
        /// The process; `None` when the record names the table instead.
        pid: Option<Pid>,
        /// The descriptor table.
        table: Option<TableKey>,
        /// The descriptor.
        fd: Fd,
        /// The file's name.
        name: S,
        /// What kind of file it is.
        kind: Kind,
    },
    /// A thread moves to another CPU.
    Migrate {
        /// The thread.
        tid: Tid,
    },
    /// A CPU is switched off at this moment. It is until its next switch.
    Offline {
        /// Which one. The fact's own CPU is another one.
        cpu: CpuId,
    },
    /// A CPU begins to handle an interrupt.
    IrqEntry {
        /// Which one.
        line: Line,
        /// The handler's name; empty for soft interrupts.
        name: S,
    },
    /// The handler of an interrupt ends.
    IrqExit {
        /// Which one.
        line: Line,
    },
    /// A CPU will handle a soft interrupt as soon as it can.
    IrqRaise {
        /// Which one.
        line: Line,
    },
    /// A request goes to a block device.
    BlockIssue {
        /// The device.
        dev: Dev,
        /// The first sector, which names the request.
        sector: u64,
        /// How many sectors of 512 bytes; never zero.
        sectors: u32,
        /// What the device shall do.
        op: BlockOp,
        /// The thread on whose behalf, when the record says.
        tid: Option<Tid>,
    },
    /// A block device has done a request, or a first part of it.
    BlockDone {
        /// The device.
        dev: Dev,
        /// The first sector.
        sector: u64,
    },
    /// A request to a part of a device, such as a partition, becomes one to the device.
    BlockRemap {
        /// The device.
        dev: Dev,
        /// The part.
        part: Dev,
    },
    /// A state dump says what a block device is called.
    DumpDisk {
        /// The device.
        dev: Dev,
        /// Its name: `sda`.
        name: S,
    },
    /// A packet comes in or goes out.
    Packet {
        /// The network interface: `eth0`.
        interface: S,
        /// How long the packet is.
        bytes: u64,
        /// Whether it goes out.
        sent: bool,
    },
    /// The thread of the fact takes or gives back pages of memory.
    Pages {
        /// How many.
        pages: u64,
        /// Whether it gives them back.
        freed: bool,
    },
    /// Any other event in the context of a thread.
    Seen,
    /// A span of the application begins.
    SpanBegin(Span<S>),
    /// A span of the application ends.
    SpanEnd(Span<S>),
    /// Events are missing before this moment.
    Lost {
        /// What the missing events may have said.
        what: Missing,
        /// How many events the tracer says it discarded.
        events: u64,
        /// How many whole packets are missing.
        packets: u64,
    },
}

/// The address of a descriptor table in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableKey(u64);

impl TableKey {
    /// The table at this address.
    #[must_use]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// Where it is.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0
    }
}

/// A span's begin or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<S> {
    /// The span's name: `decode`.
    pub name: S,
    /// The request it belongs to, when the event says.
    pub request: Option<u64>,
    /// Whether spans of this name are requests; all others are phases inside requests.
    pub is_request: bool,
}

/// What interrupts a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Line {
    /// An interrupt of a device, by its number.
    Hard(u16),
    /// A soft interrupt, by its vector.
    Soft(u8),
}

/// The number of a block device, as the kernel has it: 20 bits of minor number below the major one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Dev(pub u32);

/// What a block device is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BlockOp {
    /// To read sectors.
    Read,
    /// To write them.
    Write,
    /// To forget what they hold.
    Discard,
    /// To make writes durable, or something else that moves no data.
    Other,
}

/// How a thread leaves its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAs {
    /// It could have gone on: it waits for a CPU from now.
    Preempted,
    /// It waits for something and a signal may end that.
    Interruptible,
    /// It waits for something and nothing else ends that.
    Uninterruptible,
    /// It has ended.
    Dead,
}

/// What missing events may have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Scheduling and calls on one CPU.
    Kernel(CpuId),
    /// Scheduling and calls anywhere: kernel tracing paused or stopped.
    KernelEverywhere,
    /// Spans of any thread.
    Spans,
}

/// The arguments of a system call that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallArgs<S> {
    /// The descriptor the call works on.
    pub fd: Option<Fd>,
    /// The path the call works on.
    pub path: Option<S>,
    /// What the call does to the descriptor table.
    pub effect: Effect<S>,
}

/// What a call does to its process's descriptor table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<S> {
    /// Nothing.
    Nothing,
    /// Returns a descriptor for the path of the call.
    Open {
        /// Whether exec closes it.
        close_on_exec: bool,
    },
    /// Returns a descriptor for something without a path.
    Make {
        /// What it is called until a better name is seen.
        name: S,
        /// What kind of file it is.
        kind: Kind,
        /// Whether exec closes it.
        close_on_exec: bool,
    },
    /// Writes two descriptors for something without a path to the caller's memory.
    MakePair {
        /// What it is called.
        name: S,
        /// What kind of file it is.
        kind: Kind,
        /// Whether exec closes them.
        close_on_exec: bool,
    },
    /// Returns another descriptor for the file of the call's descriptor.
    Duplicate {
        /// Whether exec closes it.
        close_on_exec: bool,
    },
    /// Frees the call's descriptor.
    Close,
    /// Frees the descriptors from `first` to `last`.
    CloseRange {
        /// The first.
        first: Fd,
        /// The last.
        last: Fd,
        /// Marks them to be closed by exec instead.
        only_mark: bool,
        /// Gives the process a table of its own before.
        leaves_table: bool,
    },
    /// Sets whether exec closes the call's descriptor.
    SetCloseOnExec(bool),
    /// Gives the call's descriptor a peer or a local address if it succeeds.
    Address(S),
    /// A process that is born in the call shares the table.
    ShareTable,
    /// Gives the process a table of its own if it succeeds.
    LeaveTable,
}

impl<S> CallArgs<S> {
    /// Of a call whose arguments do not matter.
    pub const NONE: Self = Self { fd: None, path: None, effect: Effect::Nothing };
}

impl<S> Fact<S> {
    /// The thread that took the number of the fact's thread by an exec, when it was another.
    pub(crate) fn taken_over(&self) -> Option<Tid> {
        match self.kind {
            FactKind::Exec { old, .. } => old.filter(|old| self.tid.is_some_and(|tid| tid != *old)),
            _ => None,
        }
    }

    /// The same fact with other texts.
    pub fn map<T>(self, text: &mut impl FnMut(S) -> T) -> Fact<T> {
        let Self { at, cpu, tid, pid, kind } = self;
        Fact { at, cpu, tid, pid, kind: kind.map(text) }
    }
}

impl<S> FactKind<S> {
    fn map<T>(self, text: &mut impl FnMut(S) -> T) -> FactKind<T> {
        match self {
            Self::Switch { prev, prev_comm, left_as, next, next_comm } => {
                let (prev_comm, next_comm) = (text(prev_comm), text(next_comm));
                FactKind::Switch { prev, prev_comm, left_as, next, next_comm }
            }
            Self::Wakeup { tid, comm } => FactKind::Wakeup { tid, comm: text(comm) },
            Self::Fork { child, child_pid, shares_table, comm } => {
                FactKind::Fork { child, child_pid, shares_table, comm: text(comm) }
            }
            Self::Exec { comm, old } => FactKind::Exec { comm: text(comm), old },
            Self::Exit { tid, is_last } => FactKind::Exit { tid, is_last },
            Self::CallEntry { name, args } => {
                FactKind::CallEntry { name: text(name), args: args.map(text) }
            }
            Self::CallExit { name, ret, pair, address, opened } => FactKind::CallExit {
                name: text(name),
                ret,
                pair,
                address: address.map(&mut *text),
                opened: opened.map(text),
            },
            Self::DumpThread { tid, pid, table, comm } => {
                FactKind::DumpThread { tid, pid, table, comm: text(comm) }
            }
            Self::DumpFd { pid, table, fd, name, kind } => {
                FactKind::DumpFd { pid, table, fd, name: text(name), kind }
            }
            Self::Migrate { tid } => FactKind::Migrate { tid },
            Self::Offline { cpu } => FactKind::Offline { cpu },
            Self::IrqEntry { line, name } => FactKind::IrqEntry { line, name: text(name) },
            Self::IrqExit { line } => FactKind::IrqExit { line },
            Self::IrqRaise { line } => FactKind::IrqRaise { line },
            Self::BlockIssue { dev, sector, sectors, op, tid } => {
                FactKind::BlockIssue { dev, sector, sectors, op, tid }
            }
            Self::BlockDone { dev, sector } => FactKind::BlockDone { dev, sector },
            Self::BlockRemap { dev, part } => FactKind::BlockRemap { dev, part },
            Self::DumpDisk { dev, name } => FactKind::DumpDisk { dev, name: text(name) },
            Self::Packet { interface, bytes, sent } => {
                FactKind::Packet { interface: text(interface), bytes, sent }
            }
            Self::Pages { pages, freed } => FactKind::Pages { pages, freed },
            Self::Seen => FactKind::Seen,
            Self::SpanBegin(span) => FactKind::SpanBegin(span.map(text)),
            Self::SpanEnd(span) => FactKind::SpanEnd(span.map(text)),
            Self::Lost { what, events, packets } => FactKind::Lost { what, events, packets },
        }
    }
}

impl<S> Span<S> {
    fn map<T>(self, text: &mut impl FnMut(S) -> T) -> Span<T> {
        let Self { name, request, is_request } = self;
        Span { name: text(name), request, is_request }
    }
}

impl<S> CallArgs<S> {
    fn map<T>(self, text: &mut impl FnMut(S) -> T) -> CallArgs<T> {
        let effect = match self.effect {
            Effect::Nothing => Effect::Nothing,
            Effect::Open { close_on_exec } => Effect::Open { close_on_exec },
            Effect::Make { name, kind, close_on_exec } => {
                Effect::Make { name: text(name), kind, close_on_exec }
            }
            Effect::MakePair { name, kind, close_on_exec } => {
                Effect::MakePair { name: text(name), kind, close_on_exec }
            }
            Effect::Duplicate { close_on_exec } => Effect::Duplicate { close_on_exec },
            Effect::Close => Effect::Close,
            Effect::CloseRange { first, last, only_mark, leaves_table } => {
                Effect::CloseRange { first, last, only_mark, leaves_table }
            }
            Effect::ShareTable => Effect::ShareTable,
            Effect::LeaveTable => Effect::LeaveTable,
            Effect::SetCloseOnExec(value) => Effect::SetCloseOnExec(value),
            Effect::Address(address) => Effect::Address(text(address)),
        };
        CallArgs { fd: self.fd, path: self.path.map(text), effect }
    }
}
