//! How much a tenant may send.

use model::{Nanos, Timestamp};

use crate::error::Error;
use crate::limits::Limits;

/// Bytes in a second, in units of [`Bucket::level`].
const UNIT: i128 = 1_000_000_000;

/// Bytes that may be sent at once, which fill up again with time.
///
/// A body is taken as long as there is anything in the bucket, and what it has more than that is owed: so a body that is larger than the bucket is
/// taken, too, and the next ones wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// In billionths of a byte; below 0 what is owed.
    level: i128,
    /// When it was so.
    at: Timestamp,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn new(limits: &Limits, now: Timestamp) -> Self {
        Self { level: i128::from(limits.burst_bytes) * UNIT, at: now }
    }

    /// Takes the bytes of a body. A clock that goes back fills nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Rate`], with the time after which a body is taken again.
    pub fn take(&mut self, bytes: usize, limits: &Limits, now: Timestamp) -> Result<(), Error> {
        let filled = i128::from(now.since(self.at).get()) * i128::from(limits.bytes_per_second);
        self.level = (self.level + filled).min(i128::from(limits.burst_bytes) * UNIT);
        self.at = self.at.max(now);
        if self.level <= 0 {
            let wait = (-self.level).checked_div(i128::from(limits.bytes_per_second));
            let wait = wait.and_then(|wait| u64::try_from(wait + 1).ok()).unwrap_or(u64::MAX);
            return Err(Error::Rate { after: Nanos::new(wait) });
        }
        self.level -= bytes as i128 * UNIT;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_what_it_has_and_fills_with_time() {
        let limits = Limits { bytes_per_second: 1_000, burst_bytes: 500, ..Limits::default() };
        let at = |ms: i64| Timestamp::from_nanos(ms * 1_000_000);
        let mut bucket = Bucket::new(&limits, at(0));
        let mut take = |bytes, ms| bucket.take(bytes, &limits, at(ms));
        assert_eq!(take(400, 0), Ok(()));
        // Larger than what is left: it is taken and owed.
        assert_eq!(take(2_100, 0), Ok(()));
        let refused = take(1, 0).unwrap_err();
        assert_eq!(refused, Error::Rate { after: Nanos::new(2_000_000_001) });
        assert_eq!(take(1, 1_000), Err(Error::Rate { after: Nanos::new(1_000_000_001) }));
        // Back in time: nothing is gained, and nothing counted twice.
        assert!(take(1, 500).is_err());
        assert!(take(1, 2_000).is_err());
        assert_eq!(take(1, 2_001), Ok(()));
        assert!(take(1, 2_001).is_err());
        // However long it waits, it holds no more than it can.
        assert_eq!(take(500, 100_000), Ok(()));
        assert!(take(1, 100_000).is_err());
    }

    #[test]
    fn without_a_rate_nothing_fills() {
        let limits = Limits { bytes_per_second: 0, burst_bytes: 0, ..Limits::default() };
        let mut bucket = Bucket::new(&limits, Timestamp::MIN);
        let refused = bucket.take(1, &limits, Timestamp::MAX);
        assert_eq!(refused, Err(Error::Rate { after: Nanos::new(u64::MAX) }));
    }
}
