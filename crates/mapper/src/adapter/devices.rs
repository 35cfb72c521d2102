//! Interrupts, block devices and memory: what their events say, whatever tracer wrote them.

use ctf::{EventRecord, EventRecordClass, FieldHandle};
use model::{CpuId, Tid};
use stitch::fact::{BlockOp, Dev, Fact, FactKind, Line};

use super::{Context, number, text};

/// The event record class of something that a device, or the kernel on its behalf, does.
#[derive(Debug)]
pub(super) enum Device {
    IrqEntry { irq: FieldHandle, name: Option<FieldHandle> },
    IrqExit { irq: FieldHandle },
    SoftEntry { vector: FieldHandle },
    SoftExit { vector: FieldHandle },
    SoftRaise { vector: FieldHandle },
    BlockIssue(Issue),
    BlockDone { dev: FieldHandle, sector: FieldHandle, sectors: Option<FieldHandle> },
    BlockRemap { dev: FieldHandle, part: FieldHandle },
    DumpDisk { dev: FieldHandle, name: FieldHandle },
    Pages { order: FieldHandle, freed: bool },
    Packet { bytes: FieldHandle, name: FieldHandle, sent: bool },
    Migrate { tid: FieldHandle },
    HotPlug { cpu: FieldHandle, target: FieldHandle, step: FieldHandle },
}

#[derive(Debug)]
pub(super) struct Issue {
    dev: FieldHandle,
    sector: FieldHandle,
    sectors: FieldHandle,
    flags: Option<FieldHandle>,
    tid: Option<FieldHandle>,
}

impl Device {
    /// By the name without perf's subsystem; `None` for events that say nothing of the kind.
    pub(super) fn of(class: &EventRecordClass, name: &str) -> Option<Self> {
        let field = |names: &[&str]| names.iter().find_map(|name| class.field_handle(name));
        Some(match name {
            "irq_handler_entry" => Self::IrqEntry { irq: field(&["irq"])?, name: field(&["name"]) },
            "irq_handler_exit" => Self::IrqExit { irq: field(&["irq"])? },
            "irq_softirq_entry" | "softirq_entry" => Self::SoftEntry { vector: field(&["vec"])? },
            "irq_softirq_exit" | "softirq_exit" => Self::SoftExit { vector: field(&["vec"])? },
            "irq_softirq_raise" | "softirq_raise" => Self::SoftRaise { vector: field(&["vec"])? },
            "block_rq_issue" => Self::BlockIssue(Issue {
                dev: field(&["dev"])?,
                sector: field(&["sector"])?,
                sectors: field(&["nr_sector"])?,
                flags: field(&["rwbs"]),
                tid: field(&["tid"]),
            }),
            "block_rq_complete" => Self::BlockDone {
                dev: field(&["dev"])?,
                sector: field(&["sector"])?,
                sectors: field(&["nr_sector"]),
            },
            "block_bio_remap" => {
                Self::BlockRemap { dev: field(&["dev"])?, part: field(&["old_dev"])? }
            }
            "lttng_statedump_block_device" => {
                Self::DumpDisk { dev: field(&["dev"])?, name: field(&["diskname"])? }
            }
            "kmem_mm_page_alloc" | "mm_page_alloc" => {
                Self::Pages { order: field(&["order"])?, freed: false }
            }
            "kmem_mm_page_free" | "mm_page_free" => {
                Self::Pages { order: field(&["order"])?, freed: true }
            }
            "net_dev_xmit" => {
                Self::Packet { bytes: field(&["len"])?, name: field(&["name"])?, sent: true }
            }
            "net_if_receive_skb" | "netif_receive_skb" => {
                Self::Packet { bytes: field(&["len"])?, name: field(&["name"])?, sent: false }
            }
            "cpuhp_enter" => Self::HotPlug {
                cpu: field(&["cpu"])?,
                target: field(&["target"])?,
                step: field(&["idx"])?,
            },
            "sched_migrate_task" => Self::Migrate { tid: field(&["tid", "pid"])? },
            _ => return None,
        })
    }

    /// The fact of a record; merely that something was seen where a number makes no sense.
    pub(super) fn fact(
        &self,
        record: &EventRecord<'_>,
        context: Context,
        give: &mut impl FnMut(&Fact<&str>),
    ) {
        let name = match self {
            Self::IrqEntry { name: Some(name), .. }
            | Self::DumpDisk { name, .. }
            | Self::Packet { name, .. } => text(record, *name).unwrap_or_default(),
            _ => "".into(),
        };
        let kind = self.kind(record, &name, context.cpu).unwrap_or(FactKind::Seen);
        let context = match self {
            Self::DumpDisk { .. } => context.nobody(),
            _ => context,
        };
        give(&context.fact(kind));
    }

