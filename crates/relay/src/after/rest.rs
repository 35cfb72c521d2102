//! What the tasks of this module do when something fails: they rest, longer with each failure in a row, and try again.

use std::time::Duration;

use tokio::sync::watch;

use super::Announce;
use crate::counters::Counters;
use crate::error::Result;

/// The rests of one task; the stop of the relay ends each at once.
pub(super) struct Rest {
    first: Duration,
    longest: Duration,
    failures: u32,
    stop: watch::Receiver<bool>,
}

impl Rest {
    pub(super) const fn new(announce: &Announce, stop: watch::Receiver<bool>) -> Self {
        let (first, longest) = (announce.first_pause, announce.longest_pause);
        Self { first, longest, failures: 0, stop }
    }

    /// Whether the relay ends. The sender going away means the same.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// The next failure is the first one again.
    pub(super) const fn worked(&mut self) {
        self.failures = 0;
    }

    /// Rests after a failure.
    pub(super) async fn after_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
        let pause = pause(self.first, self.longest, self.failures);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Notes something in the outbox, however often that fails; says whether it is noted. It is not when the relay ends and
    /// it still fails: the next start does again what was not noted.
    pub(super) async fn noted(
        &mut self,
        counters: &Counters,
        mut note: impl FnMut() -> Result<()>,
    ) -> bool {
        loop {
            let Err(error) = note() else { return true };
            counters.outbox_failures.add(1);
            tracing::error!(error = &error as &dyn std::error::Error, "outbox; it is tried again");
            if self.is_stopping() {
                return false;
            }
            self.after_failure().await;
        }
    }
}

/// How long to rest after so many failures in a row.
pub(crate) fn pause(first: Duration, longest: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(doubled).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<u64> = [1, 2, 3, 6, 7, 33, u32::MAX]
            .map(|failures| {
                pause(Duration::from_secs(1), Duration::from_secs(60), failures).as_secs()
            })
            .to_vec();
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60]);
    }
}
