//! How far something had come a while ago.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far something that only grows had come, now and a while ago: the time that the streams of a session have reached,
/// or the number of packets released.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// When, and how far; both increase.
    steps: VecDeque<(Instant, u64)>,
}

/// Steps closer together than this are one, counted from the later.
const REACH_STEP: Duration = Duration::from_millis(50);

impl Reach {
    /// It has come so far. Keeps what is needed to look back by `back`: about `back` / 25 ms steps at most.
    pub(crate) fn note(&mut self, now: Instant, far: u64, back: Duration) {
        let before = self.steps.back().copied();
        if before.is_some_and(|(_, reached)| reached >= far) {
            return;
        }
        // The last step is moved up only while the one before it is near, so that steps cannot be put off for ever.
        let previous = self.steps.len().checked_sub(2).and_then(|at| self.steps.get(at));
        let is_near =
            previous.is_some_and(|(then, _)| now.saturating_duration_since(*then) < REACH_STEP);
        if is_near {
            self.steps.pop_back();
        }
        self.steps.push_back((now, far));
        while self.steps.get(1).is_some_and(|(then, _)| has_passed(now, *then, back)) {
            self.steps.pop_front();
        }
    }

    /// How far it had come at least `back` ago.
    pub(crate) fn before(&self, now: Instant, back: Duration) -> Option<u64> {
        let old = self.steps.iter().rev().find(|(then, _)| has_passed(now, *then, back));
        old.map(|(_, far)| *far)
    }
}

fn has_passed(now: Instant, then: Instant, back: Duration) -> bool {
    now.saturating_duration_since(then) >= back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_looks_back() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let back = Duration::from_millis(500);
        let mut reach = Reach::default();
        for millis in 0..5000 {
            reach.note(at(millis), millis, back);
            assert!(reach.steps.len() <= 2 + 500 / 25 + 2, "{}", reach.steps.len());
            let before = reach.before(at(millis), back);
            let limit = millis.checked_sub(500);
            assert!(before <= limit, "{before:?} at {millis}");
            let is_near = before.map(|before| before + 100) >= limit.filter(|limit| *limit >= 100);
            assert!(is_near, "{before:?} at {millis}");
        }
    }
}
