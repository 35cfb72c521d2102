//! Pages of memory that threads take and give back.

use serde::{Deserialize, Serialize};

/// Calls of the page allocator and the pages they were about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRow {
    pub(crate) allocations: u64,
    pub(crate) allocated: u64,
    pub(crate) frees: u64,
    pub(crate) freed: u64,
}

impl PageRow {
    pub(crate) fn append(&mut self, more: &Self) {
        self.allocations = self.allocations.saturating_add(more.allocations);
        self.allocated = self.allocated.saturating_add(more.allocated);
        self.frees = self.frees.saturating_add(more.frees);
        self.freed = self.freed.saturating_add(more.freed);
    }

    pub(crate) fn take(&mut self, pages: u64, freed: bool) {
        self.append(&match freed {
            true => Self { frees: 1, freed: pages, ..Self::default() },
            false => Self { allocations: 1, allocated: pages, ..Self::default() },
        });
    }
}
