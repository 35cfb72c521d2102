//! The arguments and return values of system calls, by the names that LTTng gives their fields.

use std::borrow::Cow;

use ctf::{EventRecord, EventRecordClass, FieldHandle, Value};
use model::Fd;
use stitch::Kind;
use stitch::fact::{CallArgs, Effect, Fact, FactKind};

use super::{Context, number, text};

/// The event record class of a call's begin or end.
#[derive(Debug)]
pub(super) struct CallClass {
    name: String,
    id: Option<FieldHandle>,
    fd: Option<FieldHandle>,
    path: Option<FieldHandle>,
    folder_fd: Option<FieldHandle>,
    flags: Option<FieldHandle>,
    cmd: Option<FieldHandle>,
    arg: Option<FieldHandle>,
    new_fd: Option<FieldHandle>,
    address: Option<FieldHandle>,
    v4: Option<(FieldHandle, Option<FieldHandle>)>,
    ret: Option<FieldHandle>,
    pair: Option<FieldHandle>,
    opened: Option<FieldHandle>,
}

const O_CLOEXEC: i64 = 0o2_000_000;

impl CallClass {
    pub(super) fn new(name: String, class: &EventRecordClass) -> Self {
        let field = |names: &[&str]| names.iter().find_map(|name| class.field_handle(name));
        let flags = match name.as_str() {
            "socket" | "socketpair" => field(&["type"]),
            _ => field(&["flags"]),
        };
        Self {
            id: field(&["id"]).filter(|_| name == "unknown"),
            fd: field(&["fd", "fildes", "oldfd", "epfd", "in_fd", "fd_in", "fdin", "out_fd"]),
            path: field(&["filename", "pathname", "oldname", "path"]),
            folder_fd: field(&["dfd"]),
            flags,
            cmd: field(&["cmd"]),
            arg: field(&["arg"]),
            new_fd: field(&["newfd"]),
            address: field(&["address"]),
            v4: field(&["v4addr"]).map(|v4| (v4, field(&["dport", "sport"]))),
            ret: field(&["ret"]),
            pair: field(&["fildes", "socket", "usockvec"])
                .filter(|_| matches!(name.as_str(), "pipe" | "pipe2" | "socketpair")),
            opened: field(&["resolved"]),
            name,
        }
    }

    /// The call's name, for unknown ones by their number; `None` when even that says nothing.
    fn name(&self, record: &EventRecord<'_>) -> Option<&str> {
        match self.id {
            None => Some(&self.name),
            Some(id) => {
                let id = u64::try_from(number(record, id)?).ok()?;
                model::syscall_name(id).or(Some("unknown"))
            }
        }
    }

    pub(super) fn entry(
        &self,
        record: &EventRecord<'_>,
        context: Context,
        give: &mut impl FnMut(&Fact<&str>),
    ) {
        let Some(name) = self.name(record) else { return };
        let path = self.path.and_then(|handle| text(record, handle));
        let address = self.address(record);
        let effect = self.effect(name, record, address.as_deref());
        let mut fd = self.fd.and_then(|handle| number(record, handle)).map(Fd::new);
        let mut path = path.as_deref();
        // With AT_EMPTY_PATH a call works on the descriptor itself: fstat comes as newfstatat(fd, "").
        if path == Some("") && effect == Effect::Nothing {
            let folder_fd = self.folder_fd.and_then(|handle| number(record, handle));
            if let Some(itself) = folder_fd.filter(|number| *number >= 0) {
                (fd, path) = (Some(Fd::new(itself)), None);
            }
        }
        let args = CallArgs { fd, path, effect };
        give(&context.fact(FactKind::CallEntry { name, args }));
    }

