//! The kernel's performance events: the clock that samples, and the side band that tells what processes map.
#![expect(
    unsafe_code,
    reason = "a system call without a safe wrapper, and memory that the kernel writes"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::libbpf_sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Pages of a side band's ring: 1 MiB, some 8,000 mappings between two turns.
const SIDE_BAND_PAGES: usize = 256;
/// Pages of a ring of copied stacks: 2 MiB.
const COPIES_PAGES: usize = 512;
/// Pages of the smallest ring that is taken where little memory may be locked: 32 KiB.
const FEWEST_PAGES: usize = 8;
const PAGE_BYTES: usize = 4096;

/// `perf_event_attr` bits, include/uapi/linux/perf_event.h, in the order in which the bit field has them.
mod bit {
    pub(super) const DISABLED: u64 = 1 << 0;
    pub(super) const INHERIT: u64 = 1 << 1;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const EXCLUDE_IDLE: u64 = 1 << 7;
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const COMM: u64 = 1 << 9;
    pub(super) const FREQ: u64 = 1 << 10;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const WATERMARK: u64 = 1 << 14;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    pub(super) const MMAP2: u64 = 1 << 23;
    pub(super) const COMM_EXEC: u64 = 1 << 24;
    pub(super) const USE_CLOCKID: u64 = 1 << 25;
    pub(super) const KSYMBOL: u64 = 1 << 29;
    pub(super) const BUILD_ID: u64 = 1 << 34;
}

/// Bit 34 of the field came with Linux 5.12; the bindings' field is a union of bit fields, so it is set as a whole.
fn attributes(kind: u32, config: u64, flags: u64) -> libbpf_sys::perf_event_attr {
    // SAFETY: all bits zero is a valid value of this struct of integers.
    let mut attributes: libbpf_sys::perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = kind;
    attributes.size = u32::try_from(size_of::<libbpf_sys::perf_event_attr>()).unwrap_or(u32::MAX);
    attributes.config = config;
    attributes._bitfield_1 = libbpf_sys::__BindgenBitfieldUnit::new(flags.to_ne_bytes());
    attributes
}

/// All processes, as the thread of an event.
pub(super) const ALL_PROCESSES: libc::pid_t = -1;

/// Opens an event of a thread, or of all, on a CPU.
fn open(
    attributes: &libbpf_sys::perf_event_attr,
    thread: libc::pid_t,
    cpu: i32,
) -> io::Result<OwnedFd> {
    const NO_GROUP: libc::c_int = -1;
    let close_on_exec = u64::from(libbpf_sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the kernel reads `size` bytes of the struct, which lives until the call returns.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            thread,
            cpu,
            NO_GROUP,
            close_on_exec,
        )
    };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A clock that runs a program `frequency_hz` times a second on a CPU, whatever it does. It stands until a program is attached.
///
/// # Errors
/// The kernel's.
pub(super) fn clock(cpu: i32, frequency_hz: u64) -> io::Result<OwnedFd> {
    let kind = libbpf_sys::PERF_TYPE_SOFTWARE;
    let config = u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK);
    let mut attributes = attributes(kind, config, bit::FREQ | bit::DISABLED);
    attributes.__bindgen_anon_1.sample_freq = frequency_hz;
    open(&attributes, ALL_PROCESSES, cpu)
}

