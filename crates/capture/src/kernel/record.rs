//! Reads what the eBPF programs put into the ring buffers; the layout is in `bpf/record.h`.
//!
//! The bytes come from the kernel, yet a short one is an error and not a panic: the two sides are separate programs.

/// Bytes of a task's name.
pub(super) const COMM_BYTES: usize = 16;

/// Bytes of an interrupt handler's name.
pub(super) const IRQ_NAME_BYTES: usize = 32;
/// Bytes of a network interface's name.
pub(super) const INTERFACE_BYTES: usize = 16;
/// Bytes of a disk's name.
pub(super) const DISK_NAME_BYTES: usize = 32;

/// The kinds of records, numbered as in `bpf/record.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum RecordKind {
    CallEntry = 1,
    CallExit = 2,
    Switch = 3,
    Waking = 4,
    Wakeup = 5,
    WakeupNew = 6,
    Fork = 7,
    Exec = 8,
    Exit = 9,
    Free = 10,
    Migrate = 11,
    DumpStart = 12,
    DumpTask = 13,
    DumpFile = 14,
    DumpEnd = 15,
    IrqEntry = 16,
    IrqExit = 17,
    SoftirqEntry = 18,
    SoftirqExit = 19,
    SoftirqRaise = 20,
    BlockIssue = 21,
    BlockComplete = 22,
    BlockRemap = 23,
    PacketSend = 24,
    PacketReceive = 25,
    PageAlloc = 26,
    PageFree = 27,
    DumpDisk = 28,
    HotPlug = 29,
}

impl RecordKind {
    fn from_number(number: u16) -> Option<Self> {
        const ALL: [RecordKind; 29] = [
            RecordKind::CallEntry,
            RecordKind::CallExit,
            RecordKind::Switch,
            RecordKind::Waking,
            RecordKind::Wakeup,
            RecordKind::WakeupNew,
            RecordKind::Fork,
            RecordKind::Exec,
            RecordKind::Exit,
            RecordKind::Free,
            RecordKind::Migrate,
            RecordKind::DumpStart,
            RecordKind::DumpTask,
            RecordKind::DumpFile,
            RecordKind::DumpEnd,
            RecordKind::IrqEntry,
            RecordKind::IrqExit,
            RecordKind::SoftirqEntry,
            RecordKind::SoftirqExit,
            RecordKind::SoftirqRaise,
            RecordKind::BlockIssue,
            RecordKind::BlockComplete,
            RecordKind::BlockRemap,
            RecordKind::PacketSend,
            RecordKind::PacketReceive,
            RecordKind::PageAlloc,
            RecordKind::PageFree,
            RecordKind::DumpDisk,
            RecordKind::HotPlug,
        ];
        ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}

/// A record that the programs cannot have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It ends inside a field.
    #[error("needs {needed} bytes at offset {offset_bytes} and {left} are left")]
    Short {
        /// Where the field begins.
        offset_bytes: usize,
        /// Size of the field.
        needed: usize,
        /// What is left.
        left: usize,
    },
    /// A kind that does not exist.
    #[error("unknown kind {0}")]
    Kind(u16),
}

/// What every record begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) time_ns: u64,
    /// Address of the current task's file table.
    pub(super) files: u64,
    pub(super) tid: i32,
    pub(super) tgid: i32,
    pub(super) comm: [u8; COMM_BYTES],
    pub(super) kind: RecordKind,
    /// A 32-bit system call.
    pub(super) compat: bool,
    /// Number of the system call.
    pub(super) call: i32,
}

/// A cursor over a record.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) fn head(&mut self) -> Result<Head, RecordError> {
        let time_ns = self.u64()?;
        let files = self.u64()?;
        let (tid, tgid) = (self.i32()?, self.i32()?);
        let comm = self.array()?;
        let kind = u16::from_le_bytes(self.array()?);
        let compat = u16::from_le_bytes(self.array()?) != 0;
        let call = self.i32()?;
        let kind = RecordKind::from_number(kind).ok_or(RecordError::Kind(kind))?;
        Ok(Head { time_ns, files, tid, tgid, comm, kind, compat, call })
    }

    pub(super) fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn comm(&mut self) -> Result<[u8; COMM_BYTES], RecordError> {
        self.array()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let rest = self.rest();
        let array = rest.first_chunk::<N>().copied().ok_or_else(|| self.short(N))?;
        self.offset += N;
        Ok(array)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let found = self.rest().get(..len).ok_or_else(|| self.short(len))?;
        self.offset += len;
        Ok(found)
    }

    /// A string without its NUL.
    pub(super) fn string(&mut self) -> Result<&'a [u8], RecordError> {
        let rest = self.rest();
        let len = rest.iter().position(|byte| *byte == 0).ok_or_else(|| self.short(1))?;
        self.offset += len + 1;
        Ok(rest.get(..len).unwrap_or_default())
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    fn short(&self, needed: usize) -> RecordError {
        RecordError::Short {
            offset_bytes: self.offset,
            needed,
            left: self.bytes.len().saturating_sub(self.offset),
        }
    }
}

/// The time of a record without reading the rest of it.
pub(super) fn time_ns(record: &[u8]) -> Option<u64> {
    record.first_chunk().copied().map(u64::from_le_bytes)
}
