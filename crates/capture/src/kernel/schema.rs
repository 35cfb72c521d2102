//! The event record classes of the kernel's trace: LTTng's names, in one place with their ids.
//!
//! Every event record carries the context `tid`, `pid` (the process), `procname` and `file_table_address` (of
//! the current task's `files_struct`, shared by all threads that share descriptors). Beyond LTTng's fields there are
//! `next_pid` (`sched_switch`), `in_interrupt` (`sched_waking`, `sched_wakeup*`), `child_file_table_address`
//! (`sched_process_fork`), `address` (socket addresses as text), `resolved` (exit of calls that open a file: its absolute
//! path), and on exits the strings whose copy failed at entry.

use ctf::writer::{Base, EventClass, Field, FieldClass, IntClass, StreamClass};

use super::calls::{self, CALLS, Call, Kind};

const COMM: FieldClass = FieldClass::Text(16);
const I32: FieldClass = FieldClass::Int(IntClass::I32);
const I64: FieldClass = FieldClass::Int(IntClass::I64);
const U8: FieldClass = FieldClass::Int(IntClass::U8);
const U16: FieldClass = FieldClass::Int(IntClass::U16);
const HEX32: FieldClass = FieldClass::Int(IntClass::HEX32);
const HEX64: FieldClass = FieldClass::Int(IntClass::HEX64);
const OCTAL32: FieldClass = FieldClass::Int(IntClass { base: Base::Octal, ..IntClass::U32 });

/// Names and classes of fields, in order.
type Members = &'static [(&'static str, FieldClass)];

/// Event record class ids of what is no system call; those of system calls follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Event {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    Fork,
    Exec,
    Exit,
    Free,
    Migrate,
    DumpStart,
    DumpEnd,
    DumpTask,
    DumpFile,
    EntryUnknown,
    ExitUnknown,
    CompatEntryUnknown,
    CompatExitUnknown,
}

impl Event {
    const ALL: [(Self, &str, Members); 17] = [
        (
            Self::Switch,
            "sched_switch",
            &[
                ("prev_comm", COMM),
                ("prev_tid", I32),
                ("prev_prio", I32),
                ("prev_state", I64),
                ("next_comm", COMM),
                ("next_tid", I32),
                ("next_prio", I32),
                ("next_pid", I32),
            ],
        ),
        (Self::Waking, "sched_waking", WAKE),
        (Self::Wakeup, "sched_wakeup", WAKE),
        (Self::WakeupNew, "sched_wakeup_new", WAKE),
        (
            Self::Fork,
            "sched_process_fork",
            &[
                ("parent_comm", COMM),
                ("parent_tid", I32),
                ("parent_pid", I32),
                ("child_comm", COMM),
                ("child_tid", I32),
                ("child_pid", I32),
                ("child_file_table_address", HEX64),
            ],
        ),
        (
            Self::Exec,
            "sched_process_exec",
            &[("filename", FieldClass::String), ("tid", I32), ("old_tid", I32)],
        ),
        (
            Self::Exit,
            "sched_process_exit",
            &[("comm", COMM), ("tid", I32), ("prio", I32), ("group_dead", U8)],
        ),
        (Self::Free, "sched_process_free", &[("comm", COMM), ("tid", I32), ("prio", I32)]),
        (
            Self::Migrate,
            "sched_migrate_task",
            &[("comm", COMM), ("tid", I32), ("prio", I32), ("orig_cpu", I32), ("dest_cpu", I32)],
        ),
        (Self::DumpStart, "lttng_statedump_start", &[]),
        (Self::DumpEnd, "lttng_statedump_end", &[]),
        (
            Self::DumpTask,
            "lttng_statedump_process_state",
            &[
                ("tid", I32),
                ("pid", I32),
                ("ppid", I32),
                ("name", COMM),
                ("type", I32),
                ("mode", I32),
                ("submode", I32),
                ("status", I32),
                ("cpu", I32),
                ("file_table_address", HEX64),
            ],
        ),
        (
            Self::DumpFile,
            "lttng_statedump_file_descriptor",
            &[
                ("file_table_address", HEX64),
                ("pid", I32),
                ("fd", I32),
                ("flags", OCTAL32),
                ("fmode", HEX32),
                ("filename", FieldClass::String),
            ],
        ),
        (Self::EntryUnknown, "syscall_entry_unknown", ENTRY_UNKNOWN),
        (Self::ExitUnknown, "syscall_exit_unknown", EXIT_UNKNOWN),
        (Self::CompatEntryUnknown, "compat_syscall_entry_unknown", ENTRY_UNKNOWN),
        (Self::CompatExitUnknown, "compat_syscall_exit_unknown", EXIT_UNKNOWN),
    ];

