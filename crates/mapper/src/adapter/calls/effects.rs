//! What calls do to the descriptor table of their process.

use model::Fd;
use stitch::Kind;
use stitch::fact::Effect;

use super::arguments::Call;

const O_CLOEXEC: i64 = 0o2_000_000;
const CLONE_FILES: i64 = 0x400;
const CLONE_THREAD: i64 = 0x1_0000;

/// By the call's name and arguments; `address` is what `connect` and `bind` are given.
pub(super) fn effect<'s>(name: &str, call: &Call, address: Option<&'s str>) -> Effect<&'s str> {
    let close_on_exec = call.flags & O_CLOEXEC != 0;
    let made = |name, kind, close_on_exec| Effect::Make { name, kind, close_on_exec };
    let make = |name, kind| made(name, kind, close_on_exec);
    match name {
        "open" | "openat" | "openat2" | "open_by_handle_at" => Effect::Open { close_on_exec },
        "creat" => Effect::Open { close_on_exec: false },
        "close" => Effect::Close,
        "close_range" => close_range(call),
        "dup" => Effect::Duplicate { close_on_exec: false },
        "dup2" if !is_same(call) => Effect::Duplicate { close_on_exec: false },
        "dup3" if !is_same(call) => Effect::Duplicate { close_on_exec },
        "fcntl" | "fcntl64" => match call.cmd {
            Some(0) => Effect::Duplicate { close_on_exec: false },
            Some(1030) => Effect::Duplicate { close_on_exec: true },
            Some(2) => Effect::SetCloseOnExec(call.arg & 1 != 0),
            _ => Effect::Nothing,
        },
        "ioctl" => match call.cmd {
            Some(0x5451) => Effect::SetCloseOnExec(true),
            Some(0x5450) => Effect::SetCloseOnExec(false),
            _ => Effect::Nothing,
        },
        "connect" | "bind" => address.map_or(Effect::Nothing, Effect::Address),
        "socket" | "accept4" => make("socket", Kind::Socket),
        "accept" => made("socket", Kind::Socket, false),
        // 1 is socket, 5 accept, 18 accept4; their arguments lie in memory.
        "socketcall" if matches!(call.cmd, Some(1 | 5 | 18)) => made("socket", Kind::Socket, false),
        "pipe" => Effect::MakePair { name: "pipe", kind: Kind::Other, close_on_exec: false },
        "pipe2" => Effect::MakePair { name: "pipe", kind: Kind::Other, close_on_exec },
        "socketpair" => Effect::MakePair { name: "socket pair", kind: Kind::Socket, close_on_exec },
        "eventfd" => made("eventfd", Kind::Other, false),
        "eventfd2" => make("eventfd", Kind::Other),
        "epoll_create" => made("epoll", Kind::Other, false),
        "epoll_create1" => make("epoll", Kind::Other),
        "timerfd_create" => make("timerfd", Kind::Other),
        "inotify_init" => made("inotify", Kind::Other, false),
        "inotify_init1" => make("inotify", Kind::Other),
        "userfaultfd" => make("userfaultfd", Kind::Other),
        // These change the descriptor that they are given, if they are given one.
        "signalfd" | "signalfd4" if call.fd.is_some_and(|fd| fd.get() >= 0) => Effect::Nothing,
        "signalfd" => made("signalfd", Kind::Other, false),
        "signalfd4" => make("signalfd", Kind::Other),
        // Their flags have bits of their own for it.
        "memfd_create" => made("memfd", Kind::Other, call.flags & 1 != 0),
        "fanotify_init" => made("fanotify", Kind::Other, call.flags & 1 != 0),
        "perf_event_open" => made("perf_event", Kind::Other, call.flags & 8 != 0),
        // These always close on exec.
        "pidfd_open" => made("pidfd", Kind::Other, true),
        "pidfd_getfd" => made("received", Kind::Other, true),
        "io_uring_setup" => made("io_uring", Kind::Other, true),
        "bpf" if makes_bpf(call.cmd) => made("bpf", Kind::Other, true),
        // Threads of a process share without being asked.
        "clone" if call.flags & (CLONE_FILES | CLONE_THREAD) == CLONE_FILES => Effect::ShareTable,
        "unshare" if call.flags & CLONE_FILES != 0 => Effect::LeaveTable,
        _ => Effect::Nothing,
    }
}

/// Whether `dup2` is asked to replace a descriptor by itself, which does nothing.
fn is_same(call: &Call) -> bool {
    call.fd.map(|fd| i64::from(fd.get())) == call.new_fd
}

fn close_range(call: &Call) -> Effect<&'static str> {
    const CLOSE_RANGE_UNSHARE: i64 = 2;
    const CLOSE_RANGE_CLOEXEC: i64 = 4;
    // The numbers are unsigned: a first one above all that there are closes nothing.
    let Some(first) = call.fd.filter(|fd| fd.get() >= 0) else { return Effect::Nothing };
    let last = call.last.map_or(i32::MAX, |last| i32::try_from(last).unwrap_or(i32::MAX));
    Effect::CloseRange {
        first,
        last: Fd::new(last),
        only_mark: call.flags & CLOSE_RANGE_CLOEXEC != 0,
        leaves_table: call.flags & CLOSE_RANGE_UNSHARE != 0,
    }
}

/// Whether a command of `bpf` returns a descriptor: `MAP_CREATE`, `PROG_LOAD`, `OBJ_GET`, `*_GET_FD_BY_ID`,
/// `RAW_TRACEPOINT_OPEN`, `BTF_LOAD`, `LINK_CREATE`, `ENABLE_STATS`, `ITER_CREATE`, `TOKEN_CREATE`.
fn makes_bpf(cmd: Option<i64>) -> bool {
    matches!(cmd, Some(0 | 5 | 7 | 13 | 14 | 17 | 18 | 19 | 28 | 30 | 32 | 33 | 36))
}
