//! Maps for the path that every event takes: keys side by side and their values, found by a hash, shown in the order of
//! their keys. Looking for a key touches keys only, which are small, while values may be large and many.
//!
//! Nothing that is seen from outside depends on the order in which entries came: iteration, comparison and bytes go by key.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::LazyLock;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What entries are found by.
pub(crate) trait Key: Ord + Hash {}

impl<K: Ord + Hash> Key for K {}

/// Up to so many entries are looked through one by one.
const FEW: usize = 8;

/// Where an entry is. Holds until an entry is removed or the entries are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Values by key.
#[derive(Clone)]
pub(crate) struct Keyed<K, V> {
    keys: Vec<K>,
    /// As many as there are keys, each at the place of its key.
    values: Vec<V>,
    /// Empty while there are only a [`FEW`] entries.
    index: Index,
}

impl<K: Key, V> Keyed<K, V> {
    pub(crate) const fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new(), index: Index(Vec::new()) }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    #[inline]
    pub(crate) fn find(&self, key: &K) -> Option<Slot> {
        if self.keys.len() <= FEW {
            return self.keys.iter().position(|known| known == key).map(Slot);
        }
        let is_it = |place: usize| self.keys.get(place) == Some(key);
        self.index.find(hash(key), is_it).map(Slot)
    }

    /// The place of a key; its value is made if there is none.
    #[inline]
    pub(crate) fn slot(&mut self, key: &K, make: impl FnOnce() -> V) -> Slot
    where
        K: Clone,
    {
        match self.find(key) {
            Some(slot) => slot,
            None => self.push(key.clone(), make()),
        }
    }

    fn push(&mut self, key: K, value: V) -> Slot {
        let place = self.keys.len();
        if place == 0 {
            // Of the maps that each thread has most stay at one.
            self.values.reserve_exact(1);
        }
        let is_indexed = self.index.has_room(place);
        if is_indexed {
            self.index.add(hash(&key), place);
        }
        self.keys.push(key);
        self.values.push(value);
        if !is_indexed && place >= FEW {
            self.build_index();
        }
        Slot(place)
    }

    #[cold]
    fn build_index(&mut self) {
        self.index = Index::default();
        if self.keys.len() > FEW {
            self.index = Index::for_entries(self.keys.len());
            for (place, key) in self.keys.iter().enumerate() {
                self.index.add(hash(key), place);
            }
        }
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a slot is a place that was filled")]
    pub(crate) fn at(&mut self, slot: Slot) -> &mut V {
        &mut self.values[slot.0]
    }

    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let Slot(place) = self.find(key)?;
        self.values.get(place)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.find(key)?;
        Some(self.at(slot))
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// The value of a key, made if there is none.
    #[inline]
    pub(crate) fn or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V
    where
        K: Clone,
    {
        let slot = self.slot(key, make);
        self.at(slot)
    }

    /// The value of a key, which begins as nothing.
    #[inline]
    pub(crate) fn or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        self.or_insert_with(key, V::default)
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Some(slot) => *self.at(slot) = value,
            None => {
                self.push(key, value);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.index = Index::default();
    }

    fn is_sorted(&self) -> bool {
        self.keys.is_sorted_by(|one, other| one < other)
    }

    /// Takes all out, in the order of keys. Only keys are moved to find it: values may be large.
    fn take_sorted(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        let (keys, values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
        let mut places: Vec<(K, usize)> = keys.into_iter().zip(0..).collect();
        places.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut values: Vec<Option<V>> = values.into_iter().map(Some).collect();
        let value = move |(key, place): (K, usize)| Some((key, values.get_mut(place)?.take()?));
        places.into_iter().filter_map(value)
    }

    /// Puts the entries side by side in their order.
    pub(crate) fn sort(&mut self) {
        if !self.is_sorted() {
            (self.keys, self.values) = self.take_sorted().unzip();
            self.build_index();
        }
    }

    /// Shows the keys, in no order.
    pub(crate) fn for_each_key(&self, look: impl FnMut(&K)) {
        self.keys.iter().for_each(look);
    }

    /// In no order.
    pub(crate) fn iter_unordered(&self) -> impl Iterator<Item = (&K, &V)> {
        self.keys.iter().zip(&self.values)
    }

    /// In the order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut all: Vec<(&K, &V)> = self.keys.iter().zip(&self.values).collect();
        if !self.is_sorted() {
            all.sort_unstable_by_key(|(key, _)| *key);
        }
        all.into_iter()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// In the order of keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// In no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.keys.iter().zip(&mut self.values)
    }

    /// In no order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut()
    }

    /// In the order of keys.
    pub(crate) fn into_entries(mut self) -> impl Iterator<Item = (K, V)> {
        let unsorted = (!self.is_sorted()).then(|| self.take_sorted());
        // One of the two is empty.
        self.keys.into_iter().zip(self.values).chain(unsorted.into_iter().flatten())
    }

    /// Changes keys that are not settled; values whose keys become equal are added.
    pub(crate) fn rekey(
        &mut self,
        is_settled: impl Fn(&K) -> bool,
        change: impl Fn(&mut K),
        add: impl Fn(&mut V, V),
    ) {
        if self.keys.iter().all(&is_settled) {
            return;
        }
        let (keys, values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
        let mut open = Vec::new();
        for (key, value) in keys.into_iter().zip(values) {
            if is_settled(&key) {
                self.keys.push(key);
                self.values.push(value);
            } else {
                open.push((key, value));
            }
        }
        self.build_index();
        for (mut key, value) in open {
            change(&mut key);
            match self.get_mut(&key) {
                Some(sum) => add(sum, value),
                None => {
                    self.push(key, value);
                }
            }
        }
    }

    /// Leaves entries out.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&K, &V) -> bool) {
        let kept = self.keys.iter().zip(&self.values).map(|(key, value)| keeps(key, value));
        let kept: Vec<bool> = kept.collect();
        if kept.iter().all(|is_kept| *is_kept) {
            return;
        }
        // Each is asked for once, in order.
        let mut of_keys = kept.iter().copied();
        self.keys.retain(|_| of_keys.next().unwrap_or(true));
        let mut of_values = kept.iter().copied();
        self.values.retain(|_| of_values.next().unwrap_or(true));
        self.build_index();
    }

    /// Adds the values of another map, key by key. Keys that stand at the same place in both, as in parts of the same threads
    /// and programs, are found there.
    pub(crate) fn add_all(&mut self, more: Self, add: impl Fn(&mut V, V)) {
        for (place, (key, value)) in more.keys.into_iter().zip(more.values).enumerate() {
            let same = (self.keys.get(place) == Some(&key)).then_some(Slot(place));
            match same.or_else(|| self.find(&key)) {
                Some(slot) => add(self.at(slot), value),
                None => {
                    self.push(key, value);
                }
            }
        }
    }

    /// Takes no more room than it needs.
    pub(crate) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.values.shrink_to_fit();
    }

    pub(crate) fn extend(&mut self, more: Self) {
        for (key, value) in more.into_entries() {
            self.insert(key, value);
        }
    }
}

