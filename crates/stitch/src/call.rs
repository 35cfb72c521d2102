//! System calls: the one in flight of a thread, and what complete ones add up to.

use std::collections::BTreeMap;

use model::{CpuId, Fd, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fact::LeftAs;
use crate::ident::{Entry, Ident, Kind, Left, Name};
use crate::keyed::Keyed;
use crate::name::CallName;
use crate::taint::Taint;

/// The call that a thread is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InFlight {
    /// Whatever a thread was in at the left boundary.
    AsLeft(LeftCall),
    /// None, or none that anyone saw begin.
    Nothing,
    /// The call that gave birth to this thread; its return here is no call of the thread.
    Birth,
    Call(Box<Call>),
}

/// The call of a thread at the left boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftCall {
    /// Whose: that of the thread whose number this one took by an exec; else its own.
    pub(crate) of: Option<Tid>,
    /// Whether events of the thread were lost since.
    pub(crate) taint: Taint,
}

/// A call that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) name: CallName,
    pub(crate) at: Timestamp,
    /// The descriptor that it names.
    pub(crate) fd: Option<Fd>,
    /// The file it works on, as the table stood when the call began.
    pub(crate) file: Option<Ident>,
    /// Whether it names that file by a path.
    pub(crate) by_path: bool,
    pub(crate) makes: Makes,
    /// What the file is called once the call succeeds: a socket by the address it gets.
    pub(crate) names: Option<Name>,
    /// Whether events of the thread were lost since it began: its return may be that of another call of this name.
    pub(crate) is_uncertain: bool,
}

/// What a call puts into the descriptor table when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Makes {
    Nothing,
    /// What its return value stands for.
    One(Entry),
    /// What both of the descriptors stand for that it writes to the caller's memory.
    Pair(Entry),
}

impl InFlight {
    pub(crate) const AS_LEFT: Self = Self::AsLeft(LeftCall { of: None, taint: Taint::None });

    /// As at the left boundary, but for events that were lost since.
    pub(crate) const UNCERTAIN: Self = Self::AsLeft(LeftCall { of: None, taint: Taint::Certain });

    /// Events of the thread are missing from here on.
    pub(crate) fn taint(&mut self) {
        match self {
            Self::AsLeft(left) => left.taint = Taint::Certain,
            Self::Birth => *self = Self::Nothing,
            Self::Nothing => {}
            Self::Call(call) => call.is_uncertain = true,
        }
    }

    /// Events of the thread are missing if the left part says so.
    pub(crate) fn taint_as(&mut self, taint: Taint) {
        match (self, taint) {
            (_, Taint::None) => {}
            (register, Taint::Certain) => register.taint(),
            (Self::AsLeft(left), taint @ Taint::IfLostOn(_)) => left.taint = left.taint.or(taint),
            // Seen in the window, so that nothing of the left matters.
            (Self::Nothing | Self::Birth | Self::Call(_), Taint::IfLostOn(_)) => {}
        }
    }

    /// The call as the thread that takes over this one's number has it. `own` is this thread.
    pub(crate) fn handed_over(mut self, own: Tid) -> Self {
        if let Self::AsLeft(left) = &mut self {
            left.of.get_or_insert(own);
        }
        self
    }

    /// Puts the state at the left boundary in. `own` is this thread. A call that comes back to it from another one goes on to
    /// say that it was handed over: the thread itself may be in another call at the end of the left part.
    pub(crate) fn resolve(&mut self, own: Tid, left: &impl Left) {
        match self {
            Self::AsLeft(LeftCall { of: Some(of), taint }) => {
                let (of, taint) = (*of, taint.resolved(*of, left));
                *self = left.in_flight(of).clone().handed_over(of);
                self.taint_as(taint);
            }
            Self::AsLeft(LeftCall { of: None, taint }) => *taint = taint.resolved(own, left),
            Self::Call(call) => call.resolve(left),
            Self::Nothing | Self::Birth => {}
        }
    }

