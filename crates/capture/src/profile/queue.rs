//! From the ring to whoever finds names: samples that wait, and their bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Means;
use super::processes::Process;
use super::{KernelFrame, Moment};

/// Samples that wait for their turn; what comes then is dropped and counted.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// What the sampling thread tells.
#[derive(Debug)]
pub(super) enum Message {
    /// The clocks run.
    Started(Means),
    /// A sample, as the ring gave it, its process as it was then, and its frames in the kernel.
    Sample { bytes: Vec<u8>, process: Option<Arc<Process>>, kernel: Vec<KernelFrame> },
    /// All until a moment was given.
    Until(Moment),
}

/// Bytes of samples that were handed over and not looked at yet.
#[derive(Debug, Default)]
pub(super) struct InFlight(AtomicUsize);

impl InFlight {
    pub(super) fn put(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn take(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many more may wait.
    pub(super) fn room(&self) -> usize {
        MAX_WAITING_BYTES.saturating_sub(self.0.load(Ordering::Relaxed))
    }
}

/// Samples as the ring gave them.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    samples: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    in_flight: &'a InFlight,
    pub(super) no_room: u64,
    pub(super) malformed: u64,
}

impl<'a> Queue<'a> {
    pub(super) const fn new(in_flight: &'a InFlight) -> Self {
        Self { samples: Vec::new(), bytes: 0, in_flight, no_room: 0, malformed: 0 }
    }

    pub(super) fn push(&mut self, sample: &[u8]) {
        match sample.first_chunk().map(|time| u64::from_ne_bytes(*time)) {
            Some(_) if self.bytes.saturating_add(sample.len()) > self.in_flight.room() => {
                self.no_room += 1;
            }
            Some(at_ns) => {
                self.bytes += sample.len();
                self.samples.push((at_ns, sample.to_vec()));
            }
            None => self.malformed += 1,
        }
    }

    /// Those until a moment, by time.
    pub(super) fn take(&mut self, until_ns: u64) -> Vec<(u64, Vec<u8>)> {
        self.samples.sort_by_key(|(at_ns, _)| *at_ns);
        let later = self.samples.partition_point(|(at_ns, _)| *at_ns <= until_ns);
        let later = self.samples.split_off(later);
        self.bytes = later.iter().map(|(_, sample)| sample.len()).sum();
        std::mem::replace(&mut self.samples, later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: u64, bytes: usize) -> Vec<u8> {
        let mut sample = at_ns.to_ne_bytes().to_vec();
        sample.resize(bytes, 0);
        sample
    }

    #[test]
    fn samples_come_by_time_and_those_of_later_stay() {
        let in_flight = InFlight::default();
        let mut queue = Queue::new(&in_flight);
        for at_ns in [5, 3, 9, 4] {
            queue.push(&sample(at_ns, 20));
        }
        queue.push(&[1, 2, 3]);
        let times = |samples: Vec<(u64, _)>| samples.into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(times(queue.take(5)), [3, 4, 5]);
        assert_eq!(times(queue.take(u64::MAX)), [9]);
        assert_eq!((queue.no_room, queue.malformed), (0, 1));
    }

    #[test]
    fn what_was_handed_over_counts_until_it_was_looked_at() {
        let in_flight = InFlight::default();
        let mut queue = Queue::new(&in_flight);
        in_flight.put(MAX_WAITING_BYTES - 30);
        queue.push(&sample(1, 20));
        queue.push(&sample(2, 20));
        assert_eq!(queue.no_room, 1);
        in_flight.take(20);
        queue.push(&sample(3, 20));
        assert_eq!((queue.take(u64::MAX).len(), queue.no_room), (2, 1));
    }
}