/// Has a clock run its program each so many nanoseconds from now on.
///
/// # Errors
/// The kernel's.
pub(super) fn set_period(clock: &OwnedFd, period_ns: u64) -> io::Result<()> {
    /// `PERF_EVENT_IOC_PERIOD` of include/uapi/linux/perf_event.h. The clock counts in nanoseconds, also one that was opened with
    /// a frequency.
    const IOC_PERIOD: libc::Ioctl = 0x4008_2404;
    // SAFETY: the kernel reads eight bytes, which live until the call returns.
    let done =
        unsafe { libc::ioctl(clock.as_raw_fd(), IOC_PERIOD, std::ptr::from_ref(&period_ns)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A ring that the kernel writes records to.
#[derive(Debug)]
struct Ring {
    /// The kernel's page, and the ring behind it.
    memory: NonNull<u8>,
    /// Of the ring; a power of two.
    bytes: usize,
    /// What was read of the ring last.
    buffer: Vec<u8>,
}

impl Ring {
    /// Maps that of an event; a smaller one where so much memory may not be locked.
    ///
    /// # Errors
    /// The kernel's.
    fn map(event: &OwnedFd, pages: usize) -> io::Result<Self> {
        let bytes = pages * PAGE_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of which nobody else knows.
        let mapped = unsafe {
            mmap(std::ptr::null_mut(), PAGE_BYTES + bytes, protection, MapFlags::SHARED, event, 0)
        };
        match mapped {
            Ok(memory) => {
                let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
                Ok(Self { memory, bytes, buffer: Vec::new() })
            }
            Err(rustix::io::Errno::PERM) if pages > FEWEST_PAGES => Self::map(event, pages / 2),
            Err(error) => Err(error.into()),
        }
    }

    /// What was written since the last time: records, one behind the other, whole.
    fn read(&mut self) -> &[u8] {
        let page = self.memory.cast::<libbpf_sys::perf_event_mmap_page>();
        // SAFETY: the mapping begins with this page, which lives as long as `self`; both numbers are aligned, and the kernel
        // and we agree that they are read and written as a whole.
        let (head, tail) = unsafe {
            let head = std::ptr::addr_of_mut!((*page.as_ptr()).data_head);
            let tail = std::ptr::addr_of_mut!((*page.as_ptr()).data_tail);
            (AtomicU64::from_ptr(head), AtomicU64::from_ptr(tail))
        };
        let (begin, end) = (tail.load(Ordering::Relaxed), head.load(Ordering::Acquire));
        let len = usize::try_from(end.wrapping_sub(begin)).unwrap_or(0).min(self.bytes);
        let ring_mask = self.bytes as u64 - 1;
        let at = usize::try_from(begin & ring_mask).unwrap_or(0);
        let first = len.min(self.bytes - at);
        self.buffer.clear();
        // SAFETY: the ring lies behind the first page; the kernel does not write between tail and head, and both pieces lie inside.
        unsafe {
            let ring = self.memory.as_ptr().add(PAGE_BYTES).cast_const();
            self.buffer.extend_from_slice(std::slice::from_raw_parts(ring.add(at), first));
            self.buffer.extend_from_slice(std::slice::from_raw_parts(ring, len - first));
        }
        tail.store(end, Ordering::Release);
        &self.buffer
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing borrows from it.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), PAGE_BYTES + self.bytes) };
        debug_assert!(unmapped.is_ok(), "{self:?}");
    }
}

// SAFETY: the memory is the kernel's and ours alone, and is read through `&mut self`.
unsafe impl Send for Ring {}

/// Events of several threads on one CPU, and the ring that they share.
#[derive(Debug)]
struct Events {
    /// At least one.
    events: Vec<OwnedFd>,
    ring: Ring,
}

impl Events {
    fn open(
        attributes: &libbpf_sys::perf_event_attr,
        threads: &[libc::pid_t],
        cpu: i32,
        pages: usize,
    ) -> io::Result<Self> {
        /// `PERF_EVENT_IOC_SET_OUTPUT` of include/uapi/linux/perf_event.h.
        const IOC_SET_OUTPUT: libc::Ioctl = 0x2405;
        let (mut events, mut ring) = (Vec::<OwnedFd>::with_capacity(threads.len()), None);
        for thread in threads {
            let event = match open(attributes, *thread, cpu) {
                // It ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                opened => opened?,
            };
            if let Some(first) = events.first() {
                // SAFETY: both are events, and no memory is handed over.
                let done =
                    unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_OUTPUT, first.as_raw_fd()) };
                if done < 0 {
                    return Err(io::Error::last_os_error());
                }
            } else {
                ring = Some(Ring::map(&event, pages)?);
            }
            events.push(event);
        }
        let ring = ring.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Ok(Self { events, ring })
    }
}

/// What the kernel tells of the processes of one CPU: records in the order in which they happened there.
#[derive(Debug)]
pub(super) struct SideBand(Events);

