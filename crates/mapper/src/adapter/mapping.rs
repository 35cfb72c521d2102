//! What each event record class says, found once by its name.

use ctf::{EventRecordClass, FieldHandle, StreamClass, TraceClass};

use super::calls::{Abi, CallClass};
use super::devices::Device;
use super::spans::{SpanRule, SpanRules};

/// What an event record class says and where.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) what: What,
    pub(super) tid: Option<FieldHandle>,
    pub(super) pid: Option<FieldHandle>,
    pub(super) comm: Option<FieldHandle>,
    pub(super) is_kernel: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Nothing,
    Seen,
    Switch(SwitchFields),
    Wakeup {
        tid: FieldHandle,
        comm: Option<FieldHandle>,
    },
    Fork {
        child: FieldHandle,
        child_pid: Option<FieldHandle>,
        comm: Option<FieldHandle>,
        /// The descriptor tables of the parent and the child.
        tables: Option<(FieldHandle, FieldHandle)>,
    },
    Exec {
        filename: Option<FieldHandle>,
        tid: Option<FieldHandle>,
        old_tid: Option<FieldHandle>,
    },
    Exit {
        tid: FieldHandle,
        group_dead: Option<FieldHandle>,
    },
    Device(Box<Device>),
    CallEntry(Box<CallClass>),
    CallExit(Box<CallClass>),
    DumpThread {
        tid: FieldHandle,
        pid: Option<FieldHandle>,
        comm: Option<FieldHandle>,
        table: Option<FieldHandle>,
    },
    DumpFd {
        pid: Option<FieldHandle>,
        table: Option<FieldHandle>,
        fd: FieldHandle,
        filename: FieldHandle,
    },
    Span(Box<SpanRule>),
}

#[derive(Debug)]
pub(super) struct SwitchFields {
    pub(super) prev: FieldHandle,
    pub(super) prev_comm: Option<FieldHandle>,
    pub(super) prev_state: FieldHandle,
    pub(super) next: FieldHandle,
    pub(super) next_comm: Option<FieldHandle>,
}

impl Mapping {
    pub(super) fn all(trace: &TraceClass, rules: &SpanRules) -> Vec<Self> {
        let is_kernel = is_kernel(trace);
        let classes = trace.event_record_classes().iter();
        classes
            .map(|class| {
                let stream = trace.stream_class(class.stream_class_id());
                Self::of(class, stream, is_kernel, rules)
            })
            .collect()
    }

    fn of(
        class: &EventRecordClass,
        stream: Option<&StreamClass>,
        is_kernel: bool,
        rules: &SpanRules,
    ) -> Self {
        let context = |names: &[&str]| {
            names.iter().find_map(|name| {
                let common = stream.and_then(|stream| stream.event_context_handle(name));
                common.or_else(|| class.context_handle(name))
            })
        };
        let payload = |name| class.field_handle(name);
        let what = if is_kernel {
            kernel(class, context(&["file_table_address"])).unwrap_or(What::Seen)
        } else {
            SpanRule::of(class, rules).map_or(What::Seen, |rule| What::Span(Box::new(rule)))
        };
        Self {
            what,
            tid: context(&["tid", "vtid"]).or_else(|| payload("perf_tid")),
            pid: context(&["pid", "vpid"]).or_else(|| payload("perf_pid")),
            comm: context(&["procname"]),
            is_kernel,
        }
    }
}

/// Whether a trace is the kernel's: it says so, or has the kernel's scheduler events.
pub(crate) fn is_kernel(trace: &TraceClass) -> bool {
    match trace.env("domain").and_then(|domain| domain.as_str()) {
        Some(domain) => domain == "kernel",
        None => has_switches(trace),
    }
}

/// Whether a trace says which thread has which CPU.
pub(crate) fn has_switches(trace: &TraceClass) -> bool {
    trace.event_record_classes().iter().any(|class| plain(class.name()) == "sched_switch")
}

/// Whether a kernel's trace must be read once before, to learn which thread and process its events belong to.
pub(crate) fn needs_identities(trace: &TraceClass, rules: &SpanRules) -> bool {
    is_kernel(trace)
        && Mapping::all(trace, rules).iter().any(|mapping| match mapping.what {
            What::Nothing | What::DumpThread { .. } => false,
            What::DumpFd { pid, .. } => pid.is_none(),
            _ => mapping.tid.is_none() || mapping.pid.is_none(),
        })
}

