//! When to try again.

use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// The first wait is up to this long, and each is up to twice the one before.
const FIRST: Duration = Duration::from_millis(500);

/// No wait of our own is longer.
const LONGEST: Duration = Duration::from_secs(30);

/// A server is not waited for longer, whatever it says.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

/// How long to wait after failures: exponential, by chance between half and all of it, so that agents that failed together do not come back
/// together.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after a failure; not shorter than the server asked for. `chance` is a random number from 0 to 1.
    pub fn after_failure(&mut self, asked: Option<Duration>, chance: f64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let own = whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        own.max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }

    /// Something worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether the last attempt failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failures != 0
    }
}

/// What `Retry-After` asks for: seconds, or a date by the server's own clock (RFC 9110, 10.2.3).
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let then = date(text)?;
    // A server that gives a date without its own says nothing that could be compared.
    let now = date(headers.get(DATE)?.to_str().ok()?)?;
    Some(then.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_vary() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> =
            (0..40).map(|_| backoff.after_failure(None, fastrand::f64())).collect();
        for (wait, most) in waits.iter().zip([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]) {
            let most = Duration::from_secs_f64(most);
            assert!((most / 2..=most).contains(wait), "{wait:?} of {most:?}");
        }
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        let late: std::collections::BTreeSet<_> = waits.iter().skip(10).collect();
        assert!(late.len() > 1, "all the same: {late:?}");
        backoff.reset();
        assert!(backoff.after_failure(None, 1.0) <= FIRST);
        let minute = Duration::from_secs(60);
        assert_eq!(backoff.after_failure(Some(minute), 1.0), minute);
        assert_eq!(backoff.after_failure(Some(Duration::MAX), 1.0), LONGEST_ASKED);
    }

    #[test]
    fn servers_ask_in_seconds_or_by_date() {
        let asked = |headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
            });
            retry_after(&headers.collect())
        };
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(asked(&[("retry-after", "120")]), Some(Duration::from_secs(120)));
        assert_eq!(
            asked(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), date]),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            asked(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), date]),
            Some(Duration::ZERO)
        );
        assert_eq!(asked(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]), None);
        assert_eq!(asked(&[("retry-after", "-1"), date]), None);
        assert_eq!(asked(&[]), None);
    }
}
