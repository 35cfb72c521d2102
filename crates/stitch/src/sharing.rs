//! Which processes have one descriptor table together, and who is about to share or to leave one.
//!
//! That is a matter of who is who, as in [`crate::who`]: a window begins with what the windows before it learnt, because
//! two names for one table would be two tables until a merge. Nearly always nobody shares, and this is empty.

use std::collections::BTreeMap;

use model::{Fd, Pid, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::descriptors::TableId;
use crate::fact::Effect;

/// Who shares descriptor tables with other processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sharing {
    /// Processes that share, or left a table that was shared. Bound: such processes that live.
    tables: BTreeMap<Pid, Shared>,
    /// Threads in a call that shares or leaves a table when it succeeds. Bound: threads.
    calls: BTreeMap<Tid, Intent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Shared {
    table: TableId,
    /// Whether another process may have it, too.
    by_others: bool,
}

/// What a call does to the sharing of its process's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Intent {
    /// A child that is born in it shares the table.
    Share,
    /// It gives the process a table of its own.
    Leave,
    /// It does, and then frees or marks numbers in it.
    LeaveAndClose { first: Fd, last: Fd, only_mark: bool },
}

/// A process leaves a shared table for a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) from: TableId,
    pub(crate) to: TableId,
}

impl Intent {
    pub(crate) fn of<S>(effect: &Effect<S>) -> Option<Self> {
        match *effect {
            Effect::ShareTable => Some(Self::Share),
            Effect::LeaveTable => Some(Self::Leave),
            Effect::CloseRange { first, last, only_mark, leaves_table: true } => {
                Some(Self::LeaveAndClose { first, last, only_mark })
            }
            _ => None,
        }
    }

    /// Whether its process leaves a shared table.
    pub(crate) fn leaves(self) -> bool {
        self != Self::Share
    }
}

impl Sharing {
    /// The table that a process has.
    pub(crate) fn table_of(&self, pid: Pid) -> TableId {
        self.tables.get(&pid).map_or(TableId::Of(pid), |shared| shared.table)
    }

    /// Whether no call is under way that shares or leaves a table.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// A thread begins a call.
    pub(crate) fn enter(&mut self, tid: Tid, intent: Option<Intent>) {
        match intent {
            Some(intent) => {
                self.calls.insert(tid, intent);
            }
            None => {
                self.calls.remove(&tid);
            }
        }
    }

    /// A call returns to a thread: what it wanted, when it succeeded.
    pub(crate) fn exit(&mut self, tid: Tid, ret: i64) -> Option<Intent> {
        self.calls.remove(&tid).filter(|_| ret == 0)
    }

    /// Nobody knows which calls threads are in.
    pub(crate) fn forget_calls(&mut self) {
        self.calls.clear();
    }

    /// A thread is born. `parent`: the thread in whose call it is, and that thread's process; `said`: whether a child that
    /// is a process shares the parent's table, when the record says. Gives the child's table when it is not the parent's.
    pub(crate) fn fork(
        &mut self,
        at: Timestamp,
        parent: Option<(Tid, Pid)>,
        (child, pid): (Tid, Pid),
        said: Option<bool>,
    ) -> Option<TableId> {
        self.calls.remove(&child);
        let is_process = parent.map_or(child.get() == pid.get(), |(_, parent)| parent != pid);
        if !is_process {
            return Some(self.table_of(pid));
        }
        self.tables.remove(&pid);
        let shares = |tid| said.unwrap_or_else(|| self.calls.get(&tid) == Some(&Intent::Share));
        if let Some((_, parent)) = parent.filter(|(tid, _)| shares(*tid)) {
            let shared = Shared { table: self.table_of(parent), by_others: true };
            self.tables.extend([(parent, shared), (pid, shared)]);
            return None;
        }
        if self.is_in_use(TableId::Of(pid)) {
            self.tables.insert(pid, Shared { table: TableId::Since(at, pid), by_others: false });
        }
        Some(self.table_of(pid))
    }

    /// A process gets a table of its own, a copy, if the one it has is shared.
    pub(crate) fn leave(&mut self, at: Timestamp, pid: Pid) -> Option<Left> {
        let shared = self.tables.get_mut(&pid).filter(|shared| shared.by_others)?;
        let (from, to) = (shared.table, TableId::Since(at, pid));
        *shared = Shared { table: to, by_others: false };
        Some(Left { from, to })
    }

    /// A process ends. Gives the tables that nobody has any more.
    pub(crate) fn end(&mut self, pid: Pid) -> Vec<TableId> {
        let mut ended = vec![TableId::Of(pid)];
        if let Some(shared) = self.tables.remove(&pid)
            && shared.table != TableId::Of(pid)
        {
            ended.push(shared.table);
        }
        ended.retain(|table| !self.is_in_use(*table));
        ended
    }

    fn is_in_use(&self, table: TableId) -> bool {
        self.tables.values().any(|shared| shared.table == table)
    }
}
