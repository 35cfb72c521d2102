//! What calls do to the descriptor table of their process.

use model::Fd;
use stitch::Kind;
use stitch::fact::Effect;

use super::arguments::Call;

const O_CLOEXEC: i64 = 0o2_000_000;
const CLONE_FILES: i64 = 0x400;
const CLONE_THREAD: i64 = 0x1_0000;

/// What calls of one name do, before their arguments are known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    Nothing,
    Open(Closes),
    Close,
    CloseRange,
    /// To the lowest free number.
    Duplicate,
    /// To a number that is given, which nothing happens to when it is the same.
    DuplicateTo(Closes),
    Fcntl,
    Ioctl,
    Address,
    Make(&'static str, Kind, Closes),
    MakePair(&'static str, Kind, Closes),
    /// These change the descriptor that they are given, if they are given one.
    MakeOrChange(&'static str, Closes),
    SocketCall,
    Bpf,
    Clone,
    Unshare,
}

/// Whether exec closes what a call makes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closes {
    No,
    Yes,
    /// If its flags have this bit.
    If(i64),
}

impl Closes {
    fn on_exec(self, call: &Call) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::If(flag) => call.flags & flag != 0,
        }
    }
}

impl Rule {
    /// By the call's name.
    pub(super) fn of(name: &str) -> Self {
        use Closes::{If, No, Yes};
        const ON_FLAG: Closes = If(O_CLOEXEC);
        match name {
            "open" | "openat" | "openat2" | "open_by_handle_at" => Self::Open(ON_FLAG),
            "creat" => Self::Open(No),
            "close" => Self::Close,
            "close_range" => Self::CloseRange,
            "dup" => Self::Duplicate,
            "dup2" => Self::DuplicateTo(No),
            "dup3" => Self::DuplicateTo(ON_FLAG),
            "fcntl" | "fcntl64" => Self::Fcntl,
            "ioctl" => Self::Ioctl,
            "connect" | "bind" => Self::Address,
            "socket" | "accept4" => Self::Make("socket", Kind::Socket, ON_FLAG),
            "accept" => Self::Make("socket", Kind::Socket, No),
            "socketcall" => Self::SocketCall,
            "pipe" => Self::MakePair("pipe", Kind::Other, No),
            "pipe2" => Self::MakePair("pipe", Kind::Other, ON_FLAG),
            "socketpair" => Self::MakePair("socket pair", Kind::Socket, ON_FLAG),
            "eventfd" => Self::Make("eventfd", Kind::Other, No),
            "eventfd2" => Self::Make("eventfd", Kind::Other, ON_FLAG),
            "epoll_create" => Self::Make("epoll", Kind::Other, No),
            "epoll_create1" => Self::Make("epoll", Kind::Other, ON_FLAG),
            "timerfd_create" => Self::Make("timerfd", Kind::Other, ON_FLAG),
            "inotify_init" => Self::Make("inotify", Kind::Other, No),
            "inotify_init1" => Self::Make("inotify", Kind::Other, ON_FLAG),
            "userfaultfd" => Self::Make("userfaultfd", Kind::Other, ON_FLAG),
            "signalfd" => Self::MakeOrChange("signalfd", No),
            "signalfd4" => Self::MakeOrChange("signalfd", ON_FLAG),
            // Their flags have bits of their own for it.
            "memfd_create" => Self::Make("memfd", Kind::Other, If(1)),
            "fanotify_init" => Self::Make("fanotify", Kind::Other, If(1)),
            "perf_event_open" => Self::Make("perf_event", Kind::Other, If(8)),
            "pidfd_open" => Self::Make("pidfd", Kind::Other, Yes),
            "pidfd_getfd" => Self::Make("received", Kind::Other, Yes),
            "io_uring_setup" => Self::Make("io_uring", Kind::Other, Yes),
            "bpf" => Self::Bpf,
            "clone" => Self::Clone,
            "unshare" => Self::Unshare,
            _ => Self::Nothing,
        }
    }

    /// With its arguments; `address` is what `connect` and `bind` are given.
    #[inline]
    pub(super) fn effect<'s>(self, call: &Call, address: Option<&'s str>) -> Effect<&'s str> {
        match self {
            Self::Nothing => Effect::Nothing,
            Self::Close => Effect::Close,
            _ => self.rare_effect(call, address),
        }
    }

    fn rare_effect<'s>(self, call: &Call, address: Option<&'s str>) -> Effect<&'s str> {
        match self {
            Self::Nothing => Effect::Nothing,
            Self::Close => Effect::Close,
            Self::Open(closes) => Effect::Open { close_on_exec: closes.on_exec(call) },
            Self::CloseRange => close_range(call),
            Self::Duplicate => Effect::Duplicate { close_on_exec: false },
            Self::DuplicateTo(_) if is_same(call) => Effect::Nothing,
            Self::DuplicateTo(closes) => Effect::Duplicate { close_on_exec: closes.on_exec(call) },
            Self::Fcntl => match call.cmd {
                Some(0) => Effect::Duplicate { close_on_exec: false },
                Some(1030) => Effect::Duplicate { close_on_exec: true },
                Some(2) => Effect::SetCloseOnExec(call.arg & 1 != 0),
                _ => Effect::Nothing,
            },
            Self::Ioctl => match call.cmd {
                Some(0x5451) => Effect::SetCloseOnExec(true),
                Some(0x5450) => Effect::SetCloseOnExec(false),
                _ => Effect::Nothing,
            },
            Self::Address => address.map_or(Effect::Nothing, Effect::Address),
            Self::Make(name, kind, closes) => made(name, kind, closes.on_exec(call)),
            Self::MakePair(name, kind, closes) => {
                Effect::MakePair { name, kind, close_on_exec: closes.on_exec(call) }
            }
            Self::MakeOrChange(..) if call.fd.is_some_and(|fd| fd.get() >= 0) => Effect::Nothing,
            Self::MakeOrChange(name, closes) => made(name, Kind::Other, closes.on_exec(call)),
            // 1 is socket, 5 accept, 18 accept4; their arguments lie in memory.
            Self::SocketCall => match call.cmd {
                Some(1 | 5 | 18) => made("socket", Kind::Socket, false),
                _ => Effect::Nothing,
            },
            Self::Bpf if makes_bpf(call.cmd) => made("bpf", Kind::Other, true),
            // Threads of a process share without being asked.
            Self::Clone if call.flags & (CLONE_FILES | CLONE_THREAD) == CLONE_FILES => {
                Effect::ShareTable
            }
            Self::Unshare if call.flags & CLONE_FILES != 0 => Effect::LeaveTable,
            Self::Bpf | Self::Clone | Self::Unshare => Effect::Nothing,
        }
    }
}

fn made(name: &'static str, kind: Kind, close_on_exec: bool) -> Effect<&'static str> {
    Effect::Make { name, kind, close_on_exec }
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
