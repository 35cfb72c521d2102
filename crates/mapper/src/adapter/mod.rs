//! From event records to facts: which event of which tracer says what.
//!
//! Each event record class is looked at once and becomes a [`Mapping`] with handles to the fields that matter. Names of all
//! generations of LTTng, of our own capture (the same names, with thread and process on every event) and of perf.

mod calls;
mod devices;
mod mapping;
mod spans;

use std::borrow::Cow;

use ctf::{EventRecord, FieldHandle, TraceClass, Value};
use model::{CpuId, Fd, Pid, Tid, TimeRange, Timestamp};
use stitch::Kind;
use stitch::fact::{Fact, FactKind, LeftAs, Missing, Span, TableKey};
use tracedir::{Loss, LossKind};

use mapping::{Mapping, What};
pub(crate) use mapping::{has_spans, has_switches, is_kernel, needs_identities};
pub use spans::SpanRules;

/// Turns the event records of one window into facts.
#[derive(Debug)]
pub(crate) struct Adapter<'a> {
    rules: &'a SpanRules,
    /// While this, scheduler events say what threads do.
    scheduled: TimeRange,
    /// Mappings by trace class (its address; the recording keeps it) and class index. Bound: traces.
    classes: Vec<(usize, Vec<Mapping>)>,
    /// Where the trace class of the last event record is in them.
    last: usize,
    /// How much the clock of these traces lags behind the common one.
    shift_ns: i64,
}

/// Where and when an event happened.
#[derive(Debug, Clone, Copy)]
struct Context {
    at: Timestamp,
    cpu: Option<CpuId>,
    tid: Option<Tid>,
    pid: Option<Pid>,
}

impl Context {
    fn fact(self, kind: FactKind<&str>) -> Fact<&str> {
        Fact { at: self.at, cpu: self.cpu, tid: self.tid, pid: self.pid, kind }
    }

    fn nobody(self) -> Self {
        Self { cpu: None, tid: None, pid: None, ..self }
    }
}

impl<'a> Adapter<'a> {
    pub(crate) fn new(rules: &'a SpanRules, scheduled: TimeRange, shift_ns: i64) -> Self {
        Self { rules, scheduled, classes: Vec::new(), last: 0, shift_ns }
    }

    /// The facts of an event record, in order; none or one of most.
    pub(crate) fn event(
        &mut self,
        at: Timestamp,
        record: &EventRecord<'_>,
        give: &mut impl FnMut(&Fact<&str>),
    ) {
        let at = Timestamp::from_nanos(at.nanos().saturating_add(self.shift_ns));
        self.turn_to(record.trace_class());
        let index = usize::try_from(record.class().index()).unwrap_or(usize::MAX);
        let mappings = self.classes.get(self.last).map(|(_, mappings)| mappings);
        let Some(mapping) = mappings.and_then(|mappings| mappings.get(index)) else { return };
        if matches!(mapping.what, What::Nothing) {
            return;
        }
        let cpu = record.cpu_id().and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId::new);
        let number = |handle: Option<FieldHandle>| handle.and_then(|handle| number(record, handle));
        let (tid, pid) = (number(mapping.tid).map(Tid::new), number(mapping.pid).map(Pid::new));
        // Only of the kernel's events is it certain that whoever has the CPU caused them.
        let tells_thread = mapping.is_kernel || tid.is_some();
        let cpu = cpu.filter(|_| self.scheduled.contains(at) && tells_thread);
        let context = Context { at, cpu, tid, pid };
        convert(record, mapping, context, give);
    }

    /// Finds the mappings of a trace class, or makes them.
    #[inline]
    fn turn_to(&mut self, trace: &TraceClass) {
        let address = std::ptr::from_ref(trace).addr();
        if self.classes.get(self.last).is_some_and(|(known, _)| *known == address) {
            return;
        }
        let found = self.classes.iter().position(|(known, _)| *known == address);
        self.last = found.unwrap_or(self.classes.len());
        if found.is_none() {
            self.classes.push((address, Mapping::all(trace, self.rules)));
        }
    }

    /// What a loss may have hidden.
    pub(crate) fn loss(&self, loss: &Loss<'_>, is_kernel: bool) -> Fact<&'static str> {
        let cpu = loss.stream.key().instance_id.and_then(|id| u32::try_from(id).ok());
        let what = match cpu.map(CpuId::new) {
            _ if !is_kernel => Missing::Spans,
            None => Missing::KernelEverywhere,
            Some(cpu) => Missing::Kernel(cpu),
        };
        let (events, packets) = match loss.kind {
            LossKind::EventRecords => (loss.count, 0),
            LossKind::Packets => (0, loss.count),
        };
        let at = Timestamp::from_nanos(loss.begin.nanos().saturating_add(self.shift_ns));
        let kind = FactKind::Lost { what, events, packets };
        Fact { at, cpu: None, tid: None, pid: None, kind }
    }
}

