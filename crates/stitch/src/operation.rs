//! What system calls do to files.

use serde::{Deserialize, Serialize};

/// What a call does to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// It makes a descriptor.
    Open,
    /// It takes bytes from one.
    Read,
    /// It gives bytes to one.
    Write,
    /// It moves bytes from one to another.
    ReadWrite,
    /// It waits until bytes are where they last.
    Sync,
    /// It gives a descriptor back.
    Close,
}

impl Operation {
    /// By the call's name; `None` for calls that do nothing of the kind, or do it only sometimes, as `fcntl` does.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "open" | "openat" | "openat2" | "open_by_handle_at" | "creat" | "socket" | "dup"
            | "dup2" | "dup3" => Self::Open,
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "recv" | "recvfrom"
            | "recvmsg" | "recvmmsg" => Self::Read,
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "send" | "sendto"
            | "sendmsg" | "sendmmsg" => Self::Write,
            "splice" | "tee" | "vmsplice" | "sendfile" | "sendfile64" | "copy_file_range" => {
                Self::ReadWrite
            }
            "sync" | "syncfs" | "fsync" | "fdatasync" | "sync_file_range" | "msync" => Self::Sync,
            "close" | "close_range" => Self::Close,
            _ => return None,
        })
    }

    /// What people call it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read/write",
            Self::Sync => "sync",
            Self::Close => "close",
        }
    }
}
