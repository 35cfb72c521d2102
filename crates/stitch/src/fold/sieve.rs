//! Things that begin and end: which of them count, and each by itself where a log is wanted.
//!
//! A selection belongs to the summary: neighbours are mapped with the same one, and what it leaves out is in no total, no
//! list and no log. A log holds what ended in the window, in no order until it is taken out.

use std::sync::Arc;

use model::{CpuId, Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fact::Line;
use crate::select::{Logged, Selection};

/// Something whose begin and end were seen.
pub(crate) trait Item: Ord + Clone {
    fn begin(&self) -> Timestamp;
    fn end(&self) -> Timestamp;

    fn ns(&self) -> u64 {
        self.end().since(self.begin()).get()
    }

    /// Whether a log of that has it.
    fn is_in(&self, log: Logged) -> bool;

    /// The idle thread where nobody knows; `None` where there is none to know.
    fn tid(&self) -> Option<Tid> {
        None
    }

    fn cpu(&self) -> Option<CpuId> {
        None
    }

    fn line(&self) -> Option<Line> {
        None
    }

    /// Bytes moved, where that means something.
    fn bytes(&self) -> Option<u64> {
        None
    }
}

/// What a selection lets through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sieve<T> {
    selection: Option<Arc<Selection>>,
    /// Empty unless the selection asks for it; then as long as its reader lets it grow.
    log: Vec<T>,
}

impl<T> Default for Sieve<T> {
    fn default() -> Self {
        Self { selection: None, log: Vec::new() }
    }
}

impl<T: Item> Sieve<T> {
    pub(crate) fn select(&mut self, selection: &Arc<Selection>) {
        self.selection = Some(Arc::clone(selection));
    }

    pub(crate) fn selection(&self) -> Option<&Selection> {
        self.selection.as_deref()
    }

    /// Whether an item counts; it is logged where that is asked for.
    pub(crate) fn passes(&mut self, item: &T) -> bool {
        let Some(selection) = &self.selection else { return true };
        let passes = selection.takes(item);
        if passes && selection.logs.iter().any(|log| item.is_in(*log)) {
            self.log.push(item.clone());
        }
        passes
    }

    /// Logs an item that is in no total that is selected, where a log of such items is asked for.
    pub(crate) fn note(&mut self, log: Logged, item: impl FnOnce() -> T) {
        let Some(selection) = self.selection.as_ref().filter(|all| all.logs.contains(&log)) else {
            return;
        };
        let item = item();
        if selection.takes(&item) {
            self.log.push(item);
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        self.log.extend(right.log);
        self.selection = self.selection.take().or(right.selection);
    }

    /// The same selection, and nothing logged.
    pub(crate) fn emptied(&self) -> Self {
        Self { selection: self.selection.clone(), log: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn logged_mut(&mut self) -> &mut [T] {
        &mut self.log
    }

    /// Takes the log out, by ends, then by begins; what began and ended together by what it is.
    pub(crate) fn take_log(&mut self) -> Vec<T> {
        let mut log = std::mem::take(&mut self.log);
        let times = |item: &T| (item.end(), item.begin());
        log.sort_by(|one, other| times(one).cmp(&times(other)).then_with(|| one.cmp(other)));
        log
    }
}