/// The number in a field, when it fits a kernel number.
#[inline]
fn number(record: &EventRecord<'_>, handle: FieldHandle) -> Option<i32> {
    record.i64(handle).and_then(|n| i32::try_from(n).ok())
}

/// The bits of a register in a field: -1 and 2^64 - 1 are one.
#[inline]
fn register(record: &EventRecord<'_>, handle: FieldHandle) -> Option<i64> {
    record.i64(handle).or_else(|| record.u64(handle).map(u64::cast_signed))
}

/// The descriptor table whose address is in a field.
fn table_key(record: &EventRecord<'_>, handle: Option<FieldHandle>) -> Option<TableKey> {
    register(record, handle?).map(|address| TableKey::new(address.cast_unsigned()))
}

/// The text in a field: a string, an array of characters, or an enumeration's label.
fn text<'r>(record: &EventRecord<'r>, handle: FieldHandle) -> Option<Cow<'r, str>> {
    match record.get(handle)? {
        Value::Str(bytes) => Some(readable(bytes)),
        Value::Enum(value) => value.labels().next().map(Cow::Borrowed),
        Value::Compound(compound) => {
            let bytes = compound.bytes()?;
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            bytes.get(..end).map(readable)
        }
        _ => None,
    }
}

/// The bytes as text. Nearly all are UTF-8, which is found out several bytes at a time.
fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

