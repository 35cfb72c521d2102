//! Who is who at the begin of each window, learnt window by window in the order of time.

use model::Timestamp;
use serde::{Deserialize, Serialize};
use stitch::fact::Fact;
use stitch::{Identities, LookAhead};

/// Who is who at the end of a window, and who had which CPU when the run of windows without a gap began that it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    now: Identities,
    ahead: LookAhead,
}

impl Known {
    /// Before the first window of all.
    #[must_use]
    pub fn at(begin: Timestamp) -> Self {
        Self { now: Identities::default().outside_spans(), ahead: LookAhead::new(begin) }
    }

    pub(super) fn take(&mut self, fact: &Fact<&str>) {
        self.ahead.take(fact);
        self.now.learn(fact);
    }

    pub(super) fn pass_gap(&mut self, end: Timestamp) {
        self.now.forget_cpus();
        self.ahead = LookAhead::new(end);
    }
}

/// What a window begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry(pub(super) Identities);

/// What each window begins with. `known` are what is known after each, in order; `is_gap` says of each whether nobody
/// recorded it.
pub(super) fn entries(begin: Timestamp, known: &[Known], is_gap: &[bool]) -> Vec<Entry> {
    let first = Known::at(begin);
    let before = std::iter::once(&first).chain(known);
    let mut entries: Vec<Entry> = before.zip(is_gap).map(|(it, _)| Entry(it.now.clone())).collect();
    // From the last window on: the end of each run knows what its begin waited for.
    let mut ahead: Option<&LookAhead> = None;
    for ((entry, known), is_gap) in entries.iter_mut().zip(known).zip(is_gap).rev() {
        if *is_gap {
            ahead = None;
            continue;
        }
        ahead.get_or_insert(&known.ahead).complete(&mut entry.0);
    }
    entries
}
