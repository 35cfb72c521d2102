//! Streams whose producer is gone and may come back.

use std::collections::BTreeMap;

use wire::live::{Name, RelativePath, StreamHandle};

/// What a stream is known by when its producer is back: path and channel.
pub(super) type Key = (RelativePath, Name);

/// One stream for each key, in the order they came.
#[derive(Debug, Default)]
pub(super) struct Returnable {
    by_key: BTreeMap<Key, (u64, StreamHandle)>,
    by_age: BTreeMap<u64, Key>,
    next: u64,
}

impl Returnable {
    /// A stream may come back; gives another one of this key, which cannot any more.
    pub(super) fn add(&mut self, key: Key, handle: StreamHandle) -> Option<StreamHandle> {
        let other = self.take(&key).filter(|other| *other != handle);
        self.by_age.insert(self.next, key.clone());
        self.by_key.insert(key, (self.next, handle));
        self.next += 1;
        other
    }

    pub(super) fn get(&self, key: &Key) -> Option<StreamHandle> {
        self.by_key.get(key).map(|(_, handle)| *handle)
    }

    pub(super) fn take(&mut self, key: &Key) -> Option<StreamHandle> {
        let (age, handle) = self.by_key.remove(key)?;
        self.by_age.remove(&age);
        Some(handle)
    }

    /// A stream is not there any more; another one of its key stays.
    pub(super) fn forget(&mut self, key: &Key, handle: StreamHandle) {
        if self.get(key) == Some(handle) {
            self.take(key);
        }
    }

    /// The one that came first, if there are more than `kept`; it cannot come back any more.
    pub(super) fn excess(&mut self, kept: usize) -> Option<StreamHandle> {
        let oldest = self.by_age.first_key_value().filter(|_| self.by_age.len() > kept);
        let key = oldest.map(|(_, key)| key.clone())?;
        self.take(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_leaves_first_and_one_of_a_key_is_enough() {
        let key = |name: &str| (RelativePath::new("a").unwrap(), Name::new(name).unwrap());
        let [one, two, three, four] = [1, 2, 3, 4].map(StreamHandle::new);
        let mut streams = Returnable::default();
        assert_eq!(streams.add(key("x"), one), None);
        assert_eq!(streams.add(key("y"), two), None);
        assert_eq!(streams.add(key("x"), three), Some(one));
        assert_eq!(streams.add(key("x"), three), None);
        streams.forget(&key("x"), one);
        assert_eq!(streams.get(&key("x")), Some(three));
        assert_eq!(streams.excess(2), None);
        streams.add(key("z"), four);
        assert_eq!(streams.excess(2), Some(two));
        assert_eq!(streams.take(&key("x")), Some(three));
        assert_eq!((streams.by_key.len(), streams.by_age.len()), (1, 1));
        assert_eq!(streams.excess(0), Some(four));
        assert_eq!(streams.excess(0), None);
    }
}
