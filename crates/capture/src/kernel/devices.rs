//! Interrupts, disks, network and memory: event records from the programs' records, and what disks are called.

use std::fs;
use std::path::Path;

use ctf::writer::Record;

use super::encode::EncodeError;
use super::record::{DISK_NAME_BYTES, Head, INTERFACE_BYTES, IRQ_NAME_BYTES, Reader, RecordKind};

/// The most disks and partitions that are named.
const MAX_DISKS: usize = 4096;

/// Appends the fields of a record that is of a device or of memory.
pub(super) fn write(
    head: &Head,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    match head.kind {
        RecordKind::IrqEntry => {
            let name = from.array::<IRQ_NAME_BYTES>()?;
            out.signed(from.i32()?.into())?;
            Ok(out.string(&name)?)
        }
        RecordKind::IrqExit => {
            from.array::<IRQ_NAME_BYTES>()?;
            out.signed(from.i32()?.into())?;
            Ok(out.signed(from.i32()?.into())?)
        }
        RecordKind::HotPlug => {
            out.unsigned(from.u32()?.into())?;
            out.signed(from.i32()?.into())?;
            Ok(out.signed(from.i32()?.into())?)
        }
        RecordKind::BlockIssue | RecordKind::BlockComplete => write_request(head, from, out),
        RecordKind::BlockRemap => write_remap(from, out),
        RecordKind::PacketSend | RecordKind::PacketReceive => write_packet(head.kind, from, out),
        RecordKind::PageAlloc => {
            out.unsigned(from.u32()?.into())?;
            Ok(out.unsigned(from.u32()?.into())?)
        }
        RecordKind::DumpDisk => {
            out.unsigned(from.u32()?.into())?;
            from.u32()?;
            Ok(out.string(&from.array::<DISK_NAME_BYTES>()?)?)
        }
        // A soft interrupt's vector, or the order of pages that are given back.
        _ => Ok(out.unsigned(from.u32()?.into())?),
    }
}

fn write_request(
    head: &Head,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    let (sector, dev, sectors) = (from.u64()?, from.u32()?, from.u32()?);
    let (flags, error) = (from.u32()?, from.i32()?);
    out.unsigned(dev.into())?;
    out.unsigned(sector)?;
    out.unsigned(sectors.into())?;
    if head.kind == RecordKind::BlockIssue {
        out.unsigned(rwbs(flags, sectors).into())?;
        out.signed(head.tid.into())?;
        return Ok(out.string(&head.comm)?);
    }
    out.signed(error.into())?;
    Ok(out.unsigned(rwbs(flags, sectors).into())?)
}

fn write_remap(from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    let (sector, old_sector) = (from.u64()?, from.u64()?);
    let (dev, old_dev) = (from.u32()?, from.u32()?);
    let (sectors, flags) = (from.u32()?, from.u32()?);
    out.unsigned(dev.into())?;
    out.unsigned(sector)?;
    out.unsigned(sectors.into())?;
    out.unsigned(rwbs(flags, sectors).into())?;
    out.unsigned(old_dev.into())?;
    Ok(out.unsigned(old_sector)?)
}

fn write_packet(
    kind: RecordKind,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    let (skb, bytes, rc) = (from.u64()?, from.u32()?, from.i32()?);
    out.unsigned(skb)?;
    if kind == RecordKind::PacketSend {
        out.signed(rc.into())?;
    }
    out.unsigned(bytes.into())?;
    Ok(out.string(&from.array::<INTERFACE_BYTES>()?)?)
}

/// LTTng's bits (`RWBS_FLAG_*`) for the kernel's flags of a request: `enum req_op` in the low byte, `enum req_flag_bits`
/// above it (include/linux/blk_types.h).
fn rwbs(flags: u32, sectors: u32) -> u32 {
    const FLUSH: u32 = 1 << 8;
    let operation = match flags & 0xff {
        // REQ_OP_WRITE, REQ_OP_ZONE_APPEND, REQ_OP_WRITE_ZEROES
        1 | 7 | 9 => 1,
        // REQ_OP_DISCARD
        3 => 1 << 1,
        // REQ_OP_SECURE_ERASE
        5 => 1 << 1 | 1 << 7,
        // REQ_OP_FLUSH
        2 => FLUSH,
        _ if sectors > 0 => 1 << 2,
        _ => 0,
    };
    // REQ_RAHEAD, REQ_SYNC, REQ_META, REQ_FUA, REQ_PREFLUSH and the bits they have at LTTng.
    let more = [(19, 3), (11, 5), (12, 6), (17, 9), (18, 10)];
    let is_set = |bit: u32| flags >> bit & 1;
    more.iter().fold(operation, |bits, (from, to)| bits | is_set(*from) << to)
}

/// What a disk or partition is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disk {
    dev: u32,
    name: [u8; DISK_NAME_BYTES],
}

impl Disk {
    /// The disks and partitions of this machine that can be read; at most 4,096.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        entries.take(MAX_DISKS).filter_map(|entry| Self::read(&entry.path()))
    }

    fn read(folder: &Path) -> Option<Self> {
        let number = fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        let mut name = [0; DISK_NAME_BYTES];
        let text = folder.file_name()?.as_encoded_bytes();
        name.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { dev: major << 20 | minor & 0xf_ffff, name })
    }

    /// As `bpf/record.h` has it.
    pub(super) fn to_bytes(self) -> [u8; 8 + DISK_NAME_BYTES] {
        let mut bytes = [0; 8 + DISK_NAME_BYTES];
        let (dev, rest) = bytes.split_at_mut(8);
        if let Some(dev) = dev.first_chunk_mut() {
            *dev = self.dev.to_ne_bytes();
        }
        rest.copy_from_slice(&self.name);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_requests_become_lttng_s_bits() {
        const SYNC: u32 = 1 << 11;
        assert_eq!(rwbs(0, 8), 1 << 2, "read");
        assert_eq!(rwbs(1 | SYNC, 8), 1 | 1 << 5, "synchronous write");
        assert_eq!(rwbs(2 | 1 << 18, 0), 1 << 8 | 1 << 10, "flush before");
        assert_eq!(rwbs(3, 8), 1 << 1, "discard");
        assert_eq!(rwbs(34, 0), 0, "a driver's own");
    }

    #[test]
    fn a_disk_is_laid_out_as_the_program_reads_it() {
        let mut name = [0; DISK_NAME_BYTES];
        name[..3].copy_from_slice(b"vda");
        let bytes = Disk { dev: 254 << 20, name }.to_bytes();
        assert_eq!(bytes[..4], (254_u32 << 20).to_ne_bytes());
        assert_eq!(&bytes[8..12], b"vda\0");
    }
}
