//! Streams that ended, in the order they are forgotten.

use std::collections::BTreeMap;

use wire::live::StreamHandle;

/// Each once.
#[derive(Debug, Default)]
pub(super) struct Ended {
    by_age: BTreeMap<i64, StreamHandle>,
    ages: BTreeMap<StreamHandle, i64>,
}

impl Ended {
    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    /// A stream ended after all others.
    pub(super) fn last(&mut self, handle: StreamHandle) {
        let age = self.by_age.last_key_value().map_or(0, |(age, _)| age + 1);
        self.add(handle, age);
    }

    /// A stream ended before all others.
    pub(super) fn first(&mut self, handle: StreamHandle) {
        let age = self.by_age.first_key_value().map_or(0, |(age, _)| age - 1);
        self.add(handle, age);
    }

    /// Gives the one that ended first.
    pub(super) fn take_first(&mut self) -> Option<StreamHandle> {
        let (_, handle) = self.by_age.pop_first()?;
        self.ages.remove(&handle);
        Some(handle)
    }

    /// A stream goes on.
    pub(super) fn forget(&mut self, handle: StreamHandle) {
        if let Some(age) = self.ages.remove(&handle) {
            self.by_age.remove(&age);
        }
    }

    fn add(&mut self, handle: StreamHandle, age: i64) {
        self.forget(handle);
        self.by_age.insert(age, handle);
        self.ages.insert(handle, age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_first_is_forgotten_first() {
        let [one, two, three, four] = [1, 2, 3, 4].map(StreamHandle::new);
        let mut ended = Ended::default();
        ended.last(two);
        ended.last(three);
        ended.first(one);
        ended.last(four);
        ended.forget(two);
        ended.forget(two);
        ended.last(three);
        assert_eq!(ended.len(), 3);
        assert_eq!(
            [(); 4].map(|()| ended.take_first()),
            [Some(one), Some(four), Some(three), None]
        );
        assert!(ended.ages.is_empty());
    }
}
