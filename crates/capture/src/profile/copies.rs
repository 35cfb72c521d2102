//! Sampling without programs in the kernel: the kernel's own events with a copy of the stack, which is walked here.
//!
//! It needs less rights than programs do, costs more for each sample, and a stack that is longer than the copy ends with `fault`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process;

use model::{CpuId, Pid, Tid};
use unwind::walk::Registers;

use super::change::{Fields, records};
use super::perf::{ALL_PROCESSES, Copying, CopyingClock, SideBand};
use super::programs::Counts;
use super::sample::RawSample;

/// Of a stack that is copied. The ring has room for some hundred.
const STACK_BYTES: u32 = 16 << 10;

/// Processes of which it is known when they started.
const MAX_STARTS: usize = 65_536;

/// Frame pointer, stack pointer and program counter, arch/x86/include/uapi/asm/perf_regs.h: in the order of these bits.
#[cfg(target_arch = "x86_64")]
const USER_REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// The same and the link register, arch/arm64/include/uapi/asm/perf_regs.h.
#[cfg(target_arch = "aarch64")]
const USER_REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;

/// Addresses at and above this one say whose the next ones are (`PERF_CONTEXT_MAX`).
const CONTEXTS: u64 = 4096_u64.wrapping_neg();

/// The clocks of all CPUs.
#[derive(Debug)]
pub(super) struct Copies {
    clocks: Vec<(i32, CopyingClock)>,
    period_ns: u64,
    /// Samples from then on do not count: `CLOCK_MONOTONIC`.
    end_ns: u64,
    /// Not to be sampled when only some processes are.
    own: Option<Pid>,
    counts: Counts,
    /// Records that are no records, and samples that end inside a field.
    malformed: u64,
    starts: HashMap<Pid, u64>,
    /// Whether samples have the kernel's frames.
    pub(super) with_kernel: bool,
}

