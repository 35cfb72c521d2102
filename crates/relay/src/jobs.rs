//! Jobs that wait: those of one recording session are done one after the other, so that its chunks are sealed and
//! announced in their order; those of others need not wait for them.

use std::collections::VecDeque;
use std::time::Instant;

/// Jobs by whose they are.
#[derive(Debug)]
pub(crate) struct Jobs<K, J> {
    waiting: VecDeque<Waiting<K, J>>,
    /// Whose job is being done; as many as do jobs at a time.
    busy: Vec<K>,
    /// Nothing rests any more.
    is_ending: bool,
}

#[derive(Debug)]
struct Waiting<K, J> {
    whose: K,
    job: J,
    /// For one that failed: when it is tried again. Others do not wait for it.
    rests_until: Option<Instant>,
}

impl<K, J> Default for Jobs<K, J> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), busy: Vec::new(), is_ending: false }
    }
}

impl<K: PartialEq + Copy, J> Jobs<K, J> {
    pub(crate) fn add(&mut self, whose: K, job: J) {
        self.waiting.push_back(Waiting { whose, job, rests_until: None });
    }

    /// Adds a job that failed, to be tried again from `then` on. When all is ending it is given back.
    pub(crate) fn again(&mut self, whose: K, job: J, then: Instant) -> Option<J> {
        if self.is_ending {
            return Some(job);
        }
        self.waiting.push_back(Waiting { whose, job, rests_until: Some(then) });
        None
    }

    /// What rests is tried once more.
    pub(crate) const fn end_rests(&mut self) {
        self.is_ending = true;
    }

    /// The first job of someone of whom none is being done; [`Jobs::end`] says that it is done.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<(K, J)> {
        let Waiting { whose, job, .. } = self.waiting.remove(self.ready(now)?)?;
        self.busy.push(whose);
        Some((whose, job))
    }

    pub(crate) fn end(&mut self, whose: K) {
        self.busy.retain(|busy| *busy != whose);
    }

    /// Whether there is a job to begin.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready(now).is_some()
    }

    /// When the next job that rests is to be begun.
    pub(crate) fn next_rested(&self) -> Option<Instant> {
        let free = self.waiting.iter().filter(|waiting| !self.busy.contains(&waiting.whose));
        free.filter_map(|waiting| waiting.rests_until).min()
    }

    fn ready(&self, now: Instant) -> Option<usize> {
        self.waiting.iter().position(|Waiting { whose, rests_until, .. }| {
            let rests = !self.is_ending && rests_until.is_some_and(|until| now < until);
            !rests && !self.busy.contains(whose)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nobody_waits_for_the_jobs_of_others_and_ones_own_stay_in_order() {
        let (mut jobs, now) = (Jobs::default(), Instant::now());
        for (whose, job) in [("a", 1), ("a", 2), ("b", 3), ("a", 4)] {
            jobs.add(whose, job);
        }
        assert_eq!(jobs.begin(now), Some(("a", 1)));
        assert_eq!(jobs.begin(now), Some(("b", 3)));
        assert!(!jobs.is_ready(now));
        assert_eq!(jobs.begin(now), None);
        jobs.end("b");
        assert_eq!(jobs.begin(now), None);
        jobs.end("a");
        assert!(jobs.is_ready(now));
        assert_eq!(jobs.begin(now), Some(("a", 2)));
        jobs.end("a");
        assert_eq!(jobs.begin(now), Some(("a", 4)));
        jobs.end("a");
        assert_eq!(jobs.begin(now), None);
    }

    #[test]
    fn a_job_that_failed_rests_and_holds_nobody_up() {
        let (mut jobs, now) = (Jobs::default(), Instant::now());
        let then = now + Duration::from_secs(1);
        jobs.add("a", 1);
        assert_eq!(jobs.begin(now), Some(("a", 1)));
        assert_eq!(jobs.again("a", 1, then), None);
        assert_eq!(jobs.next_rested(), None, "a job of the same one is being done");
        jobs.end("a");
        jobs.add("a", 2);
        assert_eq!(jobs.next_rested(), Some(then));
        assert_eq!(jobs.begin(now), Some(("a", 2)));
        jobs.end("a");
        assert_eq!(jobs.begin(now), None);
        assert_eq!(jobs.begin(then), Some(("a", 1)));
        assert_eq!(jobs.again("a", 1, then + Duration::from_secs(1)), None);
        jobs.end("a");
        jobs.end_rests();
        assert_eq!(jobs.begin(then), Some(("a", 1)));
        assert_eq!(jobs.again("a", 1, then), Some(1));
    }
}