    /// Appends what the window to the right knows of this register, resolved.
    pub(crate) fn append(&mut self, right: Self) {
        match right {
            Self::AsLeft(LeftCall { of: None, taint }) => self.taint_as(taint),
            other => *self = other,
        }
    }
}

impl Makes {
    pub(crate) fn one(&self) -> Option<&Entry> {
        match self {
            Self::One(entry) => Some(entry),
            Self::Nothing | Self::Pair(_) => None,
        }
    }

    pub(crate) fn pair(&self) -> Option<&Entry> {
        match self {
            Self::Pair(entry) => Some(entry),
            Self::Nothing | Self::One(_) => None,
        }
    }

    fn resolve(&mut self, left: &impl Left) {
        match self {
            Self::One(entry) | Self::Pair(entry) => entry.resolve(left),
            Self::Nothing => {}
        }
    }
}

impl Call {
    /// Whether a return of that name ends it. LTTng before 2.6 does not name returns: they end whatever their thread is in.
    pub(crate) fn ends_with(&self, name: &CallName) -> bool {
        self.name == *name || name.is_empty()
    }

    /// The file and the name that it has from this return on.
    pub(crate) fn names(&self, exit: &HeadExit) -> Option<(Ident, Name)> {
        const EINPROGRESS: i64 = 115;
        let (Some(file), Some(name)) = (&self.file, &self.names) else { return None };
        let succeeds = exit.ret == 0 || (self.name.text() == "connect" && exit.ret == -EINPROGRESS);
        let sure = !self.is_uncertain && !exit.taint.is_certain() && self.ends_with(&exit.name);
        (succeeds && sure).then(|| (file.clone(), name.clone()))
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        if let Some(file) = &mut self.file {
            file.resolve(left);
        }
        self.makes.resolve(left);
    }
}

/// What a blocked thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Class {
    Disk,
    Network,
    Lock,
    Timer,
    Pipe,
    Child,
    Other,
}

/// What a blocked thread waits for, as a term over the left boundary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum ClassTerm {
    Known(Class),
    /// The call that the thread had in flight at the left boundary decides.
    LeftCall(Tid, Sleep),
    /// The kind of this file decides.
    File(Ident),
}

/// Whether a signal ends a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Sleep {
    Interruptible,
    Uninterruptible,
}

impl Sleep {
    pub(crate) fn of(left_as: LeftAs) -> Self {
        match left_as {
            LeftAs::Uninterruptible => Self::Uninterruptible,
            LeftAs::Preempted | LeftAs::Interruptible | LeftAs::Dead => Self::Interruptible,
        }
    }
}

/// The rule: what a thread that sleeps inside a call waits for. The call's name decides where it can; calls that move data
/// through a descriptor wait for what the descriptor stands for. Outside calls an uninterruptible sleep is a page
/// being read, so a disk.
///
/// | call | waits for |
/// |---|---|
/// | `futex*` | lock |
/// | `nanosleep`, `clock_nanosleep` | timer |
/// | `wait4`, `waitid`, `waitpid`, `vfork`, `clone`, `clone3` | child |
/// | `poll`, `ppoll`, `select`, `pselect6`, `epoll_*wait*`, `accept*`, `connect`, `recv*`, `send*` except `sendfile*` | network |
/// | `read`, `write` and their vector and position forms, `sendfile*`, `splice`, `tee`, `copy_file_range`, `ioctl` | by kind of the file: regular → disk, socket → network, pipe → pipe, else other |
/// | with a path, `fsync` and kin, `close`, `getdents*`, `lseek`, `ftruncate`, `fallocate`, `fstat`, `mmap`, `msync`, `munmap` | disk |
/// | all others | uninterruptible → disk, else other |
pub(crate) fn class_in(call: Option<&Call>, sleep: Sleep) -> ClassTerm {
    let by_sleep = match sleep {
        Sleep::Uninterruptible => Class::Disk,
        Sleep::Interruptible => Class::Other,
    };
    let Some(call) = call else { return ClassTerm::Known(by_sleep) };
    let class = match call.name.text() {
        name if name.starts_with("futex") => Class::Lock,
        "nanosleep" | "clock_nanosleep" => Class::Timer,
        // A parent that lends its memory sleeps until the child ends or starts another program.
        "wait4" | "waitid" | "waitpid" | "vfork" | "clone" | "clone3" => Class::Child,
        "poll" | "ppoll" | "select" | "pselect6" | "connect" | "accept" | "accept4" => {
            Class::Network
        }
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Class::Network,
        "recvfrom" | "recvmsg" | "recvmmsg" | "sendto" | "sendmsg" | "sendmmsg" => Class::Network,
        "fsync" | "fdatasync" | "sync" | "syncfs" | "sync_file_range" | "getdents"
        | "getdents64" | "lseek" | "ftruncate" | "fallocate" | "close" | "fstat" | "newfstat"
        | "mmap" | "msync" | "munmap" => Class::Disk,
        name if call.name.traits().is_transfer() || name == "ioctl" => {
            return match &call.file {
                Some(file) => ClassTerm::File(file.clone()).settled(),
                None => ClassTerm::Known(by_sleep),
            };
        }
        _ if call.by_path => Class::Disk,
        _ => by_sleep,
    };
    ClassTerm::Known(class)
}

