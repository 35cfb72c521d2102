//! What trace viewers show, from event records: threads with names, spans between a begin and an end, instants, and
//! which thread runs on which CPU.
//!
//! | event record | becomes |
//! |---|---|
//! | `syscall_entry_X`, `compat_syscall_entry_X`, `sys_X` … `syscall_exit_X`, `exit_syscall` | a span `X` of the thread |
//! | `X_entry` … `X_exit`, `X_begin` … `X_end`, `X_start` … `X_stop` | a span `X` of the thread |
//! | `irq_handler_`, `softirq_`, `hrtimer_expire_` of those | a span of the CPU: it interrupts whatever runs |
//! | `sched_switch` | the thread that runs on the CPU |
//! | anything else, and an end without a begin | an instant |
//!
//! The thread is the one that the event record's context names (`tid`, `vtid`, `perf_tid`), else the one that the last
//! `sched_switch` put on its CPU, else the CPU itself.

use std::collections::HashMap;

use ctf::{EventRecord, Field, Scope, Shape, Value, Visitor};
use model::Timestamp;
use tracedir::Event;

/// The most rows; event records of further threads, CPUs and processes are shown in one row more.
const MAX_LANES: usize = 1 << 18;
/// The name of that row.
const FURTHER: &str = "further threads";
/// The deepest nesting of spans; deeper ones are instants.
const MAX_OPEN_SPANS: usize = 128;
/// The most arguments of one event record; and the longest text of one, in bytes.
const MAX_ARGUMENTS: usize = 64;
const MAX_TEXT: usize = 4096;

/// Whose event it is. Positions in [`Scene::lanes`].
pub(crate) type LaneId = usize;

/// A row of the viewer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LaneKey {
    /// A thread of a host.
    Thread { host: Option<String>, tid: i64 },
    /// A CPU of a host, for what no thread is known of.
    Cpu { host: Option<String>, cpu: u64 },
    /// Event records of neither: of a trace of one process, or of all others together.
    Process { host: Option<String>, pid: i64 },
}

/// A row with what is known of it so far.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    /// The process; of a thread whose process nobody says, the thread itself.
    pub(crate) pid: i64,
    pub(crate) name: String,
    open: Vec<String>,
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Argument {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

/// The fields of an event record, by their paths.
pub(crate) type Arguments = Vec<(String, Argument)>;

/// Something to show.
#[derive(Debug)]
pub(crate) enum Mark<'a> {
    /// A row that was not there, or whose name or process is another one.
    Lane(LaneId),
    Begin {
        lane: LaneId,
        name: &'a str,
        arguments: &'a Arguments,
    },
    End {
        lane: LaneId,
        arguments: &'a Arguments,
    },
    Instant {
        lane: LaneId,
        name: &'a str,
        arguments: &'a Arguments,
    },
    Switch {
        cpu: u64,
        switch: &'a Switch,
    },
}

/// What a `sched_switch` says.
#[derive(Debug, Default, Clone)]
pub(crate) struct Switch {
    pub(crate) prev_comm: String,
    pub(crate) prev_tid: i64,
    pub(crate) prev_prio: i64,
    pub(crate) prev_state: i64,
    pub(crate) next_comm: String,
    pub(crate) next_tid: i64,
    pub(crate) next_prio: i64,
}

/// Takes marks in order of time.
pub(crate) trait Canvas {
    type Error;
    fn mark(&mut self, at: Timestamp, mark: Mark<'_>, lanes: &[Lane]) -> Result<(), Self::Error>;
}

/// All rows, and what goes on in them.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub(crate) lanes: Vec<Lane>,
    by_key: HashMap<LaneKey, LaneId>,
    /// By host and CPU: the thread that runs.
    running: HashMap<(Option<String>, u64), i64>,
}

