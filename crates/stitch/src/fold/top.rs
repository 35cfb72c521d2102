//! The greatest of many, exactly, however they are grouped.

use std::cmp::Reverse;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

/// How many a list keeps.
pub(crate) const KEPT: usize = 100;

/// The [`KEPT`] greatest: by value, then the earlier one, then the lower thread number, then by all the rest, so that no two
/// are alike. Unsorted while a window is read; at most twice as many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Top<T> {
    found: Vec<Found<T>>,
    /// Below this, nothing gets in any more.
    least: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found<T> {
    pub(crate) value: u64,
    at: Timestamp,
    tid: Tid,
    pub(crate) what: T,
}

impl<T> Default for Top<T> {
    fn default() -> Self {
        Self { found: Vec::new(), least: 0 }
    }
}

impl<T: Ord + Copy> Top<T> {
    pub(crate) fn push(&mut self, value: u64, at: Timestamp, tid: Tid, what: T) {
        if value < self.least {
            return;
        }
        self.found.push(Found { value, at, tid, what });
        if self.found.len() >= 2 * KEPT {
            self.keep_greatest();
        }
    }

    /// Puts the list in its one order; equal contents become equal lists.
    pub(crate) fn keep_greatest(&mut self) {
        self.found.sort_by_key(|found| (Reverse(found.value), found.at, found.tid, found.what));
        self.found.truncate(KEPT);
        if self.found.len() == KEPT {
            self.least = self.found.last().map_or(0, |found| found.value);
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        self.found.extend(right.found);
        self.keep_greatest();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Found<T>> {
        self.found.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_parts_are_the_greatest_of_all() {
        let values: Vec<u64> = (0..1_000_u64).map(|n| n * 7_919 % 257).collect();
        let list = |values: &[u64], from: usize| {
            let mut top = Top::default();
            for (n, value) in values.iter().enumerate() {
                let at = Timestamp::from_nanos(i64::try_from(from + n).unwrap());
                top.push(*value, at, Tid::new(1), from + n);
            }
            top.keep_greatest();
            top
        };
        let whole = list(&values, 0);
        for cut in [0, 1, 99, 500, 1_000] {
            let mut left = list(&values[..cut], 0);
            left.append(list(&values[cut..], cut));
            assert_eq!(left, whole, "cut at {cut}");
        }
        assert_eq!(whole.iter().count(), KEPT);
    }
}