/// What all calls of one name have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits(u8);

impl Traits {
    const TRANSFER: u8 = 1;
    const MAKES: u8 = 2;
    const MAY_MAKE: u8 = 4;
    const NEVER_RETURNS: u8 = 8;
    const BEARS: u8 = 16;

    pub(crate) fn of(name: &str) -> Self {
        let never_returns = matches!(name, "rt_sigreturn" | "sigreturn" | "exit" | "exit_group");
        let bears = matches!(name, "clone" | "clone3" | "fork" | "vfork");
        let all = [
            (Self::TRANSFER, is_transfer(name)),
            (Self::MAKES, always_makes_descriptor(name)),
            (Self::MAY_MAKE, may_make_descriptor(name)),
            (Self::NEVER_RETURNS, never_returns),
            (Self::BEARS, bears),
        ];
        Self(all.into_iter().filter(|(_, has)| *has).map(|(bit, _)| bit).sum())
    }

    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// Whether a positive return value is a number of bytes moved.
    pub(crate) const fn is_transfer(self) -> bool {
        self.has(Self::TRANSFER)
    }

    /// Whether a call that succeeds returns a new descriptor: what the number stood for before is gone.
    pub(crate) const fn always_makes_descriptor(self) -> bool {
        self.has(Self::MAKES)
    }

    /// Whether some calls of the name return a new descriptor: the entry says whether this one does. A return may have no
    /// name.
    pub(crate) const fn may_make_descriptor(self) -> bool {
        self.has(Self::MAY_MAKE)
    }

    pub(crate) const fn never_returns(self) -> bool {
        self.has(Self::NEVER_RETURNS)
    }

    /// Whether a child returns from it, too.
    const fn bears(self) -> bool {
        self.has(Self::BEARS)
    }
}

fn is_transfer(name: &str) -> bool {
    matches!(
        name,
        "read"
            | "write"
            | "pread64"
            | "pwrite64"
            | "readv"
            | "writev"
            | "preadv"
            | "pwritev"
            | "preadv2"
            | "pwritev2"
            | "recvfrom"
            | "recvmsg"
            | "recv"
            | "sendto"
            | "sendmsg"
            | "send"
            | "sendfile"
            | "sendfile64"
            | "splice"
            | "tee"
            | "vmsplice"
            | "copy_file_range"
            | "getdents"
            | "getdents64"
    )
}