impl Scene {
    /// Shows an event record.
    pub(crate) fn event<C: Canvas>(
        &mut self,
        event: &Event<'_>,
        canvas: &mut C,
    ) -> Result<(), C::Error> {
        let record = &event.record;
        let at = event.timestamp;
        let host = event.stream.key().host.clone();
        let facts = Facts::of(record);
        let (key, pid) = self.owner(event, host.clone(), &facts);
        let is_interrupt = is_interrupt(record.name());
        let key = match record.cpu_id().filter(|_| is_interrupt) {
            Some(cpu) => LaneKey::Cpu { host: host.clone(), cpu },
            None => key,
        };
        let comm = facts.comm.as_deref().filter(|_| !is_interrupt);
        let lane = self.lane(key, pid, comm, at, canvas)?;
        if let Some(switch) = Switch::of(record)
            && let Some(cpu) = record.cpu_id()
        {
            let place = (host.clone(), cpu);
            if self.running.len() < MAX_LANES || self.running.contains_key(&place) {
                self.running.insert(place, switch.next_tid);
            }
            let next = LaneKey::Thread { host, tid: switch.next_tid };
            self.lane(next, None, Some(&switch.next_comm), at, canvas)?;
            return canvas.mark(at, Mark::Switch { cpu, switch: &switch }, &self.lanes);
        }
        let arguments = Collector::arguments(record);
        let arguments = &arguments;
        let Some(owner) = self.lanes.get_mut(lane) else { return Ok(()) };
        let mark = match Phase::of(record.name()) {
            Phase::Begin(name) if owner.open.len() < MAX_OPEN_SPANS => {
                owner.open.push(name.to_owned());
                Mark::Begin { lane, name, arguments }
            }
            Phase::End(name) => {
                let is_it = |open: &String| name.is_empty() || open == name;
                let Some(depth) = owner.open.iter().rposition(is_it) else {
                    let name = record.name();
                    return canvas.mark(at, Mark::Instant { lane, name, arguments }, &self.lanes);
                };
                // Spans inside of it whose end was never seen end with it.
                let ended = owner.open.split_off(depth);
                for inner in (0..ended.len()).rev() {
                    let nothing = Arguments::new();
                    let arguments = if inner == 0 { arguments } else { &nothing };
                    canvas.mark(at, Mark::End { lane, arguments }, &self.lanes)?;
                }
                return Ok(());
            }
            Phase::Begin(_) | Phase::Instant => {
                Mark::Instant { lane, name: record.name(), arguments }
            }
        };
        canvas.mark(at, mark, &self.lanes)
    }

    /// Ends all spans that are open at the end of the recording.
    pub(crate) fn finish<C: Canvas>(
        &mut self,
        at: Timestamp,
        canvas: &mut C,
    ) -> Result<(), C::Error> {
        let arguments = Arguments::new();
        for lane in 0..self.lanes.len() {
            let open = self.lanes.get_mut(lane).map(|lane| std::mem::take(&mut lane.open));
            for _ in open.unwrap_or_default() {
                let mark = Mark::End { lane, arguments: &arguments };
                canvas.mark(at, mark, &self.lanes)?;
            }
        }
        Ok(())
    }

    /// Which row an event record is of, and which process.
    fn owner(
        &self,
        event: &Event<'_>,
        host: Option<String>,
        facts: &Facts,
    ) -> (LaneKey, Option<i64>) {
        let cpu = event.record.cpu_id();
        let running = cpu.and_then(|cpu| self.running.get(&(host.clone(), cpu)).copied());
        let process = event.stream.key().process_id.and_then(|process| i64::try_from(process).ok());
        let pid = facts.pid.or(process);
        let key = match (facts.tid.or(running), process, cpu) {
            (Some(tid), _, _) => LaneKey::Thread { host, tid },
            (None, Some(pid), _) => LaneKey::Process { host, pid },
            (None, None, Some(cpu)) => LaneKey::Cpu { host, cpu },
            (None, None, None) => LaneKey::Process { host, pid: 0 },
        };
        (key, pid)
    }

    fn lane<C: Canvas>(
        &mut self,
        key: LaneKey,
        pid: Option<i64>,
        comm: Option<&str>,
        at: Timestamp,
        canvas: &mut C,
    ) -> Result<LaneId, C::Error> {
        let is_full = self.lanes.len() >= MAX_LANES && !self.by_key.contains_key(&key);
        let (key, pid, comm) = match is_full {
            true => (LaneKey::Process { host: None, pid: 0 }, None, Some(FURTHER)),
            false => (key, pid, comm),
        };
        // The idle threads of all CPUs have the id 0; they are one row.
        if let Some(&id) = self.by_key.get(&key) {
            let Some(lane) = self.lanes.get_mut(id) else { return Ok(id) };
            let renamed = comm.filter(|comm| !comm.is_empty() && *comm != lane.name);
            let moved = pid.filter(|pid| *pid != lane.pid);
            if renamed.is_none() && moved.is_none() {
                return Ok(id);
            }
            if let Some(comm) = renamed {
                comm.clone_into(&mut lane.name);
            }
            lane.pid = moved.unwrap_or(lane.pid);
            canvas.mark(at, Mark::Lane(id), &self.lanes)?;
            return Ok(id);
        }
        let (known, name) = match &key {
            LaneKey::Thread { tid, .. } => (*tid, format!("thread {tid}")),
            LaneKey::Cpu { cpu, .. } => (0, format!("CPU {cpu}")),
            LaneKey::Process { pid, .. } => (*pid, format!("process {pid}")),
        };
        let name = comm.filter(|comm| !comm.is_empty()).map_or(name, str::to_owned);
        let id = self.lanes.len();
        self.by_key.insert(key.clone(), id);
        self.lanes.push(Lane { key, pid: pid.unwrap_or(known), name, open: Vec::new() });
        canvas.mark(at, Mark::Lane(id), &self.lanes)?;
        Ok(id)
    }
}

