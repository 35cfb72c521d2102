//! What a descriptor stands for, also when a part of the answer lies before the window.
//!
//! An [`Ident`] is a term over the state at the left boundary: a list of guards, tried in order, and a base. The first
//! guard that applies decides; when none does, the base does. Terms are flat lists, so that neither merging nor reading
//! one from a file recurses.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Fd, Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::InFlight;
use crate::name::CallName;

/// What kind of file a descriptor stands for, as far as waiting for it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A file or folder of a file system on a disk.
    Regular,
    /// A socket.
    Socket,
    /// A pipe, event counter, timer, terminal, other device...
    Other,
}

impl Kind {
    /// The kind that the kernel's name of an open file tells: `/a/path`, `socket:[123]`, `pipe:[45]`, `anon_inode:[eventfd]`.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        const NOT_ON_DISK: [&str; 3] = ["/dev/", "/proc/", "/sys/"];
        if name.starts_with("socket") || name.starts_with("TCP") || name.starts_with("UDP") {
            Self::Socket
        } else if name.starts_with("pipe:")
            || name.starts_with("anon_inode:")
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
    /// What the number stood for at the left boundary.
    AtLeft(Pid, Fd),
}

/// A descriptor number of a process from a point in time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Number {
    pub(crate) at: Timestamp,
    pub(crate) pid: Pid,
    pub(crate) fd: Fd,
}

/// The return of a call that began before the window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Maker {
    pub(crate) tid: Tid,
    /// The call that returned; the one in flight must be the same.
    pub(crate) call: CallName,
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
    AtLeft(Pid, Fd),
}

/// The state at the left boundary, as far as terms ask for it.
pub(crate) trait Left {
    /// The table a process had.
    fn table(&self, pid: Pid) -> Table;
    /// What a number stood for.
    fn entry(&self, pid: Pid, fd: Fd) -> Entry;
    /// The call a thread was in.
    fn in_flight(&self, tid: Tid) -> &InFlight;

    /// What the call in flight of a thread makes.
    fn made_by(&self, maker: &Maker) -> Made {
        match self.in_flight(maker.tid) {
            InFlight::AsLeft => Made::AskFurtherLeft,
            InFlight::Call(call) if call.ends_with(&maker.call) => {
                call.makes.clone().map_or(Made::Nothing, Made::File)
            }
            InFlight::Nothing | InFlight::Birth | InFlight::Call(_) => Made::Nothing,
        }
    }
}

/// What a call in flight makes when it returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    File(Entry),
    Nothing,
    /// The boundary of the left part decides.
    AskFurtherLeft,
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

    fn at_left(pid: Pid, fd: Fd) -> Self {
        Self { guards: Vec::new(), base: Base::AtLeft(pid, fd) }
    }

    /// The name, when it is certain.
    pub(crate) fn name(&self) -> Option<&Name> {
        match &self.base {
            Base::Named(name) if self.guards.is_empty() => Some(name),
            _ => None,
        }
    }

    /// The descriptor number under which something without a name was first met.
    pub(crate) fn number(&self) -> Option<Fd> {
        match &self.base {
            Base::Named(_) => None,
            Base::Fresh(number) => Some(number.fd),
            Base::AtLeft(_, fd) => Some(*fd),
        }
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
                    Made::AskFurtherLeft => open.push(guard),
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
            Base::AtLeft(pid, fd) => left.entry(*pid, *fd).ident,
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
                Made::AskFurtherLeft => open.push(maker),
            }
        }
        let rest = chosen.unwrap_or_else(|| match self.base {
            FlagBase::AtLeft(pid, fd) => left.entry(pid, fd).close_on_exec,
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
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.ident.resolve(left);
        self.close_on_exec.resolve(left);
    }

    fn after_exec(&mut self, number: Number) {
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

/// The descriptor table of a process: what the window changed, over what lies before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    base: TableBase,
    /// The first exec since the left boundary: it closed what was marked so.
    exec: Option<(Timestamp, Pid)>,
    /// Bound: descriptor numbers the window touched.
    entries: BTreeMap<Fd, Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum TableBase {
    /// The table this process had at the left boundary.
    AtLeft(Pid),
    /// Nobody knows anything from before that time.
    Forgotten(Timestamp, Pid),
}

impl Table {
    #[cfg(feature = "law")]
    pub(crate) fn leave_out(&mut self, part: crate::Part) {
        if part == crate::Part::Execs {
            self.exec = None;
        }
    }

    pub(crate) fn at_left(pid: Pid) -> Self {
        Self { base: TableBase::AtLeft(pid), exec: None, entries: BTreeMap::new() }
    }

    pub(crate) fn forgotten(at: Timestamp, pid: Pid) -> Self {
        Self { base: TableBase::Forgotten(at, pid), exec: None, entries: BTreeMap::new() }
    }

    pub(crate) fn entry(&self, fd: Fd) -> Entry {
        if let Some(entry) = self.entries.get(&fd) {
            return entry.clone();
        }
        match self.base {
            TableBase::Forgotten(at, pid) => Entry {
                ident: Ident::fresh(Number { at, pid, fd }),
                close_on_exec: Flag::certain(false),
            },
            TableBase::AtLeft(pid) => {
                let close_on_exec = Flag { made_by: Vec::new(), base: FlagBase::AtLeft(pid, fd) };
                let mut entry = Entry { ident: Ident::at_left(pid, fd), close_on_exec };
                if let Some((at, pid)) = self.exec {
                    entry.after_exec(Number { at, pid, fd });
                }
                entry
            }
        }
    }

    pub(crate) fn set(&mut self, fd: Fd, entry: Entry) {
        self.entries.insert(fd, entry);
    }

    pub(crate) fn close(&mut self, number: Number) {
        let ident = Ident::fresh(number);
        self.set(number.fd, Entry { ident, close_on_exec: Flag::certain(false) });
    }

    pub(crate) fn set_close_on_exec(&mut self, fd: Fd, value: bool) {
        let ident = self.entry(fd).ident;
        self.set(fd, Entry { ident, close_on_exec: Flag::certain(value) });
    }

    /// A call that began before the window returned `fd`: the number stands for what that call made, if it made something.
    pub(crate) fn set_made_by(&mut self, fd: Fd, maker: Maker) {
        let mut entry = self.entry(fd);
        entry.ident.guards.insert(0, Guard::MadeBy(maker.clone()));
        entry.close_on_exec.made_by.insert(0, maker);
        self.set(fd, entry);
    }

    pub(crate) fn exec(&mut self, at: Timestamp, pid: Pid) {
        for (fd, entry) in &mut self.entries {
            entry.after_exec(Number { at, pid, fd: *fd });
        }
        self.exec.get_or_insert((at, pid));
    }

    /// Puts the state at the left boundary under what this window changed. `table` gives a left table by process.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        for entry in self.entries.values_mut() {
            entry.resolve(left);
        }
        if let TableBase::AtLeft(pid) = self.base {
            let mut under = left.table(pid);
            if let Some((at, pid)) = self.exec {
                under.exec(at, pid);
            }
            under.entries.append(&mut self.entries);
            *self = under;
        }
    }
}