    /// The event record class id.
    pub(super) const fn id(self) -> u16 {
        self as u16
    }
}

const WAKE: Members =
    &[("comm", COMM), ("tid", I32), ("prio", I32), ("target_cpu", I32), ("in_interrupt", U8)];
const ENTRY_UNKNOWN: Members = &[("id", I32), ("args", FieldClass::Array(IntClass::U64, 6))];
const EXIT_UNKNOWN: Members = &[("id", I32), ("ret", I64)];

/// A system call and the ids of its two event record classes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallEvents {
    pub(super) call: &'static Call,
    pub(super) entry: u16,
    pub(super) exit: u16,
}

/// All event record classes, and which of them are a system call's.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) stream: StreamClass,
    calls: Vec<Option<CallEvents>>,
}

impl Schema {
    pub(super) fn new() -> Self {
        let mut events: Vec<EventClass> =
            Event::ALL.iter().map(|(_, name, members)| class(name, members)).collect();
        let mut by_number = vec![None; CALLS];
        for (call, entry) in calls::ALL.iter().zip((Event::ALL.len()..).step_by(2)) {
            events.push(entry_class(call));
            events.push(exit_class(call));
            if let (Some(slot), Ok(entry)) =
                (by_number.get_mut(usize::from(call.number)), u16::try_from(entry))
            {
                *slot = Some(CallEvents { call, entry, exit: entry + 1 });
            }
        }
        let context =
            [("tid", I32), ("pid", I32), ("procname", COMM), ("file_table_address", HEX64)];
        Self { stream: StreamClass { context: fields(&context), events }, calls: by_number }
    }

    /// The system call with this number, when it is known.
    pub(super) fn call(&self, number: i32) -> Option<CallEvents> {
        usize::try_from(number).ok().and_then(|number| self.calls.get(number).copied().flatten())
    }
}

fn class(name: &str, members: &[(&str, FieldClass)]) -> EventClass {
    EventClass::new(name, fields(members))
}

fn fields(members: &[(&str, FieldClass)]) -> Vec<Field> {
    members.iter().map(|(name, class)| Field::new(*name, class.clone())).collect()
}

fn entry_class(call: &Call) -> EventClass {
    let mut fields: Vec<Field> = call
        .arguments
        .iter()
        .map(|argument| Field::new(argument.name, entry_field(argument.kind)))
        .collect();
    if call.position(Kind::SocketAddress).is_some() {
        fields.extend(address_fields("dport"));
    }
    EventClass::new(format!("syscall_entry_{}", call.name), fields)
}

fn exit_class(call: &Call) -> EventClass {
    let mut fields = vec![Field::new("ret", I64)];
    if let Some(argument) =
        call.position(Kind::DescriptorsOut).and_then(|position| call.arguments.get(position))
    {
        fields.push(Field::new(argument.name, FieldClass::Array(IntClass::I32, 2)));
    }
    if call.position(Kind::SocketAddressOut).is_some() {
        fields.extend(address_fields("sport"));
    }
    fields.extend(call.strings().map(|(_, string)| Field::new(string.name, FieldClass::String)));
    if call.opens {
        fields.push(Field::new("resolved", FieldClass::String));
    }
    EventClass::new(format!("syscall_exit_{}", call.name), fields)
}

fn entry_field(kind: Kind) -> FieldClass {
    match kind {
        Kind::Signed32 => I32,
        Kind::Signed64 => I64,
        Kind::Unsigned16 => U16,
        Kind::Unsigned32 => FieldClass::Int(IntClass::U32),
        Kind::Unsigned64 => FieldClass::Int(IntClass::U64),
        Kind::Hex32 => HEX32,
        Kind::String => FieldClass::String,
        Kind::Pointer | Kind::SocketAddress | Kind::SocketAddressOut | Kind::DescriptorsOut => {
            HEX64
        }
    }
}

fn address_fields(port: &str) -> [Field; 5] {
    let octets = || FieldClass::Sequence(IntClass::U8);
    [
        Field::new("family", U16),
        Field::new(port, U16),
        Field::new("v4addr", octets()),
        Field::new("v6addr", octets()),
        Field::new("address", FieldClass::String),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positions() {
        for (position, (event, ..)) in Event::ALL.iter().enumerate() {
            assert_eq!(usize::from(event.id()), position);
        }
        let schema = Schema::new();
        let read = schema.call(0).unwrap();
        let name = |id: u16| schema.stream.events[usize::from(id)].name.as_str();
        assert_eq!(
            (name(read.entry), name(read.exit)),
            ("syscall_entry_read", "syscall_exit_read")
        );
        assert!(schema.call(-1).is_none() && schema.call(500).is_none());
    }
}