impl SideBand {
    /// Opens that of a CPU, of these threads and what they start.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(cpu: i32, threads: &[libc::pid_t]) -> io::Result<Self> {
        let kind = libbpf_sys::PERF_TYPE_SOFTWARE;
        let config = u64::from(libbpf_sys::PERF_COUNT_SW_DUMMY);
        let of_some = if threads == [ALL_PROCESSES] {
            bit::KSYMBOL
        } else {
            bit::INHERIT | bit::EXCLUDE_KERNEL
        };
        let flags = bit::MMAP
            | bit::MMAP2
            | bit::COMM
            | bit::COMM_EXEC
            | bit::TASK
            | bit::SAMPLE_ID_ALL
            | bit::WATERMARK
            | bit::USE_CLOCKID
            | of_some;
        let mut attributes = attributes(kind, config, flags | bit::BUILD_ID);
        attributes.sample_type = u64::from(libbpf_sys::PERF_SAMPLE_TIME);
        attributes.clockid = libc::CLOCK_MONOTONIC;
        attributes.__bindgen_anon_2.wakeup_watermark =
            u32::try_from(SIDE_BAND_PAGES * PAGE_BYTES / 2).unwrap_or(u32::MAX);
        let opened = match Events::open(&attributes, threads, cpu, SIDE_BAND_PAGES) {
            // Before Linux 5.12 there were no build ids in it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                attributes._bitfield_1 =
                    libbpf_sys::__BindgenBitfieldUnit::new(flags.to_ne_bytes());
                Events::open(&attributes, threads, cpu, SIDE_BAND_PAGES)
            }
            opened => opened,
        };
        opened.map(Self)
    }

    /// What was written since the last time: records, one behind the other, whole.
    pub(super) fn read(&mut self) -> &[u8] {
        self.0.ring.read()
    }
}

/// What a clock that copies stacks writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copying {
    pub(super) period_ns: u64,
    /// Registers of the process, as bits of `asm/perf_regs.h`.
    pub(super) registers: u64,
    /// The most bytes of a stack; a multiple of eight.
    pub(super) stack_bytes: u32,
    /// Whether it counts in the kernel, too, and has its stack.
    pub(super) with_kernel: bool,
}

/// A clock that writes a copy of the stack of whoever runs on a CPU.
#[derive(Debug)]
pub(super) struct CopyingClock(Events);

impl CopyingClock {
    /// Opens that of a CPU, for these threads and what they start. It stands until it is started.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(cpu: i32, threads: &[libc::pid_t], what: &Copying) -> io::Result<Self> {
        let kind = libbpf_sys::PERF_TYPE_SOFTWARE;
        let config = u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK);
        let inherit = if threads == [ALL_PROCESSES] { 0 } else { bit::INHERIT };
        let flags = bit::DISABLED
            | bit::EXCLUDE_IDLE
            | bit::EXCLUDE_CALLCHAIN_USER
            | bit::WATERMARK
            | bit::USE_CLOCKID
            | inherit
            | if what.with_kernel { 0 } else { bit::EXCLUDE_KERNEL };
        let mut attributes = attributes(kind, config, flags);
        attributes.__bindgen_anon_1.sample_period = what.period_ns;
        attributes.sample_type = u64::from(
            libbpf_sys::PERF_SAMPLE_TID
                | libbpf_sys::PERF_SAMPLE_TIME
                | libbpf_sys::PERF_SAMPLE_CPU
                | libbpf_sys::PERF_SAMPLE_CALLCHAIN
                | libbpf_sys::PERF_SAMPLE_REGS_USER
                | libbpf_sys::PERF_SAMPLE_STACK_USER,
        );
        attributes.sample_regs_user = what.registers;
        attributes.sample_stack_user = what.stack_bytes;
        attributes.clockid = libc::CLOCK_MONOTONIC;
        attributes.__bindgen_anon_2.wakeup_watermark =
            u32::try_from(COPIES_PAGES * PAGE_BYTES / 2).unwrap_or(u32::MAX);
        Events::open(&attributes, threads, cpu, COPIES_PAGES).map(Self)
    }

    /// Lets it run, or stand.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn run(&self, runs: bool) -> io::Result<()> {
        /// `PERF_EVENT_IOC_ENABLE` of include/uapi/linux/perf_event.h.
        const IOC_ENABLE: libc::Ioctl = 0x2400;
        /// `PERF_EVENT_IOC_DISABLE` of the same.
        const IOC_DISABLE: libc::Ioctl = 0x2401;
        for event in &self.0.events {
            let what = if runs { IOC_ENABLE } else { IOC_DISABLE };
            // SAFETY: no memory is handed over.
            if unsafe { libc::ioctl(event.as_raw_fd(), what, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Has it go off each so many nanoseconds from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn set_period(&self, period_ns: u64) -> io::Result<()> {
        self.0.events.iter().try_for_each(|event| set_period(event, period_ns))
    }

    /// What was written since the last time: records, one behind the other, whole.
    pub(super) fn read(&mut self) -> &[u8] {
        self.0.ring.read()
    }
}