impl<K: Key, V> Default for Keyed<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key + fmt::Debug, V: fmt::Debug> fmt::Debug for Keyed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Key, V: PartialEq> PartialEq for Keyed<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Key, V: Eq> Eq for Keyed<K, V> {}

impl<K: Key + Serialize, V: Serialize> Serialize for Keyed<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K: Key + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Keyed<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<K, V>(PhantomData<(K, V)>);

impl<'de, K: Key + Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
    type Value = Keyed<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("entries by key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keyed = Keyed::new();
        while let Some((key, value)) = map.next_entry()? {
            keyed.insert(key, value);
        }
        Ok(keyed)
    }
}

/// Places by hash: the first free one from where the hash says, of at least twice as many as there are entries.
#[derive(Debug, Clone, Default)]
struct Index(Vec<(u32, u32)>);

impl Index {
    /// Stands for a place without an entry; more entries than that would fill all memory.
    const FREE: u32 = u32::MAX;

    fn for_entries(count: usize) -> Self {
        Self(vec![(0, Self::FREE); (4 * count).next_power_of_two()])
    }

    fn has_room(&self, entries: usize) -> bool {
        2 * entries < self.0.len()
    }

    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut at, own) = self.start(hash);
        loop {
            match *self.0.get(at)? {
                (_, Self::FREE) => return None,
                (hash, place) if hash == own && is_it(place as usize) => {
                    return Some(place as usize);
                }
                _ => at = (at + 1) & (self.0.len() - 1),
            }
        }
    }

    fn add(&mut self, hash: u64, place: usize) {
        let (mut at, own) = self.start(hash);
        let Ok(place) = u32::try_from(place) else { unreachable!("{place} entries") };
        while let Some(found) = self.0.get_mut(at) {
            if found.1 == Self::FREE {
                *found = (own, place);
                return;
            }
            at = (at + 1) & (self.0.len() - 1);
        }
    }

    /// Where to look first, and what of the hash is compared.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the halves are used for one thing each")]
    fn start(&self, hash: u64) -> (usize, u32) {
        (hash as usize & self.0.len().wrapping_sub(1), (hash >> 32) as u32)
    }
}

