//! The memory file of a process, with a place for the ring of each thread.
#![expect(unsafe_code, reason = "memory that an agent reads, and what happens at a fork")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::kept::Kept;
use crate::layout::{
    DROP_PLACES, DropReason, Header, MAGIC, Mode, RingHeader, RingState, SERVICE_LEN, Shape,
    VERSION,
};
use crate::options::{self, Options};
use crate::{clock, context, keeper, ring, sampling, site};

/// The arena of this process, once a thread has needed it. Never given back: threads may write to the last.
static ARENA: AtomicPtr<Arena> = AtomicPtr::new(ptr::null_mut());
/// A [`Making`].
static MAKING: AtomicU32 = AtomicU32::new(Making::NotYet as u32);
/// Held by who makes it.
static IN_HAND: Kept<()> = Kept::none();
/// Records that were dropped before there was an arena, for its header.
static EARLY: [AtomicU64; DROP_PLACES] = [const { AtomicU64::new(0) }; DROP_PLACES];

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Making {
    NotYet = 0,
    Done = 1,
    Failed = 2,
    Unwanted = 3,
}

/// A mapped memory file.
#[derive(Debug)]
pub(crate) struct Arena {
    begin: NonNull<u8>,
    shape: Shape,
    mode: Mode,
    file: OwnedFd,
}

// SAFETY: the memory lives as long as the process, and is shared by atomics and by what a claimed ring is to its thread.
unsafe impl Sync for Arena {}
// SAFETY: as above; nothing of it belongs to a thread.
unsafe impl Send for Arena {}

/// A place that a thread has claimed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) header: &'static RingHeader,
    pub(crate) sites: NonNull<u8>,
    pub(crate) records: NonNull<u8>,
    pub(crate) shape: Shape,
    pub(crate) mode: Mode,
}

/// The arena, which is made when there is none; `None` when it cannot be had.
pub(crate) fn get() -> Option<&'static Arena> {
    loop {
        // SAFETY: the pointer is null or that of a leaked box.
        if let Some(arena) = unsafe { ARENA.load(Ordering::Acquire).as_ref() } {
            return Some(arena);
        }
        let making = MAKING.load(Ordering::Acquire);
        if making == Making::Failed as u32 || making == Making::Unwanted as u32 {
            return None;
        }
        // First of all: what another thread has begun does not go on in a child.
        notice_forks();
        match IN_HAND.try_hold() {
            Some(_held) if MAKING.load(Ordering::Acquire) == Making::NotYet as u32 => make(),
            Some(_held) => {}
            // A signal handler: what it came between would not go on.
            None if IN_HAND.is_held_here() => return None,
            // Some ten microseconds, once in the life of a process.
            None => std::thread::yield_now(),
        }
    }
}