    fn kind<'n>(
        &self,
        record: &EventRecord<'_>,
        name: &'n str,
        here: Option<CpuId>,
    ) -> Option<FactKind<&'n str>> {
        let hard = |handle| number(record, handle).and_then(|n| u16::try_from(n).ok());
        let soft = |handle| number(record, handle).and_then(|n| u8::try_from(n).ok());
        let dev = |handle| unsigned(record, handle).and_then(|n| u32::try_from(n).ok()).map(Dev);
        Some(match self {
            Self::IrqEntry { irq, .. } => {
                FactKind::IrqEntry { line: Line::Hard(hard(*irq)?), name }
            }
            Self::IrqExit { irq } => FactKind::IrqExit { line: Line::Hard(hard(*irq)?) },
            Self::SoftEntry { vector } => {
                FactKind::IrqEntry { line: Line::Soft(soft(*vector)?), name: "" }
            }
            Self::SoftExit { vector } => FactKind::IrqExit { line: Line::Soft(soft(*vector)?) },
            Self::SoftRaise { vector } => FactKind::IrqRaise { line: Line::Soft(soft(*vector)?) },
            Self::BlockIssue(issue) => {
                let sectors = u32::try_from(unsigned(record, issue.sectors)?).ok()?;
                FactKind::BlockIssue {
                    dev: dev(issue.dev)?,
                    sector: unsigned(record, issue.sector)?,
                    sectors: Some(sectors).filter(|sectors| *sectors > 0)?,
                    op: operation(record, issue.flags),
                    tid: issue.tid.and_then(|tid| number(record, tid)).map(Tid::new),
                }
            }
            Self::BlockDone { dev: handle, sector, sectors } => {
                let sectors = sectors.map(|handle| unsigned(record, handle));
                if sectors == Some(Some(0)) {
                    return None;
                }
                FactKind::BlockDone { dev: dev(*handle)?, sector: unsigned(record, *sector)? }
            }
            Self::BlockRemap { dev: to, part } => {
                FactKind::BlockRemap { dev: dev(*to)?, part: dev(*part)? }
            }
            Self::DumpDisk { dev: handle, .. } => FactKind::DumpDisk { dev: dev(*handle)?, name },
            Self::Pages { order, freed } => {
                let order = u32::try_from(number(record, *order)?).ok()?;
                FactKind::Pages { pages: 1_u64.checked_shl(order)?, freed: *freed }
            }
            Self::Packet { bytes, sent, .. } => {
                FactKind::Packet { interface: name, bytes: unsigned(record, *bytes)?, sent: *sent }
            }
            // The kernel's steps to 0, off, and up from there, as another CPU takes them for one that cannot.
            Self::HotPlug { cpu, target, step } => {
                let cpu = CpuId::new(u32::try_from(unsigned(record, *cpu)?).ok()?);
                let (target, step) = (number(record, *target)?, number(record, *step)?);
                let is_off = here.is_some_and(|here| here != cpu) && (target == 0 || target > step);
                is_off.then_some(FactKind::Offline { cpu })?
            }
            Self::Migrate { tid } => FactKind::Migrate { tid: Tid::new(number(record, *tid)?) },
        })
    }
}

fn unsigned(record: &EventRecord<'_>, handle: FieldHandle) -> Option<u64> {
    record.u64(handle)
}

/// What a request asks for: LTTng writes bits (`RWBS_FLAG_WRITE` 1, `DISCARD` 2, `FLUSH` 256), the kernel's own format
/// letters.
fn operation(record: &EventRecord<'_>, flags: Option<FieldHandle>) -> BlockOp {
    let Some(flags) = flags else { return BlockOp::Other };
    if let Some(letters) = text(record, flags) {
        return match letters {
            letters if letters.contains('D') => BlockOp::Discard,
            letters if letters.contains('W') => BlockOp::Write,
            letters if letters.contains('R') => BlockOp::Read,
            _ => BlockOp::Other,
        };
    }
    match record.u64(flags) {
        Some(bits) if bits & 1 != 0 => BlockOp::Write,
        Some(bits) if bits & 2 != 0 => BlockOp::Discard,
        Some(bits) if bits & 256 != 0 => BlockOp::Other,
        Some(_) => BlockOp::Read,
        None => BlockOp::Other,
    }
}
