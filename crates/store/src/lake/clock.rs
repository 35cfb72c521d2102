//! The store's own time, in which blocks come. It only grows, whatever the system's clock does.

use model::Timestamp;

/// When blocks came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// Nothing comes any more that came before.
    last: Timestamp,
    /// When the block came that is being written.
    writing: Option<Timestamp>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { last: Timestamp::from_nanos(0), writing: None }
    }
}

impl Clock {
    /// A block comes: later than all before.
    pub(super) fn begin(&mut self, now: Timestamp) -> Timestamp {
        self.last = now.max(Timestamp::from_nanos(self.last.nanos().saturating_add(1)));
        self.writing = Some(self.last);
        self.last
    }

    /// It is in the catalogue, or never will be.
    pub(super) const fn end(&mut self) {
        self.writing = None;
    }

    /// Everything that comes from here on is later.
    pub(super) fn latest(&mut self, now: Timestamp) -> Timestamp {
        self.last = self.last.max(now);
        self.last
    }

    /// Nothing came before that is not in the catalogue, and nothing will.
    pub(super) fn low(&mut self, now: Timestamp) -> Timestamp {
        let latest = self.latest(now);
        self.writing.unwrap_or(latest)
    }

    /// Blocks came until then before this process began.
    pub(super) fn resume(&mut self, last: Timestamp) {
        self.last = self.last.max(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_grows_and_waits_for_what_is_written() {
        let at = Timestamp::from_nanos;
        let mut clock = Clock::default();
        clock.resume(at(100));
        assert_eq!(clock.begin(at(50)), at(101), "a clock that was set back");
        assert_eq!(clock.low(at(200)), at(101));
        clock.end();
        assert_eq!(clock.low(at(150)), at(200));
        assert_eq!(clock.begin(at(150)), at(201));
    }
}