fn convert(
    record: &EventRecord<'_>,
    mapping: &Mapping,
    context: Context,
    give: &mut impl FnMut(&Fact<&str>),
) {
    let tid_of = |handle| number(record, handle).map(Tid::new);
    let name = |handle: Option<FieldHandle>| {
        handle.and_then(|handle| text(record, handle)).unwrap_or_default()
    };
    match &mapping.what {
        What::Nothing => {}
        What::Seen => give(&context.fact(FactKind::Seen)),
        What::Switch(fields) => {
            let (Some(prev), Some(next)) = (tid_of(fields.prev), tid_of(fields.next)) else {
                return;
            };
            let state = record.i64(fields.prev_state);
            let (prev_comm, next_comm) = (name(fields.prev_comm), name(fields.next_comm));
            give(&context.fact(FactKind::Switch {
                prev,
                prev_comm: &prev_comm,
                left_as: left_as(state.unwrap_or(0)),
                next,
                next_comm: &next_comm,
            }));
        }
        What::Wakeup { tid, comm } => {
            if let Some(tid) = tid_of(*tid) {
                give(&context.fact(FactKind::Wakeup { tid, comm: &name(*comm) }));
            }
        }
        What::Fork { child, child_pid, comm, tables } => {
            let Some(child) = tid_of(*child) else { return };
            let pid = child_pid.and_then(|handle| number(record, handle));
            let child_pid = Pid::new(pid.unwrap_or(child.get()));
            let shares_table = tables.and_then(|tables| shares_table(record, context, tables));
            let comm = &name(*comm);
            give(&context.fact(FactKind::Fork { child, child_pid, shares_table, comm }));
        }
        What::Exec { filename, tid, old_tid } => {
            let filename = name(*filename);
            let comm = comm_of(&filename);
            let tid = tid.and_then(tid_of);
            let old = old_tid.and_then(tid_of).filter(|old| tid.is_some_and(|tid| tid != *old));
            let context = Context { tid: tid.or(context.tid), ..context };
            give(&context.fact(FactKind::Exec { comm, old }));
        }
        What::Exit { tid, group_dead } => {
            let Some(tid) = tid_of(*tid) else { return };
            let dead = group_dead.and_then(|handle| number(record, handle));
            give(&context.fact(FactKind::Exit { tid, is_last: dead.map(|dead| dead != 0) }));
        }
        What::Device(device) => device.fact(record, context, give),
        What::CallEntry(call) => call.entry(record, context, give),
        What::CallExit(call) => call.exit(record, context, give),
        What::DumpThread { tid, pid, comm, table } => {
            let Some(tid) = tid_of(*tid) else { return };
            let pid = pid.and_then(|handle| number(record, handle)).map(Pid::new);
            let (table, comm) = (table_key(record, *table), name(*comm));
            give(&context.nobody().fact(FactKind::DumpThread { tid, pid, table, comm: &comm }));
        }
        What::DumpFd { pid, table, fd, filename } => {
            let Some(fd) = number(record, *fd).map(Fd::new) else { return };
            let pid = pid.and_then(|handle| number(record, handle)).map(Pid::new);
            let (table, name) = (table_key(record, *table), name(Some(*filename)));
            let kind = Kind::of_name(&name);
            give(&context.nobody().fact(FactKind::DumpFd { pid, table, fd, name: &name, kind }));
        }
        What::Span(rule) => {
            let label = rule.label.and_then(|handle| text(record, handle));
            let span = Span {
                name: label.as_deref().unwrap_or(&rule.name),
                request: rule.id.and_then(|id| record.u64(id)),
                is_request: rule.is_request,
            };
            if !rule.begins {
                return give(&context.fact(FactKind::SpanEnd(span)));
            }
            if let (true, Some(tid)) = (span.is_request, context.tid) {
                let comm = name(mapping.comm);
                let pid = context.pid;
                give(&context.nobody().fact(FactKind::DumpThread {
                    tid,
                    pid,
                    table: None,
                    comm: &comm,
                }));
            }
            give(&context.fact(FactKind::SpanBegin(span)));
        }
    }
}

/// Whether parent and child have one descriptor table. All of the kernel's own threads do, which no call tells and which
/// matters to nobody: those are the children of `kthreadd`.
fn shares_table(
    record: &EventRecord<'_>,
    parent: Context,
    (own, child): (FieldHandle, FieldHandle),
) -> Option<bool> {
    const KTHREADD: Tid = Tid::new(2);
    let tables = table_key(record, Some(own)).zip(table_key(record, Some(child)));
    let (own, child) = tables.filter(|_| parent.tid != Some(KTHREADD))?;
    Some(own == child)
}

/// The command name that the kernel gives a program: the end of its path, 15 bytes of it.
fn comm_of(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or_default();
    let mut end = file.len().min(15);
    while !file.is_char_boundary(end) {
        end -= 1;
    }
    file.get(..end).unwrap_or_default()
}

/// What `prev_state` says, in the kernel's bits of any version: 0 or only bits above the low byte is preempted
/// (`TASK_REPORT_MAX`, `TASK_STATE_MAX`), 1 interruptible, 2 uninterruptible, 16 to 128 dead or idle.
fn left_as(state: i64) -> LeftAs {
    match state & 0xff {
        0 => LeftAs::Preempted,
        low if low & 2 != 0 => LeftAs::Uninterruptible,
        low if low & 0xf0 != 0 => LeftAs::Dead,
        _ => LeftAs::Interruptible,
    }
}
