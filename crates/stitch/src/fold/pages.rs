//! Pages of memory that threads take and give back.

use std::collections::BTreeMap;

use model::Tid;
use serde::{Deserialize, Serialize};

/// Calls of the page allocator and the pages they were about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRow {
    pub(crate) allocations: u64,
    pub(crate) allocated: u64,
    pub(crate) frees: u64,
    pub(crate) freed: u64,
}

/// Pages by thread. Bound: threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pages {
    pub(crate) rows: BTreeMap<Tid, PageRow>,
}

impl PageRow {
    pub(crate) fn append(&mut self, more: &Self) {
        self.allocations = self.allocations.saturating_add(more.allocations);
        self.allocated = self.allocated.saturating_add(more.allocated);
        self.frees = self.frees.saturating_add(more.frees);
        self.freed = self.freed.saturating_add(more.freed);
    }
}

impl Pages {
    pub(crate) fn take(&mut self, tid: Tid, pages: u64, freed: bool) {
        let row = self.rows.entry(tid).or_default();
        row.append(&match freed {
            true => PageRow { frees: 1, freed: pages, ..PageRow::default() },
            false => PageRow { allocations: 1, allocated: pages, ..PageRow::default() },
        });
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (tid, more) in &right.rows {
            self.rows.entry(*tid).or_default().append(more);
        }
    }
}
