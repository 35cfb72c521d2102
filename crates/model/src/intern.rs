//! Values by number: each is kept once and compared by its number from then on.
//!
//! Numbers are those of first arrival, so they depend on the order in which values come: whoever writes them numbers anew, by
//! content. Number 0 is the zero value of each table.
//!
//! Texts and lists lie one behind the other in one piece of memory, so that keeping one more costs no allocation of its own.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Which number a value has.
#[derive(Debug, Clone, Default)]
struct Index {
    /// Hash and number: a table that grows hashes nothing again.
    numbers: HashTable<(u64, u32)>,
    hasher: DefaultHashBuilder,
}

impl Index {
    /// The number of the value of which `same` says yes; `next` when there is none, which it has from then on.
    fn find_or_insert(
        &mut self,
        value: &(impl Hash + ?Sized),
        next: usize,
        same: impl Fn(u32) -> bool,
    ) -> Found {
        let hash = self.hasher.hash_one(value);
        match self.numbers.find(hash, |&(other, id)| other == hash && same(id)) {
            Some(&(_, id)) => Found::Known(id),
            None => {
                let id = number(next);
                self.numbers.insert_unique(hash, (hash, id), |&(hash, _)| hash);
                Found::New(id)
            }
        }
    }
}

enum Found {
    Known(u32),
    New(u32),
}

/// Values that were seen.
#[derive(Debug)]
pub struct Table<T> {
    items: Vec<T>,
    index: Index,
}

impl<T: Hash + Eq> Table<T> {
    /// A table of the zero value.
    pub fn new(zero: T) -> Self {
        let mut table = Self { items: Vec::new(), index: Index::default() };
        table.intern(zero);
        table
    }

    /// The number of a value, which it has from now on.
    pub fn intern(&mut self, value: T) -> u32 {
        let items = &self.items;
        let same = |id| *item(items, id) == value;
        match self.index.find_or_insert(&value, items.len(), same) {
            Found::Known(id) => id,
            Found::New(id) => {
                self.items.push(value);
                id
            }
        }
    }
}

#[expect(clippy::len_without_is_empty, reason = "the zero value is always there")]
impl<T> Table<T> {
    /// How many there are, the zero value among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The value that a number of this table stands for.
    ///
    /// # Panics
    ///
    /// For a number of another table.
    #[must_use]
    pub fn get(&self, id: u32) -> &T {
        item(&self.items, id)
    }

    /// All, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.items.iter()
    }
}

/// Lists that were seen. The zero value is the empty one.
#[derive(Debug)]
pub struct Lists<T> {
    flat: Vec<T>,
    /// Where in it each list ends; it begins at the end of the one before.
    ends: Vec<usize>,
    index: Index,
}

#[expect(clippy::len_without_is_empty, reason = "the zero value is always there")]
impl<T: Hash + Eq + Copy> Lists<T> {
    /// A table of the empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { flat: Vec::new(), ends: vec![0], index: Index::default() }
    }

    /// The number of a list, which it has from now on.
    pub fn intern(&mut self, list: &[T]) -> u32 {
        if list.is_empty() {
            return 0;
        }
        let (flat, ends) = (&self.flat, &self.ends);
        let same = |id| flat.get(range(ends, id)) == Some(list);
        match self.index.find_or_insert(list, ends.len(), same) {
            Found::Known(id) => id,
            Found::New(id) => {
                self.flat.extend_from_slice(list);
                self.ends.push(self.flat.len());
                id
            }
        }
    }

    /// How many there are, the zero value among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The list that a number stands for.
    #[must_use]
    pub fn get(&self, id: u32) -> &[T] {
        self.flat.get(range(&self.ends, id)).unwrap_or_default()
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        (0..number(self.len())).map(|id| self.get(id))
    }
}

impl<T: Hash + Eq + Copy> Default for Lists<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self::new()
    }
}

/// Texts that were seen. The zero value is the empty one.
#[derive(Debug, Clone)]
pub struct Texts {
    flat: String,
    ends: Vec<usize>,
    index: Index,
}

#[expect(clippy::len_without_is_empty, reason = "the zero value is always there")]
impl Texts {
    /// A table of the empty text.
    #[must_use]
    pub fn new() -> Self {
        Self { flat: String::new(), ends: vec![0], index: Index::default() }
    }

    /// The number of a text, which it has from now on.
    pub fn intern(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let (flat, ends) = (self.flat.as_bytes(), &self.ends);
        let same = |id| flat.get(range(ends, id)) == Some(text.as_bytes());
        match self.index.find_or_insert(text, ends.len(), same) {
            Found::Known(id) => id,
            Found::New(id) => {
                self.flat.push_str(text);
                self.ends.push(self.flat.len());
                id
            }
        }
    }

    /// How many there are, the zero value among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text that a number stands for.
    #[must_use]
    pub fn get(&self, id: u32) -> &str {
        self.flat.get(range(&self.ends, id)).unwrap_or_default()
    }

    /// All, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..number(self.len())).map(|id| self.get(id))
    }
}

fn range(ends: &[usize], id: u32) -> std::ops::Range<usize> {
    let begin = id.checked_sub(1).map_or(0, |before| *item(ends, before));
    begin..*item(ends, id)
}

/// A number for an index.
///
/// # Panics
///
/// When a table has 2^32 items: whoever fills one bounds it far below.
#[must_use]
pub fn number(index: usize) -> u32 {
    u32::try_from(index).expect("tables are bounded by whoever fills them")
}

/// The item that a number stands for.
///
/// # Panics
///
/// For a number of another table.
#[must_use]
#[expect(clippy::indexing_slicing, reason = "numbers come from the table that they are used on")]
pub fn item<T>(items: &[T], id: u32) -> &T {
    &items[id as usize]
}
