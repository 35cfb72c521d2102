//! The kernel's performance events: the clock that samples, and the side band that tells what processes map.
#![expect(
    unsafe_code,
    reason = "a system call without a safe wrapper, and memory that the kernel writes"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::libbpf_sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Pages of a side band's ring: 256 KiB, some 2,000 mappings.
const RING_PAGES: usize = 64;
const PAGE_BYTES: usize = 4096;
const RING_BYTES: usize = RING_PAGES * PAGE_BYTES;

/// `perf_event_attr` bits, include/uapi/linux/perf_event.h, in the order in which the bit field has them.
mod bit {
    pub(super) const DISABLED: u64 = 1 << 0;
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const COMM: u64 = 1 << 9;
    pub(super) const FREQ: u64 = 1 << 10;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const WATERMARK: u64 = 1 << 14;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
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

fn open(attributes: &libbpf_sys::perf_event_attr, cpu: i32) -> io::Result<OwnedFd> {
    const ALL_PROCESSES: libc::c_int = -1;
    const NO_GROUP: libc::c_int = -1;
    let close_on_exec = u64::from(libbpf_sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the kernel reads `size` bytes of the struct, which lives until the call returns.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            ALL_PROCESSES,
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
    open(&attributes, cpu)
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

/// What the kernel tells of the processes of one CPU: records in the order in which they happened there.
#[derive(Debug)]
pub(super) struct SideBand {
    event: OwnedFd,
    /// The kernel's page, and the ring behind it.
    memory: NonNull<u8>,
    /// What was read of the ring last.
    buffer: Vec<u8>,
}

impl SideBand {
    /// Opens that of a CPU.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(cpu: i32) -> io::Result<Self> {
        let kind = libbpf_sys::PERF_TYPE_SOFTWARE;
        let config = u64::from(libbpf_sys::PERF_COUNT_SW_DUMMY);
        let flags = bit::MMAP
            | bit::MMAP2
            | bit::COMM
            | bit::COMM_EXEC
            | bit::TASK
            | bit::KSYMBOL
            | bit::SAMPLE_ID_ALL
            | bit::WATERMARK
            | bit::USE_CLOCKID;
        let mut attributes = attributes(kind, config, flags | bit::BUILD_ID);
        attributes.sample_type = u64::from(libbpf_sys::PERF_SAMPLE_TIME);
        attributes.clockid = libc::CLOCK_MONOTONIC;
        attributes.__bindgen_anon_2.wakeup_watermark =
            u32::try_from(RING_BYTES / 2).unwrap_or(u32::MAX);
        let event = match open(&attributes, cpu) {
            // Before Linux 5.12 there were no build ids in it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                attributes._bitfield_1 =
                    libbpf_sys::__BindgenBitfieldUnit::new(flags.to_ne_bytes());
                open(&attributes, cpu)?
            }
            opened => opened?,
        };
        // SAFETY: a new mapping, of which nobody else knows.
        let memory = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(
                std::ptr::null_mut(),
                PAGE_BYTES + RING_BYTES,
                protection,
                MapFlags::SHARED,
                &event,
                0,
            )?
        };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { event, memory, buffer: Vec::new() })
    }

    /// What was written since the last time: records, one behind the other, whole.
    pub(super) fn read(&mut self) -> &[u8] {
        let page = self.memory.cast::<libbpf_sys::perf_event_mmap_page>();
        // SAFETY: the mapping begins with this page, which lives as long as `self`; both numbers are aligned, and the kernel
        // and we agree that they are read and written as a whole.
        let (head, tail) = unsafe {
            let head = std::ptr::addr_of_mut!((*page.as_ptr()).data_head);
            let tail = std::ptr::addr_of_mut!((*page.as_ptr()).data_tail);
            (AtomicU64::from_ptr(head), AtomicU64::from_ptr(tail))
        };
        let (begin, end) = (tail.load(Ordering::Relaxed), head.load(Ordering::Acquire));
        let len = usize::try_from(end.wrapping_sub(begin)).unwrap_or(0).min(RING_BYTES);
        let ring_mask = RING_BYTES as u64 - 1;
        let at = usize::try_from(begin & ring_mask).unwrap_or(0);
        let first = len.min(RING_BYTES - at);
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

impl AsFd for SideBand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for SideBand {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open` with this length, and nothing borrows from it.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), PAGE_BYTES + RING_BYTES) };
        debug_assert!(unmapped.is_ok(), "descriptor {}", self.event.as_raw_fd());
    }
}