/// Whether a trace has events that begin or end spans.
pub(crate) fn has_spans(trace: &TraceClass, rules: &SpanRules) -> bool {
    let mut classes = trace.event_record_classes().iter();
    !is_kernel(trace) && classes.any(|class| SpanRule::of(class, rules).is_some())
}

/// The name without perf's subsystem.
pub(super) fn plain(name: &str) -> &str {
    const SUBSYSTEMS: [&str; 6] = ["sched", "syscalls", "raw_syscalls", "irq", "block", "kmem"];
    match name.split_once(':') {
        Some((subsystem, event)) if SUBSYSTEMS.contains(&subsystem) => event,
        _ => name,
    }
}

/// `table`: where every event has the descriptor table of its thread.
fn kernel(class: &EventRecordClass, table: Option<FieldHandle>) -> Option<What> {
    let field = |names: &[&str]| names.iter().find_map(|name| class.field_handle(name));
    let name = plain(class.name());
    if let Some(device) = Device::of(class, name) {
        return Some(What::Device(Box::new(device)));
    }
    Some(match name {
        "sched_switch" => What::Switch(SwitchFields {
            prev: field(&["prev_tid", "prev_pid"])?,
            prev_comm: field(&["prev_comm"]),
            prev_state: field(&["prev_state"])?,
            next: field(&["next_tid", "next_pid"])?,
            next_comm: field(&["next_comm"]),
        }),
        "sched_waking" | "sched_wakeup" | "sched_wakeup_new" | "sched_ttwu" => {
            What::Wakeup { tid: field(&["tid", "pid"])?, comm: field(&["comm"]) }
        }
        "sched_process_fork" => What::Fork {
            child: field(&["child_tid", "child_pid"])?,
            child_pid: field(&["child_tid"]).and_then(|_| field(&["child_pid"])),
            comm: field(&["child_comm"]),
            tables: table.zip(field(&["child_file_table_address"])),
        },
        "sched_process_exec" => What::Exec {
            filename: field(&["filename"]),
            tid: field(&["tid", "pid"]),
            old_tid: field(&["old_tid", "old_pid"]),
        },
        "sched_process_exit" => {
            What::Exit { tid: field(&["tid", "pid"])?, group_dead: field(&["group_dead"]) }
        }
        "lttng_statedump_process_state" => What::DumpThread {
            tid: field(&["tid"])?,
            pid: field(&["pid"]),
            comm: field(&["name"]),
            table: field(&["file_table_address"]),
        },
        "lttng_statedump_file_descriptor" => What::DumpFd {
            pid: field(&["pid"]),
            table: field(&["file_table_address"]),
            fd: field(&["fd"])?,
            filename: field(&["filename"])?,
        },
        _ if name.starts_with("lttng_statedump_") => What::Nothing,
        _ => return call(class, name),
    })
}

fn call(class: &EventRecordClass, name: &str) -> Option<What> {
    const ENTRIES: [(&str, Abi); 5] = [
        ("syscall_entry_", Abi::Native),
        ("compat_syscall_entry_", Abi::Compat),
        ("sys_enter_", Abi::Native),
        // LTTng before 2.6.
        ("compat_sys_", Abi::Compat),
        ("sys_", Abi::Native),
    ];
    const EXITS: [(&str, Abi); 3] = [
        ("syscall_exit_", Abi::Native),
        ("compat_syscall_exit_", Abi::Compat),
        ("sys_exit_", Abi::Native),
    ];
    let after = |prefixes: &[(&str, Abi)]| {
        let mut known = prefixes.iter();
        known.find_map(|(prefix, abi)| Some((name.strip_prefix(prefix)?.to_owned(), *abi)))
    };
    let class = |(name, abi)| Box::new(CallClass::new(name, abi, class));
    let unknown = || class(("unknown".to_owned(), Abi::Native));
    Some(match name {
        "sys_enter" => What::CallEntry(unknown()),
        "sys_exit" => What::CallExit(unknown()),
        // LTTng before 2.6: the return does not say from which call.
        "exit_syscall" => What::CallExit(class((String::new(), Abi::Native))),
        _ => match after(&EXITS) {
            Some(exit) => What::CallExit(class(exit)),
            None => What::CallEntry(class(after(&ENTRIES)?)),
        },
    })
}