/// Counts a record that came to no ring.
pub(crate) fn count_drop(reason: DropReason) {
    // SAFETY: the pointer is null or that of a leaked box.
    let arena = unsafe { ARENA.load(Ordering::Acquire).as_ref() };
    let counts = arena.map_or(&EARLY, |arena| &arena.header().dropped);
    if let Some(count) = counts.get(reason as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn make() {
    let options = options::get();
    if !options.is_on {
        MAKING.store(Making::Unwanted as u32, Ordering::Release);
        return;
    }
    sampling::set_sampling(options.sampling);
    let Ok(arena) = Arena::new(&options) else {
        MAKING.store(Making::Failed as u32, Ordering::Release);
        return;
    };
    let arena: &'static Arena = Box::leak(Box::new(arena));
    ARENA.store(ptr::from_ref(arena).cast_mut(), Ordering::Release);
    MAKING.store(Making::Done as u32, Ordering::Release);
    keeper::start(arena, options.socket);
}

/// From now on [`in_child`] runs in each child. Waits for nobody, so that a fork meanwhile leaves nobody waiting: of threads that do this at once each does it,
/// and what runs twice does no harm.
fn notice_forks() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.load(Ordering::Acquire) {
        // SAFETY: the handler touches atomics, thread-locals without destructors and a descriptor only.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_DONE.store(true, Ordering::Release);
    }
}

/// A child has rings of its own: those of its parent go on being the parent's.
extern "C" fn in_child() {
    ring::forget();
    context::forget_ids();
    keeper::forget();
    options::in_child();
    site::in_child();
    ARENA.store(ptr::null_mut(), Ordering::Release);
    IN_HAND.take_back();
    if MAKING.load(Ordering::Acquire) != Making::Unwanted as u32 {
        MAKING.store(Making::NotYet as u32, Ordering::Release);
    }
}

impl Arena {
    fn new(options: &Options) -> io::Result<Self> {
        let shape = options.shape();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"tracepoints", flags)?;
        ftruncate(&file, shape.file_len())?;
        // A reader that maps it can rely on its length.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let len = usize::try_from(shape.file_len())
            .map_err(|_too_long| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let begin = unsafe {
            mmap(
                ptr::null_mut::<c_void>(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let begin = NonNull::new(begin.cast::<u8>())
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut service = [0; SERVICE_LEN];
        let name = options.service.as_bytes();
        service.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        let clock = clock::choose();
        let (made, made_monotonic_ns) = clock::both();
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            rings: shape.rings,
            ring_len: shape.ring_len,
            sites_len: shape.sites_len,
            mode: options.mode as u32,
            clock: clock as u32,
            pid: std::process::id(),
            reserved: 0,
            made,
            made_monotonic_ns,
            service,
            touched: AtomicU32::new(0),
            reserved_2: 0,
            dropped: [const { AtomicU64::new(0) }; DROP_PLACES],
        };
        // SAFETY: the mapping is longer than a header, aligned to a page, and nobody else has it.
        unsafe { begin.cast::<Header>().write(header) };
        Ok(Self { begin, shape, mode: options.mode, file })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn header(&self) -> &'static Header {
        // SAFETY: it was written when the arena was made, only its atomics change, and the mapping lives as long as the process.
        unsafe { self.begin.cast::<Header>().as_ref() }
    }

    /// What was dropped while there was no arena.
    fn count_early(&self) {
        for (early, count) in EARLY.iter().zip(&self.header().dropped) {
            if early.load(Ordering::Relaxed) > 0 {
                count.fetch_add(early.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn place(&self, number: u32) -> Place {
        let at = |offset: u64| {
            // SAFETY: places lie within the mapping, by the shape that its length was taken from.
            unsafe { self.begin.add(usize::try_from(offset).unwrap_or_default()) }
        };
        // SAFETY: an aligned place inside of the mapping; zeros are a valid header, and all of it is atomic.
        let header = unsafe { at(self.shape.ring(number)).cast::<RingHeader>().as_ref() };
        Place {
            header,
            sites: at(self.shape.sites(number)),
            records: at(self.shape.records(number)),
            shape: self.shape,
            mode: self.mode,
        }
    }

    /// A place for the calling thread's ring, which is prepared and opened; `None` when all are taken.
    pub(crate) fn claim(&self) -> Option<Place> {
        let all = || (0..self.shape.rings).map(|number| (number, self.place(number)));
        let takes = |place: &Place, from: RingState| {
            let (from, to) = (from as u32, RingState::Claimed as u32);
            let state = &place.header.state;
            state.load(Ordering::Relaxed) == from
                && state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let free = all().find(|(_, place)| takes(place, RingState::Free));
        // A flight recorder keeps what is newest.
        let ended = || match self.mode {
            Mode::Drop => None,
            Mode::Overwrite => all().find(|(_, place)| takes(place, RingState::Ended)),
        };
        let (number, place) = free.or_else(ended)?;
        self.header().touched.fetch_max(number + 1, Ordering::AcqRel);
        self.count_early();
        place.prepare();
        Some(place)
    }
}

impl Place {
    fn prepare(&self) {
        let header = self.header;
        let begin = header.thread.head.load(Ordering::Relaxed);
        let begin = begin.next_multiple_of(self.shape.block_len());
        header.generation.fetch_add(1, Ordering::Relaxed);
        header.tid.store(thread_number(), Ordering::Relaxed);
        for (place, word) in header.name.iter().zip(thread_name()) {
            place.store(word, Ordering::Relaxed);
        }
        header.sites_len.store(0, Ordering::Relaxed);
        header.begin.store(begin, Ordering::Relaxed);
        header.reader.tail.store(begin, Ordering::Relaxed);
        header.reader.number.store(0, Ordering::Relaxed);
        header.thread.reserved.store(begin, Ordering::Relaxed);
        header.thread.head.store(begin, Ordering::Relaxed);
        for place in &header.thread.dropped {
            place.store(0, Ordering::Relaxed);
        }
        header.state.store(RingState::Open as u32, Ordering::Release);
    }
}

fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

fn thread_name() -> [u64; 2] {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, a zero at the end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let [a, b, c, d, e, f, g, h, rest @ ..] = name;
    [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes(rest)]
}
