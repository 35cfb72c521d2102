//! The event record classes of the kernel's trace: LTTng's names, in one place with their ids.
//!
//! Every event record carries the context `tid`, `pid` (the process), `procname` and `file_table_address` (of
//! the current task's `files_struct`, shared by all threads that share descriptors). Beyond LTTng's fields there are
//! `next_pid` (`sched_switch`), `in_interrupt` (`sched_waking`, `sched_wakeup*`), `child_file_table_address`
//! (`sched_process_fork`), `address` (socket addresses as text), `resolved` (exit of calls that open a file: its absolute
//! path), and on exits the strings whose copy failed at entry. `rwbs` has the bits that LTTng gives it.

use ctf::Base;
use ctf::writer::{EventClass, Field, FieldClass, IntClass, Key, Length};

use super::calls::{self, CALLS, Call, Kind};
use super::record::{DISK_NAME_BYTES, IRQ_NAME_BYTES};

/// The classes that fields of this trace have.
#[derive(Debug, Clone, Copy)]
enum Class {
    Int(IntClass),
    String,
    /// So many bytes of text.
    Text(u64),
    /// So many integers.
    Array(IntClass, u64),
}

impl Class {
    fn field(self, name: &str) -> Field {
        let class = match self {
            Self::Int(int) => FieldClass::Int(int),
            Self::String => FieldClass::STRING,
            Self::Text(bytes) => FieldClass::text(bytes),
            Self::Array(int, length) => {
                FieldClass::array(FieldClass::Int(int), Length::Fixed(length))
            }
        };
        Field::new(name, class)
    }
}

const COMM: Class = Class::Text(16);
const I32: Class = Class::Int(IntClass::I32);
const I64: Class = Class::Int(IntClass::I64);
const U8: Class = Class::Int(IntClass::U8);
const U16: Class = Class::Int(IntClass::U16);
const U32: Class = Class::Int(IntClass::U32);
const U64: Class = Class::Int(IntClass::U64);
const HEX32: Class = Class::Int(IntClass::HEX32);
const HEX64: Class = Class::Int(IntClass::HEX64);
const OCTAL32: Class = Class::Int(IntClass { base: Base::Octal, ..IntClass::U32 });

/// Names and classes of fields, in order.
type Members = &'static [(&'static str, Class)];

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
    IrqEntry,
    IrqExit,
    SoftirqEntry,
    SoftirqExit,
    SoftirqRaise,
    BlockIssue,
    BlockComplete,
    BlockRemap,
    PacketSend,
    PacketReceive,
    PageAlloc,
    PageFree,
    DumpDisk,
    HotPlug,
    EntryUnknown,
    ExitUnknown,
    CompatEntryUnknown,
    CompatExitUnknown,
}

impl Event {
    const ALL: [(Self, &str, Members); 31] = [
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
            &[("filename", Class::String), ("tid", I32), ("old_tid", I32)],
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
                ("filename", Class::String),
            ],
        ),
        (
            Self::IrqEntry,
            "irq_handler_entry",
            &[("irq", I32), ("name", Class::Text(IRQ_NAME_BYTES as u64))],
        ),
        (Self::IrqExit, "irq_handler_exit", &[("irq", I32), ("ret", I32)]),
        (Self::SoftirqEntry, "irq_softirq_entry", SOFTIRQ),
        (Self::SoftirqExit, "irq_softirq_exit", SOFTIRQ),
        (Self::SoftirqRaise, "irq_softirq_raise", SOFTIRQ),
        (
            Self::BlockIssue,
            "block_rq_issue",
            &[
                ("dev", U32),
                ("sector", U64),
                ("nr_sector", U32),
                ("rwbs", U32),
                ("tid", I32),
                ("comm", COMM),
            ],
        ),
        (
            Self::BlockComplete,
            "block_rq_complete",
            &[("dev", U32), ("sector", U64), ("nr_sector", U32), ("error", I32), ("rwbs", U32)],
        ),
        (
            Self::BlockRemap,
            "block_bio_remap",
            &[
                ("dev", U32),
                ("sector", U64),
                ("nr_sector", U32),
                ("rwbs", U32),
                ("old_dev", U32),
                ("old_sector", U64),
            ],
        ),
        (
            Self::PacketSend,
            "net_dev_xmit",
            &[("skbaddr", HEX64), ("rc", I32), ("len", U32), ("name", COMM)],
        ),
        (
            Self::PacketReceive,
            "net_if_receive_skb",
            &[("skbaddr", HEX64), ("len", U32), ("name", COMM)],
        ),
        (Self::PageAlloc, "kmem_mm_page_alloc", &[("order", U32), ("gfp_flags", HEX32)]),
        (Self::PageFree, "kmem_mm_page_free", &[("order", U32)]),
        (
            Self::DumpDisk,
            "lttng_statedump_block_device",
            &[("dev", U32), ("diskname", Class::Text(DISK_NAME_BYTES as u64))],
        ),
        (Self::HotPlug, "cpuhp_enter", &[("cpu", U32), ("target", I32), ("idx", I32)]),
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