    pub(super) fn exit(
        &self,
        record: &EventRecord<'_>,
        context: Context,
        give: &mut impl FnMut(&Fact<&str>),
    ) {
        let Some(name) = self.name(record) else { return };
        let ret = self.ret.and_then(|handle| record.get(handle));
        let ret = ret.map_or(0, |value| match value {
            Value::Unsigned(bits) => bits.cast_signed(),
            other => other.as_i64().unwrap_or(0),
        });
        let opened = self.opened.and_then(|handle| text(record, handle));
        let address = self.address(record);
        give(&context.fact(FactKind::CallExit {
            name,
            ret,
            pair: self.pair(record),
            address: address.as_deref(),
            opened: opened.as_deref(),
        }));
    }

    fn effect<'s>(
        &self,
        name: &str,
        record: &EventRecord<'_>,
        address: Option<&'s str>,
    ) -> Effect<&'s str> {
        let value = |handle: Option<FieldHandle>| {
            handle.and_then(|handle| record.get(handle)).and_then(|value| value.as_i64())
        };
        let flags = value(self.flags).unwrap_or(0);
        let close_on_exec = flags & O_CLOEXEC != 0;
        let make = |name, kind| Effect::Make { name, kind, close_on_exec };
        match name {
            "open" | "openat" | "openat2" | "creat" | "open_by_handle_at" => {
                Effect::Open { close_on_exec }
            }
            "close" => Effect::Close,
            "dup" => Effect::Duplicate { close_on_exec: false },
            "dup2" | "dup3" if value(self.fd) != value(self.new_fd) => {
                Effect::Duplicate { close_on_exec }
            }
            "fcntl" => match value(self.cmd) {
                Some(0) => Effect::Duplicate { close_on_exec: false },
                Some(1030) => Effect::Duplicate { close_on_exec: true },
                Some(2) => Effect::SetCloseOnExec(value(self.arg).unwrap_or(0) & 1 != 0),
                _ => Effect::Nothing,
            },
            "ioctl" => match value(self.cmd) {
                Some(0x5451) => Effect::SetCloseOnExec(true),
                Some(0x5450) => Effect::SetCloseOnExec(false),
                _ => Effect::Nothing,
            },
            "connect" | "bind" => address.map_or(Effect::Nothing, Effect::Address),
            "socket" | "accept" | "accept4" => make("socket", Kind::Socket),
            "eventfd" | "eventfd2" => make("eventfd", Kind::Other),
            "epoll_create" | "epoll_create1" => make("epoll", Kind::Other),
            "timerfd_create" => make("timerfd", Kind::Other),
            "memfd_create" => make("memfd", Kind::Other),
            "signalfd" | "signalfd4" => make("signalfd", Kind::Other),
            "inotify_init" | "inotify_init1" => make("inotify", Kind::Other),
            "fanotify_init" => make("fanotify", Kind::Other),
            "pidfd_open" => make("pidfd", Kind::Other),
            "pidfd_getfd" => make("received", Kind::Other),
            "perf_event_open" => make("perf_event", Kind::Other),
            "io_uring_setup" => make("io_uring", Kind::Other),
            "userfaultfd" => make("userfaultfd", Kind::Other),
            _ => Effect::Nothing,
        }
    }

    /// The address as our own capture writes it, or from LTTng's IPv4 fields.
    fn address<'r>(&self, record: &EventRecord<'r>) -> Option<Cow<'r, str>> {
        let written = self.address.and_then(|handle| text(record, handle));
        if written.as_ref().is_some_and(|address| !address.is_empty()) {
            return written;
        }
        let (v4, port) = self.v4?;
        let Value::Compound(octets) = record.get(v4)? else { return None };
        let octets: Vec<String> = octets.integers()?.map(|octet| octet.to_string()).collect();
        let port = port.and_then(|handle| number(record, handle)).unwrap_or(0);
        (octets.len() == 4).then(|| format!("{}:{port}", octets.join(".")).into())
    }

    fn pair(&self, record: &EventRecord<'_>) -> Option<(Fd, Fd)> {
        let Value::Compound(pair) = record.get(self.pair?)? else { return None };
        let mut numbers = pair.integers()?.map(|fd| i32::try_from(fd).ok().map(Fd::new));
        Some((numbers.next()??, numbers.next()??))
    }
}