#[inline]
fn hash<K: Hash>(key: &K) -> u64 {
    let mut mixer = Mixer(*SEED);
    key.hash(&mut mixer);
    mixer.finish()
}

/// Another one in each process, so that nobody can write a trace whose numbers and texts collide.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

/// Makes hashers of keys, for maps of the standard library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mixers(u64);

impl Default for Mixers {
    fn default() -> Self {
        Self(*SEED)
    }
}

impl BuildHasher for Mixers {
    type Hasher = Mixer;

    #[inline]
    fn build_hasher(&self) -> Mixer {
        Mixer(self.0)
    }
}

/// Hashes by a multiplication and a fold for each word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mixer(u64);

impl Mixer {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the halves are folded")]
    fn mix(&mut self, number: u64) {
        /// Digits of pi after the point, odd.
        const FACTOR: u64 = 0x243f_6a88_85a3_08d3;
        let product = u128::from(self.0 ^ number) * u128::from(FACTOR);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.mix(word);
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.mix(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    #[inline]
    fn write_i32(&mut self, number: i32) {
        self.mix(number.cast_unsigned().into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.mix(number.cast_unsigned() as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_and_shown_in_order_however_many_there_are() {
        let mut keyed = Keyed::new();
        let number = |n: i32| n * 7_919 % 1_009;
        for n in 0..1_009 {
            *keyed.or_default(&number(n)) = n;
            assert_eq!(keyed.len(), usize::try_from(n).unwrap() + 1);
            assert_eq!(keyed.get(&number(n / 2)), Some(&(n / 2)));
            assert_eq!(keyed.get(&1_009), None);
        }
        let by_key: Vec<i32> = keyed.keys().copied().collect();
        assert_eq!(by_key, (0..1_009).collect::<Vec<_>>());
        let mut sorted = keyed.clone();
        sorted.sort();
        assert_eq!(sorted, keyed);
        assert!((0..1_009).all(|n| sorted.get(&number(n)) == Some(&n)));
        let text = serde_json::to_string(&keyed).unwrap();
        assert_eq!(serde_json::from_str::<Keyed<i32, i32>>(&text).unwrap(), keyed);
        *sorted.or_default(&number(3)) += 1;
        assert_ne!(sorted, keyed);
    }

    #[test]
    fn values_of_keys_that_become_equal_are_added() {
        for count in [3, 100] {
            let mut keyed = Keyed::new();
            (0..2 * count).for_each(|n| keyed.insert(n, 1));
            keyed.rekey(|n| *n < count, |n| *n -= count / 2, |sum, more| *sum += more);
            let sums: Vec<(i32, i32)> = keyed.iter().map(|(n, sum)| (*n, *sum)).collect();
            let sum = |n: i32| if n < count && n >= count - count / 2 { 2 } else { 1 };
            let end = 2 * count - count / 2;
            assert_eq!(sums, (0..end).map(|n| (n, sum(n))).collect::<Vec<_>>());
        }
    }
}
