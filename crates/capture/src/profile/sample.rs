//! Reads the samples that the program puts into the ring; the layout is in `bpf/sample.h`.

use model::{CpuId, Pid, Tid};
use profile::Link;
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
    pub(super) span: Option<Link>,
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
        let mut words = [0; 9];
        for word in &mut words {
            *word = u64::from_ne_bytes(take(&mut rest)?);
        }
        let [time_ns, process_start_ns, weight_ns, known_ns, cgroup, pc, sp, fp, lr] = words;
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
        let span = Link { trace_id: take(&mut rest)?, span_id: take(&mut rest)? };
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
            // Ids of zeros are none: W3C Trace Context.
            span: Some(span).filter(|span| span.trace_id != [0; 16] && span.span_id != [0; 8]),
            registers: Registers { pc, sp, fp, lr },
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

    /// One of a thread that ran, with a copy of its stack, for whoever walks it here. `kernel`: addresses in this machine's order of bytes.
    pub(super) fn of_copy(
        (time_ns, weight_ns): (u64, u64),
        process_start_ns: u64,
        (pid, tid, cpu): (Pid, Tid, CpuId),
        registers: Registers,
        kernel: &'a [u8],
        stack: &'a [u8],
    ) -> Self {
        Self {
            time_ns,
            process_start_ns,
            weight_ns,
            off_cpu: false,
            known_ns: 0,
            cgroup: 0,
            span: None,
            registers,
            tid,
            pid,
            cpu,
            end: if stack.is_empty() { StackEnd::None } else { StackEnd::NoProcess },
            name: [0; COMM_BYTES],
            user: &[],
            kernel,
            stack,
            python: RawPython { end: PythonEnd::None, minor: 0, records: 0, bytes: &[] },
        }
    }

    /// As the program would have written it.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Registers { pc, sp, fp, lr } = self.registers;
        let words = [
            self.time_ns,
            self.process_start_ns,
            self.weight_ns,
            self.known_ns,
            self.cgroup,
            pc,
            sp,
            fp,
            lr,
        ];
        let short = |bytes: &[u8]| u16::try_from(bytes.len() / 8).unwrap_or(u16::MAX).to_ne_bytes();
        let end = StackEnd::ALL.iter().position(|end| *end == self.end);
        let end = end.and_then(|end| u8::try_from(end).ok()).unwrap_or(0);
        let python_end = PythonEnd::ALL.iter().position(|end| *end == self.python.end);
        let python_end = python_end.and_then(|end| u8::try_from(end).ok()).unwrap_or(0);
        [
            words.map(u64::to_ne_bytes).as_flattened(),
            &self.tid.get().to_ne_bytes(),
            &self.pid.get().to_ne_bytes(),
            &self.cpu.get().to_ne_bytes(),
            &short(self.kernel),
            &short(self.user),
            &u32::try_from(self.stack.len()).unwrap_or(u32::MAX).to_ne_bytes(),
            &[end, u8::from(self.off_cpu)],
            &self.python.records.to_ne_bytes(),
            &u32::try_from(self.python.bytes.len()).unwrap_or(u32::MAX).to_ne_bytes(),
            &[python_end, self.python.minor, 0, 0],
            &self.name,
            &self.span.map_or([0; 16], |span| span.trace_id),
            &self.span.map_or([0; 8], |span| span.span_id),
            self.user,
            self.kernel,
            self.stack,
            self.python.bytes,
        ]
        .concat()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let kernel = [1_u64, 2, 3].map(u64::to_ne_bytes);
        let who = (Pid::new(5), Tid::new(6), CpuId::new(7));
        let registers = Registers { pc: 8, sp: 9, fp: 10, lr: 11 };
        let sample =
            RawSample::of_copy((1, 2), 3, who, registers, kernel.as_flattened(), &[4; 100]);
        let bytes = sample.to_bytes();
        assert_eq!(RawSample::read(&bytes), Some(sample));
        for cut in 0..bytes.len() {
            assert_eq!(RawSample::read(&bytes[..cut]), None);
        }
    }
}
