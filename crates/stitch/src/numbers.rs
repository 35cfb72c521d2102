//! Sets of thread numbers. The kernel gives them out one after the other, so those that have ended lie side by side.

use std::collections::BTreeMap;

use model::Tid;
use serde::{Deserialize, Serialize};

/// Thread numbers as runs: the first of each and the last. Bound: one run more than there are numbers left out between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbers(BTreeMap<i32, i32>);

impl Numbers {
    pub(crate) fn contains(&self, tid: Tid) -> bool {
        self.run(tid.get()).is_some()
    }

    /// The run that a number is in.
    fn run(&self, number: i32) -> Option<(i32, i32)> {
        let (first, last) = self.0.range(..=number).next_back()?;
        (*last >= number).then_some((*first, *last))
    }

    pub(crate) fn insert(&mut self, tid: Tid) {
        let number = tid.get();
        if self.contains(tid) {
            return;
        }
        let after = number.checked_add(1).and_then(|next| self.0.remove(&next));
        let before = number.checked_sub(1).and_then(|before| self.run(before));
        let first = before.map_or(number, |(first, _)| first);
        self.0.insert(first, after.unwrap_or(number));
    }

    pub(crate) fn remove(&mut self, tid: Tid) {
        let number = tid.get();
        let Some((first, last)) = self.run(number) else { return };
        self.0.remove(&first);
        if first < number {
            self.0.insert(first, number - 1);
        }
        if number < last {
            self.0.insert(number + 1, last);
        }
    }

    pub(crate) fn append(&mut self, more: &Self) {
        more.iter().for_each(|tid| self.insert(tid));
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Tid> {
        self.0.iter().flat_map(|(first, last)| (*first..=*last).map(Tid::new))
    }

    #[cfg(feature = "law")]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_set_of_numbers_holds_what_was_put_in_and_not_taken_out() {
        let (mut numbers, mut expected) = (Numbers::default(), BTreeSet::new());
        for step in 0..2_000_i32 {
            let tid = Tid::new(step * 7_919 % 61);
            if step * 31 % 5 < 3 {
                numbers.insert(tid);
                expected.insert(tid);
            } else {
                numbers.remove(tid);
                expected.remove(&tid);
            }
            assert!(numbers.iter().eq(expected.iter().copied()), "{numbers:?}");
            assert_eq!(numbers.contains(tid), expected.contains(&tid));
        }
        let extremes = [i32::MIN, -1, 0, i32::MAX];
        let mut numbers = Numbers::default();
        extremes.into_iter().for_each(|number| numbers.insert(Tid::new(number)));
        assert!(numbers.iter().eq(extremes.map(Tid::new)));
    }

    #[test]
    fn numbers_side_by_side_take_no_room_of_their_own() {
        let mut numbers = Numbers::default();
        (1_000..50_000).for_each(|number| numbers.insert(Tid::new(number)));
        assert_eq!(numbers.0.len(), 1);
        numbers.remove(Tid::new(3_000));
        assert_eq!(numbers.0.len(), 2);
        numbers.insert(Tid::new(3_000));
        assert_eq!(numbers.0.len(), 1);
    }
}
