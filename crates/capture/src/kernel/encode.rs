//! From a record of the ring buffer to an event record of a packet.

use ctf::writer::{Appended, OpenPacket, Record, WriteError};

use super::address::{Address, Socket};
use super::calls::{Call, Kind};
use super::devices;
use super::record::{Head, Reader, RecordError, RecordKind};
use super::schema::{Event, Schema};

/// LTTng's `LTTNG_MODE_UNKNOWN`: whether a thread runs in user space is not looked at.
const MODE_UNKNOWN: i64 = 5;

/// A record that could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The record is not as the programs write it.
    #[error("malformed record")]
    Record(#[from] RecordError),
    /// The event record does not match its class.
    #[error("event record")]
    Write(#[from] WriteError),
}

/// Appends `record` to the packet at `time_ns`.
///
/// # Errors
/// [`EncodeError`]; the packet is unchanged then.
pub(super) fn append(
    schema: &Schema,
    packet: &mut OpenPacket<'_>,
    time_ns: u64,
    record: &[u8],
) -> Result<Appended, EncodeError> {
    let mut reader = Reader::new(record);
    let head = reader.head()?;
    let (event, body) = class(schema, &head);
    let mut malformed = None;
    let written = packet.append(event.into(), time_ns, |out| {
        out.signed(head.tid.into())?;
        out.signed(head.tgid.into())?;
        out.string(&head.comm)?;
        out.unsigned(head.files)?;
        match write_body(body, &head, &mut reader, out) {
            Err(EncodeError::Write(error)) => Err(error),
            Err(EncodeError::Record(error)) => {
                malformed = Some(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    });
    match malformed {
        Some(error) => Err(error.into()),
        None => Ok(written?),
    }
}

/// How the body of a record is laid out.
#[derive(Debug, Clone, Copy)]
enum Body {
    Entry(&'static Call),
    Exit(&'static Call),
    UnknownEntry,
    UnknownExit,
    Fixed,
}

fn class(schema: &Schema, head: &Head) -> (u16, Body) {
    let call = if head.compat { None } else { schema.call(head.call) };
    let fixed = |event: Event| (event.id(), Body::Fixed);
    match (head.kind, call) {
        (RecordKind::CallEntry, Some(events)) => (events.entry, Body::Entry(events.call)),
        (RecordKind::CallExit, Some(events)) => (events.exit, Body::Exit(events.call)),
        (RecordKind::CallEntry, None) if head.compat => {
            (Event::CompatEntryUnknown.id(), Body::UnknownEntry)
        }
        (RecordKind::CallEntry, None) => (Event::EntryUnknown.id(), Body::UnknownEntry),
        (RecordKind::CallExit, None) if head.compat => {
            (Event::CompatExitUnknown.id(), Body::UnknownExit)
        }
        (RecordKind::CallExit, None) => (Event::ExitUnknown.id(), Body::UnknownExit),
        (RecordKind::Switch, _) => fixed(Event::Switch),
        (RecordKind::Waking, _) => fixed(Event::Waking),
        (RecordKind::Wakeup, _) => fixed(Event::Wakeup),
        (RecordKind::WakeupNew, _) => fixed(Event::WakeupNew),
        (RecordKind::Fork, _) => fixed(Event::Fork),
        (RecordKind::Exec, _) => fixed(Event::Exec),
        (RecordKind::Exit, _) => fixed(Event::Exit),
        (RecordKind::Free, _) => fixed(Event::Free),
        (RecordKind::Migrate, _) => fixed(Event::Migrate),
        (RecordKind::DumpStart, _) => fixed(Event::DumpStart),
        (RecordKind::DumpTask, _) => fixed(Event::DumpTask),
        (RecordKind::DumpFile, _) => fixed(Event::DumpFile),
        (RecordKind::DumpEnd, _) => fixed(Event::DumpEnd),
        (RecordKind::IrqEntry, _) => fixed(Event::IrqEntry),
        (RecordKind::IrqExit, _) => fixed(Event::IrqExit),
        (RecordKind::SoftirqEntry, _) => fixed(Event::SoftirqEntry),
        (RecordKind::SoftirqExit, _) => fixed(Event::SoftirqExit),
        (RecordKind::SoftirqRaise, _) => fixed(Event::SoftirqRaise),
        (RecordKind::BlockIssue, _) => fixed(Event::BlockIssue),
        (RecordKind::BlockComplete, _) => fixed(Event::BlockComplete),
        (RecordKind::BlockRemap, _) => fixed(Event::BlockRemap),
        (RecordKind::PacketSend, _) => fixed(Event::PacketSend),
        (RecordKind::PacketReceive, _) => fixed(Event::PacketReceive),
        (RecordKind::PageAlloc, _) => fixed(Event::PageAlloc),
        (RecordKind::PageFree, _) => fixed(Event::PageFree),
        (RecordKind::HotPlug, _) => fixed(Event::HotPlug),
        (RecordKind::DumpDisk, _) => fixed(Event::DumpDisk),
    }
}

fn write_body(
    body: Body,
    head: &Head,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    match body {
        Body::Entry(call) => write_entry(call, from, out),
        Body::Exit(call) => write_exit(call, from, out),
        Body::UnknownEntry => {
            out.signed(head.call.into())?;
            let mut arguments = [0; 6];
            for argument in &mut arguments {
                *argument = from.u64()?;
            }
            Ok(out.elements(&arguments)?)
        }
        Body::UnknownExit => {
            out.signed(head.call.into())?;
            Ok(out.signed(from.i64()?)?)
        }
        Body::Fixed => write_fixed(head, from, out),
    }
}

/// The registers come first, then the strings, then the socket address; the event record has the strings among the
/// other arguments.
fn write_entry(
    call: &Call,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    let mut registers = [0; 6];
    for (register, _) in registers.iter_mut().zip(&call.arguments) {
        *register = from.u64()?;
    }
    for (argument, register) in call.arguments.iter().zip(registers) {
        match argument.kind {
            Kind::String => out.string(from.string()?)?,
            kind => write_register(kind, register, out)?,
        }
    }
    if call.position(Kind::SocketAddress).is_some() {
        write_address(from, out)?;
    }
    Ok(())
}

/// Narrow arguments take the low bits of the register, as the kernel does.
#[expect(clippy::cast_possible_truncation, reason = "the kernel ignores the high bits as well")]
fn write_register(kind: Kind, register: u64, out: &mut Record<'_>) -> Result<(), WriteError> {
    match kind {
        Kind::Signed32 => out.signed(i64::from(register as i32)),
        Kind::Signed64 => out.signed(register.cast_signed()),
        Kind::Unsigned16 => out.unsigned(u64::from(register as u16)),
        Kind::Unsigned32 | Kind::Hex32 => out.unsigned(u64::from(register as u32)),
        _ => out.unsigned(register),
    }
}

fn write_exit(call: &Call, from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    let ret = from.i64()?;
    out.signed(ret)?;
    if call.position(Kind::DescriptorsOut).is_some() {
        let pair = [from.i32()?, from.i32()?];
        out.elements(&pair.map(|fd| i64::from(fd).cast_unsigned()))?;
    }
    if call.position(Kind::SocketAddressOut).is_some() {
        write_address(from, out)?;
    }
    for _ in call.strings() {
        out.string(from.string()?)?;
    }
    if call.opens {
        out.string(&resolved(from)?)?;
    }
    Ok(())
}

/// The path whose names follow from the file up to the root; empty when it is not known.
fn resolved(from: &mut Reader<'_>) -> Result<Vec<u8>, RecordError> {
    if from.u8()? == 0 {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    loop {
        match from.string()? {
            [] => break,
            name => names.push(name),
        }
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}

fn write_address(from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    let len = from.u32()?;
    let address = Address::parse(from.bytes(len as usize)?);
    let (v4, v6) = address.octets();
    out.unsigned(address.family().into())?;
    out.unsigned(address.port().into())?;
    out.counted(&v4)?;
    out.counted(&v6)?;
    Ok(out.string(address.to_string().as_bytes())?)
}

fn write_fixed(
    head: &Head,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    match head.kind {
        RecordKind::Switch => write_switch(head, from, out),
        RecordKind::Waking | RecordKind::Wakeup | RecordKind::WakeupNew => write_wake(from, out),
        RecordKind::Fork => write_fork(head, from, out),
        RecordKind::Exec => {
            let (tid, old_tid) = (from.i32()?, from.i32()?);
            out.string(from.string()?)?;
            out.signed(tid.into())?;
            Ok(out.signed(old_tid.into())?)
        }
        RecordKind::Exit | RecordKind::Free => write_task_end(head.kind, from, out),
        RecordKind::Migrate => {
            out.string(&from.comm()?)?;
            for _ in 0..4 {
                out.signed(from.i32()?.into())?;
            }
            Ok(())
        }
        RecordKind::DumpTask => write_dumped_task(from, out),
        RecordKind::DumpFile => write_dumped_file(from, out),
        RecordKind::HotPlug
        | RecordKind::IrqEntry
        | RecordKind::IrqExit
        | RecordKind::SoftirqEntry
        | RecordKind::SoftirqExit
        | RecordKind::SoftirqRaise
        | RecordKind::BlockIssue
        | RecordKind::BlockComplete
        | RecordKind::BlockRemap
        | RecordKind::PacketSend
        | RecordKind::PacketReceive
        | RecordKind::PageAlloc
        | RecordKind::PageFree
        | RecordKind::DumpDisk => devices::write(head, from, out),
        RecordKind::DumpStart
        | RecordKind::DumpEnd
        | RecordKind::CallEntry
        | RecordKind::CallExit => Ok(()),
    }
}

fn write_switch(
    head: &Head,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    let next_comm = from.comm()?;
    let prev_state = from.i64()?;
    let (prev_prio, next_tid) = (from.i32()?, from.i32()?);
    let (next_tgid, next_prio) = (from.i32()?, from.i32()?);
    out.string(&head.comm)?;
    out.signed(head.tid.into())?;
    out.signed(prev_prio.into())?;
    out.signed(prev_state)?;
    out.string(&next_comm)?;
    out.signed(next_tid.into())?;
    out.signed(next_prio.into())?;
    Ok(out.signed(next_tgid.into())?)
}

fn write_wake(from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    out.string(&from.comm()?)?;
    for _ in 0..3 {
        out.signed(from.i32()?.into())?;
    }
    Ok(out.unsigned(u64::from(from.i32()? != 0))?)
}

fn write_fork(head: &Head, from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    let child_comm = from.comm()?;
    let child_files = from.u64()?;
    let (child_tid, child_tgid) = (from.i32()?, from.i32()?);
    out.string(&head.comm)?;
    out.signed(head.tid.into())?;
    out.signed(head.tgid.into())?;
    out.string(&child_comm)?;
    out.signed(child_tid.into())?;
    out.signed(child_tgid.into())?;
    Ok(out.unsigned(child_files)?)
}

fn write_task_end(
    kind: RecordKind,
    from: &mut Reader<'_>,
    out: &mut Record<'_>,
) -> Result<(), EncodeError> {
    out.string(&from.comm()?)?;
    out.signed(from.i32()?.into())?;
    out.signed(from.i32()?.into())?;
    let group_dead = from.i32()? != 0;
    if kind == RecordKind::Exit {
        out.unsigned(group_dead.into())?;
    }
    Ok(())
}

fn write_dumped_task(from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    let name = from.comm()?;
    let files = from.u64()?;
    for _ in 0..3 {
        out.signed(from.i32()?.into())?; // thread, process, parent
    }
    let (kind, status, cpu) = (from.i32()?, from.i32()?, from.i32()?);
    out.string(&name)?;
    out.signed(kind.into())?;
    out.signed(MODE_UNKNOWN)?;
    out.signed(0)?; // no submode
    out.signed(status.into())?;
    out.signed(cpu.into())?;
    Ok(out.unsigned(files)?)
}

fn write_dumped_file(from: &mut Reader<'_>, out: &mut Record<'_>) -> Result<(), EncodeError> {
    const UNIX_NAME_BYTES: usize = 108;
    out.unsigned(from.u64()?)?; // file table
    out.signed(from.i32()?.into())?; // process
    out.signed(from.i32()?.into())?; // descriptor
    out.unsigned(from.u32()?.into())?; // flags
    out.unsigned(from.u32()?.into())?; // mode
    let (family, kind) = (from.u16()?, from.u16()?);
    let (local_port, peer_port) = (from.u16()?, from.u16()?);
    let (local, peer) = (from.array()?, from.array()?);
    let unix_name_len = from.u32()? as usize;
    from.u32()?;
    let unix_name = from.bytes(UNIX_NAME_BYTES)?;
    from.u32()?;
    let unix_name = unix_name.get(..unix_name_len).unwrap_or_default();
    let socket = Socket { family, kind, local_port, peer_port, local, peer, unix_name };
    let path = from.string()?;
    match socket.name() {
        Some(name) => Ok(out.string(name.as_bytes())?),
        None => Ok(out.string(path)?),
    }
}

#[cfg(test)]
mod tests {
    use ctf::writer::TraceClass;

    use super::*;

    #[test]
    fn names_towards_the_root_become_a_path() {
        let path = |bytes: &[u8]| resolved(&mut Reader::new(bytes)).unwrap();
        assert_eq!(path(b"\x01passwd\0etc\0\0"), b"/etc/passwd");
        assert_eq!(path(b"\x01\0"), b"/");
        assert_eq!(path(b"\0"), b"");
    }

    #[test]
    fn a_cut_record_is_an_error_with_its_offset_and_leaves_the_packet_alone() {
        let schema = Schema::new();
        let clock = ctf::ClockClass::new("monotonic");
        let (context, events) = (schema.context.clone(), schema.events.clone());
        let trace = TraceClass::per_cpu(ctf::Uuid([1; 16]), clock, Vec::new(), context, events);
        let writer = ctf::writer::Schema::new(trace).unwrap();
        let mut packet = writer.open_cpu(0, 0, 4096).unwrap();
        let mut record = vec![0; 48];
        record[40] = RecordKind::CallEntry as u8;
        record.extend_from_slice(&[0; 20]);
        let error = append(&schema, &mut packet, 5, &record).unwrap_err();
        let EncodeError::Record(RecordError::Short { offset_bytes, needed, left }) = error else {
            panic!("{error:?}");
        };
        assert_eq!((offset_bytes, needed, left), (64, 8, 4));
        assert_eq!(packet.records(), 0);
    }
}
