//! The thread that hands the memory file to the agent, and heeds what the agent says.
//!
//! It waits in one system call for as long as the agent is there. When the agent is gone it looks for it again: records stay in the rings
//! meanwhile, and who comes next is given the same file.
#![expect(
    unsafe_code,
    reason = "signals are kept from a thread, and a descriptor closed in a child"
)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

use crate::arena::Arena;
use crate::layout::{MAGIC, VERSION};
use crate::site::{self, Rules};

/// How long it waits before it looks for the agent again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// What it needs is little.
const STACK_BYTES: usize = 128 << 10;

/// A message of the agent: rules for call sites follow, as [`Rules::parse`] reads them.
pub const RULES_MESSAGE: &[u8] = b"rules\n";
/// The longest message of the agent.
pub const MAX_MESSAGE_LEN: usize = 128 << 10;

/// What is said to the agent, with the descriptor of the memory file: [`MAGIC`] and [`VERSION`].
#[must_use]
pub fn greeting() -> [u8; 12] {
    let mut bytes = [0; 12];
    let (magic, version) = bytes.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    version.copy_from_slice(&VERSION.to_ne_bytes());
    bytes
}

/// The connection, for a child to close; -1 when there is none.
static CONNECTION: AtomicI32 = AtomicI32::new(-1);

/// Where the first look for an agent is.
static FIRST_LOOK: AtomicU8 = AtomicU8::new(NOT_YET);
const NOT_YET: u8 = 0;
const LOOKING: u8 = 1;
const LOOKED: u8 = 2;
/// A process that ends waits no longer for the thread that looks.
const LAST_PATIENCE: Duration = Duration::from_millis(100);

/// What a process that ends before the thread has looked for an agent hands over then. Never given back.
static AT_EXIT: AtomicPtr<(&'static Arena, PathBuf)> = AtomicPtr::new(ptr::null_mut());

/// Starts the thread. Without it records stay in the rings.
pub(crate) fn start(arena: &'static Arena, socket: PathBuf) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    FIRST_LOOK.store(NOT_YET, Ordering::Release);
    AT_EXIT.store(Box::into_raw(Box::new((arena, socket.clone()))), Ordering::Release);
    // A child has what its parent registered.
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: the function touches nothing that the end of a process takes away. Without it short processes lose something.
        unsafe { libc::atexit(hand_over_at_exit) };
    }
    let thread = std::thread::Builder::new().name("tracepoints".to_owned()).stack_size(STACK_BYTES);
    without_signals(|| drop(thread.spawn(move || keep(arena, &socket))));
}

/// A process may end before its thread has run at all: then its memory file is handed over here. The agent has it from the kernel when the process is gone.
extern "C" fn hand_over_at_exit() {
    // SAFETY: null, or of a box that is never given back.
    let Some((arena, socket)) = (unsafe { AT_EXIT.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    match FIRST_LOOK.compare_exchange(NOT_YET, LOOKING, Ordering::AcqRel, Ordering::Acquire) {
        // The connection stays for as long as the process does.
        Ok(_) => std::mem::forget(introduce(arena, socket)),
        Err(LOOKING) => {
            let begin = std::time::Instant::now();
            while FIRST_LOOK.load(Ordering::Acquire) == LOOKING && begin.elapsed() < LAST_PATIENCE {
                std::thread::yield_now();
            }
        }
        Err(_) => {}
    }
}

/// A child of this process is not the one that the agent knows.
pub(crate) fn forget() {
    AT_EXIT.store(ptr::null_mut(), Ordering::Release);
    let connection = CONNECTION.swap(-1, Ordering::AcqRel);
    if connection >= 0 {
        // SAFETY: it is the keeper's, which the child does not have.
        unsafe { libc::close(connection) };
    }
}

/// Threads that are started meanwhile get no signals: those are the application's.
fn without_signals(act: impl FnOnce()) {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read, and the old one is put back.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        act();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

fn keep(arena: &Arena, socket: &Path) {
    let mut pause = FIRST_PAUSE;
    if FIRST_LOOK.swap(LOOKING, Ordering::AcqRel) == LOOKING {
        // The process is ending, and hands over itself.
        return;
    }
    loop {
        let introduced = introduce(arena, socket);
        FIRST_LOOK.store(LOOKED, Ordering::Release);
        if let Ok(connection) = introduced {
            pause = FIRST_PAUSE;
            CONNECTION.store(connection.as_raw_fd(), Ordering::Release);
            heed(&connection);
            CONNECTION.store(-1, Ordering::Release);
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn introduce(arena: &Arena, socket: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(socket)?;
    let kind = SocketType::SEQPACKET;
    let connection = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    connect(&connection, &address)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [arena.fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let greeting = greeting();
    sendmsg(&connection, &[IoSlice::new(&greeting)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(connection)
}

/// Until the agent is gone.
fn heed(connection: &OwnedFd) {
    let mut bytes = vec![0; MAX_MESSAGE_LEN];
    loop {
        let mut control = RecvAncillaryBuffer::default();
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(connection.as_fd(), into, &mut control, RecvFlags::CMSG_CLOEXEC);
        let len = match received {
            Ok(received) if received.bytes > 0 => received.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => return,
        };
        let message = bytes.get(..len).unwrap_or_default();
        let rules = message.strip_prefix(RULES_MESSAGE).and_then(|rest| str::from_utf8(rest).ok());
        if let Some(rules) = rules.and_then(Rules::parse) {
            site::obey(rules);
        }
    }
}
