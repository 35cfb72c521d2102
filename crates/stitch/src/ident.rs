//! What a descriptor stands for, also when a part of the answer lies before the window.
//!
//! An [`Ident`] is a term over the state at the left boundary: a list of guards, tried in order, and a base. The first
//! guard that applies decides; when none does, the base does. Terms are flat lists, so that neither merging nor reading
//! one from a file recurses.

use std::sync::Arc;

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::InFlight;
use crate::descriptors::{Table, TableId};
use crate::name::CallName;
use crate::taint::Taint;

/// What kind of file a descriptor stands for, as far as waiting for it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A file or folder of a file system on a disk.
    Regular,
    /// A socket.
    Socket,
    /// A pipe.
    Pipe,
    /// An event counter, timer, terminal, other device...
    Other,
}

impl Kind {
    /// The kind that the kernel's name of an open file tells: `/a/path`, `socket:[123]`, `pipe:[45]`, `anon_inode:[eventfd]`.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        const NOT_ON_DISK: [&str; 3] = ["/dev/", "/proc/", "/sys/"];
        if name.starts_with("socket") || name.starts_with("TCP") || name.starts_with("UDP") {
            Self::Socket
        } else if name.starts_with("pipe:") {
            Self::Pipe
        } else if name.starts_with("anon_inode:")
            || name.starts_with("[")
            || NOT_ON_DISK.iter().any(|prefix| name.starts_with(prefix))
        {
            Self::Other
        } else {
            Self::Regular
        }
    }
}

/// A file's name and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) text: Arc<str>,
    pub(crate) kind: Kind,
}

/// What a descriptor stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Ident {
    guards: Vec<Guard>,
    base: Base,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Guard {
    /// What the call that this thread had in flight at the left boundary made, if it made something.
    MadeBy(Maker),
    /// Something without a name, if exec closed the number.
    ClosedByExec { flag: Flag, number: Number },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Base {
    Named(Name),
    /// Something that appeared under this number at or after that time, without a name of its own.
    Fresh(Number),
    /// What a call that this thread entered at that time made, which is called so until something tells a better name.
    Made(Timestamp, Tid, Name),
    /// What the number stood for at the left boundary.
    AtLeft(TableId, Fd),
}

/// A descriptor number of a process from a point in time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Number {
    pub(crate) at: Timestamp,
    pub(crate) pid: Pid,
    pub(crate) fd: Fd,
}

impl Number {
    /// Of any process at any time.
    const fn of_any(fd: Fd) -> Self {
        Self { at: Timestamp::MIN, pid: Pid::new(0), fd }
    }
}

/// The return of a call that began before the window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Maker {
    /// The thread whose call at the left boundary it is.
    pub(crate) tid: Tid,
    /// The call that returned; the one in flight must be the same.
    pub(crate) call: CallName,
    /// The descriptor that it gave.
    pub(crate) number: Number,
    /// Whether it is one of the two that the call wrote to memory.
    pub(crate) is_of_pair: bool,
    /// Whether events of the thread were lost since the left boundary.
    pub(crate) taint: Taint,
}

/// Whether exec closes a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Flag {
    /// Calls in flight at the left boundary that decide, if they made the descriptor.
    made_by: Vec<Maker>,
    base: FlagBase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum FlagBase {
    Known(bool),
    AtLeft(TableId, Fd),
}

/// The state at the left boundary, as far as terms ask for it.
pub(crate) trait Left {
    /// A table.
    fn table(&self, id: TableId) -> Table;
    /// What a number stood for.
    fn entry(&self, id: TableId, fd: Fd) -> Entry;
    /// The call a thread was in.
    fn in_flight(&self, tid: Tid) -> &InFlight;
    /// Whether a loss on a CPU hides what a thread did that was next seen to leave it.
    fn taint_of(&self, tid: Tid, cpu: CpuId) -> Taint;

    /// What the call in flight of a thread makes.
    fn made_by(&self, maker: &Maker) -> Made
    where
        Self: Sized,
    {
        let taint = maker.taint.resolved(maker.tid, self);
        Maker { taint, ..maker.clone() }.made(self.in_flight(maker.tid))
    }
}

/// What a call in flight makes when it returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    File(Entry),
    Nothing,
    /// The boundary of the left part decides.
    AskFurtherLeft(Maker),
}