/// The threads to sample: of the processes that are listed, and of this one the thread that starts others; or all.
pub(super) fn threads(processes: Option<&[Pid]>, caller: Tid) -> Vec<libc::pid_t> {
    let own = process::id().cast_signed();
    let Some(processes) = processes else { return vec![ALL_PROCESSES] };
    let of_process = |pid: &Pid| {
        if pid.get() == own {
            return vec![caller.get()];
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", pid.get())).into_iter().flatten();
        tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
    };
    processes.iter().flat_map(of_process).collect()
}

impl Copies {
    /// Opens the clocks and the side bands; they stand. Without the kernel's frames where those are not allowed.
    ///
    /// # Errors
    /// The kernel's: `PermissionDenied` when no event is allowed.
    pub(super) fn open(
        cpus: &[i32],
        threads: &[libc::pid_t],
        period_ns: u64,
    ) -> io::Result<(Self, Vec<SideBand>)> {
        let clocks = |with_kernel| {
            let what = Copying {
                period_ns,
                registers: USER_REGISTERS,
                stack_bytes: STACK_BYTES,
                with_kernel,
            };
            let open = |cpu: &i32| Ok((*cpu, CopyingClock::open(*cpu, threads, &what)?));
            cpus.iter().map(open).collect::<io::Result<Vec<_>>>()
        };
        let (clocks, with_kernel) = match clocks(true) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (clocks(false)?, false)
            }
            opened => (opened?, true),
        };
        let side_bands =
            cpus.iter().map(|cpu| SideBand::open(*cpu, threads)).collect::<io::Result<_>>()?;
        let own = (threads != [ALL_PROCESSES]).then(|| Pid::new(process::id().cast_signed()));
        let copies = Self {
            clocks,
            period_ns,
            end_ns: u64::MAX,
            own,
            counts: Counts::default(),
            malformed: 0,
            starts: HashMap::new(),
            with_kernel,
        };
        Ok((copies, side_bands))
    }

    /// Lets the clocks run until a moment.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn start(&mut self, end_ns: u64) -> io::Result<()> {
        self.end_ns = end_ns;
        self.clocks.iter().try_for_each(|(_, clock)| clock.run(true))
    }

    /// Lets them stand; what was written stays readable.
    pub(super) fn stop(&self) {
        for (_, clock) in &self.clocks {
            // One that cannot be stopped counts for nothing from its end on.
            drop(clock.run(false));
        }
    }

    /// Has them go off each so many nanoseconds.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn set_period(&mut self, period_ns: u64) -> io::Result<()> {
        self.period_ns = period_ns;
        self.clocks.iter().try_for_each(|(_, clock)| clock.set_period(period_ns))
    }

    /// What was counted until now.
    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Records that could not be read.
    pub(super) const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// A process is gone.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.starts.remove(&pid);
    }

    /// Gives the samples that were written since the last time, as a program would have written them.
    pub(super) fn read(&mut self, mut each: impl FnMut(&[u8])) {
        let Self { clocks, counts, starts, malformed, .. } = self;
        for (cpu, clock) in clocks {
            for record in records(clock.read()) {
                let Some((kind, _, body)) = record else {
                    *malformed += 1;
                    continue;
                };
                let mut body = Fields(body);
                match kind {
                    PERF_RECORD_LOST => {
                        let lost = body.u64().and_then(|_| body.u64()).unwrap_or(0);
                        counts.runs += lost;
                        counts.no_room += lost;
                    }
                    PERF_RECORD_SAMPLE => {
                        let Some(copy) = Copy::read(body) else {
                            *malformed += 1;
                            continue;
                        };
                        if copy.time_ns >= self.end_ns {
                            continue;
                        }
                        counts.runs += 1;
                        if self.own == Some(copy.pid) {
                            counts.unlisted += 1;
                            continue;
                        }
                        counts.sent += 1;
                        counts.stacks += u64::from(!copy.stack.is_empty());
                        let start_ns = start_of(copy.pid, starts);
                        each(&copy.sample(self.period_ns, start_ns, *cpu));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A sample as the kernel wrote it.
struct Copy<'a> {
    pid: Pid,
    tid: Tid,
    time_ns: u64,
    registers: Registers,
    kernel: Vec<u8>,
    stack: &'a [u8],
}

impl<'a> Copy<'a> {
    /// `None` when it ends inside a field.
    fn read(mut from: Fields<'a>) -> Option<Self> {
        let (pid, tid) = (from.pid()?, from.pid()?);
        let time_ns = from.u64()?;
        let _cpu = from.u64()?;
        let frames = from.u64()?;
        let chain = from.bytes(usize::try_from(frames).ok()?.checked_mul(8)?)?;
        let kernel = chain
            .as_chunks::<8>()
            .0
            .iter()
            .filter(|address| u64::from_ne_bytes(**address) < CONTEXTS)
            .copied()
            .collect::<Vec<_>>();
        let mut registers = Registers { pc: 0, sp: 0, fp: 0, lr: 0 };
        // 0: a thread of the kernel has none.
        if from.u64()? != 0 {
            registers.fp = from.u64()?;
            if cfg!(target_arch = "aarch64") {
                registers.lr = from.u64()?;
            }
            (registers.sp, registers.pc) = (from.u64()?, from.u64()?);
        }
        let len = usize::try_from(from.u64()?).ok()?;
        let stack = from.bytes(len)?;
        let used = if len > 0 { usize::try_from(from.u64()?).ok()? } else { 0 };
        Some(Self {
            pid,
            tid: Tid::new(tid.get()),
            time_ns,
            registers,
            kernel: kernel.concat(),
            stack: stack.get(..used).unwrap_or(stack),
        })
    }

    fn sample(&self, period_ns: u64, start_ns: u64, cpu: i32) -> Vec<u8> {
        let who = (self.pid, self.tid, CpuId::new(cpu.cast_unsigned()));
        let at = (self.time_ns, period_ns);
        let mut sample =
            RawSample::of_copy(at, start_ns, who, self.registers, &self.kernel, self.stack);
        let path = format!("/proc/{}/task/{}/comm", self.pid.get(), self.tid.get());
        // It may be gone.
        let name = fs::read(path).unwrap_or_default();
        let name = name.strip_suffix(b"\n").unwrap_or(&name);
        for (to, from) in sample.name.iter_mut().zip(name) {
            *to = *from;
        }
        sample.to_bytes()
    }
}

/// When a process started, nanoseconds since boot; 0 when it is gone.
fn start_of(pid: Pid, known: &mut HashMap<Pid, u64>) -> u64 {
    if let Some(start_ns) = known.get(&pid) {
        return *start_ns;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.get())).unwrap_or_default();
    // Behind the name, which may hold anything, the twentieth is the start in clock ticks.
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(20)?.parse().ok());
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let start_ns = ticks.map_or(0, |ticks: u64| ticks.saturating_mul(1_000_000_000 / per_second));
    if known.len() < MAX_STARTS {
        known.insert(pid, start_ns);
    }
    start_ns
}
