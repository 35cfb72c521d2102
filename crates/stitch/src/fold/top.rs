//! The greatest of many, exactly, however they are grouped.

use std::cmp::{Ordering, Reverse};

use serde::{Deserialize, Serialize};

use super::sieve::Item;

/// How many a list keeps.
pub(crate) const KEPT: usize = 100;

/// The [`KEPT`] longest items: by length, then the earlier one, then the lower thread number, then by all the rest, so that
/// no two are alike. Unsorted while a window is read; at most twice as many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Top<T> {
    found: Vec<T>,
    /// Below this, nothing gets in any more.
    least_ns: u64,
}

impl<T> Default for Top<T> {
    fn default() -> Self {
        Self { found: Vec::new(), least_ns: 0 }
    }
}

impl<T: Item> Top<T> {
    pub(crate) fn push(&mut self, item: &T) {
        if item.ns() < self.least_ns {
            return;
        }
        self.found.push(item.clone());
        if self.found.len() >= 2 * KEPT {
            self.keep_longest();
        }
    }

    /// Puts the list in its one order; equal contents become equal lists.
    pub(crate) fn keep_longest(&mut self) {
        self.found.sort_by(rank);
        self.found.truncate(KEPT);
        if self.found.len() == KEPT {
            self.least_ns = self.found.last().map_or(0, Item::ns);
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        self.found.extend(right.found);
        self.keep_longest();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.found.iter()
    }

    /// Changes what a window could not say of its items. Their order rests on nothing else but in equal ones.
    pub(crate) fn change(&mut self, change: impl FnMut(&mut T)) {
        self.found.iter_mut().for_each(change);
    }
}

/// The longer item first, then the earlier one, then the one of the lower thread number.
pub(crate) fn rank<T: Item>(one: &T, other: &T) -> Ordering {
    let key = |item: &T| (Reverse(item.ns()), item.begin(), item.tid());
    key(one).cmp(&key(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;
    use crate::select::Logged;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Stretch(i64, i64);

    impl Item for Stretch {
        fn begin(&self) -> Timestamp {
            Timestamp::from_nanos(self.0)
        }

        fn end(&self) -> Timestamp {
            Timestamp::from_nanos(self.0 + self.1)
        }

        fn is_in(&self, _: Logged) -> bool {
            false
        }
    }

    #[test]
    fn the_longest_of_parts_are_the_longest_of_all() {
        let all: Vec<Stretch> = (0..1_000).map(|n| Stretch(n, n * 7_919 % 257)).collect();
        let list = |items: &[Stretch]| {
            let mut top = Top::default();
            items.iter().for_each(|item| top.push(item));
            top.keep_longest();
            top
        };
        let whole = list(&all);
        for cut in [0, 1, 99, 500, 1_000] {
            let mut left = list(&all[..cut]);
            left.append(list(&all[cut..]));
            assert_eq!(left, whole, "cut at {cut}");
        }
        assert_eq!(whole.iter().count(), KEPT);
    }
}
