//! Which columns item tables have, and what of a span each shows.

use std::sync::Arc;

use model::{Pid, Tid};
use stitch::Logged;
use stitch::fact::Line;
use stitch::spans::{Span, SpanKind};

use crate::rows::{Type, Value};

/// A column of a table of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Begin,
    End,
    Duration,
    Kind,
    State,
    Name,
    Cause,
    Tid,
    Pid,
    Comm,
    Cpu,
    Ret,
    Error,
    Fd,
    Path,
    Bytes,
    WakerTid,
    WakerComm,
    Irq,
    WakerIrq,
    Raised,
    Device,
    Sector,
    Uncertain,
}

impl Column {
    pub(super) const OF_SYSCALLS: &[Self] = &[
        Self::Begin,
        Self::End,
        Self::Duration,
        Self::Name,
        Self::Tid,
        Self::Pid,
        Self::Comm,
        Self::Cpu,
        Self::Ret,
        Self::Error,
        Self::Fd,
        Self::Path,
        Self::Bytes,
        Self::Uncertain,
    ];

    pub(super) const OF_SCHED: &[Self] = &[
        Self::Begin,
        Self::End,
        Self::Duration,
        Self::State,
        Self::Cause,
        Self::Tid,
        Self::Pid,
        Self::Comm,
        Self::Cpu,
        Self::WakerTid,
        Self::WakerComm,
        Self::WakerIrq,
    ];

    pub(super) const OF_SPANS: &[Self] = &[
        Self::Begin,
        Self::End,
        Self::Duration,
        Self::Kind,
        Self::Name,
        Self::Tid,
        Self::Pid,
        Self::Comm,
        Self::Cpu,
        Self::Ret,
        Self::Error,
        Self::Fd,
        Self::Path,
        Self::Bytes,
        Self::WakerTid,
        Self::WakerComm,
        Self::Irq,
        Self::Raised,
        Self::Device,
        Self::Sector,
        Self::Uncertain,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::End => "end",
            Self::Duration => "duration",
            Self::Kind => "kind",
            Self::State => "state",
            Self::Name => "name",
            Self::Cause => "cause",
            Self::Tid => "tid",
            Self::Pid => "pid",
            Self::Comm => "comm",
            Self::Cpu => "cpu",
            Self::Ret => "ret",
            Self::Error => "error",
            Self::Fd => "fd",
            Self::Path => "path",
            Self::Bytes => "bytes",
            Self::WakerTid => "waker_tid",
            Self::WakerComm => "waker_comm",
            Self::Irq => "irq",
            Self::WakerIrq => "waker_irq",
            Self::Raised => "raised",
            Self::Device => "device",
            Self::Sector => "sector",
            Self::Uncertain => "uncertain",
        }
    }

    pub(super) const fn of(self) -> Type {
        match self {
            Self::Begin | Self::End | Self::Raised => Type::Time,
            Self::Kind
            | Self::State
            | Self::Name
            | Self::Cause
            | Self::Comm
            | Self::Error
            | Self::Path
            | Self::WakerComm
            | Self::Device => Type::Text,
            Self::Uncertain => Type::Bool,
            _ => Type::Int,
        }
    }

    /// Whether all must have been read before it can be said, for spans of these kinds: names become known late.
    pub(super) fn needs_names(self, logs: &[Logged]) -> bool {
        match self {
            Self::Pid | Self::Comm | Self::WakerComm | Self::Path | Self::Device => true,
            Self::Name | Self::Cause => {
                logs.iter().any(|log| matches!(log, Logged::Interrupts | Logged::Waits))
            }
            _ => false,
        }
    }

    /// What of a span it shows.
    pub(super) fn value<'s>(self, span: &'s Span, who: &'s Who) -> Value<'s> {
        match self {
            Self::Begin => Value::int(span.begin.map(|at| at.nanos())),
            Self::End => Value::int(span.end.map(|at| at.nanos())),
            Self::Duration => Value::int(span.ns()),
            Self::Kind | Self::State => Value::Text(span.kind.word()),
            Self::Name => Value::text(span.name.as_deref()),
            Self::Cause => match span.kind {
                SpanKind::Blocked => Value::text(span.name.as_deref()),
                _ => Value::Null,
            },
            Self::Tid => Value::int(span.tid.map(Tid::get)),
            Self::Pid => Value::int(who.pid.map(Pid::get)),
            Self::Comm => Value::text(Some(&who.comm)),
            Self::Cpu => Value::int(span.cpu.map(model::CpuId::get)),
            Self::Ret => Value::int(span.ret),
            Self::Error => Value::text(span.ret.and_then(error)),
            Self::Fd => Value::int(span.fd.map(model::Fd::get)),
            Self::Path => Value::text(span.path.as_deref()),
            Self::Bytes => Value::int(span.bytes),
            Self::WakerTid => Value::int(span.waker.map(Tid::get)),
            Self::WakerComm => Value::text(Some(&who.waker)),
            Self::Irq | Self::WakerIrq => Value::int(span.line.map(|line| match line {
                Line::Hard(number) => i64::from(number),
                Line::Soft(vector) => i64::from(vector),
            })),
            Self::Raised => Value::int(span.raised.map(|at| at.nanos())),
            Self::Device => Value::text(span.device.as_ref().map(|(_, name)| &**name)),
            Self::Sector => Value::int(span.sector),
            Self::Uncertain => Value::Bool(span.is_uncertain),
        }
    }
}

/// Whose a span is.
#[derive(Debug, Default)]
pub(super) struct Who {
    pub(super) pid: Option<Pid>,
    pub(super) comm: Arc<str>,
    pub(super) waker: Arc<str>,
}

/// The name of an error number that a call returned.
fn error(ret: i64) -> Option<&'static str> {
    let number = u16::try_from(ret.unsigned_abs()).ok().filter(|_| ret < 0)?;
    model::errno_name(number)
}

/// The log that spans of a kind stand in.
pub(super) const fn log(kind: SpanKind) -> Logged {
    match kind {
        SpanKind::Syscall => Logged::Calls,
        SpanKind::Running => Logged::Turns,
        SpanKind::Waiting => Logged::Latencies,
        SpanKind::Blocked => Logged::Waits,
        SpanKind::Irq | SpanKind::Softirq => Logged::Interrupts,
        SpanKind::Disk => Logged::Requests,
    }
}
