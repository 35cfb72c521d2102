//! What saves work and nothing else: without it the same bytes come out.

use std::hash::Hash;

use hashbrown::HashMap;

/// Values by key, so many at most. When there is no room for one more, all are forgotten: what is still in use comes back with the next
/// samples, and no order of use has to be kept.
///
/// A key must hold all that its value is made of. Where it holds an address in memory, the value holds the place there, by a `Weak` at
/// least, so that nothing else takes the address meanwhile.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    known: HashMap<K, V>,
    most: usize,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    /// An empty one for at least one value.
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most: most.max(1) }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.known.len() >= self.most {
            self.forget();
        }
        self.known.insert(key, value);
    }

    /// Empties it.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_was_said_is_kept() {
        for most in [0, 1, 3] {
            let mut cache = Cache::new(most);
            for key in 0..10 {
                cache.insert(key, key + 1);
                assert_eq!(cache.get(&key), Some(&(key + 1)));
                assert!(cache.known.len() <= most.max(1));
            }
        }
    }
}
