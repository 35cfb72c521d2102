//! Names of system calls as small values.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::call::Traits;

/// The name of a system call; one name is always the same value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum CallName {
    /// The number of a call that x86-64 has.
    Known(u16),
    /// Any other name; empty where a return does not say from which call.
    Other(Arc<str>),
}

impl Hash for CallName {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::Known(number) => number.hash(hasher),
            Self::Other(text) => text.hash(hasher),
        }
    }
}

impl CallName {
    pub(crate) fn new(text: &str) -> Self {
        model::syscall_number(text).map_or_else(|| Self::Other(text.into()), Self::Known)
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Known(number) => model::syscall_name(u64::from(*number)).unwrap_or("unknown"),
            Self::Other(text) => text,
        }
    }

    /// The name for an answer.
    pub(crate) fn shown(&self) -> Arc<str> {
        match self {
            Self::Known(_) => self.text().into(),
            Self::Other(text) => Arc::clone(text),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Other(text) if text.is_empty())
    }

    /// What all calls of the name have in common.
    #[inline]
    pub(crate) fn traits(&self) -> Traits {
        match self {
            Self::Known(number) => match TRAITS.get(usize::from(*number)) {
                Some(traits) => *traits,
                None => Traits::of(self.text()),
            },
            Self::Other(text) => Traits::of(text),
        }
    }
}

/// By number, as far as numbers of calls go.
static TRAITS: LazyLock<Vec<Traits>> =
    LazyLock::new(|| (0..1_024).map(|number| Traits::of(CallName::Known(number).text())).collect());

/// How many names are remembered.
const PLACES: usize = 1_024;

/// Finds the value of a name by where the reader keeps its text: an event record class has it at the same place in every
/// event. The text itself decides; the place only says where to look first.
#[derive(Debug)]
pub(crate) struct CallNames(Vec<CallName>);

impl Default for CallNames {
    fn default() -> Self {
        Self(vec![CallName::new(""); PLACES])
    }
}

impl CallNames {
    #[inline]
    pub(crate) fn of(&mut self, text: &str) -> CallName {
        let address = text.as_ptr().addr();
        let place = (address >> 4) ^ (address >> 14) ^ text.len();
        match self.0.get_mut(place % PLACES) {
            Some(name) => {
                if name.text() != text {
                    *name = CallName::new(text);
                }
                name.clone()
            }
            None => CallName::new(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_value_wherever_its_text_is() {
        let mut names = CallNames::default();
        for text in ["read", "futex", "no_such_call", "", "read"] {
            let elsewhere = text.to_owned();
            assert_eq!(names.of(text), names.of(&elsewhere));
            assert_eq!(names.of(text).text(), text);
            assert_eq!(&*names.of(text).shown(), text);
        }
        assert_eq!(names.of("read"), CallName::Known(0));
        assert!(names.of("").is_empty() && !names.of("read").is_empty());
    }
}
