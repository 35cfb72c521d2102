//! Jobs that wait: those of one recording session are done one after the other, so that its chunks are sealed and
//! announced in their order; those of others need not wait for them.

use std::collections::VecDeque;

/// Jobs by whose they are.
#[derive(Debug)]
pub(crate) struct Jobs<K, J> {
    waiting: VecDeque<(K, J)>,
    /// Whose job is being done; as many as do jobs at a time.
    busy: Vec<K>,
}

impl<K, J> Default for Jobs<K, J> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), busy: Vec::new() }
    }
}

impl<K: PartialEq + Copy, J> Jobs<K, J> {
    pub(crate) fn add(&mut self, whose: K, job: J) {
        self.waiting.push_back((whose, job));
    }

    /// The first job of someone of whom none is being done; [`Jobs::end`] says that it is done.
    pub(crate) fn begin(&mut self) -> Option<(K, J)> {
        let next = self.waiting.remove(self.ready()?)?;
        self.busy.push(next.0);
        Some(next)
    }

    pub(crate) fn end(&mut self, whose: K) {
        self.busy.retain(|busy| *busy != whose);
    }

    /// Whether there is a job to begin.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    fn ready(&self) -> Option<usize> {
        self.waiting.iter().position(|(whose, _)| !self.busy.contains(whose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_the_jobs_of_others_and_ones_own_stay_in_order() {
        let mut jobs = Jobs::default();
        for (whose, job) in [("a", 1), ("a", 2), ("b", 3), ("a", 4)] {
            jobs.add(whose, job);
        }
        assert_eq!(jobs.begin(), Some(("a", 1)));
        assert_eq!(jobs.begin(), Some(("b", 3)));
        assert!(!jobs.is_ready());
        assert_eq!(jobs.begin(), None);
        jobs.end("b");
        assert_eq!(jobs.begin(), None);
        jobs.end("a");
        assert!(jobs.is_ready());
        assert_eq!(jobs.begin(), Some(("a", 2)));
        jobs.end("a");
        assert_eq!(jobs.begin(), Some(("a", 4)));
        jobs.end("a");
        assert_eq!(jobs.begin(), None);
    }
}
