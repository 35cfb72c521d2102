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
use std::sync::atomic::{AtomicI32, Ordering};
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

/// Starts the thread. Without it records stay in the rings.
pub(crate) fn start(arena: &'static Arena, socket: PathBuf) {
    let thread = std::thread::Builder::new().name("tracepoints".to_owned()).stack_size(STACK_BYTES);
    without_signals(|| drop(thread.spawn(move || keep(arena, &socket))));
}

/// A child of this process is not the one that the agent knows.
pub(crate) fn forget() {
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
    loop {
        if let Ok(connection) = introduce(arena, socket) {
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