impl Maker {
    /// What the call makes that the thread was in. When events were lost since it began, its return may be that of a later
    /// call of its name, and nobody knows what that made.
    pub(crate) fn made(&self, in_flight: &InFlight) -> Made {
        match in_flight {
            InFlight::AsLeft(left) => Made::AskFurtherLeft(Self {
                tid: left.of.unwrap_or(self.tid),
                taint: self.taint.or(left.taint),
                ..self.clone()
            }),
            InFlight::Call(call) if call.ends_with(&self.call) => {
                let made = if self.is_of_pair { call.makes.pair() } else { call.makes.one() };
                match made {
                    None => Made::Nothing,
                    Some(_) if self.taint.is_certain() || call.is_uncertain => {
                        Made::File(Entry::fresh(self.number))
                    }
                    Some(entry) => Made::File(entry.clone()),
                }
            }
            InFlight::Nothing | InFlight::Birth | InFlight::Call(_) => Made::Nothing,
        }
    }
}

/// One line of a descriptor table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) ident: Ident,
    pub(crate) close_on_exec: Flag,
}

impl Ident {
    pub(crate) fn named(name: Name) -> Self {
        Self { guards: Vec::new(), base: Base::Named(name) }
    }

    pub(crate) fn fresh(number: Number) -> Self {
        Self { guards: Vec::new(), base: Base::Fresh(number) }
    }

    /// What a call makes that this thread enters at that time.
    pub(crate) fn made(at: Timestamp, tid: Tid, name: Name) -> Self {
        Self { guards: Vec::new(), base: Base::Made(at, tid, name) }
    }

    fn at_left(id: TableId, fd: Fd) -> Self {
        Self { guards: Vec::new(), base: Base::AtLeft(id, fd) }
    }

    /// The name, when it is certain.
    pub(crate) fn name(&self) -> Option<&Name> {
        match &self.base {
            Base::Named(name) if self.guards.is_empty() => Some(name),
            _ => None,
        }
    }

    /// What it is called when nothing tells a better name.
    pub(crate) fn made_name(&self) -> Option<&Name> {
        match &self.base {
            Base::Made(_, _, name) => Some(name),
            Base::Named(_) | Base::Fresh(_) | Base::AtLeft(..) => None,
        }
    }

    /// What kind of file it is, when that is certain.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match &self.base {
            Base::Named(name) | Base::Made(_, _, name) if self.guards.is_empty() => Some(name.kind),
            _ => None,
        }
    }

    /// The descriptor number under which something without a name was first met.
    pub(crate) fn number(&self) -> Option<Fd> {
        match &self.base {
            Base::Named(_) | Base::Made(..) => None,
            Base::Fresh(number) => Some(number.fd),
            Base::AtLeft(_, fd) => Some(*fd),
        }
    }

    /// The number that something without any name appeared under.
    pub(crate) fn appeared(&self) -> Option<Number> {
        match self.base {
            Base::Fresh(number) if self.guards.is_empty() => Some(number),
            _ => None,
        }
    }

    /// Whether others are shown alike, and nothing to the left decides.
    pub(crate) fn has_identity(&self) -> bool {
        match &self.base {
            Base::Fresh(number) => self.guards.is_empty() && *number != Number::of_any(number.fd),
            Base::Made(..) => self.guards.is_empty(),
            Base::Named(_) | Base::AtLeft(..) => false,
        }
    }

    /// What all that are shown alike count as once nothing can tell one from the other; `None` where that is what this is, or
    /// where something to the left decides.
    pub(crate) fn without_identity(&self) -> Option<Self> {
        match &self.base {
            _ if !self.has_identity() => None,
            Base::Fresh(number) => Some(Self::fresh(Number::of_any(number.fd))),
            Base::Made(_, _, name) => Some(Self::named(name.clone())),
            Base::Named(_) | Base::AtLeft(..) => None,
        }
    }

    /// What it may turn out to be, as far as that is known here.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Self> {
        let guarded = self.guards.iter().map(|guard| match guard {
            Guard::MadeBy(maker) => Self::fresh(maker.number),
            Guard::ClosedByExec { number, .. } => Self::fresh(*number),
        });
        guarded.chain([Self { guards: Vec::new(), base: self.base.clone() }])
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.guards.is_empty() && !matches!(self.base, Base::AtLeft(..))
    }

    /// Puts the state at the left boundary in.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        if self.is_settled() {
            return;
        }
        let mut open = Vec::new();
        let mut chosen = None;
        for guard in std::mem::take(&mut self.guards) {
            match guard {
                Guard::MadeBy(ref maker) => match left.made_by(maker) {
                    Made::File(entry) => chosen = Some(entry.ident),
                    Made::Nothing => {}
                    Made::AskFurtherLeft(maker) => open.push(Guard::MadeBy(maker)),
                },
                Guard::ClosedByExec { mut flag, number } => {
                    flag.resolve(left);
                    match flag.known() {
                        Some(true) => chosen = Some(Self::fresh(number)),
                        Some(false) => {}
                        None => open.push(Guard::ClosedByExec { flag, number }),
                    }
                }
            }
            if chosen.is_some() {
                break;
            }
        }
        let rest = chosen.unwrap_or_else(|| match &self.base {
            Base::AtLeft(id, fd) => left.entry(*id, *fd).ident,
            base => Self { guards: Vec::new(), base: base.clone() },
        });
        open.extend(rest.guards);
        *self = Self { guards: open, base: rest.base };
    }

    /// The term with nothing to the left: no call was in flight and exec closed nothing of it.
    pub(crate) fn closed(&self) -> Self {
        let certain = self.guards.iter().find_map(|guard| match guard {
            Guard::ClosedByExec { flag, number } if flag.closed() => Some(Self::fresh(*number)),
            _ => None,
        });
        certain.unwrap_or_else(|| Self { guards: Vec::new(), base: self.base.clone() })
    }
}

