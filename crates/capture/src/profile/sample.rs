//! Reads the samples that the program puts into the ring; the layout is in `bpf/sample.h`.

use model::{CpuId, Pid, Tid};
use unwind::walk::Registers;

use super::python::PythonEnd;

/// Bytes of a thread's name.
const COMM_BYTES: usize = 16;

/// How the walk over a user stack ended, numbered as in `bpf/sample.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// A thread of the kernel has no user stack.
    None,
    /// The thread's first function.
    Root,
    /// Nothing was known of the process yet.
    NoProcess,
    /// Code of no known file.
    NoMapping,
    /// Its file says nothing of it.
    NoRule,
    /// Memory that the walk asked for was not there.
    NoMemory,
    /// The caller's frame was not above.
    Loop,
    /// More frames than are walked.
    TooDeep,
    /// A 32-bit process.
    Not64Bit,
    /// The thread went on before its stack was walked.
    Late,
}

impl StackEnd {
    const ALL: [Self; 10] = [
        Self::None,
        Self::Root,
        Self::NoProcess,
        Self::NoMapping,
        Self::NoRule,
        Self::NoMemory,
        Self::Loop,
        Self::TooDeep,
        Self::Not64Bit,
        Self::Late,
    ];
}

/// A sample as the program wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawSample<'a> {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) time_ns: u64,
    /// When its process started, nanoseconds since boot.
    pub(super) process_start_ns: u64,
    /// What it stands for.
    pub(super) weight_ns: u64,
    /// Whether the thread was off the CPU.
    pub(super) off_cpu: bool,
    /// What the program knew of the process is what was so at this time.
    pub(super) known_ns: u64,
    pub(super) cgroup: u64,
    /// Where the walk over the user stack began.
    pub(super) registers: Registers,
    pub(super) tid: Tid,
    pub(super) pid: Pid,
    pub(super) cpu: CpuId,
    pub(super) end: StackEnd,
    pub(super) name: [u8; COMM_BYTES],
    user: &'a [u8],
    kernel: &'a [u8],
    /// The user stack from its stack pointer on, when it was copied.
    pub(super) stack: &'a [u8],
    /// Frames of CPython.
    pub(super) python: RawPython<'a>,
}

/// What the program wrote of CPython's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawPython<'a> {
    pub(super) end: PythonEnd,
    /// Of the interpreter's version.
    pub(super) minor: u8,
    pub(super) records: u16,
    pub(super) bytes: &'a [u8],
}

impl<'a> RawSample<'a> {
    /// Reads one; `None` when it is not as the program writes it.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut words = [0; 8];
        for word in &mut words {
            *word = u64::from_ne_bytes(take(&mut rest)?);
        }
        let [time_ns, process_start_ns, weight_ns, known_ns, cgroup, pc, sp, fp] = words;
        let (tid, pid) =
            (i32::from_ne_bytes(take(&mut rest)?), i32::from_ne_bytes(take(&mut rest)?));
        let cpu = u32::from_ne_bytes(take(&mut rest)?);
        let kernel_frames = usize::from(u16::from_ne_bytes(take(&mut rest)?));
        let user_frames = usize::from(u16::from_ne_bytes(take(&mut rest)?));
        let stack_bytes = usize::try_from(u32::from_ne_bytes(take(&mut rest)?)).ok()?;
        let [end, off_cpu] = take(&mut rest)?;
        let records = u16::from_ne_bytes(take(&mut rest)?);
        let python_bytes = usize::try_from(u32::from_ne_bytes(take(&mut rest)?)).ok()?;
        let [python_end, minor, _, _] = take(&mut rest)?;
        let name = take(&mut rest)?;
        let (user, rest) = rest.split_at_checked(user_frames * 8)?;
        let (kernel, rest) = rest.split_at_checked(kernel_frames * 8)?;
        let (stack, rest) = rest.split_at_checked(stack_bytes)?;
        let python = RawPython {
            end: *PythonEnd::ALL.get(usize::from(python_end))?,
            minor,
            records,
            bytes: rest.get(..python_bytes)?,
        };
        Some(Self {
            time_ns,
            process_start_ns,
            weight_ns,
            off_cpu: off_cpu != 0,
            known_ns,
            cgroup,
            registers: Registers { pc, sp, fp, lr: 0 },
            tid: Tid::new(tid),
            pid: Pid::new(pid),
            cpu: CpuId::new(cpu),
            end: *StackEnd::ALL.get(usize::from(end))?,
            name,
            user,
            kernel,
            stack,
            python,
        })
    }

    /// Addresses of the user stack, the innermost first; those of callers lie inside the call.
    pub(super) fn user_frames(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        addresses(self.user)
    }

    /// Addresses of the kernel's stack, the innermost first; those of callers are where they are returned to.
    pub(super) fn kernel_frames(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        addresses(self.kernel)
    }
}

fn addresses<'a>(bytes: &'a [u8]) -> impl ExactSizeIterator<Item = u64> + 'a {
    bytes.as_chunks().0.iter().map(|address| u64::from_ne_bytes(*address))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*array)
}
