//! What became of every record, from the application to the last driver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was no loss of what a journal has, by what it was.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// Of a journal and all that goes into it and out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Records that were ever put into the journal.
    pub stored: u64,
    /// Bytes of the journal on the disk.
    pub bytes: u64,
    /// By service.
    pub services: BTreeMap<String, ServiceLedger>,
    /// By driver.
    pub drivers: BTreeMap<String, DriverLedger>,
    /// How often something went wrong that lost nothing which was stored, since the start: `ring` (given up because it says what cannot be),
    /// `memory_file`, `greeting` (not taken), `accept`,
    /// `journal` (not written, tried again), `not_back` (a process that was gone when a new recorder began: what was in its rings is gone with it), and what
    /// of OSProfiler's traces cannot be asked for any more (`redis_evicted_traces` and others).
    pub troubles: BTreeMap<String, u64>,
}

/// Of what processes of a service recorded: `emitted = stored + dropped`. What is in rings still is in neither.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceLedger {
    /// Records in the journal, ever.
    pub stored: u64,
    /// Records that never came there, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Processes that were seen.
    pub processes: u64,
    /// Those of them that have ended.
    pub ended: u64,
}

/// Of what a driver was there for: `seen = delivered + dropped + waiting`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverLedger {
    /// Records that were stored since it was first there.
    pub seen: u64,
    /// Records that its target has.
    pub delivered: u64,
    /// Records that it never will have, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Records that wait in the journal.
    pub waiting: u64,
}

impl Ledger {
    /// Whether every record is accounted for.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let stored: u64 = self.services.values().map(|it| it.stored).sum();
        stored == self.stored && self.drivers.values().all(DriverLedger::adds_up)
    }

    /// Records that were dropped anywhere, by where and why.
    #[must_use]
    pub fn dropped(&self) -> BTreeMap<(&str, &str), u64> {
        let services = self.services.iter().map(|(name, it)| (name, &it.dropped));
        let drivers = self.drivers.iter().map(|(name, it)| (name, &it.dropped));
        let all = services.chain(drivers);
        let all = all.flat_map(|(name, dropped)| {
            dropped.iter().map(|(reason, count)| ((name.as_str(), reason.as_str()), *count))
        });
        all.collect()
    }
}

impl ServiceLedger {
    /// What its processes recorded, but for what is in their rings still.
    #[must_use]
    pub fn emitted(&self) -> u64 {
        self.dropped.values().fold(self.stored, |sum, count| sum.saturating_add(*count))
    }
}

impl DriverLedger {
    /// Whether every record is accounted for.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.seen == self.delivered + self.dropped.values().sum::<u64>() + self.waiting
    }
}