impl Flag {
    pub(crate) fn certain(value: bool) -> Self {
        Self { made_by: Vec::new(), base: FlagBase::Known(value) }
    }

    fn known(&self) -> Option<bool> {
        match self.base {
            FlagBase::Known(value) if self.made_by.is_empty() => Some(value),
            _ => None,
        }
    }

    fn resolve(&mut self, left: &impl Left) {
        let mut open = Vec::new();
        let mut chosen = None;
        for maker in std::mem::take(&mut self.made_by) {
            match left.made_by(&maker) {
                Made::File(entry) => {
                    chosen = Some(entry.close_on_exec);
                    break;
                }
                Made::Nothing => {}
                Made::AskFurtherLeft(maker) => open.push(maker),
            }
        }
        let rest = chosen.unwrap_or_else(|| match self.base {
            FlagBase::AtLeft(id, fd) => left.entry(id, fd).close_on_exec,
            base @ FlagBase::Known(_) => Self { made_by: Vec::new(), base },
        });
        open.extend(rest.made_by);
        *self = Self { made_by: open, base: rest.base };
    }

    fn closed(&self) -> bool {
        matches!(self.base, FlagBase::Known(true))
    }
}

impl Entry {
    /// Something that nobody saw appear under this number.
    pub(crate) fn fresh(number: Number) -> Self {
        Self { ident: Ident::fresh(number), close_on_exec: Flag::certain(false) }
    }

    /// What a number of a table stands for at the left boundary.
    pub(crate) fn at_left(id: TableId, fd: Fd) -> Self {
        let close_on_exec = Flag { made_by: Vec::new(), base: FlagBase::AtLeft(id, fd) };
        Self { ident: Ident::at_left(id, fd), close_on_exec }
    }

    /// What the maker made, if it made something; else this.
    pub(crate) fn unless_made_by(mut self, maker: &Maker) -> Self {
        self.ident.guards.insert(0, Guard::MadeBy(maker.clone()));
        self.close_on_exec.made_by.insert(0, maker.clone());
        self
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.ident.resolve(left);
        self.close_on_exec.resolve(left);
    }

    /// As it stands after an exec of the process: nothing when it was marked to be closed.
    pub(crate) fn after_exec(&mut self, number: Number) {
        match self.close_on_exec.known() {
            Some(false) => {}
            Some(true) => self.ident = Ident::fresh(number),
            None => {
                let flag = self.close_on_exec.clone();
                self.ident.guards.insert(0, Guard::ClosedByExec { flag, number });
            }
        }
        self.close_on_exec = Flag::certain(false);
    }
}