fn always_makes_descriptor(name: &str) -> bool {
    matches!(
        name,
        "open"
            | "openat"
            | "openat2"
            | "open_by_handle_at"
            | "creat"
            | "dup"
            | "socket"
            | "accept"
            | "accept4"
            | "eventfd"
            | "eventfd2"
            | "epoll_create"
            | "epoll_create1"
            | "timerfd_create"
            | "memfd_create"
            | "memfd_secret"
            | "inotify_init"
            | "inotify_init1"
            | "pidfd_open"
            | "pidfd_getfd"
            | "perf_event_open"
            | "io_uring_setup"
            | "userfaultfd"
            | "fanotify_init"
            | "open_tree"
            | "fsopen"
            | "fsmount"
            | "fspick"
    )
}

fn may_make_descriptor(name: &str) -> bool {
    matches!(name, "" | "dup2" | "dup3" | "fcntl" | "fcntl64" | "signalfd" | "signalfd4" | "bpf")
}

impl ClassTerm {
    /// The class by the kind of the file, once that is certain.
    pub(crate) fn settled(self) -> Self {
        match &self {
            Self::File(ident) => match ident.kind() {
                Some(kind) => Self::Known(Class::of_kind(kind)),
                None => self,
            },
            Self::Known(_) | Self::LeftCall(..) => self,
        }
    }
}

impl Class {
    /// What people and programs call it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Lock => "lock",
            Self::Timer => "timer",
            Self::Pipe => "pipe",
            Self::Child => "child",
            Self::Other => "other",
        }
    }

    pub(crate) fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Regular => Self::Disk,
            Kind::Socket => Self::Network,
            Kind::Pipe => Self::Pipe,
            Kind::Other => Self::Other,
        }
    }
}

/// A return from a call, which may have begun before the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadExit {
    /// The thread that it returns to.
    pub(crate) tid: Tid,
    /// Where it returns.
    pub(crate) cpu: Option<CpuId>,
    pub(crate) name: CallName,
    pub(crate) at: Timestamp,
    pub(crate) ret: i64,
    /// What it opened, when the return says so.
    pub(crate) opened: Option<Name>,
    /// Whether events of the thread were lost since the left boundary.
    pub(crate) taint: Taint,
}

impl HeadExit {
    /// The return as it stands behind what else is known of its call.
    pub(crate) fn after(mut self, left: LeftCall) -> Self {
        self.taint = self.taint.or(left.taint);
        self
    }

    /// With the left part known. `own` is the thread whose call there it is.
    pub(crate) fn resolved(mut self, own: Tid, left: &impl Left) -> Self {
        self.taint = self.taint.resolved(own, left);
        self
    }

    /// How many bytes it moved.
    fn bytes(&self) -> u64 {
        match self.name.traits().is_transfer() {
            true => u64::try_from(self.ret).unwrap_or(0),
            false => 0,
        }
    }

    /// Whether this is a child's first return from the call that made it.
    pub(crate) fn is_birth(&self) -> bool {
        self.ret == 0 && self.name.traits().bears()
    }
}

/// Complete calls: how many, how long, how many bytes, how many failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
}

impl Figures {
    pub(crate) fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.ns = self.ns.saturating_add(other.ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
    }

    fn of(call: &Call, exit: &HeadExit) -> Self {
        /// A call that the kernel starts again by itself returns one of these; nobody sees a failure.
        const RESTARTED: std::ops::RangeInclusive<i64> = -516..=-512;
        let failed = exit.ret < 0 && exit.ret >= -4095 && !RESTARTED.contains(&exit.ret);
        let moved =
            if call.name.traits().is_transfer() { u64::try_from(exit.ret).unwrap_or(0) } else { 0 };
        Self { calls: 1, ns: exit.at.since(call.at).get(), bytes: moved, errors: u64::from(failed) }
    }
}

/// Complete calls of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallTotal {
    pub(crate) all: Figures,
    /// Returns that a loss of events lies before: of that call, or of a later one of its name.
    pub(crate) uncertain: u64,
    /// Bound: files the calls worked on; shown by name, at most 1,000 per answer.
    pub(crate) files: Keyed<Ident, Figures>,
}

impl CallTotal {
    fn add(&mut self, other: Self) {
        self.all.add(other.all);
        self.uncertain = self.uncertain.saturating_add(other.uncertain);
        self.files.add_all(other.files, Figures::add);
    }
}

