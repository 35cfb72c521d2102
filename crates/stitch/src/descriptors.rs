//! Descriptor tables: what the window changed, over what lies before it.

use std::collections::BTreeMap;

use model::{Fd, Pid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ident::{Entry, Flag, Left, Number};

/// A descriptor table. Which one a process has is told by [`crate::sharing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum TableId {
    /// The one that a process has from birth.
    Of(Pid),
    /// The one that a process has since it left a shared one at that time.
    Since(Timestamp, Pid),
}

/// Who did something to a table, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) at: Timestamp,
    pub(crate) pid: Pid,
}

impl Stamp {
    pub(crate) fn number(self, fd: Fd) -> Number {
        Number { at: self.at, pid: self.pid, fd }
    }
}

/// A descriptor table: what the window changed, over what lies before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    base: Base,
    /// What happened to the numbers that have no entry.
    untouched: Untouched,
    /// Bound: descriptor numbers the window touched.
    entries: BTreeMap<Fd, Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Base {
    /// The table at the left boundary.
    AtLeft(TableId),
    /// Nobody knows anything from before.
    Forgotten(Stamp),
}

/// What happened to all numbers from one on, up to the next that is listed; nothing before the first.
///
/// Bound: twice the numbers that calls of `close_range` named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Untouched(BTreeMap<Fd, Since>);

/// What happened to a number since the left boundary: it was closed, or an exec closed it if it was marked so; then the
/// mark was set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Since {
    closed: Option<Stamp>,
    /// The first exec; after it the mark is known.
    exec: Option<Stamp>,
    close_on_exec: Option<bool>,
}

impl Since {
    fn close(&mut self, by: Stamp) {
        *self = Self { closed: Some(by), exec: None, close_on_exec: Some(false) };
    }

    fn exec(&mut self, by: Stamp) {
        match self.close_on_exec {
            None => *self = Self { closed: None, exec: Some(by), close_on_exec: Some(false) },
            Some(true) => self.close(by),
            Some(false) => {}
        }
    }

    /// This, and then what the window to the right did.
    fn then(mut self, right: Self) -> Self {
        if right.closed.is_some() {
            return right;
        }
        if let Some(by) = right.exec {
            self.exec(by);
        }
        self.close_on_exec = right.close_on_exec.or(self.close_on_exec);
        self
    }

    fn apply(self, entry: &mut Entry, fd: Fd) {
        if let Some(by) = self.closed {
            *entry = Entry::fresh(by.number(fd));
        } else if let Some(by) = self.exec {
            entry.after_exec(by.number(fd));
        }
        if let Some(value) = self.close_on_exec {
            entry.close_on_exec = Flag::certain(value);
        }
    }
}

impl Untouched {
    fn at(&self, fd: Fd) -> Since {
        self.0.range(..=fd).next_back().map(|(_, since)| *since).unwrap_or_default()
    }

    /// Does something to the numbers from `first` to `last`.
    fn change(&mut self, first: Fd, last: Fd, step: impl Fn(&mut Since)) {
        let inside = self.at(first);
        self.0.entry(first).or_insert(inside);
        if let Some(after) = last.get().checked_add(1).map(Fd::new) {
            let outside = self.at(after);
            self.0.entry(after).or_insert(outside);
        }
        self.0.range_mut(first..=last).for_each(|(_, since)| step(since));
    }

    /// This, and then what the window to the right did.
    fn then(&self, right: &Self) -> Self {
        let starts = self.0.keys().chain(right.0.keys());
        Self(starts.map(|fd| (*fd, self.at(*fd).then(right.at(*fd)))).collect())
    }
}

impl Table {
    #[cfg(feature = "law")]
    pub(crate) fn leave_out(&mut self, part: crate::Part) {
        if part == crate::Part::Untouched {
            self.untouched.0.clear();
        }
    }

    /// A table that nothing is known of, or nothing since everything was forgotten.
    pub(crate) fn unseen(id: TableId, forgotten: Option<Timestamp>) -> Self {
        let (TableId::Of(pid) | TableId::Since(_, pid)) = id;
        match forgotten {
            Some(at) => Self::forgotten(Stamp { at, pid }),
            None => Self::on(Base::AtLeft(id)),
        }
    }

    /// The table of a process that is gone.
    pub(crate) fn forgotten(by: Stamp) -> Self {
        Self::on(Base::Forgotten(by))
    }

    fn on(base: Base) -> Self {
        Self { base, untouched: Untouched::default(), entries: BTreeMap::new() }
    }

    /// What a number stands for.
    pub(crate) fn entry(&self, fd: Fd) -> Entry {
        if let Some(entry) = self.entries.get(&fd) {
            return entry.clone();
        }
        let mut entry = match self.base {
            Base::Forgotten(by) => Entry::fresh(by.number(fd)),
            Base::AtLeft(id) => Entry::at_left(id, fd),
        };
        self.untouched.at(fd).apply(&mut entry, fd);
        entry
    }

    /// The numbers that have an entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// When and by whom numbers without an entry were freed.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = Stamp> {
        let base = match self.base {
            Base::Forgotten(by) => Some(by),
            Base::AtLeft(_) => None,
        };
        let since = self.untouched.0.values().flat_map(|since| [since.closed, since.exec]);
        base.into_iter().chain(since.flatten())
    }

    pub(crate) fn set(&mut self, fd: Fd, entry: Entry) {
        self.entries.insert(fd, entry);
    }

    pub(crate) fn close(&mut self, number: Number) {
        self.set(number.fd, Entry::fresh(number));
    }

    pub(crate) fn set_close_on_exec(&mut self, fd: Fd, value: bool) {
        let ident = self.entry(fd).ident;
        self.set(fd, Entry { ident, close_on_exec: Flag::certain(value) });
    }

    /// Frees the numbers from `first` to `last`.
    pub(crate) fn close_range(&mut self, first: Fd, last: Fd, by: Stamp) {
        if first <= last {
            self.entries.range_mut(first..=last).for_each(|(fd, entry)| {
                *entry = Entry::fresh(by.number(*fd));
            });
            self.untouched.change(first, last, |since| since.close(by));
        }
    }

    /// Marks the numbers from `first` to `last` to be closed by exec.
    pub(crate) fn mark_range(&mut self, first: Fd, last: Fd) {
        if first <= last {
            self.entries.range_mut(first..=last).for_each(|(_, entry)| {
                entry.close_on_exec = Flag::certain(true);
            });
            self.untouched.change(first, last, |since| since.close_on_exec = Some(true));
        }
    }

    pub(crate) fn exec(&mut self, by: Stamp) {
        for (fd, entry) in &mut self.entries {
            entry.after_exec(by.number(*fd));
        }
        self.untouched.change(Fd::new(0), Fd::new(i32::MAX), |since| since.exec(by));
    }

    /// Puts the state at the left boundary under what this window changed.
    pub(crate) fn resolve(&mut self, left: &impl Left) {
        for entry in self.entries.values_mut() {
            entry.resolve(left);
        }
        if let Base::AtLeft(id) = self.base {
            let mut under = left.table(id);
            if !self.untouched.0.is_empty() {
                for (fd, entry) in &mut under.entries {
                    self.untouched.at(*fd).apply(entry, *fd);
                }
                under.untouched = under.untouched.then(&self.untouched);
            }
            under.entries.append(&mut self.entries);
            *self = under;
        }
    }
}