const SOFTIRQ: Members = &[("vec", U32)];
const WAKE: Members =
    &[("comm", COMM), ("tid", I32), ("prio", I32), ("target_cpu", I32), ("in_interrupt", U8)];
const ENTRY_UNKNOWN: Members = &[("id", I32), ("args", Class::Array(IntClass::U64, 6))];
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
    /// What every event record carries.
    pub(super) context: Vec<Field>,
    /// The event record classes; the position is the id.
    pub(super) events: Vec<EventClass>,
    calls: Vec<Option<CallEvents>>,
}

impl Schema {
    pub(super) fn new() -> Self {
        let mut events: Vec<EventClass> = Event::ALL
            .iter()
            .map(|(event, name, members)| class(event.id(), name, members))
            .collect();
        let mut by_number = vec![None; CALLS];
        for (call, entry) in calls::ALL.iter().zip((Event::ALL.len()..).step_by(2)) {
            let entry = u16::try_from(entry).expect("far fewer classes than 65,536");
            events.push(entry_class(entry, call));
            events.push(exit_class(entry + 1, call));
            if let Some(slot) = by_number.get_mut(usize::from(call.number)) {
                *slot = Some(CallEvents { call, entry, exit: entry + 1 });
            }
        }
        let context =
            [("tid", I32), ("pid", I32), ("procname", COMM), ("file_table_address", HEX64)];
        Self { context: fields(&context), events, calls: by_number }
    }

    /// The system call with this number, when it is known.
    pub(super) fn call(&self, number: i32) -> Option<CallEvents> {
        usize::try_from(number).ok().and_then(|number| self.calls.get(number).copied().flatten())
    }
}

fn class(id: u16, name: &str, members: &[(&str, Class)]) -> EventClass {
    EventClass::new(id.into(), name, fields(members))
}

fn fields(members: &[(&str, Class)]) -> Vec<Field> {
    members.iter().map(|(name, class)| class.field(name)).collect()
}

fn entry_class(id: u16, call: &Call) -> EventClass {
    let mut fields: Vec<Field> = call
        .arguments
        .iter()
        .map(|argument| entry_class_of(argument.kind).field(argument.name))
        .collect();
    if call.position(Kind::SocketAddress).is_some() {
        fields.extend(address_fields("dport"));
    }
    EventClass::new(id.into(), format!("syscall_entry_{}", call.name), fields)
}

fn exit_class(id: u16, call: &Call) -> EventClass {
    let mut fields = vec![I64.field("ret")];
    if let Some(argument) =
        call.position(Kind::DescriptorsOut).and_then(|position| call.arguments.get(position))
    {
        fields.push(Class::Array(IntClass::I32, 2).field(argument.name));
    }
    if call.position(Kind::SocketAddressOut).is_some() {
        fields.extend(address_fields("sport"));
    }
    fields.extend(call.strings().map(|(_, string)| Class::String.field(string.name)));
    if call.opens {
        fields.push(Class::String.field("resolved"));
    }
    EventClass::new(id.into(), format!("syscall_exit_{}", call.name), fields)
}

fn entry_class_of(kind: Kind) -> Class {
    match kind {
        Kind::Signed32 => I32,
        Kind::Signed64 => I64,
        Kind::Unsigned16 => U16,
        Kind::Unsigned32 => U32,
        Kind::Unsigned64 => U64,
        Kind::Hex32 => HEX32,
        Kind::String => Class::String,
        Kind::Pointer | Kind::SocketAddress | Kind::SocketAddressOut | Kind::DescriptorsOut => {
            HEX64
        }
    }
}

fn address_fields(port: &str) -> Vec<Field> {
    let mut fields = vec![U16.field("family"), U16.field(port)];
    fields.extend(Field::counted("v4addr", IntClass::U8, Key(0)));
    fields.extend(Field::counted("v6addr", IntClass::U8, Key(1)));
    fields.push(Class::String.field("address"));
    fields
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
        let name = |id: u16| schema.events[usize::from(id)].name.as_str();
        assert_eq!(
            (name(read.entry), name(read.exit)),
            ("syscall_entry_read", "syscall_exit_read")
        );
        assert!(schema.call(-1).is_none() && schema.call(500).is_none());
    }
}