/// Calls, some of whose begins may lie before the window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) total: Keyed<CallName, CallTotal>,
    /// The first return, when its begin was not seen. At most one for each thread of the left part.
    pub(crate) heads: BTreeMap<Tid, HeadExit>,
    /// Returns whose begin nobody will ever find.
    pub(crate) without_begin: u64,
    /// Bytes that those moved, of files that nobody knows.
    pub(crate) bytes_without_begin: u64,
}

impl Calls {
    /// Counts a return: with its begin, as one that waits for the left, or as one without a begin. `own` is the thread that
    /// this call is in flight of.
    pub(crate) fn count(&mut self, own: Tid, exit: &HeadExit, in_flight: &InFlight) {
        match in_flight {
            InFlight::AsLeft(left) => {
                self.heads.insert(left.of.unwrap_or(own), exit.clone().after(*left));
            }
            InFlight::Call(call) if call.ends_with(&exit.name) => self.complete(call, exit),
            InFlight::Birth if exit.name.is_empty() && exit.ret == 0 => {}
            InFlight::Birth | InFlight::Nothing | InFlight::Call(_) => {
                if !exit.is_birth() {
                    self.without_begin = self.without_begin.saturating_add(1);
                    self.bytes_without_begin =
                        self.bytes_without_begin.saturating_add(exit.bytes());
                }
            }
        }
    }

    /// Returns whose begin was not seen, and the bytes they moved, when nothing lies to the left.
    pub(crate) fn closed_without_begin(&self) -> (u64, u64) {
        let heads = self.heads.values().filter(|exit| !exit.is_birth());
        heads.fold((self.without_begin, self.bytes_without_begin), |(returns, bytes), exit| {
            (returns.saturating_add(1), bytes.saturating_add(exit.bytes()))
        })
    }

    fn complete(&mut self, call: &Call, exit: &HeadExit) {
        let total = self.total.or_default(&call.name);
        if call.is_uncertain || exit.taint.is_certain() {
            total.uncertain = total.uncertain.saturating_add(1);
            return;
        }
        let figures = Figures::of(call, exit);
        total.all.add(figures);
        let opened = exit.opened.clone().map(Ident::named);
        if let Some(file) = opened.as_ref().or(call.file.as_ref()) {
            total.files.or_default(file).add(figures);
        }
    }

    /// Returns that events were lost before.
    pub(crate) fn uncertain(&self) -> u64 {
        self.total.values().map(|total| total.uncertain).sum()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.total.add_all(other.total, CallTotal::add);
        self.heads.extend(other.heads);
        self.without_begin = self.without_begin.saturating_add(other.without_begin);
        self.bytes_without_begin =
            self.bytes_without_begin.saturating_add(other.bytes_without_begin);
    }

    /// Puts the left boundary's calls and files in.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        for total in self.total.values_mut() {
            total.files.rekey(Ident::is_settled, |file| file.resolve(left), Figures::add);
        }
        for (own, exit) in std::mem::take(&mut self.heads) {
            self.count(own, &exit.resolved(own, left), left.in_flight(own));
        }
    }
}

/// Changes keys in place; values whose keys become equal are added. Maps without a change are left as they are.
pub(crate) fn resolve_keys<K: Ord + Clone, V>(
    map: &mut BTreeMap<K, V>,
    change: impl Fn(&mut K),
    add: impl Fn(&mut V, V),
) {
    let changed: Vec<(K, K)> = map
        .keys()
        .filter_map(|key| {
            let mut now = key.clone();
            change(&mut now);
            (now != *key).then(|| (key.clone(), now))
        })
        .collect();
    let moved: Vec<(K, V)> =
        changed.into_iter().filter_map(|(old, now)| Some((now, map.remove(&old)?))).collect();
    for (key, value) in moved {
        match map.get_mut(&key) {
            Some(sum) => add(sum, value),
            None => {
                map.insert(key, value);
            }
        }
    }
}
