//! Where notifications are kept, as a session asks for them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a key.
pub const MAX_KEY_LEN: usize = 512;

/// A key that OSProfiler uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key<'k> {
    /// `osprofiler_opt:BASE_ID`: the notifications of a trace.
    Trace(&'k str),
    /// A text.
    Text(TextKey<'k>),
}

/// The key of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextKey<'k> {
    /// `osprofiler_error:BASE_ID`: that a trace has an error.
    Error(&'k str),
    /// `osprofiler:BASE_ID…`: one notification.
    Notification(&'k str),
}

impl<'k> Key<'k> {
    /// `None` for what OSProfiler does not use, and beyond [`MAX_KEY_LEN`].
    #[must_use]
    pub fn parse(key: &'k [u8]) -> Option<Self> {
        let key = str::from_utf8(key).ok().filter(|key| key.len() <= MAX_KEY_LEN)?;
        let (namespace, rest) = key.split_once(':')?;
        match namespace {
            _ if rest.is_empty() => None,
            "osprofiler_opt" => Some(Self::Trace(rest)),
            "osprofiler_error" => Some(Self::Text(TextKey::Error(rest))),
            "osprofiler" => Some(Self::Text(TextKey::Notification(rest))),
            _ => None,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(base_id) => write!(f, "osprofiler_opt:{base_id}"),
            Self::Text(TextKey::Error(base_id)) => write!(f, "osprofiler_error:{base_id}"),
            Self::Text(TextKey::Notification(rest)) => write!(f, "osprofiler:{rest}"),
        }
    }
}

/// Some of the keys, and where to go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Whole keys.
    pub keys: Vec<String>,
    /// What to give for those behind; 0 when there are none.
    pub cursor: u64,
}

/// Why notifications are not kept, or not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room. A client gets the error of a Redis server that is out of memory, which OSProfiler raises within the
    /// request that it traces; whoever would rather lose notifications than that counts them and answers with a length.
    #[error("there is no room")]
    Full,
    /// It does not work at present.
    #[error("the store does not answer: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps lists of notifications and texts. None of this may wait for long: a service waits for it.
pub trait Traces {
    /// Puts a notification in front of a trace's; gives how many it has then.
    ///
    /// # Errors
    /// When it is not kept.
    fn push(&mut self, base_id: &str, notification: &[u8]) -> Result<usize, StoreError>;

    /// Keeps a text in place of the one before.
    ///
    /// # Errors
    /// When it is not kept.
    fn set(&mut self, key: TextKey<'_>, text: &[u8]) -> Result<(), StoreError>;

    /// A text.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, key: TextKey<'_>) -> Result<Option<Arc<[u8]>>, StoreError>;

    /// How many notifications a trace has; 0 for one that is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    fn len(&self, base_id: &str) -> Result<usize, StoreError>;

    /// Those of a trace at these places, the newest at 0; what is beyond its end is left out. What they have in all is the store's to bound.
    ///
    /// # Errors
    /// When they cannot be read.
    fn range(&self, base_id: &str, places: Range<usize>) -> Result<Vec<Arc<[u8]>>, StoreError>;

    /// Of the next `most` keys from a cursor on those that begin with `prefix`. The first cursor is 0. A key that is there all the
    /// time is found once.
    ///
    /// # Errors
    /// When they cannot be read.
    fn keys(&self, prefix: &str, cursor: u64, most: usize) -> Result<Page, StoreError>;
}