/// What the name of an event record says of its place in time.
#[derive(Debug, PartialEq, Eq)]
enum Phase<'a> {
    Begin(&'a str),
    /// Of the span of this name; empty: of the innermost.
    End(&'a str),
    Instant,
}

impl<'a> Phase<'a> {
    fn of(name: &'a str) -> Self {
        for prefix in ["syscall_entry_", "compat_syscall_entry_", "compat_sys_", "sys_"] {
            if let Some(call) = name.strip_prefix(prefix) {
                return Self::Begin(call);
            }
        }
        for prefix in ["syscall_exit_", "compat_syscall_exit_"] {
            if let Some(call) = name.strip_prefix(prefix) {
                return Self::End(call);
            }
        }
        match name {
            "exit_syscall" => return Self::End(""),
            "raw_syscalls:sys_enter" => return Self::Begin("system call"),
            "raw_syscalls:sys_exit" => return Self::End("system call"),
            _ => {}
        }
        let pairs = [("entry", "exit"), ("begin", "end"), ("start", "stop")];
        for (begin, end) in pairs {
            let base = |suffix| {
                let base = name.strip_suffix(suffix)?.strip_suffix(['_', ':', '.'])?;
                (!base.is_empty()).then_some(base)
            };
            if let Some(base) = base(begin) {
                return Self::Begin(base);
            }
            if let Some(base) = base(end) {
                return Self::End(base);
            }
        }
        Self::Instant
    }
}

fn is_interrupt(name: &str) -> bool {
    ["irq_handler_", "softirq_", "irq_softirq_", "hrtimer_expire_", "irq:", "irq_vectors:"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        && !name.ends_with("_raise")
}

/// Who recorded an event record.
#[derive(Debug, Default)]
struct Facts {
    tid: Option<i64>,
    pid: Option<i64>,
    comm: Option<String>,
}

impl Facts {
    fn of(record: &EventRecord<'_>) -> Self {
        let mut facts = Self::default();
        record.visit(Scope::EventCommonContext, &mut facts);
        record.visit(Scope::EventSpecificContext, &mut facts);
        let payload = |name| record.field(name).and_then(|value| value.as_i64());
        facts.tid = facts.tid.or_else(|| payload("perf_tid"));
        facts.pid = facts.pid.or_else(|| payload("perf_pid"));
        facts
    }
}

impl<'a> Visitor<'a> for Facts {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        match field.name() {
            "tid" | "vtid" => self.tid = value.as_i64(),
            "pid" | "vpid" => self.pid = value.as_i64(),
            "procname" | "comm" => self.comm = value.as_bytes().map(text),
            _ => {}
        }
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

impl Switch {
    fn of(record: &EventRecord<'_>) -> Option<Self> {
        if !matches!(record.name(), "sched_switch" | "sched:sched_switch") {
            return None;
        }
        let number =
            |name: &str| record.field(name).and_then(|value| value.as_i64()).unwrap_or_default();
        let comm = |name| {
            let value = record.field(name);
            value.and_then(|value| value.as_bytes().map(text)).unwrap_or_default()
        };
        // LTTng says `tid` for what the kernel and perf call `pid`.
        let either = |tid, pid| record.field(tid).map_or_else(|| number(pid), |_| number(tid));
        Some(Self {
            prev_comm: comm("prev_comm"),
            prev_tid: either("prev_tid", "prev_pid"),
            prev_prio: number("prev_prio"),
            prev_state: number("prev_state"),
            next_comm: comm("next_comm"),
            next_tid: either("next_tid", "next_pid"),
            next_prio: number("next_prio"),
        })
    }
}

fn text(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MAX_TEXT).unwrap_or(bytes);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

/// Gathers the fields of an event record.
#[derive(Default)]
struct Collector {
    arguments: Arguments,
    /// The names around the next field, and of arrays the position of the next element.
    path: Vec<(String, Option<u64>)>,
}

impl Collector {
    fn arguments(record: &EventRecord<'_>) -> Arguments {
        let mut collector = Self::default();
        record.visit(Scope::EventSpecificContext, &mut collector);
        record.visit(Scope::Payload, &mut collector);
        collector.arguments
    }

    fn name(&mut self, field: &str) -> String {
        let mut name = String::new();
        for (part, position) in &mut self.path {
            if !name.is_empty() && !part.is_empty() {
                name.push('.');
            }
            name.push_str(part);
            if let Some(position) = position {
                name.push_str(&format!("[{position}]"));
            }
        }
        if let Some((_, Some(position))) = self.path.last_mut() {
            *position += 1;
        }
        if !name.is_empty() && !field.is_empty() {
            name.push('.');
        }
        name.push_str(field);
        name
    }
}

impl<'a> Visitor<'a> for Collector {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if self.arguments.len() >= MAX_ARGUMENTS {
            return;
        }
        let value = match value {
            Value::Unsigned(number) => Argument::Unsigned(number),
            Value::Signed(number) => Argument::Signed(number),
            Value::Bits(bits) => Argument::Unsigned(bits.raw()),
            Value::Bool(truth) => Argument::Bool(truth),
            Value::Float(number) => Argument::Float(number),
            Value::Enum(value) => {
                let labels: Vec<&str> = value.labels().collect();
                let number = value.number();
                Argument::Text(if labels.is_empty() {
                    number.to_string()
                } else {
                    format!("{} ({number})", labels.join(" | "))
                })
            }
            Value::WideStr(text) => Argument::Text(text.chars().take(MAX_TEXT).collect()),
            Value::Blob(bytes) => Argument::Text(format!("{} bytes", bytes.len())),
            Value::Str(bytes) => Argument::Text(text(bytes)),
            _ => return,
        };
        let name = self.name(field.name());
        self.arguments.push((name, value));
    }

    fn enter(&mut self, field: Field<'a>, shape: Shape) {
        let position = matches!(shape, Shape::Array { .. }).then_some(0);
        self.path.push((field.name().to_owned(), position));
    }

    fn leave(&mut self, _: Field<'a>, _: Shape) {
        self.path.pop();
        if let Some((_, Some(position))) = self.path.last_mut() {
            *position += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Blank;

    impl Canvas for Blank {
        type Error = std::convert::Infallible;

        fn mark(&mut self, _: Timestamp, _: Mark<'_>, _: &[Lane]) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    #[test]
    fn threads_beyond_the_most_rows_share_one() {
        let mut scene = Scene::default();
        let at = Timestamp::from_nanos(0);
        let mut row = |tid| {
            let key = LaneKey::Thread { host: None, tid };
            let Ok(lane) = scene.lane(key, None, Some("name"), at, &mut Blank);
            lane
        };
        let most = i64::try_from(MAX_LANES).unwrap();
        let first = row(0);
        (1..most).for_each(|tid| assert_ne!(row(tid), first));
        let shared = row(most);
        assert_eq!((shared, row(most + 1), row(most), row(0)), (MAX_LANES, shared, shared, first));
        assert_eq!((scene.lanes.len(), &*scene.lanes[shared].name), (MAX_LANES + 1, FURTHER));
    }

    #[test]
    fn names_say_where_spans_begin_and_end() {
        for (name, expected) in [
            ("syscall_entry_openat", Phase::Begin("openat")),
            ("syscall_exit_openat", Phase::End("openat")),
            ("compat_syscall_entry_read", Phase::Begin("read")),
            ("sys_read", Phase::Begin("read")),
            ("exit_syscall", Phase::End("")),
            ("raw_syscalls:sys_enter", Phase::Begin("system call")),
            ("irq_handler_entry", Phase::Begin("irq_handler")),
            ("irq_handler_exit", Phase::End("irq_handler")),
            ("load:req_begin", Phase::Begin("load:req")),
            ("load:req_end", Phase::End("load:req")),
            ("ros2:callback_start", Phase::Begin("ros2:callback")),
            ("lttng_ust_cyg_profile:func_entry", Phase::Begin("lttng_ust_cyg_profile:func")),
            ("_entry", Phase::Instant),
            ("reentry", Phase::Instant),
            ("sched_wakeup", Phase::Instant),
        ] {
            assert_eq!(Phase::of(name), expected, "{name}");
        }
    }
}
