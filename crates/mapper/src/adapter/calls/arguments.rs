//! Where the arguments of a call are: in fields of their own, or in an array by position.

use ctf::{EventRecord, EventRecordClass, FieldHandle, Value};
use model::Fd;

use super::super::register;

/// What an argument is, of those that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Fd,
    NewFd,
    Flags,
    Cmd,
    Arg,
    Last,
    Ignored,
}

/// Where a class of calls has its arguments.
#[derive(Debug)]
pub(super) struct Arguments {
    fd: Option<FieldHandle>,
    new_fd: Option<FieldHandle>,
    flags: Option<FieldHandle>,
    /// By how many bits the field of the flags lies above the lowest of them.
    flags_shift: u32,
    cmd: Option<FieldHandle>,
    arg: Option<FieldHandle>,
    last: Option<FieldHandle>,
    /// All in their order, of a call that is only told by its number.
    array: Option<FieldHandle>,
}

/// The arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) fd: Option<Fd>,
    pub(super) new_fd: Option<i64>,
    pub(super) flags: i64,
    pub(super) cmd: Option<i64>,
    pub(super) arg: i64,
    pub(super) last: Option<i64>,
}

impl Arguments {
    pub(super) fn of(name: &str, class: &EventRecordClass) -> Self {
        let field = |names: &[&str]| names.iter().find_map(|name| class.field_handle(name));
        // LTTng since 2.11 splits the flags of clone: the signal in the low eight bits, the options above.
        let options = field(&["flags.options"]).filter(|_| name == "clone");
        let flags = match name {
            "socket" | "socketpair" => field(&["type"]),
            "clone" => options.or_else(|| field(&["clone_flags", "flags"])),
            "unshare" => field(&["unshare_flags"]),
            _ => field(&["flags"]),
        };
        Self {
            fd: field(&[
                "fd", "fildes", "oldfd", "epfd", "ufd", "in_fd", "fd_in", "fdin", "out_fd",
            ]),
            new_fd: field(&["newfd"]),
            flags,
            flags_shift: if options.is_some() { 8 } else { 0 },
            cmd: field(&["cmd", "call"]),
            arg: field(&["arg"]),
            last: field(&["max_fd"]),
            array: field(&["args"]).filter(|_| name == "unknown"),
        }
    }

    /// `roles`: of the arguments by position.
    pub(super) fn read(&self, record: &EventRecord<'_>, roles: &[Role]) -> Call {
        if let Some(array) = self.array {
            let array = (!roles.is_empty()).then(|| record.get(array));
            return array.and_then(|array| by_position(roles, array)).unwrap_or_default();
        }
        let value = |handle: Option<FieldHandle>| register(record, handle?);
        let fd = value(self.fd).and_then(|fd| i32::try_from(fd).ok()).map(Fd::new);
        Call {
            fd,
            new_fd: value(self.new_fd),
            flags: value(self.flags).unwrap_or(0) << self.flags_shift,
            cmd: value(self.cmd),
            arg: value(self.arg).unwrap_or(0),
            last: value(self.last),
        }
    }
}

fn by_position(roles: &[Role], array: Option<Value<'_>>) -> Option<Call> {
    let Value::Compound(registers) = array? else { return None };
    let mut call = Call::default();
    for (role, register) in roles.iter().zip(registers.integers()?) {
        let Ok(value) =
            i64::try_from(register).or_else(|_| u64::try_from(register).map(u64::cast_signed))
        else {
            continue;
        };
        match role {
            Role::Fd => call.fd = Some(descriptor(value)),
            Role::NewFd => call.new_fd = Some(descriptor(value).get().into()),
            Role::Flags => call.flags = value,
            Role::Cmd => call.cmd = Some(value & i64::from(u32::MAX)),
            Role::Arg => call.arg = value,
            Role::Last => call.last = Some(value & i64::from(u32::MAX)),
            Role::Ignored => {}
        }
    }
    Some(call)
}

/// The low 32 bits of a register, which are all that the kernel looks at.
#[expect(clippy::cast_possible_truncation, reason = "the kernel ignores the high bits as well")]
fn descriptor(register: i64) -> Fd {
    Fd::new(register as i32)
}

/// What the arguments of a call are by position, as far as one of them matters.
pub(super) fn roles(name: &str) -> &'static [Role] {
    use Role::{Arg, Cmd, Fd, Flags, Ignored, Last, NewFd};
    match name {
        "read" | "write" | "pread64" | "pwrite64" | "readv" | "writev" | "preadv" | "pwritev"
        | "preadv2" | "pwritev2" | "close" | "dup" | "fstat" | "newfstat" | "lseek" | "_llseek"
        | "fsync" | "fdatasync" | "ftruncate" | "fallocate" | "getdents" | "getdents64"
        | "accept" | "connect" | "bind" | "listen" | "sendto" | "recvfrom" | "sendmsg"
        | "recvmsg" | "sendmmsg" | "recvmmsg" | "send" | "recv" | "shutdown" | "getsockname"
        | "getpeername" | "setsockopt" | "getsockopt" | "epoll_wait" | "epoll_pwait"
        | "epoll_pwait2" | "epoll_ctl" | "fchdir" | "flock" | "io_uring_enter" | "signalfd"
        | "timerfd_settime" | "timerfd_gettime" | "splice" | "tee" | "copy_file_range" => &[Fd],
        "sendfile" | "sendfile64" => &[Ignored, Fd],
        "dup2" => &[Fd, NewFd],
        "dup3" => &[Fd, NewFd, Flags],
        "fcntl" | "fcntl64" | "ioctl" => &[Fd, Cmd, Arg],
        "accept4" | "signalfd4" => &[Fd, Ignored, Ignored, Flags],
        "open" | "socket" | "socketpair" | "eventfd2" | "timerfd_create" | "memfd_create"
        | "pipe2" | "userfaultfd" => match name {
            "userfaultfd" => &[Flags],
            _ => &[Ignored, Flags],
        },
        "openat" | "open_by_handle_at" => &[Ignored, Ignored, Flags],
        "epoll_create1" | "inotify_init1" | "fanotify_init" | "clone" | "unshare" => &[Flags],
        "perf_event_open" => &[Ignored, Ignored, Ignored, Ignored, Flags],
        "close_range" => &[Fd, Last, Flags],
        "bpf" | "socketcall" => &[Cmd],
        _ => &[],
    }
}
