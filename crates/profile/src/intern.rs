//! Values by number: each is kept once and compared by its number from then on.
//!
//! Numbers are those of first arrival, so they depend on the order in which values come. [`crate::seal`] numbers anew, by
//! content, before anything is written.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Values that were seen, the zero value first.
#[derive(Debug)]
pub(crate) struct Table<T> {
    items: Vec<T>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Hash + Eq> Table<T> {
    pub(crate) fn new(zero: T) -> Self {
        let mut table = Self {
            items: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        table.intern_with(zero, PartialEq::eq, |zero| zero);
        table
    }
}

impl<T: Hash> Table<T> {
    /// The number of the item that is the same as `query`, made from it when it was not there. A query must hash as its
    /// item does.
    pub(crate) fn intern_with<Q: Hash>(
        &mut self,
        query: Q,
        same: impl Fn(&T, &Q) -> bool,
        make: impl FnOnce(Q) -> T,
    ) -> u32 {
        let hash = self.hasher.hash_one(&query);
        let items = &self.items;
        let found = self
            .index
            .find(hash, |&id| items.get(id as usize).is_some_and(|item| same(item, &query)));
        if let Some(&id) = found {
            return id;
        }
        let id = number(self.items.len());
        self.items.push(make(query));
        let (items, hasher) = (&self.items, &self.hasher);
        self.index.insert_unique(hash, id, |&id| hasher.hash_one(item(items, id)));
        id
    }
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn get(&self, id: u32) -> &T {
        item(&self.items, id)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.items.iter()
    }
}

impl<T: Hash + Eq + Copy> Table<T> {
    pub(crate) fn intern(&mut self, value: T) -> u32 {
        self.intern_with(value, |item, value| item == value, |value| value)
    }
}

impl Table<Box<str>> {
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        self.intern_with(text, |item, text| **item == **text, Box::from)
    }
}

/// A number for an index; tables are bounded far below.
pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a packet's tables are bounded")
}

/// The item that a number stands for.
#[expect(clippy::indexing_slicing, reason = "numbers come from the table that they are used on")]
pub(crate) fn item<T>(items: &[T], id: u32) -> &T {
    &items[id as usize]
}
