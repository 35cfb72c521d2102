//! The reading that comes first when windows are mapped side by side: who is who at the begin of each.

use std::sync::Arc;

use model::Timestamp;
use stitch::fact::Fact;
use stitch::{Identities, LookAhead};

/// A window's stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    /// Whether nobody recorded it.
    pub(crate) is_gap: bool,
}

/// Learns who is who at the begin of each window from all facts in order.
pub(super) struct Round<'w> {
    windows: std::slice::Iter<'w, Stretch>,
    next: Option<&'w Stretch>,
    now: Identities,
    /// Of the run of windows without a gap that goes on.
    ahead: LookAhead,
    /// What was known at the begins of that run's windows.
    run: Vec<Identities>,
    done: Vec<Arc<Identities>>,
}

impl<'w> Round<'w> {
    pub(super) fn new(windows: &'w [Stretch]) -> Self {
        let mut windows = windows.iter();
        let next = windows.next();
        let begin = next.map_or(Timestamp::MIN, |window| window.begin);
        Self {
            windows,
            next,
            now: Identities::default().outside_spans(),
            ahead: LookAhead::new(begin),
            run: Vec::new(),
            done: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, fact: &Fact<&str>) {
        while let Some(window) = self.next.filter(|window| window.begin <= fact.at) {
            self.begin(window);
        }
        self.ahead.take(fact);
        self.now.learn(fact);
    }

    fn begin(&mut self, window: &Stretch) {
        if window.is_gap {
            self.now.forget_cpus();
        }
        self.run.push(self.now.clone());
        if window.is_gap {
            self.end_run();
            self.ahead = LookAhead::new(window.end);
        }
        self.next = self.windows.next();
    }

    fn end_run(&mut self) {
        for mut identities in self.run.drain(..) {
            self.ahead.complete(&mut identities);
            self.done.push(Arc::new(identities));
        }
    }

    pub(super) fn finish(mut self) -> Vec<Arc<Identities>> {
        while let Some(window) = self.next {
            self.begin(window);
        }
        self.end_run();
        self.done
    }
}
