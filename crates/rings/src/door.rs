//! The socket at which applications hand over their memory files.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, chmodat, statat, unlink};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with, sockopt,
};
use tracepoint::{MAX_MESSAGE_LEN, RULES_MESSAGE, greeting};

/// How many applications may wait to be let in.
const BACKLOG: i32 = 128;

/// A listening socket. It is removed when it is dropped.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    path: PathBuf,
}

/// An application that came.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// Its process, as this one sees it; 0 when it is of a namespace that this one cannot see.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Why a connection is not one of an application with rings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// What it said is no greeting that is known.
    #[error("a greeting of {len} bytes that is not known")]
    Greeting {
        /// How long it was.
        len: usize,
    },
    /// No file came with the greeting, or more than one.
    #[error("{files} files with the greeting")]
    Files {
        /// How many.
        files: usize,
    },
    /// Nothing can be received.
    #[error("the connection was lost")]
    Lost(#[source] io::Error),
}

impl Door {
    /// Listens at a path; applications of all users may come when `is_open_to_all`, else those of this user and root's. A socket at which
    /// nobody listens is replaced.
    ///
    /// # Errors
    /// The path cannot be bound, or somebody listens there: [`io::ErrorKind::AddrInUse`].
    pub fn bind(path: &Path, is_open_to_all: bool) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let new = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None);
        let is_socket = statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket);
        if is_socket {
            match connect(new()?, &address) {
                Err(rustix::io::Errno::CONNREFUSED) => unlink(path)?,
                _ => return Err(io::ErrorKind::AddrInUse.into()),
            }
        }
        let socket = new()?;
        bind(&socket, &address)?;
        let mode = if is_open_to_all { 0o666 } else { 0o600 };
        chmodat(CWD, path, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())?;
        listen(&socket, BACKLOG)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// The next application; `None` when none waits.
    ///
    /// # Errors
    /// [`io::Error`] of the system: most likely there is no descriptor left.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        let socket = match accept_with(&self.socket, FLAGS) {
            Ok(socket) => socket,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let peer = sockopt::socket_peercred(&socket)?;
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Some(Connection { socket, pid, uid: peer.uid.as_raw() }))
    }
}

/// Nobody is waited for.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

impl Drop for Door {
    fn drop(&mut self) {
        // Who comes now is refused, as when there was never anybody.
        let removed = unlink(&self.path);
        debug_assert!(removed.is_ok() || !self.path.exists(), "{removed:?}");
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// The memory file that the application hands over; `None` when it has said nothing yet.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn memory_file(&self) -> Result<Option<OwnedFd>, Refused> {
        let known = greeting();
        let mut bytes = [0; 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(&self.socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(Refused::Lost(error.into())),
        };
        let mut files: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                files.extend(descriptors);
            }
        }
        if bytes.get(..received.bytes) != Some(&known) {
            return Err(Refused::Greeting { len: received.bytes });
        }
        let count = files.len();
        match (files.pop(), count) {
            (Some(file), 1) => Ok(Some(file)),
            _ => Err(Refused::Files { files: count }),
        }
    }

    /// Whether the application has hung up, or says what it should not.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut byte = [0];
        let mut control = RecvAncillaryBuffer::default();
        let into = &mut [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.socket, into, &mut control, flags);
        !matches!(received, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
    }

    /// Tells which call sites are to be on: lines as [`tracepoint::Rules::parse`] reads them.
    ///
    /// # Errors
    /// The application does not take it now, or is gone.
    pub fn tell_rules(&self, rules: &str) -> io::Result<()> {
        let message = [RULES_MESSAGE, rules.as_bytes()].concat();
        if message.len() > MAX_MESSAGE_LEN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut control = SendAncillaryBuffer::default();
        sendmsg(&self.socket, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
