//! Rules by address.

use crate::rule::Rule;

/// The rules of one file's code, by address before the loader moves it.
///
/// A row holds from its address to that of the next one; before the first and behind the last nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Address of the first row.
    base: u64,
    /// Bytes from the base, rising.
    starts: Vec<u32>,
    rules: Vec<Rule>,
}

impl Table {
    pub(crate) fn with_base(base: u64) -> Self {
        Self { base, starts: Vec::new(), rules: Vec::new() }
    }

    /// Appends a row; whether there was room: an address is at most 4 GiB behind the first. One at or before the last row's takes
    /// its place.
    pub(crate) fn push(&mut self, address: u64, rule: Rule) -> bool {
        let Some(start) = address.checked_sub(self.base).and_then(|at| u32::try_from(at).ok())
        else {
            return false;
        };
        while self.starts.last().is_some_and(|last| *last >= start) {
            self.starts.pop();
            self.rules.pop();
        }
        if self.rules.last() != Some(&rule) {
            self.starts.push(start);
            self.rules.push(rule);
        }
        true
    }

    pub(crate) fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.rules.shrink_to_fit();
    }

    /// The rule of the instruction at an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Rule {
        let Some(at) = address.checked_sub(self.base).and_then(|at| u32::try_from(at).ok()) else {
            return Rule::UNKNOWN;
        };
        let behind = self.starts.partition_point(|start| *start <= at);
        let found = behind.checked_sub(1).and_then(|row| self.rules.get(row));
        found.copied().unwrap_or(Rule::UNKNOWN)
    }

    /// The address that rows count from.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// The rows: bytes from the base, and the rule from there on.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (u32, Rule)> {
        self.starts.iter().copied().zip(self.rules.iter().copied())
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }
}
