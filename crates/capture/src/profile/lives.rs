//! What is known of processes, by number and begin, until they are gone.

use std::collections::HashMap;

use model::Pid;

use super::scan;
use crate::kernel::clock;

/// Processes of which something is known at the same time; when there are more, all are forgotten.
const MAX_PROCESSES: usize = 32_768;

/// When so many came, or as many as are there, those that are gone are looked for: two or three reads of `/proc/PID/stat` for each
/// that comes.
const MANY: usize = 1024;

/// A value for each process, of [`MAX_PROCESSES`] at most. One that is gone keeps its own until no sample of it comes any more, and is
/// forgotten then: of those that are gone there are about twice as many as of those that are there, or twice [`MANY`].
#[derive(Debug)]
pub(super) struct Lives<V> {
    known: HashMap<(Pid, u64), Life<V>>,
    /// How many there may be until those that are gone are looked for.
    most: usize,
}

#[derive(Debug)]
struct Life<V> {
    value: V,
    /// When it was seen to be gone: `CLOCK_MONOTONIC`.
    gone_ns: Option<u64>,
}

impl<V> Default for Lives<V> {
    fn default() -> Self {
        Self { known: HashMap::new(), most: MANY }
    }
}

impl<V> Lives<V> {
    /// What is known of a process that began so many nanoseconds after boot.
    pub(super) fn get(&self, pid: Pid, start_ns: u64) -> Option<&V> {
        self.known.get(&(pid, start_ns)).map(|life| &life.value)
    }

    /// Takes the place of what was known of a process. All samples from before `sampled_ns` (`CLOCK_MONOTONIC`) were there already.
    pub(super) fn insert(&mut self, pid: Pid, start_ns: u64, value: V, sampled_ns: u64) {
        if self.known.len() >= self.most {
            self.forget_gone(sampled_ns);
        }
        self.known.insert((pid, start_ns), Life { value, gone_ns: None });
    }

    fn forget_gone(&mut self, sampled_ns: u64) {
        let mut living = 0;
        self.known.retain(|(pid, start_ns), life| {
            if let Some(gone_ns) = life.gone_ns {
                return sampled_ns <= gone_ns;
            }
            if scan::is_still(*pid, *start_ns) {
                living += 1;
            } else {
                life.gone_ns = Some(clock::monotonic_ns());
            }
            true
        });
        if self.known.len() >= MAX_PROCESSES {
            self.known.clear();
        }
        self.most = (self.known.len() + MANY.max(living)).min(MAX_PROCESSES);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// This process, and when it began.
    fn own() -> (Pid, u64) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let start_ns = scan::start_ticks(&stat).unwrap() * scan::TICK_NS;
        (Pid::new(std::process::id().cast_signed()), start_ns)
    }

    /// Processes that had this one's number at other times.
    fn insert_gone(lives: &mut Lives<u64>, count: u64, sampled_ns: impl Fn() -> u64) -> usize {
        let (pid, own_ns) = own();
        let mut most = 0;
        for number in 1..=count {
            lives.insert(pid, own_ns + number * 1_000_000_000, number, sampled_ns());
            most = most.max(lives.known.len());
        }
        most
    }

    #[test]
    fn processes_that_are_gone_are_forgotten_and_those_that_are_there_stay() {
        let (pid, start_ns) = own();
        let mut lives = Lives::default();
        lives.insert(pid, start_ns, 0, clock::monotonic_ns());
        let most = insert_gone(&mut lives, 20_000, clock::monotonic_ns);
        assert!(most <= 2 * MANY + 1, "{most}");
        assert_eq!(lives.get(pid, start_ns), Some(&0));
        assert_eq!(lives.get(pid, start_ns + 1_000_000_000), None);
        assert_eq!(lives.get(pid, start_ns + 20_000 * 1_000_000_000), Some(&20_000));
    }

    #[test]
    fn one_that_is_gone_stays_while_samples_of_it_may_come() {
        let (pid, start_ns) = own();
        let before_all_ns = clock::monotonic_ns();
        let mut lives = Lives::default();
        insert_gone(&mut lives, 5 * MANY as u64, || before_all_ns);
        assert_eq!(lives.known.len(), 5 * MANY);
        assert_eq!(lives.get(pid, start_ns + 1_000_000_000), Some(&1));
    }

    #[test]
    fn there_is_a_bound_whoever_is_there() {
        let mut lives = Lives::default();
        let most = insert_gone(&mut lives, MAX_PROCESSES as u64 + 10, || 0);
        assert_eq!(most, MAX_PROCESSES);
        assert!(lives.known.len() <= 10);
    }
}
