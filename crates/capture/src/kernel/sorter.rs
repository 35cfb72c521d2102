//! Puts the records of one CPU in time order.
//!
//! A program reads the time and then takes its place in the ring. An interrupt between the two steps puts its own
//! records, with later times, in front. Such an inversion lasts no longer than the interrupt, so that after
//! holding records back for a little time their order is known: a record is given out once the reader is sure that
//! everything up to its time has been read, and `late` tells when that was wrong.
//!
//! Invariants: records come out by rising time, equal times in the order of the ring; what is held is bounded by
//! `max_bytes`, beyond which the oldest record is given out before its time.

use std::collections::VecDeque;

/// Waste in the buffer below which it is not compacted.
const COMPACT_FROM_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy)]
struct Held {
    time_ns: u64,
    start: usize,
    len: usize,
}

/// Records that wait for their turn.
#[derive(Debug)]
pub(super) struct Sorter {
    held: VecDeque<Held>,
    bytes: Vec<u8>,
    live_bytes: usize,
    max_bytes: usize,
    newest_ns: u64,
}

impl Sorter {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { held: VecDeque::new(), bytes: Vec::new(), live_bytes: 0, max_bytes, newest_ns: 0 }
    }

    /// Takes a record in the order of the ring.
    pub(super) fn push(&mut self, time_ns: u64, record: &[u8]) {
        self.compact();
        self.newest_ns = self.newest_ns.max(time_ns);
        let held = Held { time_ns, start: self.bytes.len(), len: record.len() };
        self.bytes.extend_from_slice(record);
        self.live_bytes += record.len();
        let later = self.held.iter().rev().take_while(|other| other.time_ns > time_ns).count();
        match later {
            0 => self.held.push_back(held),
            _ => self.held.insert(self.held.len() - later, held),
        }
    }

    /// The next record whose time is at most `until_ns`, with its time.
    pub(super) fn pop(&mut self, until_ns: u64) -> Option<(u64, &[u8])> {
        let first = self.held.front()?;
        if first.time_ns > until_ns && self.live_bytes <= self.max_bytes {
            return None;
        }
        let Held { time_ns, start, len } = self.held.pop_front()?;
        self.live_bytes -= len;
        Some((time_ns, self.bytes.get(start..start + len).unwrap_or_default()))
    }

    /// The latest time of all records so far.
    pub(super) fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Drops the bytes of records that are gone, when they are most of the buffer; so each byte is moved
    /// at most about once.
    fn compact(&mut self) {
        if self.held.is_empty() {
            self.bytes.clear();
        }
        if self.bytes.len() < COMPACT_FROM_BYTES || self.live_bytes > self.bytes.len() / 2 {
            return;
        }
        let mut kept = Vec::with_capacity(self.bytes.len());
        for held in &mut self.held {
            let record = self.bytes.get(held.start..held.start + held.len).unwrap_or_default();
            held.start = kept.len();
            kept.extend_from_slice(record);
        }
        self.bytes = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(sorter: &mut Sorter, until_ns: u64) -> Vec<(u64, Vec<u8>)> {
        std::iter::from_fn(|| sorter.pop(until_ns).map(|(time, record)| (time, record.to_vec())))
            .collect()
    }

    #[test]
    fn inverted_records_come_out_in_order_and_equal_times_keep_theirs() {
        let mut sorter = Sorter::new(1 << 20);
        for (time, record) in [(10, "a"), (30, "c"), (20, "b"), (30, "d"), (25, "x"), (40, "e")] {
            sorter.push(time, record.as_bytes());
        }
        let order = |drained: Vec<(u64, Vec<u8>)>| -> String {
            drained.into_iter().map(|(_, record)| String::from_utf8(record).unwrap()).collect()
        };
        assert_eq!(order(drain(&mut sorter, 29)), "abx");
        assert_eq!(order(drain(&mut sorter, 30)), "cd");
        sorter.push(35, b"f");
        assert_eq!(order(drain(&mut sorter, u64::MAX)), "fe");
        assert!(sorter.pop(u64::MAX).is_none());
    }

    #[test]
    fn nothing_is_given_out_before_its_time_unless_too_much_is_held() {
        let mut sorter = Sorter::new(8);
        sorter.push(5, &[1; 4]);
        sorter.push(6, &[2; 4]);
        assert!(drain(&mut sorter, 4).is_empty());
        sorter.push(7, &[3; 4]);
        assert_eq!(drain(&mut sorter, 4), [(5, vec![1; 4])]);
    }

    #[test]
    fn records_survive_compaction() {
        let mut sorter = Sorter::new(usize::MAX);
        let record = |number: u64| number.to_le_bytes().repeat(1000);
        let mut expected = 0;
        for number in 0..3000 {
            sorter.push(number, &record(number));
            if number >= 5 {
                let (time, found) = sorter.pop(u64::MAX).unwrap();
                assert_eq!((time, found), (expected, record(expected).as_slice()));
                expected += 1;
            }
        }
        assert!(sorter.bytes.len() < 4 * COMPACT_FROM_BYTES);
    }
}
