//! Parts that most values do not have: they take room where they hold something.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that nearly always is the default one.
#[derive(Debug, Clone)]
pub(crate) struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default> Rare<T> {
    /// `None` for the default value.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// The same, to change what is there.
    pub(crate) fn some_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// Takes it out; the default value stays.
    pub(crate) fn take(&mut self) -> T {
        self.0.take().map(|value| *value).unwrap_or_default()
    }
}

impl<T: Default + PartialEq> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self.get(), other.get()) {
            (None, None) => true,
            (Some(one), Some(other)) => one == other,
            (Some(one), None) | (None, Some(one)) => *one == T::default(),
        }
    }
}

impl<T: Default + Eq> Eq for Rare<T> {}

impl<T: Default + Serialize> Serialize for Rare<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.get() {
            Some(value) => value.serialize(serializer),
            None => T::default().serialize(serializer),
        }
    }
}

impl<'de, T: Default + PartialEq + Deserialize<'de>> Deserialize<'de> for Rare<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = T::deserialize(deserializer)?;
        Ok(Self((value != T::default()).then(|| Box::new(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_the_default_value_are_one_and_look_alike_from_outside() {
        let nothing = Rare::<Vec<u8>>::default();
        let mut emptied = Rare::<Vec<u8>>::default();
        emptied.get_mut().push(7_u8);
        assert_ne!(nothing, emptied);
        assert_eq!(serde_json::to_string(&emptied).unwrap(), "[7]");
        emptied.get_mut().clear();
        assert_eq!(nothing, emptied);
        assert_eq!(serde_json::to_string(&nothing).unwrap(), "[]");
        let read: Rare<Vec<u8>> = serde_json::from_str("[]").unwrap();
        assert!(read.get().is_none());
        assert!(emptied.take().is_empty());
    }
}
